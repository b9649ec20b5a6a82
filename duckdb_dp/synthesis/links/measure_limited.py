"""Measures the attributes of the links of units: each alone, and all pairs worth it in one vector in which each unit is limited."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from duckdb_dp.counting.units import rows_of
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.likeness import group_of
from duckdb_dp.synthesis.links.limited import LimitedPairs
from duckdb_dp.synthesis.links.link_attributes import NoisyAttribute, NoisyPair, distribution, summed
from duckdb_dp.synthesis.links.matches import Match, extended
from duckdb_dp.synthesis.links.measure_attributes import ROUNDING
from duckdb_dp.synthesis.links.measured_degrees import Measured, mean_power
from duckdb_dp.synthesis.links.number_classes import NumberClasses
from duckdb_dp.synthesis.links.pair_groups import LOUDEST, Wanted, candidates, finest, free
from duckdb_dp.synthesis.links.per_unit import measure_shares

ALONE, MOST_ALONE, SURE = 0.3, 0.6, 0.05
"""Share of what is spent for the attributes alone, at least and at most; the rest is for pairs. Between, it is such that the L1 norm of
their noise is this, over the units."""

POWER = -1 / 3
"""Cells weigh this power of their shares p: the sum of errors e of cells is least, where that of p / e^2 is given, with e ~ p^(1/3)."""

LIMITS, EXCESS = np.linspace(0.1, 0.99, 30), 1.5
"""Quantiles of the lengths of synthetic units that may be the limit, and the squared limit over the mean squared length, about."""

DEPENDENCE, LOST = 0.3, 1.5
"""The chi-squared of all pairs together, over the units, that is supposed; and the power of the mean part that limits take away from units
which its own lost part, squared, grows with: units that depend most are limited most."""

COUNTED = 0.05
"""Of the budget for pairs, the part that is for the sum of the units' factors."""

SAMPLED = 2**18
"""Synthetic links whose units have their lengths worked out, on average, where there are more."""

LEAST_FACTOR = 0.3
"""Of the units' mean factor: what noise says below that is not believed."""


def wanted(
    domain: Domain,
    attributes: Sequence[str],
    others: Clique,
    rho: float,
    units: Measured,
    most: int,
    matches: Sequence[Match] = (),
    numbers: NumberClasses | None = None,
) -> Wanted:
    """Which pairs of an attribute of the links and another one are measured.

    Where not all pairs of single values can be measured, values are put into groups of neighbours: into as many as let all be measured.
    Those of the fewest free numbers come first: noise is the same in each of these, and grows with how many there are together. The
    second match comes as if it had four times as many, the third one nine times, and so on: most of them say nothing.

    Args:
        domain: of all attributes.
        attributes: those of the links.
        others: those of both sides.
        rho: what may be spent.
        units: as measured.
        most: links of a unit, at most.
        matches: attributes that follow from two others, the likeliest first.
        numbers: classes of how many links a unit has.

    Privacy: post-processing.
    """
    whole, places = _extended(domain, matches, numbers), {match.name: i for i, match in enumerate(matches)}
    others = (*others, *places, *(() if numbers is None else (numbers.name,)))

    pairs = candidates(whole, attributes, others)
    noise = EXCESS * mean_power(units, most, -1) / (2 * (1 - ALONE) * rho * units.linked**2)
    groups, found = finest(whole, pairs, lambda sizes: _measurable(sizes, pairs, places, noise))
    left_out = [pair for pair in pairs if pair not in found]
    return Wanted(pairs=found, rho=rho if found else MOST_ALONE * rho, groups=groups, left_out=left_out)


def _measurable(domain: Domain, pairs: Sequence[Clique], places: Mapping[str, int], noise: float) -> list[Clique]:
    """The pairs that noise would not drown, in their order."""

    def turn(pair: Clique) -> int:
        return free(domain, pair) * (1 + max(places.get(name, 0) for name in pair)) ** 2

    found, together = list[Clique](), 0
    for pair in sorted(pairs, key=turn):
        together += free(domain, pair)
        if noise * together * free(domain, pair) > LOUDEST:
            break
        found.append(pair)
    return found


def measure_limited(
    queryable: PrivateQueryable,
    attributes: Sequence[str],
    together: Sequence[Clique],
    total: float,
    ends: Mapping[str, Integers],
    owners: Integers,
    rng: np.random.Generator,
    matches: Sequence[Match] = (),
    numbers: NumberClasses | None = None,
    groups: int | None = None,
) -> dict[str, NoisyAttribute]:
    """The links' attributes where one side is the unit: residuals of shares alone, and ``LimitedPairs`` of the pairs.

    Where links are independent, the pairs of one unit with k links have a squared length of about 1/k for each free number; at most they
    have that of one link in rare cells. So the limit is one of lengths of the synthetic units, whose attributes are drawn alone for
    that. A high one has more noise, a low one more of the units' dependence is lost than the mean of their factors tells.

    Args:
        queryable: what measures.
        attributes: those of the links.
        together: the pairs that ``wanted`` returned.
        total: units that have links, noisy.
        ends: for each attribute of both sides, each match, and classes of numbers, its code at every link that was drawn.
        owners: the unit of each of these.
        rng: the source of randomness of what is drawn.
        matches: attributes that follow from two others.
        numbers: classes of how many links a unit has.
        groups: attributes of more values are put into so many groups of neighbouring ones for their pairs.

    Privacy: spends all that ``queryable`` has left, where there is anything to measure.
    """
    domain, rho = _extended(queryable.domain, matches, numbers), queryable.left * ROUNDING
    found = {name: NoisyAttribute(shares=np.full(domain.sizes[name], 1 / domain.sizes[name])) for name in attributes}
    singles = [(name,) for name in attributes if domain.sizes[name] > 1]
    if not singles or rho <= 0:
        return found
    together = together if len(owners) else []
    share = (_for_alone(domain, singles, rho, total) if together else 1.0) * rho / len(singles)
    alone = measure_shares(queryable, [(clique, share) for clique in singles])
    found |= {one.clique[0]: NoisyAttribute(shares=distribution(one, total)) for one in alone}
    if not together:
        return found
    used = [match for match in matches if any(match.name in pair for pair in together)]
    needed = [*(name for pair in together for name in pair), *(end for m in used for end in (m.left, m.right))]
    counted = tuple(dict.fromkeys(name for name in needed if name in queryable.domain.sizes))
    last = [] if numbers is None or not any(numbers.name in pair for pair in together) else [numbers]
    names = (*counted, *(match.name for match in used))
    compared = [(names.index(match.left), names.index(match.right), match.same) for match in used]
    held = np.bincount(owners)[owners]
    mass = float((1 / held).sum())
    some = rng.random(int(owners.max()) + 1) < SAMPLED / len(owners)
    order = np.argsort(owners, kind="stable")
    order = order[some[owners[order]]] if some.any() else order
    shares, codes = list[Array](), list[Integers]()
    for name in (*names, *(one.name for one in last)):
        known = name in ends
        shares.append(
            np.bincount(ends[name], 1 / held, domain.sizes[name]) / mass if known else np.asarray(found[name].shares)
        )
        codes.append(ends[name][order] if known else rng.choice(len(shares[-1]), len(order), p=shares[-1]))
    within = {
        name: group_of(shares[i], groups) for i, name in enumerate(counted) if groups and groups < domain.sizes[name]
    }
    # Where an attribute is in groups, its pairs are of these: the last place of its name.
    grouped = [(names.index(name), group) for name, group in within.items()]
    shares[len(names) : len(names)] = [summed(group, shares[i]) for i, group in grouped]
    codes[len(names) : len(names)] = [group[codes[i]] for i, group in grouped]
    names = (*names, *within, *(one.name for one in last))
    held = held[order]
    certainty = 2 * queryable.left * total**2
    table = last[0].codes(np.arange(queryable.rows + 1)) if last else None
    follows = compared, grouped, table
    asked = _limited(names, together, shares, held, codes, follows, certainty, total, queryable.rows)
    ((answers, variance),) = queryable.answer_all([(rows_of(counted), asked, queryable.left * ROUNDING)])
    for name in found:
        noisy = _pairs_of(name, names, asked, answers, variance, total, within)
        found[name] = NoisyAttribute(shares=found[name].shares, pairs=noisy, group=within.get(name))
    return found


def _extended(domain: Domain, matches: Sequence[Match], numbers: NumberClasses | None) -> Domain:
    """The attributes with those that follow from them."""
    found = extended(domain, matches)
    return found if numbers is None else Domain({**found.sizes, numbers.name: len(numbers.starts)})


def _for_alone(domain: Domain, singles: Sequence[Clique], rho: float, total: float) -> float:
    """The share of rho for attributes alone: squared noise is in inverse proportion to it."""
    sizes = np.array([domain.cells(clique) for clique in singles])
    loud = float((2 / math.pi * sizes * (sizes - 1)).mean()) * len(singles) / (2 * rho * total**2)
    return min(max(loud / SURE**2, ALONE), MOST_ALONE)


def _limited(
    names: Clique,
    together: Sequence[Clique],
    shares: Sequence[Array],
    held: Integers,
    codes: Sequence[Integers],
    follows: tuple[Sequence[tuple[int, int, Integers]], Sequence[tuple[int, Integers]], Integers | None],
    certainty: float,
    total: float,
    rows: int,
) -> LimitedPairs:
    """What is asked, with the limit that leaves least of noise and bias together.

    Args:
        names: of the attributes.
        together: the pairs.
        shares: of the values of each attribute.
        held: links of the unit of each synthetic link, those of a unit one after another.
        codes: of each attribute in each of these, where attributes of the links are independent.
        follows: which attributes follow from two others and from one, and the class of each number of links, as in ``LimitedPairs``.
        certainty: twice rho times the squared number of units: the squared limit over that is the variance of noise in shares.
        total: units that have links.
        rows: for which noise is calibrated.

    Privacy: post-processing.
    """
    scales = [np.maximum(share, 0.5 / total) ** POWER for share in shares]
    last = {name: i for i, name in enumerate(names)}
    places, (compared, grouped, numbers) = [(last[a], last[b]) for a, b in together], follows

    def of(bound: float) -> LimitedPairs:
        counted = bound * math.sqrt(COUNTED / (1 - COUNTED))
        return LimitedPairs(
            centres=shares,
            scales=scales,
            pairs=places,
            bound=bound,
            counted=counted,
            rows=rows,
            compared=compared,
            grouped=grouped,
            numbers=numbers,
        )

    lengths = np.sqrt(of(1.0).squares(held, codes))
    free = [(len(shares[a]) - 1) * (len(shares[b]) - 1) for a, b in places]
    alone = [float(scale**2 @ (share * (1 - share))) for scale, share in zip(scales, shares, strict=True)]
    dependence = DEPENDENCE * sum(alone[a] * alone[b] for a, b in places) / sum(free)

    def loss(bound: float) -> float:
        factor = float(np.minimum(1.0, bound / lengths).mean())
        noise = sum(free) * bound**2 / ((1 - COUNTED) * certainty)
        return float(noise / factor**2 + dependence * (1 - factor) ** LOST)

    return of(min(np.quantile(lengths, LIMITS).tolist(), key=loss))


def _pairs_of(
    name: str,
    names: Clique,
    asked: LimitedPairs,
    answers: Array,
    variance: float,
    total: float,
    within: Mapping[str, Integers],
) -> list[NoisyPair]:
    """The noisy pairs of an attribute of the links, with the units' mean factor taken out.

    Privacy: post-processing.
    """
    factor = float(np.clip(answers[0] / (asked.counted * total), LEAST_FACTOR, 1.0))
    found, start = list[NoisyPair](), 1
    for a, b in asked.pairs:
        shape = len(asked.centres[a]), len(asked.centres[b])
        table = answers[start : start + math.prod(shape)].reshape(shape) / factor
        start += table.size
        if name in (names[a], names[b]):
            one, other = (a, b) if names[a] == name else (b, a)
            found.append(
                NoisyPair(
                    other=names[other],
                    scales=(asked.scales[one], asked.scales[other]),
                    centre=asked.centres[other],
                    table=table if one == a else table.T,
                    variance=variance / factor**2,
                    group=within.get(names[other]),
                )
            )
    return found
