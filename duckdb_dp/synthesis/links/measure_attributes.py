"""Measures the attributes of the links: each alone, how far its pairs are from independent, and then the pairs for which it pays."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from duckdb_dp.adaptive.neyman.allocation import allocate, certain, effective, scored, squared_distance
from duckdb_dp.adaptive.neyman.scores import SHARES, posterior, price
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Centring, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.links.link_attributes import distribution
from duckdb_dp.synthesis.links.per_unit import measure_distances, measure_shares

CELLS, HELD = 2**20, 2**25
"""Most cells of one pair that is measured with an attribute of the links, and of all of them together: 3 GiB."""

ALONE = 0.1
"""Share of what is spent for the attributes alone; the rest is for pairs."""

SCORES, SCORED = 0.2, 0.014
"""Share of what is spent for the distances of pairs from independent ones, at most, and their standard deviation, over the
links or units, of which a smaller one is not worth more."""

LOUDEST, UNPAIRED = 0.6, 0.6
"""L1 norm of the noise of a pair, over the units, were all measured alike, above which none is measured: they would not be told from
noise, and shuffled values are as good. Then this share of what was to be spent is, on the attributes alone."""

ROUNDING = 1 - 1e-9
"""Keeps a sum of shares of rho within what is left of it."""


def wanted(
    domain: Domain, attributes: Sequence[str], others: Clique, rho: float, units: float | None
) -> tuple[list[Clique], float]:
    """(pairs of an attribute of the links and another one that are looked at, what to spend).

    Args:
        domain: of all attributes.
        attributes: those of the links.
        others: those of both sides.
        rho: what may be spent.
        units: how many units have links, as measured, where links are counted unit by unit.

    Privacy: post-processing.
    """
    together = [pair for pair in pairs(domain, attributes, others) if all(domain.sizes[name] > 1 for name in pair)]
    loudness = 0.0 if units is None else _loudness(domain, together, rho) / units
    return ([], UNPAIRED * rho) if loudness > LOUDEST else (together, rho)


def measure_attributes(
    queryable: PrivateQueryable,
    attributes: Sequence[str],
    together: Sequence[Clique],
    total: float,
    ends: Mapping[str, Integers],
    weights: Array,
    *,
    by_unit: bool,
) -> list[LinearMeasurement]:
    """Residuals of the links' attributes: alone, and with another attribute where they depend on it.

    The attributes of the sides are not measured: the links have them already when theirs are drawn. All pairs are compared with
    independent ones, in one vector of noisy L1 distances; then the budget is divided so that the L1 errors of all pairs together are
    least, as mechanism 'neyman' does. Where links are counted unit by unit, those of one unit weigh 1 together: how an attribute
    depends on others is much the same then, and noise is less.

    Args:
        queryable: what measures.
        attributes: those of the links.
        together: the pairs that ``wanted`` returned.
        total: links of the original, or units that have any where they are counted unit by unit, noisy.
        ends: for each attribute of both sides its code at every link that was drawn.
        weights: what each of these weighs in such a total: 1, or 1/k where its unit has k.
        by_unit: whether links are counted unit by unit.

    Privacy: spends all that ``queryable`` has left, where there is anything to measure.
    """
    domain, rho = queryable.domain, queryable.left * ROUNDING
    measure = measure_shares if by_unit else PrivateQueryable.measure_residuals
    singles = [(name,) for name in attributes if domain.sizes[name] > 1]
    if not singles or rho <= 0:
        return []
    share = (ALONE if together else 1.0) * rho / len(singles)
    alone = {one.clique: one for one in measure(queryable, [(clique, share) for clique in singles])}
    if not together:
        return list(alone.values())
    rows = {name: np.bincount(codes, weights, domain.sizes[name]) / weights.sum() for name, codes in ends.items()}
    rows |= {clique[0]: distribution(one, total) for clique, one in alone.items()}
    estimates = {pair: total * np.multiply.outer(*(rows[name] for name in pair)) for pair in together}
    each = 1 if by_unit else queryable.rows
    scoring = min(SCORES * rho, price(len(together), each, SCORED * total))
    noisy, variance = measure_distances(queryable, estimates, scoring, by_unit=by_unit)
    cases = total * SHARES
    chances = posterior(noisy, math.sqrt(variance), cases)
    left = (1 - ALONE) * rho - scoring
    known = {
        clique: certain(effective(total * rows[clique[0]]), _cost(domain, clique), 1 / one.variance)
        for clique, one in alone.items()
    }
    error = {c: squared_distance(known[c].cells, one.variance) for c, one in alone.items()}
    found = {
        pair: scored(
            effective(table), _cost(domain, pair), 0.0, cases, chance, sum(error.get((name,), 0.0) for name in pair)
        )
        for (pair, table), chance in zip(estimates.items(), chances, strict=True)
    }
    budget = 2 * left / each**2
    added = allocate(known | found, dict.fromkeys(together, 1.0), budget, budget)
    costs = {clique: precision * _cost(domain, clique) for clique, precision in added.items()}
    spent = left * ROUNDING / sum(costs.values())
    for again in measure(queryable, [(clique, cost * spent) for clique, cost in costs.items()]):
        alone[again.clique] = _mean(alone[again.clique], again) if again.clique in alone else again
    return list(alone.values())


def pairs(domain: Domain, attributes: Sequence[str], others: Clique) -> list[Clique]:
    """Pairs of an attribute of the links and another one, small ones first: as many as fit into memory."""
    candidates = (domain.clique((a, b)) for a in attributes for b in (*others, *(c for c in attributes if c > a)))
    chosen, room = [], HELD
    for pair in sorted(candidates, key=domain.cells):
        room -= domain.cells(pair)
        if room >= 0 and domain.cells(pair) <= CELLS:
            chosen.append(pair)
    return chosen


def _cost(domain: Domain, clique: Clique) -> float:
    """The squared sensitivity of a residual."""
    return Centring(domain.shape(clique)).squared_sensitivity


def _mean(one: LinearMeasurement, other: LinearMeasurement) -> LinearMeasurement:
    """Two measurements of one residual as one, by inverse variance."""
    precision = 1 / one.variance + 1 / other.variance
    answers = (one.answers / one.variance + other.answers / other.variance) / precision
    return LinearMeasurement(clique=one.clique, strategy=one.strategy, answers=answers, variance=1 / precision)


def _loudness(domain: Domain, together: Sequence[Clique], rho: float) -> float:
    """The L1 norm of the noise of a pair, in units, mean over all."""
    if not together:
        return 0.0
    stddev = math.sqrt(len(together) / (2 * (1 - ALONE) * rho))
    return math.sqrt(2 / math.pi) * stddev * sum(map(domain.cells, together)) / len(together)
