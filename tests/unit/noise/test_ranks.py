"""Selected quantiles: exactly the probabilities of the definition, and on neighbouring tables no more than they cost."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from duckdb_dp.accounting.base import ACCOUNTINGS, GDP, PURE, ZCDP, Accounting
from duckdb_dp.noise import ranks
from duckdb_dp.noise.ranks import selected
from duckdb_dp.noise.uniform import SystemEntropy
from duckdb_dp.plan.selection import Selection, rank_variances
from duckdb_dp.testing import NoNoise, SeededEntropy

Outcome = tuple[float, ...]


def chances(
    counts: list[int], pieces: list[int], asked: list[float], cost: float, accounting: Accounting, k: int
) -> dict[Outcome, float]:
    """The probability of every outcome, by the definition, point by point."""
    points = [
        (cell + (2 * j + 1) / (2 * p), cell, (2 * j + 1) / (2 * p)) for cell, p in enumerate(pieces) for j in range(p)
    ]
    rank = [sum(counts[:cell]) + counts[cell] * share for _, cell, share in points]

    def part(
        first: int, last: int, low: float, high: float, qs: list[float], start: float, end: float, left: float
    ) -> Iterator[tuple[Outcome, float]]:
        if not qs:
            yield (), 1.0
            return
        middle = len(qs) // 2
        spent = left / (math.floor(math.log2(len(qs))) + 1)
        epsilon = accounting.selection_epsilon(spent)
        inside = (qs[middle] - start) / (end - start)
        rate = epsilon / (2 * k * max(inside, 1 - inside))
        weights = [
            math.exp(-rate * abs(rank[i] - low - inside * (high - low))) / pieces[points[i][1]]
            for i in range(first, last + 1)
        ]
        for i, weight in zip(range(first, last + 1), weights, strict=True):
            before = part(first, i, low, rank[i], qs[:middle], start, qs[middle], left - spent)
            after = list(part(i, last, rank[i], high, qs[middle + 1 :], qs[middle], end, left - spent))
            for (one, p), (two, r) in product(list(before), after):
                yield (*one, points[i][0], *two), weight / sum(weights) * p * r

    found: dict[Outcome, float] = {}
    for outcome, chance in part(0, len(points) - 1, 0.0, float(sum(counts)), asked, 0.0, 1.0, cost):
        found[outcome] = found.get(outcome, 0.0) + chance
    return found


TABLES = [[3, 0, 4, 1], [0, 0, 0, 0], [9, 0, 0, 2], [0, 1, 1, 12]]
ASKED = [[0.5], [0.25, 0.6], [0.0, 0.5, 0.9], [0.2, 0.4, 0.6, 0.8]]


def neighbours(counts: list[int], k: int) -> Iterator[list[int]]:
    """All tables with one unit more, of k rows."""
    for cells in product(range(len(counts)), repeat=k):
        yield [count + cells.count(cell) for cell, count in enumerate(counts)]


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("accounting", ACCOUNTINGS.values(), ids=str)
def test_a_unit_more_costs_no_more_than_is_charged(accounting: Accounting, k: int, asked: list[float]) -> None:
    """Every outcome of every neighbour: log ratios of pure DP, Renyi divergences of zCDP, the trade-off curve of Gaussian DP."""
    cost, closest = 1.5, 0.0
    for counts in TABLES[:2] if len(asked) > 2 else TABLES:
        pieces = [1, 1, 2, 1] if len(asked) < 3 else [1, 1, 1, 2]
        here = chances(counts, pieces, asked, cost, accounting, k)
        for other in neighbours(counts, k):
            there = chances(other, pieces, asked, cost, accounting, k)
            p, q = (np.array([table[key] for key in here]) for table in (here, there))
            for one, two in ((p, q), (q, p)):
                if accounting is PURE:
                    spent = float(np.abs(np.log(one / two)).max()) / cost
                elif accounting is ZCDP:
                    logs = np.log(one), np.log(two)
                    bounds = [(logsumexp(a * logs[0] + (1 - a) * logs[1]) / (a - 1), cost * a) for a in (1.1, 2, 8, 40)]
                    spent = max(found / allowed for found, allowed in bounds)
                else:
                    mu = math.sqrt(cost)
                    deltas = [
                        (np.maximum(one - math.exp(e) * two, 0).sum(), gaussian_delta(mu, e))
                        for e in (-1, 0, 0.5, 1, 2)
                    ]
                    spent = max(found / allowed for found, allowed in deltas)
                closest = max(closest, spent)
    assert closest <= 1 + 1e-9
    assert closest > 0.05  # and it is no empty promise


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-Gaussian DP."""
    phi = stats.norm.cdf
    return float(phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu))


def test_it_would_see_a_unit_that_is_charged_as_one_row() -> None:
    asked, cost = [0.5], 1.5
    here, there = (chances(c, [1] * 4, asked, cost, PURE, 1) for c in ([3, 0, 4, 1], [3, 0, 4, 3]))
    assert max(abs(math.log(here[key] / there[key])) for key in here) > cost


@pytest.mark.parametrize("accounting", ACCOUNTINGS.values(), ids=str)
def test_costs_of_selections_are_star_shaped(accounting: Accounting) -> None:
    """c(t epsilon) <= t c(epsilon): what units that are in several parts rest on."""
    for epsilon in np.geomspace(1e-6, 60, 60):
        whole = accounting.selection_cost(float(epsilon))
        for t in (1e-3, 0.1, 0.5, 0.9, 0.999):
            assert accounting.selection_cost(float(t * epsilon)) <= t * whole * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [1.0, 0.6])
def test_outcomes_come_as_often_as_they_should(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pearson's test, which refuses a cost that is two fifths off."""
    monkeypatch.setattr(ranks, "POINTS", 4)
    counts, expected, asked, cost, draws = [3, 0, 4, 1], np.array([0.0, 0.0, 4.0, 0.0]), [0.3, 0.7], 2.0, 3_000
    bits = SeededEntropy(5)
    rule = {"cost": cost, "accounting": ZCDP, "rows": 1, "bits": bits}
    drawn = [tuple(selected(np.array(counts), expected, asked, **rule).tolist()) for _ in range(draws)]
    known = chances(counts, [1, 1, 5, 1], asked, cost * wrong, ZCDP, 1)
    assert {round(x, 9) for pair in drawn for x in pair} <= {round(x, 9) for pair in known for x in pair}
    index = {tuple(round(x, 9) for x in outcome): place for place, outcome in enumerate(known)}
    found = np.bincount([index[tuple(round(x, 9) for x in pair)] for pair in drawn], minlength=len(known))
    chance = np.array(list(known.values())) * draws
    often = chance > 10
    pvalue = stats.chisquare([*found[often], found[~often].sum()], [*chance[often], chance[~often].sum()]).pvalue
    assert (pvalue > 1e-6) == (wrong == 1.0)


@pytest.mark.parametrize("accounting", [GDP, ZCDP, PURE], ids=str)
def test_without_noise_the_quantiles_themselves(accounting: Accounting) -> None:
    rng = np.random.default_rng(3)
    for n in (1, 7, 300):
        counts = rng.multinomial(5_000, rng.dirichlet(np.full(n, 0.1)))
        asked = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99]
        found = selected(counts, counts.astype(float), asked, cost=1e4, accounting=accounting, rows=3, bits=NoNoise())
        upto = np.cumsum(counts)
        assert (np.diff(found) >= 0).all()
        for q, cell in zip(asked, np.floor(found).astype(int), strict=True):
            assert upto[cell] - counts[cell] - 3 <= q * 5_000 <= upto[cell] + 3


def test_no_rows_and_one_atom() -> None:
    bits = SystemEntropy()
    asked = [0.25, 0.5]
    empty = selected(np.zeros(5, np.int64), np.zeros(5), asked, cost=0.1, accounting=ZCDP, rows=1, bits=bits)
    assert (empty >= 0).all()
    assert (empty < 5).all()
    atom = np.array([0, 10**9, 0])
    found = selected(atom, atom.astype(float), asked, cost=0.1, accounting=ZCDP, rows=1, bits=bits)
    assert found.tolist() == pytest.approx([1.25, 1.5], abs=1e-3)


@pytest.mark.parametrize("quantiles", [(0.5,), (0.25, 0.5, 0.75), (0.1, 0.2, 0.3, 0.9)])
def test_ranks_err_as_predicted(quantiles: tuple[float, ...]) -> None:
    """On rows in many cells; 500 draws know a variance to 9 %, and what is predicted leaves out the ends of parts."""
    counts, bits = np.full(1500, 10), SeededEntropy(3)
    selection = Selection(
        name="", clique=(), shape=(), axis=0, quantiles=quantiles, cost=0.03, accounting=GDP, rows=1, fitted=lambda _: counts
    )  # fmt: skip
    drawn = [
        selected(counts, counts.astype(float), quantiles, cost=0.03, accounting=GDP, rows=1, bits=bits)
        for _ in range(500)
    ]
    ranks = 10 * np.array(drawn) - 15_000 * np.array(quantiles)
    ratio = (ranks**2).mean(axis=0) / rank_variances(selection)
    assert ((ratio > 0.7) & (ratio < 1.5)).all()
