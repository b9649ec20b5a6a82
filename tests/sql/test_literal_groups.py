"""GROUP BY of labels that the statement itself lists: literals in branches of UNION, and CASE of literals inside."""

from collections.abc import Iterator

import pytest

from tests.conftest import Loaded
from tests.sql.some_visits import answers, loaded

KINDS = "(SELECT 'visit' AS kind, person FROM visits UNION ALL SELECT 'order', person FROM orders)"
LISTED = [
    "SELECT kind, count(*) AS n FROM (SELECT 'a' AS kind FROM visits UNION ALL SELECT 'b' FROM orders) GROUP BY kind",
    f"SELECT kind, count(*) AS n FROM {KINDS} GROUP BY kind",
    f"SELECT kind, sex, count(*) AS n FROM {KINDS} JOIN users ON person = id GROUP BY ALL",
    f"WITH e AS {KINDS} SELECT kind, count(DISTINCT person) AS n FROM e GROUP BY kind",
    f"SELECT kind, count(*) AS n FROM {KINDS} WHERE kind <> 'order' GROUP BY kind",
    f"SELECT upper(kind) AS k, count(*) AS n FROM {KINDS} GROUP BY k",
    f"SELECT kind || sex AS k, count(*) AS n FROM {KINDS} JOIN users ON person = id GROUP BY k",
    "SELECT k, count(*) AS n FROM (SELECT 1 AS k FROM visits UNION ALL SELECT -2 FROM orders UNION ALL SELECT 5000000000 FROM users) GROUP BY k",
    "SELECT k, count(*) AS n FROM (SELECT CASE WHEN x > 3 THEN 'hi' END AS k FROM visits UNION ALL SELECT 'b' FROM orders) GROUP BY k",
    "SELECT k, count(*) AS n FROM (SELECT person, 'a' AS k FROM visits UNION SELECT person, 'a' AS k FROM orders UNION SELECT person, 'b' FROM orders) GROUP BY k",
    "SELECT k, count(*) AS n FROM (SELECT person, CASE WHEN sum(x) > 20 THEN 'many' ELSE 'few' END AS k FROM visits GROUP BY person) GROUP BY k",
    "SELECT k, count(*) AS n FROM (SELECT DISTINCT person, CASE WHEN x > 3 THEN 'many' ELSE 'few' END AS k FROM visits) GROUP BY k",
    "SELECT k, count(*) AS n FROM (SELECT CASE WHEN row_number() OVER (PARTITION BY person ORDER BY a) = 1 THEN 'first' ELSE 'later' END AS k FROM visits) GROUP BY k",
    "SELECT k, count(*) AS n FROM users LEFT JOIN (SELECT person, 'a' AS k FROM orders UNION ALL SELECT person, 'b' FROM orders) ON person = id GROUP BY k",
]


@pytest.fixture(scope="module", params=["", ", discovery_delta := 1e-10"], ids=["plain", "discovering"])
def visits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("literal"), more=request.param) as found:
        yield found


@pytest.mark.some(8)
@pytest.mark.parametrize("asked", LISTED)
def test_labels_of_the_text_are_groups(visits: Loaded, asked: str) -> None:
    """For one charge: nothing is spent on finding them."""
    charges = visits.charges()
    found = [(*labels, round(n)) for *labels, n in answers(visits, asked)]
    assert found == sorted(visits(asked), key=str)
    assert visits.charges() == charges + 1


def test_labels_without_rows_are_groups_too(visits: Loaded) -> None:
    """Which of them have rows is private."""
    nobody = "SELECT 'a' AS k, person FROM visits WHERE x > 99 UNION ALL SELECT 'b', person FROM orders"
    for inside in (
        nobody,
        "SELECT person, CASE WHEN count(*) > 99 THEN 'a' ELSE 'b' END AS k FROM visits GROUP BY person",
    ):
        found = answers(visits, f"SELECT k, count(*) AS n FROM ({inside}) GROUP BY k")
        assert [(k, round(n) > 0) for k, n in found] == [("a", False), ("b", True)]


@pytest.mark.parametrize(
    "inside",
    [
        "SELECT reason AS k FROM visits UNION ALL SELECT 'b' FROM orders",
        "SELECT 'a' AS k FROM visits UNION ALL SELECT price::VARCHAR FROM orders",
        "SELECT person, CASE WHEN count(*) > 1 THEN max(reason) ELSE 'b' END AS k FROM visits GROUP BY person",
    ],
)
def test_values_of_rows_are_not_listed(visits: Loaded, inside: str) -> None:
    """One branch without a literal is enough: the groups are not public."""
    asked = f"SELECT k, count(*) AS n FROM ({inside}) GROUP BY k"
    if visits("SELECT bool_or(discovery_delta > 0) FROM dp_budget()") == [(True,)]:
        return
    assert "its values are worked out of private rows" in visits.refused("FROM dp_sql(?, epsilon := 1)", [asked])
