"""A condition that compares an expression with numbers bounds what is summed of it; bounds of differences of dates are chosen otherwise."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again
from tests.sql.some_visits import loaded

DAYS = "db - da"
SAID: dict[str, int | None] = {
    "avg({0}) AS m FROM visits WHERE {0} BETWEEN 0 AND 3": 3,
    "avg({0}) AS m FROM visits WHERE x > 2 AND ({0}) >= 0 AND 5 >= {0}": 5,
    "avg({0}) FILTER (WHERE {0} BETWEEN 0 AND 3) AS m FROM visits": 3,
    "avg(d) AS m FROM (SELECT {0} AS d FROM visits) WHERE d BETWEEN 0 AND 3": 3,
    "avg({0}) AS m FROM visits JOIN users ON person = id WHERE {0} BETWEEN 0 AND 3": 3,
    "avg({0}) AS m FROM visits WHERE {0} BETWEEN 0 AND 5000": 91,
    "avg({0}) AS m FROM visits WHERE {0} >= 0": None,
    "avg({0}) AS m FROM visits WHERE {0} BETWEEN 0 AND 3 OR x > 9": None,
    "avg({0}) AS m FROM visits WHERE da - db BETWEEN 0 AND 3": None,
    "avg({0}) AS m FROM visits WHERE {0} <= x": None,
    "avg({0}) AS m FROM visits": None,
    "sum({0}) / count({0}) AS m FROM visits": 182,
    "avg({0} + 0) AS m FROM visits": None,
    "avg({0} + 1) AS m FROM visits WHERE {0} BETWEEN 0 AND 3": 3,
    "avg(({0} + 1) * 8.0) AS m FROM visits WHERE {0} + 1 BETWEEN 1 AND 4": None,
    "avg(({0} + 1) * 8.0) AS m FROM visits WHERE {0} >= 0 AND {0} <= 3": 24,
    "avg({0} + 1) AS m FROM visits WHERE {0} >= 0": None,
    "avg({0} + 1) AS m FROM visits WHERE {0} BETWEEN 8 AND 5000": 83,
    "avg(least(greatest({0}, 0), 30)) AS m FROM visits": 30,
    "avg(least({0}, 30)) AS m FROM visits": None,
    "avg(CASE WHEN {0} > 1 THEN 1 ELSE 0 END) AS m FROM visits": 1,
    "avg({0} + x) AS m FROM visits": None,
    "avg(da - DATE '2024-01-01' + 1) AS m FROM visits": 91,
    "sum({0} + 1) / count({0}) AS m FROM visits": 184,
    "sum({0} + 1) / count({0}) AS m FROM visits WHERE {0} BETWEEN 0 AND 3": 8,
    "avg(x * 2) AS m FROM visits WHERE x * 2 BETWEEN 0 AND 8": 8,
    "avg(x * 2) AS m FROM visits WHERE x * 2 < 8 AND x * 2 > 2": 6,
}  # fmt: skip


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("said"), declared=True) as found:
        yield found


def asked(found: Loaded, select: str) -> tuple[float | None, float | None]:
    """(the average, the standard deviation of the sum that it is made of over that of a count; None where its bounds are chosen)."""
    ((m,),) = found("SELECT m FROM dp_sql(?, epsilon := 1e4)", [select])
    deviations = found("SELECT stddev FROM dp_explain(?, epsilon := 1)", [select])
    return m, None if deviations[0][0] is None else deviations[0][0] / deviations[1][0]


@pytest.mark.some(5)
@pytest.mark.parametrize("text", SAID)
def test_what_is_summed_lies_where_conditions_say(visits: Loaded, text: str) -> None:
    select = f"SELECT {text.format(DAYS)}"
    ((truth,),) = visits(select)
    answer, ratio = asked(visits, select)
    assert answer == pytest.approx(truth) or not truth  # of zeros alone no bounds are chosen
    # Of a number less its middle half the width is what one row changes.
    width = SAID[text]
    assert ratio == (None if width is None else pytest.approx(width / 2, rel=0.05))


@pytest.mark.parametrize("bound", ["", ", max_rows := 'auto'"])
@pytest.mark.parametrize("kind", ["avg", "sum", "stddev"])
@pytest.mark.parametrize("value", [DAYS, "x * 2"])
def test_conditions_that_nothing_satisfies(visits: Loaded, value: str, kind: str, bound: str) -> None:
    for condition in (f"{value} BETWEEN 8 AND 2", f"{value} > 5 AND {value} < 3"):
        select = f"SELECT {kind}({value}) AS m FROM visits WHERE {condition}"
        ((m,),) = visits(f"SELECT m FROM dp_sql(?, epsilon := 1e4{bound})", [select])
        assert not m


@pytest.mark.parametrize("rest", ["", f" WHERE {DAYS} BETWEEN 0 AND 3", " JOIN users ON person = id"])
def test_what_was_answered_before_is_not_charged_again(tmp_path: Path, rest: str) -> None:
    select = f"SELECT avg({DAYS}) AS m FROM visits{rest}"
    with loaded(tmp_path, declared=True) as found:
        check_found_again(found, select, 3)


@pytest.mark.slow
@pytest.mark.some(8)
@pytest.mark.parametrize("number", [3, 4])
@pytest.mark.parametrize("rest", ["", f" WHERE {DAYS} BETWEEN 0 AND 3", " JOIN users ON person = id"])
@pytest.mark.parametrize(
    "value", [f"avg({DAYS} + 1)", f"stddev(({DAYS}) / 365.25)", f"sum({DAYS} + 1)", "avg(b::DATE - da)"]
)
def test_what_was_answered_of_wrapped_differences_is_not_charged_again(
    tmp_path: Path, value: str, rest: str, number: int
) -> None:
    with loaded(tmp_path, declared=True) as found:
        check_found_again(found, f"SELECT {value} AS m FROM visits{rest}", number)


@pytest.mark.some(2)
@pytest.mark.parametrize("number", [3, 4])
@pytest.mark.parametrize(
    "select",
    [
        "sum(db - da + 1) AS m FROM visits JOIN users ON person = id WHERE db - da <= 3 AND sex = 'f'",
        "avg(d) AS m FROM (SELECT db - da + 1 AS d, person FROM visits WHERE db - da < 4) JOIN users ON person = id",
        "sex, avg(d + 1) AS m FROM (SELECT db - da AS d, person FROM visits) JOIN users ON person = id GROUP BY sex",
    ],
)
def test_what_was_answered_of_them_in_joins_is_not_charged_again(tmp_path: Path, select: str, number: int) -> None:
    with loaded(tmp_path, declared=True) as found:
        check_found_again(found, f"SELECT {select}", number)
