"""Products by Fourier transforms: as near to the exact ones as they say, whatever is multiplied."""

from fractions import Fraction

import numpy as np
import pytest

from duckdb_dp.linop.base import UNIT
from duckdb_dp.linop.convolution import Convolution, rounded

CELLS = {
    "whole numbers": lambda n, rng: rng.integers(0, 1000, n).astype(float),
    "one large": lambda n, rng: np.where(np.arange(n) == n // 3, 1e15, rng.integers(0, 3, n)),
    "many sizes": lambda n, rng: np.exp(rng.normal(size=n) * 15),
    "of both signs": lambda n, rng: rng.normal(size=n),
    "all the largest": lambda n, rng: np.full(n, 2.0**40 - 1),
}


def convolution(n: int, rng: np.random.Generator) -> Convolution:
    """Entries of all sizes and both signs."""
    vector = rounded(rng.normal(size=3 * n - 1) * np.exp(-5 * rng.random(3 * n - 1)))
    return Convolution(vector[:n], vector[n:])


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("n", [1, 2, 63, 64, 300])
def test_the_error_bound_holds(kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    operator, cells = convolution(n, rng), CELLS[kind](n, rng)
    found, sizes = operator.times(cells), operator.sizes(np.abs(cells))
    for index in range(n):
        row = operator.row(index)
        exact = sum((Fraction(a) * Fraction(b) for a, b in zip(row.tolist(), cells.tolist(), strict=True)), Fraction(0))
        assert abs(Fraction(float(found[index])) - exact) <= Fraction(4 * UNIT * float(sizes[index]))
        assert float(np.abs(row) @ np.abs(cells)) <= sizes[index] * (1 + 1e-12)


@pytest.mark.parametrize("n", [1, 63, 5000])
def test_rounding_finds_the_whole_numbers(n: int) -> None:
    """Of kernels and cells that are as large as a limb may be, all at once: the worst that the proof allows."""
    operator = Convolution(np.full(n, 2.0**20 - 1), np.full(2 * n - 1, 2.0**20 - 1))
    cells = np.full(n, 2.0**20 - 1)
    assert operator.times(cells).tolist() == [float(2 * n * (2**20 - 1) ** 2)] * n


@pytest.mark.parametrize("n", [1, 2, 511, 512, 513, 1024, 1300])
def test_sums_over_earlier_cells(n: int) -> None:
    rng = np.random.default_rng(n)
    near, far, weights = (rng.normal(size=m) for m in (n, 2 * n - 1, n))
    cell = np.arange(n)
    matrix = near[np.abs(np.subtract.outer(cell, cell))] + far[np.add.outer(cell, cell)]
    np.testing.assert_allclose(Convolution(near, far).before(weights), weights @ np.triu(matrix, 1), atol=1e-10)
