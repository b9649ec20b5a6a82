"""The limit of rows: what is known to have more is refused before it is charged, and what was charged is given whole."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import duckdb
import pytest

import duckdb_dp
from duckdb_dp.errors import DPError
from duckdb_dp.gateway import twins
from duckdb_dp.gateway.config import Config, Limits
from duckdb_dp.gateway.gateway import Gateway
from tests.server.conftest import Served

TOO_LARGE = [
    "dp_marginals('visits', ['age', 'sex'], {})",
    "dp_marginals('visits', ['age', 'sex'], {}, fresh := true)",
    "dp_marginals('visits', [['age'], ['sex'], []], {})",
    "dp_queries('visits', {{'age': 'range'}}, {})",
    "dp_sql('SELECT age, sex, count(*) AS n FROM visits GROUP BY age, sex', {})",
    "dp_sql('SELECT age, sex, sum(age) AS n FROM visits GROUP BY age, sex', {})",
    "dp_sql('SELECT age, sum(age) AS n, avg(age) AS m FROM visits GROUP BY ROLLUP (age, sex)', {})",
    "dp_sql(['SELECT age, count(*) AS n FROM visits GROUP BY age', 'SELECT sex, sum(age) AS n FROM visits GROUP BY sex'], {})",
    "dp_quantiles('visits', 'age', [0.2, 0.5, 0.8], {}, by := 'sex')",
    "dp_synthesize('visits', {}, attributes := ['sex'], rows := 6)",
]
"""Each has at least six rows, which are known from the call."""

SMALL = [
    "dp_marginals('visits', ['age'], {})",
    "dp_sql('SELECT sex, count(*) AS n, avg(age) AS m FROM visits GROUP BY sex', {})",
    "dp_sql('SELECT age, sex, sum(age) AS n FROM visits GROUP BY age, sex ORDER BY n LIMIT 4', {})",
    "dp_quantiles('visits', 'age', [0.5], {}, by := 'sex')",
]


@pytest.fixture
def small(made: tuple[Path, dict[str, str]]) -> Iterator[Served]:
    gateway = Gateway.open(Config(database=made[0] / "clinic.duckdb", limits=Limits(rows=5)))
    yield Served(gateway, made[1], made[0] / "clinic.duckdb")
    gateway.close()


def spent(served: Served) -> float:
    return float(served.gateway.broker.ledger.accounts.grants("alice")[0]["spent"])


@pytest.mark.parametrize("call", TOO_LARGE)
def test_what_has_too_many_rows_is_refused_before_it_is_charged(small: Served, call: str) -> None:
    alice, asked = small.session("alice"), f"FROM {call.format('epsilon := 0.01')}"
    for statement in (asked, f"SELECT count(*) AS n {asked}"):
        with pytest.raises(DPError, match=r"the answer would have \d+ rows, and here one has at most 5"):
            alice.run(statement)
    with pytest.raises(DPError, match="would have"):
        alice.price(asked)
    assert spent(small) == 0.0


@pytest.mark.parametrize("call", SMALL)
def test_what_has_few_rows_is_answered(small: Served, call: str) -> None:
    found = small.session("alice").run(f"FROM {call.format('epsilon := 0.01')}")
    assert 0 < found.num_rows <= 5
    assert spent(small) > 0.0


@pytest.mark.slow
def test_what_was_charged_is_given_whole(made: tuple[Path, dict[str, str]]) -> None:
    asked, anew = (
        "FROM dp_marginals('visits', ['age', 'sex'], epsilon := 0.01)",
        "dp_synthesize('visits', epsilon := 0.02)",
    )
    database = made[0] / "clinic.duckdb"
    for rows in (100, 5):
        gateway = Gateway.open(Config(database=database, limits=Limits(rows=rows)))
        try:
            served = Served(gateway, made[1], database)
            alice = served.session("alice")
            if rows == 100:
                found = alice.run(asked)
                assert found.num_rows == 10
                before = spent(served)
                drawn = alice.run(f"FROM {anew}")  # whose number of rows is not known before
                assert drawn.num_rows > 100
                paid = spent(served)
                assert paid > before
                assert alice.run(f"SELECT count(*) AS n FROM {anew}")["n"].to_pylist() == [drawn.num_rows]
                with pytest.raises(DPError, match="what was paid is kept, and read again at no cost"):
                    alice.run(f"SELECT a.* FROM {anew} a, {anew} b")
            assert alice.run(asked) == found, "also once the limit is lower"
            assert alice.read_release(2) == found
            assert alice.run(f"FROM {anew}") == drawn
            assert spent(served) == paid
        finally:
            gateway.close()


@pytest.mark.slow
def test_what_is_free_has_the_limit_and_its_columns_do_not_count(small: Served) -> None:
    alice = small.session("alice")
    assert len(alice.schema("FROM dp_budget()")) > 5
    assert alice.run("SELECT dataset FROM dp_budget()").num_rows == 1
    selects = ", ".join(f"'SELECT count(*) AS n FROM visits WHERE age < {10 * each}'" for each in range(1, 7))
    with pytest.raises(DPError, match="more than 5 rows"):
        alice.run(f"FROM dp_explain(NULL, [{selects}], epsilon := 0.1)")


@pytest.mark.slow
def test_running_totals_are_counted_by_the_clock(made: tuple[Path, dict[str, str]]) -> None:
    database = made[0] / "clinic.duckdb"
    with duckdb.connect(str(database)) as con:
        duckdb_dp.load(con, progress=False)
        con.execute("CREATE TABLE days AS SELECT DATE '2026-01-01' + (range % 5)::INTEGER AS day FROM range(50)")
        con.execute("CALL dp_protect('days', epsilon := 1, delta := 1e-9)")
        con.execute("CALL dp_grant('alice', 'days', epsilon := 1)")
    gateway = Gateway.open(Config(database=database, limits=Limits(rows=5)))
    try:
        alice = Served(gateway, made[1], database).session("alice")
        call = "FROM dp_running('days', [], epsilon := 0.1, start := DATE '2026-01-01', horizon := {})"
        with pytest.raises(DPError, match="would have 6 rows"):
            alice.run(call.format(6))
        assert alice.run(call.format(5))["day"].to_pylist()[-1] == date(2026, 1, 5)
    finally:
        gateway.close()


@pytest.mark.slow
def test_a_twin_of_more_rows_than_a_session_may_copy_is_thinned(made: tuple[Path, dict[str, str]]) -> None:
    database = made[0] / "clinic.duckdb"
    with duckdb.connect(str(database)) as con:
        (whole,) = con.execute("SELECT count(*) FROM visits_syn").fetchall()[0]
    assert whole > 500, "about a thousand, by its noise"
    for rows in (100, 7, 1_000_000):  # the second start and the third find the twin that the first has made
        gateway = Gateway.open(Config(database=database, limits=Limits(rows=rows)))
        try:
            assert twins.make(gateway.broker, 0.2, gateway.log) == {
                ("clinic", "main", "payroll"): ("clinic", "main", "payroll_synthetic")
            }
            alice = Served(gateway, made[1], database).session("alice")
            (row,) = alice.explore("SELECT count(*) AS n, min(age) AS low, max(age) AS high FROM visits").to_pylist()
            assert row["n"] == min(rows, whole)
            if rows == 100:
                assert row["high"] - row["low"] > 30, "they are from all of it"
        finally:
            gateway.close()
