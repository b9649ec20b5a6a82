"""How far single attributes are from the truth, found by trial."""

import math

import numpy as np
import pytest

from duckdb_dp.adaptive.neyman.allocation import effective, squared_distance
from duckdb_dp.adaptive.neyman.alone import spreads
from duckdb_dp.reconstruct.nonneg import simplex


@pytest.mark.parametrize("shape", ["even", "tail", "one", "gaps"])
@pytest.mark.parametrize("stddev", [3.0, 30.0, 300.0])
def test_the_error_of_an_estimate_is_that_of_its_noise_made_up_again(shape: str, stddev: float) -> None:
    size, total = 60, 20_000.0
    weights = {
        "even": np.ones(size), "tail": 1 / (1.0 + np.arange(size)) ** 2, "one": np.eye(size)[3], "gaps": np.arange(size) % 3 == 0,
    }[shape]  # fmt: skip
    truth, rng = total * weights / weights.sum(), np.random.default_rng(7)
    errors, expected = [], []
    for _ in range(60):
        noise = rng.normal(0, stddev, size)
        table = simplex(truth + noise - noise.mean(), total)
        errors.append(np.abs(table - truth).sum())
        ((cells, known),) = spreads({("a",): table}, {("a",): stddev**-2}).values()
        assert cells >= effective(table, 0.5)
        assert known >= stddev**-2 * (1 - 1e-9)
        expected.append(math.sqrt(squared_distance(cells, 1 / known)))
    # High where all rows have one value, as its estimate has small counts that the truth has not.
    assert 0.75 < np.mean(expected) / np.mean(errors) < (1.6 if shape == "one" else 1.35)


def test_what_is_not_measured_has_the_spread_of_its_counts() -> None:
    table = np.array([900.0, 90.0, 10.0])
    assert spreads({("a",): table}, {}) == {("a",): (effective(table, 0.5), 0.0)}


def test_where_noise_is_all_more_precision_is_known_to_gain_little() -> None:
    """The error at four times the precision is foreseen, whether noise is small beside the counts or drowns them."""
    size, total, rng = 60, 20_000.0, np.random.default_rng(8)
    truth = total * rng.dirichlet(np.full(size, 0.5))
    foreseen = {}
    for stddev in (10.0, 30_000.0):
        gains, expected = [], []
        for _ in range(60):
            noise = rng.normal(0, stddev, size)
            tables = [simplex(truth + part * (noise - noise.mean()), total) for part in (1.0, 0.5)]
            gains.append([np.abs(table - truth).sum() for table in tables])
            ((_, known),) = spreads({("a",): tables[0]}, {("a",): stddev**-2}).values()
            expected.append(math.sqrt((known + 3 * stddev**-2) / known))
        before, after = np.mean(gains, axis=0)
        foreseen[stddev] = np.mean(expected)
        assert foreseen[stddev] == pytest.approx(before / after, rel=0.25)
    assert foreseen[10.0] > 1.4 > foreseen[30_000.0]
