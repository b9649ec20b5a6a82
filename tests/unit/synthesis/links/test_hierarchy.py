"""References of a table to itself without circles: a forest, with everyone's number of children."""

import numpy as np
import pytest

from duckdb_dp.synthesis.links.hierarchy import NOBODY, without_cycles


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
