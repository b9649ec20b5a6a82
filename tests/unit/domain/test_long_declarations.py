"""Many points at once are read and written as each of them alone."""

import itertools
from datetime import datetime, time, timedelta
from typing import Any

import numpy as np
import pytest

from duckdb_dp.domain.types import column_type
from duckdb_dp.domain.types.base import ColumnType

STEPS = [
    ("TIMESTAMP", "2020-02-28 23:59:58", "2020-02-29 00:00:02", "00:00:00.5", timedelta(seconds=0.5)),
    ("TIMESTAMP", "2020-02-28 23:59:58", "2020-02-29 00:00:02", "00:00:01", timedelta(seconds=1)),
    ("TIMESTAMP", "0001-01-01", "0001-01-05", "1 day", timedelta(days=1)),
    ("TIMESTAMP_MS", "1999-12-31 00:00:00", "2000-01-02 01:00:00", "01:30:00", timedelta(hours=1.5)),
    ("DATE", "2019-12-25", "2020-03-02", "7 days", timedelta(days=7)),
    ("TIME", "08:00:00", "08:00:03", "00:00:00.25", timedelta(seconds=0.25)),
    ("TIME", "08:00:00", "23:59:59", "01:00:00", timedelta(hours=1)),
]


@pytest.mark.parametrize(("name", "low", "high", "step", "by"), STEPS)
def test_even_steps_are_those_of_the_calendar(name: str, low: str, high: str, step: str, by: timedelta) -> None:
    """Python's own calendar adds and writes them one after another."""
    start, end = (datetime.fromisoformat(f"1970-01-01 {x}" if name == "TIME" else x) for x in (low, high))
    moments = list(itertools.takewhile(lambda moment: moment < end, (start + i * by for i in range(1000))))
    if name == "TIME":
        texts = [moment.time().isoformat() for moment in (*moments, end)]
    elif all(moment.time() == time() for moment in (*moments, end)):
        texts = [str(moment.date()) for moment in (*moments, end)]
    else:
        texts = [str(moment) for moment in (*moments, end)]
    assert column_type(name).stepped("x", low, high, step) == ("bins", texts)


POINTS: list[tuple[str, list[Any]]] = [
    (
        "DATE",
        ["2020-01-01 00:00:00", "2020-01-02", "2020-01-03 00:00:00.0", "2020-01-04T00:00:00", "2020-01-05 01:00:00"],
    ),
    ("TIME", ["00:00", "08:15:00", "08:15:00.5", "23:59:59.999999"]),
    ("TIMESTAMP", ["2020-01-01", "2020-01-01 00:00:00.000001", "9999-12-31 23:59:59"]),
    ("FLOAT", [-1e30, 0.1, 1, 2**24 + 1, 2**60 + 1]),
    ("DOUBLE", [-1e300, 0.1, 1]),
    ("INTEGER", [-(2**31), 0, 7]),
    ("INTEGER", [-(2**31), 0.5, 7]),
    ("UHUGEINT", [0, 2**127, 2**128 - 1]),
    ("VARCHAR", ["", "a", "\u00e9"]),
    ("UUID", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"]),
]


@pytest.mark.parametrize(("name", "points"), POINTS)
def test_many_points_are_as_each_one(name: str, points: list[Any]) -> None:
    dtype = column_type(name)
    assert list(dtype.canonicals(points)) == [dtype.canonical(point) for point in points]
    held = [point for point in points if dtype.fits(point, edge=True)]
    assert np.array_equal(dtype.orders(held), [dtype.order(point) for point in held])
    if dtype.ordered and not dtype.continuous:
        assert dtype.amounts(held) == [dtype.amount(point) for point in held]


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("VARCHAR", ["a", "b\0c"]),
        ("VARCHAR", ["a", 1]),
        ("TIME", ["08:00:00", "24:00:00"]),
        ("TIME", ["08:00:00", "08:00:00."]),
        ("DATE", ["2020-01-01", "2020-02-30"]),
        ("TIMESTAMP", ["2020-01-01 00:00:00", "2020-01-01 00:00:00."]),
    ],
)
def test_one_that_does_not_fit_is_found_among_many(name: str, points: list[Any]) -> None:
    dtype: ColumnType = column_type(name)
    assert dtype.misfits(points * 3, edges=False) == [p for p in points * 3 if not dtype.fits(p)]
