"""Arithmetic of narrow types: what declared values may make too large is refused before a charge, and what fits is answered."""

from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

COLUMNS = {
    "t": ("TINYINT", "i % 101", "low := 0, high := 100"),
    "u": ("UTINYINT", "i % 51", "low := 0, high := 50"),
    "s": ("SMALLINT", "i % 301 - 150", "low := -150, high := 150"),
    "w": ("USMALLINT", "i % 301", "bins := [0, 100, 301]"),
    "n": ("INTEGER", "i % 1001", "low := 0, high := 1000"),
    "b": ("BIGINT", "i % 4", '"values" := [0, 1, 2, 3]'),
    "least": ("TINYINT", "i % 3 - 128", "low := -128, high := -126"),
}
"""Column -> type, value, declaration."""

BEYOND = [
    "t * t",
    "t + t",
    "t * 100",
    "40 - u",
    "u - 1",
    "-u",
    "s * s * s",
    "w * w",
    "n * n * n * n",
    "abs(least)",
    "-least",
    "least - t",
]
"""What declared values make too large for the type that DuckDB gives it, or fail at."""

FITS = [
    "t - t",
    "t // 3 * 2",
    "u + u",
    "s + s",
    "n * n",
    "n * b * n",
    "CAST(t AS BIGINT) * t",
    "t * t::DOUBLE",
    "t / 3",
    "least + t",
    "abs(s)",
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with duckdb.connect() as connection:
        folder = tmp_path_factory.mktemp("overflows") / "l.dp"
        values = ", ".join(f"({value})::{type_} AS {name}" for name, (type_, value, _) in COLUMNS.items())
        connection.execute("CREATE TABLE people AS SELECT i AS id FROM range(3000) AS r(i)")
        connection.execute(f"CREATE TABLE rows AS SELECT i AS id, {values} FROM range(3000) AS r(i)")
        connection.execute("CREATE TABLE alone AS FROM rows")
        duckdb_dp.testing.load_exact(connection, folder)
        connection.execute("CALL dp_protect('alone', epsilon := 1e5, delta := 1e-9)")
        connection.execute("CALL dp_link('rows', \"references\" := {'id': 'people.id'})")
        connection.execute(
            "CALL dp_protect(['people', 'rows'], unit := 'people.id', max_rows := {'rows': 1}, epsilon := 1e5, delta := 1e-9)"
        )
        for table in ("alone", "rows"):
            for name, (_, _, declared) in COLUMNS.items():
                connection.execute(f"CALL dp_attribute('{table}', '{name}', {declared})")
        yield Loaded(connection, folder)


PLACES = [
    "SELECT avg({}) AS m FROM alone",
    "SELECT sum({}) AS m, count(*) AS n FROM people JOIN rows USING (id)",
    "SELECT count(*) AS m FROM alone WHERE {} > 3",
    "SELECT count(*) FILTER (WHERE {} > 3) AS m FROM rows",
    "SELECT median({}) AS m FROM alone",
    "SELECT avg(q) AS m FROM (SELECT {} AS q FROM rows) WHERE q BETWEEN -9 AND 9",
    "SELECT count(*) AS m FROM people JOIN rows USING (id) WHERE {} > 3",
    "SELECT {} AS k, count(*) AS m FROM alone GROUP BY k",
]


@pytest.mark.some(3)
@pytest.mark.parametrize("expression", BEYOND)
@pytest.mark.parametrize("place", PLACES)
def test_what_may_be_too_large_is_refused_before_a_charge(loaded: Loaded, place: str, expression: str) -> None:
    type_ = loaded.columns(f"SELECT {expression} AS x FROM alone")[0][1]
    with pytest.raises(duckdb.Error):  # DuckDB fails at it
        loaded(f"SELECT sum({expression}) FROM alone")
    charges = loaded.charges()
    line = loaded.refused("FROM dp_sql(?, epsilon := 1)", [place.format(f"({expression})")])
    assert "does not hold all that declared values make of it" in line
    assert type_ in line
    assert loaded.charges() == charges


@pytest.mark.some(3)
@pytest.mark.parametrize("expression", FITS)
@pytest.mark.parametrize("place", PLACES[:2])
def test_what_fits_is_answered(loaded: Loaded, place: str, expression: str) -> None:
    select = place.format(expression)
    (answer,), (true,) = loaded("SELECT m FROM dp_sql(?, epsilon := 1)", [select]), [loaded(select)[0][:1]]
    assert float(answer[0]) == pytest.approx(float(true[0]), rel=1e-5, abs=1e-3)


def test_what_the_message_says_is_answered(loaded: Loaded) -> None:
    for expression in BEYOND:
        line = loaded.refused("FROM dp_sql(?, epsilon := 1)", [f"SELECT avg({expression}) AS m FROM alone"])
        cast = line.split("write ")[1].split(" in it")[0]
        column = cast.split('"')[1]
        select = f"SELECT avg({expression.replace(column, cast, 1)}) AS m FROM alone"
        ((answer,),), ((true,),) = loaded("SELECT m FROM dp_sql(?, epsilon := 1)", [select]), loaded(select)
        assert answer == pytest.approx(true, rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("condition", ["t BETWEEN 0 AND 11", "t <= 11 AND s > 0"])
def test_conditions_bound_what_it_may_be(loaded: Loaded, condition: str) -> None:
    for select in (
        f"SELECT avg(t * t) AS m FROM alone WHERE {condition}",
        f"SELECT avg(t * t) FILTER (WHERE {condition}) AS m FROM rows",
    ):
        ((answer,),), ((true,),) = (
            loaded("SELECT m FROM dp_sql(?, epsilon := 1)", [select]),
            loaded(select.replace("t * t", "t::INT * t")),
        )
        assert answer == pytest.approx(true, abs=1e-3)


def test_what_a_case_keeps_away_is_answered(loaded: Loaded) -> None:
    select = "SELECT avg(CASE WHEN t < 11 THEN t * t ELSE 0 END) AS m FROM alone"
    ((answer,),), ((true,),) = loaded("SELECT m FROM dp_sql(?, epsilon := 1)", [select]), loaded(select)
    assert answer == pytest.approx(true, abs=1e-2)
