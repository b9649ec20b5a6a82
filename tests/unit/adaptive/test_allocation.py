"""Where 'neyman' puts its budget: the optimum, what scores say, and what is not worth measuring."""

import itertools
import math

import numpy as np
import pytest

from duckdb_dp.adaptive.neyman.allocation import (
    CASES,
    Residual,
    allocate,
    certain,
    expected_error,
    prior_precision,
    scored,
    uneven,
)
from duckdb_dp.adaptive.neyman.scores import SHARES, posterior
from duckdb_dp.domain.domain import Clique

NAMES = "abcd"
PAIRS: list[Clique] = list(itertools.combinations(NAMES, 2))
ASKED = dict.fromkeys(PAIRS, 1.0)
ROWS = 1000.0


def residuals(share: float, spread: float = 0.0) -> dict[Clique, Residual]:
    """The total, singles that are measured a little, and pairs at about that share of the rows from their products."""
    rng = np.random.default_rng(1)
    found: dict[Clique, Residual] = {(): certain(1.0, 1.0, 0.01)}
    found |= {(name,): certain(5.0 + i, 0.8, 0.001) for i, name in enumerate(NAMES)}
    for pair in PAIRS:
        chances = rng.dirichlet(np.ones(CASES)) if spread else np.full(CASES, 1 / CASES)
        cases = ROWS * share * np.exp(spread * np.linspace(-1, 1, CASES))
        found[pair] = scored(rng.uniform(20, 60), 0.7, 0.0, cases, chances, 0.0)
    return found


@pytest.mark.parametrize("share", [0.1, 0.8])
@pytest.mark.parametrize("budget", [0.01, 1.0])
def test_all_is_spent_and_no_other_division_is_better(share: float, budget: float) -> None:
    known = residuals(share, spread=1.0)
    added = allocate(known, ASKED, budget, budget)
    assert sum(known[clique].cost * x for clique, x in added.items()) == pytest.approx(budget)
    least, rng = expected_error(known, ASKED, added), np.random.default_rng(2)
    tried = {clique: x for clique, x in added.items() if x > 0}
    for _ in range(50):
        other = {clique: x * np.exp(rng.normal(0, 0.3)) for clique, x in tried.items()}
        cost = sum(known[clique].cost * x for clique, x in other.items())
        assert expected_error(known, ASKED, {c: x * budget / cost for c, x in other.items()}) > 0.999 * least


def test_what_is_near_enough_is_not_measured() -> None:
    """Pairs near their products get nothing of a small budget, pairs far from them most of it."""
    near, far = (allocate(residuals(share), ASKED, 0.01, 0.01) for share in (0.02, 1.5))
    assert not near.keys() & ASKED.keys()
    assert far.keys() >= ASKED.keys()
    # A few times more of the same is worth it.
    assert allocate(residuals(0.02), ASKED, 1e3, 1e3).keys() >= ASKED.keys()


def test_a_round_buys_singles_first_and_pairs_in_proportion() -> None:
    known = residuals(0.8)
    whole, part = (allocate(known, ASKED, 1.0, now) for now in (1.0, 0.5))
    singles = [clique for clique in known if len(clique) < 2 and clique in whole]
    assert {clique: part[clique] for clique in singles} == pytest.approx({clique: whole[clique] for clique in singles})
    assert np.ptp([part[pair] / whole[pair] for pair in PAIRS]) == pytest.approx(0, abs=1e-9)
    assert sum(known[clique].cost * x for clique, x in part.items()) == pytest.approx(0.5)


def test_noise_of_singles_is_no_sign_of_a_pair() -> None:
    chances = np.full(CASES, 1 / CASES)
    explained = scored(30.0, 0.7, 0.0, SHARES * ROWS, chances, (SHARES[-1] * ROWS) ** 2)
    assert (explained.known >= scored(30.0, 0.7, 0.0, SHARES * ROWS, chances, 0.0).known).all()
    assert np.ptp(explained.known) == pytest.approx(0)


def test_where_an_estimate_is_nearly_all_wrong_few_cells_err() -> None:
    """Of two equal attributes of n values each error is known: with all that the distance says its energy is right within a tenth."""
    for n in (20, 100, 500):
        cells, share = n * n - 1.0, 2 * (1 - 1 / n)
        energy = (1 - 1 / n) ** 2 / n + (n * n - n) / n**4
        erring = uneven(cells, share)
        assert erring == pytest.approx(2 * math.pi * n)
        assert 1 / prior_precision(share, cells, erring) == pytest.approx(energy / cells, rel=0.1)


def test_all_cells_err_where_they_may() -> None:
    assert uneven(3.0, 2.0) == 3.0  # of few cells all do
    assert [uneven(2500.0, share) for share in (0.0, 0.5, 1.0, 1.5)] == [2500.0] * 4
    fewer = [uneven(2500.0, share) for share in np.linspace(1.5, 2.0, 20)]
    assert fewer == sorted(fewer, reverse=True)


def test_clear_scores_are_believed() -> None:
    cases = SHARES * ROWS
    chances = posterior(cases[[3, 20, 40]], 1e-3, cases)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert chances @ cases == pytest.approx(cases[[3, 20, 40]])


def test_of_scores_in_noise_what_they_have_in_common_is_seen() -> None:
    rng, cases = np.random.default_rng(3), SHARES * ROWS
    for true in (50.0, 300.0):
        noisy = true + rng.normal(0, 300, 200)
        means = posterior(noisy, 300.0, cases) @ cases
        assert np.mean(means) == pytest.approx(true, rel=0.3, abs=50)
        assert np.std(means) < 0.4 * np.std(noisy)


def test_what_is_measured_later_is_left_its_part() -> None:
    """It takes its part of the plan, and the others get no more for it."""
    known = residuals(0.8)
    both, now = (allocate(known, ASKED, 1.0, 0.4, later) for later in ((), PAIRS[:3]))
    assert not now.keys() & set(PAIRS[:3])
    assert now == {clique: x for clique, x in both.items() if clique not in PAIRS[:3]}
    assert sum(known[clique].cost * x for clique, x in now.items()) < 0.3
