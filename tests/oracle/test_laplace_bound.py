"""Why no convex bound for Laplace noise is better than that for Gaussian noise on ordered cells (docs/mechanisms/hdmm.md)."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.optimize import linprog

from duckdb_dp.domain.queries import parse_kind
from duckdb_dp.linop import Array
from duckdb_dp.optimize.strategy import solve


def partitions(n: int, groups: int = 0) -> Iterator[tuple[int, ...]]:
    """The group of each of n cells."""
    if n == 0:
        yield ()
        return
    for group in range(groups + 1):
        for rest in partitions(n - 1, max(groups, group + 1)):
            yield (group, *rest)


def signed_partitions(n: int) -> Array:
    """All A^T A where every column of A has one entry, 1 or -1; shape (k, n, n)."""
    found = set()
    for groups in partitions(n):
        for signs in itertools.product((1, -1), repeat=n):
            same = np.equal.outer(groups, groups)
            found.add(tuple((same * np.outer(signs, signs)).reshape(-1).tolist()))
    return np.array(sorted(found), dtype=np.float64).reshape(-1, n, n)


def distance(x: Array, corners: Array) -> float:
    """The least largest difference of x from an average of corners."""
    a, b = corners.reshape(len(corners), -1).T, x.reshape(-1)
    ones = np.ones((len(b), 1))
    found = linprog(
        np.r_[np.zeros(len(corners)), 1.0],
        A_ub=np.block([[a, -ones], [-a, -ones]]),
        b_ub=np.r_[b, -b],
        A_eq=np.r_[np.ones(len(corners)), 0.0][None],
        b_eq=[1.0],
    )
    return float(found.fun)


@pytest.mark.parametrize("seed", range(5))
def test_no_strategy_of_l1_sensitivity_1_is_beyond_the_corners(seed: int) -> None:
    rng = np.random.default_rng(seed)
    corners, root = signed_partitions(4), rng.normal(size=(4, 4))
    most = float((corners * (root @ root.T)).sum(axis=(1, 2)).max())
    for rows in (1, 3, 9):
        for sparse in (0.3, 1.0, 3.0):
            strategies = rng.normal(size=(200, rows, 4)) * rng.random((200, rows, 4)) ** sparse
            strategies /= np.abs(strategies).sum(axis=1, keepdims=True)
            assert (np.square(strategies @ root).sum(axis=(1, 2)) <= most + 1e-9).all()


@pytest.mark.parametrize("kind", ["prefix", "suffix", "range"])
def test_the_gaussian_optimum_is_an_average_of_corners(kind: str) -> None:
    matrix = solve(gram=parse_kind(kind, 5).gram(), tol=1e-6).matrix
    corners = signed_partitions(5)
    assert distance(matrix.T @ matrix, corners) < 1e-6
    # The test can fail: no average of strategies has columns of another length.
    assert distance(1.1 * matrix.T @ matrix, corners) > 0.05


@pytest.mark.parametrize("kind", ["width-2", "width-3"])
def test_elsewhere_it_is_within_the_constant(kind: str) -> None:
    """(2 / pi) arcsin of any correlation matrix is an average of corners, and no less than 2 / pi times it."""
    matrix = solve(gram=parse_kind(kind, 5).gram(), tol=1e-6).matrix
    lengths = np.sqrt(np.square(matrix).sum(axis=0))
    x = np.clip((matrix.T @ matrix) / np.outer(lengths, lengths), -1, 1)
    rounded = 2 / math.pi * np.arcsin(x)
    assert distance(rounded, signed_partitions(5)) < 1e-6
    assert np.linalg.eigvalsh(rounded - 2 / math.pi * x).min() > -1e-9
