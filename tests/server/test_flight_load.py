"""Many clients at once, and servers that are killed: what is charged is what was answered, once each, and what was answered stays."""

import math
import random
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.budget import Budget
from tests.server.conftest import make_database
from tests.server.flight_clients import Plain, copied, fl, process, serving

Start = Callable[..., "subprocess.Popen[str]"]


def asked(number: int, epsilon: float = 0.3) -> str:
    """A request of its own, at about that price."""
    return f"FROM dp_marginals('visits', [['sex']], epsilon := {epsilon + number * 1e-9:.9f})"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    path = tmp_path_factory.mktemp("made") / "clinic.duckdb"
    return path, make_database(path)


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["grants", "dataset"])
def test_a_hundred_clients_race_for_the_last_budget(
    made: tuple[Path, dict[str, str]], tmp_path: Path, bound: str
) -> None:
    """Ten requests fit into each account's grant; where grants are large, about eighty into the dataset's budget."""
    with serving(made, tmp_path / "served", limits={"at_once": 200, "seconds": 300}) as flight:
        ledger = flight.gateway.broker.ledger
        if bound == "dataset":
            (dataset,) = (each for each in ledger.datasets() if each.name == "visits")
            for name in ("alice", "bob"):
                ledger.accounts.grant(name, dataset, Budget(epsilon=3))
        names = [name for name in ("alice", "bob") for _ in range(50)]
        line = threading.Barrier(len(names))

        def race(number: int) -> str:
            client = Plain(flight.uri, flight.tokens[names[number]])
            line.wait(120)
            try:
                return "answered" if client.ask(asked(number)).num_rows == 2 else "no rows"
            except fl.FlightError as error:
                return str(error)

        with ThreadPoolExecutor(len(names)) as pool:
            told = list(pool.map(race, range(len(names))))
        charged = [row for row in ledger.ledger_rows() if row["function"] == "dp_marginals"]
        assert told.count("answered") == len(charged) > 0
        assert all("nothing was charged" in each for each in told if each != "answered"), told
        least = min(row["cost"] for row in charged)
        (visits,) = (row for row in ledger.budget_rows() if row["dataset"] == "visits")
        assert visits["spent"] == pytest.approx(math.fsum(row["cost"] for row in ledger.ledger_rows()), abs=1e-15)
        assert visits["spent"] <= visits["total"]
        left = []
        for grant in ledger.accounts.grants():
            own = [row["cost"] for row in ledger.asked_by(grant["account"]).ledger_rows()]
            assert grant["spent"] == pytest.approx(math.fsum(own), abs=1e-15)
            assert grant["spent"] <= grant["total"]
            left.append(grant["total"] - grant["spent"])
        assert math.fsum(row["spent"] for row in ledger.accounts.grants()) == pytest.approx(
            math.fsum(row["cost"] for row in charged)
        )
        # nobody was refused what was left
        assert visits["remaining"] < least if bound == "dataset" else all(each < least for each in left[:2])


KILLS = 60
"""How often a server that has requests is killed."""


@pytest.mark.slow
def test_every_charge_is_accounted_for_after_kill_9_under_load(
    made: tuple[Path, dict[str, str]], tmp_path: Path, start: Start
) -> None:
    """However a server ends: who asks all again gets what was answered before, and each request was charged once."""
    path = copied(made[0], tmp_path)
    rng, lock = random.Random(KILLS), threading.Lock()
    sent: list[str] = []
    answered: dict[str, pa.Table] = {}

    def hammer(uri: str) -> None:
        client = Plain(uri, made[1]["alice"])
        with suppress(fl.FlightError):
            while True:
                with lock:
                    sent.append(sql := asked(len(sent), epsilon=0.001))
                found = client.ask(sql)
                with lock:
                    answered[sql] = found

    for _ in range(KILLS):
        with process(start, path) as (running, uri):
            clients = [threading.Thread(target=hammer, args=(uri,), daemon=True) for _ in range(4)]
            for each in clients:
                each.start()
            until = len(answered) + 1 + rng.randrange(8)
            while len(answered) < until:
                time.sleep(0.01)
            time.sleep(rng.random() / 10)
            running.kill()
            for each in clients:
                each.join(60)
                assert not each.is_alive()
    assert answered
    assert len(sent) - len(answered) <= 4 * KILLS
    charges = charged(path)
    assert len(answered) <= len(charges) <= len(sent)
    with process(start, path) as (_, uri):
        client = Plain(uri, made[1]["alice"])
        for sql in sent:
            found = client.ask(sql)
            assert found.equals(answered.get(sql, found)), sql
    charges = charged(path)
    assert len({row["request_hash"] for row in charges}) == len(charges) == len(sent)
    assert {row["state"] for row in charges} == {"stored"}
    ledger = Ledger(Path(f"{path}.dp"))
    costs = math.fsum(row["cost"] for row in charges)
    assert ledger.accounts.grants("alice")[0]["spent"] == pytest.approx(costs, rel=1e-12)
    files = {each.name for each in Path(f"{path}.dp").rglob("*.arrow")}
    assert {row["file"] for row in charges} <= files


def charged(path: Path) -> list[dict[str, Any]]:
    return [row for row in Ledger(Path(f"{path}.dp")).ledger_rows() if row["function"] == "dp_marginals"]
