"""The Ibis expression that numbers a value's cell, against DuckDB's own SQL for it, for any value that a column can hold."""

from typing import Any

import duckdb
import pytest

from duckdb_dp.counting import encode as sql
from duckdb_dp.counting.engines import expressions
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.errors import DPError

WHOLE = {
    "TINYINT": (-128, 127),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "UTINYINT": (0, 255),
    "UINTEGER": (0, 2**32 - 1),
    "UBIGINT": (0, 2**64 - 1),
}
EVEN = [2**50 - 1, 2**50, 2**50 + 1, 2**51 - 2, 2**51 - 1, 2**51]
NEAR = [0.1, -0.1, 0.3, 0.1 + 0.2, 1e300, -1e300, 5e-324, 1e22, 1e-7, 123456789.123, 2.0**53]
ODD = ["NaN", "Infinity", "-Infinity", "0.0", "-0.0"]
TEXTS = [
    "a", "A", "é", "e\u0301", "it's", 'say "x"', "back\\slash", "new\nline", "", " ", "a ", "NULL", "日本", "%_", "\\'", "{x}",
    "--",
]  # fmt: skip
MOMENTS = [
    "1969-12-31 23:59:59.999999", "1970-01-01", "2020-02-29 12:30:00.5", "2020-03-29 02:30:00", "0001-01-01", "9999-12-31",
]  # fmt: skip


def cases() -> list[tuple[str, dict[str, Any], list[str]]]:
    """(type, declaration, values as text); each column gets NULL too."""
    found: list[tuple[str, dict[str, Any], list[str]]] = []
    for type_, (low, high) in WHOLE.items():
        values = [str(v) for v in sorted({low, low + 1, high - 1, high, 0, 1, 5, 6, 99})]
        found += [
            (type_, {"low": low, "high": low + 9}, values),
            (type_, {"low": high - 9, "high": high}, values),
            (type_, {"bins": [low - 5, low, 1, 6, high, high + 7]}, values),
            (type_, {"bins": [-(2**100), -(2**90), 2, 2**90, 2**100]}, values),
            (type_, {"bins": [high + 1, high + 2]}, values),
            (type_, {"values": [high, low, 5]}, values),
            (type_, {"bins": [0, 3, 6, 9, 10]}, [*values, *map(str, range(2, 12))]),
            (type_, {"bins": [-2, 0, 2, 4, 6]}, [*values, *map(str, range(2, 9))]),
            (type_, {"bins": [0, 2**50, 2**51 - 1]}, [*values, *[str(v) for v in EVEN if v <= high]]),
        ]
    reals = [*map(repr, NEAR), *ODD]
    for type_ in ("DOUBLE", "FLOAT"):
        points = sorted(x for x in NEAR if type_ == "DOUBLE" or (1e-30 < abs(x) < 1e30 and x != 0.1 + 0.2))
        values = [v for v in reals if type_ == "DOUBLE" or v in ODD or 1e-30 < abs(float(v)) < 1e30]
        found += [(type_, {"bins": points}, values), (type_, {"values": points[::-1]}, values)]
        found += [(type_, {"bins": [float(i) for i in range(-40, 41)]}, [*values, *map(str, range(-45, 45, 7))])]
    cents = ["-99.99", "0.00", "0.10", "0.11", "99.99"]
    found += [
        ("DECIMAL(4,2)", {"bins": [-99.99, 0.1, 0.105, 99.99]}, cents),
        ("DECIMAL(4,2)", {"values": [0.1, 99.99]}, cents),
    ]
    huge = [
        "-99999999999999999999999999999999999999", "0", "7", "12345678901234567890123",
        "99999999999999999999999999999999999999",
    ]  # fmt: skip
    found += [("DECIMAL(38,0)", {"bins": [-1e38, 0, 7, 1e22, 1e38]}, huge), ("DECIMAL(38,0)", {"values": [7, 0]}, huge)]
    found += [("VARCHAR", {"values": TEXTS[:12]}, TEXTS), ("VARCHAR", {"values": TEXTS[::-1]}, TEXTS)]
    found += [("BOOLEAN", {}, ["true", "false"]), ("BOOLEAN", {"values": [True]}, ["true", "false"])]
    days = [m[:10] for m in MOMENTS]
    found += [("DATE", {"bins": sorted(days)}, days), ("DATE", {"values": days[:3]}, days)]
    found += [("TIMESTAMP", {"bins": sorted(MOMENTS)}, MOMENTS), ("TIMESTAMP", {"values": MOMENTS[:3]}, MOMENTS)]
    return found


def declared(i: int, type_: str, words: dict[str, Any]) -> Attribute:
    """Column i's declaration, with 'other' and NULL cells in turn."""
    flags = {"other": i % 2 == 1, "nulls": i // 2 % 2 == 1}
    if "bins" in words:  # also such as no value can be in, which older declarations may have
        return Attribute(name=f"x{i}", type=type_, kind="bins", points=tuple(words["bins"]), **flags)
    return declare(name=f"x{i}", type=type_, **words, **flags)


@pytest.mark.parametrize("family", sorted({type(types.column_type(type_)) for type_, *_ in cases()}, key=str))
def test_every_value_gets_the_cell_that_duckdb_gives_it(backend: Any, put: Any, family: type[types.ColumnType]) -> None:
    chosen = [case for case in cases() if isinstance(types.find(case[0]), family)]
    found = [(f"x{i}", *case) for i, case in enumerate(case for case in chosen for _ in range(2))]
    rows = max(len(values) for *_, values in found) + 1
    with duckdb.connect() as con:
        columns = ", ".join(
            f"CAST(({listed(values, rows)})[i] AS {type_}) AS {name}" for name, type_, _, values in found
        )
        con.execute(f"CREATE TABLE v AS SELECT i, {columns} FROM range(1, {rows + 1}) r(i)")
        table = put(con, "FROM v")
        theirs = {name: types.from_ibis(dtype) for name, dtype in table.schema().items()}
        there, here = {"i": table["i"]}, {"i": "i"}
        for i, (name, type_, words, _) in enumerate(found):
            if not isinstance(types.find(theirs[name]), family):
                continue  # Spark has no UBIGINT
            ours = declared(i, type_, words)
            attribute = Attribute.from_json({**ours.to_json(), "type": theirs[name]})
            numbers = expressions.encode_listed if i % 4 > 1 and family is types.Text else expressions.encode
            code, within = numbers(attribute, table[name]), expressions.inside(attribute, table[name])
            there[f"{name} cell"] = code if within is None else within.ifelse(code, None)
            there[f"{name} out"] = expressions.outside(attribute, table[name])
            (cell,) = sql.encode([ours], "v").codes
            here[f"{name} cell"] = f"CASE WHEN {sql.inside(ours) or 'true'} THEN {cell} END::INTEGER"
            here[f"{name} out"] = sql.outside(ours)
        answers = sorted(table.select(**there).to_pyarrow().to_pylist(), key=lambda row: row["i"])
        selected = ", ".join(f"{text} AS {sql.quote(name)}" for name, text in here.items())
        expected = con.execute(f"SELECT {selected} FROM v ORDER BY i").to_arrow_table().to_pylist()
    values = {name: (*case, values) for name, *case, values in found}
    wrong = [
        (values[name.split()[0]], at, name, row[name], answer)
        for at, (mine, row) in enumerate(zip(expected, answers, strict=True))
        for name, answer in mine.items()
        if row[name] != answer
    ]
    assert not wrong
    assert len({row[name] for row in expected for name in row if name.endswith("cell")}) > 2


def listed(values: list[str], rows: int) -> str:
    return "[" + ", ".join(map(sql.literal, [*values, *[None] * (rows - len(values))])) + "]"


@pytest.mark.parametrize("size", [1, expressions.CHAIN, expressions.LISTED, expressions.LISTED + 1, 3000])
def test_long_lists_of_texts_take_other_ways(size: int) -> None:
    attribute = declare(name="x", type="VARCHAR", values=[f"v{i}" for i in range(size)])
    assert expressions.looked_up(attribute) == (size > expressions.LISTED)
    assert expressions.listed(attribute) == (expressions.CHAIN < size <= expressions.LISTED)


@pytest.mark.slow
def test_more_bins_than_an_expression_holds_are_refused() -> None:
    ibis = pytest.importorskip("ibis")
    attribute = declare(name="x", type="DOUBLE", bins=list(range(expressions.MOST_STEPS + 2)))
    with pytest.raises(DPError, match=r"at most 10,000"):
        expressions.encode(attribute, ibis.table({"x": "float64"}, name="t")["x"])
