import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from duckdb_dp.errors import DPError
from duckdb_dp.optimize.cells import reduce_factor, reduce_gram
from duckdb_dp.optimize.strategy import Strategy, solve

Array = npt.NDArray[np.float64]


def centred(queries: Array) -> Array:
    """Queries on a line `(n, m)` or a grid `(n, k, m)` less their mean along each axis of cells, one per column."""
    for axis in range(queries.ndim - 1):
        queries = queries - queries.mean(axis=axis, keepdims=True)
    return queries.reshape(-1, queries.shape[-1])


def prefix(n: int) -> Array:
    return np.triu(np.ones((n, n)))


def ranges(n: int) -> Array:
    return np.array(
        [[first <= i <= last for first in range(n) for last in range(first, n)] for i in range(n)], dtype=float
    )


def width(n: int, w: int) -> Array:
    return np.array([[start <= i < start + w for start in range(n - w + 1)] for i in range(n)], dtype=float)


def circular(n: int) -> Array:
    return np.array(
        [[(i - start) % n < size for start in range(n) for size in range(1, n + 1)] for i in range(n)], float
    )


def affine(n: int, k: int) -> Array:
    return np.add.outer(np.arange(n), np.arange(k))[..., None] <= np.arange(n + k - 1)


def close(n: int, k: int) -> Array:
    return np.abs(np.subtract.outer(np.arange(n), np.arange(k)))[..., None] <= np.arange(max(n, k))


def random_predicates(n: int, m: int, share: float) -> Array:
    return (np.random.default_rng(n * m).random((n, m)) < share).astype(float)


def weights(size: int) -> Array:
    return 10.0 ** np.random.default_rng(size).uniform(-3, 3, size)


WORKLOADS = {
    "prefix": prefix(32),
    "ranges": ranges(17),
    "width": width(30, 4),
    "circular": circular(11),
    "centred prefix": centred(prefix(21)),
    "centred ranges": centred(ranges(12)),
    "affine": affine(9, 9).reshape(81, -1).astype(float),
    "affine, two sizes": affine(5, 8).reshape(40, -1).astype(float),
    "centred affine": centred(affine(10, 10)),
    "centred affine, two sizes": centred(affine(6, 11)),
    "abs": close(9, 9).reshape(81, -1).astype(float),
    "centred abs": centred(close(10, 10)),
    "centred abs, two sizes": centred(close(7, 10)),
    "predicates": random_predicates(40, 15, 0.5),
    "rare predicates": random_predicates(60, 12, 0.05),  # leaves cells untouched
    "many predicates": random_predicates(20, 70, 0.3),
    "weighted predicates": random_predicates(40, 15, 0.5) * weights(15),
    "weighted prefix": prefix(25) * weights(25),
    "weighted cells": prefix(25) * weights(25)[:, None],
    "weighted affine": centred(affine(8, 8)) * weights(15),
    "identity": np.eye(12),
    "weighted identity": np.diag(weights(12)),
    "rank one": weights(20)[:, None],
    "total": np.ones((9, 1)),
    "one cell": np.array([[3.0, -4.0]]),
    "signs": np.array([[1.0, 2.0, 0.0], [-1.0, -2.0, 0.0], [0.0, 1.0, 1.0], [1.0, 2.0, 0.0]]),
}


def assert_certified(strategy: Strategy, factor: Array, tol: float) -> None:
    """Everything a strategy claims, checked densely from the workload alone."""
    matrix, inverse = strategy.matrix, np.linalg.pinv(strategy.matrix, rcond=1e-12)
    cost = np.square(matrix).sum(axis=0).max()
    assert abs(cost - 1.0) <= 1e-12
    # The strategy answers every query, and with the error it claims.
    assert np.abs(factor - inverse @ (matrix @ factor)).max() <= 1e-8 * np.abs(factor).max()
    assert np.square(inverse.T @ factor).sum() == pytest.approx(strategy.primal, rel=1e-7)
    # The bound is what its weights prove; by weak duality any weights prove one.
    assert strategy.weights.min() >= 0
    assert strategy.weights.sum() == pytest.approx(1.0, rel=1e-12)
    proved = np.linalg.svd(np.sqrt(strategy.weights)[:, None] * factor, compute_uv=False).sum() ** 2
    assert strategy.dual <= proved * (1 + 1e-9)
    assert strategy.dual == pytest.approx(proved, rel=1e-5)
    assert -1e-9 <= strategy.gap <= tol * (1 + 1e-6)


@pytest.mark.some(4, "tol")
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("name", WORKLOADS)
def test_certificate(name: str, tol: float) -> None:
    assert_certified(solve(factor=WORKLOADS[name], tol=tol), WORKLOADS[name], tol)


@pytest.mark.parametrize("name", [name for name in WORKLOADS if "weighted" not in name])
def test_gram_and_factor_agree(name: str) -> None:
    factor = WORKLOADS[name]
    strategy = solve(factor @ factor.T, tol=1e-4)
    assert_certified(strategy, factor, 1e-4)
    assert strategy.primal == pytest.approx(solve(factor=factor, tol=1e-4).primal, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "steps"),
    [("prefix", 3), ("ranges", 2), ("circular", 2), ("identity", 1), ("centred affine", 20), ("centred abs", 20)],
)
def test_few_steps_to_one_in_a_thousand(name: str, steps: int) -> None:
    assert solve(factor=WORKLOADS[name]).steps <= steps


@pytest.mark.slow
def test_many_cells_start_from_half_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = prefix(120)
    shuffled = factor[np.random.default_rng(0).permutation(len(factor))]
    before = solve(factor=factor).steps
    monkeypatch.setattr("duckdb_dp.optimize.strategy._MANY", 40)
    ordered, unordered = solve(factor=factor), solve(factor=shuffled)
    assert ordered.steps < before == unordered.steps  # half of the cells in any old order say nothing of the others
    assert_certified(ordered, factor, 1e-3)
    assert_certified(unordered, shuffled, 1e-3)


def test_known_optima() -> None:
    assert solve(factor=np.eye(7)).primal == pytest.approx(7.0)
    assert solve(factor=np.ones((5, 1))).primal == pytest.approx(1.0)  # the total alone
    assert solve(factor=np.diag([1.0, 2.0, 3.0])).primal == pytest.approx(14.0)  # each cell by itself
    n = 6  # a centred marginal: (n - 1)^2 / n
    assert solve(factor=centred(np.eye(n)), tol=1e-8).primal == pytest.approx((n - 1) ** 2 / n)


@pytest.mark.parametrize(("workload", "published"), [("all-range", (9.73, 12.26)), ("prefix", (8.87, 10.66))])
def test_at_or_below_the_published_error(workload: str, published: tuple[float, float]) -> None:
    # HDMM, table 5, epsilon 1 and delta 1e-6: noise of standard deviation 4.22468 at privacy cost 1.
    for n, error in zip((64, 256), published, strict=True):
        low, high = np.minimum.outer(np.arange(n), np.arange(n)), np.maximum.outer(np.arange(n), np.arange(n))
        gram, queries = (n - high, n) if workload == "prefix" else ((low + 1) * (n - high), n * (n + 1) / 2)
        strategy = solve(gram.astype(float), tol=1e-5)
        assert 4.22468 * np.sqrt(strategy.primal / queries) <= error + 0.005


@pytest.mark.parametrize("name", WORKLOADS)
def test_reduction_loses_nothing(name: str) -> None:
    factor = WORKLOADS[name]
    gram = factor @ factor.T
    for cells in (reduce_factor(factor), reduce_gram(gram)):
        parts = [cells.expand(b, block.T) for b, block in enumerate(cells.blocks)]
        assert np.abs(sum(part.T @ part for part in parts) - gram).max() <= 1e-12 * np.abs(gram).max()


@pytest.mark.parametrize(
    ("factor", "shapes"),
    [
        (prefix(20), [(20, 20)]),
        (ranges(20), [(10, 10), (10, 10)]),
        (centred(prefix(21)), [(11, 10), (11, 10)]),
        (WORKLOADS["affine"], [(17, 17)]),  # of 81 cells
        (WORKLOADS["abs"], [(9, 9)]),
        (centred(affine(10, 10)), [(30, 9), (30, 8)]),  # of 100 cells
        (centred(close(10, 10)), [(30, 9)]),
        (WORKLOADS["signs"], [(2, 2)]),
    ],
)
def test_cells_that_look_alike_are_one(factor: Array, shapes: list[tuple[int, int]]) -> None:
    assert [block.shape for block in reduce_factor(factor).blocks] == shapes


def test_no_query() -> None:
    for strategy in (solve(np.zeros((4, 4))), solve(factor=np.zeros((4, 3)))):
        assert strategy.matrix.shape == (0, 4)
        assert (strategy.primal, strategy.dual, strategy.gap) == (0.0, 0.0, 0.0)


def test_untouched_cells_get_no_column_and_no_weight() -> None:
    factor = np.zeros((30, 10))
    factor[3:13] = prefix(10)
    strategy = solve(factor=factor)
    touched = np.zeros(30, dtype=bool)
    touched[3:13] = True
    assert not strategy.matrix[:, ~touched].any()
    assert not strategy.weights[~touched].any()
    assert strategy.primal == pytest.approx(solve(factor=prefix(10)).primal)


def test_the_best_strategy_so_far_is_returned_with_its_gap() -> None:
    factor = WORKLOADS["centred abs"]
    strategy = solve(factor=factor, tol=1e-6, max_steps=5)
    assert strategy.steps == 5
    assert strategy.gap > 1e-3
    assert_certified(strategy, factor, strategy.gap)


def test_the_same_workload_gives_the_same_strategy() -> None:
    first, second = (solve(factor=WORKLOADS["predicates"]) for _ in range(2))
    assert np.array_equal(first.matrix, second.matrix)


@pytest.mark.parametrize("scale", [1e-60, 1e-3, 1e3, 1e60])
@pytest.mark.parametrize("name", ["prefix", "centred affine", "weighted predicates"])
def test_scaling_the_queries_scales_the_error(name: str, scale: float) -> None:
    plain, scaled = solve(factor=WORKLOADS[name]), solve(factor=scale * WORKLOADS[name])
    assert scaled.primal == pytest.approx(scale**2 * plain.primal, rel=1e-3)
    assert scaled.gap <= 1e-3 * (1 + 1e-6)
    assert np.square(scaled.matrix).sum(axis=0).max() <= 1 + 1e-12


@pytest.mark.parametrize("name", ["prefix", "centred affine", "predicates", "signs"])
def test_order_sign_and_repetition_of_cells_do_not_matter(name: str) -> None:
    factor = WORKLOADS[name]
    rng = np.random.default_rng(0)
    order = rng.permutation(len(factor))
    error = solve(factor=factor, tol=1e-5).primal
    for changed in (
        factor[order],
        factor * rng.choice([-1.0, 1.0], len(factor))[:, None],
        np.concatenate([factor, factor[order], -factor]),
        factor @ np.linalg.qr(rng.normal(size=(factor.shape[1],) * 2))[0],  # the same Gram matrix
    ):
        strategy = solve(factor=changed, tol=1e-5)
        assert_certified(strategy, changed, 1e-5)
        assert strategy.primal == pytest.approx(error, rel=2e-5)


def test_a_repeated_query_counts_as_its_weight() -> None:
    factor = WORKLOADS["prefix"]
    heavier = factor * np.sqrt(np.arange(len(factor)) % 3 + 1.0)
    repeated = np.repeat(factor, np.arange(len(factor)) % 3 + 1, axis=1)
    assert solve(factor=repeated, tol=1e-5).primal == pytest.approx(solve(factor=heavier, tol=1e-5).primal, rel=2e-5)


factors = st.builds(
    lambda n, r, density, signed, seed: (
        (np.random.default_rng(seed).random((n, r)) < density)
        * np.random.default_rng(seed + 1).choice([1.0, signed], (n, r))
    ),
    st.integers(1, 12),
    st.integers(1, 16),
    st.floats(0.1, 1.0),
    st.sampled_from([1.0, -1.0, 0.01, 30.0]),
    st.integers(0, 10**6),
)


@settings(max_examples=60, deadline=None)
@given(factor=factors, seed=st.integers(0, 10**6))
def test_no_feasible_strategy_beats_the_bound(factor: Array, seed: int) -> None:
    assume(factor.any())
    strategy = solve(factor=factor, tol=1e-3)
    assert_certified(strategy, factor, 1e-3)
    rng = np.random.default_rng(seed)
    n = len(factor)
    for other in (np.eye(n), rng.normal(size=(n, n)), rng.normal(size=(2 * n, n)) + 3 * np.eye(2 * n, n), factor.T):
        largest = np.sqrt(np.square(other).sum(axis=0).max())
        error = np.square(np.linalg.pinv(other / largest).T @ factor).sum()
        assert strategy.dual <= error * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(factor=factors, seed=st.integers(0, 10**6))
def test_moving_from_the_strategy_does_not_beat_the_bound(factor: Array, seed: int) -> None:
    assume(factor.any())
    strategy = solve(factor=factor, tol=1e-6)
    rng = np.random.default_rng(seed)
    for size in (1e-3, 1e-1):
        moved = strategy.matrix + size * rng.normal(size=(len(strategy.matrix),) * 2) @ strategy.matrix
        moved = moved / np.sqrt(np.square(moved).sum(axis=0).max())
        error = np.square(np.linalg.pinv(moved, rcond=1e-12).T @ factor).sum()
        assert strategy.dual <= error * (1 + 1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "not 0 of the two"),
        ({"gram": np.eye(2), "factor": np.eye(2)}, "not 2 of the two"),
        ({"gram": np.ones(3)}, "finite matrix"),
        ({"factor": np.array([[np.nan]])}, "finite matrix"),
        ({"factor": np.array([[1e120]])}, "1e-100 and 1e100"),
        ({"gram": np.ones((2, 3))}, "square"),
        ({"gram": np.array([[1.0, 0.5], [0.0, 1.0]])}, "symmetric"),
        ({"gram": np.array([[1.0, 2.0], [2.0, 1.0]])}, "negative eigenvalue"),
        ({"gram": np.array([[1.0, 0.5], [0.5, 0.0]])}, "negative eigenvalue"),
        ({"gram": np.array([[0.0, 1.0], [1.0, 0.0]])}, "negative eigenvalue"),
        ({"gram": -np.eye(2)}, "negative eigenvalue"),
        ({"gram": np.eye(2), "tol": 0.0}, "from 1e-8 up"),
        ({"gram": np.eye(2), "max_steps": 0}, "1 step or more"),
    ],
)
def test_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(DPError, match=message):
        solve(**arguments)  # type: ignore[arg-type]
