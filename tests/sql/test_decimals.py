"""Synthetic values of doubles with declared decimals: they look like the column's, and lie in their bins."""

from decimal import Decimal

import numpy as np
import pytest

from duckdb_dp.counting.encode import decode, encode
from duckdb_dp.domain.domain import declare

TABLE = "CREATE TABLE t AS SELECT (i % 60)::DOUBLE AS age, (i * 37 % 1000) / 8 AS price FROM range(400) r(i); CALL dp_protect('t', mu := 9);"
AGES = (
    "{'age': {'low': 0, 'high': 60, 'step': 20, 'decimals': 0}, 'price': {'bins': [0, 9.95, 50, 125], 'decimals': 2}}"
)


def places(value: float) -> int:
    return max(0, -Decimal(repr(value)).normalize().as_tuple().exponent)


@pytest.mark.parametrize("type_", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize(
    ("points", "decimals"),
    [([0, 18, 65], 0), ([-0.5, 0.1, 0.30000000000000004, 7], 1), ([0, 0.001, 0.002, 5], 2), ([-1e30, 0, 1e30], 3), ([0.1, 0.2], 15)],
)  # fmt: skip
def test_values_lie_in_their_bins_with_the_decimals_asked(
    exact, type_: str, points: list[float], decimals: int
) -> None:
    rng = np.random.default_rng(1)
    attribute = declare(name="x", type=type_, bins=list(points), decimals=decimals)
    drawn = np.concatenate(
        [np.arange(len(points) - 1), rng.uniform(0, len(points) - 1, 300), np.nextafter(np.arange(1, len(points)), 0)]
    )
    exact("CREATE TABLE drawn AS SELECT unnest(?) AS code", [drawn.tolist()])
    exact(f"CREATE TABLE made AS SELECT code, {decode(attribute, 'code')} AS x FROM drawn")
    coded = encode([attribute], "made")
    found = exact(f"SELECT code, x, {coded.codes[0]} FROM (SELECT * FROM {coded.rows})")
    for code, value, cell in found:
        assert cell == int(code)
        if type_ == "DOUBLE" and abs(value) < 1e6 and decimals < 15 and (decimals != 2 or code >= 2):
            assert places(value) <= decimals


def test_a_synthetic_table(exact) -> None:
    exact(TABLE)
    exact(f"CALL dp_attributes('t', {AGES})")
    rows = exact("SELECT age, price FROM dp_synthesize('t', mu := 1)")
    assert max(places(age) for age, _ in rows) == 0
    assert max(places(price) for _, price in rows) == 2
    assert {age < 20 for age, _ in rows} == {True, False}


def test_other_requests_are_the_same_with_or_without(exact) -> None:
    exact(TABLE)
    exact(f"CALL dp_attributes('t', {AGES.replace(', ' + chr(39) + 'decimals' + chr(39) + ': 0', '')})")
    asked = "FROM dp_marginals('t', ['age', 'price'], mu := 1)"
    first, made = exact(asked), exact("FROM dp_synthesize('t', mu := 1)")
    charges = exact.charges()
    exact("CALL dp_attribute('t', 'age', low := 0, high := 60, step := 20, decimals := 0)")
    assert exact(asked) == first
    assert exact.charges() == charges
    assert exact("FROM dp_synthesize('t', mu := 1)") != made
    assert '"version":4' in exact.charged()[-1]["request"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("'age', bins := [0, 9], decimals := -1", "decimals -1. A whole number from 0 to 15 works"),
        ("'age', bins := [0, 9], decimals := 'two'", "decimals 'two'. A whole number from 0 to 15 works"),
        ("'age', \"values\" := [0, 9], decimals := 1", "decimals say nothing"),
        ("'n', bins := [0, 9], decimals := 1", "has cells whose values are as exact as INTEGER is"),
    ],
)
def test_what_has_no_decimals(shared, call: str, says: str) -> None:
    shared("CREATE TABLE IF NOT EXISTS d (age DOUBLE, n INTEGER); CALL dp_protect('d', mu := 1)")
    assert says in shared.refused(f"CALL dp_attribute('d', {call})")
