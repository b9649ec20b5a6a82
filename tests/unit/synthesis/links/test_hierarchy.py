"""References of a table to itself without circles: a forest, with everyone's number of children, and no deeper than it must be."""

import numpy as np
import pytest

from duckdb_dp.synthesis.links.hierarchy import NOBODY, by_levels, hierarchy, without_cycles


def climbs(parents: np.ndarray) -> bool:
    """Whether every row's ancestors end, by walking."""
    for row in range(len(parents)):
        steps = 0
        while row != NOBODY and steps <= len(parents):
            row, steps = parents[row], steps + 1
        if row != NOBODY:
            return False
    return True


def children(parents: np.ndarray) -> list[int]:
    return np.bincount(parents[parents != NOBODY], minlength=len(parents)).tolist()


@pytest.mark.parametrize("orphans", [0.02, 0.3])
@pytest.mark.parametrize("seed", range(20))
def test_circles_are_broken_and_nothing_else_changes(seed: int, orphans: float) -> None:
    rng = np.random.default_rng(seed)
    n = 60
    types = rng.integers(3, size=n)
    parents = np.where(rng.random(n) < orphans, NOBODY, rng.integers(n, size=n))
    parents[0], parents[1] = NOBODY, 0
    found = without_cycles(parents, types, rng)
    assert climbs(found)
    assert children(found) == children(parents)
    assert ((found == NOBODY) == (parents == NOBODY)).all()
    assert (found != parents).sum() <= 12  # two rows for each circle
    if climbs(parents):
        assert (found == parents).all()


def test_rows_change_parents_with_rows_of_their_own_type() -> None:
    parents, types = np.array([NOBODY, 0, 0, 4, 3]), np.array([0, 1, 2, 2, 1])
    found = without_cycles(parents, types, np.random.default_rng(0))
    pairs = sorted(zip(types.tolist(), found.tolist(), strict=True))
    assert climbs(found)
    assert pairs == sorted(zip(types.tolist(), parents.tolist(), strict=True))


@pytest.mark.parametrize(
    ("parents", "roots"),
    [
        ([0], 1), ([1, 0], 1), ([1, 2, 0, 4, 3], 1), ([NOBODY, 2, 1, 3], 1), ([NOBODY, NOBODY], 2), ([0, 1, 2], 1), ([], 0),
    ],
)  # fmt: skip
def test_without_a_row_to_change_with(parents: list[int], roots: int) -> None:
    given = np.array(parents, dtype=np.int64)
    found = without_cycles(given, np.zeros(len(parents), dtype=np.int64), np.random.default_rng(0))
    assert climbs(found)
    assert (found == NOBODY).sum() == roots


def depths(parents: np.ndarray) -> np.ndarray:
    """How many rows are above each."""
    depth, above = np.zeros(len(parents), dtype=np.int64), parents
    while (above != NOBODY).any():
        depth += above != NOBODY
        above = np.where(above != NOBODY, parents[above], NOBODY)
    return depth


def shuffled(parents: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same numbers of children and, of each group of rows, the same parents, dealt at random."""
    dealt = parents.copy()
    for group in np.unique(groups):
        rows = np.flatnonzero((groups == group) & (parents != NOBODY))
        dealt[rows] = rng.permutation(parents[rows])
    return dealt


def in_groups(parents: np.ndarray, groups: np.ndarray) -> list[tuple[int, int]]:
    """Every row's group with that of its parent, sorted."""
    held = parents != NOBODY
    return sorted(zip(groups[held].tolist(), groups[parents[held]].tolist(), strict=True))


@pytest.mark.parametrize("width", [2, 4, 10])
@pytest.mark.parametrize("seed", range(3))
def test_a_broad_tree_that_was_dealt_at_random_is_as_flat_as_it_was(seed: int, width: int) -> None:
    rng, n = np.random.default_rng(seed), 2000
    parents = (np.arange(n) - 1) // width
    order = np.append(0, 1 + rng.permutation(n - 1))  # the top one stays
    rows, given = np.zeros(n, dtype=np.int64), np.full(n, NOBODY)
    given[order[1:]] = order[parents[1:]]
    dealt = shuffled(given, rows, rng)
    found = hierarchy(dealt, rows, np.zeros((1, 1), dtype=np.int64), rng)
    assert climbs(found)
    assert children(found) == children(given)
    assert depths(found).max() == depths(given).max()
    assert depths(without_cycles(dealt, rows, rng)).max() > 3 * depths(given).max()


@pytest.mark.parametrize("seed", range(10))
def test_types_of_children_and_parents_stay_where_rows_of_a_type_change_places(seed: int) -> None:
    rng, n = np.random.default_rng(seed), 400
    groups = rng.integers(0, 3, n)
    parents = np.where(rng.random(n) < 0.1, NOBODY, rng.integers(0, n // 3, n))
    free = without_cycles(parents, groups, rng)
    found = by_levels(free, [groups], rng)
    assert climbs(found)
    assert children(found) == children(parents)
    assert ((found == NOBODY) == (parents == NOBODY)).all()
    assert in_groups(found, groups) == in_groups(free, groups)
    assert depths(found).max() <= depths(free).max()
    assert depths(found).mean() < depths(free).mean()
    again = by_levels(found, [groups], rng)
    assert np.bincount(depths(again)).tolist() == np.bincount(depths(found)).tolist()


def test_rows_that_are_types_of_their_own_change_places_by_what_their_parents_depend_on() -> None:
    rng, n = np.random.default_rng(0), 3000
    top = np.arange(n) < 6
    parents = np.where(top, NOBODY, (np.arange(n) - 6) // 4)
    dept = np.arange(n) % 6  # of each top row one
    for row in range(6, n):
        dept[row] = dept[parents[row]]
    codes = np.stack([rng.integers(0, 50, n), dept, rng.integers(0, 50, n)], 1)
    types, rows = np.unique(codes, axis=0, return_inverse=True)
    assert len(types) > n / 2
    dealt = shuffled(parents, dept, rng)
    found = hierarchy(dealt, rows.reshape(-1), types, rng)
    assert climbs(found)
    assert children(found) == children(parents)
    held = found != NOBODY
    assert (dept[held] == dept[found[held]]).mean() > 0.99
    assert depths(found).max() <= depths(parents).max() + 1
    assert depths(without_cycles(dealt, rows.reshape(-1), rng)).max() > 4 * depths(parents).max()


@pytest.mark.parametrize(
    "parents",
    [
        [], [0], [NOBODY], [1, 0], [NOBODY, NOBODY], [NOBODY, 0, 1, 2, 3], [NOBODY, 2, 1, 3], [NOBODY, 0, 3, 4, 2], [0, 1, 2],
    ],
)  # fmt: skip
def test_small_and_odd_tables(parents: list[int]) -> None:
    given, rows = np.array(parents, dtype=np.int64), np.zeros(len(parents), dtype=np.int64)
    found = hierarchy(given, rows, np.zeros((1, 2), dtype=np.int64), np.random.default_rng(0))
    assert climbs(found)
    if climbs(given):
        assert children(found) == children(given)


def test_a_long_chain_takes_no_longer_than_its_rows() -> None:
    n = 20_000
    chain = np.append(NOBODY, np.arange(n - 1))
    assert (by_levels(chain, [np.zeros(n, dtype=np.int64)], np.random.default_rng(0)) == chain).all()
