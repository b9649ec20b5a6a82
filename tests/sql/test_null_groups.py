"""Where the public rows that conditions leave have NULL alone in a column that is grouped by, NULL is a group, and those without rows are found again."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.earlier_forms import as_in_form, check_found_again, looked_anew

TYPES = {
    "VARCHAR": "'g' || i", "INTEGER": "i", "DOUBLE": "i * 0.5", "DECIMAL(8, 2)": "i * 1.25", "DATE": "DATE '2020-01-01' + i::INTEGER",
    "TIMESTAMP": "TIMESTAMP '2020-01-01' + i * INTERVAL 1 HOUR", "BOOLEAN": "i % 2 = 0", "TIME": "TIME '08:00' + i * INTERVAL 10 MINUTE",
    "ENUM('a', 'b')": "['a', 'b'][1 + i % 2]", "UUID": "'00000000-0000-0000-0000-00000000000' || i",
}  # fmt: skip
"""Types of a column that is NULL where k is 4, 5 or 6, and its values elsewhere."""


def opened(folder: Path, *, seed: int | None = None) -> Loaded:
    connection = duckdb.connect()
    columns = ", ".join(f"c{place} {type_}" for place, type_ in enumerate(TYPES))
    values = ", ".join(
        f"(CASE WHEN i < 4 THEN {value} END)::{type_} AS c{place}" for place, (type_, value) in enumerate(TYPES.items())
    )
    connection.execute(
        f"""
        CREATE TABLE people (id INTEGER PRIMARY KEY); INSERT INTO people FROM range(60);
        CREATE TABLE l (k INTEGER PRIMARY KEY, n INTEGER, never INTEGER, {columns}); INSERT INTO l SELECT i, i * 3, NULL, {values} FROM range(7) t(i);
        CREATE TABLE b (bk INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES people (id), k INTEGER);
        INSERT INTO b SELECT i, i % 60, CASE WHEN i % 8 < 7 THEN i % 8 END FROM range(120) t(i);
        """
    )
    load = duckdb_dp.testing.load_exact if seed is None else duckdb_dp.testing.load
    load(connection, folder / "b.dp", **({} if seed is None else {"seed": seed}))
    found = Loaded(connection, folder / "b.dp")
    found("CALL dp_protect(['people', 'b'], unit := 'people.id', max_rows := {'b': 2}, epsilon := 1e8, delta := 1e-9)")
    found("CALL dp_public(['l'])")
    return found


@pytest.fixture(scope="module")
def rents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    found = opened(tmp_path_factory.mktemp("rents"))
    yield found
    found.connection.close()


FROM = [
    "b JOIN l ON b.k = l.k WHERE l.n = 12", "b LEFT JOIN l ON b.k = l.k WHERE l.n = 12", "b JOIN l ON b.k = l.k WHERE b.k = 4",
    "b JOIN l ON b.k = l.k WHERE b.k > 3", "b, l WHERE b.k = l.k AND l.n > 10 AND l.k < 6", "b LEFT JOIN l ON b.k = l.k AND l.n > 11",
    "b LEFT JOIN (SELECT * FROM l WHERE n = 999) l ON b.k = l.k", "b LEFT JOIN (SELECT * FROM l WHERE n = 12) l ON b.k = l.k",
    "l RIGHT JOIN b ON b.k = l.k WHERE l.k IN (4, 5)", "b JOIN (SELECT k, n, never, {} FROM l) l ON b.k = l.k WHERE l.n = 15",
]  # fmt: skip
"""FROM in which the columns are NULL in all rows, or have values in some."""
NONE = ["b JOIN l ON b.k = l.k WHERE b.k = 77", "b LEFT JOIN l ON b.k = l.k WHERE l.n = 999"]
"""FROM of which form 8 knows that public rows allow no row."""


@pytest.mark.some(12)
@pytest.mark.parametrize("more", ["", ", l.n", ", l.never", ", l.k % 2"])
@pytest.mark.parametrize("column", [f"c{place}" for place in range(len(TYPES))])
@pytest.mark.parametrize("table", FROM)
def test_null_is_a_group(rents: Loaded, table: str, column: str, more: str) -> None:
    table = table.format(", ".join(f"c{place}" for place in range(len(TYPES))))
    select = f"SELECT l.{column}{more}{' AS odd' if '%' in more else ''}, count(*) AS c FROM {table} GROUP BY ALL"
    if "LEFT JOIN (SELECT" in table and (column in ("c8", "c9") or ("999" in table and "%" in more)):
        return  # of types without a text, and what is worked out of a column, NULL alone is no group
    names = ", ".join(name for name, *_ in rents.connection.execute(select).description)
    truth = {row[:-1]: row[-1] for row in rents(select)}
    found = {row[:-1]: round(row[-1]) for row in rents(f"SELECT {names} FROM dp_sql(?, epsilon := 1e4)", [select])}
    assert {*truth} <= {*found}
    assert all(count == truth.get(key, 0) for key, count in found.items())


@pytest.mark.parametrize("column", ["c0", "c1", "never"])
@pytest.mark.parametrize("table", FROM[:4])
def test_it_is_the_only_one_where_no_row_has_another(rents: Loaded, table: str, column: str) -> None:
    select = f"SELECT l.{column} AS g, count(*) AS c FROM {table} GROUP BY 1"
    assert [row[0] for row in rents("SELECT g FROM dp_sql(?, epsilon := 1)", [select])] == [None]


@pytest.mark.parametrize("table", NONE)
def test_where_no_public_row_is_left_there_is_no_group(rents: Loaded, table: str) -> None:
    before = rents.charges()
    select = f"SELECT l.c0, count(*) AS c FROM {table} GROUP BY 1"
    assert "no value of it that satisfies the conditions" in rents.refused("FROM dp_sql(?, epsilon := 1)", [select])
    assert rents.charges() == before


@pytest.mark.parametrize("number", [6, 7])
@pytest.mark.parametrize("table", [*FROM[1:4], *NONE])
def test_what_was_answered_before_is_found_again(tmp_path: Path, table: str, number: int) -> None:
    """Also with groups that have no rows, where none is left and the statement is refused now."""
    found = opened(tmp_path, seed=1)
    check_found_again(found, f"SELECT l.c0, count(*) AS c FROM {table} GROUP BY 1", number)


def test_other_budgets_and_fresh_ones_are_not(tmp_path: Path) -> None:
    found, select = opened(tmp_path, seed=1), f"SELECT l.c0, count(*) AS c FROM {NONE[0]} GROUP BY 1"
    with as_in_form(7):
        found("FROM dp_sql(?, epsilon := 1, release := 'first')", [select])
    looked_anew(found)
    assert found("FROM dp_sql(?, epsilon := 1, release := 'first')", [select])
    for more in ("1, fresh := true", "1, release := 'other'", "2"):
        found.refused(f"FROM dp_sql(?, epsilon := {more})", [select])
    assert found.charges() == 1


def test_lists_are_found_again(tmp_path: Path) -> None:
    found, selects = opened(tmp_path, seed=1), [f"SELECT l.c0, count(*) AS c FROM {one} GROUP BY 1" for one in NONE]
    with as_in_form(7):
        before = found("FROM dp_sql(?, epsilon := 1)", [selects])
    looked_anew(found)
    assert found("FROM dp_sql(?, epsilon := 1)", [selects]) == before
    assert found.charges() == 1
