"""What must hold for every operator: it is its dense matrix, its error bound is a bound, its exact answers are exact."""

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from duckdb_dp.linop import Centring, Factor, Factored, Identity, LinOp, centre, contract

RNG = np.random.default_rng(11)


def centring(n: int) -> np.ndarray:
    return np.eye(n) - 1 / n


def kron(matrices: list[np.ndarray]) -> np.ndarray:
    return functools.reduce(np.kron, matrices, np.eye(1))


def factored(*matrices: np.ndarray) -> tuple[LinOp, np.ndarray]:
    operator = Factored(tuple(Factor(matrix, (matrix.shape[1],)) for matrix in matrices))
    return operator, kron([matrix @ centring(matrix.shape[1]) for matrix in matrices])


def joint(matrix: np.ndarray, sizes: tuple[int, ...]) -> tuple[LinOp, np.ndarray]:
    return Factored((Factor(matrix, sizes),)), matrix @ kron([centring(n) for n in sizes])


CASES: dict[str, tuple[LinOp, np.ndarray]] = {
    "one cell": (Identity(1), np.eye(1)),
    "identity": (Identity(7), np.eye(7)),
    **{
        f"centring {sizes}": (Centring(sizes), kron([centring(n) for n in sizes]))
        for sizes in [(), (2,), (5,), (3, 4), (2, 3, 2), (7, 1)]
    },
    "one factor": factored(RNG.normal(size=(4, 6))),
    "two factors": factored(RNG.normal(size=(2, 3)), np.tril(np.ones((4, 4)))),
    "three factors": factored(RNG.normal(size=(5, 3)), RNG.normal(size=(2, 2)), np.eye(3)),
    "a joint factor": joint(RNG.normal(size=(5, 6)), (2, 3)),
    "large and small entries": factored(np.array([[1e9, 1e-9, 3.0], [-1.0, 1.0, 1e-12]])),
}
every = pytest.mark.parametrize("case", CASES)
COUNTS: dict[str, Callable[[int], np.ndarray]] = {
    "nothing": lambda n: np.zeros(n, np.int64),
    "one row": lambda n: np.eye(n, dtype=np.int64)[n // 2],
    "small": lambda n: np.random.default_rng(1).integers(0, 9, n),
    "beyond doubles": lambda n: np.random.default_rng(2).integers(2**53, 2**60, n),
    "one huge cell": lambda n: np.where(np.arange(n) == 0, 2**62 - 1, 1),
}


@every
def test_it_is_its_dense_matrix(case: str) -> None:
    operator, matrix = CASES[case]
    assert operator.shape == matrix.shape
    scale = max(1, np.abs(matrix).max())
    np.testing.assert_allclose(operator.dense(), matrix, atol=1e-13 * scale)
    counts = COUNTS["small"](matrix.shape[1])
    np.testing.assert_allclose(operator.apply(counts)[0], matrix @ counts, atol=1e-11 * scale)


@every
def test_the_sensitivity_is_that_of_the_largest_column_and_never_below_it(case: str) -> None:
    operator, matrix = CASES[case]
    largest = float((matrix**2).sum(axis=0).max())
    assert operator.squared_sensitivity == pytest.approx(largest, rel=1e-9, abs=1e-15)
    exact = max(
        sum(operator.exact(unit, i) ** 2 for i in range(operator.shape[0]))
        for unit in np.eye(operator.shape[1], dtype=np.int64)
    )
    assert operator.squared_sensitivity >= float(exact) * (1 - 1e-15)


@every
@pytest.mark.parametrize("kind", COUNTS)
def test_the_error_bound_holds(case: str, kind: str) -> None:
    operator, matrix = CASES[case]
    counts = COUNTS[kind](matrix.shape[1])
    answers, errors = operator.apply(counts)
    bounds = np.broadcast_to(errors, answers.shape)
    for index in range(operator.shape[0]):
        exact = operator.exact(counts, index)
        assert isinstance(exact, Fraction)
        assert abs(Fraction(float(answers[index])) - exact) <= Fraction(float(bounds[index]))
    # A bound that is far too wide would send every draw down the slow path.
    assert (
        float(np.max(bounds))
        <= 1e-12 * max(1.0, float(np.abs(matrix).max())) * float(counts.sum(dtype=np.float64)) * 100
    )


@every
def test_exact_answers_are_those_of_the_exact_matrix(case: str) -> None:
    operator, _ = CASES[case]
    counts = COUNTS["beyond doubles"](operator.shape[1])
    units = np.eye(operator.shape[1], dtype=np.int64)
    for index in range(operator.shape[0]):
        row = [operator.exact(unit, index) for unit in units]
        assert operator.exact(counts, index) == sum(
            int(count) * value for count, value in zip(counts, row, strict=True)
        )


@pytest.mark.parametrize("sizes", [(), (2,), (5,), (3, 4), (2, 3, 2)])
def test_centring_is_exact_in_small_fractions(sizes: tuple[int, ...]) -> None:
    places = list(itertools.product(*map(range, sizes)))
    for column, unit in enumerate(np.eye(len(places), dtype=np.int64)):
        for row, place in enumerate(places):
            entries = (int(i == j) - Fraction(1, n) for i, j, n in zip(place, places[column], sizes, strict=True))
            assert Centring(sizes).exact(unit, row) == math.prod(entries, start=Fraction(1))


@every
def test_the_estimate_is_the_pseudo_inverse(case: str) -> None:
    operator, matrix = CASES[case]
    noisy = np.random.default_rng(4).normal(size=operator.shape[0])
    expected = np.linalg.pinv(matrix, rcond=1e-11) @ noisy
    np.testing.assert_allclose(
        operator.estimate(noisy), expected, rtol=1e-6, atol=1e-9 * max(1, np.abs(expected).max())
    )


def test_centre_and_contract() -> None:
    table = RNG.normal(size=(3, 4, 2))
    for first in range(4):
        found = centre(table, first)
        for axis in range(first, 3):
            assert np.abs(found.sum(axis=axis)).max() < 1e-12
    counts = np.arange(24).reshape(3, 4, 2) + 2**61
    rows = [[Fraction(1, k + 2) for k in range(n)] for n in (3, 4, 2)]
    expected = sum(
        int(counts[i, j, k]) * rows[0][i] * rows[1][j] * rows[2][k]
        for i in range(3)
        for j in range(4)
        for k in range(2)
    )
    assert contract(counts, rows) == expected
    assert contract(np.array(7), []) == 7
