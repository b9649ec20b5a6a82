"""The SQL that numbers a value's cell, against plain Python, for any value that a column can hold."""

import bisect
import math
import struct
import uuid
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duckdb_dp.counting.encode import code_type, encode, inside, literal, outside, quote
from duckdb_dp.domain.attribute import Attribute, declare
from duckdb_dp.errors import DPError

INTEGERS = {
    **{f"{name}INT": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in (("TINY", 8), ("SMALL", 16), ("BIG", 64), ("HUGE", 128))},
    **{f"U{name}INT": (0, 2**bits - 1) for name, bits in (("TINY", 8), ("SMALL", 16), ("BIG", 64), ("HUGE", 128))},
    "INTEGER": (-(2**31), 2**31 - 1),
    "UINTEGER": (0, 2**32 - 1),
}  # fmt: skip
REALS = {
    "FLOAT": st.floats(width=32),
    "DOUBLE": st.floats(),
    "DECIMAL(6,2)": st.decimals(-9999, 9999, places=2).map(float),
    "DECIMAL(18,0)": st.integers(-(10**15), 10**15).map(float),
}
NANOSECONDS = (datetime(1678, 1, 1), datetime(2261, 12, 31))
MOMENTS = {
    "DATE": st.dates(date(1, 1, 1), date(9999, 12, 31)).map(str),
    "TIME": st.times().map(str),
    "TIMESTAMP": st.datetimes().map(str),
    "TIMESTAMP_S": st.datetimes().map(lambda moment: str(moment.replace(microsecond=0))),
    "TIMESTAMP_NS": st.datetimes(*NANOSECONDS).map(str),
}
NAME = "a \"b\" 'c', ü-1"


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def codes(con: duckdb.DuckDBPyConnection, attribute: Attribute, values: list[Any]) -> list[int | None]:
    """The cell that the SQL gives each value; None where the row is left out."""
    texts = [
        None
        if value is None
        else value
        if isinstance(value, str)
        else format(value, "f")
        if isinstance(value, Decimal)
        else repr(value)
        for value in values
    ]
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE v AS SELECT i, CAST(t[i] AS {attribute.type}) AS {quote(attribute.name)} "
        "FROM (SELECT ?::VARCHAR[] AS t), range(1, len(t) + 1) r(i)",
        [texts],
    )
    where = inside(attribute)
    query = f"SELECT i, {encode(attribute)} AS code FROM v" + (f" WHERE {where}" if where else "")
    assert con.execute(f"DESCRIBE {query}").fetchall()[1][1] == code_type(attribute.size)
    found = dict(con.execute(query).fetchall())
    beyond = dict(con.execute(f"SELECT i, {outside(attribute)} FROM v").fetchall())
    declared = attribute.size - attribute.other - attribute.nulls
    for i, value in enumerate(values, start=1):
        code = found.get(i)
        assert beyond[i] == (value is not None and (code is None or code >= declared))
    return [found.get(i) for i in range(1, len(values) + 1)]


def expected(attribute: Attribute, value: Any) -> int | None:
    """The cell that a value belongs to, from the declaration's words."""
    points = [_comparable(attribute, point) for point in attribute.points]
    declared = attribute.size - attribute.other - attribute.nulls
    if value is None:
        return declared + attribute.other if attribute.nulls else declared if attribute.other else None
    found = _comparable(attribute, value)
    cell = None
    if found is not None and attribute.kind == "values" and found in points:
        cell = points.index(found)
    elif found is not None and attribute.kind == "integers" and points[0] <= found <= points[1]:
        cell = found - points[0]
    elif found is not None and attribute.kind == "bins" and points[0] <= found <= points[-1]:
        cell = min(bisect.bisect_right(points, found), len(points) - 1) - 1
    return declared if cell is None and attribute.other else cell


def _comparable(attribute: Attribute, value: Any) -> Any:
    """None where no declared point can be near: NaN, infinities."""
    if attribute.family == "real":
        number = struct.unpack("f", struct.pack("f", value))[0] if attribute.type == "FLOAT" else float(value)
        return number if math.isfinite(number) else None
    if attribute.family == "temporal":
        if "infinity" in value:
            return None
        return time.fromisoformat(value) if attribute.type == "TIME" else datetime.fromisoformat(value)
    return value


def compare(con: duckdb.DuckDBPyConnection, attribute: Attribute, values: list[Any]) -> None:
    assert codes(con, attribute, values) == [expected(attribute, value) for value in values]


def sorted_points(
    strategy: st.SearchStrategy[Any], least: int, attribute_type: str = ""
) -> st.SearchStrategy[list[Any]]:
    key = {"TIME": time.fromisoformat, "DATE": date.fromisoformat}.get(attribute_type, datetime.fromisoformat)
    order = key if attribute_type in MOMENTS else lambda x: x
    return st.lists(strategy, min_size=least, max_size=12, unique_by=order).map(lambda found: sorted(found, key=order))


check = settings(max_examples=40, derandomize=True, deadline=None)


@pytest.mark.parametrize("type_", INTEGERS)
@check
@given(data=st.data())
def test_whole_numbers(con, type_: str, data: st.DataObject) -> None:
    low, high = INTEGERS[type_]
    value = st.one_of(
        st.integers(low, high), st.integers(max(low, -9), min(high, 9)), st.sampled_from([low, low + 1, high - 1, high])
    )
    edge = value if "HUGE" in type_ else st.one_of(value, st.integers(-(2**127), 2**127 - 1))
    other, nulls = data.draw(st.booleans()), data.draw(st.booleans())
    words = data.draw(
        st.one_of(
            st.fixed_dictionaries({"values": st.lists(value, min_size=1, max_size=12, unique=True)}),
            st.fixed_dictionaries({"bins": sorted_points(edge, 2)}),
            st.tuples(value, st.integers(0, 300)).map(lambda t: {"low": t[0], "high": min(t[0] + t[1], high)}),
        )
    )
    if "bins" in words:  # also such as no value can be in, which older declarations may have
        points = tuple(words["bins"])
        attribute = Attribute(name=NAME, type=type_, kind="bins", points=points, other=other, nulls=nulls)
    else:
        attribute = declare(name=NAME, type=type_, other=other, nulls=nulls, **words)
    near = [point + by for point in attribute.points for by in (-1, 0, 1) if low <= point + by <= high]
    compare(con, attribute, [None, low, high, *near, *data.draw(st.lists(value, max_size=20))])


@pytest.mark.parametrize("type_", REALS)
@check
@given(data=st.data())
def test_reals(con, type_: str, data: st.DataObject) -> None:
    value = REALS[type_]
    finite = value.filter(math.isfinite).map(lambda x: x + 0.0)  # one zero
    points = data.draw(sorted_points(finite, 2))
    kind = data.draw(st.sampled_from(["values", "bins"]))
    if kind == "values":
        points = data.draw(st.permutations(points))
    flags = {word: data.draw(st.booleans()) for word in ("other", "nulls")}
    attribute = declare(name=NAME, type=type_, **{kind: points}, **flags)
    odd = [] if "DECIMAL" in type_ else [math.nan, math.inf, -math.inf, 0.0, -0.0, 3e38, -3e38, 1e-45]
    near = [] if type_ != "DOUBLE" else [math.nextafter(point, by) for point in points for by in (-math.inf, math.inf)]
    compare(con, attribute, [None, *points, *odd, *near, *data.draw(st.lists(value, max_size=20))])


@pytest.mark.parametrize("type_", MOMENTS)
@check
@given(data=st.data())
def test_moments(con, type_: str, data: st.DataObject) -> None:
    points = data.draw(sorted_points(MOMENTS[type_], 2, type_))
    kind = data.draw(st.sampled_from(["values", "bins"]))
    flags = {word: data.draw(st.booleans()) for word in ("other", "nulls")}
    attribute = declare(name=NAME, type=type_, **{kind: points}, **flags)
    odd = [] if type_ == "TIME" else ["infinity", "-infinity"]
    compare(con, attribute, [None, *points, *odd, *data.draw(st.lists(MOMENTS[type_], max_size=20))])


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@check
@given(st.lists(TEXT, min_size=1, max_size=300, unique=True), st.lists(TEXT, max_size=20), st.booleans(), st.booleans())
@example(["a'b", 'c"d', "", " ", "NULL", "é", "e\u0301", "\n", "a", "A"], ["a ", " a", "null"], True, True)
def test_text(con, points: list[str], values: list[str], other: bool, nulls: bool) -> None:
    attribute = declare(name=NAME, type="VARCHAR", values=points, other=other, nulls=nulls)
    compare(con, attribute, [None, *points, *values, "other", ""])


@pytest.mark.parametrize("flags", [{}, {"other": True}, {"nulls": True}, {"other": True, "nulls": True}])
def test_truth_values_enums_and_uuids(con, flags: dict[str, bool]) -> None:
    truth = [None, "true", "false", "true"]
    found = codes(con, declare(name="b", type="BOOLEAN", **flags), truth)
    assert found[1:] == [1, 0, 1]
    only_true = declare(name="b", type="BOOLEAN", values=[True], **flags)
    assert codes(con, only_true, truth)[1:3] == [0, 1 if "other" in flags else None]
    members = "ENUM('a', 'b''c', 'x, y', 'd\"e')"
    compare(con, declare(name="e", type=members, **flags), [None, "a", "b'c", "x, y", 'd"e'])
    compare(con, declare(name="e", type=members, values=["x, y", "a"], **flags), [None, "a", "b'c", "x, y", 'd"e'])
    first, second = uuid.UUID(int=7), uuid.UUID(int=2**127)
    attribute = declare(name="u", type="UUID", values=[str(first).upper(), str(second)], **flags)
    compare(con, attribute, [None, str(first), str(second), str(uuid.UUID(int=8))])


def test_sizes_at_the_borders_of_the_code_types(con) -> None:
    for size in (1, 2, 255, 256, 257, 65_535, 65_536, 65_537, 1_000_000):
        attribute = declare(name="x", type="INTEGER", low=0, high=size - 1)
        assert codes(con, attribute, [0, size - 1, size, -1]) == [0, size - 1, None, None]
        assert code_type(size) == ("UTINYINT" if size <= 255 else "USMALLINT" if size <= 65_535 else "UINTEGER")
    for size in (254, 255, 256):
        attribute = declare(name="x", type="INTEGER", low=0, high=size - 3, other=True, nulls=True)
        assert codes(con, attribute, [0, size - 3, size, None]) == [0, size - 3, size - 2, size - 1]


def test_sums_are_exact_on_the_whole_range_of_a_type(con) -> None:
    for type_, (low, high) in INTEGERS.items():
        for start in (low, high - 9):
            attribute = declare(name="x", type=type_, low=start, high=start + 9, other=True)
            assert codes(con, attribute, [start, start + 9, low, high]) == [
                expected(attribute, v) for v in (start, start + 9, low, high)
            ]


def test_literals() -> None:
    assert literal(None) == "NULL"
    assert (literal(True), literal(False)) == ("true", "false")
    assert (literal(-3), literal(2**127 - 1)) == ("-3", str(2**127 - 1))
    assert literal(0.1) == "0.1::DOUBLE"
    assert literal("it's") == "'it''s'"
    assert literal("2020-01-01", "DATE") == "CAST('2020-01-01' AS DATE)"
    assert quote('a"b') == '"a""b"'


def test_what_no_comparison_could_hold_is_refused() -> None:
    for type_, words in [
        ("UHUGEINT", {"bins": [-1, 5]}),
        ("HUGEINT", {"bins": [0, 2**127]}),
        ("INTEGER", {"bins": [0, 2**127]}),
        ("TINYINT", {"values": [128]}),
        ("UTINYINT", {"low": -1, "high": 5}),
        ("FLOAT", {"bins": [0, 1e39]}),
        ("FLOAT", {"values": [0.1, 0.10000000001]}),
        ("DOUBLE", {"bins": [0, math.inf]}),
        ("DECIMAL(4,1)", {"values": [0.25]}),
        ("DECIMAL(4,1)", {"values": [1000]}),
        ("DATE", {"bins": ["2020-01-01", "2020-01-02 12:00:00"]}),
        ("DATE", {"bins": ["2020-01-01", "20200102"]}),
        ("TIMESTAMP", {"bins": ["2020-01-01", "2020-01-02T00:00:00+02:00"]}),
        ("TIMESTAMP_NS", {"bins": ["2020-01-01", "2300-01-01"]}),
        ("TIMESTAMP_S", {"bins": ["2020-01-01 00:00:00", "2020-01-01 00:00:00.5"]}),
        ("VARCHAR", {"values": ["a\0b"]}),
        ("UUID", {"values": ["7"]}),
        ("BLOB", {"values": ["a"]}),
    ]:
        with pytest.raises(DPError):
            declare(name="x", type=type_, **words)
