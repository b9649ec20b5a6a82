"""Synthetic values of doubles with declared decimals: they look like the column's, and lie in their bins."""

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest

import duckdb_dp.sql.dp_synthesize  # noqa: F401  before a test changes what it imports
from duckdb_dp.counting.encode import decode, encode
from duckdb_dp.domain.domain import declare
from duckdb_dp.domain.types.decimal_texts import decimal_text
from duckdb_dp.synthesis.table import columns as table_columns

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


@pytest.mark.slow
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


WIDTHS = {
    "DOUBLE": [([0, 10, 20], 1), ([0, 0.5, 7], 3), ([-1000, 0, 5e5], 0), ([0, 30, 35], 2), ([0, 1e-20, 1], 15), ([-1e30, 1e30], 0)],
    "FLOAT": [([0, 10, 20], 1), ([0, 250, 1e6], 0)],
}  # fmt: skip


@pytest.mark.parametrize("type_", WIDTHS)
def test_values_without_decimals_are_as_coarse_as_their_bins_allow(exact, type_: str) -> None:
    rng = np.random.default_rng(1)
    for number, (points, decimals) in enumerate(WIDTHS[type_]):
        attribute = declare(name="x", type=type_, bins=list(points))
        drawn = np.append(rng.uniform(0, len(points) - 1, 200), np.nextafter(np.arange(1, len(points)), 0))
        exact(f"CREATE TABLE drawn{number} AS SELECT unnest(?) AS code", [drawn.tolist()])
        shown = f"CAST({decode(attribute, 'code', rounded=True)} AS {type_})"
        exact(f"CREATE TABLE made{number} AS SELECT code, {shown} AS x FROM drawn{number}")
        coded = encode([attribute], f"made{number}")
        for code, value, cell in exact(f"SELECT code, x, {coded.codes[0]} FROM (SELECT * FROM {coded.rows})"):
            assert cell == int(code)
            assert abs(value) > 1e6 or decimals > 14 or places(float(np.format_float_positional(np.float32(value) if type_ == "FLOAT" else value))) <= decimals  # fmt: skip


@pytest.mark.parametrize(
    ("type_", "points", "by"),
    [
        ("TIMESTAMP", ["2020-01-01", "2020-01-02", "2021-01-01"], 10**6),
        ("TIMESTAMP", ["2020-01-01 00:00:00", "2020-01-01 00:00:01", "2020-01-01 00:00:09"], 10**3),
        ("TIMESTAMP", ["2020-01-01 00:00:00.5", "2020-01-01 00:05:00.25"], 10**6),
        ("TIMESTAMP_MS", ["1960-01-01", "1961-01-01"], 10**3),
        ("TIMESTAMP_NS", ["2020-01-01", "2020-01-02"], 10**9),
        ("TIMESTAMP_S", ["2020-01-01", "2020-01-02"], 1),
        ("TIME", ["08:00:00", "08:30:00", "18:00:00"], 10**6),
        ("DATE", ["2020-01-01", "2020-06-01"], 1),
    ],
)
def test_moments_are_whole_seconds_where_bins_are_wide(exact, type_: str, points: list[str], by: int) -> None:
    attribute = declare(name="x", type=type_, bins=points)
    drawn = [
        *np.random.default_rng(1).uniform(0, len(points) - 1, 200),
        0.0,
        *np.nextafter(np.arange(1, len(points)), 0),
    ]
    exact("CREATE TABLE drawn AS SELECT unnest(?) AS code", [list(map(float, drawn))])
    exact(f"CREATE TABLE made AS SELECT code, {decode(attribute, 'code', rounded=True)} AS x FROM drawn")
    coded, units = encode([attribute], "made"), attribute.dtype.units("x")
    for code, number, cell in exact(f"SELECT code, {units}, {coded.codes[0]} FROM (SELECT *, x FROM {coded.rows})"):
        assert cell == int(code)
        assert number % by == 0
    ((different,),) = exact("SELECT count(DISTINCT x) FROM made")
    assert different > 50


def test_a_release_without_the_note_has_all_digits_as_before(exact, monkeypatch: pytest.MonkeyPatch) -> None:
    exact(TABLE)
    exact("CALL dp_attribute('t', 'price', bins := [0, 10, 50, 125])")
    asked = "SELECT price FROM dp_synthesize('t', mu := 1)"
    with monkeypatch.context() as earlier:
        earlier.setattr(table_columns, "ROUNDED", "of another time")
        exact(asked)
    assert max(places(price) for (price,) in exact(asked)) > 9
    fresh = exact(asked.replace("mu := 1", "mu := 2"))
    assert max(places(price) for (price,) in fresh) == 1
    assert exact(asked.replace("mu := 1", "mu := 2")) == fresh


@pytest.mark.parametrize(("type_", "edges"), [("DECIMAL(18,2)", 3), ("DECIMAL(18,4)", 200), ("DECIMAL(10,9)", 3)])
def test_no_decimal_is_too_large_for_the_cells_of_others(exact, type_: str, edges: int) -> None:
    """DuckDB's error shows the value, and is raised before anything is charged."""
    width, scale = map(int, type_.removeprefix("DECIMAL(").removesuffix(")").split(","))
    largest = decimal_text(10**width - 1, scale)
    exact(f"""CREATE TABLE p (id INTEGER PRIMARY KEY); INSERT INTO p FROM range(9);
    CREATE TABLE v (pid INTEGER REFERENCES p (id), x {type_}); INSERT INTO v SELECT i % 9, ['{largest}', '-{largest}', '0'][1 + i % 3] FROM range(27) t(i);
    CALL dp_protect(['p', 'v'], unit := 'p.id', max_rows := 3, rho := 1e6)""")
    bins = [(i * i + 3 * i) / 100_000 for i in range(edges)]
    exact(f"CALL dp_attribute('v', 'x', bins := {bins}, other := true)")
    for asked in (
        "median(v.x) AS a FROM v",
        "quantile_disc(v.x, 0.9) AS a FROM v JOIN p ON v.pid = p.id",
        "x, count(*) AS n FROM v GROUP BY x",
    ):
        assert exact("FROM dp_sql(?, rho := 1)", [f"SELECT {asked}"])
    assert sum(n for _, n, *_ in exact("FROM dp_marginals('v', ['x'], rho := 1)")) == 27
    assert exact("FROM dp_quantiles('v', 'x', [0.5], rho := 1)")


EXTREMES = {
    "DOUBLE": [5e-324, 1e-308, 3e-308, 1e-300, 1e-16, 1.0, 1e16, 1e300, 1.7e308],
    "FLOAT": [1.401298464324817e-45, 1.1754943508222875e-38, 9.999999682655225e-21, 1.0, 1e20, 3.4028234663852886e38],
}
"""Magnitudes from the smallest that a type has to the largest."""


@pytest.mark.parametrize("type_", EXTREMES)
@pytest.mark.parametrize("signs", ["from 0", "above 0", "below 0", "both"])
def test_bins_of_any_width_have_values_in_them(exact, type_: str, signs: str) -> None:
    """Between any two of the extremes, and all of them: neither a width nor its reciprocal need be a number of the type."""
    known = EXTREMES[type_]
    pairs = [[one, other] for one in known for other in known if one < other]
    bins = {
        "from 0": [[0.0, one] for one in known],
        "above 0": [*pairs, known],
        "below 0": [[-one for one in reversed(pair)] for pair in pairs],
        "both": [[-one, other] for one in known for other in known] + [[-known[-1], -known[0], 0.0, *known]],
    }[signs]
    for points in bins:
        attribute = declare(name="x", type=type_, bins=list(points))
        codes = [cell + share for cell in range(len(points) - 1) for share in (0.0, 0.3, 0.999)]
        made = f"SELECT code, {decode(attribute, 'code', rounded=True)} AS x FROM (SELECT unnest({codes}::DOUBLE[]) AS code)"
        coded = encode([attribute], f"({made})")
        found = exact(f"SELECT code, {coded.codes[0]}, x FROM (SELECT * FROM {coded.rows})")
        assert [cell for _, cell, _ in found] == [int(code) for code, _, _ in found], points


ROWS = {
    "to the smallest": [0, 5e-324],
    "from there on": [5e-324, 2e-323, 1e-320],
    "beside others": [0, 1e-308, 1],
    "around 0": [-1e-310, 0, 1e-310],
    "all of them": [-1e149, -1, -1e-308, 0, 1e-308, 1, 1e149],
    "the largest": [-1.7e308, 0, 1.7e308],
}


@pytest.mark.some(3)
@pytest.mark.parametrize("points", ROWS.values(), ids=ROWS)
def test_tables_with_bins_of_any_width_are_made(exact, points: list[float]) -> None:
    """And are in order, where that is declared; the largest of all are not kept so."""
    values = [0.5 * (one + other) for one, other in pairwise(points)]
    exact("CREATE TABLE t (x DOUBLE, y DOUBLE); CALL dp_protect('t', mu := 9)")
    for low, x in enumerate(values):
        exact("INSERT INTO t SELECT ?, unnest(?)", [x, values[low:] * 9])
    bins = f"bins := '{points}'::JSON"
    exact(f"CALL dp_attribute('t', 'x', {bins}); CALL dp_attribute('t', 'y', {bins}, at_least := 'x')")
    found = exact("SELECT x, y FROM dp_synthesize('t', mu := 1)")
    assert len(found) == 9 * len(values) * (len(values) + 1) // 2
    assert all(points[0] <= value <= points[-1] for row in found for value in row)
    assert points[-1] > 1e150 or all(x <= y for x, y in found)
