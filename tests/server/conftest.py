"""A served database: a protected table 'visits', a public one 'towns', a synthetic twin, and accounts with their tokens."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest

import duckdb_dp
from duckdb_dp.gateway.config import Config, Limits
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.session import Session

collect_ignore_glob = [] if find_spec("google") else ["test_flight*.py"]  # Flight SQL needs the package protobuf


@dataclass(frozen=True)
class Served:
    gateway: Gateway
    tokens: dict[str, str]
    database: Path

    def session(self, name: str) -> Session:
        account = self.gateway.sign_in(name, self.tokens[name], client="test")
        return self.gateway.session(account, client="test")


def make_database(path: Path) -> dict[str, str]:
    """A clinic: 1,000 visits, and the accounts alice, bob (analysts), vera (viewer) and sam (steward)."""
    with duckdb.connect(str(path)) as con:
        duckdb_dp.load(con, progress=False)
        con.execute(
            "CREATE TABLE visits AS SELECT range % 50 AS age, ['f', 'm'][1 + range % 2] AS sex,"
            " 'secret' || range AS diagnosis FROM range(1000)"
        )
        con.execute("CREATE TABLE payroll AS SELECT 4711 + range AS salary FROM range(100)")
        con.execute("CREATE TABLE plain AS SELECT 'hidden' || range AS text FROM range(10)")
        con.execute("CREATE TABLE towns AS SELECT * FROM (VALUES ('f', 'Fulda'), ('m', 'Mainz')) AS t(sex, town)")
        con.execute("CALL dp_protect('visits', epsilon := 3, delta := 1e-9)")
        con.execute("CALL dp_protect('payroll', epsilon := 3, delta := 1e-9)")
        con.execute("CALL dp_attribute('visits', 'age', bins := [0, 10, 20, 30, 40, 50])")
        con.execute("CALL dp_attribute('visits', 'sex', \"values\" := ['f', 'm'])")
        con.execute("CALL dp_attribute('payroll', 'salary', bins := [4000, 4750, 5000])")
        con.execute("CALL dp_public('towns')")
        con.execute(
            "CREATE TABLE visits_syn AS FROM dp_synthesize('visits', attributes := ['age', 'sex'], epsilon := 0.3)"
        )
        names = [("alice", "analyst"), ("bob", "analyst"), ("vera", "viewer"), ("sam", "steward")]
        calls = ((name, f"CALL dp_account('{name}', role := '{role}')") for name, role in names)
        tokens = {name: con.execute(call).fetchall()[0][2] for name, call in calls}
        for name in ("alice", "bob", "sam"):
            con.execute(
                f"CALL dp_grant('{name}', 'visits', epsilon := 1, max_epsilon := 0.5, synthetic := 'visits_syn')"
            )
    return tokens


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A database that is made once, and its tokens."""
    folder = tmp_path_factory.mktemp("template")
    return folder, make_database(folder / "clinic.duckdb")


@pytest.fixture
def made(template: tuple[Path, dict[str, str]], tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with a copy of 'clinic.duckdb' and of its ledger, and the tokens."""
    return Path(shutil.copytree(template[0], tmp_path / "served")), template[1]


@pytest.fixture
def served(made: tuple[Path, dict[str, str]]) -> Iterator[Served]:
    path = made[0] / "clinic.duckdb"
    gateway = Gateway.open(Config(database=path, limits=Limits(seconds=20)))
    yield Served(gateway, made[1], path)
    gateway.close()
