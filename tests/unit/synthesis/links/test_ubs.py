"""Sampling of exactly m indices: groups, ends and bad input. Its law is in tests/stat/test_ubs.py."""

import numpy as np
import pytest

from duckdb_dp.errors import DPError
from duckdb_dp.synthesis.links import ubs as module
from duckdb_dp.synthesis.links.ubs import ubs

FIGURE = np.array([0.1, 0.2, 0.5, 0.7, 0.6, 0.9])


def greedy(ends: np.ndarray, one: int) -> list[int]:
    """The paper's merging loop, with the index that it drops put back."""
    starts, at = [], 0
    while at < len(ends) - 1:
        starts.append(at)
        after = at
        while after < len(ends) - 1 and ends[after + 1] - ends[at] <= one:
            after += 1
        at = after
    return starts


def probabilities(seed: int) -> tuple[np.ndarray, int]:
    """Some of each: any, mostly small, all equal, with zeros, nearly all 1."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 2_000))
    x = [
        rng.random(n), rng.random(n) ** 6, np.full(n, 0.4), rng.random(n) * (rng.random(n) < 0.5), 1 - 0.01 * rng.random(n),
    ]  # fmt: skip
    chosen = x[seed % 5]
    m = max(1, int(chosen.sum()))
    return np.minimum(chosen * (m / chosen.sum()), 1.0), m


def test_the_papers_figure() -> None:
    one = 1 << 60
    grid = module._on_grid(FIGURE, 3, one)
    starts = module._groups(np.cumsum(grid), 3, one)
    assert starts.tolist() == [0, 3, 4, 5]
    found = ubs(FIGURE, 3, np.random.default_rng(0))
    assert len(found) == 3
    assert len(set(found.tolist()) & {0, 1, 2}) <= 1


@pytest.mark.parametrize("seed", range(40))
def test_groups_are_greedy_however_they_are_found(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, m = probabilities(seed)
    if abs(x.sum() - m) > 1e-7:
        pytest.skip("clipping moved the sum")
    one = 1 << (62 - m.bit_length())
    grid = module._on_grid(x, m, one)
    assert int(grid.sum()) == m * one
    assert grid.min() >= 0
    assert grid.max() <= one
    ends = np.cumsum(grid)
    wanted = greedy(ends, one)
    assert module._walk_sparse(ends, one).tolist() == wanted
    monkeypatch.setattr(module, "_CHUNK", 300)
    monkeypatch.setattr(module, "_LANE", 16)
    assert module._walk_dense(ends, one).tolist() == wanted


@pytest.mark.parametrize("seed", range(20))
def test_exactly_m_different_indices(seed: int) -> None:
    x, m = probabilities(seed)
    if abs(x.sum() - m) > 1e-7:
        pytest.skip("clipping moved the sum")
    found = ubs(x, m, np.random.default_rng(seed))
    assert len(found) == m
    assert (np.diff(found) > 0).all()
    assert (x[found] > 0).all()


def test_zero_is_never_drawn_and_one_always() -> None:
    x = np.array([1.0, 0.0, 0.3, 0.7, 0.0, 1.0, 0.25, 0.75])
    for seed in range(300):
        found = set(ubs(x, 4, np.random.default_rng(seed)).tolist())
        assert {0, 5} <= found
        assert not {1, 4} & found


def test_the_same_seed_draws_the_same() -> None:
    x, m = probabilities(1)
    assert ubs(x, m, np.random.default_rng(3)).tolist() == ubs(x, m, np.random.default_rng(3)).tolist()


def test_none_and_all() -> None:
    rng = np.random.default_rng(0)
    assert ubs(np.zeros(5), 0, rng).tolist() == []
    assert ubs(np.zeros(0), 0, rng).tolist() == []
    assert ubs(np.ones(5), 5, rng).tolist() == [0, 1, 2, 3, 4]


def test_a_sum_that_is_off_by_rounding_is_scaled() -> None:
    x = np.full(1_000, 0.1 + 3e-9)
    assert len(ubs(x, 100, np.random.default_rng(0))) == 100


def test_rounding_that_no_index_can_take_goes_to_zeros() -> None:
    one = 1 << 20
    grid = np.array([one, 0, one, 0], dtype=np.int64)
    module._complete(grid, 3, one)
    assert int(grid.sum()) == 3 * one
    assert grid.max() <= one


@pytest.mark.parametrize(
    ("x", "m", "said"),
    [
        ([0.5, 0.5], 3, "between 0 and 2"),
        ([0.5, 0.5], -1, "between 0 and 2"),
        ([1.5, 0.5], 2, "between 0 and 1"),
        ([-0.1, 1.0], 1, "between 0 and 1"),
        ([np.nan, 1.0], 1, "between 0 and 1"),
        ([0.5, 0.6], 1, "add up to 1.1"),
    ],
)
def test_bad_input(x: list[float], m: int, said: str) -> None:
    with pytest.raises(DPError, match=said):
        ubs(np.array(x), m, np.random.default_rng(0))
