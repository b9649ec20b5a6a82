"""An expression that stands twice in a statement, or that DuckDB writes twice, fails in its own row alone and shows nobody's value.

DuckDB takes such an expression out of TRY(...) and works it out once for each row, where it fails (``common_subexpressions``).
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded, one_line

FAILING = [
    "CAST(s AS INTEGER)",
    "(c + 1)",
    "(-b)",
    "(c * c)",
    "(h * h)",
    "CAST(s AS DATE) - DATE '2020-01-01'",
    "(c // (c - 2147483647 + d))",
]
"""Expressions that fail for one person alone."""

TWICE = [
    "sum(CASE WHEN {} IN (1, 2) THEN 1 ELSE 0 END) AS n",
    "count(*) FILTER (WHERE {} NOT BETWEEN 3 AND 9) AS n",
    "sum(greatest(least({0} * {0}, 5), 0)) AS n",
    "sum(CAST({0} AS INTEGER)) AS n, median(CAST({0} AS INTEGER)) AS m",
    "sum(nullif(nullif({}, 3), 4)) AS n",
    "count({0}) AS n, count(DISTINCT {0}) AS m",
]


@pytest.fixture(scope="module", params=["one", "family"])
def tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Loaded]]:
    """The table with and without a person whose values fail."""
    made = []
    for name in ("without", "with"):
        connection = duckdb.connect()
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY); INSERT INTO people FROM range(60)")
        connection.execute(
            "CREATE TABLE t (id INTEGER REFERENCES people (id), c INTEGER, b TINYINT, h HUGEINT, d INTEGER, s VARCHAR)"
        )
        connection.execute("INSERT INTO t SELECT i, i, i % 9, i, 1, i::VARCHAR FROM range(50) r(i)")
        if name == "with":
            connection.execute(
                "INSERT INTO t VALUES (55, 2147483647, -128, 170141183460469231731687303715884105727, 0, 'secret')"
            )
        folder = tmp_path_factory.mktemp(name) / "l.dp"
        duckdb_dp.testing.load_exact(connection, folder)
        loaded = Loaded(connection, folder)
        member = "['people', 't'], unit := 'people.id', max_rows := {'t': 1}"
        loaded(f"CALL dp_protect({member if request.param == 'family' else repr('t')}, mu := 10000, delta := 1e-6)")
        made.append(loaded)
    yield made
    for loaded in made:
        loaded.connection.close()


def outcome(loaded: Loaded, sql: str) -> object:
    """The rows' number and columns, or the error."""
    try:
        return len(loaded(sql)), loaded.columns(sql)
    except duckdb.Error as error:
        return one_line(str(error))


@pytest.mark.slow
@pytest.mark.some(1, "twice")
@pytest.mark.parametrize("expression", FAILING)
@pytest.mark.parametrize("twice", TWICE)
@pytest.mark.parametrize("bound", ["", ", max_rows := 'auto'"], ids=["rows", "auto"])
def test_it_fails_in_its_own_row_alone(tables: list[Loaded], twice: str, expression: str, bound: str) -> None:
    select = f"SELECT {twice.format(expression)} FROM t WHERE c > -9 AND b > -200"
    sql = f"FROM dp_sql($${select}$$, mu := 1{bound})"
    without, with_one = (outcome(loaded, sql) for loaded in tables)
    assert without == with_one
    assert "secret" not in str(with_one)


def test_groups_and_views(tables: list[Loaded]) -> None:
    grouped = (
        "SELECT CASE WHEN CAST(s AS INTEGER) IN (1, 2) THEN 'a' ELSE 'b' END AS k, count(*) AS n FROM t GROUP BY 1"
    )
    found = [outcome(loaded, f"FROM dp_sql($${grouped}$$, mu := 1)") for loaded in tables]
    assert found[0] == found[1]
    assert "secret" not in str(found)


def test_the_setting_is_asked_for(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET disabled_optimizers = 'join_order'")
        duckdb_dp.testing.load(connection, tmp_path / "l.dp", seed=1)
        loaded = Loaded(connection, tmp_path / "l.dp")
        assert loaded("SELECT current_setting('disabled_optimizers')") == [("join_order,common_subexpressions",)]
        loaded("CREATE TABLE t (c INTEGER); CALL dp_protect('t', mu := 9)")
        loaded("FROM dp_sql('SELECT count(*) FROM t', mu := 1)")
        loaded("SET disabled_optimizers = 'join_order'")
        said = loaded.refused("FROM dp_sql('SELECT count(*) FROM t', mu := 2)")
        assert "SET disabled_optimizers = 'join_order,common_subexpressions' first" in said
        loaded("SET disabled_optimizers = 'join_order,common_subexpressions'")
        loaded("FROM dp_sql('SELECT count(*) FROM t', mu := 2)")


def test_a_locked_configuration(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET lock_configuration = true")
        with pytest.raises(duckdb_dp.DPError, match="before lock_configuration"):
            duckdb_dp.load(connection, tmp_path / "l.dp")
