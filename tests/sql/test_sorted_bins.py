"""Labels of bins are texts, and sort in the order of the bins wherever a statement sorts by them."""

from collections.abc import Iterator

import duckdb
import pytest

from duckdb_dp.testing import load_exact

BINS = ["[0, 5)", "[5, 18)", "[18, 65)", "[65, 100)", "[100, 120]"]
OTHER = [*BINS, "other"]

STATEMENTS = {
    "SELECT age, count(*) AS n FROM t GROUP BY age ORDER BY age": BINS,
    "SELECT age, count(*) AS n FROM t GROUP BY age ORDER BY age DESC": BINS[::-1],
    "SELECT age, count(*) AS n FROM t GROUP BY 1 ORDER BY 1 LIMIT 2": BINS[:2],
    "SELECT age AS a, avg(x) AS m FROM t GROUP BY age ORDER BY a": BINS,
    "SELECT age, count(*) AS n FROM t GROUP BY ALL ORDER BY ALL": BINS,
    "SELECT age, sum(x) AS s FROM t WHERE sex LIKE 'f%' GROUP BY age ORDER BY age DESC LIMIT 1": BINS[-1:],
    "SELECT older, count(*) AS n FROM t GROUP BY older ORDER BY older": OTHER,
    "SELECT older, avg(x) AS m FROM t GROUP BY older ORDER BY older": OTHER,
    "SELECT maybe, count(*) AS n FROM t GROUP BY maybe ORDER BY maybe NULLS FIRST": [None, *BINS],
    "SELECT maybe, count(*) AS n FROM t GROUP BY maybe ORDER BY maybe DESC NULLS LAST": [*BINS[::-1], None],
    "SELECT age, count(*) AS n, sum(count(*)) OVER (ORDER BY age) AS upto FROM t GROUP BY age ORDER BY upto": BINS,
    "SELECT age, count(*) AS n, row_number() OVER (ORDER BY age) AS i FROM t GROUP BY age ORDER BY i": BINS,
    "WITH a AS (SELECT age, count(*) AS n FROM t GROUP BY age) SELECT age, n FROM a WHERE age <> '[5, 18)' ORDER BY age": [
        "[0, 5)", "[18, 65)", "[65, 100)", "[100, 120]"],
    "SELECT g, n FROM (SELECT age AS g, count(*) AS n FROM t GROUP BY age) ORDER BY g DESC": BINS[::-1],
    "SELECT upper(age) AS g, n FROM (SELECT age, count(*) AS n FROM t GROUP BY age) ORDER BY age": BINS,
    "SELECT coalesce(age, 'all') AS g, n FROM (SELECT age, count(*) AS n FROM t GROUP BY ROLLUP (age)) ORDER BY age NULLS LAST": [
        *BINS, "all"],
    "SELECT price, count(*) AS n FROM t GROUP BY price ORDER BY price": ["[-10.0, -1.0)", "[-1.0, 2.5)", "[2.5, 10.0]"],
    "SELECT day, count(*) AS n FROM t GROUP BY day ORDER BY day DESC": ["[2024-03-01, 2024-12-31]", "[2024-01-01, 2024-03-01)"],
}  # fmt: skip


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 121 AS age, i % 130 AS older, CASE WHEN i % 3 > 0 THEN i % 121 END AS maybe, ['f', 'm'][1 + i % 2] AS sex, "
            "i % 10 AS x, ['1', '2', '3', '4', 'five'][1 + i % 5] AS word, i % 20 - 10.5 AS price, DATE '2024-01-01' + (i % 300)::INTEGER AS day FROM range(6000) AS r(i)"
        )
        load_exact(con, tmp_path_factory.mktemp("ledger"))
        con.execute("CALL dp_protect('t', epsilon := 100000, delta := 1e-6)")
        edges = "[0, 5, 18, 65, 100, 120]"
        con.execute(f"CALL dp_attribute('t', 'age', bins := {edges})")
        con.execute(f"CALL dp_attribute('t', 'older', bins := {edges}, other := true)")
        con.execute(f"CALL dp_attribute('t', 'maybe', bins := {edges}, nulls := true)")
        con.execute("CALL dp_attribute('t', 'x', low := 0, high := 9)")
        con.execute("CALL dp_attribute('t', 'word', \"values\" := ['1', '2', '3', '4', 'five'])")
        con.execute("CALL dp_attribute('t', 'price', bins := [-10, -1, 2.5, 10])")
        con.execute("CALL dp_attribute('t', 'day', bins := [DATE '2024-01-01', DATE '2024-03-01', DATE '2024-12-31'])")
        yield con


@pytest.mark.some(6)
@pytest.mark.parametrize("select", STATEMENTS)
def test_labels_sort_as_their_bins(con: duckdb.DuckDBPyConnection, select: str) -> None:
    result = con.execute("FROM dp_sql($1, epsilon := 1)", [select])
    first = result.description[0]
    assert str(first[1]) == "VARCHAR"
    assert [row[0] for row in result.fetchall()] == STATEMENTS[select]


def test_a_running_total_is_of_the_bins_before(con: duckdb.DuckDBPyConnection) -> None:
    select = "SELECT age, count(*) AS n, sum(count(*)) OVER (ORDER BY age) AS upto FROM t GROUP BY age"
    found = {
        age: (n, upto)
        for age, n, upto in con.execute("SELECT age, n, upto FROM dp_sql($1, epsilon := 1)", [select]).fetchall()
    }
    total = 0.0
    for age in BINS:
        total += found[age][0]
        assert found[age][1] == pytest.approx(total)


def test_lists_of_labels_are_texts_too(con: duckdb.DuckDBPyConnection) -> None:
    select = "SELECT list(age ORDER BY age) AS ages FROM (SELECT age, count(*) AS n FROM t GROUP BY age)"
    result = con.execute("SELECT ages FROM dp_sql($1, epsilon := 1)", [select])
    assert result.fetchall() == [(BINS,)]


@pytest.mark.parametrize(
    "shown",
    [
        "word::INTEGER",
        "age::ENUM ('[0, 5)', '[5, 18)', '[18, 65)')",
        "CAST(word AS DATE)",
    ],
)
def test_a_cast_that_fails_of_some_label_is_refused_before_a_charge(con: duckdb.DuckDBPyConnection, shown: str) -> None:
    select = f"SELECT {shown} AS z, n FROM (SELECT word, age, count(*) AS n FROM t GROUP BY word, age)"
    before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    with pytest.raises(duckdb.Error, match=r"cast|convert|date"):
        con.execute("FROM dp_sql($1, epsilon := 0.37)", [select]).fetchall()
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before


@pytest.mark.parametrize(
    "shown",
    [
        "lag(age, 1, 'none') OVER (ORDER BY n)",
        "lead(age, 1, older) OVER (ORDER BY n)",
        "age[1:3]",
        "age COLLATE NOCASE",
        "TRY_CAST(word AS INTEGER)",
        "n::INTEGER",
    ],
)
def test_labels_are_texts_where_statements_take_them_for_texts(con: duckdb.DuckDBPyConnection, shown: str) -> None:
    select = f"SELECT {shown} AS z, n FROM (SELECT word, age, older, count(*) AS n FROM t GROUP BY word, age, older)"
    result = con.execute("SELECT z, n FROM dp_sql($1, epsilon := 1)", [select])
    assert "ENUM" not in str(result.description[0][1])
    assert result.fetchall()


def test_labels_inside_of_other_values_are_texts(con: duckdb.DuckDBPyConnection) -> None:
    select = "SELECT [[age]] AS z, n FROM (SELECT age, count(*) AS n FROM t GROUP BY age)"
    assert "ENUM" not in str(con.execute("SELECT z FROM dp_sql($1, epsilon := 1)", [select]).description[0][1])
