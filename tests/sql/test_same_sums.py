"""The same aggregates and groups in another order are one release, shown as each SELECT asks for them."""

import random
from typing import Any

import pytest

from tests.conftest import Loaded

TABLES = """
CREATE TABLE clients AS SELECT i AS id, ['a', 'b', 'c'][1 + i % 3] AS t, i % 4 AS g FROM range(60) r(i);
CREATE TABLE visits AS SELECT i % 60 AS id, i * 7 % 23 - 4 AS x, (i % 50)::DECIMAL(15, 2) / 100 AS n, i % 5 = 0 AS b FROM range(400) r(i) WHERE i % 60 < 40 + i % 7
"""

FROM = {
    "visits": ["b"],
    "clients JOIN visits USING (id)": ["t", "g", "b", "g // 2"],
    "(SELECT id, t, g, max(x) AS x, sum(n) AS n, bool_or(b) AS b FROM clients JOIN visits USING (id) GROUP BY ALL)": [
        "t",
        "g",
    ],
}
"""What is selected from, and what it may be grouped by."""

AGGREGATES = [
    "avg(x) AS c1", "count(*) AS c2", "sum(n) AS c3", "count(*) FILTER (WHERE b) AS c4", "median(x) AS c5", "stddev(n) AS c6",
    "sum(x * (n + 1)) AS c7", "avg(x) / avg(n) AS c8", "count(DISTINCT id) AS c9", "quantile_cont(x, 0.9) AS c10", "avg(x) * sum(n) AS c11",
]  # fmt: skip
"""Each with a name, by which its answers are compared."""


@pytest.fixture
def both(exact: Loaded) -> Loaded:
    exact(TABLES)
    exact("""CALL dp_link('visits', "references" := {'id': 'clients.id'})""")
    exact("CALL dp_protect(['clients', 'visits'], unit := 'clients.id', rho := 10000, max_rows := 10)")
    for table, column, values in (
        ("clients", "t", "['a', 'b', 'c']"),
        ("clients", "g", "[0, 1, 2, 3]"),
        ("visits", "b", "[true, false]"),
    ):
        exact(f"""CALL dp_attribute('{table}', '{column}', "values" := {values})""")
    exact("CALL dp_attribute('visits', 'x', low := -4, high := 18)")
    exact("CALL dp_attribute('visits', 'n', low := 0, high := 1, step := 0.25)")
    return exact


def _answers(loaded: Loaded, asked: str, rows: str, groups: list[str]) -> dict[Any, dict[str, Any]]:
    """Every column by its name, by the values of the groups."""
    found = loaded(f"FROM dp_sql(?, rho := 1, max_rows := {rows})", [asked])
    assert loaded.connection.description is not None
    names = [column[0] for column in loaded.connection.description]
    rows_ = [dict(zip(names, row, strict=True)) for row in found]
    return {tuple(row[name] for name in groups): {k: v for k, v in row.items() if k not in groups} for row in rows_}


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["10", "'auto'"])
@pytest.mark.parametrize("source", FROM)
def test_the_order_of_aggregates_and_groups_is_no_part_of_a_request(both: Loaded, source: str, rows: str) -> None:
    rng = random.Random(7)
    for _ in range(3):
        asked, groups = rng.sample(AGGREGATES, 4), rng.sample(FROM[source], rng.randint(0, len(FROM[source])))
        before, first = both.charges(), None
        for _ in range(3):
            rng.shuffle(asked)
            rng.shuffle(groups)
            shown = rng.sample([*asked, *groups], len(asked) + len(groups))
            text = f"SELECT {', '.join(shown)} FROM {source}"
            text += f" GROUP BY {', '.join(groups)} ORDER BY {asked[-1].rsplit(' ')[-1]}" if groups else ""
            found = _answers(both, text, rows, sorted(groups))
            first = first or found
            assert found == first, text
        assert both.charges() == before + 1, asked


SIDES = [
    ("sum(x + n)", "sum(n + x)"),
    ("avg((x + 1) * n)", "avg(n * (1 + x))"),
    ("sum(x) FILTER (WHERE b)", "sum(x) FILTER (WHERE b)"),
]
OTHERS = [
    ("sum(x // 2 * x)", "sum(x * x // 2)"),
    ("sum(x - n + x)", "sum(x - (n + x))"),
    ("sum(x * (n / 2))", "sum(x / 2 * (n / 3))"),
    ("sum(x - 1 + n)", "sum(x - (1 + n))"),
    ("sum((x + 1) * n)", "sum(x + 1 * n)"),
    ("sum(x - n)", "sum(n - x)"),
    ("sum(x + n)", "sum(x * n)"),
    ("sum(x + n + 1)", "sum(x + 2)"),
    ("sum(x), sum(n)", "sum(x), sum(x)"),
]


@pytest.mark.slow
@pytest.mark.parametrize("source", FROM)
def test_sides_of_sums_and_products_may_be_exchanged_and_nothing_else(both: Loaded, source: str) -> None:
    for pairs, more in ((SIDES, 1), (OTHERS, 2)):
        for place, pair in enumerate(pairs):
            before = both.charges()
            first, second = (
                [*_answers(both, f"SELECT {text}, count(*) AS k FROM {source}", f"{1 + place}", []).values()]
                for text in pair
            )
            assert both.charges() == before + more, pair
            assert more == 2 or [*first[0].values()] == [*second[0].values()]


def test_a_sum_that_is_asked_both_ways_is_shown_twice(both: Loaded) -> None:
    (row,) = both("SELECT a, b FROM dp_sql('SELECT sum(x + n) AS a, sum(n + x) AS b FROM visits', rho := 1)")
    (again,) = both("SELECT a, b FROM dp_sql('SELECT sum(n + x) AS b, sum(x + n) AS a FROM visits', rho := 1)")
    assert again == row
    assert both.charges() == 1


def test_groups_that_are_worked_out_keep_their_rows(both: Loaded) -> None:
    """Cells of a join are numbered as its groups are asked, and so are the groups that they make."""
    source = "FROM clients JOIN visits USING (id) WHERE t <> 'b' GROUP BY ALL"
    orders = ["t, g", "g, t", "g // 2 AS h, t, g", "t, g, g // 2 AS h", "g, g // 2 AS h, t"]
    for place, groups in enumerate(orders):
        names = [one.rsplit(" ", 1)[-1] for one in groups.split(", ")]
        found = both(
            f"SELECT {', '.join(names)}, k FROM dp_sql(?, rho := 3000) ORDER BY ALL",
            [f"SELECT {groups}, count(*) AS k {source}"],
        )
        real = both(f"SELECT {groups}, count(*) AS k {source} ORDER BY ALL")
        counts = {row[:-1]: row[-1] for row in real}
        assert set(counts) <= {row[:-1] for row in found}
        assert [row[-1] for row in found] == pytest.approx([counts.get(row[:-1], 0) for row in found], abs=2)
        assert both.charges() == (1 if place < 2 else 2)
