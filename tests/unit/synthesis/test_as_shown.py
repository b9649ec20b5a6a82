"""Columns of which one is never below another, as SQL shows them: in order, and in their bins."""

import itertools
from typing import Any

import duckdb
import numpy as np
import pytest

from duckdb_dp.counting.encode import decode
from duckdb_dp.counting.shown import Shown
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.linop import Array
from duckdb_dp.synthesis.table.columns import values
from duckdb_dp.synthesis.table.in_order import in_order

EVEN, COARSE, UNEVEN, FINE = [0, 10, 20, 30], [0, 15, 30], [0, 0.5, 3, 3.25, 17, 30], [*np.linspace(0, 30, 61).tolist()]
DAY, HOUR = "2020-02-{:02}", "2020-02-01 00:{:02}:00"
KINDS: dict[str, list[dict[str, Any]]] = {
    "whole": [
        {"type": "INTEGER", "bins": EVEN},
        {"type": "BIGINT", "bins": COARSE},
        {"type": "INTEGER", "low": 0, "high": 30},
        {"type": "SMALLINT", "bins": [0, 1, 2, 29, 30]},
    ],
    "double": [
        {"type": "DOUBLE", "bins": EVEN, "decimals": 2},
        {"type": "DOUBLE", "bins": COARSE, "decimals": 0},
        {"type": "DOUBLE", "bins": UNEVEN, "decimals": 0},
        {"type": "DOUBLE", "bins": FINE},
        {"type": "FLOAT", "bins": EVEN, "decimals": 1},
        {"type": "FLOAT", "bins": UNEVEN},
        {"type": "DOUBLE", "bins": [0, 30]},
    ],
    "decimal": [
        {"type": "DECIMAL(9,2)", "bins": EVEN},
        {"type": "DECIMAL(9,2)", "bins": UNEVEN},
        {"type": "DECIMAL(20,2)", "bins": COARSE},
    ],
    "date": [
        {"type": "DATE", "bins": [DAY.format(day) for day in days]} for days in ((1, 8, 15, 29), (1, 3, 15, 29), (1, 29))
    ] + [{"type": "DATE", "low": DAY.format(1), "high": DAY.format(29)}],
    "timestamp": [
        {"type": "TIMESTAMP", "bins": [HOUR.format(minute) for minute in minutes]}
        for minutes in ((0, 20, 40, 59), (0, 30, 59))
    ] + [{"type": "TIMESTAMP", "bins": [HOUR.format(0), "2020-02-01 00:00:01.5", HOUR.format(1), HOUR.format(59)]}],
    "huge": [
        {"type": "HUGEINT", "bins": [-(10**37), 0, 10**19, 10**37]},
        {"type": "HUGEINT", "bins": [-(10**37), 5, 10**30, 10**37]},
    ],
    "wide": [
        {"type": "DOUBLE", "bins": [-1e300, 0, 1e300]},
        {"type": "DOUBLE", "bins": [-1e300, 1e10, 1.1e300]},
    ],
}  # fmt: skip


def sql(attributes: list[Attribute], columns: list[Array], select: str) -> list[tuple[Any, ...]]:
    """Rows of a SELECT FROM the columns as they are shown."""
    import pyarrow as pa

    stored = pa.table({f"c{i}": column for i, column in enumerate(columns)})
    shown = ", ".join(f"{decode(one, f'c{i}', rounded=True)} AS {one.name}" for i, one in enumerate(attributes))
    with duckdb.connect() as connection:
        connection.register("stored", stored)
        return connection.execute(f"WITH shown AS (SELECT {shown} FROM stored) {select}").fetchall()


def sorted_codes(attributes: list[Attribute], rows: int, seed: int) -> list[Array]:
    """Cells of values in order, of about the same place."""
    rng = np.random.default_rng(seed)
    place = 10 * rng.random(rows)[:, None] + np.cumsum(rng.exponential(1, (rows, len(attributes))), 1)
    found = []
    for attribute, each in zip(attributes, place.T, strict=True):
        lows = Shown(attribute).ends()[0]
        ends = Shown(attribute).ends()[1][-1]
        at = np.array([float(lows[0]) + share * (float(ends) - float(lows[0])) for share in np.minimum(each / 30, 1)])
        found.append(
            np.clip(np.searchsorted(lows.astype(float), at, "right") - 1, 0, attribute.base - 1).astype(np.int32)
        )
    return found


def made(attributes: list[Attribute], codes: list[Array], pairs: list[tuple[str, str, bool]], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    columns = [values(attribute, each, rng) for attribute, each in zip(attributes, codes, strict=True)]
    return in_order(attributes, codes, columns, pairs, rng)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_as_sql_shows_them(kind: str) -> None:
    rng = np.random.default_rng(0)
    for said in KINDS[kind]:
        attribute = declare(name="a", **said)
        stored = attribute.base * rng.random(300)  # and both ends of cells
        stored[: 2 * attribute.base] = np.concatenate(
            [np.arange(attribute.base), np.nextafter(np.arange(attribute.base) + 1.0, 0)]
        )[:300]
        if attribute.kind != "bins":
            stored = np.floor(stored)
        text = [row[0] for row in sql([attribute], [stored], "SELECT a::VARCHAR FROM shown")]
        if attribute.dtype.continuous:
            expected = [row[0] for row in sql([attribute], [stored], "SELECT a::DOUBLE FROM shown")]
        else:
            expected = [attribute.dtype.amount(int(each) if "INT" in attribute.type else each) for each in text]
        assert Shown(attribute).values(stored).tolist() == expected, said


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_in_order_as_they_are_shown(kind: str, strict: bool) -> None:
    for seed, (one, other) in enumerate(itertools.product(KINDS[kind], repeat=2)):
        attributes = [declare(name="a", **one), declare(name="b", **other)]
        codes = sorted_codes(attributes, 400, seed)
        columns = made(attributes, codes, [("a", "b", strict)], seed)
        check(attributes, codes, columns, [(0, 1)], strict)


@pytest.mark.parametrize(
    "shape", [[(0, 1), (1, 2)], [(1, 2), (0, 1)], [(0, 1), (0, 2)], [(0, 2), (1, 2)], [(0, 1), (1, 2), (0, 2), (2, 3)]]
)
@pytest.mark.parametrize("kind", KINDS)
def test_chains_are_in_order_as_they_are_shown(kind: str, shape: list[tuple[int, int]]) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        said = [KINDS[kind][i] for i in rng.integers(0, len(KINDS[kind]), 4)]
        attributes = [declare(name=name, **one) for name, one in zip("abcd", said, strict=True)]
        codes = sorted_codes(attributes, 400, seed)
        columns = made(attributes, codes, [("abcd"[i], "abcd"[j], False) for i, j in shape], seed)
        check(attributes, codes, columns, shape, strict=False)


def check(
    attributes: list[Attribute], codes: list[Array], columns: list[Array], pairs: list[tuple[int, int]], strict: bool
) -> None:
    """In order as SQL shows them, and in the drawn bins where all of these have values in order."""
    shown = [Shown(attribute) for attribute in attributes]
    ends = [one.ends() for one in shown]
    names = [attribute.name for attribute in attributes]
    for i, j in pairs:
        sign = ">=" if strict else ">"
        ((wrong,),) = sql(attributes, columns, f"SELECT count(*) FILTER ({names[i]} {sign} {names[j]}) FROM shown")
        assert wrong == 0, [one.to_json() for one in attributes]
    if (
        len(pairs) == 1 and not strict
    ):  # columns that always differ are apart by a step of the coarser one, which may move bins
        ((i, j),) = pairs
        if np.all(ends[i][0][codes[i]] <= ends[j][1][codes[j]]):
            for column, code in zip(columns, codes, strict=True):
                assert np.array_equal(np.floor(column), code)
