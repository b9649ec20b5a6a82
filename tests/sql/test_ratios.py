"""Sums of ratios under bounds on norms: what is shown beside them is of sums of its own, and grouping sets have the same columns."""

import json
from typing import Any

import pytest

from tests.conftest import Loaded

CALL = "FROM dp_sql(?, epsilon := 1)"


@pytest.fixture
def visits(exact: Loaded) -> Loaded:
    exact(
        "CREATE TABLE visits AS SELECT i % 300 AS id, ['a', 'b', 'c'][1 + i % 3] AS town, i % 41 AS paid, i % 7 AS days FROM range(3000) t(i);"
        "CALL dp_protect('visits', unit := 'id', max_rows := 'auto', epsilon := 1e6, delta := 1e-9);"
        "CALL dp_attribute('visits', 'town', \"values\" := ['a', 'b', 'c'])"
    )
    return exact


def sums(visits: Loaded, select: str) -> list[list[Any]]:
    """(value, whether it is a part of ratios) of what a call measures, by SELECT."""
    before = visits.charges()
    visits(CALL.replace("1)", "1, fresh := true)"), [select])
    assert visits.charges() == before + 1
    ((request,),) = visits("SELECT request FROM dp_ledger() ORDER BY release DESC LIMIT 1")
    parts = json.loads(request)["direct"]
    return [sorted([one[0], one[-1] is True] for one in part["sums"]) for part in parts]


@pytest.mark.parametrize(
    ("shown", "plain", "weighed"),
    [
        ("count(*) AS n", [""], []),
        ("sum(paid) AS s, count(*) AS n, sum(paid) - count(*) AS d, round(sum(paid)) AS r", ["", "paid"], []),
        ("count(*) > 5 AS many, sqrt(sum(paid)) AS s", ["", "paid"], []),
        ("sum(paid) / count(*) AS m", [], ["", "paid"]),
        ("sum(paid) / count(*) AS m, count(*) AS n", [""], ["", "paid"]),
        ("sum(paid) / count(*) AS m, sum(paid) AS s, count(*) AS n", ["", "paid"], ["", "paid"]),
        ("CASE WHEN count(*) > 9 THEN sum(paid) / count(*) END AS m", [], ["", "paid"]),
        ("exp(ln(sum(paid)) - ln(count(*))) AS m, count(DISTINCT id) AS u", [""], ["", "paid"]),
        ("sum(paid) / count(DISTINCT id) AS each", ["", "paid"], []),
    ],
)
def test_what_is_shown_itself_is_measured_apart(
    visits: Loaded, shown: str, plain: list[str], weighed: list[str]
) -> None:
    wanted = sorted(
        [[f'"{one}"' if one else "", False] for one in plain] + [[f'"{one}"' if one else "", True] for one in weighed]
    )
    for end in ("", " HAVING count(*) > 1 ORDER BY sum(paid) / count(*)" if "" in plain and "paid" in weighed else ""):
        assert sums(visits, f"SELECT {shown} FROM visits{end}") == [wanted]


def test_the_order_of_questions_does_not_decide_how_they_are_answered(visits: Loaded) -> None:
    """Sums, and then their ratio, are two requests; what both show costs nothing twice."""
    both = ["SELECT sum(paid) AS s, count(*) AS n FROM visits", "SELECT sum(paid) / count(*) AS m FROM visits"]
    for select in both:
        visits(CALL, [select])
    assert visits.charges() == 2
    for select in [
        *both,
        "SELECT 100 * sum(paid) / count(*) AS m FROM visits",
        "SELECT count(*) AS n, sum(paid) AS t FROM visits",
    ]:
        visits(CALL, [select])
    assert visits.charges() == 2


@pytest.mark.parametrize(
    "sets", ["ROLLUP (town)", "CUBE (town)", "GROUPING SETS ((), (town))", "GROUPING SETS ((town), ())"]
)
@pytest.mark.parametrize(
    "shown",
    [
        "count(DISTINCT id) AS u",
        "count(DISTINCT id) AS u, count(*) AS n",
        "median(paid) AS m, avg(paid) AS a, count(DISTINCT id) AS u",
    ],
)
def test_grouping_sets_have_the_columns_of_all(visits: Loaded, shown: str, sets: str) -> None:
    select = f"SELECT town, {shown} FROM visits GROUP BY {sets}"
    rows = visits(
        "SELECT town, COLUMNS('^(u|n)$') FROM dp_sql(?, epsilon := 1000) ORDER BY town"
        if "," in shown
        else "SELECT town, u FROM dp_sql(?, epsilon := 1000) ORDER BY town",
        [select],
    )
    assert [row[0] for row in rows] == ["a", "b", "c", None]
    truth = {"a": 100, "b": 100, "c": 100, None: 300}
    assert all(row[1] == pytest.approx(truth[row[0]], rel=0.05) for row in rows)
    cut = [
        name for name, _ in visits.columns(f"FROM dp_sql($${select}$$, epsilon := 1000)") if name.endswith("clipped_at")
    ]
    assert cut
