"""Noise covers as many rows of a unit as conditions on their row_number() keep, whatever the unit may have."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.conftest import Loaded
from tests.sql.earlier_forms import as_in_form, check_found_again, looked_anew
from tests.sql.some_visits import loaded

NUMBER = "row_number() OVER (PARTITION BY person ORDER BY a) AS k"
FIRST = f"(SELECT person, x, {NUMBER} FROM visits)"
BOUNDS = {
    "(SELECT person, x FROM visits QUALIFY row_number() OVER (PARTITION BY person ORDER BY a) = 1)": 1,
    "(SELECT person, x FROM visits QUALIFY x > 2 AND row_number() OVER (PARTITION BY person ORDER BY a DESC) < 3)": 2,
    "(SELECT person, x FROM visits WHERE x > 2 QUALIFY row_number() OVER (PARTITION BY person ORDER BY a) BETWEEN 2 AND 3)": 2,
    "(SELECT u.id, x FROM users u JOIN visits v ON v.person = u.id QUALIFY row_number() OVER (PARTITION BY u.id ORDER BY a) = 1)": 1,
    f"{FIRST} WHERE k = 1": 1,
    f"{FIRST} WHERE 1 = k AND x > 2": 1,
    f"{FIRST} WHERE k <= 3": 3,
    f"{FIRST} WHERE 3 > k": 2,
    f"{FIRST} WHERE k = 2 OR (k = 1 AND x > 3)": 4,
    f"{FIRST} WHERE k >= 1": 4,
    f"{FIRST} WHERE k > 1": 4,
    f"{FIRST} WHERE k <> 1": 4,
    f"{FIRST} WHERE k + 1 = 2": 4,
    f"{FIRST} WHERE k = x": 4,
    f"{FIRST} WHERE k <= 40": 4,
    f"{FIRST} WHERE k < 1": 1,
    f"{FIRST} WHERE k = 1.5": 4,
    f"(SELECT * FROM {FIRST} WHERE k <= 2) WHERE k > 1": 2,
    f"users u JOIN {FIRST} f ON f.person = u.id AND f.k = 1": 1,
    f"users u LEFT JOIN {FIRST} f ON f.person = u.id AND f.k = 1": 1,
    f"users u LEFT JOIN {FIRST} f ON f.person = u.id WHERE f.k = 1": 1,  # rows without one are left out
    f"orders o JOIN {FIRST} f ON f.person = o.person AND f.k = 1": 4,
    "(SELECT person, x, row_number() OVER (PARTITION BY person, x ORDER BY a) AS k FROM visits) WHERE k = 1": 4,
    "(SELECT person, x, row_number() OVER (PARTITION BY visit_id ORDER BY a) AS k FROM visits) WHERE k = 1": 4,
    "(SELECT person, x, rank() OVER (PARTITION BY person ORDER BY da) AS k FROM visits) WHERE k = 1": 4,
    "(SELECT person, x, row_number() OVER (PARTITION BY person ORDER BY a) % 2 AS k FROM visits) WHERE k = 1": 4,
    "(SELECT person, x, x AS k FROM visits) WHERE k = 1": 4,
    # Several rows of a unit have one number where two relations are put together.
    f"(SELECT person, k FROM {FIRST} UNION ALL SELECT person, k FROM {FIRST}) WHERE k = 1": 8,
    f"(SELECT person, k FROM {FIRST} UNION ALL SELECT person, price FROM orders) WHERE k = 1": 8,
    f"(SELECT person, k FROM {FIRST} WHERE k = 1 UNION ALL SELECT person, k FROM {FIRST} WHERE k <= 2)": 3,
    f"(SELECT DISTINCT f.person, f.k, o.price FROM {FIRST} f JOIN orders o ON o.person = f.person) WHERE k = 1": 16,
    f"(SELECT f.person, f.k, o.price, count(*) AS c FROM {FIRST} f JOIN orders o ON o.person = f.person GROUP BY ALL) WHERE k = 1": 16,
    f"users u LEFT JOIN (SELECT f.person, f.k FROM {FIRST} f JOIN orders o ON o.person = f.person) g ON g.person = u.id AND g.k = 1": 16,
    f"users u LEFT JOIN (SELECT person, k FROM {FIRST} WHERE x > 2) g ON g.person = u.id AND g.k = 1": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("numbered")) as found:
        yield found


def asked(found: Loaded, source: str) -> tuple[int, float]:
    """(the count, its standard deviation)."""
    ((n, stddev),) = found(
        f"SELECT n, stddev FROM dp_sql('SELECT count(*) AS n FROM {source.replace(chr(39), chr(39) * 2)}', epsilon := 1)"
    )
    return round(n), stddev


@pytest.mark.some(8)
@pytest.mark.parametrize("source", BOUNDS)
def test_noise_covers_the_rows_that_are_kept(visits: Loaded, source: str) -> None:
    _, one = asked(visits, "(SELECT person FROM visits GROUP BY person)")
    n, stddev = asked(visits, source)
    assert visits(f"SELECT count(*) FROM {source}") == [(n,)]
    assert stddev == pytest.approx(BOUNDS[source] * one, rel=0.01)


def test_what_was_answered_before_is_not_charged_again(tmp_path: Path) -> None:
    select = f"SELECT avg(x) AS m FROM {FIRST} WHERE k = 1"
    with loaded(tmp_path) as found:
        check_found_again(found, select, 3)


VIEW = f"SELECT visit_id, person, x, {NUMBER} FROM visits"
OF_VIEW = {
    "numbered": 4,
    "numbered WHERE k = 1": 1,
    "numbered n WHERE n.k <= 2 AND x > 3": 2,
    "(SELECT * FROM numbered) WHERE k < 4": 3,
    "(FROM numbered WHERE k = 1)": 1,
    "numbered JOIN users ON id = person WHERE k = 1": 1,
    "numbered WHERE k > 1": 4,
    "numbered WHERE k = 1 OR x = 3": 4,
    "numbered WHERE x > 3": 4,
    "three WHERE k = 1": 1,
    "three WHERE k <= 2": 2,
    "three": 3,
}
"""The same of named relations."""


@pytest.fixture(scope="module", params=["", "k", "both"])
def named(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Whether the number is declared, so that cells could be counted."""
    with loaded(tmp_path_factory.mktemp("named")) as found:
        found("CALL dp_view('numbered', ?)", [VIEW])
        found("CALL dp_view('three', ?, max_rows := 3)", [VIEW])
        for view in ["numbered", "three"] if request.param == "both" else ["numbered"] if request.param else []:
            found(f"CALL dp_attribute('{view}', 'k', low := 1, high := 10)")
        found.connection.execute(
            f"CREATE SCHEMA plain; CREATE VIEW plain.numbered AS {VIEW}; CREATE VIEW plain.three AS {VIEW}"
        )
        yield found


@pytest.mark.slow
@pytest.mark.some(4)
@pytest.mark.parametrize("source", OF_VIEW)
def test_named_relations_too(named: Loaded, source: str) -> None:
    _, one = asked(named, "(SELECT person FROM visits GROUP BY person)")
    n, stddev = asked(named, source)
    if source != "three":
        assert named(
            f"SELECT count(*) FROM {source.replace('numbered', 'plain.numbered n', 1).replace('n n', 'n').replace('three', 'plain.three')}"
        ) == [(n,)]
    assert stddev == pytest.approx(OF_VIEW[source] * one, rel=0.01)


@pytest.mark.parametrize(
    "sources", [("numbered WHERE k = 1", "numbered"), ("numbered", "numbered WHERE k <= 2", "numbered WHERE x > 3")]
)
def test_of_several_each_has_all_its_rows(named: Loaded, sources: tuple[str, ...]) -> None:
    """However few another one keeps."""
    selects = [f"SELECT count(*) AS n FROM {source}" for source in sources]
    found = named("SELECT n, ci_low, ci_high FROM dp_sql(?, epsilon := 1)", [selects])
    truth = [named(select.replace("numbered", "plain.numbered"))[0][0] for select in selects]
    assert [round(n) for n, _, _ in found] == truth
    assert all(low <= n <= high for (_, low, high), n in zip(found, truth, strict=True))


@pytest.mark.parametrize("item", ["count(*)", "avg(x)", "median(x)"])
def test_what_was_asked_of_a_view_before_is_not_charged_again(named: Loaded, item: str) -> None:
    select = f"SELECT {item} AS m FROM numbered WHERE k <= 3"
    for number in (3, 4):
        with patch("duckdb_dp.sql.owned.asked.of_few_rows", return_value=set()), as_in_form(number):
            before = named(f"FROM dp_sql(?, epsilon := 1.{number})", [select])
        charges = named.charges()
        looked_anew(named)
        assert named(f"FROM dp_sql(?, epsilon := 1.{number})", [select]) == before
        assert named.charges() == charges


def test_declarations_of_the_relation_are_kept(tmp_path: Path) -> None:
    """They say groups and bounds, where they are others than those of its tables."""
    with loaded(tmp_path) as found:
        found("CALL dp_view('numbered', ?)", [VIEW])
        found(
            "CALL dp_attribute('numbered', 'x', low := 0, high := 3); CALL dp_attribute('numbered', 'k', low := 1, high := 9)"
        )
        for select, groups in (
            ("SELECT x, count(*) AS n FROM numbered WHERE k = 1 GROUP BY x", range(4)),
            ("SELECT k, count(*) AS n FROM numbered WHERE k <= 2 GROUP BY k", (1, 2)),
        ):
            shown = [row[0] for row in found("FROM dp_sql(?, epsilon := 1)", [select])]
            assert shown == [*groups]
