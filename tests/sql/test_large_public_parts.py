"""Bounds and groups of public values look at few pairs of public rows, however large the tables are, and are right all the same."""

from collections.abc import Iterator

import duckdb
import pytest
from sqlglot import exp

import duckdb_dp.testing
from duckdb_dp.sql.owned import public_parts
from tests.conftest import Loaded

ROWS = 60
"""Of each of both public tables: few, and a limit of fewer pairs stands for many rows."""


@pytest.fixture(scope="module")
def rents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    connection, folder = duckdb.connect(), tmp_path_factory.mktemp("rents")
    connection.execute(
        f"""
        CREATE TABLE people (id INTEGER PRIMARY KEY); INSERT INTO people FROM range(60);
        CREATE TABLE p (k INTEGER PRIMARY KEY, n INTEGER, d DOUBLE, o INTEGER); INSERT INTO p SELECT i, i % 12, i * 0.5, i * 7 % {ROWS} FROM range({ROWS}) t(i);
        CREATE TABLE q (k INTEGER PRIMARY KEY, n INTEGER, d DOUBLE); INSERT INTO q SELECT i, i % 5, i * 0.4 FROM range({ROWS}) t(i);
        CREATE TABLE b (bk INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES people (id), k INTEGER, k2 INTEGER);
        INSERT INTO b SELECT i, i % 60, i * 11 % {ROWS}, i * 17 % {ROWS} FROM range(120) t(i);
        """
    )
    duckdb_dp.testing.load_exact(connection, folder / "rents.dp")
    found = Loaded(connection, folder / "rents.dp")
    found("CALL dp_protect(['people', 'b'], unit := 'people.id', max_rows := {'b': 2}, epsilon := 1e8, delta := 1e-9)")
    found("CALL dp_public(['p', 'q'])")
    yield found
    connection.close()


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The public tables that were looked at together, in turn, where 100 pairs are many."""
    found, real = list[set[str]](), public_parts.part

    def part(*arguments: object, **more: object) -> object:
        one = real(*arguments, **more)  # type: ignore[arg-type]  # whatever it takes
        tables = {table.name for table in arguments[0].select(one).find_all(exp.Table)}  # type: ignore[attr-defined]
        found.append(tables)
        return one

    monkeypatch.setattr(public_parts, "PAIRS", 100)
    monkeypatch.setattr(public_parts, "part", part)
    return found


BOTH = "FROM b JOIN p ON b.k = p.k JOIN q ON b.k2 = q.k WHERE"
LEFT = "FROM b LEFT JOIN p ON b.k = p.k LEFT JOIN q ON b.k2 = q.k WHERE"
PAIRWISE = {
    f"{BOTH} p.d + q.d > 5 AND p.d <> q.d": {"p"},
    f"{BOTH} sqrt(p.d * q.d) > 5 AND p.n > 2": {"p"},
    f"{BOTH} p.n = q.n": {"p"},  # which is no key
    f"{LEFT} p.d < q.d": {"p"},
    "FROM b JOIN p ON b.k = p.k WHERE (SELECT max(n) FROM q WHERE q.d <= p.d) > 3": {"p"},
    "FROM b JOIN p ON b.k = p.k WHERE EXISTS (SELECT 1 FROM q WHERE q.k > b.k AND q.n = 4)": {"p"},
}
"""What compares all rows with all others -> the tables that are looked at for bounds of p.n."""
LOOKED_UP = {
    "FROM b JOIN p ON b.k = p.k JOIN q ON p.o = q.k WHERE q.n < 2": {"p", "q"},
    "FROM b LEFT JOIN p ON b.k = p.k LEFT JOIN q ON q.k = p.o WHERE q.n < 2": {"p", "q"},
    "FROM b JOIN p ON b.k = p.k JOIN q ON b.k = q.n": {"p", "q"},
    "FROM b JOIN q ON b.k2 = q.k JOIN p ON p.k = b.k AND p.o = q.k": {"p", "q"},
    "FROM b JOIN p ON b.k = p.k WHERE EXISTS (SELECT 1 FROM q WHERE q.k = b.k AND q.n = 4)": {"p", "q"},
    "FROM b JOIN p ON b.k = p.k WHERE (SELECT max(n) FROM q WHERE q.k = p.o) > 3": {"p", "q"},
    "FROM b JOIN p ON b.k = p.k WHERE p.o IN (SELECT k FROM q WHERE n = 4)": {"p", "q"},
}
"""What finds rows by a key, or by columns that are equal."""


@pytest.mark.parametrize("table", [*PAIRWISE, *LOOKED_UP])
def test_bounds_follow_what_finds_rows_by_keys_alone(rents: Loaded, parts: list[set[str]], table: str) -> None:
    select = f"SELECT sum(p.n) AS n, avg(p.d) AS m {table}"
    found = rents("SELECT n, m FROM dp_sql(?, epsilon := 1e4)", [select])[0]
    assert parts
    assert all(one == {**PAIRWISE, **LOOKED_UP}[table] for one in parts)
    for one, truth in zip(found, rents(select)[0], strict=True):
        assert float(one) == pytest.approx(float(truth), rel=0.02, abs=0.1)


@pytest.mark.parametrize("table", [*PAIRWISE, *LOOKED_UP])
def test_groups_are_right_all_the_same(rents: Loaded, parts: list[set[str]], table: str) -> None:
    """Tables of inner joins are compared as conditions say, as ever."""
    select = f"SELECT p.n, count(*) AS c {table} GROUP BY 1"
    found = dict(rents("SELECT n, c FROM dp_sql(?, epsilon := 1e4)", [select]))
    assert parts
    if table in LOOKED_UP or "LEFT" in table or "SELECT" in table:
        assert all(one == {**PAIRWISE, **LOOKED_UP}[table] for one in parts)
    truth = dict(rents(select))
    assert {*truth} <= {*found}
    assert all(round(count) == truth.get(key, 0) for key, count in found.items())


@pytest.mark.parametrize("table", PAIRWISE)
def test_few_pairs_are_all_looked_at(rents: Loaded, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small tables bounds and groups are those of the rows that all conditions leave."""
    select = f"SELECT sum(p.d) AS n {table}"
    (wide,) = _errors(rents, select)
    monkeypatch.setattr(public_parts, "PAIRS", 0)
    assert wide <= _errors(rents, select)[0]


def _errors(found: Loaded, select: str) -> list[float]:
    return [row[0] for row in found("SELECT stddev FROM dp_explain(NULL, ?, epsilon := 1)", [select])]
