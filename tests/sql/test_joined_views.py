"""What is declared of the columns of a dp_view holds where the view is joined with other tables, as where it is asked alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again
from tests.sql.test_public_references import opened

VIEW = """
CALL dp_view('seen', 'SELECT r."user" AS who, r.land, r.movie_id, r.stars AS given, m.genre, m.stars AS ms, r.stars * 2.5 AS price, DATE ''2024-01-01'' + r.rating_id % 40 AS day
    FROM ratings r JOIN movies m USING (movie_id)', max_rows := 4);
CALL dp_attribute('seen', 'land', "values" := ['no', 'pe', 'xx'], nulls := true);
CALL dp_attribute('seen', 'movie_id', bins := [0, 5, 12]);
CALL dp_attribute('seen', 'given', low := 1, high := 3);
CALL dp_attribute('seen', 'genre', "values" := ['drama'], other := true);
CALL dp_attribute('seen', 'price', bins := [0, 5, 11]);
CALL dp_attribute('seen', 'day', low := DATE '2024-01-01', high := DATE '2024-01-31');
"""
SELECTS = [
    "SELECT {0}, count(*) AS n FROM {1} GROUP BY {0}",
    "SELECT {0}, given, count(*) AS n FROM {1} WHERE given > 1 GROUP BY ALL",
    "SELECT {0}, sum(given) AS n FROM {1} WHERE ms < 2 GROUP BY ALL",
    "SELECT {0}, count(*) FILTER (WHERE genre = 'drama') AS n FROM {1} GROUP BY 1",
]
WITHOUT = [
    "SELECT sum(given) AS n FROM {1}", "SELECT sum(price) AS n FROM {1}", "SELECT median(day) AS n FROM {1}", "SELECT sum(given * given) AS n FROM {1}",
    "SELECT median(price) AS n FROM {1} WHERE land = 'no'",
]  # fmt: skip
JOINED = [
    "seen JOIN users ON id = who", "users JOIN seen ON who = id", "(SELECT * FROM seen) JOIN users ON who = id",
    "users u LEFT JOIN (SELECT * FROM seen) s ON s.who = u.id",
]  # fmt: skip
COLUMNS = ["land", "movie_id", "given", "genre", "price", "day"]


def viewed(folder: Path) -> Loaded:
    found = opened(folder)
    found(VIEW)
    return found


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    found = viewed(tmp_path_factory.mktemp("films"))
    yield found
    found.connection.close()


CASES = [(select, column) for select in SELECTS for column in COLUMNS] + [(select, "") for select in WITHOUT]


@pytest.mark.some(8)
@pytest.mark.parametrize(("select", "column"), CASES)
@pytest.mark.parametrize("joined", JOINED)
def test_declarations_of_a_view_hold_in_joins(films: Loaded, joined: str, select: str, column: str) -> None:
    """Each person has four rows of the view, so that these joins change none: the same groups, sums and bounds."""
    if select.startswith("SELECT given, given") or (column == "given" and ", given" in select):
        return
    names = f"{column}, n" if column else "n"
    asked = "SELECT {} FROM dp_sql(?, epsilon := 1e4)"
    alone = films(asked.format(names), [select.format(column, "seen")])
    found = films(asked.format(names), [select.format(column, joined)])
    kept = [row for row in found if row[0] is not None or column in ("", "land")]  # which a LEFT JOIN may leave out

    def shown(rows: list[tuple[object, ...]]) -> list[str]:
        return sorted(str([round(one, 2) if isinstance(one, float) else one for one in row]) for row in rows)

    if column == "genre" and "LEFT" in joined:
        return  # whose rows without one are a group beside 'other'
    assert shown(kept) == shown(alone)
    assert found
    if "sum(" in select or "median(" in select:
        result = films.connection.execute("FROM dp_sql(?, epsilon := 1)", [select.format(column, joined)])
        assert "clipped_at" not in [name for name, *_ in result.description]  # as its bounds are declared
        result.fetchall()


def test_public_columns_of_a_view_that_a_left_join_leaves_out_are_groups(films: Loaded) -> None:
    """They are read from the public table, never from the view, which reads private rows too."""
    asked = "SELECT genre, n FROM dp_sql(?, epsilon := 1e4)"
    joined = "users u LEFT JOIN (SELECT * FROM seen) s ON s.who = u.id"
    found = dict(films(asked, [f"SELECT genre, count(*) AS n FROM {joined} GROUP BY genre"]))
    alone = dict(films(asked, ["SELECT genre, count(*) AS n FROM seen GROUP BY genre"]))
    assert found["drama"] == pytest.approx(alone["drama"], abs=1)


@pytest.mark.some(4)
@pytest.mark.parametrize(("select", "column"), CASES)
def test_what_was_answered_without_them_is_found_again(tmp_path: Path, select: str, column: str) -> None:
    if column in ("price", "day", "given", "genre"):
        return  # which was refused then, or is a table's own
    check_found_again(viewed(tmp_path), select.format(column, JOINED[0]), 6)
