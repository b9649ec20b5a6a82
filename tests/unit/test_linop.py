"""Every operator: quick answers within their stated error of exact ones, and the pseudo-inverse of a dense matrix."""

import functools
from fractions import Fraction

import numpy as np
import pytest

from duckdb_dp.linop import Centring, Factor, Factored, Identity, LinOp, centre, contract

RNG = np.random.default_rng(4)


def centring(sizes: tuple[int, ...]) -> np.ndarray:
    return functools.reduce(np.kron, (np.eye(n) - 1 / n for n in sizes), np.eye(1))


def low_rank() -> np.ndarray:
    return RNG.normal(size=(5, 2)) @ RNG.normal(size=(2, 6))


F = {
    "plain": Factor(RNG.normal(size=(3, 4)), (4,)),
    "tall": Factor(RNG.normal(size=(7, 3)), (3,)),
    "joint": Factor(RNG.normal(size=(4, 6)), (2, 3)),
    "low": Factor(low_rank(), (6,)),
    "uneven": Factor(np.diag([1e-6, 1.0, 1e6]) @ RNG.normal(size=(3, 3)), (3,)),
    "prefix": Factor(np.tril(np.ones((5, 5))), (5,)),
}
OPERATORS: dict[str, tuple[LinOp, np.ndarray]] = {
    "identity": (Identity(6), np.eye(6)),
    "total": (Centring(()), np.eye(1)),
    **{f"centring {sizes}": (Centring(sizes), centring(sizes)) for sizes in [(1,), (2,), (7,), (3, 4), (2, 3, 4)]},
    **{
        " by ".join(names): (
            Factored(tuple(F[name] for name in names)),
            functools.reduce(np.kron, (F[name].matrix @ centring(F[name].sizes) for name in names)),
        )
        for names in [("plain",), ("tall",), ("joint",), ("low",), ("uneven",), ("prefix",), ("plain", "tall"), ("prefix", "joint"), ("low", "plain", "tall")]
    },
}  # fmt: skip
every = pytest.mark.parametrize("name", OPERATORS)

COUNTS = {
    "zero": lambda size: np.zeros(size, dtype=np.int64),
    "small": lambda size: RNG.integers(0, 10, size=size),
    "sparse": lambda size: RNG.integers(0, 2, size=size) * 10**9,
    "huge": lambda size: RNG.integers(0, 2**62 // size, size=size),
    "one": lambda size: np.eye(size, dtype=np.int64)[size // 2],
    "odd": lambda size: np.full(size, 2**53 + 1, dtype=np.int64),  # no double
}


@every
def test_the_matrix(name: str) -> None:
    operator, expected = OPERATORS[name]
    assert operator.shape == expected.shape
    np.testing.assert_allclose(operator.dense(), expected, rtol=1e-9, atol=1e-9 * abs(expected).max())


@every
@pytest.mark.parametrize("kind", COUNTS)
def test_answers_are_within_their_bound_of_exact_ones(name: str, kind: str) -> None:
    operator, _ = OPERATORS[name]
    counts = COUNTS[kind](operator.shape[1])
    answers, errors = operator.apply(counts)
    assert answers.shape == (operator.shape[0],)
    for index, (answer, error) in enumerate(zip(answers, np.broadcast_to(errors, answers.shape), strict=True)):
        exact = operator.exact(counts, index)
        assert isinstance(exact, Fraction)
        assert abs(Fraction(float(answer)) - exact) <= Fraction(float(error))
    largest = max(1, *(abs(f.matrix).max() for f in operator.factors)) if isinstance(operator, Factored) else 1
    assert np.max(errors) <= 1e-10 * largest**3 * counts.sum()  # of some use


@every
def test_exact_answers_are_the_definition(name: str) -> None:
    operator, _ = OPERATORS[name]
    counts = RNG.integers(0, 2**50, size=operator.shape[1])
    rows = definition(operator)
    for index, row in enumerate(rows):
        assert operator.exact(counts, index) == sum(
            (value * int(n) for value, n in zip(row, counts, strict=True)), Fraction(0)
        )


def definition(operator: LinOp) -> list[list[Fraction]]:
    """The matrix in fractions, from the doubles that define it."""
    factors: list[list[list[Fraction]]]
    if isinstance(operator, Identity):
        return [[Fraction(int(i == j)) for j in range(operator.n)] for i in range(operator.n)]
    if isinstance(operator, Centring):
        factors = [centre_exactly((n,)) for n in operator.sizes]
    else:
        assert isinstance(operator, Factored)
        factors = [
            times([[Fraction(x) for x in row] for row in f.matrix.tolist()], centre_exactly(f.sizes))
            for f in operator.factors
        ]
    return functools.reduce(kron, factors, [[Fraction(1)]])


def centre_exactly(sizes: tuple[int, ...]) -> list[list[Fraction]]:
    parts = [[[Fraction(int(i == j)) - Fraction(1, n) for j in range(n)] for i in range(n)] for n in sizes]
    return functools.reduce(kron, parts)


def kron(a: list[list[Fraction]], b: list[list[Fraction]]) -> list[list[Fraction]]:
    return [[x * y for x in row for y in other] for row in a for other in b]


def times(a: list[list[Fraction]], b: list[list[Fraction]]) -> list[list[Fraction]]:
    return [
        [sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for column in zip(*b, strict=True)]
        for row in a
    ]


@every
def test_estimate_is_the_pseudo_inverse(name: str) -> None:
    operator, dense = OPERATORS[name]
    noisy = RNG.normal(size=operator.shape[0])
    expected = np.linalg.pinv(dense, rcond=1e-11) @ noisy
    np.testing.assert_allclose(
        operator.estimate(noisy), expected, rtol=1e-6, atol=1e-9 * abs(expected).max(initial=1e-300)
    )


@every
def test_squared_sensitivity_is_never_too_small(name: str) -> None:
    operator, _ = OPERATORS[name]
    exact = max(
        sum((value * value for value in column), Fraction(0)) for column in zip(*definition(operator), strict=True)
    )
    stated = Fraction(operator.squared_sensitivity)
    # Of centring the number itself is the nearest double; the plan's slack covers that one rounding.
    assert stated >= exact * (1 - Fraction(1, 10**15))
    if isinstance(operator, Factored):
        assert stated >= exact
    assert stated <= exact * (1 + Fraction(1, 10**10))


def test_a_factor() -> None:
    factor = F["joint"]
    projection = centring((2, 3))
    np.testing.assert_allclose(factor.centred, factor.matrix @ projection, atol=1e-14)
    np.testing.assert_allclose(factor.covariance, factor.inverse @ factor.inverse.T)
    np.testing.assert_allclose(factor.inverse, np.linalg.pinv(factor.centred), atol=1e-12)
    assert factor.unit().squared_norm == pytest.approx(1, rel=1e-14)
    assert (factor.reach >= abs(factor.centred)).all()
    assert Factored((factor,)).joint
    assert not Factored((F["plain"], F["tall"])).joint


def test_centre_and_contract() -> None:
    table = RNG.normal(size=(2, 3, 4))
    centred = centre(table, first=1)
    np.testing.assert_allclose(centred.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(centred.sum(axis=2), 0, atol=1e-12)
    assert abs(centred.sum(axis=0)).max() > 0.1
    whole = RNG.integers(0, 2**60, size=(2, 3))
    rows = [[Fraction(1, 3), Fraction(-2, 7)], [Fraction(1, 2), Fraction(5), Fraction(0)]]
    expected = sum(int(whole[i, j]) * rows[0][i] * rows[1][j] for i in range(2) for j in range(3))
    assert contract(whole, rows) == expected
