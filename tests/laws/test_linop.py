"""What must hold for every operator: it is its dense matrix, its error bound is a bound, its exact answers are exact."""

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from duckdb_dp.linop import (
    AllRange,
    Centring,
    Dense,
    Explicit,
    Factor,
    Factored,
    Identity,
    Kron,
    LinOp,
    Marginals,
    Prefix,
    Stack,
    Total,
    Weighted,
    WidthRange,
    centre,
    contract,
)
from duckdb_dp.linop.marginals import eigenvalues, from_eigenvalues, gram_product, invert, multiply

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


def intervals(n: int, bounds: list[tuple[int, int]]) -> np.ndarray:
    return np.array([[float(first <= cell <= last) for cell in range(n)] for first, last in bounds])


def marginals(sizes: tuple[int, ...], weights: list[float]) -> np.ndarray:
    subsets = itertools.product((0, 1), repeat=len(sizes))
    rows = [
        weight * kron([np.eye(n) if one else np.ones((1, n)) for n, one in zip(sizes, kept, strict=True)])
        for kept, weight in zip(subsets, weights, strict=True)
        if weight > 0
    ]
    return np.concatenate(rows)


THIN = RNG.normal(size=(2, 5))
WIDE = np.round(RNG.random(size=(7, 4)), 3)
PLAIN: dict[str, tuple[Explicit, np.ndarray]] = {
    "total": (Total(6), np.ones((1, 6))),
    "prefix": (Prefix(7), intervals(7, [(0, last) for last in range(7)])),
    "ranges": (AllRange(6), intervals(6, [(first, last) for first in range(6) for last in range(first, 6)])),
    **{f"width {w}": (WidthRange(7, w), intervals(7, [(i, i + w - 1) for i in range(8 - w)])) for w in (1, 3, 5, 7)},
    "dense, wide": (Dense(THIN), THIN),
    "dense, tall": (Dense(WIDE), WIDE),
    "dense, low rank": (Dense(WIDE[:, :2] @ THIN), WIDE[:, :2] @ THIN),
}
CASES: dict[str, tuple[LinOp, np.ndarray]] = {
    **PLAIN,
    "one range": (AllRange(1), np.eye(1)),
    "weighted": (Weighted(0.3, Prefix(5)), 0.3 * intervals(5, [(0, last) for last in range(5)])),
    "a stack": (
        Stack((Identity(5), Weighted(2.5, Total(5)), Dense(THIN))),
        np.concatenate([np.eye(5), np.full((1, 5), 2.5), THIN]),
    ),
    "a stack that misses something": (Stack((Total(4), Weighted(3.0, Total(4)))), np.array([[1.0] * 4, [3.0] * 4])),
    "no factor": (Kron(()), np.eye(1)),
    "a product": (
        Kron((Prefix(3), Dense(THIN), Identity(2))),
        kron([intervals(3, [(0, 0), (0, 1), (0, 2)]), THIN, np.eye(2)]),
    ),
    "a product of all kinds": (
        Kron((WidthRange(4, 2), Total(3), Stack((Identity(2), Weighted(0.7, Total(2)))))),
        kron([intervals(4, [(0, 1), (1, 2), (2, 3)]), np.ones((1, 3)), np.array([[1, 0], [0, 1], [0.7, 0.7]])]),
    ),
    "a stack of products": (
        Stack((Kron((Identity(2), Total(3))), Weighted(0.1, Kron((Total(2), Prefix(3)))))),
        np.concatenate([kron([np.eye(2), np.ones((1, 3))]), 0.1 * kron([np.ones((1, 2)), np.tril(np.ones((3, 3)))])]),
    ),
    **{
        f"marginals {sizes} {weights}": (Marginals(sizes, np.array(weights)), marginals(sizes, weights))
        for sizes, weights in [
            ((3,), [0.5, 2.0]),
            ((2, 3), [0.0, 1.0, 0.25, 0.0]),
            ((2, 2, 3), [1.0, 0, 0.5, 0, 0, 2.0, 0, 0.125]),
        ]
    },
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
    "uneven rows": factored(np.diag([1e-6, 1.0, 1e6]) @ RNG.normal(size=(3, 3))),
    "low rank by others": factored(RNG.normal(size=(5, 2)) @ RNG.normal(size=(2, 6)), RNG.normal(size=(3, 4)), THIN.T),
}
every = pytest.mark.parametrize("case", CASES)
COUNTS: dict[str, Callable[[int], np.ndarray]] = {
    "nothing": lambda n: np.zeros(n, np.int64),
    "one row": lambda n: np.eye(n, dtype=np.int64)[n // 2],
    "small": lambda n: np.random.default_rng(1).integers(0, 9, n),
    "beyond doubles": lambda n: np.random.default_rng(2).integers(2**53, 2**60, n),
    "no doubles": lambda n: np.full(n, 2**53 + 1, np.int64),
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
    # Of centring the number itself is the nearest double; the plan's slack covers that one rounding.
    assert operator.squared_sensitivity >= float(exact) * (1 - 1e-15)
    assert not isinstance(operator, Factored) or Fraction(operator.squared_sensitivity) >= exact


@every
def test_the_l1_sensitivity_is_that_of_the_largest_column_and_never_below_it(case: str) -> None:
    operator, matrix = CASES[case]
    assert operator.sensitivity == pytest.approx(float(np.abs(matrix).sum(axis=0).max()), rel=1e-9, abs=1e-15)
    exact = max(
        sum(abs(operator.exact(unit, i)) for i in range(operator.shape[0]))
        for unit in np.eye(operator.shape[1], dtype=np.int64)
    )
    assert operator.sensitivity >= float(exact) * (1 - 1e-15)


@every
def test_products_with_it_and_its_transpose(case: str) -> None:
    operator, matrix = CASES[case]
    m, n = matrix.shape
    rng = np.random.default_rng(7)
    for shape in ((), (2,), (2, 3)):
        cells, answers = rng.normal(size=(n, *shape)), rng.normal(size=(m, *shape))
        scale = max(1, np.abs(matrix).max())
        np.testing.assert_allclose(operator.matvec(cells), np.tensordot(matrix, cells, axes=1), atol=1e-11 * scale)
        np.testing.assert_allclose(
            operator.rmatvec(answers), np.tensordot(matrix.T, answers, axes=1), atol=1e-11 * scale
        )


@every
def test_gram_and_trace(case: str) -> None:
    operator, matrix = CASES[case]
    scale = max(1, np.abs(matrix).max() ** 2)
    np.testing.assert_allclose(operator.gram(), matrix.T @ matrix, atol=1e-11 * scale)
    assert operator.trace == pytest.approx(float((matrix**2).sum()), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", [name for name, (operator, _) in CASES.items() if isinstance(operator, Explicit)])
def test_rows_columns_and_estimates_of_several_at_once(case: str) -> None:
    operator, matrix = CASES[case]
    assert isinstance(operator, Explicit)
    for index in range(operator.shape[0]):
        np.testing.assert_allclose([float(value) for value in operator.row(index)], matrix[index], atol=1e-15)
    for order in (1, 2):
        np.testing.assert_allclose(operator.columns(order), (np.abs(matrix) ** order).sum(axis=0), rtol=1e-12)
    noisy = np.random.default_rng(8).normal(size=(operator.shape[0], 3))
    np.testing.assert_allclose(operator.estimate(noisy), np.linalg.pinv(matrix, rcond=1e-11) @ noisy, atol=1e-8)


@pytest.mark.parametrize("sizes", [(), (3,), (2, 3), (2, 4, 3)])
def test_the_algebra_of_marginals(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    count, cells = 2 ** len(sizes), math.prod(sizes)

    def matrix(weights: np.ndarray) -> np.ndarray:
        kept = itertools.product((0, 1), repeat=len(sizes))
        terms = (kron([np.eye(n) if one else np.ones((n, n)) for n, one in zip(sizes, a, strict=True)]) for a in kept)
        return sum((weight * term for weight, term in zip(weights, terms, strict=True)), np.zeros((cells, cells)))

    u, v = rng.random(count), rng.random(count) * (rng.random(count) < 0.6)
    np.testing.assert_allclose(gram_product(sizes, u, np.eye(cells)), matrix(u), atol=1e-12)
    np.testing.assert_allclose(matrix(multiply(sizes, u, v)), matrix(u) @ matrix(v), atol=1e-9)
    np.testing.assert_allclose(matrix(invert(sizes, u)), np.linalg.inv(matrix(u)), atol=1e-9)
    np.testing.assert_allclose(matrix(invert(sizes, v)), np.linalg.pinv(matrix(v), rcond=1e-11), atol=1e-9)
    np.testing.assert_allclose(from_eigenvalues(sizes, eigenvalues(sizes, u)), u, atol=1e-12)
    residuals = np.repeat(
        eigenvalues(sizes, u),
        np.round(
            [
                math.prod(n - 1 for n, one in zip(sizes, a, strict=True) if one)
                for a in itertools.product((0, 1), repeat=len(sizes))
            ]
        ).astype(int),
    )
    np.testing.assert_allclose(np.sort(residuals), np.linalg.eigvalsh(matrix(u)), atol=1e-9)


def test_a_stack_on_many_cells_is_solved_by_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, matrix = CASES["a stack"]
    monkeypatch.setattr("duckdb_dp.linop.compose.MAX_PINV", 2)
    noisy = np.random.default_rng(4).normal(size=(operator.shape[0], 2))
    np.testing.assert_allclose(operator.estimate(noisy), np.linalg.pinv(matrix) @ noisy, atol=1e-9)


def test_a_stack_on_very_many_cells_bounds_its_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, matrix = CASES["a stack"]
    monkeypatch.setattr("duckdb_dp.linop.compose.MAX_COLUMNS", 2)
    assert operator.sensitivity >= np.abs(matrix).sum(axis=0).max()
    assert operator.squared_sensitivity >= (matrix**2).sum(axis=0).max()


@pytest.mark.some(8, "kind")
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


def fractions(matrix: np.ndarray) -> np.ndarray:
    return np.array([[Fraction(value) for value in row] for row in matrix.tolist()], dtype=object)


@pytest.mark.parametrize("case", [name for name, (operator, _) in CASES.items() if isinstance(operator, Factored)])
def test_exact_answers_of_factors_are_those_of_the_doubles_that_define_them(case: str) -> None:
    operator, _ = CASES[case]
    assert isinstance(operator, Factored)
    centrings = {n: fractions(np.eye(n)) - Fraction(1, n) for factor in operator.factors for n in factor.sizes}
    one = fractions(np.eye(1))
    parts = [
        fractions(factor.matrix) @ functools.reduce(np.kron, (centrings[n] for n in factor.sizes), one)
        for factor in operator.factors
    ]
    counts = COUNTS["beyond doubles"](operator.shape[1])
    exact = functools.reduce(np.kron, parts, one) @ np.array(counts.tolist(), dtype=object)
    assert [operator.exact(counts, index) for index in range(len(exact))] == exact.tolist()


def test_a_factor() -> None:
    factor = Factor(RNG.normal(size=(4, 6)), (2, 3))
    np.testing.assert_allclose(factor.centred, factor.matrix @ kron([centring(2), centring(3)]), atol=1e-14)
    np.testing.assert_allclose(factor.covariance, factor.inverse @ factor.inverse.T)
    np.testing.assert_allclose(factor.inverse, np.linalg.pinv(factor.centred), atol=1e-12)
    assert factor.unit().squared_norm == pytest.approx(1, rel=1e-14)
    assert (factor.reach >= abs(factor.centred)).all()
    assert Factored((factor,)).joint
    assert not Factored((Factor(WIDE, (4,)), Factor(WIDE, (4,)))).joint


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
