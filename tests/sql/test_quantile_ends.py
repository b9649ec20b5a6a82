"""Intervals of quantiles end where conditions on their values say, of expressions, dates and times as of columns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again
from tests.sql.some_visits import loaded

DAYS = "db - da"
CASES = {
    f"{DAYS} | {DAYS} BETWEEN 0 AND 3": ("0", "3"),
    f"{DAYS} | 4 > {DAYS} AND {DAYS} >= 1": ("1", "4"),
    f"{DAYS} | NOT ({DAYS} < 1 OR {DAYS} > 3)": ("1", "3"),
    f"{DAYS} | da - db BETWEEN -3 AND 0": ("0", "3"),
    f"{DAYS} + 1 | {DAYS} BETWEEN 0 AND 3": ("1", "4"),
    f"({DAYS}) * 2 | {DAYS} + 1 BETWEEN 1 AND 4": ("0", "6"),
    f"({DAYS}) / 7 | {DAYS} BETWEEN 0 AND 7": ("0", "1"),
    "date_diff('day', da, db) | date_diff('day', da, db) BETWEEN 0 AND 3": ("0", "3"),
    "date_diff('minute', a, b) // 60 | date_diff('minute', a, b) BETWEEN 0 AND 300": ("0", "5"),
    "epoch(b - a) / 60 | epoch(b - a) / 60 BETWEEN 0 AND 400": ("0", "400"),
    "x * 2 | x BETWEEN 2 AND 8": ("4", "16"),
    "x * 2 | x * 2 BETWEEN 3 AND 9": ("3", "9"),
    "x * 2.5 | x * 2.5 BETWEEN 5 AND 20": ("5", "20"),
    "x + 0 | x BETWEEN 2 AND 8": ("2", "8"),
    "CAST(x AS DOUBLE) | CAST(x AS DOUBLE) BETWEEN 2 AND 8": ("2", "8"),
    "da | da BETWEEN '2024-01-10' AND '2024-02-10'": ("DATE '2024-01-10'", "DATE '2024-02-10'"),
    "da | da >= DATE '2024-01-10' AND DATE '2024-02-10' > da": ("DATE '2024-01-10'", "DATE '2024-02-10'"),
    "a | a BETWEEN '2024-01-10' AND '2024-02-10 12:00:00'": ("TIMESTAMP '2024-01-10'", "TIMESTAMP '2024-02-10 12:00:00'"),
    "ta | ta >= '10:00:00' AND ta <= TIME '12:00:00'": ("TIME '10:00:00'", "TIME '12:00:00'"),
    "a::DATE | a::DATE BETWEEN '2024-01-10' AND '2024-02-10'": ("DATE '2024-01-10'", "DATE '2024-02-10'"),
}  # fmt: skip
"""A value and a condition -> the ends."""

FROM = (
    "SELECT {1}({0}{2}) AS q FROM visits WHERE {3}",
    "SELECT {1}({0}{2}) FILTER (WHERE {3}) AS q FROM visits",
    "SELECT {1}({0}{2}) AS q FROM visits JOIN users ON person = id WHERE sex = 'f' AND {3}",
    "SELECT {1}(d{2}) AS q FROM (SELECT {0} AS d, a, b, da, db, x, ta FROM visits WHERE {3})",
)


@pytest.fixture(scope="module", params=[False, True])
def visits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("ends"), declared=request.param) as found:
        yield found


@pytest.mark.some(4)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("table", FROM)
def test_intervals_end_where_conditions_say(visits: Loaded, table: str, case: str) -> None:
    value, condition = case.split(" | ")
    for function, share in (("median", ""), ("quantile_disc", ", 0.9"), ("quantile_cont", ", 1.0")):
        select = table.format(value, function, share, condition)
        ((truth,),) = visits(select)
        type_ = {"datetime": "TIMESTAMP", "date": "DATE", "time": "TIME"}.get(type(truth).__name__, "DOUBLE")
        # Noise is none of what is measured, and then most of it: the interval is all that the condition allows.
        for epsilon, (first, last) in ((1e4, (f"'{truth}'",) * 2), (0.01, CASES[case])):
            ((low, high),) = visits(f"SELECT ci_low, ci_high FROM dp_sql(?, epsilon := {epsilon})", [select])
            ends = [f"CAST({end} AS {type_})" for end in (first, last)]
            ((below, above),) = visits(
                f"SELECT CAST('{low}' AS {type_}) <= {ends[0]}, {ends[1]} <= CAST('{high}' AS {type_})"
            )
            assert below, (low, first)
            assert above, (high, last)
        ((inside,),) = visits(
            f"SELECT CAST('{low}' AS {type_}) >= {ends[0]} AND CAST('{high}' AS {type_}) <= {ends[1]}"
        )
        assert inside, (low, high)


@pytest.mark.some(4)
@pytest.mark.parametrize("number", [3, 4, 5])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("table", FROM[::2])
def test_what_was_answered_before_is_not_charged_again(tmp_path: Path, table: str, case: str, number: int) -> None:
    value, condition = case.split(" | ")
    with loaded(tmp_path, declared=True) as found:
        check_found_again(found, table.format(value, "median", "", condition), number)
