"""Sums of values of attached tables: DuckDB's answers, and one unit's rows change them by no more than is paid for."""

from typing import Any

import numpy as np
import pytest

import duckdb_dp
from duckdb_dp.sql.engines import asked

ROWS = """
SELECT (hash(i, {seed}) % 40)::INTEGER AS unit, (hash(i, {seed}, 1) % 100)::INTEGER AS age,
       CASE WHEN hash(i, {seed}, 2) % 9 = 0 THEN NULL ELSE ['F', 'M', 'm', 'ü'][(hash(i, {seed}, 2) % 4 + 1)::INTEGER] END AS sex,
       ((hash(i, {seed}, 3) % 20001) / 100 - 100)::DECIMAL(9, 2) AS fee,
       CASE WHEN hash(i, {seed}, 4) % 11 = 0 THEN 'NaN' WHEN hash(i, {seed}, 4) % 11 = 1 THEN 'inf' WHEN hash(i, {seed}, 4) % 11 = 2 THEN NULL
            ELSE (hash(i, {seed}, 5) % 1000) / 64 - 5 END::DOUBLE AS score,
       DATE '2020-01-01' + (hash(i, {seed}, 6) % 700)::INTEGER AS day, hash(i, {seed}, 7) % 3 = 0 AS flag
FROM range({rows}) t(i)
"""

DECLARED = """
CALL dp_attribute('{0}', 'age', bins := [0, 20, 40, 60, 90]);
CALL dp_attribute('{0}', 'sex', "values" := ['F', 'M'], other := true, nulls := true);
CALL dp_attribute('{0}', 'score', bins := [-5, 0, 2.5, 8]);
CALL dp_attribute('{0}', 'fee', low := -50, high := 50, step := 10);
CALL dp_attribute('{0}', 'day', bins := ['2020-01-01', '2020-06-01', '2021-03-01', '2021-12-31']);
CALL dp_attribute('{0}', 'flag');
"""

SELECTS = [
    "SELECT sex, count(*) AS n, sum(age) AS s, avg(score) AS m FROM {0} GROUP BY sex",
    "SELECT sum(fee) AS s, sum(fee) FILTER (WHERE flag) AS t, count(score) AS c FROM {0} WHERE day >= DATE '2020-03-01'",
    "SELECT stddev(score) AS d, variance(age) AS v, count(*) AS n FROM {0} WHERE age BETWEEN 10 AND 80",
    "SELECT sex, median(age) AS m, quantile_disc(day, 0.25) AS q, count(DISTINCT age) AS d FROM {0} GROUP BY sex",
    "SELECT flag AS y, sum(CASE WHEN sex = 'F' AND score > 1 THEN 1 ELSE 0 END) AS f FROM {0} GROUP BY ALL",
    "SELECT avg(CAST(age AS DOUBLE) * 2 + 1) AS x, sum(CASE WHEN flag THEN fee ELSE 0 END) AS y FROM {0} WHERE sex IN ('F', 'm') OR score IS NULL",
    "SELECT count(DISTINCT sex) AS d, count_if(fee > 12.5) AS n, avg(flag::INTEGER) AS share FROM {0} WHERE NOT flag OR day < '2020-05-05'",
    "SELECT sex, flag, sum(age) AS s FROM {0} GROUP BY ROLLUP (sex, flag)",
]  # fmt: skip
OF_UNITS = [
    "SELECT age, count(DISTINCT unit) AS n, sum(age) AS s FROM {0} GROUP BY ALL",
    "SELECT sex, count(DISTINCT unit) AS n FROM {0} GROUP BY sex",
    "SELECT sex, count(*) AS n FROM {0} WHERE unit IN (SELECT unit FROM {0} WHERE age > 70) GROUP BY sex",
]
REFUSED = {
    "SELECT sum(age % 7) AS s FROM {0}": "expressions of its rows are made of",
    "SELECT sum(age) AS s FROM {0} WHERE sex LIKE 'F%'": "expressions of its rows are made of",
    "SELECT sum(unit) AS s FROM {0}": "has no bounds",
    "SELECT avg(age / age) AS s FROM {0}": "nullif",
}


def make(loaded: Any, put: Any, name: str, rows: str, protect: str) -> None:
    """The rows as a table here, and attached under the name with _there behind it, both declared alike."""
    loaded(f"CREATE OR REPLACE TABLE {name} AS {rows}")
    duckdb_dp.attach(loaded.connection, f"{name}_there", put(loaded.connection, f"FROM {name}"))
    for table in (name, f"{name}_there"):
        loaded(f"CALL dp_protect('{table}', mu := 1e5, delta := 1e-9{protect}); {DECLARED.format(table)}")


def close(one: Any, other: Any) -> bool:
    """Whether two values are the same but for the rounding of decimals."""
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True))
    return bool(one == other)


@pytest.mark.some(1, "backend")
@pytest.mark.parametrize(("select", "rows"), [(SELECTS[0], 0), *((select, 300) for select in SELECTS)])
def test_sums_are_duckdbs(exact: Any, put: Any, select: str, rows: int) -> None:
    make(exact, put, "seen", ROWS.format(seed=len(select), rows=rows), "")
    alike(exact, select, "seen", "seen_there")


@pytest.mark.some(1, "backend")
@pytest.mark.parametrize("select", [*OF_UNITS, *SELECTS])
def test_sums_of_units_within_their_bound_are_duckdbs(exact: Any, put: Any, select: str) -> None:
    make(exact, put, "seen", ROWS.format(seed=len(select), rows=500), ", unit := 'unit', max_rows := 400")
    alike(exact, select, "seen", "seen_there")


def alike(exact: Any, select: str, *names: str) -> None:
    """The same answers for both tables, but for the rounding of decimals."""
    texts = (select.format(name).replace("'", "''") for name in names)
    here, there = (exact(f"FROM dp_sql('{text}', mu := 100)") for text in texts)
    assert len(here) == len(there) > 0
    for mine, theirs in zip(here, there, strict=True):
        assert all(map(close, mine, theirs)), (mine, theirs)


def test_what_the_engine_may_answer_differently_is_refused(exact: Any, put: Any) -> None:
    make(exact, put, "seen", ROWS.format(seed=1, rows=50), ", unit := 'unit', max_rows := 4")
    for select, words in REFUSED.items():
        text = select.format("seen_there").replace("'", "''")
        assert words in exact.refused(f"FROM dp_sql('{text}', mu := 1)")
        assert words in exact.refused(f"EXPLAIN FROM dp_sql('{text}', mu := 1)")


@pytest.mark.slow
@pytest.mark.parametrize("bound", [2])
def test_a_unit_changes_sums_by_what_is_paid_for(
    exact: Any, put: Any, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    """Every sum of the neighbour differs by at most max_rows times what one row adds, in all groups together."""
    found = []

    def sums(*of: Any, real: Any = asked.sums) -> Any:
        found.append((of[1], real(*of)))
        return found[-1][1]

    monkeypatch.setattr(asked, "sums", sums)
    rows = ROWS.format(seed=5, rows=400)
    make(exact, put, "every", rows, f", unit := 'unit', max_rows := {bound}")
    make(exact, put, "less", f"FROM ({rows}) WHERE unit IS DISTINCT FROM 7", f", unit := 'unit', max_rows := {bound}")
    changed = 0
    for select in [*SELECTS[::2], *OF_UNITS]:
        for name in ("every_there", "less_there"):
            exact(f"FROM dp_sql('{select.format(name).replace(chr(39), chr(39) * 2)}', mu := 100)")
        (request, whole), (_, less) = found[-2:]
        index = 0
        for part in request.direct:
            for one in part.sums:
                if part.sums.index(one) == 0 or one.kind != "quantile":
                    difference = np.abs(whole.marginal((f"#{index}",)) - less.marginal((f"#{index}",)))
                    assert difference.sum() <= bound * one.steps
                    changed += int(difference.sum() > 0)
                index += 1
    assert changed > 8


@pytest.mark.some(1, "backend")
@pytest.mark.parametrize("flags", ["other := true, nulls := true", "nulls := true", "other := false"])
def test_groups_of_long_lists_of_texts(exact: Any, put: Any, flags: str) -> None:
    exact(
        "CREATE TABLE long AS SELECT nullif('vü' || i % 150, 'vü7') AS label, (i % 3)::INTEGER AS k FROM range(1000) t(i)"
    )
    duckdb_dp.attach(exact.connection, "long_there", put(exact.connection, "FROM long"))
    for table in ("long", "long_there"):
        exact(
            f"CALL dp_protect('{table}', mu := 1000, delta := 1e-9); CALL dp_attribute('{table}', 'k', low := 0, high := 2)"
        )
        exact(f"CALL dp_attribute('{table}', 'label', \"values\" := ?, {flags})", [[f"vü{i}" for i in range(100)]])
    alike(exact, "SELECT label, sum(k) AS s, count(*) AS n, avg(k) AS m FROM {0} GROUP BY label", "long", "long_there")


def test_distinct_values_of_a_group_of_several_cells_are_counted_once(exact: Any, put: Any) -> None:
    exact("CREATE TABLE kinds AS SELECT (i % 7)::INTEGER AS kind, (i % 5)::INTEGER AS x FROM range(200) t(i)")
    duckdb_dp.attach(exact.connection, "kinds_there", put(exact.connection, "FROM kinds"))
    for table in ("kinds", "kinds_there"):
        exact(
            f"CALL dp_protect('{table}', mu := 1000, delta := 1e-9); CALL dp_attribute('{table}', 'kind', low := 0, high := 6)"
        )
    alike(
        exact,
        "SELECT kind > 3 AS late, count(DISTINCT x) AS d FROM {0} GROUP BY ALL",
        "kinds",
        "kinds_there",
    )
