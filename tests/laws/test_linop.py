"""What must hold for every operator: it is its dense matrix, its error bound is a bound, its exact answers are exact."""

import functools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from duckdb_dp.domain.queries import Intervals
from duckdb_dp.linop import (
    Blended,
    Centring,
    Circulant,
    Dense,
    Explicit,
    Factor,
    Factored,
    Identity,
    Kron,
    Layered,
    LinOp,
    Merged,
    Reflected,
    Total,
    Waves,
    centre,
    contract,
)
from duckdb_dp.optimize import windows
from duckdb_dp.optimize.blends import blended
from duckdb_dp.optimize.layers import hats
from duckdb_dp.optimize.reflected import closed_form, waves

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


def reflected(kind: str, n: int) -> tuple[Explicit, np.ndarray]:
    """G^(1/4) with columns of length 1, by eigenvectors."""
    queries = Intervals(kind, n).dense()
    values, vectors = np.linalg.eigh(queries.T @ queries)
    matrix = vectors * values**0.25 @ vectors.T
    return closed_form(kind, n).strategy, matrix / np.linalg.norm(matrix, axis=0)


def circulant(width: int, n: int) -> tuple[Explicit, np.ndarray]:
    """Shifts of its first column."""
    operator = windows.closed_form(width, n).strategy
    return operator, np.column_stack([np.roll(operator.kernel, cell) for cell in range(n)])


def mirrored(kind: str, n: int) -> tuple[Explicit, np.ndarray]:
    """The same as ``reflected``, by Fourier transforms."""
    operator, matrix = reflected(kind, n)
    assert isinstance(operator, Reflected)
    return waves(kind, n, operator.scale), matrix


def ring(width: int, n: int) -> tuple[Explicit, np.ndarray]:
    """Shifts of its first column, which is symmetric."""
    operator = windows.ring(width, n)
    whole = np.array([operator.image[min(cell, n - cell)] for cell in range(n)])
    return operator, np.column_stack([np.roll(whole, cell) for cell in range(n)])


def layered(n: int, count: int) -> tuple[Explicit, np.ndarray]:
    """Sums of hats above the cells."""
    top = np.round(RNG.random((count + 1, count)), 2) + np.eye(count + 1, count)
    return Layered(top, n, 0.375), np.concatenate([top @ hats(n, count), 0.375 * np.eye(n)])


def merged(inner: Explicit, first: int, run: int) -> tuple[Explicit, np.ndarray]:
    """A column that is there several times."""
    sizes = [run if cell == first else 1 for cell in range(inner.shape[1])]
    return Merged(inner, first, run), np.repeat(inner.dense(), sizes, axis=1)


def folded(inner: Explicit, over: int) -> tuple[Explicit, np.ndarray]:
    """Half of the first and of the last cells in the ring's columns, and their differences."""
    assert isinstance(inner, Circulant | Waves)
    operator = windows.folded(inner, over)
    around, apart = inner.dense(), operator.ends.dense()
    half, between = around[:, :over] / 2, np.zeros((len(apart), around.shape[1] - over))
    return operator, np.block([[half, around[:, over:], half], [apart, between, -apart]])


def blend(width: int, n: int) -> tuple[Explicit, np.ndarray]:
    """Coarse columns shared out, and shifted kernels in combinations of chains."""
    operator = blended(width, n)
    cells = range(n)
    pieces = operator.basis.shape[1]
    shared = np.zeros((operator.top.shape[1] + pieces, n))
    for cell in cells:
        turn, place = divmod(cell, width)
        for share, near in zip(operator.shares[place], operator.coarse[place], strict=True):
            shared[turn * pieces + int(near), cell] += share
    blocks = [operator.top @ shared[: operator.top.shape[1]]]
    for one in operator.chains:
        ring, used = one.ring.dense() * one.scale, one.cells(width)
        block = np.zeros((*ring.shape[:1], len(one.mix), n))
        for k, own in enumerate(used):
            block[:, :, own] = one.mix[:, k][:, None] * ring[:, None, :]
        blocks.append(block.reshape(-1, n))
    return operator, np.concatenate(blocks)


PREFIX = np.tril(np.ones((3, 3)))
THIN = RNG.normal(size=(2, 5))
WIDE = np.round(RNG.random(size=(7, 4)), 3)
PLAIN: dict[str, tuple[Explicit, np.ndarray]] = {
    "total": (Total(6), np.ones((1, 6))),
    "dense, wide": (Dense(THIN), THIN),
    "dense, tall": (Dense(WIDE), WIDE),
    **{f"reflected, {kind}": reflected(kind, n) for kind, n in (("prefix", 7), ("suffix", 8), ("range", 9))},
    **{f"circulant, width {width} of {n}": circulant(width, n) for width, n in ((1, 6), (3, 8), (4, 7))},
    **{f"waves, {kind}": mirrored(kind, n) for kind, n in (("prefix", 7), ("suffix", 8), ("range", 9), ("range", 1))},
    **{f"waves, width {width} of {n}": ring(width, n) for width, n in ((1, 6), (3, 8), (4, 9))},
    **{f"layered, {n} on {count}": layered(n, count) for n, count in ((4, 2), (9, 4), (23, 5))},
    "folded, a circulant": folded(windows.closed_form(3, 6).strategy, 2),
    "folded, waves": folded(windows.ring(4, 9), 1),
    **{f"blended, width {width} of {n}": blend(width, n) for width, n in ((4, 9), (3, 6), (3, 11), (6, 11))},
    "merged, first": merged(Dense(WIDE), 0, 3),
    "merged, window": merged(windows.closed_form(3, 5).strategy, 2, 4),
    "merged, alone": merged(Identity(1), 0, 2),
    "prefix": (Dense(PREFIX), PREFIX),
    "dense, low rank": (Dense(WIDE[:, :2] @ THIN), WIDE[:, :2] @ THIN),
}
CASES: dict[str, tuple[LinOp, np.ndarray]] = {
    **PLAIN,
    "no factor": (Kron(()), np.eye(1)),
    "a product": (Kron((Dense(PREFIX), Dense(THIN), Identity(2))), kron([PREFIX, THIN, np.eye(2)])),
    "a product of all kinds": (
        Kron((Dense(WIDE), Total(3), Identity(2))),
        kron([WIDE, np.ones((1, 3)), np.eye(2)]),
    ),
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
    "low rank": factored(RNG.normal(size=(5, 2)) @ RNG.normal(size=(2, 6)), RNG.normal(size=(7, 3))),
    "uneven rows": factored(np.diag([1e-6, 1.0, 1e6]) @ RNG.normal(size=(3, 3))),
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
def test_sensitivities_are_those_of_the_largest_column_and_never_below_it(case: str) -> None:
    operator, matrix = CASES[case]
    m, n = operator.shape
    columns = [[operator.exact(unit, i) for i in range(m)] for unit in np.eye(n, dtype=np.int64)]
    for found, norm in ((operator.squared_sensitivity, np.square), (operator.sensitivity, np.abs)):
        assert found == pytest.approx(float(norm(matrix).sum(axis=0).max()), rel=1e-9, abs=1e-15)
        assert found >= float(max(sum(map(norm, column)) for column in columns)) * (1 - 1e-15)


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
def test_gram(case: str) -> None:
    operator, matrix = CASES[case]
    scale = max(1, np.abs(matrix).max() ** 2)
    np.testing.assert_allclose(operator.gram(), matrix.T @ matrix, atol=1e-11 * scale)


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


@pytest.mark.some(4, "kind")
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


def fractions(matrix: np.ndarray) -> np.ndarray:
    return np.array([[Fraction(value) for value in row] for row in matrix.tolist()], dtype=object)


def centring_exactly(sizes: tuple[int, ...]) -> np.ndarray:
    return functools.reduce(np.kron, (fractions(np.eye(n)) - Fraction(1, n) for n in sizes), fractions(np.eye(1)))


def definition(operator: LinOp) -> np.ndarray:
    """The matrix in fractions, from the doubles that define it."""
    if isinstance(operator, Centring):
        return centring_exactly(operator.sizes)
    if isinstance(operator, Factored):
        parts = [fractions(factor.matrix) @ centring_exactly(factor.sizes) for factor in operator.factors]
        return functools.reduce(np.kron, parts)
    if isinstance(operator, Kron):
        return functools.reduce(np.kron, map(definition, operator.factors), fractions(np.eye(1)))
    if isinstance(operator, Reflected):
        rows = np.concatenate([rows for _, rows in operator.forward.blocks()])
        return fractions(rows) @ fractions(np.diag(operator.scale))
    if isinstance(operator, Waves):
        rows = np.array([operator.forward.row(index) for index in range(len(operator.scale))])
        return fractions(rows) @ fractions(np.diag(operator.scale))
    if isinstance(operator, Layered):
        shares = np.zeros((operator.count, operator.n))
        shares[operator.below, range(operator.n)] = operator.lower
        shares[operator.below + 1, range(operator.n)] += operator.upper
        top = fractions(operator.top) @ fractions(shares)
        return np.concatenate([top, fractions(operator.cell * np.eye(operator.n))])
    if isinstance(operator, Blended):
        return blended_definition(operator)
    return fractions(operator.dense())


def blended_definition(operator: Blended) -> np.ndarray:
    pieces, width = operator.basis.shape[1], operator.width
    rows = [[Fraction(0)] * operator.n for _ in range(operator.shape[0])]
    for cell in range(operator.n):
        turn, place = divmod(cell, width)
        for share, near in zip(operator.shares[place].tolist(), operator.coarse[place].tolist(), strict=True):
            for index, value in enumerate(operator.top[:, turn * pieces + int(near)].tolist()):
                rows[index][cell] += Fraction(value) * Fraction(share)
    start = len(operator.top)
    for one in operator.chains:
        for (place, mixed), index in zip(
            np.ndindex(len(one.ring.kernel), one.links), range(start, start + one.rows), strict=True
        ):
            for x, value in enumerate(one.ring.row(place)):
                for k, share in enumerate(one.mix[mixed].tolist()):
                    rows[index][k * width + one.first + x] = value * Fraction(one.scale[x]) * Fraction(share)
        start += one.rows
    return np.array(rows, dtype=object)


@every
def test_exact_answers_are_the_definition(case: str) -> None:
    operator, _ = CASES[case]
    counts = COUNTS["beyond doubles"](operator.shape[1])
    exact = definition(operator) @ np.array(counts.tolist(), dtype=object)
    assert [operator.exact(counts, index) for index in range(len(exact))] == exact.tolist()


@every
def test_the_estimate_is_the_pseudo_inverse(case: str) -> None:
    operator, matrix = CASES[case]
    noisy = np.random.default_rng(4).normal(size=operator.shape[0])
    expected = np.linalg.pinv(matrix, rcond=1e-11) @ noisy
    np.testing.assert_allclose(
        operator.estimate(noisy), expected, rtol=1e-6, atol=1e-9 * max(1, np.abs(expected).max())
    )


def test_a_factor() -> None:
    factor = Factor(RNG.normal(size=(4, 6)), (2, 3))
    np.testing.assert_allclose(factor.centred, factor.matrix @ kron([centring(2), centring(3)]), atol=1e-14)
    np.testing.assert_allclose(factor.covariance, factor.inverse @ factor.inverse.T)
    assert factor.unit().squared_norm == pytest.approx(1, rel=1e-14)
    assert (factor.reach >= abs(factor.centred)).all()


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
