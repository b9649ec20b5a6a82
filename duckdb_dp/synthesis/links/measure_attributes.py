"""Measures the attributes of the links: each alone, how far its pairs are from independent, and then the pairs for which it pays."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from duckdb_dp.adaptive.neyman.allocation import allocate, certain, effective, scored, squared_distance
from duckdb_dp.adaptive.neyman.scores import SHARES, posterior, price
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Centring, Distance, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.links.link_attributes import NoisyAttribute, NoisyPair, distribution
from duckdb_dp.synthesis.links.matches import Match, extended, merged

CELLS, HELD = 2**20, 2**25
"""Most cells of one pair that is measured with an attribute of the links, and of all of them together: 3 GiB."""

ALONE = 0.1
"""Share of what is spent for the attributes alone; the rest is for pairs."""

SCORES, SCORED = 0.2, 0.014
"""Share of what is spent for the distances of pairs from independent ones, at most, and their standard deviation, over the links, of
which a smaller one is not worth more."""

ROUNDING = 1 - 1e-9
"""Keeps a sum of shares of rho within what is left of it."""


def measure_attributes(
    queryable: PrivateQueryable,
    attributes: Sequence[str],
    total: float,
    ends: Mapping[str, Integers],
    matches: Sequence[Match] = (),
) -> dict[str, NoisyAttribute]:
    """The links' attributes where no one unit holds the links: residuals alone, and with other attributes where they depend on them.

    The attributes of the sides are not measured: the links have them already when theirs are drawn. All pairs are compared with
    independent ones, in one vector of noisy L1 distances; then the budget is divided so that the L1 errors of all pairs together are
    least, as mechanism 'neyman' does.

    Args:
        queryable: what measures.
        attributes: those of the links.
        total: links of the original, noisy.
        ends: for each attribute of both sides, and each match, its code at every link that was drawn.
        matches: attributes that follow from two others.

    Privacy: spends all that ``queryable`` has left, where there is anything to measure.
    """
    domain, rho = extended(queryable.domain, matches), queryable.left * ROUNDING
    singles = [(name,) for name in attributes if domain.sizes[name] > 1]
    if not singles or rho <= 0:
        return {name: NoisyAttribute(shares=np.full(domain.sizes[name], 1 / domain.sizes[name])) for name in attributes}
    together = [p for p in pairs(domain, attributes, tuple(ends)) if _counted(queryable.domain, matches, p) <= CELLS]
    share = (ALONE if together else 1.0) * rho / len(singles)
    measured = {one.clique: one for one in queryable.measure_residuals([(clique, share) for clique in singles])}
    if together:
        rows = {name: np.bincount(codes, minlength=domain.sizes[name]) / len(codes) for name, codes in ends.items()}
        rows |= {clique[0]: distribution(one, total) for clique, one in measured.items()}
        asked = _allocated(queryable, measured, together, total, rows, rho, matches)
        for again in _residuals(queryable, asked, matches):
            measured[again.clique] = _mean(measured[again.clique], again) if again.clique in measured else again
    return {name: _attribute(domain, name, measured, total) for name in attributes}


def _allocated(
    queryable: PrivateQueryable,
    alone: Mapping[Clique, LinearMeasurement],
    together: Sequence[Clique],
    total: float,
    rows: Mapping[str, Array],
    rho: float,
    matches: Sequence[Match],
) -> dict[Clique, float]:
    """What to spend on each pair, and again on each attribute alone.

    Privacy: spends at most ``SCORES`` of rho on the distances of pairs from independent ones.
    """
    domain, each = extended(queryable.domain, matches), queryable.rows
    estimates = {pair: total * np.multiply.outer(*(rows[name] for name in pair)) for pair in together}
    scoring = min(SCORES * rho, price(len(together), each, SCORED * total))
    share = scoring / len(together) * (1 - 1e-12)
    distances = {pair: Distance(table.reshape(-1)) for pair, table in estimates.items()}
    noisy = queryable.answer_all(
        [(*merged(queryable.domain, matches, pair, distance), share) for pair, distance in distances.items()]
    )
    cases = total * SHARES
    chances = posterior(np.concatenate([answers for answers, _ in noisy]), math.sqrt(noisy[0][1]), cases)
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
    return {clique: cost * spent for clique, cost in costs.items()}


def _residuals(
    queryable: PrivateQueryable, asked: Mapping[Clique, float], matches: Sequence[Match]
) -> list[LinearMeasurement]:
    """The residual of each clique, with what to spend on it.

    Privacy: spends the sum of what is asked.
    """
    domain = extended(queryable.domain, matches)
    queries = {clique: Centring(domain.shape(clique)) for clique in asked}
    steps = [(*merged(queryable.domain, matches, c, query), asked[c]) for c, query in queries.items()]
    return [
        LinearMeasurement(clique=clique, strategy=query, answers=answers, variance=variance)
        for (clique, query), (answers, variance) in zip(queries.items(), queryable.answer_all(steps), strict=True)
    ]


def _attribute(domain: Domain, name: str, measured: Mapping[Clique, LinearMeasurement], total: float) -> NoisyAttribute:
    """An attribute with its measured pairs."""
    if (name,) not in measured:
        return NoisyAttribute(shares=np.ones(1))
    found = []
    for clique, one in measured.items():
        if len(clique) == 2 and name in clique:
            other = clique[1 - clique.index(name)]
            table = one.answers.reshape(domain.shape(clique))
            shape = domain.sizes[name], domain.sizes[other]
            found.append(
                NoisyPair(
                    other=other,
                    scales=(np.ones(shape[0]), np.ones(shape[1])),
                    centre=np.full(shape[1], 1 / shape[1]),
                    table=table if clique[0] == name else table.T,
                    variance=one.variance,
                )
            )
    return NoisyAttribute(shares=distribution(measured[name,], total), pairs=found)


def candidates(domain: Domain, attributes: Sequence[str], others: Clique) -> list[Clique]:
    """All pairs of an attribute of the links and another one, small ones first."""
    found = (domain.clique((a, b)) for a in attributes for b in (*others, *(c for c in attributes if c > a)))
    return sorted((pair for pair in found if min(domain.shape(pair)) > 1), key=domain.cells)


def pairs(domain: Domain, attributes: Sequence[str], others: Clique) -> list[Clique]:
    """As many ``candidates`` as fit into memory."""
    chosen, room = [], HELD
    for pair in candidates(domain, attributes, others):
        room -= domain.cells(pair)
        if room >= 0 and domain.cells(pair) <= CELLS:
            chosen.append(pair)
    return chosen


def _counted(domain: Domain, matches: Sequence[Match], pair: Clique) -> int:
    """Cells of all attributes from which those of a pair follow."""
    ends = {match.name: (match.left, match.right) for match in matches}
    return domain.cells(tuple(dict.fromkeys(end for name in pair for end in ends.get(name, (name,)))))


def _cost(domain: Domain, clique: Clique) -> float:
    """The squared sensitivity of a residual."""
    return Centring(domain.shape(clique)).squared_sensitivity


def _mean(one: LinearMeasurement, other: LinearMeasurement) -> LinearMeasurement:
    """Two measurements of one residual as one, by inverse variance."""
    precision = 1 / one.variance + 1 / other.variance
    answers = (one.answers / one.variance + other.answers / other.variance) / precision
    return LinearMeasurement(clique=one.clique, strategy=one.strategy, answers=answers, variance=1 / precision)
