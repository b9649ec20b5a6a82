"""Values inside bins lean as the bins beside them."""

import numpy as np
import pytest
from scipy.stats import kstest, wasserstein_distance

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.synthesis.table.columns import leaning, values

SHAPES = {
    "lognormal": (lambda rng: rng.lognormal(10, 0.6, 20_000), (0, 10_000, 20_000, 30_000, 50_000, 100_000, 500_000)),
    "normal": (lambda rng: rng.normal(50, 15, 20_000).clip(0, 100), (0, 20, 40, 60, 80, 100)),
    "exponential": (lambda rng: rng.exponential(20, 20_000).clip(0, 199), (0, 10, 25, 50, 100, 200)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_nearer_than_even_ones_and_stay_in_their_bins(shape: str) -> None:
    rng = np.random.default_rng(1)
    draw, edges = SHAPES[shape]
    true, attribute = draw(rng), Attribute(name="x", type="DOUBLE", kind="bins", points=edges)
    codes = np.digitize(true, edges[1:-1])
    shares = values(attribute, codes, rng)
    assert (np.floor(shares) == codes).all()

    def placed(found: np.ndarray) -> np.ndarray:
        return np.interp(found, np.arange(len(edges)), edges)

    even = placed(codes + rng.random(len(codes)))
    assert wasserstein_distance(placed(shares), true) < 0.8 * wasserstein_distance(even, true)


def test_a_bin_follows_its_line() -> None:
    """By KS, which refuses an even bin."""
    rng, attribute = np.random.default_rng(2), Attribute(name="x", type="INTEGER", kind="bins", points=(0, 10, 20, 30))
    codes = np.repeat([0, 1, 2], [1_000, 2_000, 3_000])
    (_, t, _) = leaning(np.array([0.0, 10, 20, 30]), np.array([1_000, 2_000, 3_000]))
    assert t == pytest.approx(0.25)
    middle = values(attribute, codes, rng)[1_000:3_000] - 1
    assert kstest(middle, lambda u: u + t * (u**2 - u)).pvalue > 1e-3
    assert kstest(middle, "uniform").pvalue < 1e-3


@pytest.mark.parametrize("points", [(0, 10), (0, 10, 20), (-1e308, 0.0, 1e308), (0.0, 5e-324, 1.0)])
def test_odd_bins_and_other_cells(points: tuple[float, ...]) -> None:
    attribute = Attribute(name="x", type="DOUBLE", kind="bins", points=points, other=True, nulls=True)
    codes = np.arange(attribute.size).repeat(3)
    found = values(attribute, codes, np.random.default_rng(3))
    assert (np.floor(found) == codes).all()
    assert np.isfinite(leaning(np.array(points, np.float64), np.zeros(len(points) - 1))).all()
