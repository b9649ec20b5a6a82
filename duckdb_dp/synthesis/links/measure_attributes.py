"""Measures the attributes of the links: each alone, how far its pairs are from independent, and then the pairs for which it pays."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.adaptive.neyman.allocation import allocate, certain, effective, scored, squared_distance
from duckdb_dp.adaptive.neyman.scores import SHARES, posterior, price
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Centring, Distance, Integers, Measurable
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.likeness import group_of
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.links.link_attributes import NoisyAttribute, NoisyPair, distribution, summed
from duckdb_dp.synthesis.links.matches import Match, counted_by, extended, merged
from duckdb_dp.synthesis.links.pair_groups import LOUDEST, Wanted, candidates, finest, free

COUNTED, HELD = 2**24, 2**25
"""Most cells of one pair of single values that is counted, and of all of them together: 1 GiB."""

ALONE = 0.1
"""Share of what is spent for the attributes alone; the rest is for pairs."""

SCORES, SCORED = 0.2, 0.014
"""Share of what is spent for the distances of pairs from independent ones, at most, and their standard deviation, over the links, of
which a smaller one is not worth more."""

EVEN, FEWEST = 2.0, 8
"""How many times an even share of the budget for pairs groups are made for, as pairs that depend get more; and groups at least: in fewer,
L1 distances of pairs of a shop's purchases were 0.130 at epsilon 1, and 0.119 with these or none."""

ROUNDING = 1 - 1e-9
"""Keeps a sum of shares of rho within what is left of it."""


def measure_attributes(
    queryable: PrivateQueryable,
    attributes: Sequence[str],
    total: float,
    ends: Mapping[str, Integers],
    matches: Sequence[Match] = (),
) -> tuple[dict[str, NoisyAttribute], Wanted]:
    """The links' attributes where no one unit holds the links: residuals alone, and with other attributes where they depend on them.

    The attributes of the sides are not measured: the links have them already when theirs are drawn. Where noise would drown single values
    of a pair at ``EVEN`` times an even share of the budget, values are put into groups of neighbours, into as many as let no pair drown.
    All pairs are compared with independent ones, in one vector of noisy L1 distances; then the budget is divided so that the L1 errors of
    all pairs together are least, as mechanism 'neyman' does.

    Formula: with rho_j of a pair of n free numbers the squared L2 norm of its noise, in coordinates in which its dependence has its
    chi-squared over the N links, is k^2 n^2 / (2 rho_j N^2).

    Args:
        queryable: what measures.
        attributes: those of the links.
        total: links of the original, noisy.
        ends: for each attribute of both sides, and each match, its code at every link that was drawn.
        matches: attributes that follow from two others.

    Returns:
        (the attributes, which of their pairs were measured).

    Privacy: spends all that ``queryable`` has left, where there is anything to measure.
    """
    domain, rho = extended(queryable.domain, matches), queryable.left * ROUNDING
    pairs = candidates(domain, attributes, tuple(ends))
    together = countable(queryable.domain, pairs, matches)
    singles = [(name,) for name in attributes if domain.sizes[name] > 1]
    if not singles or rho <= 0:
        even = {name: NoisyAttribute(shares=np.full(domain.sizes[name], 1 / domain.sizes[name])) for name in attributes}
        return even, Wanted(pairs=(), rho=rho, groups=0, left_out=pairs)
    share = (ALONE if together else 1.0) * rho / len(singles)
    measured = {one.clique: one for one in queryable.measure_residuals([(clique, share) for clique in singles])}
    asked, groups, tables = dict[Clique, float](), 0, _Tables(queryable.domain, matches, {})
    if together:
        rows = {name: np.bincount(codes, minlength=domain.sizes[name]) / len(codes) for name, codes in ends.items()}
        rows |= {clique[0]: distribution(one, total) for clique, one in measured.items()}
        noise = queryable.rows**2 * len(together) / (2 * EVEN * (1 - ALONE - SCORES) * rho * total**2)
        groups, _ = finest(
            domain, together, lambda d: [p for p in together if noise * free(d, p) ** 2 <= LOUDEST], FEWEST
        )
        within = {n: group_of(rows[n], groups) for pair in together for n in pair if domain.sizes[n] > groups}
        tables = _Tables(queryable.domain, matches, within)
        asked = _allocated(queryable, tables, measured, together, total, rows, rho)
        for again in _residuals(queryable, tables, asked):
            measured[again.clique] = _mean(measured[again.clique], again) if again.clique in measured else again
    chosen, left_out = [pair for pair in pairs if pair in asked], [pair for pair in pairs if pair not in asked]
    found = {name: _attribute(tables, name, measured, total) for name in attributes}
    return found, Wanted(pairs=chosen, rho=rho, groups=groups, left_out=left_out)


@final
@dataclass(frozen=True, slots=True)
class _Tables:
    """What is counted for attributes alone and for pairs.

    Attributes:
        domain: of the attributes that are counted.
        matches: attributes that follow from two of these.
        within: the group of each value of attributes whose pairs are of groups.
    """

    domain: Domain
    matches: Sequence[Match]
    within: Mapping[str, Integers]

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """Values of an attribute alone, and values or groups of two."""
        sizes = extended(self.domain, self.matches).sizes
        alone = len(clique) == 1
        return tuple(sizes[n] if alone or n not in self.within else int(self.within[n][-1]) + 1 for n in clique)

    def cost(self, clique: Clique) -> float:
        """The squared sensitivity of a residual."""
        return Centring(self.shape(clique)).squared_sensitivity

    def asked(self, clique: Clique, query: Measurable) -> tuple[Clique, Measurable]:
        """(what is counted, the query on it)."""
        return merged(self.domain, self.matches, clique, query, self.within if len(clique) > 1 else {})

    def independent(self, pair: Clique, rows: Mapping[str, Array]) -> Array:
        """The shares of a pair whose attributes have these shares and nothing in common."""
        return np.multiply.outer(*(summed(self.within[n], rows[n]) if n in self.within else rows[n] for n in pair))


def _allocated(
    queryable: PrivateQueryable,
    tables: _Tables,
    alone: Mapping[Clique, LinearMeasurement],
    together: Sequence[Clique],
    total: float,
    rows: Mapping[str, Array],
    rho: float,
) -> dict[Clique, float]:
    """What to spend on each pair, and again on each attribute alone.

    Noise of single values is less in sums over groups of them: squared by the share of groups that there are for each value.

    Privacy: spends at most ``SCORES`` of rho on the distances of pairs from independent ones.
    """
    each = queryable.rows
    estimates = {pair: total * tables.independent(pair, rows) for pair in together}
    scoring = min(SCORES * rho, price(len(together), each, SCORED * total))
    share = scoring / len(together) * (1 - 1e-12)
    distances = {pair: Distance(table.reshape(-1)) for pair, table in estimates.items()}
    noisy = queryable.answer_all([(*tables.asked(pair, distance), share) for pair, distance in distances.items()])
    cases = total * SHARES
    chances = posterior(np.concatenate([answers for answers, _ in noisy]), math.sqrt(noisy[0][1]), cases)
    left = (1 - ALONE) * rho - scoring
    known = {
        clique: certain(effective(total * rows[clique[0]]), tables.cost(clique), 1 / one.variance)
        for clique, one in alone.items()
    }
    error = {
        name: squared_distance(known[name,].cells, one.variance) / len(rows[name]) for (name,), one in alone.items()
    }
    found = {}
    for (pair, table), chance in zip(estimates.items(), chances, strict=True):
        explained = sum(error.get(name, 0.0) * size for name, size in zip(pair, table.shape, strict=True))
        found[pair] = scored(effective(table), tables.cost(pair), 0.0, cases, chance, explained)
    budget = 2 * left / each**2
    added = allocate(known | found, dict.fromkeys(together, 1.0), budget, budget)
    costs = {clique: precision * tables.cost(clique) for clique, precision in added.items()}
    spent = left * ROUNDING / sum(costs.values())
    return {clique: cost * spent for clique, cost in costs.items()}


def _residuals(queryable: PrivateQueryable, tables: _Tables, asked: Mapping[Clique, float]) -> list[LinearMeasurement]:
    """The residual of each clique, with what to spend on it.

    Privacy: spends the sum of what is asked.
    """
    queries = {clique: Centring(tables.shape(clique)) for clique in asked}
    steps = [(*tables.asked(clique, query), asked[clique]) for clique, query in queries.items()]
    return [
        LinearMeasurement(clique=clique, strategy=query, answers=answers, variance=variance)
        for (clique, query), (answers, variance) in zip(queries.items(), queryable.answer_all(steps), strict=True)
    ]


def _attribute(
    tables: _Tables, name: str, measured: Mapping[Clique, LinearMeasurement], total: float
) -> NoisyAttribute:
    """An attribute with its measured pairs."""
    if (name,) not in measured:
        return NoisyAttribute(shares=np.ones(1))
    found = []
    for clique, one in measured.items():
        if len(clique) == 2 and name in clique:
            other = clique[1 - clique.index(name)]
            table = one.answers.reshape(tables.shape(clique))
            table = table if clique[0] == name else table.T
            found.append(
                NoisyPair(
                    other=other,
                    scales=(np.ones(table.shape[0]), np.ones(table.shape[1])),
                    centre=np.full(table.shape[1], 1 / table.shape[1]),
                    table=table,
                    variance=one.variance,
                    group=tables.within.get(other),
                )
            )
    return NoisyAttribute(shares=distribution(measured[name,], total), pairs=found, group=tables.within.get(name))


def countable(domain: Domain, pairs: Sequence[Clique], matches: Sequence[Match] = ()) -> list[Clique]:
    """As many pairs, the first ones before others, as fit into memory when single values are counted; public."""
    chosen, room = [], HELD
    for pair in pairs:
        cells = domain.cells(counted_by(domain, matches, pair))
        room -= cells
        if room >= 0 and cells <= COUNTED:
            chosen.append(pair)
    return chosen


def _mean(one: LinearMeasurement, other: LinearMeasurement) -> LinearMeasurement:
    """Two measurements of one residual as one, by inverse variance."""
    precision = 1 / one.variance + 1 / other.variance
    answers = (one.answers / one.variance + other.answers / other.variance) / precision
    return LinearMeasurement(clique=one.clique, strategy=one.strategy, answers=answers, variance=1 / precision)
