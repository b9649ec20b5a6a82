"""What the tests of Flight SQL share: a served copy of the clinic, clients of it, and a server in a process of its own."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from adbc_driver_flightsql import dbapi

from duckdb_dp.gateway.config import Config, Limits
from duckdb_dp.gateway.flight.messages import pack
from duckdb_dp.gateway.flight.server import Server
from duckdb_dp.gateway.gateway import Gateway

ASKED = "FROM dp_marginals('visits', [['sex']], epsilon := 0.2)"

SERVE = """
import sys
from pathlib import Path
from duckdb_dp.gateway.config import Config, Limits
from duckdb_dp.gateway import serve

config = Config(database=Path(sys.argv[1]), flight=0, limits=Limits(at_once=1000))
serve.run(config, ready=lambda ports: print(ports["flight"], flush=True))
"""


@dataclass(frozen=True)
class Flight:
    """A gateway with its server of Flight SQL."""

    gateway: Gateway
    server: Server
    tokens: dict[str, str]
    uri: str

    def connect(self, name: str = "alice", **options: Any) -> Any:
        return connect(self.uri, name, self.tokens[name], **options)

    def ask(self, sql: str, name: str = "alice") -> pa.Table:
        with self.connect(name) as connection:
            return ask(connection, sql)

    def client(self, name: str = "alice") -> tuple[Any, Any]:
        """A client of Flight alone, and the headers that say who it is."""
        plain = Plain(self.uri, self.tokens[name])
        return plain.client, plain.options

    def refused(self, call: Callable[[], object]) -> str:
        """The one line of an error that must come; no word of Python is in it, and the server answers on."""
        with pytest.raises(Exception) as caught:  # noqa: PT011
            call()
        line = str(caught.value)
        for word in ("Traceback", 'File "', ".py", ".pyx", "Python exception", "\n"):
            assert word not in line, line
        return line


def connect(uri: str, name: str, token: str, **options: Any) -> Any:
    return dbapi.connect(uri, db_kwargs={"username": name, "password": token, **options}, autocommit=True)


def ask(connection: Any, sql: str, parameters: Any = None) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetch_arrow_table()


class Plain:
    """A client of Flight alone: it leaves nothing behind when its server is killed."""

    def __init__(self, uri: str, token: str) -> None:
        self.options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=300)
        self.client = fl.connect(uri)

    def ask(self, sql: str) -> pa.Table:
        info = self.client.get_flight_info(command("CommandStatementQuery", query=sql), self.options)
        return self.client.do_get(info.endpoints[0].ticket, self.options).read_all()


@contextmanager
def serving(made: tuple[Path, dict[str, str]], folder: Path, **settings: Any) -> Iterator[Flight]:
    """A copy of a database, served."""
    database = copied(made[0], folder)
    limits = Limits(**{"seconds": 20, **settings.pop("limits", {})})
    gateway = Gateway.open(Config(database=database, flight=0, limits=limits, **settings))
    server = Server(gateway)
    kind = "grpc" if gateway.config.tls is None else "grpc+tls"
    try:
        yield Flight(gateway, server, made[1], f"{kind}://localhost:{server.port}")
    finally:
        server.close()
        gateway.close()


def copied(database: Path, folder: Path) -> Path:
    """A copy of a database and its ledger."""
    folder.mkdir(exist_ok=True)
    shutil.copy(database, folder)
    shutil.copytree(f"{database}.dp", folder / f"{database.name}.dp")
    return folder / database.name


@contextmanager
def process(
    start: Callable[..., "subprocess.Popen[str]"], database: Path
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server in a process of its own, and where it is; killed at the end."""
    with start(SERVE, database) as running:
        try:
            assert running.stdout is not None
            port = running.stdout.readline().strip()
            assert port.isdigit(), running.communicate()
            yield running, f"grpc://localhost:{port}"
        finally:
            running.kill()


def command(name: str, **fields: Any) -> Any:
    """A descriptor of Flight SQL."""
    return fl.FlightDescriptor.for_command(pack(name, **fields))
