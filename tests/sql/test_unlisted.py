"""dp_explain says where joined rows are compared with what is none of the declared values; SQL counts such rows as ever."""

from collections.abc import Iterator

import pytest

from tests.conftest import Loaded
from tests.sql.some_visits import loaded

SOURCES = [
    "visits v JOIN users u ON u.id = v.person",
    "(SELECT * FROM visits) v JOIN (SELECT * FROM users) u ON u.id = v.person",
    "visits v LEFT JOIN users u ON u.id = v.person",
]
UNLISTED = {
    "sex = 'x'": ["'x'"],
    "'x' = sex": ["'x'"],
    "sex <> 'F'": ["'F'"],
    "sex IN ('f', 'x', 'y')": ["'x'", "'y'"],
    "NOT (sex = 'x' OR x = 11)": ["'x'", "11"],
    "x IN (3, 12)": ["12"],
    "x = 10.5": ["10.5"],
}
"""Conditions, and which of their values nobody has declared."""

LISTED = [
    "sex = 'f'",
    "sex IN ('f', 'm')",
    "x = 10",
    "x > 100",
    "reason = 'x'",
    "town = 9",
    "lower(sex) = 'x'",
    "x + 1 = 11",
]


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("unlisted")) as found:
        yield found


def route(visits: Loaded, source: str, condition: str) -> str:
    select = f"SELECT count(*) AS n FROM {source} WHERE {condition}"
    ((found,),) = visits("SELECT route FROM dp_explain(?, epsilon := 1)", [select])
    return str(found)


@pytest.mark.some(3)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("condition", UNLISTED)
def test_they_are_named(visits: Loaded, condition: str, source: str) -> None:
    found = route(visits, source, condition)
    for value in UNLISTED[condition]:
        assert f"{value} is no declared value of" in found
    assert found.count("is no declared value of") == len(UNLISTED[condition])


@pytest.mark.some(3)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("condition", LISTED)
def test_nothing_is_said_of_others(visits: Loaded, condition: str, source: str) -> None:
    assert "is no declared value" not in route(visits, source, condition)


def test_what_counts_other_values_declares_them(visits: Loaded) -> None:
    visits("CALL dp_attribute('orders', 'price', \"values\" := [1, 2], other := true)")
    assert "is no declared value" not in route(visits, "orders o JOIN users u ON u.id = o.person", "price = 3")
