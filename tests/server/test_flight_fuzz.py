"""Messages, headers, actions and streams that no client would send: the server stays up, and its errors say nothing of its insides."""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.flight.messages import MESSAGES, pack, unpack
from duckdb_dp.gateway.flight.server import ACTIONS
from tests.server.conftest import make_database
from tests.server.flight_clients import ASKED, Flight, fl, serving

NAMES = [line.partition(":")[0] for line in MESSAGES.strip().splitlines()]
TEXTS = [
    "",
    "SELECT 1",
    ASKED,
    "FROM visits",
    "SELECT ?",
    "\0",
    "'",
    "((",
    "é" * 300,
    "$99999",
    "; ;",
    "FROM dp_marginals(?)",
    "%_\\",
]


@pytest.fixture(scope="module")
def flight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flight]:
    path = tmp_path_factory.mktemp("made") / "clinic.duckdb"
    with serving((path, make_database(path)), tmp_path_factory.mktemp("served")) as served:
        yield served


def message(rng: random.Random) -> bytes:
    """A message whose fields are nonsense, or whose bytes are."""
    name = rng.choice(NAMES)
    fields = unpack(pack(name))[1].DESCRIPTOR.fields
    values: dict[str, Any] = {}
    for field in fields:
        text = rng.choice(TEXTS)
        value = {field.TYPE_STRING: text, field.TYPE_BYTES: text.encode(), field.TYPE_BOOL: True}.get(
            field.type, rng.randrange(2**31)
        )
        if rng.random() < 0.7:
            values[field.name] = [value] if getattr(field, "is_repeated", False) else value
    whole = bytearray(pack(name, **values))
    for _ in range(rng.choice([0, 0, 1, 3, 20])):
        place = rng.randrange(len(whole) + 1)
        whole[place : place + rng.choice([0, 1, 1, 5])] = rng.randbytes(rng.choice([0, 1, 1, 4]))
    return bytes(whole) if rng.random() < 0.9 else rng.randbytes(rng.randrange(40))


def header(rng: random.Random, token: str) -> tuple[bytes, bytes]:
    """A header that may be legal."""
    name = rng.choice([b"authorization", b"authorization", b"x-bin", b"auth-token-bin", b"user-agent", b"cookie"])
    starts = [b"Bearer ", b"Basic ", b"bearer", b"", b"Bearer " + token.encode()]
    return name, rng.choice(starts) + rng.choice([rng.randbytes(9), b"." * 40, b"\xff\xfe", b"YTpi", "é".encode()])


def test_a_message_is_read_or_refused() -> None:
    rng = random.Random(1)
    for _ in range(3_000):
        text = message(rng)
        try:
            name, _found = unpack(text)
        except DPError as error:
            assert "\n" not in str(error)
        else:
            assert name in NAMES


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_the_server_outlives_nonsense(flight: Flight, seed: int) -> None:
    rng = random.Random(seed)
    client, options = flight.client()
    told = 0
    for _ in range(250):
        text = message(rng)
        sent = options
        if rng.random() < 0.2:
            sent = fl.FlightCallOptions(headers=[header(rng, flight.tokens["alice"])], timeout=60)
        try:
            match rng.randrange(6):
                case 0:
                    client.get_flight_info(fl.FlightDescriptor.for_command(text), sent)
                case 1:
                    client.get_schema(fl.FlightDescriptor.for_command(text), sent)
                case 2:
                    client.do_get(fl.Ticket(text), sent).read_all()
                case 3:
                    list(client.do_action((rng.choice([*ACTIONS, "", "é", "x" * 3_000]), text), sent))
                case 4:
                    batch = pa.record_batch({"a": [1] * rng.choice([0, 1, 2])})
                    writer, _ = client.do_put(fl.FlightDescriptor.for_command(text), batch.schema, sent)
                    writer.write_batch(batch)
                    writer.close()
                case _:
                    client.get_flight_info(fl.FlightDescriptor.for_path(text, b"x"), sent)
        except (pa.ArrowException, fl.FlightError, OSError) as error:  # OSError: the client itself refuses a header
            told += 1
            line = str(error)
            for word in ("Traceback", 'File "', ".pyx", ".py:", "Python exception"):
                assert word not in line, line
    assert told > 100
    assert flight.ask("SELECT 1 AS one").to_pydict() == {"one": [1]}
