"""Declared attributes: every check, the cells' labels and bounds, and a round trip through JSON."""

import dataclasses
import math

import pytest

from duckdb_dp.counting.encode import literal, quote
from duckdb_dp.domain.domain import RESERVED, canonical, declare
from duckdb_dp.errors import DPError


def test_a_record_is_frozen_and_hashable() -> None:
    attribute = declare(name="age", type="INTEGER", bins=[0, 18, 65])
    with pytest.raises(dataclasses.FrozenInstanceError):
        attribute.name = "sex"  # type: ignore[misc]
    assert attribute == declare(name="age", type="INTEGER", bins=[0, 18, 65])
    assert len({attribute, declare(name="age", type="INTEGER", bins=[0, 18, 65])}) == 1


@pytest.mark.parametrize(
    ("words", "labels", "column_type"),
    [
        ({"type": "VARCHAR", "values": ["b", "a"]}, ["b", "a"], "VARCHAR"),
        ({"type": "VARCHAR", "values": ["b"], "other": True, "nulls": True}, ["b", "other", None], "VARCHAR"),
        ({"type": "INTEGER", "values": [3, 1], "nulls": True}, [3, 1, None], "INTEGER"),
        ({"type": "INTEGER", "values": [3, 1], "other": True}, ["3", "1", "other"], "VARCHAR"),
        ({"type": "BOOLEAN"}, [False, True], "BOOLEAN"),
        ({"type": "BOOLEAN", "other": True}, ["false", "true", "other"], "VARCHAR"),
        ({"type": "ENUM('x', 'y')"}, ["x", "y"], "ENUM('x', 'y')"),
        ({"type": "INTEGER", "low": -1, "high": 1}, [-1, 0, 1], "INTEGER"),
        ({"type": "INTEGER", "low": -1, "high": 1, "step": 1.0}, [-1, 0, 1], "INTEGER"),
        ({"type": "INTEGER", "low": 5, "high": 5}, [5], "INTEGER"),
        ({"type": "BIGINT", "low": 0, "high": 10, "step": 4}, ["[0, 4)", "[4, 8)", "[8, 10]"], "VARCHAR"),
        ({"type": "INTEGER", "bins": [0, 18, 65], "other": True, "nulls": True}, ["[0, 18)", "[18, 65]", "other", None], "VARCHAR"),
        ({"type": "DOUBLE", "low": 0, "high": 0.7, "step": 0.1}, ["[0, 0.1)", "[0.1, 0.2)", "[0.2, 0.3)", "[0.3, 0.4)", "[0.4, 0.5)", "[0.5, 0.6)", "[0.6, 0.7]"], "VARCHAR"),
        ({"type": "DOUBLE", "low": 0, "high": 1, "step": 0.3}, ["[0, 0.3)", "[0.3, 0.6)", "[0.6, 0.9)", "[0.9, 1]"], "VARCHAR"),
        ({"type": "DOUBLE", "low": 0, "high": 10, "step": 50}, ["[0, 10]"], "VARCHAR"),
        ({"type": "DATE", "bins": ["2020-01-01", "2020-07-01"]}, ["[2020-01-01, 2020-07-01]"], "VARCHAR"),
        ({"type": "VARCHAR", "values": ["other", "a"], "other": True}, ["other", "a", "(other)"], "VARCHAR"),
        ({"type": "VARCHAR", "values": ["other", "(other)"], "other": True, "nulls": True}, ["other", "(other)", "((other))", None], "VARCHAR"),
        ({"type": "ENUM('other')", "other": True}, ["other", "(other)"], "VARCHAR"),
        ({"type": "DECIMAL(9,0)", "low": -1, "high": 1, "step": 1}, [-1, 0, 1], "DECIMAL(9,0)"),
        ({"type": "DECIMAL(9,2)", "low": 0, "high": 2, "step": 1}, ["[0, 1)", "[1, 2]"], "VARCHAR"),
        ({"type": "DATE", "bins": ["2020-01-01 00:00:00", "2020-07-01"]}, ["[2020-01-01, 2020-07-01]"], "VARCHAR"),
        ({"type": "DATE", "low": "2020-02-28", "high": "2020-03-01"}, ["2020-02-28", "2020-02-29", "2020-03-01"], "DATE"),
        ({"type": "DATE", "low": "2020-02-28", "high": "2020-03-01", "step": "1 day"}, ["2020-02-28", "2020-02-29", "2020-03-01"], "DATE"),
        ({"type": "DATE", "low": "2020-01-31", "high": "2020-03-30", "step": "1 month"}, ["[2020-01-31, 2020-02-29)", "[2020-02-29, 2020-03-30]"], "VARCHAR"),
        ({"type": "DATE", "low": "2000-01-01", "high": "2020-01-01", "step": "10 years"}, ["[2000-01-01, 2010-01-01)", "[2010-01-01, 2020-01-01]"], "VARCHAR"),
        ({"type": "TIME", "low": "08:00:00", "high": "09:00:00", "step": "00:30:00"}, ["[08:00:00, 08:30:00)", "[08:30:00, 09:00:00]"], "VARCHAR"),
        ({"type": "TIMESTAMP", "low": "2020-01-01 00:00:00", "high": "2020-01-03", "step": "1 day"}, ["[2020-01-01, 2020-01-02)", "[2020-01-02, 2020-01-03]"], "VARCHAR"),
        ({"type": "TIMESTAMP", "low": "2020-01-01", "high": "2020-01-02", "step": "12 hours"}, ["[2020-01-01 00:00:00, 2020-01-01 12:00:00)", "[2020-01-01 12:00:00, 2020-01-02 00:00:00]"], "VARCHAR"),
        ({"type": "TIMESTAMP", "low": "9998-01-01", "high": "9999-12-31", "step": "1 year"}, ["[9998-01-01, 9999-01-01)", "[9999-01-01, 9999-12-31]"], "VARCHAR"),
        ({"type": "HUGEINT", "low": 2**100, "high": 2**100 + 1}, [2**100, 2**100 + 1], "HUGEINT"),
    ],
)  # fmt: skip
def test_cells(words: dict, labels: list, column_type: str) -> None:
    attribute = declare(name="x", **words)
    assert attribute.labels() == labels
    assert [type(label) for label in attribute.labels()] == [type(label) for label in labels]
    assert attribute.size == len(labels) == len(attribute.bounds())
    assert attribute.column_type == column_type


def test_bounds() -> None:
    bins = declare(name="x", type="INTEGER", bins=[0, 18, 65], other=True, nulls=True)
    assert bins.bounds() == [(0, 18), (18, 65), (None, None), (None, None)]
    whole = declare(name="x", type="INTEGER", low=3, high=4, other=True)
    assert whole.bounds() == [(3, 3), (4, 4), (None, None)]
    assert declare(name="x", type="VARCHAR", values=["a"], nulls=True).bounds() == [(None, None)] * 2


BAD = [
    ({"type": "INTEGER"}, "does not list its values"),
    ({"type": "INTEGER", "values": [1], "bins": [1, 2]}, "was declared by values and by bins"),
    ({"type": "INTEGER", "values": [1], "low": 1}, "was declared by values and by low/high"),
    ({"type": "INTEGER", "values": [], "high": 1}, "was declared by values and by low/high"),
    ({"type": "INTEGER", "values": []}, "was declared without values"),
    ({"type": "INTEGER", "values": list(range(1_000_001))}, "was declared with 1,000,001 cells"),
    ({"type": "INTEGER", "low": 0, "high": 10**9}, "was declared with 1,000,000,001 cells"),
    ({"type": "INTEGER", "values": [1, 2, 1]}, "was declared with a value twice"),
    ({"type": "DOUBLE", "values": [1, 1.0]}, "was declared with a value twice"),
    ({"type": "FLOAT", "values": [0.1, 0.1 + 1e-12]}, "was declared with a value twice"),
    ({"type": "TIMESTAMP", "values": ["2020-01-01", "2020-01-01 00:00:00"]}, "was declared with a value twice"),
    ({"type": "DECIMAL(4,2)", "bins": [0.001, 0.004, 0.009]}, "has no value from 0.001 to 0.009"),
    ({"type": "TINYINT", "bins": [128, 200]}, "has no value from 128 to 200"),
    ({"type": "DOUBLE", "low": 0, "high": 100, "step": 1}, 'whole numbers: "values" := range(0, 101); else: bins := range(0, 101)'),
    ({"type": "DECIMAL(9,2)", "low": 1e39, "high": 2e39, "step": 1e38}, "has no value from 1e+39 to 2e+39"),
    ({"type": "DECIMAL(38,2)", "low": 0, "high": 1e39, "step": 1}, "a larger step > 0"),
    ({"type": "DECIMAL(38,2)", "values": [1e39]}, "which 1e+39 does not fit"),
    ({"type": "DOUBLE", "low": 1e300, "high": 2}, "give a step"),
    ({"type": "BIGINT", "low": 1e300, "high": 2e300}, "which 1e+300 does not fit"),
    ({"type": "DOUBLE", "values": [10**400]}, "does not fit"),
    ({"type": "DATE", "low": "2020-01-01", "high": "2020-02-01", "step": 7}, "low := '2010-01-01'"),
    ({"type": "DATE", "low": "2020-01-01", "high": "2020-02-01", "step": "0 days"}, "step is an interval above 0"),
    ({"type": "DATE", "low": "2020-01-01", "high": "2020-02-01", "step": "12:00:00"}, "an interval above 0, of whole days, found"),
    ({"type": "DATE", "low": "2020-01-01", "high": "2019-02-01", "step": "7 days"}, "low is above high"),
    ({"type": "TIME", "low": "08:00:00", "high": "18:00:00"}, "low := '08:00:00', high := '18:00:00', step := INTERVAL 1 HOUR"),
    ({"type": "TIMESTAMP", "low": "2000-01-01", "high": "2020-01-01", "step": "00:00:00.000001"}, "a larger step"),
    ({"type": "VARCHAR", "bins": ["a", "b"]}, "has no order to cut"),
    ({"type": "BOOLEAN", "bins": [False, True]}, "has no order to cut"),
    ({"type": "INTEGER", "bins": [1]}, "needs at least two bin edges"),
    ({"type": "INTEGER", "bins": [1, 3, 2]}, "each above the one before"),
    ({"type": "FLOAT", "bins": [0.1, 0.1 + 1e-12]}, "each above the one before"),
    ({"type": "DATE", "bins": ["2020-02-01", "2020-01-01"]}, "each above the one before"),
    ({"type": "INTEGER", "low": 2, "high": 1}, "was declared with low above high"),
    ({"type": "INTEGER", "low": 2}, "lacks high; give low and high both"),
    ({"type": "INTEGER", "low": True, "high": 5}, "needs numbers for low, high and step"),
    ({"type": "DOUBLE", "low": 0, "high": float("inf"), "step": 1}, "needs numbers for low, high and step"),
    ({"type": "DOUBLE", "low": 0, "high": 1}, "give a step"),
    ({"type": "DOUBLE", "low": 0, "high": 1, "step": 0}, "a larger step > 0"),
    ({"type": "DOUBLE", "low": 1, "high": 1, "step": 1}, "use low < high"),
    ({"type": "INTEGER", "low": 0, "high": 5, "step": 2.5}, "has type INTEGER, which 2.5 does not fit"),
    ({"type": "INTEGER", "values": [True]}, "which true does not fit"),
    ({"type": "BOOLEAN", "values": [1]}, "which 1 does not fit"),
    ({"type": "VARCHAR", "values": [1]}, "which 1 does not fit"),
    ({"type": "ENUM('a')", "values": ["b"]}, "which 'b' does not fit"),
    ({"type": "DATE", "values": ["2020-02-30"]}, "which '2020-02-30' does not fit"),
    ({"type": "TIME", "values": ["25:00:00"]}, "which '25:00:00' does not fit"),
    ({"type": "BLOB", "values": ["a"]}, "has type BLOB, which is not supported; make it a number, a date or a text in a view."),
]  # fmt: skip


@pytest.mark.parametrize(("words", "says"), BAD, ids=[says for _, says in BAD])
def test_every_check(words: dict, says: str) -> None:
    with pytest.raises(DPError) as caught:
        declare(name="x", **words)
    assert str(caught.value).startswith("attribute 'x' ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_names_of_result_columns(name: str) -> None:
    for spelled in (name, name.upper()):
        with pytest.raises(DPError, match="is also a result column"):
            declare(name=spelled, type="BOOLEAN")


def test_canonical_json() -> None:
    assert canonical({"b": [1, 2.5, None, True], "a": "é"}) == '{"a":"é","b":[1,2.5,null,true]}'
    with pytest.raises(ValueError, match="JSON"):
        canonical(float("nan"))


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
