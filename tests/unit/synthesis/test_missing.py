"""A row has a difference exactly where it has both values."""

import itertools

import numpy as np
import pytest

from duckdb_dp.domain.differences import differences
from duckdb_dp.domain.domain import declare
from duckdb_dp.linop import Integers
from duckdb_dp.synthesis.table.missing import with_both

ROWS = 3000
MONTHS = [f"2020-{month:02}-01" for month in range(1, 13)]
PAIRS = [("a", "b"), ("b", "c")]


@pytest.mark.parametrize("nulls", [*itertools.product([0.0, 0.3], repeat=4)])
@pytest.mark.parametrize("chain", [False, True])
def test_a_row_has_a_difference_where_it_has_both_values(nulls: tuple[float, ...], chain: bool) -> None:
    rng = np.random.default_rng(4)
    attributes = [declare(name=name, type="DATE", nulls=True, bins=MONTHS) for name in "abc"[: 2 + chain]]
    found = differences(attributes, PAIRS[: 1 + chain])

    def drawn(size: int, null: float) -> Integers:
        return np.where(rng.random(ROWS) < null, size - 1, rng.integers(0, size - 1, ROWS)).astype(np.int32)

    codes = [drawn(one.size, null) for one, null in zip(attributes, nulls, strict=False)]
    classes = {one: drawn(one.attribute.size, nulls[3]) for one in found}
    before = [[each.copy() for each in part] for part in (codes, classes.values())]
    own, apart = with_both(attributes, codes, classes, rng)
    for one, other in zip([*codes, *classes.values()], itertools.chain(*before), strict=True):
        assert np.array_equal(one, other)  # what was given stays
    for one, other in zip(codes, own, strict=True):
        assert np.array_equal(np.sort(one), np.sort(other))
    for pair, one, each in zip(found, classes.values(), apart, strict=True):
        both = np.all([own["abc".index(name.name)] < name.base for name in (pair.low, pair.high)], axis=0)
        has = each < pair.attribute.base
        assert np.all(has[both])
        changed = one != each
        assert np.all(both[changed] & (one[changed] == pair.attribute.base))  # only a row that had none got one
        if not chain:
            without, more = np.sum(~has & both), np.sum(has & ~both)
            assert not (without and more)
            kept = np.bincount(one, minlength=pair.attribute.size), np.bincount(each, minlength=pair.attribute.size)
            assert (np.all(kept[0] == kept[1])) or not more


def test_nothing_changes_where_all_agree_and_without_any_difference() -> None:
    rng = np.random.default_rng(4)
    attributes = [declare(name=name, type="DATE", nulls=True, bins=MONTHS) for name in "ab"]
    (one,) = differences(attributes, PAIRS[:1])
    codes = [rng.integers(0, each.base, ROWS).astype(np.int32) for each in attributes]
    for classes in (rng.integers(0, one.attribute.base, ROWS), np.full(ROWS, one.attribute.base)):
        own, (each,) = with_both(attributes, codes, {one: classes.astype(np.int32)}, rng)
        assert np.array_equal(each, classes)
        assert all(map(np.array_equal, own, codes))
