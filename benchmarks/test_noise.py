"""Exact draws per second on one core, beside opendp's exact samplers and numpy's inexact ones."""

from collections.abc import Callable
from fractions import Fraction
from time import perf_counter

import numpy as np
import opendp.prelude as dp
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from duckdb_dp.noise.gaussian import noisy_grid, rounded_gaussian
from duckdb_dp.noise.laplace import rounded_laplace
from duckdb_dp.noise.select import exponential
from duckdb_dp.noise.uniform import SystemEntropy


def rate(draw: Callable[[int], object], size: int) -> float:
    """Draws per second, the best of three runs."""
    seconds = []
    for _ in range(3):
        start = perf_counter()
        draw(size)
        seconds.append(perf_counter() - start)
    return size / min(seconds)


@pytest.mark.parametrize("log2_scale", [12, 20, 26, 34, 40])
def test_gaussian(benchmark: BenchmarkFixture, log2_scale: int) -> None:
    scale = 2.0**log2_scale
    bits = SystemEntropy()
    size = 2**20 if log2_scale < 40 else 2**16
    benchmark(rounded_gaussian, scale, size, bits=bits)

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    opendp = dp.m.make_gaussian(*space, scale=scale)
    generator = np.random.default_rng()
    ours = rate(lambda n: rounded_gaussian(scale, n, bits=bits), size)
    theirs = rate(lambda n: opendp([0] * n), 10_000)
    inexact = rate(lambda n: np.rint(generator.normal(0.0, scale, n)).astype(np.int64), size)
    benchmark.extra_info.update(
        {"draws_per_second": ours, "ratio_to_opendp": ours / theirs, "ratio_to_numpy": ours / inexact}
    )
    print(
        f"\nscale 2**{log2_scale}: {ours / 1e6:6.2f} million draws/s; opendp's {theirs / 1e6:.3f}, "
        f"x {ours / theirs:.0f}; numpy's inexact normal {inexact / 1e6:.1f}, x {ours / inexact:.2f}"
    )


@pytest.mark.parametrize("log2_scale", [12, 20, 26, 34])
def test_laplace(benchmark: BenchmarkFixture, log2_scale: int) -> None:
    scale, size = 2.0**log2_scale, 2**20
    bits = SystemEntropy()
    benchmark(rounded_laplace, scale, size, bits=bits)

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    opendp = dp.m.make_laplace(*space, scale=scale)
    generator = np.random.default_rng()
    ours = rate(lambda n: rounded_laplace(scale, n, bits=bits), size)
    theirs = rate(lambda n: opendp([0] * n), 10_000)
    inexact = rate(lambda n: np.rint(generator.laplace(0.0, scale, n)).astype(np.int64), size)
    gaussian = rate(lambda n: rounded_gaussian(scale, n, bits=bits), size)
    benchmark.extra_info.update(
        {
            "draws_per_second": ours,
            "ratio_to_opendp": ours / theirs,
            "ratio_to_numpy": ours / inexact,
            "ratio_to_gaussian": ours / gaussian,
        }
    )
    print(
        f"\nLaplace of scale 2**{log2_scale}: {ours / 1e6:6.2f} million draws/s; opendp's {theirs / 1e6:.3f}, "
        f"x {ours / theirs:.0f}; numpy's inexact one {inexact / 1e6:.1f}, x {ours / inexact:.2f}; the rounded Gaussian "
        f"{gaussian / 1e6:.1f}, x {ours / gaussian:.2f}"
    )


def inexact_choice(scores: np.ndarray, epsilon: float, generator: np.random.Generator) -> int:
    """The textbook's exponential mechanism in doubles: what exactness is measured against."""
    weights = np.exp((scores - scores.max()) * epsilon / 2)
    return int(generator.choice(len(scores), p=weights / weights.sum()))


@pytest.mark.parametrize("size", [1, 100, 2000, 20_000])
def test_selection(benchmark: BenchmarkFixture, size: int) -> None:
    scores = 5 * np.random.default_rng(2).normal(size=size)
    benchmark(exponential, scores, 1.0, 1.0, bits=SystemEntropy())

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    opendp = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=2.0)
    generator, listed = np.random.default_rng(), scores.tolist()
    ours = rate(lambda n: [exponential(scores, 1.0, 1.0, bits=SystemEntropy()) for _ in range(n)], 200)
    theirs = rate(lambda n: [opendp(listed) for _ in range(n)], 2)
    inexact = rate(lambda n: [inexact_choice(scores, 1.0, generator) for _ in range(n)], 200)
    benchmark.extra_info.update(
        {"draws_per_second": ours, "ratio_to_opendp": ours / theirs, "ratio_to_numpy": ours / inexact}
    )
    print(
        f"\nselection of {size}: {1e6 / ours:.0f} us; opendp's {1e6 / theirs:.0f} us, x {ours / theirs:.0f}; "
        f"inexact in doubles {1e6 / inexact:.0f} us, x {ours / inexact:.2f}"
    )


@pytest.mark.parametrize("log2_scale", [10, 11, 20])
@pytest.mark.parametrize("error", [1e-8, 1e-4])
def test_noisy_grid(benchmark: BenchmarkFixture, log2_scale: int, error: float) -> None:
    scale, size = 2.0**log2_scale, 2**20
    centres = np.random.default_rng(1).uniform(-1e6, 1e6, size)
    errors = np.full(size, error)
    asked: list[int] = []

    def exact(i: int) -> Fraction:
        asked.append(i)
        return Fraction(centres[i])

    def draw(n: int) -> object:
        return noisy_grid(centres[:n], errors[:n], scale, exact, bits=SystemEntropy())

    benchmark(draw, size)
    ours = rate(draw, size)
    centred = rate(lambda n: rounded_gaussian(scale, n, bits=SystemEntropy()), size)
    asked.clear()
    draw(size)
    benchmark.extra_info.update({"draws_per_second": ours, "ratio_to_centred": ours / centred, "exact": len(asked)})
    print(
        f"\nscale 2**{log2_scale}, errors {error:.0e}: {ours / 1e6:6.2f} million draws/s, x {ours / centred:.2f} those "
        f"around 0; {len(asked)} of {size} centres asked for exactly"
    )
