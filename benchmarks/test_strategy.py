"""Seconds and steps to a certified gap, and the error beside the published one."""

from collections.abc import Callable
from functools import partial
from math import sqrt
from time import process_time

import numpy as np
import numpy.typing as npt
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from duckdb_dp.domain.queries import Intervals, parse_kind
from duckdb_dp.optimize import tridiagonal, windows
from duckdb_dp.optimize.reflected import closed_form
from duckdb_dp.optimize.strategy import Strategy, solve
from duckdb_dp.optimize.tridiagonal import KINDS
from duckdb_dp.plan.hdmm.oracle import closed_form_pure, laplace

Array = npt.NDArray[np.float64]
HDMM_NOISE = 4.22468  # standard deviation at epsilon 1, delta 1e-6 and sensitivity 1, as HDMM's table 5 has it
HDMM = {
    ("all-range", 64): 9.73,
    ("all-range", 256): 12.26,
    ("all-range", 1024): 14.85,
    ("prefix", 64): 8.87,
    ("prefix", 256): 10.66,
    ("prefix", 1024): 12.49,
    ("prefix", 4096): 14.32,
}
SMASHER = {
    ("prefix", 10): 33.70,
    ("prefix", 20): 49.51,
    ("prefix", 30): 60.81,
    ("range", 10): 41.08,
    ("range", 20): 63.32,
    ("range", 30): 78.79,
    ("affine", 10): 28.25,
    ("affine", 20): 35.71,
    ("affine", 30): 44.36,
    ("abs", 10): 35.85,
    ("abs", 20): 39.49,
    ("abs", 30): 48.14,
}


def prefix(n: int) -> Array:
    return np.triu(np.ones((n, n)))


def prefix_gram(n: int) -> Array:
    return n - np.maximum.outer(np.arange(n), np.arange(n)).astype(float)


def range_gram(n: int) -> Array:
    i = np.arange(n)
    return (np.minimum.outer(i, i) + 1.0) * (n - np.maximum.outer(i, i))


def circular_gram(n: int) -> Array:
    distance = np.subtract.outer(np.arange(n), np.arange(n)) % n
    return (
        n + (n - distance) * (n - distance - 1) / 2 + distance * (distance - 1) / 2
    )  # starts x lengths that hold both


def width(n: int, w: int) -> Array:
    offset = np.subtract.outer(np.arange(n), np.arange(n - w + 1))
    return ((offset >= 0) & (offset < w)).astype(float)


def affine(n: int, k: int) -> Array:
    return (np.add.outer(np.arange(n), np.arange(k))[..., None] <= np.arange(n + k - 1)).astype(float)


def close(n: int, k: int) -> Array:
    return (np.abs(np.subtract.outer(np.arange(n), np.arange(k)))[..., None] <= np.arange(max(n, k))).astype(float)


def flat(queries: Array) -> Array:
    return queries.reshape(-1, queries.shape[-1])


def centred(queries: Array) -> Array:
    for axis in range(queries.ndim - 1):
        queries = queries - queries.mean(axis=axis, keepdims=True)
    return flat(queries)


def predicates(n: int, m: int, spread: float) -> Array:
    rng = np.random.default_rng(1)
    return (rng.random((n, m)) < 0.5) * 10.0 ** rng.uniform(-spread, spread, m)


CASES: dict[tuple[str, int], Callable[[], dict[str, Array]]] = {
    **{("prefix", n): partial(lambda n: {"gram": prefix_gram(n)}, n) for n in (64, 256, 1024)},
    **{("all-range", n): partial(lambda n: {"gram": range_gram(n)}, n) for n in (64, 256, 1024)},
    **{("circular", n): partial(lambda n: {"gram": circular_gram(n)}, n) for n in (64, 1024)},
    **{("width 32", n): partial(lambda n: {"factor": width(n, 32)}, n) for n in (64, 256, 1024)},
    **{("centred prefix", n): partial(lambda n: {"factor": centred(prefix(n))}, n) for n in (50, 100, 1024)},
    **{("affine", n): partial(lambda n: {"factor": flat(affine(n, n))}, n) for n in (10, 30, 50)},
    **{("abs", n): partial(lambda n: {"factor": flat(close(n, n))}, n) for n in (10, 30, 50)},
    **{("centred affine", n): partial(lambda n: {"factor": centred(affine(n, n))}, n) for n in (10, 30, 50, 100)},
    **{("centred abs", n): partial(lambda n: {"factor": centred(close(n, n))}, n) for n in (10, 30, 50, 100)},
    ("centred affine x 100", 50): lambda: {"factor": centred(affine(50, 100))},
    ("centred abs x 100", 50): lambda: {"factor": centred(close(50, 100))},
    ("60 random predicates", 200): lambda: {"factor": predicates(200, 60, 0)},
    ("the same, weights 1e-3 to 1e3", 200): lambda: {"factor": predicates(200, 60, 3)},
    ("400 random predicates", 1000): lambda: {"factor": predicates(1000, 400, 0)},
    **{(kind, 4096): partial(lambda gram: {"gram": gram(4096)}, gram) for kind, gram in
       (("prefix", prefix_gram), ("all-range", range_gram))},
}  # fmt: skip


@pytest.mark.parametrize("tol", [1e-3, 1e-5])
@pytest.mark.parametrize(
    ("kind", "n"), [pytest.param(*case, marks=[pytest.mark.slow] if case[1] == 4096 else []) for case in CASES]
)
def test_strategy(benchmark: BenchmarkFixture, report: Callable[[str], None], kind: str, n: int, tol: float) -> None:
    arguments = CASES[kind, n]()
    strategy: Strategy = benchmark.pedantic(
        partial(solve, **arguments, tol=tol), rounds=1 if n == 4096 else 3, warmup_rounds=int(n < 1024)
    )
    assert strategy.gap <= tol * (1 + 1e-6)
    benchmark.extra_info.update({"steps": strategy.steps, "gap": strategy.gap, "error": strategy.primal})
    line = f"{kind:>30} {n:>5}  gap {strategy.gap:.1e} in {strategy.steps:>3} steps, {benchmark.stats.stats.min:8.4f} s"
    if (kind, n) in HDMM:
        queries = n if kind == "prefix" else n * (n + 1) / 2
        rmse = HDMM_NOISE * sqrt(strategy.primal / queries)
        line += f"  RMSE {rmse:.4f} (published {HDMM[kind, n]})"
        benchmark.extra_info.update({"rmse": rmse, "published": HDMM[kind, n]})
    report(line)


@pytest.mark.parametrize("n", [1000, 4096, 10_000, 100_000])
@pytest.mark.parametrize("kind", KINDS)
def test_closed_form(benchmark: BenchmarkFixture, report: Callable[[str], None], kind: str, n: int) -> None:
    found = benchmark.pedantic(closed_form, args=(kind, n), rounds=3)
    queries = n * (n + 1) / 2 if kind == "range" else n
    rmse, least = sqrt(found.error / queries), sqrt(found.bound / queries)
    assert least < rmse < 1.0025 * least
    benchmark.extra_info.update({"rmse": rmse, "bound": least})
    report(
        f"{kind:>30} {n:>6} in closed form: RMSE {rmse:.4f}, gap {rmse / least - 1:.1e}, {benchmark.stats.stats.min:.2f} s"
    )


NARROW = [(1000, 7), (1000, 32), (4096, 64), (10_000, 7), (10_000, 100), (10_000, 400), (100_000, 100), (100_000, 4000)]
WIDE = [
    *(
        (4096, 200),
        (4096, 1000),
        (4096, 2048),
        (4096, 3000),
        (10_000, 1000),
        (10_000, 2000),
        (10_000, 3000),
        (10_000, 4000),
    ),
    *(
        (10_000, 4999),
        (10_000, 5000),
        (10_000, 8000),
        (10_000, 9900),
        (100_000, 10_000),
        (100_000, 49_000),
        (100_000, 50_000),
    ),
]


@pytest.mark.parametrize(("n", "width"), NARROW + WIDE)
def test_windows(benchmark: BenchmarkFixture, report: Callable[[str], None], n: int, width: int) -> None:
    found = benchmark.pedantic(windows.closed_form, args=(width, n), rounds=3)
    rmse, least = (sqrt(error / (n - width + 1)) for error in (found.error, found.bound))
    assert least < rmse < (1.01 if (n, width) in NARROW else 1.03) * least
    report(
        f"{f'width {width}':>30} {n:>6} in closed form: RMSE {rmse:.4f}, gap {rmse / least - 1:.1e}, {benchmark.stats.stats.min:.2f} s"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_tridiagonal(benchmark: BenchmarkFixture, report: Callable[[str], None], kind: str) -> None:
    """Beside the dense solver, in one run: on 1,024 cells, where that takes seconds."""
    gram = parse_kind(kind, 1024).gram()
    begun = process_time()
    dense = solve(gram, tol=1e-4)
    middle = process_time()
    found = benchmark.pedantic(tridiagonal.solve, args=(kind, 1024), rounds=1)
    ratio = (middle - begun) / (process_time() - middle)
    assert found.primal <= dense.primal * (1 + 1e-6)
    report(
        f"{kind:>30} 1024 by its tridiagonal inverse: gap {found.gap:.1e}, the dense solver's {dense.gap:.1e} in {ratio:.1f} x the time"
    )


@pytest.mark.parametrize(("kind", "n"), [("width-32", 256), ("prefix", 256), ("range", 256)])
def test_laplace(benchmark: BenchmarkFixture, report: Callable[[str], None], kind: str, n: int) -> None:
    queries = parse_kind(kind, n)
    begun = process_time()
    found = benchmark.pedantic(laplace, args=(queries.gram(),), rounds=1)
    report(
        f"{kind:>30} {n:>6} Laplace: RMSE {sqrt(2 * found.error / queries.count):.4f}, {process_time() - begun:.1f} s of processor time"
    )


def residuals(kind: str, n: int, d: int, tol: float) -> tuple[float, float, float, int]:
    """All 1-way prefix (or range) queries and all 2-way ones of `kind`, on d attributes of size n.

    Returns:
        Total error and its bound, queries, steps.
    """
    pairs = d * (d - 1) / 2
    if kind in ("prefix", "range"):
        i = np.arange(n)
        low, high = np.minimum.outer(i, i), np.maximum.outer(i, i)
        gram = prefix_gram(n) if kind == "prefix" else range_gram(n)
        one = prefix(n) if kind == "prefix" else np.array([(low <= k) & (k <= high) for k in i])[:, *np.triu_indices(n)]
        mean = np.square(one.mean(axis=0)).sum()
        project = np.eye(n) - 1 / n
        strategy = solve(project @ gram @ project, tol=tol)
        total, single = d * mean + pairs * mean**2, 1 + (d - 1) * mean
        found = [(single * value, value**2) for value in (strategy.primal, strategy.dual)]
        queries, steps = d * one.shape[1] + pairs * one.shape[1] ** 2, strategy.steps
    else:
        one, two = prefix(n), (affine if kind == "affine" else close)(n, n)
        total = d * np.square(one.mean(axis=0)).sum() + pairs * np.square(two.mean(axis=(0, 1))).sum()
        first = solve(factor=np.hstack([centred(one), sqrt(d - 1) * centred(two.mean(axis=1))]), tol=tol)
        second = solve(factor=centred(two), tol=tol)
        found = [(first.primal, second.primal), (first.dual, second.dual)]
        queries, steps = d * n + pairs * two.shape[-1], first.steps + second.steps
    error, bound = ((sqrt(total) + d * sqrt(single) + pairs * sqrt(pair)) ** 2 for single, pair in found)
    return error, bound, queries, steps


@pytest.mark.parametrize("n", [10, 20, 30, 40, 50])
@pytest.mark.parametrize("kind", ["prefix", "range", "affine", "abs"])
def test_query_smasher(benchmark: BenchmarkFixture, report: Callable[[str], None], kind: str, n: int) -> None:
    error, bound, queries, steps = benchmark.pedantic(residuals, args=(kind, n, 40, 1e-5), rounds=3, warmup_rounds=1)
    rmse, least, published = sqrt(error / queries), sqrt(bound / queries), SMASHER.get((kind, n))
    assert published is None or rmse <= published + 0.005
    benchmark.extra_info.update({"rmse": rmse, "bound": least, "published": published, "steps": steps})
    report(
        f"[{n}]^40, 1-way and 2-way {kind:>6}: RMSE {rmse:.3f} (bound {least:.3f}, published {published or '-'}), "
        f"{steps:>3} steps, {benchmark.stats.stats.min:.3f} s"
    )


@pytest.mark.parametrize("n", [2500, 4096, 10_000, 100_000])
@pytest.mark.parametrize("kind", ["prefix", "range", "width"])
def test_layers(benchmark: BenchmarkFixture, report: Callable[[str], None], kind: str, n: int) -> None:
    queries = Intervals(kind, n, n // 8 if kind == "width" else 0)
    begun = process_time()
    found = benchmark.pedantic(closed_form_pure, args=(queries,), rounds=1)
    rmse, seconds = sqrt(2 * found.error / queries.count), process_time() - begun
    report(f"{kind:>30} {n:>6} Laplace, a layer: RMSE {rmse:.2f}, {seconds:.1f} s of processor time")
