"""Lists of SELECTs: each by the route that suits it, charged once, with one accounting; and the choice between routes."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import duckdb_dp
import duckdb_dp.testing
from duckdb_dp.answers import direct_plan, price
from duckdb_dp.request import Request
from tests.conftest import Loaded

TABLE = """
CREATE TABLE orders AS
SELECT i AS id, i // 3 AS person, ['north', 'south', 'east', 'west'][1 + i % 4] AS region, ['a', 'b', 'c'][1 + (i * 7 // 5) % 3] AS kind,
    (i * 37) % 100 AS amount, (i * 11) % 40 AS days, (i * 13 % 50)::DOUBLE AS fee, ['x', 'y', 'zz'][1 + i % 3] AS note
FROM range(900) t(i);
"""
DECLARED = [
    "CALL dp_attribute('orders', 'region', \"values\" := ['north', 'south', 'east', 'west'])",
    "CALL dp_attribute('orders', 'kind', \"values\" := ['a', 'b', 'c'])",
    "CALL dp_attribute('orders', 'amount', low := 0, high := 99)",
    "CALL dp_attribute('orders', 'days', low := 0, high := 39)",
]
PROTECT = {
    "rows": "CALL dp_protect('orders', epsilon := 1000, delta := 1e-9)",
    "units": "CALL dp_protect('orders', unit := 'person', max_rows := 3, epsilon := 1000, delta := 1e-9)",
    "zcdp": "CALL dp_protect('orders', unit := 'person', max_rows := 4, rho := 1000, delta := 1e-9)",
    "pure": "CALL dp_protect('orders', unit := 'person', max_rows := 3, epsilon := 1000, delta := 0)",
}
COUNTS = [
    "SELECT region, count(*) AS n FROM orders GROUP BY region",
    "SELECT kind, count(*) AS n FROM orders GROUP BY kind",
]
SUMS = [
    "SELECT kind, sum(fee) AS s, avg(amount) AS m FROM orders WHERE fee BETWEEN 0 AND 50 GROUP BY kind ORDER BY kind DESC",
    "SELECT count(*) AS n FROM orders WHERE note LIKE 'z%'",
    "SELECT region, median(amount) AS m FROM orders GROUP BY region",
]
LARGE_LIST = [
    "SELECT region, amount, count(*) AS n FROM orders GROUP BY CUBE (region, amount)",
    "SELECT kind, days, count(*) AS n FROM orders GROUP BY CUBE (kind, days)",
    "SELECT kind, region, count(*) AS n FROM orders GROUP BY kind, region",
    "SELECT amount, days, count(*) AS n FROM orders GROUP BY amount, days",
    "SELECT kind, amount, count(*) AS n FROM orders GROUP BY kind, amount",
    "SELECT region, days, count(*) AS n FROM orders GROUP BY region, days",
    SUMS[1],
]
ABOVE = [
    "SELECT region, count(*) AS n, row_number() OVER (ORDER BY region) AS r FROM orders GROUP BY region ORDER BY r DESC",
    "WITH t AS (SELECT kind, count(*) AS n FROM orders GROUP BY kind) SELECT max(n) AS most FROM t",
    "SELECT kind, count(*) AS n FROM orders GROUP BY kind HAVING count(*) > 10 ORDER BY kind DESC",
    "SELECT 'all' AS kind, count(*) AS n FROM orders UNION ALL SELECT kind, count(*) FROM orders GROUP BY kind",
    "SELECT kind, sum(amount) AS total FROM orders GROUP BY kind",
]


def made(folder: Path, protect: str, seed: int | None = None) -> Loaded:
    connection = duckdb.connect()
    connection.execute(TABLE)
    if seed is None:
        duckdb_dp.testing.load_exact(connection, folder)
    else:
        duckdb_dp.testing.load(connection, folder, seed=seed)
    loaded = Loaded(connection, folder)
    for statement in [PROTECT[protect], *DECLARED]:
        loaded(statement)
    return loaded


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    loaded = made(tmp_path_factory.mktemp("batches") / "l.dp", "rows")
    yield loaded
    loaded.connection.close()


def plain(value: Any) -> Any:
    return round(float(value), 3) if isinstance(value, int | float) else str(value)


def answered(loaded: Loaded, asked: list[str]) -> list[list[tuple[Any, ...]]]:
    """Of each SELECT its rows, with the columns that have a value in one of them; without errors and ``query``."""
    cursor = loaded.connection.execute("FROM dp_sql(?, mu := 5)", [asked])
    names = [column[0] for column in cursor.description]
    errors = ("stddev", "ci_low", "ci_high", "clipped_at", "private", "query")
    rows = cursor.fetchall()
    found = []
    for number in range(1, len(asked) + 1):
        of = [row for row in rows if row[names.index("query")] == number]
        places = [
            place
            for place, name in enumerate(names)
            if not name.endswith(errors) and any(row[place] is not None for row in of)
        ]
        found.append([tuple(plain(row[place]) for place in places) for row in of])
    return found


def by_value(row: tuple[Any, ...]) -> list[str]:
    """The values in an order of their own: a list has its labels first, in the order in which it names them."""
    return sorted(map(str, row))


def truth(loaded: Loaded, select: str) -> list[tuple[Any, ...]]:
    return [tuple(map(plain, row)) for row in loaded.connection.execute(select).fetchall()]


@pytest.mark.slow
@pytest.mark.parametrize("asked", [[*COUNTS, *SUMS], [SUMS[1], COUNTS[0]], LARGE_LIST, ABOVE, [ABOVE[0], SUMS[0]]])
def test_each_select_is_answered_as_by_itself(exact: Loaded, asked: list[str]) -> None:
    before = exact.charges()
    for select, found in zip(asked, answered(exact, asked), strict=True):
        expected, ordered = truth(exact, select), "ORDER BY" in select.rpartition("OVER")[2]
        sort = list if ordered else lambda rows: sorted(rows, key=str)
        if "median" in select:
            assert [row[0] for row in sort(found)] == [row[0] for row in sort(expected)]
        elif "CUBE" in select or len(found) > len(expected):
            assert sum(row[-1] for row in found) == sum(row[-1] for row in expected)
        else:
            assert sort(map(by_value, found)) == sort(map(by_value, expected))
    rows = exact("FROM dp_sql(?, mu := 5)", [asked])
    assert sorted(rows, key=str) == sorted(exact("FROM dp_sql(?, mu := 5)", [asked]), key=str)  # no order was asked
    assert exact.charges() <= before + 1


def test_the_result_has_the_columns_of_a_list(exact: Loaded) -> None:
    def columns(asked: list[str]) -> list[str]:
        cursor = exact.connection.execute("FROM dp_sql(?, mu := 5)", [asked])
        return [column[0] for column in cursor.description]

    errors = ["stddev", "ci_low", "ci_high"]
    assert columns([COUNTS[0], SUMS[1]]) == ["query", "region", "n", *errors, "private"]
    mixed = columns([COUNTS[0], "SELECT kind, sum(amount) AS s FROM orders GROUP BY kind"])
    assert mixed == ["query", "region", "kind", "answer", *errors, "private"]
    several = columns([COUNTS[0], SUMS[0]])
    assert several == [
        "query", "region", "kind", *(f"{name}{more}" for name in "nsm" for more in ["", *(f"_{e}" for e in errors)]), "private"
    ]  # fmt: skip
    line = exact.refused("FROM dp_sql(?, mu := 5)", [[COUNTS[0], "SELECT sum(amount) AS region FROM orders"]])
    assert "'region' is a group of one SELECT and an answer of another" in line
    assert exact.refused("FROM dp_sql(?, mu := 5)", [[ABOVE[0], "SELECT id, fee FROM orders"]])


@pytest.mark.slow
@pytest.mark.parametrize("protect", PROTECT)
def test_one_charge_is_split_exactly(protect: str, tmp_path: Path) -> None:
    """The plan has the privacy cost of its share, and each sum the noise that it had in a list of sums alone."""
    loaded = made(tmp_path / "l.dp", protect, seed=1)
    cost = "rho := 0.5" if protect == "zcdp" else "epsilon := 1"
    asked = [*COUNTS, *SUMS[:2]]
    loaded(f"FROM dp_sql(?, {cost})", [asked])
    stored = loaded("SELECT request FROM dp_ledger()")[-1][0]
    request = Request.from_json(stored)
    assert Request.from_json(request.to_json()) == request
    assert json.loads(stored)["version"] == 6
    plan = direct_plan(request)
    assert plan.planned is not None
    shares = [plan.share(index) for index in range(len(plan.sums))]
    assert math.fsum(shares) + plan.rest == pytest.approx(1)
    noise = price(request)
    if noise.beta is not None:
        counts = math.fsum(one.cost for one in plan.planned.measurements)
        sums = [one.steps**2 / plan.variance(i) for i, (_, one) in enumerate(plan.sums) if plan.weights[i]]
    else:
        counts = math.fsum(one.pure_cost for one in plan.planned.measurements)
        sums = [one.steps / math.sqrt(plan.variance(i) / 2) for i, (_, one) in enumerate(plan.sums) if plan.weights[i]]
    whole = noise.epsilon if noise.beta is None else noise.beta
    assert counts <= whole * plan.rest * (1 + 1e-9)
    assert counts + math.fsum(sums) == pytest.approx(whole)
    alone = direct_plan(Request.from_json(loaded_request(loaded, asked, cost)))
    counted = [alone.stddev(i) for i, (part, _) in enumerate(alone.sums) if part.number <= 2]
    summed = [alone.stddev(i) for i, (part, _) in enumerate(alone.sums) if part.number > 2]
    assert [plan.stddev(i) for i in range(len(plan.sums))] == pytest.approx(summed)
    sizes = [4, 3]
    mean = sum(s * float(np.mean(plan.planned.variance(i))) for i, s in enumerate(sizes)) / sum(sizes)
    assert math.sqrt(mean) <= counted[0] * (1 + 1e-9)
    loaded.connection.close()


def loaded_request(loaded: Loaded, asked: list[str], cost: str) -> str:
    loaded(f"FROM dp_sql(?, {cost}, mechanism := 'direct')", [asked])
    return str(loaded("SELECT request FROM dp_ledger()")[-1][0])


CHOICES = [
    (["SELECT count(*) AS n FROM orders WHERE amount > days"], {"direct"}),  # which is not known of values that are not declared
    (["SELECT count(*) AS n FROM orders WHERE amount > 50"], {"direct"}),  # which has the same error
    (COUNTS, {"planned"}),
    (
        [
            "SELECT region, count(*) AS n FROM orders WHERE amount > days GROUP BY region",
            "SELECT kind, count(*) AS n FROM orders WHERE amount < days GROUP BY kind",
            "SELECT region, kind, count(*) AS n FROM orders WHERE days > 20 GROUP BY ALL",
        ],
        {"direct", "planned"},
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "route"), CHOICES)
def test_counts_take_the_route_of_the_least_predicted_error(exact: Loaded, asked: list[str], route: set[str]) -> None:
    explain = "SELECT cells, stddev, route FROM dp_explain('orders', ?, mu := 0.5, mechanism := ?)"

    def error(mechanism: str) -> float:
        rows = exact(explain, [asked, mechanism])
        return math.sqrt(sum(cells * stddev**2 for cells, stddev, _ in rows) / sum(cells for cells, _, _ in rows))

    rows = exact(explain, [asked, "auto"])
    taken = {text.partition(",")[0].partition(":")[0] for *_, text in rows}
    assert error("auto") <= error("direct") * (1 + 1e-9)
    assert taken == route
    if not any("amount > days" in one for one in asked):
        assert all("standard deviation" in text and "planned" in text and "direct" in text for *_, text in rows)
    shown = exact("SELECT max(stddev) FROM dp_sql(?, mu := 0.5)", [asked])[0][0]
    assert shown == pytest.approx(max(s for _, s, _ in exact(explain, [asked, "auto"])))


@pytest.mark.slow
def test_a_list_of_both_routes_is_reported_and_short(exact: Loaded) -> None:
    asked = [*COUNTS, SUMS[0]]
    rows = exact("FROM dp_sql(?, mu := 5, release := 'both')", [asked])
    assert exact("FROM dp_release('both')") == rows
    assert len(exact("FROM dp_sql(?, mu := 5, columns := 'short')", [asked])) == len(rows)
    page = duckdb_dp.report(exact.connection, "both").html
    assert "region" in page
    assert "kind" in page


def test_what_earlier_versions_released_is_read_again(exact: Loaded) -> None:
    """A list that was wholly direct, or planned, before each SELECT had its own route."""
    asked = [COUNTS[0], SUMS[1]]
    from duckdb_dp.sql import routes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes, "planned", lambda *_, **__: set())
        rows = exact("FROM dp_sql(?, mu := 0.7)", [asked])
    charges = exact.charges()
    assert exact("FROM dp_sql(?, mu := 0.7)", [asked]) == rows
    assert exact.charges() == charges
