"""Names that are both a column and the alias of an aggregate mean what they mean in DuckDB: groups keep their labels."""

import itertools

import duckdb
import pytest

from tests.conftest import Loaded

KEYS = {
    "race": ["CASE WHEN race > 1 THEN 'high' ELSE 'low' END", "race + 1", "race // 2", "race", "race BETWEEN 1 AND 2"],
    "sex": ["sex = 'F'", "sex IS NULL", "lower(sex)", "CASE sex WHEN 'F' THEN 1 ELSE 2 END"],
    "smoker": ["smoker IS NULL", "coalesce(smoker, false)", "NOT smoker"],
}
AGGREGATES = ["count(*)", "avg(race)", "count(smoker) FILTER (WHERE race > 0)"]
RELATIONS = {
    "table": ("", "people"),
    "subquery": ("", "(SELECT * FROM people WHERE race >= 0) AS p"),
    "with": ("WITH p AS (SELECT race, sex, smoker FROM people) ", "p"),
}
GROUPS = {"alias": "GROUP BY k", "place": "GROUP BY 1", "all": "GROUP BY ALL", "text": "GROUP BY {key}"}
MORE = ["", " HAVING count(*) > 0", " ORDER BY 1", " HAVING k IS NOT NULL ORDER BY k"]
CASES = [
    (RELATIONS[relation], key, f"{aggregate} AS {column}", GROUPS[group].format(key=key), more)
    for (column, keys), relation, group in itertools.product(KEYS.items(), RELATIONS, GROUPS)
    for (key, aggregate), more in zip(itertools.product(keys, AGGREGATES), itertools.cycle(MORE), strict=False)
    if group != "all" or "HAVING k" not in more  # by which DuckDB groups too, one by one
]


def _rows(con: duckdb.DuckDBPyConnection, sql: str, *given: object) -> list[tuple[object, float]]:
    found = con.execute(sql, [*given])
    names = [column[0] for column in found.description or []]
    place = next(i for i, name in enumerate(names) if name != "k")
    return sorted(((row[0], pytest.approx(row[place])) for row in found.fetchall() if row[place]), key=str)


@pytest.mark.parametrize("part", range(12))
def test_an_alias_that_is_a_column_changes_no_label(exact: Loaded, part: int) -> None:
    for (before, source), key, aggregate, group, more in CASES[part::12]:
        sql = f"{before}SELECT {key} AS k, {aggregate} FROM {source} {group}{more}"
        expected = _rows(exact.connection, sql)
        got = _rows(exact.connection, "FROM dp_sql(?, epsilon := 1, fresh := true)", sql)
        assert [(str(label), value) for label, value in got] == [(str(label), value) for label, value in expected], sql


NEEDS_VALUES = [
    "age + 1",
    "-age",
    "age::INTEGER",
    "age > 30",
    "abs(age)",
    "CASE WHEN age > 3 THEN 1 END",
    "CAST(age AS DOUBLE)",
]
TEXTS = ["age IS NULL", "age::VARCHAR", "'age ' || age", "CASE WHEN age IS NULL THEN 'none' ELSE age::VARCHAR END"]


def test_a_grouped_column_of_texts_is_worked_on_as_text_alone(exact: Loaded) -> None:
    """Bins are no values: what needs one is refused before anything is charged, and what does not is answered."""
    call = "FROM dp_sql(?, epsilon := 1)"
    for item in NEEDS_VALUES:
        said = exact.refused(call, [f"SELECT {item} AS x, count(*) AS n FROM people GROUP BY age"])
        assert 'shown as texts, not values; select "age" alone, or GROUP BY' in said
    for item in TEXTS:
        rows = exact(call, [f"SELECT {item} AS x, count(*) AS n FROM people GROUP BY age"])
        assert sum(row[1] for row in rows) == 420
        assert all(row[0] is not None for row in rows)


CHAINED = [
    "count(*) AS n, n * 2 AS d, d + 1 AS e",
    "count(*) AS n, sum(race) AS s, s / n AS share, 100 * share AS pct",
    "sum(race) AS s, count(*) AS n, s / n AS share, 100 * share AS pct, round(pct, 2) AS shown",
]


@pytest.mark.parametrize("group", ["", " GROUP BY sex", " GROUP BY sex HAVING n > 1 ORDER BY n DESC"])
@pytest.mark.parametrize("items", CHAINED)
def test_aliases_of_aliases_of_aggregates(exact: Loaded, items: str, group: str) -> None:
    sql = f"SELECT {'sex, ' if group else ''}{items} FROM people{group}"
    found = exact.connection.execute("FROM dp_sql(?, epsilon := 1)", [sql])
    names, rows = [column[0] for column in found.description or []], found.fetchall()
    wanted = exact.connection.execute(sql)
    for row, expected in zip(
        rows,
        [dict(zip([c[0] for c in wanted.description or []], r, strict=True)) for r in wanted.fetchall()],
        strict=True,
    ):
        got = dict(zip(names, row, strict=True))
        assert {name: got[name] for name in expected} == {
            name: value if isinstance(value, str) else pytest.approx(value) for name, value in expected.items()
        }


@pytest.mark.parametrize("having", ["race IS NOT NULL", "race > 2", "race IN (2, 4)", "race > 1 AND count(*) > 1"])
@pytest.mark.parametrize("group", ["1", "race + 1", "ALL"])
def test_having_of_an_alias_that_is_a_column_keeps_all_groups(exact: Loaded, having: str, group: str) -> None:
    """DuckDB takes the column where it is grouped by, and else the alias."""
    sql = f"SELECT race + 1 AS race, count(*) AS n FROM people GROUP BY {group} HAVING {having}"
    if group == "ALL":  # by which DuckDB groups by what HAVING reads too
        sql = sql.replace("race + 1 AS race", "race + 1 AS r").replace("HAVING race", "HAVING r")
        expected = exact(sql.replace("GROUP BY ALL", "GROUP BY race + 1"))
    else:
        expected = exact(sql)
    got = exact("FROM dp_sql(?, epsilon := 1)", [sql])
    assert [(row[0], round(row[1])) for row in got] == sorted(expected)
