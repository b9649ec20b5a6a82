"""How many links rows get that anybody may see: the distribution that was measured, the sums that are expected, the order of the weights."""

import itertools

import numpy as np
import pytest

from duckdb_dp.synthesis.links.popularity import Popularity, distribution, numbers, settled, worth
from duckdb_dp.synthesis.links.sides import Side, side_of


def side(seed: int, rows: int = 400) -> Side:
    rng = np.random.default_rng(seed)
    return side_of(("r.a", "r.b", "r.c"), np.stack([rng.integers(0, n, rows) for n in (4, 5, 3)], 1))


def degrees_of(kind: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    return {
        "even": rng.poisson(30, rows),
        "skewed": rng.negative_binomial(0.5, 0.5 / 30.5, rows),
        "two": np.where(rng.random(rows) < 0.5, rng.poisson(5, rows), rng.poisson(60, rows)),
        "tail": np.minimum((rng.pareto(1.5, rows) * 10).astype(int), 3000),
    }[kind]


CLASSES = np.array([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 10**6])


def classed(degrees: np.ndarray, shares: np.ndarray | None = None) -> np.ndarray:
    found = np.bincount(np.searchsorted(CLASSES, degrees, side="right") - 1, shares, len(CLASSES))
    return found / found.sum()


@pytest.mark.parametrize("kind", ["even", "skewed", "two", "tail"])
def test_the_distribution_is_that_of_the_rows_whatever_the_noise_made_of_them(kind: str) -> None:
    rng = np.random.default_rng(3)
    real = degrees_of(kind, 2000, rng)
    for noise in (0.01, 3.0, 10.0):
        seen = 0.3 * (real + rng.normal(0, noise, len(real)))
        linked = float((real > 0).mean()), 1e-4
        known = Popularity(weights=seen, variance=(0.3 * noise) ** 2, linked=linked)
        found, shares = distribution(known, float(real.mean()), 0.3, 10**6)
        assert shares.sum() == pytest.approx(1)
        assert shares.min() >= 0
        off = np.abs(classed(found, shares) - classed(real)).sum()
        # Weights that are taken as they are, with their noise in them, are farther away as soon as there is much.
        naive = np.abs(classed(np.maximum(np.rint(seen / 0.3), 0)) - classed(real)).sum()
        assert off < max(0.12, 0.7 * naive), (kind, noise)


def test_without_weights_the_share_of_linked_rows_says_how_uneven_they_are() -> None:
    found = {share: distribution(Popularity(linked=(share, 1e-6)), 6.0, 1.0, 10**6) for share in (0.3, 0.6, 0.9, 0.997)}
    for share, (degrees, shares) in found.items():
        assert shares[0] == pytest.approx(1 - share, abs=0.02)
        assert shares @ degrees == pytest.approx(6, rel=0.1)
    spreads = [float(shares @ degrees**2) for degrees, shares in found.values()]
    assert spreads[1:] == sorted(spreads[1:])[::-1]
    assert spreads[0] > spreads[2]


@pytest.mark.parametrize("original", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_values_and_their_pairs_keep_the_links_that_are_expected(original: bool, seed: int) -> None:
    rng, rows = np.random.default_rng(seed), side(seed)
    real = degrees_of("skewed", len(rows.rows), rng)
    expected = rng.gamma(2, 1, len(rows.types)) * rows.sizes
    expected *= real.sum() / expected.sum()
    known = Popularity(weights=real + rng.normal(0, 2, len(real)), variance=4.0, original=original, linked=(0.9, 1e-3))
    found = numbers(known, rows, expected, 10**6, rng)
    assert found.min() >= 0
    assert found.sum() == np.rint(expected.sum())
    codes, mean = rows.types[rows.rows].T, (expected / rows.sizes)[rows.rows]
    for one, other in itertools.combinations(codes, 2):
        cell = one * 10 + other
        ours, wanted = np.bincount(cell, found), np.bincount(cell, mean)
        # The last scaling is that to all links; rounding adds half a link for each row or so.
        assert np.abs(ours - wanted).max() <= 0.05 * wanted.max() + np.bincount(cell).max()
    if original:
        alike = np.corrcoef(np.argsort(np.argsort(found)), np.argsort(np.argsort(real)))[0, 1]
        assert alike > 0.6


def test_no_row_has_more_links_than_there_are_partners() -> None:
    rng, rows = np.random.default_rng(1), side(1, 50)
    real = degrees_of("tail", 50, rng)
    known = Popularity(weights=real.astype(float), variance=1.0, original=True)
    found = numbers(known, rows, rows.sizes * 18.0, 20, rng)
    assert found.max() <= 20
    assert found.sum() == pytest.approx(50 * 18, abs=20)


def test_rows_are_measured_where_their_spread_shows() -> None:
    assert worth(1_000, 10_000.0, 0.01, 1)
    assert not worth(1_000, 100.0, 0.01, 1)
    assert not worth(1_000, 10_000.0, 0.01, 100)


@pytest.mark.parametrize("held", [[3900, 10, 10, 10], [0, 0, 0, 7], [9000, 0, 0, 0]])
@pytest.mark.parametrize("most", [3300, 925, 1])
def test_rows_have_all_links_of_their_type_however_uneven_they_are(held: list[int], most: int) -> None:
    """Scaling in turn came to an end before the small rows had what the largest one cannot hold, and the draw failed."""
    found = settled(np.array(held), np.array([4]), np.array([3700]), np.array([most]), 1.0, np.random.default_rng(1))
    assert found.sum() == 3700
    assert found.max() <= max(most, 925) + 1
