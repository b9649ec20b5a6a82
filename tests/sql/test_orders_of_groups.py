"""SELECTs of one list that group by the same columns in other orders, or by what is worked out of them: each is what SQL says."""

import itertools
from collections.abc import Iterator

import pytest

from tests.conftest import Loaded
from tests.sql.some_visits import loaded

BOTH = "FROM users u JOIN visits v ON v.person = u.id GROUP BY ALL"
SELECTS = (
    f"SELECT sex, x, count(*) AS n {BOTH}",
    "SELECT x, sex, count(*) AS n FROM visits v JOIN users u ON v.person = u.id GROUP BY ALL",
    f"SELECT upper(sex) AS z, x, count(*) AS n {BOTH}",
    f"SELECT x > 4 AS y, sex, count(*) AS n {BOTH}",
    "SELECT name, sex, count(*) AS n FROM users u JOIN towns t ON t.town = u.town GROUP BY ALL",
    "SELECT x, count(*) AS n FROM visits GROUP BY ALL",
    "SELECT sum(x) AS n FROM visits",
)
ALONE = (
    "SELECT sex IS NULL AS z, part, count(*) AS n FROM alone GROUP BY ALL",
    "SELECT part > 1 AS z, sex, count(*) AS n FROM alone GROUP BY ALL",
    "SELECT part, sex, count(*) AS n FROM alone GROUP BY ALL",
    "SELECT sum(part) AS n FROM alone",
)


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("orders")) as found:
        found("CREATE TABLE alone AS SELECT [NULL, 'f', 'm'][1 + i % 3] AS sex, i * i % 4 AS part FROM range(97) t(i)")
        found("CALL dp_protect('alone', epsilon := 1e7, delta := 1e-9, another := true)")
        found("CALL dp_attribute('alone', 'sex', \"values\" := ['f', 'm'], nulls := true)")
        found("CALL dp_attribute('alone', 'part', low := 0, high := 3)")
        yield found


def groups(found: Loaded, select: str, sql: str, parameters: list[object]) -> list[str]:
    """The groups of a SELECT that have rows, as they are answered by a statement."""
    names = ", ".join(f'"{name}"' for name, *_ in found.connection.execute(select).description if name != "n")
    named = f"{names}, " if names else ""
    rows = found(f"SELECT {named}round(n)::INTEGER {sql}", parameters)
    return sorted(str(row) for row in rows if row[-1])


def check(found: Loaded, selects: list[str]) -> None:
    for number, select in enumerate(selects, 1):
        asked = f"FROM dp_sql(?, epsilon := 1e3) WHERE query = {number}"
        assert groups(found, select, asked, [selects]) == groups(found, select, f"FROM ({select})", [])


@pytest.mark.some(3)
@pytest.mark.parametrize("selects", [*itertools.permutations(SELECTS, 2)], ids=str)
def test_joined(exact: Loaded, selects: tuple[str, str]) -> None:
    check(exact, [*selects])


@pytest.mark.some(3)
@pytest.mark.parametrize("selects", [*itertools.permutations(ALONE, 2)], ids=str)
def test_of_one_table(exact: Loaded, selects: tuple[str, str]) -> None:
    check(exact, [*selects])


def test_in_a_union(exact: Loaded) -> None:
    union = "SELECT z, part, n FROM (SELECT sex IS NULL AS z, part, count(*) AS n FROM alone GROUP BY ALL) UNION ALL SELECT NULL::BOOLEAN, NULL::INTEGER, count(*) FROM alone"
    assert groups(exact, union, "FROM dp_sql(?, epsilon := 1e3)", [union]) == groups(
        exact, union, f"FROM ({union})", []
    )
