"""The law of dp_explain: the price that it shows of a request is what the ledger then charges, of every kind of request."""

import math
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.shell.statements import calls
from tests.conftest import Loaded
from tests.laws.test_same_release import DECLARED, GONE, REQUESTS, TABLES

ASKED = {name: call for name, call in REQUESTS.items() if calls(call) and name != GONE and "given" not in call}
"""Those of the registry that dp_explain takes; aim with ``given`` is as aim."""

VISITS = """
CREATE TABLE clients AS SELECT i AS id, 'town' || i % 4 AS town, i % 30 AS years FROM range(900) t(i);
CREATE TABLE orders AS SELECT i % 900 AS client, 'ware' || i % 3 AS ware, DATE '2024-01-01' + (i % 700)::INTEGER AS day,
    (i % 40) / 4 AS paid FROM range(2000) t(i);
"""
PROTECTED = """
CALL dp_link('orders', "references" := {{'client': 'clients.id'}});
CALL dp_protect(['clients', 'orders'], unit := 'clients.id', max_rows := {{'orders': 4}}, {budget}, discovery_delta := 1e-10);
"""
FOUND = {
    "one column": "SELECT town, count(*) AS n FROM clients GROUP BY town",
    "two columns": "SELECT ware, paid, count(*) AS n FROM orders GROUP BY ALL",
    "an expression": "SELECT upper(ware) AS w, count(*) AS n, avg(paid) AS m FROM orders GROUP BY w",
    "joined": "SELECT town, count(*) AS n FROM orders JOIN clients ON client = id GROUP BY town",
    "above": "SELECT * FROM (SELECT town, count(*) AS n FROM clients GROUP BY town) ORDER BY n DESC LIMIT 2",
    "no column": "SELECT count(*) AS n FROM clients",
}
COLUMNS = "DISTINCT epsilon, rho, mu"


def check(loaded: Loaded, price: str, call: str) -> list[str]:
    """Compare a price with what the ledger has more after the call, and tell whose charges these are."""
    before = loaded.charges()
    rows = loaded(f"SELECT {COLUMNS} {price}")
    assert len(rows) == 1
    assert loaded.charges() == before
    loaded(f"SELECT count(*) {call}")
    charges = loaded.charged()[before:]
    (table,) = {one["dataset"] for one in charges}
    dataset = next(one for one in Ledger(loaded.folder).datasets() if one.name == table)
    costs, rhos, mus = ([one[name] for one in charges] for name in ("cost", "rho", "mu"))
    assert rows[0] == (
        pytest.approx(dataset.epsilon_of(math.fsum(costs))),
        None if None in rhos else pytest.approx(math.fsum(rhos)),
        None if None in mus else pytest.approx(math.hypot(*mus)),
    )
    return [one["function"] for one in charges]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("price") / "l.dp"
    with duckdb.connect() as connection:
        connection.execute(TABLES)
        duckdb_dp.testing.load_exact(connection, folder)
        connection.execute(DECLARED)
        yield Loaded(connection, folder)


@pytest.mark.some(6)
@pytest.mark.parametrize("name", ASKED)
def test_of_every_kind_of_request(registry: Loaded, name: str) -> None:
    (call,) = calls(ASKED[name])
    assert check(registry, call.explained(), f"{ASKED[name][:-1]}, fresh := true)") == [call.function]


@pytest.mark.slow
@pytest.mark.some(3)
@pytest.mark.parametrize("words", ["epsilon := 0.5", '"precision" := 20'])
@pytest.mark.parametrize("select", FOUND.values(), ids=FOUND)
@pytest.mark.parametrize("budget", ["epsilon := 1000, delta := 1e-9", "rho := 1000, delta := 1e-9"])
def test_of_groups_that_are_found_first_and_of_those_that_are_known(
    tmp_path: Path, budget: str, select: str, words: str
) -> None:
    """The whole where the values are yet to be found; the part of the sums where they are stored."""
    with duckdb.connect() as connection:
        connection.execute(VISITS)
        duckdb_dp.testing.load_exact(connection, tmp_path / "l.dp")
        loaded = Loaded(connection, tmp_path / "l.dp")
        loaded(PROTECTED.format(budget=budget))
        price, call = (f"FROM {name}('{select}', {words})" for name in ("dp_explain", "dp_sql"))
        first = check(loaded, price, call)
        shares = loaded(f"SELECT sum(budget_share) {price}")
        assert shares == [(pytest.approx(1),)]
        assert first[-1] == "dp_sql"
        assert ("dp_discover" in first) == ("GROUP BY" in select)
        assert check(loaded, price, f"{call[:-1]}, fresh := true)") == ["dp_sql"]
