"""Conditions on bins against DuckDB, asked of every value that a column of each type has in them.

A condition is decided exactly where all values of each bin agree, and as DuckDB decides.
"""

from dataclasses import replace

import duckdb
import pytest

from duckdb_dp.counting.encode import encode
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.domain.predicate import attributes_of, cells_that_may, cells_where, parse_condition
from duckdb_dp.errors import DPError

WHOLE = ([0, 3, 4, 8], "unnest(range(0, 9))", ["-1", "0", "1", "2", "2.5", "3", "3.5", "4", "7", "7.5", "8", "9"])
CENTS = ["0", "0.01", "0.04", "0.045", "0.05", "0.055", "0.06", "0.08", "0.09", "-0.001"]


def texts(*values: str) -> list[str]:
    """As texts, which become the column's type, and as what they are."""
    return [found for value in values for found in (f"'{value}'", f"TIMESTAMP '{value}'")]


COLUMNS: dict[str, tuple[list, str, list[str]]] = {  # edges, all values between them, constants
    **dict.fromkeys(["TINYINT", "INTEGER", "BIGINT", "UTINYINT", "UBIGINT", "HUGEINT", "UHUGEINT"], WHOLE),
    "DECIMAL(4,2)": ([0, 0.045, 0.06, 0.09], "unnest(range(0, 10)) / 100", CENTS),
    "DECIMAL(18,2)": ([0, 0.045, 0.06, 0.09], "unnest(range(0, 10)) / 100", CENTS),
    "DECIMAL(38,2)": ([0, 0.045, 0.06, 0.09], "unnest(range(0, 10)) / 100", CENTS),
    "DECIMAL(9,0)": WHOLE,
    "DATE": (
        ["2020-01-01", "2020-01-31", "2020-02-01", "2020-03-01"],
        "unnest(range(DATE '2020-01-01', DATE '2020-03-02', INTERVAL 1 DAY))",
        [
            *[f"'2020-{day}'" for day in ("01-01", "01-30", "01-31", "02-01", "02-29", "03-01", "03-02")],
            *[f"TIMESTAMP '2020-{day}'" for day in ("01-30 12:00:00", "01-31", "01-31 00:00:01", "02-29 10:00:00")],
            "DATE '2020-01-31'",
        ],
    ),
    "TIME": (
        ["08:00:00", "08:00:00.000003", "08:00:00.000004", "08:00:00.000009"],
        "TIME '08:00:00' + to_microseconds(unnest(range(0, 10)))",
        [f"'08:00:00.00000{n}'" for n in range(10)] + ["TIME '08:00:00.000003'", "'08:00'", "'09:00:00'"],
    ),
    "TIMESTAMP": (
        ["2020-01-01", "2020-01-01 00:00:00.000003", "2020-01-01 00:00:00.000004", "2020-01-01 00:00:00.000009"],
        "TIMESTAMP '2020-01-01' + to_microseconds(unnest(range(0, 10)))",
        [
            *texts("2020-01-01", *(f"2020-01-01 00:00:00.00000{n}" for n in range(10))),
            "'2019-12-31'",
            "DATE '2020-01-02'",
        ],
    ),
    "TIMESTAMP_S": (
        ["2020-01-01", "2020-01-01 00:00:03", "2020-01-01 00:00:04", "2020-01-01 00:00:09"],
        "TIMESTAMP '2020-01-01' + to_seconds(unnest(range(0, 10)))",
        texts("2020-01-01", *(f"2020-01-01 00:00:0{n}" for n in (0, 2, "2.5", 3, "3.000001", "3.5", 4, 8, "8.5", 9))),
    ),
    "TIMESTAMP_MS": (
        ["2020-01-01", "2020-01-01 00:00:00.003", "2020-01-01 00:00:00.004", "2020-01-01 00:00:00.009"],
        "TIMESTAMP '2020-01-01' + to_milliseconds(unnest(range(0, 10)))",
        texts("2020-01-01", *(f"2020-01-01 00:00:00.00{n}" for n in (0, 2, 25, 3, 3001, 4, 8, 85, 9))),
    ),
    "TIMESTAMP_NS": (
        ["2020-01-01", "2020-01-01 00:00:00.000001", "2020-01-01 00:00:00.000002"],
        "make_timestamp_ns(epoch_ns(TIMESTAMP '2020-01-01') + unnest(range(0, 2001)))",
        [*texts("2020-01-01", *(f"2020-01-01 00:00:00.00000{n}" for n in range(4))), "'2020-01-01 00:00:00.0000005'"],
    ),
}
CONNECTION = duckdb.connect()


def conditions(constants: list[str]) -> list[str]:
    found = [f"x {sign} {c}" for sign in ("=", "<>", "<", "<=", ">", ">=") for c in constants]
    found += [f"x BETWEEN {a} AND {b}" for a in constants for b in constants]
    return found + [f"x NOT IN ({a}, {b})" for a in constants for b in constants[:3]]


def agrees(condition: str, attribute: Attribute) -> bool:
    """Whether it is decided; then as DuckDB does."""
    kept = [
        kept
        for (kept,) in CONNECTION.execute(
            f"SELECT CASE WHEN min(k) = max(k) THEN min(k) END FROM "
            f"(SELECT cell, coalesce({condition}, false) AS k FROM {table(attribute)}) GROUP BY cell ORDER BY cell"
        ).fetchall()
    ]
    parsed = parse_condition(condition)
    try:
        found = cells_where(parsed, attributes_of(parsed, {"x": attribute}))
    except DPError as error:
        assert "\n" not in str(error)
        return "does not fit" in str(error)
    assert found.tolist() == kept, condition
    return True


def table(attribute: Attribute) -> str:
    name = f'"{attribute.type}"'
    _, values, _ = COLUMNS[attribute.type]
    rows = f"SELECT CAST(v AS {attribute.type}) AS x FROM (SELECT {values} AS v)"
    coded = encode([replace(attribute, name="x")], f"({rows})")
    CONNECTION.execute(f"CREATE TABLE IF NOT EXISTS {name} AS SELECT x, {coded.codes[0]} AS cell FROM {coded.rows}")
    return name


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("type_", COLUMNS)
def test_a_condition_is_decided_where_all_values_of_each_bin_agree(type_: str) -> None:
    edges, _, constants = COLUMNS[type_]
    attribute = declare(name="x", type=type_, bins=edges)
    for condition in conditions(constants):
        if agrees(condition, attribute) or "BETWEEN" in condition or "IN (" in condition:
            continue  # of several constants one may cut a bin of which the others keep nothing
        undecided = CONNECTION.execute(
            f"SELECT count(*) FROM (SELECT cell FROM {table(attribute)} GROUP BY cell "
            f"HAVING count(DISTINCT coalesce({condition}, false)) > 1)"
        ).fetchone()
        assert undecided != (0,), condition
    (_, second, *_, last) = edges
    assert agrees(f"x BETWEEN '{second}' AND '{last}'" if isinstance(last, str) else f"x >= {second}", attribute)


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("type_", COLUMNS)
def test_a_bin_may_satisfy_a_condition_where_one_of_its_values_does(type_: str) -> None:
    edges, _, constants = COLUMNS[type_]
    attribute = declare(name="x", type=type_, bins=edges)
    for condition in conditions(constants):
        may = [
            kept
            for (kept,) in CONNECTION.execute(
                f"SELECT bool_or(coalesce({condition}, false)) FROM {table(attribute)} GROUP BY cell ORDER BY cell"
            ).fetchall()
        ]
        try:
            found = cells_that_may(parse_condition(condition), attribute).tolist()
        except DPError:
            continue  # NOT of what is not decided
        assert all(one or not kept for one, kept in zip(found, may, strict=True)), condition


def test_days_are_inclusive_months() -> None:
    days = declare(name="x", type="DATE", bins=["2014-01-01", "2014-02-01", "2014-03-01"])
    parsed = parse_condition("x BETWEEN '2014-01-01' AND '2014-01-31'")
    assert cells_where(parsed, [days]).tolist() == [True, False]
    parsed = parse_condition("x = '2014-01-31'")
    with pytest.raises(DPError, match="cuts through the bin"):
        cells_where(parsed, [days])


def test_few_of_many_edges_are_shown() -> None:
    many = declare(name="x", type="INTEGER", low=0, high=10_000, step=5)
    with pytest.raises(DPError, match=r"its bin edges: \.\.\., 90, 95, 100, 105, 110, \.\.\.\.$"):
        cells_where(parse_condition("x < 97"), [many])
