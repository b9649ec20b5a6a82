"""How far two dates or times are apart, in SQL and in classes."""

import itertools
from datetime import date, datetime, time, timedelta
from typing import Any

import duckdb
import pytest

from duckdb_dp.domain.differences import Difference, differences, looked_at
from duckdb_dp.domain.domain import Attribute, declare

TYPES = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIME")
LOW, HIGH = datetime(1969, 12, 1), datetime(1970, 3, 1)


def points(type_: str) -> list[str]:
    if type_ == "TIME":
        return [f"{hour:02}:00:00" for hour in range(8, 19)]
    days = [LOW + timedelta(days=days) for days in range(0, 91, 30)]
    return [str(day.date()) if type_ == "DATE" else str(day) for day in days]


def pair(type_: str, **more: Any) -> Difference:
    attributes = [declare(name=name, type=type_, bins=[*points(type_)], nulls=True, **more) for name in ("a", "b")]
    (found,) = differences(attributes, [("a", "b")])
    return found


def steps(type_: str, low: Any, high: Any) -> int | None:
    """What the difference is, in Python; None where a value is NULL or not between the declared ones."""
    if type_ == "TIME":
        low, high = (None if one is None else datetime.combine(date(1970, 1, 1), one) for one in (low, high))
        first, last = datetime(1970, 1, 1, 8), datetime(1970, 1, 1, 18)
    else:
        first, last = LOW, LOW + timedelta(days=90)
        if type_ == "DATE":
            low, high = (None if one is None else datetime.combine(one, time()) for one in (low, high))
    if low is None or high is None or not (first <= low <= last and first <= high <= last):
        return None
    apart = max(high - low, timedelta(0))
    return apart.days if type_ == "DATE" else apart // timedelta(seconds=1)


@pytest.mark.parametrize("type_", TYPES)
def test_sql_says_what_python_does_and_never_fails(type_: str) -> None:
    """Of values on both sides of 1970, at the ends, beyond them, infinite and NULL."""
    if type_ == "TIME":
        values = ["'08:00:00'", "'07:59:59.999999'", "'18:00:00'", "'12:34:56.789'", "'23:59:59'", "NULL"]
    else:
        values = [
            "'1969-12-01'",
            "'1969-12-31'",
            "'1970-01-01'",
            "'1970-03-01'",
            "'1970-03-02'",
            "'1600-01-01'",
            "NULL",
        ]
        values += [] if type_ == "DATE" else ["'1969-12-31 23:59:59.4'", "'1970-01-01 00:00:00.6'"]
        if type_ == "TIMESTAMP_NS":
            values.remove("'1600-01-01'")
        values += ["'infinity'", "'-infinity'"] if type_ != "TIMESTAMP_NS" else ["'2262-01-01'", "'1677-10-01'"]
    rows = ", ".join(f"({a}::{type_}, {b}::{type_})" for a, b in itertools.product(values, repeat=2))
    connection = duckdb.connect()
    found = connection.execute(
        f"SELECT {pair(type_).sql}, isfinite(a) AND isfinite(b), a, b FROM (VALUES {rows}) t(a, b)"
        if type_ != "TIME"
        else f"SELECT {pair(type_).sql}, true, a, b FROM (VALUES {rows}) t(a, b)"
    ).fetchall()
    for difference, finite, low, high in found:
        assert difference == (steps(type_, low, high) if finite or low is None or high is None else None)


@pytest.mark.parametrize("type_", TYPES)
def test_classes_hold_every_difference(type_: str) -> None:
    attribute = pair(type_).attribute
    edges = [int(point) for point in attribute.points]
    assert edges[0] == 0
    assert edges[-1] > (90 if type_ == "DATE" else 10 * 3600 if type_ == "TIME" else 90 * 86400)
    widths = [high - low for low, high in itertools.pairwise(edges)]
    assert all(width <= max(low / 2, 1) for low, width in zip(edges, widths, strict=False))
    assert len(edges) < 60


def test_a_difference_has_a_name_that_no_attribute_has() -> None:
    attributes = [declare(name=name, type="DATE", bins=[*points("DATE")]) for name in ("a", "b", "b - a")]
    names = [one.name for one in differences(attributes, [("a", "b"), ("a", "b")])]
    assert len({*names, "b - a"}) == 3


def test_which_differences_are_looked_at() -> None:
    """Of a chain its steps; none of numbers, nor where one range is many times the other."""

    def day(name: str, first: str, last: str) -> Attribute:
        return declare(name=name, type="DATE", bins=[first, "2020-06-01", last])

    chain = [day(name, "2020-01-01", "2021-01-01") for name in "abc"]
    chain += [day("born", "1930-01-01", "2021-01-01"), declare(name="n", type="INTEGER", low=0, high=9)]
    assert looked_at(chain, [("a", "c"), ("a", "b"), ("b", "c")]) == [("a", "b"), ("b", "c")]
    assert looked_at(chain, [("a", "b"), ("b", "a")]) == [("a", "b"), ("b", "a")]
    assert looked_at(chain, [("born", "a"), ("n", "n")]) == []
    assert looked_at(chain, []) == []
