"""Laws of every column type in the registry, in DuckDB itself, whatever is declared of a column of the type."""

import bisect
import itertools
import json
import math
import struct
import uuid
from collections import Counter
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.accounting.base import GDP
from duckdb_dp.counting import encode as encoding
from duckdb_dp.counting.encode import code_type, decode, encode, inside, literal, outside, quote
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute, canonical, declare
from duckdb_dp.domain.predicate import cells_where, parse_condition
from duckdb_dp.domain.types.decimal_texts import decimal_text
from duckdb_dp.errors import DPError
from duckdb_dp.request import Question, Request
from duckdb_dp.sql import long_lists, render
from duckdb_dp.synthesis.table.columns import values as stored
from tests.conftest import Loaded

NAME = "a \"b\" 'c', ü-1"
CON = duckdb.connect()
CON.create_function("_dp_list", lambda text: json.loads(text), ["VARCHAR"], "VARCHAR[]", side_effects=True)
NUMBERS = {"type": "arrow", "null_handling": "special", "side_effects": True}
CON.create_function("_dp_numbers", long_lists.numbers, ["VARCHAR", "INTEGER"], "DOUBLE[]", **NUMBERS)  # type: ignore[arg-type]
EXAMPLES = settings(max_examples=15, derandomize=True, deadline=None)


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    ends = st.sampled_from([low, low + 1, low + 9, high - 9, high - 1, high])
    return st.one_of(st.integers(low, high), st.integers(max(low, -9), min(high, 9)), ends)


def decimals(width: int, scale: int) -> st.SearchStrategy[int | float]:
    most = min(10**width - 1, 10**15)
    return whole(-most, most).map(lambda units: units / 10**scale if scale else units)


BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
NANOSECONDS = (datetime(1678, 1, 1), datetime(2261, 12, 31))
MEMBERS = ["a", "b'c", "x, y", 'd"e', "other", ""]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{name: whole(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in BITS.items()},
    **{f"U{name}": whole(0, 2**bits - 1) for name, bits in BITS.items()},
    **{f"DECIMAL({w},{s})": decimals(w, s) for w, s in ((4, 2), (18, 0), (18, 18), (38, 0), (38, 10), (38, 38))},
    "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
    "BOOLEAN": st.booleans(),
    "VARCHAR": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
    f"ENUM({', '.join(map(literal, MEMBERS))})": st.sampled_from(MEMBERS),
    "UUID": st.integers(0, 2**128 - 1).map(lambda number: str(uuid.UUID(int=number))),
    "DATE": st.dates().map(str),
    "TIME": st.times().map(str),
    "TIMESTAMP": st.datetimes().map(str),
    "TIMESTAMP_S": st.datetimes().map(lambda moment: str(moment.replace(microsecond=0))),
    "TIMESTAMP_MS": st.datetimes().map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000).isoformat(" ", "milliseconds")),
    "TIMESTAMP_NS": st.datetimes(*NANOSECONDS).map(str),
}  # fmt: skip
"""Values of every type, as they are declared."""

every_type = pytest.mark.parametrize("type_", VALUES)


def comparable(type_: str, value: Any) -> Any:
    """A value in Python, which compares as the column does; None where no declared one can be near."""
    if value in ("infinity", "-infinity") or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if type_ == "FLOAT":
        return struct.unpack("f", struct.pack("f", value))[0]
    if type_.startswith("DECIMAL"):
        return Fraction(str(value))
    if type_ == "TIME":
        return time.fromisoformat(value)
    return datetime.fromisoformat(value) if type_ == "DATE" or type_.startswith("TIMESTAMP") else value


@st.composite
def attributes(draw: st.DrawFn, type_: str) -> Attribute:
    """Every way to declare a column of a type."""
    distinct = st.lists(VALUES[type_], min_size=1, max_size=8, unique_by=lambda x: comparable(type_, x))
    points = draw(distinct)
    ways = ["values"]
    if types.column_type(type_).ordered:
        points.sort(key=lambda x: comparable(type_, x))
        ways += ["bins"] * (len(points) > 1) + ["range"] * isinstance(points[0], int)
    way = draw(st.sampled_from(ways))
    words: dict[str, Any] = {way: points if way == "bins" else draw(st.permutations(points))}
    if way == "range":
        high = min(points[0] + draw(st.integers(1, 300)), types.column_type(type_).limits[1])  # type: ignore[attr-defined]
        words = {"low": points[0], "high": high, "step": draw(st.sampled_from([1, 7]))}
        words["step"] = 1 if high == points[0] and type_ in {*BITS, *(f"U{b}" for b in BITS)} else words["step"]
        if high == points[0] and words["step"] > 0 and type_.startswith("DECIMAL"):
            words = {"values": points}
    flags = {word: draw(st.booleans()) for word in ("other", "nulls")}
    return declare(name=NAME, type=type_, **words, **flags)


def text(value: Any) -> str | None:
    return (
        value
        if value is None or isinstance(value, str)
        else f"{Decimal(repr(value)):f}"
        if isinstance(value, float) and math.isfinite(value)
        else str(value).lower()
    )


@pytest.mark.some(4)
@every_type
@EXAMPLES
@given(data=st.data())
def test_a_drawn_cell_is_a_value_in_that_cell(type_: str, data: st.DataObject) -> None:
    check_drawn(data.draw(attributes(type_)), 5)


def check_drawn(attribute: Attribute, times: int) -> list[Any]:
    """encode(decode(cell)) == cell, of the column's type; and between the edges of a bin, as DuckDB itself compares."""
    codes = np.repeat(np.arange(attribute.size), times)
    numbers = stored(attribute, codes, np.random.default_rng(0)).tolist()
    edges = [
        literal(attribute.dtype.text(p), attribute.type) if attribute.dtype.fits(p) else "NULL"
        for p in attribute.points
    ]
    cases = [
        f"WHEN {cell} THEN coalesce(v >= {low}, true) AND coalesce(v {'<=' if cell == len(edges) - 2 else '<'} {high}, true)"
        for cell, (low, high) in enumerate(itertools.pairwise(edges))
    ]
    between = f"CASE floor(c) {' '.join(cases)} ELSE true END" if attribute.kind == "bins" else "true"
    made = f"SELECT {decode(attribute, 'c')} AS v, c, i FROM (SELECT unnest(?::DOUBLE[]) AS c, unnest(range({len(numbers)})) AS i)"
    coded = encode([attribute], f"(SELECT v AS {quote(NAME)}, * FROM ({made}))")
    asked = (
        f"SELECT CASE WHEN {inside(attribute) or 'true'} THEN {coded.codes[0]} END, typeof(v), v, {between} "
        f"FROM {coded.rows} ORDER BY i"
    )
    if attribute.type.startswith("TIMESTAMP_NS"):
        asked = asked.replace(", v, ", ", v::VARCHAR, ", 1)  # Python has no nanoseconds
    found = CON.execute(asked, [numbers]).fetchall()
    hidden = attribute.other and attribute.type != "VARCHAR" and attribute.nulls  # 'other' is NULL, which has a cell
    assert [cell for cell, *_ in found] == [c + (hidden and c == attribute.size - 2) for c in codes.tolist()]
    assert {name for _, name, _, _ in found} <= {attribute.type, '"NULL"', "NULL"}
    assert all(kept for *_, kept in found)
    return [value for _, _, value, _ in found]


@pytest.mark.some(4)
@every_type
@EXAMPLES
@given(data=st.data())
def test_every_value_has_the_cell_of_the_declaration(type_: str, data: st.DataObject) -> None:
    attribute = data.draw(attributes(type_))
    found: list[Any] = [None, *attribute.points, *data.draw(st.lists(VALUES[type_], max_size=20))]
    if type_ in ("FLOAT", "DOUBLE"):
        found += [math.nan, math.inf, -math.inf, 0.0, -0.0, 3e38, -3e38, 1e-45]
    elif type_ == "DATE" or type_.startswith("TIMESTAMP"):
        found += ["infinity", "-infinity"]
    elif isinstance(attribute.dtype, types.Whole):
        low, high = attribute.dtype.limits
        found += [low, high, *(p + by for p in attribute.points for by in (-1, 1) if low <= p + by <= high)]
    check_cells(attribute, found)


EVEN: dict[str, list[tuple[Any, Any, Any]]] = {
    "TINYINT": [(-128, 127, 5), (0, 9, 3)],
    "UINTEGER": [(0, 2**32 - 1, 2**29)],
    "BIGINT": [(-(2**63), 2**63 - 1, 2**60), (10, 100, 30)],
    "UBIGINT": [(0, 2**64 - 1, 2**61)],
    "HUGEINT": [(-(2**127), 2**127 - 1, 2**124), (-5, 50, 10)],
    "UHUGEINT": [(0, 2**100, 2**97)],
    "DECIMAL(4,2)": [(-99.99, 99.99, 12.5), (0, 1, 0.1), (0, 0.4, 0.015)],
    "DECIMAL(18,3)": [(0, 100, 3.7)],
    "DECIMAL(38,10)": [(0, 10, 0.3)],
    "DECIMAL(30,4)": [(-5, 5, 0.25)],
    "FLOAT": [(0, 1, 0.1), (-1e6, 1e6, 33333.3), (0, 1e-3, 1e-5), (16777210, 16777220, 2), (0.3, 7, 0.7)],
    "DOUBLE": [
        (0, 1, 0.1),
        (-7.7, 1e3, 12.34),
        (0, 1e-9, 3e-11),
        (2.0**53 - 40, 2.0**53, 8),
        (1e300, 1e301, 1e300),
        (0, 3, 0.01),
    ],
    "DATE": [("2020-01-01", "2020-03-03", "7 days"), ("0001-01-01", "9999-12-31", "100000 days")],
    "TIME": [("00:00:00", "23:59:59", "00:07:00.5")],
    "TIMESTAMP": [("2020-01-01", "2020-01-02", "1 hour"), ("1990-01-01", "2000-01-01", "1 month")],
    "TIMESTAMP_S": [("1960-01-01", "1980-01-02", "100 days 00:00:07")],
    "TIMESTAMP_MS": [("1960-01-01", "1980-01-02", "100 days 00:00:07")],
    "TIMESTAMP_NS": [("1960-01-01", "1980-01-02", "100 days 00:00:07")],
}
"""(low, high, step) of even bins."""


@pytest.mark.parametrize(("type_", "ends"), [(type_, ends) for type_, cases in EVEN.items() for ends in cases])
@pytest.mark.parametrize("other", [False, True])
def test_the_edges_of_even_bins_and_their_neighbours(type_: str, ends: tuple[Any, Any, Any], other: bool) -> None:
    low, high, step = ends
    attribute = declare(name=NAME, type=type_, low=low, high=high, step=step, other=other, nulls=True)
    assert attribute.kind == "bins"
    found = [None, *attribute.points]
    if isinstance(attribute.dtype, types.Real):
        edges = [struct.unpack("f", struct.pack("f", p))[0] if type_ == "FLOAT" else float(p) for p in attribute.points]
        near = np.float32 if type_ == "FLOAT" else np.float64
        found = [
            None,
            *edges,
            *(float(np.nextafter(near(edge), near(way))) for edge in edges for way in (-np.inf, np.inf)),
        ]
        found += [math.nan, math.inf, -math.inf, -0.0]
    elif type_ in ("TINYINT", "BIGINT", "HUGEINT", "UINTEGER", "UBIGINT", "UHUGEINT"):
        least, most = attribute.dtype.limits  # type: ignore[attr-defined]
        found = [p + by for p in attribute.points for by in (-1, 0, 1) if least <= p + by <= most] + [least, most]
    elif type_.startswith("DECIMAL"):
        unit, (least, most) = attribute.dtype.per_one, attribute.dtype.limits  # type: ignore[attr-defined]
        digits = {math.floor(attribute.dtype.amount(p)) + by for p in attribute.points for by in (-1, 0, 1)}
        found = [Fraction(d, unit) for d in {*digits, least, most} if least <= d <= most]
        found = [decimal_text(int(d * unit), attribute.dtype.digits[1]) for d in found]  # type: ignore[attr-defined]
    check_cells(attribute, found)


@pytest.mark.parametrize("points", [[0, 2**50, 2**51, 2**80], [-3, -1, 1, 2.5], [0.5, 1.0, 1.5, 1.5000000000000002]])
def test_the_last_of_even_bins_may_have_another_width(points: list[float]) -> None:
    attribute = declare(name=NAME, type="DOUBLE", bins=points)
    assert attribute.dtype.even_bin("x", attribute.points) is not None
    near = [float(np.nextafter(point, way)) for point in points for way in (-np.inf, np.inf)]
    check_cells(attribute, [*map(float, points), *near, (points[-2] + points[-1]) / 2])


def check_cells(attribute: Attribute, values: list[Any]) -> None:
    name = quote(NAME)
    CON.execute(
        f"CREATE OR REPLACE TEMP TABLE v AS SELECT i, CAST(t[i] AS {attribute.type}) AS {name} "
        "FROM (SELECT ?::VARCHAR[] AS t), range(1, len(t) + 1) r(i)",
        [list(map(text, values))],
    )
    beyond = dict(CON.execute(f"SELECT i, {outside(attribute)} FROM v").fetchall())
    declared = attribute.size - attribute.other - attribute.nulls
    # By nested CASE, by places in arrays where there are such, and by a join.
    for searched, numbered in ((encoding.SEARCHED, True), (1, True), (1, False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encoding, "SEARCHED", searched)
            if not numbered:
                patch.setattr(type(attribute.dtype), "numbered", lambda *_: None)
            coded = encode([attribute], "v")
        query = f"SELECT i, {coded.codes[0]} AS code FROM {coded.rows}"
        assert CON.execute(f"DESCRIBE {query}").fetchall()[1][1] == code_type(attribute.size)
        kept = dict(CON.execute(f"{query} WHERE {inside(attribute) or 'true'}").fetchall())
        for i, value in enumerate(values, start=1):
            assert kept.get(i) == cell_of(attribute, value), (attribute, value, searched)
            assert bool(beyond[i]) == (value is not None and (kept.get(i) is None or kept[i] >= declared))
    check_rest(attribute, values)


def check_rest(attribute: Attribute, values: list[Any]) -> None:
    """With the cells that are not shown each value has one, and no other one than before; a comparison is one for all of a cell."""
    whole, name = attribute.with_rest(), quote(NAME)
    coded = encode([whole], "v")
    found = CON.execute(
        f"SELECT i, {coded.codes[0]} FROM {coded.rows} WHERE {inside(whole) or 'true'} ORDER BY i"
    ).fetchall()
    hidden = dict(enumerate(whole.hidden, start=whole.shown))
    for (i, cell), value in zip(found, values, strict=True):
        known = cell_of(attribute, value)
        assert cell == known if known is not None else cell in hidden, (attribute, value)
        if known is None and value is not None:
            where = hidden[cell]
            point, ends = comparable(attribute.type, value), [comparable(attribute.type, p) for p in attribute.points]
            if point is not None and where != "unlisted":
                assert point < ends[0] if where == "below" else point > ends[-1], (attribute, value, i)
        assert known is not None or (value is None) == (hidden[cell] == "null")
    for point in attribute.points[:3]:
        if not attribute.dtype.fits(point):
            continue
        for symbol in ("=", "<>", "<", "<=", ">", ">="):
            text = f"{name} {symbol} CAST({literal(attribute.dtype.text(point))} AS {attribute.type})"
            try:
                truth = cells_where(parse_condition(f"{name} {symbol} {literal(point)}"), [whole])
            except DPError:
                continue
            told = CON.execute(f"SELECT coalesce({text}, false) FROM v ORDER BY i").fetchall()
            wrong = [
                (values[i - 1], kept)
                for (i, cell), (kept,) in zip(found, told, strict=True)
                if cell in hidden and truth[cell] != kept
            ]
            assert not wrong, (attribute, text, wrong)


def cell_of(attribute: Attribute, value: Any) -> int | None:
    """The cell that a value belongs to, from the declaration's words."""
    points = [comparable(attribute.type, point) for point in attribute.points]
    declared = attribute.size - attribute.other - attribute.nulls
    if value is None:
        return declared + attribute.other if attribute.nulls else declared if attribute.other else None
    found = comparable(attribute.type, value)
    cell = None
    if found is not None and attribute.kind == "values":
        cell = points.index(found) if found in points else None
    elif found is not None and points[0] <= found <= points[-1]:
        last = len(points) - 1
        cell = found - points[0] if attribute.kind == "integers" else min(bisect.bisect_right(points, found), last) - 1
    return declared if cell is None and attribute.other else cell


@pytest.mark.some(4)
@every_type
@EXAMPLES
@given(data=st.data())
def test_values_come_back_from_sql_json_and_units(type_: str, data: st.DataObject) -> None:
    value, dtype = data.draw(VALUES[type_]), types.column_type(type_)
    assert dtype.fits(value)
    assert dtype.fits(value, edge=True) == dtype.fits(value)
    assert dtype.canonical(value) == value == json.loads(canonical(value))
    assert dtype.order(dtype.asked(value, typed=False)) == dtype.order(value)
    same = f"CAST({literal(text(value))} AS {type_})"
    found = [f"{literal(dtype.text(value), type_)} = {same}", f"{dtype.array([None, value])} = [NULL, {same}]"]
    if isinstance(dtype, types.InUnits):
        units = dtype.amount(value)
        assert units == int(units)
        found.append(f"{dtype.from_units(f'CAST({literal(str(units))} AS {dtype.wide})')} = {same}")
    if dtype.as_number:
        found.append(f"TRY_CAST({same} AS BIGINT)::VARCHAR = {same}::VARCHAR")
    (answer,) = CON.execute(f"SELECT {', '.join(found)}").fetchall()
    assert all(answer), (found, answer)
    attribute = data.draw(attributes(type_))
    assert Attribute.from_json(json.loads(canonical(attribute.to_json()))) == attribute


@pytest.mark.some(7)
@every_type
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ibis uses what its neighbours deprecate
def test_names_are_those_of_duckdb_and_keys_are_numbered(type_: str) -> None:
    assert types.column_type(type_).name == type_
    CON.execute(f"CREATE OR REPLACE TABLE named (v {type_})")
    assert CON.execute("SELECT data_type FROM duckdb_columns() WHERE table_name = 'named'").fetchall() == [(type_,)]
    ibis = pytest.importorskip("ibis")
    own = "VARCHAR" if type_.startswith("ENUM") else type_
    if "HUGE" not in type_:
        table = ibis.duckdb.from_connection(CON).table("named")
        assert types.from_ibis(table.schema()["v"]) in (own, "DECIMAL(38,0)")
    dtype = types.column_type(type_)
    assert dtype.as_number == (isinstance(dtype, types.Whole) and dtype.limits[1] < 2**63)
    if (key := dtype.key("t", "n")) is not None:
        last = min(dtype.key_room or 300, 300)
        asked = (
            f"SELECT typeof(any_value(k)), count(DISTINCT k) FROM (SELECT {key} AS k FROM range(1, {last + 1}) r(n))"
        )
        assert CON.execute(asked).fetchall() == [(type_, last)]


HOSTILE: list[Any] = [
    "0000-01-01", "0001-01-01", "9999-12-31", "2020-02-30", "1677-12-31", "2262-01-01", "2020-01-01 12:34:56.", "2020-01-01 24:00",
    "2020-01-01T12:34:56.789", "2020-01-01 23:59:60", "1969-12-31 23:59:59.999999", "12:00", "12:00:00.", "2020-1-1", "NaT", "now",
    "", "infinity", "\u0662020-01-01", 0, -1, 2**63, 2**64, 2**127, 2**128, -(2**128), 10**400, 0.5, 1e39, 1e308, 1e-320, math.inf,
    math.nan, True, "x",
]  # fmt: skip


@pytest.mark.some(5)
@every_type
@EXAMPLES
@given(data=st.data())
def test_many_points_are_judged_as_each_of_them(type_: str, data: st.DataObject) -> None:
    dtype = types.column_type(type_)
    value = data.draw(VALUES[type_])
    for one in HOSTILE:
        for points in ([one], [value, one]):
            for edges in (False, True):
                odd = [repr(point) for point in points if not dtype.fits(point, edge=edges)]
                assert list(map(repr, dtype.misfits(points, edges=edges))) == odd, (points, edges)
    if dtype.ordered:
        fitting = [value, *(one for one in HOSTILE if dtype.fits(one))]
        assert dtype.amounts(fitting) == [dtype.amount(one) for one in fitting]
        assert dtype.orders(fitting) == [dtype.order(one) for one in fitting]


def test_every_family_is_among_these_types() -> None:
    assert {type(types.column_type(type_)) for type_ in VALUES} == set(types.FAMILIES)


@pytest.mark.parametrize("type_", ["BLOB", "BIT", "INTERVAL", "JSON", "INTEGER[]", "STRUCT(a INTEGER)", "TIMESTAMP WITH TIME ZONE", "int64"])  # fmt: skip
def test_types_without_an_entry_are_refused(type_: str) -> None:
    assert types.find(type_) is None
    with pytest.raises(DPError) as caught:
        declare(name="x", type=type_, values=["a"])
    more = ": AT TIME ZONE 'UTC' makes it a TIMESTAMP" if "ZONE" in type_ else ""
    assert (
        str(caught.value)
        == f"attribute 'x' has type {type_}, which is not supported; make it a number, a date or a text in a view{more}."
    )


@pytest.mark.some(4)
@every_type
@EXAMPLES
@given(data=st.data())
def test_both_ways_to_bound_a_unit_keep_the_same_rows(type_: str, data: st.DataObject) -> None:
    """By an aggregate and by a window: no more rows of a unit than are allowed, and all of those with fewer."""
    attribute, most = data.draw(attributes(type_)), data.draw(st.integers(1, 3))
    collation = data.draw(st.sampled_from(["C", "NOCASE", "NOACCENT", "NFC", "NOCASE.NOACCENT"]))
    rows = st.tuples(
        st.sampled_from([None, "a", "A", "a ", "\u00e1", "a\u0301", "b"]), st.one_of(st.none(), VALUES[type_])
    )
    given_ = data.draw(st.lists(rows, max_size=30))
    CON.execute(
        f"CREATE OR REPLACE TEMP TABLE bounded AS SELECT u[i] COLLATE {collation} AS unit, CAST(t[i] AS {type_}) AS {quote(NAME)} "
        "FROM (SELECT ?::VARCHAR[] AS u, ?::VARCHAR[] AS t), range(1, len(t) + 1) r(i)",
        [[unit for unit, _ in given_], [text(value) for _, value in given_]],
    )
    request = Request(
        function="dp_marginals", catalog="temp", schema="main", table="bounded", unit="unit", max_rows=most, accounting=GDP,
        attributes=(attribute,), questions=(Question.marginal((NAME,)),), cost=1.0, mechanism="auto", objective="total",
    )  # fmt: skip
    found = []
    for heaped in (render.HEAPED, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(render, "HEAPED", heaped)
            rows_ = CON.execute(f"{render.source(request, 'key')} ORDER BY 1").fetchall()
        found.append([repr(row) for row in rows_])
    assert found[0] == found[1]
    each = Counter(unit for unit, _ in given_ if unit is not None)
    assert len(found[0]) == sum(min(count, most) for count in each.values())


def test_the_same_words_everywhere(exact: Loaded) -> None:
    exact("CREATE TABLE odd (id INTEGER, b BLOB, x BOOLEAN); CREATE TABLE other (b BLOB)")
    words = "'b' has type BLOB, which is not supported; make it a number, a date or a text in a view"
    assert words in exact.refused("CALL dp_protect('odd', unit := 'b', max_rows := 2, mu := 9, delta := 1e-9)")
    exact("CALL dp_protect('odd', mu := 9, delta := 1e-9)")
    assert [row[3] for row in exact("FROM dp_attributes('odd')")][1] == f"-- attribute {words}"
    for call in (
        "CALL dp_attribute('odd', 'b', \"values\" := ['a'])",
        "CALL dp_link('odd', {'b': 'other.b'})",
        "FROM dp_synthesize('odd', key := 'b', mu := 1)",
    ):
        assert words in exact.refused(call)


HARD: list[dict[str, Any]] = [
    {"type": "TINYINT", "bins": [-200, 0, 200]},
    {"type": "BIGINT", "bins": [2**53 + 1, 2**53 + 2, 2**53 + 5, 2**62 + 7, 2**63 - 2, 2**63 - 1]},
    {"type": "UBIGINT", "bins": [0, 2**63, 2**64 - 5, 2**64 - 2, 2**64 - 1]},
    {"type": "HUGEINT", "bins": [-(2**127), 2**127 - 1]},
    {"type": "HUGEINT", "bins": [-(2**127), -(2**127) + 1, -(2**127) + 9, 2**127 - 9, 2**127 - 1]},
    {"type": "UHUGEINT", "bins": [0, 1, 2**127, 2**128 - 9, 2**128 - 8, 2**128 - 1]},
    {"type": "FLOAT", "bins": [0.1, 0.10000001, 0.7], "nulls": True},
    {"type": "FLOAT", "bins": [-3.4e38, -1e-45, 0, 1e-45, 3.4e38]},
    {"type": "DOUBLE", "bins": [-1.5e308, 0, 5e-324, 0.1, 0.1 + 2**-56, 1.5e308]},
    {"type": "DECIMAL(4,2)", "bins": [0.125, 0.145, 7]},
    {"type": "DECIMAL(38,0)", "bins": [-(10**38) + 1, 0, 10**20, 10**20 + 10, 10**38 - 1]},
    {"type": "DECIMAL(38,10)", "bins": [-1e27, 0, 1e-10, 3e-10, 1e27]},
    {"type": "DATE", "low": "2020-01-01", "high": "2021-01-01", "step": "1 month"},
    {"type": "TIME", "low": "08:00:00", "high": "18:00:00", "step": "01:30:00", "other": True},
    {"type": "TIMESTAMP", "bins": ["0001-01-01", "1969-12-31 23:59:59.999999", "1970-01-01", "9999-12-31"]},
    {"type": "TIMESTAMP_NS", "bins": ["1700-01-01", "2000-01-01", "2000-01-01 00:00:00.000001", "2200-01-01"]},
    {"type": "VARCHAR", "values": ["other", "(other)"], "other": True},
]  # fmt: skip


@pytest.mark.parametrize("words", HARD, ids=lambda words: words["type"])
def test_drawn_values_are_all_over_their_bins(words: dict[str, Any]) -> None:
    attribute = declare(name=NAME, **words)
    found = check_drawn(attribute, 200)
    for cell, (low, high) in enumerate(attribute.held if attribute.kind == "bins" else []):
        several = len(set(found[200 * cell : 200 * cell + 200]))
        narrow = attribute.dtype.continuous and high <= np.nextafter(low, high) + 2e-8
        assert narrow or several > 0.5 * min(math.inf if attribute.dtype.continuous else high - low, 200)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({"type": "DECIMAL(4,2)", "bins": [0.001, 0.004, 0.015]}, [Decimal("0.01")] * 2),
        ({"type": "DECIMAL(4,2)", "bins": [0, 0.005, 0.009]}, [Decimal("0.00")] * 2),
        ({"type": "TINYINT", "bins": [127, 200, 300]}, [127, 127]),
        ({"type": "INTEGER", "values": [1, 2], "other": True, "nulls": True}, [1, 2, None, None]),
        ({"type": "ENUM('a', 'b')", "values": ["a"], "other": True}, ["a", None]),
        ({"type": "VARCHAR", "values": ["a", "other"], "other": True}, ["a", "other", "(other)"]),
    ],
)
def test_what_stands_for_a_cell_without_a_value(words: dict[str, Any], found: list[Any]) -> None:
    attribute = declare(name="a", **words)
    drawn = f"SELECT {decode(attribute, 'c')} FROM (SELECT unnest(range({len(found)}))::DOUBLE AS c)"
    assert [value for (value,) in CON.execute(drawn).fetchall()] == found


def test_bins_are_drawn_uniformly_to_both_ends() -> None:
    def uniform(type_: str, bins: list[Any]) -> list[Any]:
        attribute = declare(name="a", type=type_, bins=bins)
        shares = stored(attribute, np.zeros(40_000, int), np.random.default_rng(1)).tolist()
        return [
            v
            for (v,) in CON.execute(
                f"SELECT {decode(attribute, 'c')} FROM (SELECT unnest(?::DOUBLE[]) AS c)", [shares]
            ).fetchall()
        ]

    def check(counts: Any, groups: int) -> None:
        assert len(counts) == groups
        assert np.abs(np.asarray(counts) - 40_000 / groups).max() < 5 * np.sqrt(40_000 / groups)

    check(np.bincount(uniform("INTEGER", [0, 3])), 4)
    check(np.histogram(uniform("DOUBLE", [2, 6]), 8, (2, 6))[0], 8)
    check(np.histogram(np.array(uniform("HUGEINT", [-(2**127), 2**127 - 1]), float), 8, (-(2.0**127), 2.0**127))[0], 8)
    check(np.unique(uniform("DECIMAL(4,2)", [0, 0.02]), return_counts=True)[1], 3)
    check(np.unique(uniform("DATE", ["2000-02-28", "2000-03-01"]), return_counts=True)[1], 3)
    assert set(uniform("DATE", ["2000-02-28", "2000-03-01"])) == {
        date(2000, 2, 28),
        date(2000, 2, 29),
        date(2000, 3, 1),
    }


@pytest.mark.some(3)
@pytest.mark.parametrize("size", [1, 254, 255, 256, 257, 65_535, 65_536, 65_537, 1_000_000])
def test_sizes_at_the_borders_of_the_types_of_cell_numbers(size: int) -> None:
    check_cells(declare(name=NAME, type="INTEGER", low=0, high=size - 1), [0, size - 1, size, -1])
    if 2 < size < 999_999:
        attribute = declare(name=NAME, type="INTEGER", low=0, high=size - 3, other=True, nulls=True)
        check_cells(attribute, [0, size - 3, size, None])


class Version(types.ColumnType):
    """A toy type, of labels: a struct of two numbers, say 3.11."""

    spelled = r"STRUCT\(major TINYINT, minor TINYINT\)"
    declared_by = types.LABELS

    def fits(self, point: types.Scalar, *, edge: bool = False) -> bool:
        return isinstance(point, str) and point.count(".") == 1

    def text(self, value: types.Scalar) -> str:
        major, minor = str(value).split(".")
        return f"{{'major': {major}, 'minor': {minor}}}"


def test_a_new_type_is_one_entry(exact: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Declared, counted, asked about in conditions, made up and shown by what its entry says."""
    monkeypatch.setattr(types, "FAMILIES", [*types.FAMILIES, Version])
    types.find.cache_clear()
    exact("CREATE TABLE runs AS SELECT {'major': (i % 2)::TINYINT, 'minor': 1::TINYINT} AS v FROM range(50) t(i)")
    exact("CALL dp_protect('runs', mu := 1e6, delta := 1e-9)")
    assert exact("FROM dp_attributes('runs')")[0][3] == "CALL dp_attribute('runs', 'v', \"values\" := [...])"
    exact("CALL dp_attribute('runs', 'v', \"values\" := ['0.1', '1.1'])")
    counted = exact("SELECT v, count FROM dp_marginals('runs', [['v']], mu := 1) ORDER BY v")
    assert counted == [({"major": 0, "minor": 1}, 25.0), ({"major": 1, "minor": 1}, 25.0)]
    assert exact("SELECT n FROM dp_sql('SELECT count(*) AS n FROM runs WHERE v = ''1.1''', mu := 1)") == [(25.0,)]
    made = exact("SELECT v, count(*) FROM dp_synthesize('runs', mu := 1000) GROUP BY v ORDER BY v")
    assert made == [({"major": 0, "minor": 1}, 25), ({"major": 1, "minor": 1}, 25)]
    types.find.cache_clear()


@pytest.mark.parametrize("width", range(1, 39))
def test_the_ends_of_every_decimal_are_numbers_of_units(width: int) -> None:
    """DuckDB multiplies narrow decimals in 18 digits, and an error would show the value."""
    ends = [-(10**width) + 1, 10**width - 1]
    for scale in range(width + 1):
        type_ = f"DECIMAL({width},{scale})"
        units = types.column_type(type_).units("x")  # type: ignore[attr-defined]
        if units is None:
            continue
        rows = ", ".join(f"('{decimal_text(end, scale)}'::{type_})" for end in ends)
        assert [found for (found,) in CON.execute(f"SELECT {units} FROM (VALUES {rows}) AS v(x)").fetchall()] == ends
