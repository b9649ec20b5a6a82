"""Tables of groups of neighbouring values: what they sum, what they say of single values, and what was measured in several ones."""

import math

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Centring, Grouped
from duckdb_dp.reconstruct.grem import ResidualEstimates, centred
from duckdb_dp.reconstruct.groups import Groups
from duckdb_dp.reconstruct.likeness import between, numbered, together
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.tilting import shrunk

SIZES = (12, 9)
DOMAIN = Domain({"a": SIZES[0], "b": SIZES[1]})
PAIR = ("a", "b")


def groups_of(starts: tuple[list[int], list[int]], ordered: tuple[int, int] = (0, 0)) -> Groups:
    first, second = (numbered(np.array(one), n) for one, n in zip(starts, SIZES, strict=True))
    counts = [np.ones(n) for n in SIZES]
    nearness = [between(c, s, o) for c, s, o in zip(counts, (first, second), ordered, strict=True)]
    return Groups((first, second), nearness)


COARSE = groups_of(([0, 3, 4, 10], [0, 5]))


def test_each_cell_is_in_one_group_and_counts_there() -> None:
    table = np.random.default_rng(0).integers(0, 9, SIZES).astype(np.float64)
    flat = np.bincount(COARSE.cells, table.reshape(-1), math.prod(COARSE.shape)).reshape(COARSE.shape)
    np.testing.assert_array_equal(COARSE.sums(table), flat)
    assert COARSE.sums(table)[1, 1] == table[3, 5:].sum()


@pytest.mark.parametrize("seed", range(5))
def test_groups_need_not_be_of_neighbours(seed: int) -> None:
    """Their sums, and tables that get such, are those of the same values with neighbours together."""
    rng = np.random.default_rng(seed)
    apart = tuple(rng.permutation(np.arange(n) % m).astype(np.int64) for n, m in zip(SIZES, (4, 3), strict=True))
    orders = [np.argsort(one, kind="stable") for one in apart]
    beside = tuple(one[order] for one, order in zip(apart, orders, strict=True))
    groups, sorted_ = (Groups(one, [np.eye(4)[one[0]], np.eye(3)[one[1]]]) for one in (apart, beside))
    table, sums = rng.random(SIZES), rng.random(groups.shape)
    assert groups.sizes == SIZES
    np.testing.assert_allclose(groups.sums(table), sorted_.sums(table[np.ix_(*orders)]))
    np.testing.assert_allclose(np.bincount(groups.cells, table.reshape(-1)).reshape(groups.shape), groups.sums(table))
    np.testing.assert_allclose(
        groups.scaled(table, sums)[np.ix_(*orders)], sorted_.scaled(table[np.ix_(*orders)], sums)
    )
    np.testing.assert_allclose(groups.sums(groups.scaled(table, sums)), sums)


def test_one_row_moves_a_residual_of_groups_as_far_as_any_residual() -> None:
    """In each cell that the row may be in, and exactly that far where groups hold a value each."""
    strategy = Centring(COARSE.shape)
    asked = Grouped(strategy, COARSE.cells, math.prod(COARSE.shape))
    counts = np.random.default_rng(1).integers(0, 9, math.prod(SIZES))
    for cell in range(0, len(counts), 7):
        more = counts.copy()
        more[cell] += 1
        moved = asked.apply(more)[0] - asked.apply(counts)[0]
        assert float(moved @ moved) == pytest.approx(asked.squared_sensitivity)
    assert asked.squared_sensitivity == strategy.squared_sensitivity


@pytest.mark.parametrize("ordered", [(0, 0), SIZES, (10, 0)])
def test_a_table_gets_the_sums_of_its_groups(ordered: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    table, sums = rng.random(SIZES), rng.random(COARSE.shape) + 0.1
    groups = groups_of(([0, 3, 4, 10], [0, 5]), ordered)
    found = groups.scaled(table, sums)
    np.testing.assert_allclose(groups.sums(found), sums)
    assert (found >= 0).all()
    if ordered == (0, 0):  # without an order values keep their shares inside a group
        np.testing.assert_allclose(found, table * (sums / groups.sums(table))[np.ix_(*groups.of)])


def test_values_in_an_order_follow_lines_between_groups() -> None:
    """A table that is smooth comes back nearer than one that is even inside groups, and values outside of the order stay out of it."""
    x, y = np.linspace(-1, 1, SIZES[0])[:, None], np.linspace(-1, 1, SIZES[1])[None, :]
    smooth = np.exp(0.8 * x * y)
    starts = ([0, 3, 6, 9], [0, 3, 6])
    apart, lines = (
        groups_of(starts, o).scaled(np.ones(SIZES), groups_of(starts).sums(smooth)) for o in ((0, 0), SIZES)
    )
    assert np.abs(lines - smooth).sum() < 0.6 * np.abs(apart - smooth).sum()
    nearness = between(np.ones(6), np.array([0, 0, 1, 1, 1, 2]), 5)
    np.testing.assert_allclose(nearness.sum(axis=1), 1)
    np.testing.assert_array_equal(nearness[5], [0, 0, 1])
    assert (nearness[:5, 2] == 0).all()


@pytest.mark.parametrize("number", [1.0, 3.7, 8.0, 40.0])
@pytest.mark.parametrize("seed", range(5))
def test_groups_are_of_neighbours_and_not_too_many(number: float, seed: int) -> None:
    counts = np.random.default_rng(seed).pareto(0.7, 40) * (np.arange(40) > 5)
    starts = together(counts, number)
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    assert 1 <= len(starts) <= math.ceil(number)


def test_rare_values_come_together_and_frequent_ones_stay_alone() -> None:
    counts = np.array([900.0, *[1.0] * 20, 900.0, 1, 1, 1])
    starts = together(counts, 6).tolist()
    sizes = dict(zip(starts, np.diff([*starts, len(counts)]), strict=True))
    assert sizes[0] <= 3
    assert len(starts) < 7


def measured(table: Array, precision: float, groups: Groups | None) -> LinearMeasurement:
    seen = table if groups is None else groups.sums(table)
    return LinearMeasurement(
        clique=PAIR, strategy=Centring(seen.shape), answers=centred(seen).reshape(-1), variance=1 / precision
    )


def test_what_groups_say_is_shrunk_as_a_table_of_them_is() -> None:
    """The least of a sum of squares over groups and KL over cells has the groups' own answer, and the prior inside."""
    rng = np.random.default_rng(3)
    prior = rng.random(SIZES)
    prior *= 1000 / prior.sum()
    truth = COARSE.scaled(prior, COARSE.sums(prior) * rng.uniform(0.5, 2, COARSE.shape))
    truth *= 1000 / truth.sum()
    nothing = ResidualEstimates(domain=DOMAIN, values={}, precisions={}, groups={PAIR: COARSE})
    found = shrunk(nothing.added([measured(truth, 0.01, COARSE)]), {PAIR: prior}, 1000.0)[PAIR]
    small = Domain(dict(zip(PAIR, COARSE.shape, strict=True)))
    alone = ResidualEstimates.of(small, [measured(COARSE.sums(truth), 0.01, None)])
    np.testing.assert_allclose(COARSE.sums(found), shrunk(alone, {PAIR: COARSE.sums(prior)}, 1000.0)[PAIR], rtol=1e-9)
    np.testing.assert_allclose(found, prior * (COARSE.sums(found) / COARSE.sums(prior))[np.ix_(*COARSE.of)])


def test_smaller_groups_start_from_what_larger_ones_said() -> None:
    rng = np.random.default_rng(4)
    prior, truth = np.full(SIZES, 10.0), rng.gamma(20.0, 0.5, SIZES)
    truth *= prior.sum() / truth.sum()
    nothing = ResidualEstimates(domain=DOMAIN, values={}, precisions={}, groups={PAIR: COARSE})
    coarse = nothing.added([measured(truth, 1e6, COARSE)])
    whole = coarse.regrouped({PAIR: None})
    assert whole.cliques == {PAIR}
    assert not whole.values
    assert not whole.groups
    total = float(prior.sum())
    np.testing.assert_allclose(shrunk(whole, {PAIR: prior}, total)[PAIR], shrunk(coarse, {PAIR: prior}, total)[PAIR])
    both = shrunk(whole.added([measured(truth, 1e6, None)]), {PAIR: prior}, total)[PAIR]
    np.testing.assert_allclose(centred(both), centred(truth), atol=0.1)
