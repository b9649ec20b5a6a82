"""What conditions list of an expression, without a declaration."""

import pytest
from sqlglot import parse_one

from duckdb_dp.sql.owned.condition_values import listed

LISTED = [
    (
        "UBIGINT",
        ["x BETWEEN 18446744073709551610 AND 18446744073709551615"],
        (18446744073709551610, 18446744073709551615),
    ),
    (
        "UBIGINT",
        ["x >= 18446744073709551613", "18446744073709551614 >= x"],
        (18446744073709551613, 18446744073709551614),
    ),
    ("UHUGEINT", [f"x BETWEEN {2**128 - 3} AND {2**128 - 1}"], (2**128 - 3, 2**128 - 1)),
    ("HUGEINT", [f"x BETWEEN -{2**127} AND {-(2**127) + 2}"], (-(2**127), -(2**127) + 2)),
    ("TINYINT", ["x BETWEEN -500 AND 500"], (-128, 127)),
    ("INTEGER", ["x BETWEEN 0.5 AND 2.5"], (1, 2)),
    ("INTEGER", ["x > 0.5", "x < 3.0"], (1, 2)),
    ("INTEGER", ["x > 1.0", "x <= 3.9"], (2, 3)),
    ("BIGINT", ["x IN (1.0, 2.5)"], (1,)),
    ("SMALLINT", ["x IN (2, NULL, 1)"], (2, 1)),
    ("INTEGER", ["x IN ('1', '2')"], (1, 2)),
    ("VARCHAR", ["x IN ('a', NULL)"], ("a",)),
    ("DOUBLE", ["x IN (0.1, 2, NULL)"], (0.1, 2)),
    ("DECIMAL(18,2)", ["x IN (0.1, NULL, 0.123)"], (0.1,)),
    ("DATE", ["x IN (DATE '2020-01-01', NULL)"], ("2020-01-01",)),
]


@pytest.mark.parametrize(("type_", "conditions", "points"), LISTED)
def test_values_that_conditions_list(type_: str, conditions: list[str], points: tuple[object, ...]) -> None:
    nodes = [parse_one(condition, dialect="duckdb") for condition in conditions]
    found = listed(parse_one("x", dialect="duckdb"), nodes, lambda _: type_, "x")
    assert found is not None
    assert found.points == points
    assert not found.other


@pytest.mark.parametrize(
    ("type_", "condition"),
    [("INTEGER", "x IN (NULL)"), ("INTEGER", "x IN (0.5)"), ("DOUBLE", "x BETWEEN 0 AND 2"), ("INTEGER", "x < 5")],
)
def test_conditions_that_list_nothing(type_: str, condition: str) -> None:
    assert (
        listed(parse_one("x", dialect="duckdb"), [parse_one(condition, dialect="duckdb")], lambda _: type_, "x") is None
    )
