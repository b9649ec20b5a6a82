"""Counts over declared cells that are sorted, cut or renamed: the planned answers, at no further cost."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TABLE = """
CREATE TABLE t AS SELECT i % 5 AS a, ['f', 'm'][1 + (i % 3 = 0)::INTEGER] AS sex, i % 100 AS age, ['f', 'm', 'x'][1 + i % 3] AS city
FROM range(6000) r(i)
"""
PLAIN = "SELECT sex, a, count(*) AS n FROM t GROUP BY sex, a"
SORTED = [
    "SELECT sex, a, count(*) AS n FROM t GROUP BY sex, a ORDER BY n DESC, a, sex LIMIT 3",
    "SELECT sex, a, count(*) AS n FROM t GROUP BY sex, a ORDER BY count(*), sex, a",
    "SELECT sex, a, count(*) AS n FROM t GROUP BY sex, a HAVING count(*) > 500 ORDER BY a, sex",
    "SELECT sex, a, count(*) AS n FROM t GROUP BY sex, a HAVING n > 500 AND sex = 'f' ORDER BY a",
    "SELECT sex AS who, a AS which, count(*) AS people FROM t GROUP BY who, which ORDER BY people DESC, 1, 2 LIMIT 4",
    "SELECT sex, a, count(*) FROM t GROUP BY ALL ORDER BY ALL",
    "SELECT sex, a FROM t GROUP BY 1, 2 HAVING count(*) < 500 ORDER BY 1, 2",
    "SELECT sex, a, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS r FROM t GROUP BY ALL HAVING n > 300 ORDER BY r, a, sex",
    "SELECT a, count(*) AS n, sex FROM t GROUP BY a, sex ORDER BY sex, a",
    "SELECT DISTINCT sex, a, count(*) AS n FROM t GROUP BY sex, a ORDER BY 1, 2",
    "WITH u AS (SELECT sex, a, count(*) AS n FROM t GROUP BY sex, a ORDER BY n) SELECT sex, max(n) AS most FROM u GROUP BY sex ORDER BY sex",
]
"""Each of the same counts as ``PLAIN``."""


@pytest.fixture
def exact(tmp_path: Path) -> Iterator[Loaded]:
    connection, folder = duckdb.connect(), tmp_path / "l.dp"
    connection.execute(TABLE)
    duckdb_dp.testing.load_exact(connection, folder)
    connection.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9)")
    connection.execute("CALL dp_attributes('t', {'a': [0, 1, 2, 3, 4], 'sex': ['f', 'm']})")
    yield Loaded(connection, folder)
    connection.close()


@pytest.mark.slow
def test_counts_are_charged_once_however_they_are_sorted_cut_and_named(exact: Loaded) -> None:
    """In the order of the SELECT, with the rows that DuckDB gives."""
    exact.connection.execute("FROM dp_sql(?, epsilon := 3)", [PLAIN]).fetchall()
    for select in SORTED:
        asked = exact.connection.execute("FROM dp_sql(?, epsilon := 3)", [select])
        names, rows = [column[0] for column in asked.description], asked.fetchall()
        true = exact.connection.execute(select)
        own, truth = [column[0] for column in true.description], true.fetchall()
        errors = [name for name in names if name.endswith(("stddev", "ci_low", "ci_high")) or name == "private"]
        shown = [place for place, name in enumerate(names) if name not in errors]
        assert len(shown) == len(own), select
        found = [tuple(round(row[i]) if isinstance(row[i], float) else row[i] for i in shown) for row in rows]
        assert found == truth, select
        counted = "count(*) AS" in select and "WITH" not in select and "DISTINCT" not in select
        more = "n_" if "OVER" in select else ""  # beside what windows make of answers
        assert errors == [f"{more}stddev", f"{more}ci_low", f"{more}ci_high", "private"] or not counted, select
    assert exact.charges() == 1


def test_the_route_of_sorted_counts_is_the_plan(exact: Loaded) -> None:
    select = "SELECT sex, a, count(*) AS n FROM t GROUP BY sex, a HAVING n > 5 ORDER BY n DESC LIMIT 3"
    query = "SELECT DISTINCT mechanism, route[:8] FROM dp_explain('t', ?, epsilon := 1)"
    ((mechanism, route),) = exact.connection.execute(query, [select]).fetchall()
    assert (mechanism, route) == (exact.connection.execute(query, [PLAIN]).fetchall()[0][0], "planned:")


@pytest.mark.parametrize(
    "select",
    [
        "SELECT city AS sex, count(*) AS n FROM t GROUP BY sex ORDER BY n",  # by the column sex, of which city is no function
        "SELECT sex, count(*) AS n FROM t GROUP BY sex HAVING max(age) > 3 ORDER BY n",
        "SELECT sex, count(*) AS n FROM t GROUP BY a ORDER BY n",
        "SELECT sex, count(*) AS n FROM t GROUP BY sex ORDER BY age",
        "SELECT sex, count(*) AS n FROM t GROUP",
        "SELECT sex, count(*) AS n FROM t ORDER",
        "SELECT count(*) AS n FROM t HAVING",
        "SELECT count(*) AS n FROM t WHERE a = ?",
        "SELECT count(*) AS n FROM t WHERE a = $1",
        "SELEC count(*) FROM t",
    ],
)
def test_what_is_wrong_about_them_is_refused_before_a_charge(exact: Loaded, select: str) -> None:
    with pytest.raises(duckdb.Error) as refused:
        exact.connection.execute("FROM dp_sql($q, epsilon := 3)", {"q": select}).fetchall()
    assert str(refused.value).startswith("Invalid Input Error: dp_sql: ")
    assert exact.charges() == 0


@pytest.mark.slow
@pytest.mark.parametrize("others", [["blue", "red"], ["blue", "other"], ["(other)", "other", "red"]])
def test_the_rest_of_what_is_found_has_a_name_that_no_value_has(tmp_path: Path, others: list[str]) -> None:
    """The same when the release is read again."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT ?[1 + i % ?] AS c FROM range(6000) r(i)", [others, len(others)])
        duckdb_dp.testing.load_exact(con, tmp_path / "l.dp")
        con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-6, discovery_delta := 1e-7)")
        for order in ("", " ORDER BY n DESC, c"):
            ask = f"FROM dp_sql('SELECT c, count(*) AS n FROM t GROUP BY c{order}', epsilon := 5)"
            for _ in range(2):
                found = {row[0]: round(row[1]) for row in con.execute(ask).fetchall()}
                rest = found.keys() - set(others)
                assert [name.strip("()") for name in rest] == ["other"]
                assert {name: found[name] for name in others} == dict.fromkeys(others, 6000 // len(others))
        cut = "FROM dp_sql('SELECT c, count(*) AS n FROM t WHERE c <> ''other'' GROUP BY c', epsilon := 5)"
        assert ("other" in {row[0] for row in con.execute(cut).fetchall()}) == ("other" not in others)


@pytest.mark.slow
@pytest.mark.parametrize(
    "select",
    [
        "SELECT left(code, 1) AS c, count(*) AS n FROM a GROUP BY c HAVING {} > 2000 ORDER BY c",
        "SELECT code, count(*) AS n FROM a JOIN p USING (pid) GROUP BY code HAVING {} > 2000 AND code <> 'C3' ORDER BY code",
        "SELECT left(code, 1) AS c, count(*) AS n FROM a WHERE code IN ('A1', 'B2') GROUP BY c HAVING 2 * {} > 4000 ORDER BY c",
    ],
)
def test_having_names_an_aggregate_by_its_alias(tmp_path: Path, select: str) -> None:
    """Of groups that are found, or listed, too."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE p AS SELECT i AS pid FROM range(3000) t(i)")
        con.execute(
            "CREATE TABLE a AS SELECT i AS aid, i % 3000 AS pid, ['A1', 'B2', 'C3'][1 + i % 3] AS code FROM range(9000) t(i)"
        )
        duckdb_dp.testing.load_exact(con, tmp_path / "l.dp")
        con.execute("CALL dp_link('a', \"references\" := {'pid': 'p.pid'})")
        con.execute(
            "CALL dp_protect(['p', 'a'], unit := 'p.pid', max_rows := 3, epsilon := 1000, delta := 1e-6, discovery_delta := 1e-7)"
        )
        truth = con.execute(select.format("n")).fetchall()
        for name in ("n", "count(*)"):
            rows = con.execute("FROM dp_sql(?, epsilon := 5)", [select.format(name)]).fetchall()
            assert [(row[0], round(row[1])) for row in rows] == truth


@pytest.mark.parametrize(
    "select",
    [
        "SELECT sex AS a, count(*) AS n FROM t GROUP BY sex, a ORDER BY a, n",
        "SELECT a AS sex, count(*) AS n FROM t GROUP BY a, sex ORDER BY 2, 1",
        "SELECT sex AS a, count(*) AS n FROM t GROUP BY sex, a HAVING count(*) > 0",
        "SELECT 4 - a AS a, count(*) AS n, row_number() OVER (ORDER BY a) AS r FROM t GROUP BY a ORDER BY r",
        "SELECT 4 - a AS a, count(*) AS n FROM t GROUP BY a QUALIFY row_number() OVER (ORDER BY a) = 1",
    ],
)
def test_an_alias_that_is_another_column_is_never_taken_for_it(exact: Loaded, select: str) -> None:
    """It is read as DuckDB reads it, or refused before a charge."""
    try:
        rows = exact.connection.execute("FROM dp_sql(?, epsilon := 5)", [select]).fetchall()
    except duckdb.InvalidInputException:
        assert exact.charges() == 0
        return
    truth = exact.connection.execute(select).fetchall()
    found = [tuple(round(v) if isinstance(v, float) else v for v in row[: len(truth[0])]) for row in rows]
    assert sorted(map(str, found)) == sorted(map(str, truth))
