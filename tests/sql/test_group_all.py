"""GROUP BY beside subqueries: those that are answers of their own are no groups, and what they are worked out to be is none either."""

from collections.abc import Iterator

import pytest

from tests.conftest import Loaded
from tests.sql.some_visits import answers, loaded

BESIDE = [
    "(SELECT count(*) FROM users)",
    "1 + (SELECT count(*) FROM users)",
    "coalesce((SELECT count(*) FROM users), 0)",
    "(SELECT count(*) FROM users) - (SELECT count(*) FROM visits WHERE x > 3)",
    "CASE WHEN (SELECT count(*) FROM users) > 10 THEN (SELECT count(*) FROM towns) END",
    "-((SELECT avg(x) FROM visits))",
    "round((SELECT max(town) FROM towns) / 2.0, 1)",
    "count(*) * 100 / (SELECT count(*) FROM visits)",
]
"""Items without a column of their own."""


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("all"), declared=True) as found:
        yield found


def rounded(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(tuple(round(v, 2) if isinstance(v, float | int) else v for v in row) for row in rows)


@pytest.mark.some(4)
@pytest.mark.parametrize("source", ["visits", "visits JOIN users ON person = id"])
@pytest.mark.parametrize("beside", BESIDE)
def test_what_reads_nothing_of_the_rows_is_no_group(visits: Loaded, beside: str, source: str) -> None:
    select = f"SELECT x, {beside} AS k, count(*) AS n FROM {source} GROUP BY ALL"
    found, truth = rounded(answers(visits, select)), rounded(visits(select))
    assert [row[0] for row in found] == [row[0] for row in truth]
    assert [tuple(map(float, row)) for row in found] == [
        pytest.approx(tuple(map(float, row)), rel=0.02) for row in truth
    ]


@pytest.mark.some(3)
@pytest.mark.parametrize("by", ["ALL", "k", "1", "{}"])
@pytest.mark.parametrize(
    "item",
    [
        "x + (SELECT count(*) FROM users)",
        "x > (SELECT avg(x) FROM visits)",
        "least((SELECT count(*) FROM visits v WHERE v.person = u.id), 3)",
        "x IN (SELECT town FROM users)",
    ],
)
def test_groups_of_subqueries_say_why_not(visits: Loaded, item: str, by: str) -> None:
    """In one line that says which part, and not that something is too deep."""
    source = "users u" if "u.id" in item else "visits"
    line = visits.refused(
        "FROM dp_sql(?, epsilon := 1)", [f"SELECT {item} AS k, count(*) AS n FROM {source} GROUP BY {by.format(item)}"]
    )
    assert "nested too deep" not in line
    assert "subquery" in line or "SELECT" in line
