"""How pairs are scored and measured: value by value or in groups, and in which, by scores of the ways that there are.

Public rows say in several ways which keys are alike: doctors by their field, or by their rank. Which of them matters for what a stay costs
only the private table tells.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from duckdb_dp.adaptive.neyman import coarse
from duckdb_dp.adaptive.neyman.allocation import effective
from duckdb_dp.adaptive.neyman.scores import Scores, price, score
from duckdb_dp.adaptive.neyman.triples import FREE
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.estimate import Estimate
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.groups import Groups
from duckdb_dp.reconstruct.likeness import Likeness

SCORING, SCORE_STDDEV = 0.07, 0.014
"""Most of a round that scores may take; and the noise, over the number of rows, below which they need not be."""

MOST = 10
"""Ways of a pair that are scored beside the one in which it would be measured: groups of neighbours, and those of the fewest groups."""


def scored(
    queryable: PrivateQueryable,
    known: ResidualEstimates,
    best: Estimate,
    budget: float,
    alike: Mapping[str, Likeness] | None,
) -> tuple[ResidualEstimates, Scores]:
    """(what is known with groups for pairs, if any may have them, the distances of pairs as they will be measured).

    Tables of groups, whole ones and those of other groups are compared with the same noise; others than the first only where that says
    something.

    Privacy: spends ``SCORING`` of the round's budget at most.
    """
    rows, left = queryable.rows, 2 * queryable.left / queryable.rows**2

    def shares(asked: int) -> tuple[float, float]:
        """(rho of so many scores, that of each)."""
        rho = min(SCORING * budget, max(price(asked, rows, SCORE_STDDEV * best.total), FREE * budget))
        return rho, rho / asked

    def heard(asked: int) -> bool:
        return price(asked, rows, coarse.LOUDEST * best.total) <= shares(asked)[0]

    if alike is not None:
        known = coarse.first(known, best, left, alike)
    pairs, wholes = len(best.pairs), len(known.groups)
    others = list(_others(known, best, left, alike)) if alike and heard(pairs + wholes) else []
    while others and not heard(pairs + wholes + sum(map(len, others))):
        others.pop()
    if alike is None or not known.groups or not heard(pairs + wholes):
        rho, _ = shares(pairs + wholes)
        return known, score(queryable, coarse.seen(known, best), rho, known.groups)
    _, each = shares(pairs + wholes + sum(map(len, others)))
    found = score(queryable, coarse.seen(known, best), each * pairs, known.groups)
    whole = score(queryable, {pair: best.pairs[pair] for pair in known.groups}, each * wholes)
    ways = [
        (way, score(queryable, {pair: one.sums(best.pairs[pair]) for pair, one in way.items()}, each * len(way), way))
        for way in others
    ]
    known, found = _best(known, best, found, whole, ways, left)
    return coarse.refined(known, best, found, whole, left, alike)


def _others(
    known: ResidualEstimates, best: Estimate, left: float, alike: Mapping[str, Likeness]
) -> Iterator[Mapping[Clique, Groups]]:
    """Other groups of pairs, of values that public facts say are alike: one of each pair at a time."""
    precision, found = coarse.EVEN * left / len(best.pairs), dict[Clique, list[Groups]]()
    for pair, groups in known.groups.items():
        if any(alike[name].ways for name in pair):
            ways = sorted(
                _ways(best, pair, precision, alike), key=lambda one: (not one.of_neighbours, math.prod(one.shape))
            )
            found[pair] = [way for way in ways if not _same(way, groups)][:MOST]
    for turn in range(MOST):
        if way := {pair: ways[turn] for pair, ways in found.items() if turn < len(ways)}:
            yield way


def _ways(best: Estimate, pair: Clique, precision: float, alike: Mapping[str, Likeness]) -> Iterator[Groups]:
    """Each way of one attribute with each of the other one; where one has none, and beside ways too, with as many groups as cost least.

    Those are of neighbours: what public facts say may have nothing to do with what is measured.
    """
    tables = [best.singles[name,] for name in pair]
    for one, other in itertools.product(*((*alike[name].ways, None) for name in pair)):
        if one is None and other is None:
            plain = {name: Likeness(ordered=alike[name].ordered) for name in pair}
            if (made := coarse.grouped(best, pair, precision, coarse.UNORDERED, plain)) is not None:
                yield made
            continue
        if one is None or other is None:
            known = one if other is None else other
            assert known is not None, "one of both has ways"
            place = 0 if one is None else 1
            others = effective(np.bincount(known, tables[1 - place]).astype(np.float64))
            found = coarse.beside(tables[place], others, precision, best.total, alike[pair[place]].ordered)
            one, other = (found, known) if place == 0 else (known, found)
        yield coarse.groups(pair, (one, other), best, alike)


def _same(one: Groups, other: Groups) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one.of, other.of, strict=True))


def _best(
    known: ResidualEstimates,
    best: Estimate,
    scores: Scores,
    whole: Scores,
    others: Sequence[tuple[Mapping[Clique, Groups], Scores]],
    left: float,
) -> tuple[ResidualEstimates, Scores]:
    """(with each pair in the groups that show most beyond their noise, the distances of what is then measured).

    Formula: the distance of groups beyond that by noise and by chance, less the noise in what is measured of them, is the largest. That
    noise is sqrt(2/pi) times its standard deviation in each of its cells, as many as they are in effect. Single values are groups too.

    Privacy: post-processing.
    """
    even = coarse.EVEN * left / len(best.pairs)
    changed, noisy = dict[Clique, Groups | None](), dict(scores.noisy)
    elsewhere = {pair for way, _ in others for pair in way}
    for pair, present in known.groups.items():
        if present.of_neighbours and pair not in elsewhere:
            continue
        offered: list[tuple[Groups | None, Scores]] = [
            (present, scores),
            *((way[pair], one) for way, one in others if pair in way),
            (None, whole),
        ]
        tables = [best.pairs[pair] if way is None else way.sums(best.pairs[pair]) for way, _ in offered]
        gains = []
        for (way, one), table in zip(offered, tables, strict=True):
            precision = even + (known.precisions.get(pair, 0.0) if way is present else 0.0)
            noise = math.sqrt(2 / math.pi / precision) * effective(table)
            gains.append(_shown(one.noisy[pair], one.stddev, table) - noise)
        groups, taken = offered[int(np.argmax(gains))]
        if groups is not present:
            changed[pair], noisy[pair] = groups, taken.noisy[pair]
    return known.regrouped(changed), scores.of(noisy)


def _shown(noisy: float, stddev: float, table: Array) -> float:
    """A distance beyond that by noise and by chance."""
    return math.sqrt(max(max(noisy, 0.0) ** 2 - stddev**2 - coarse.by_chance(table) ** 2, 0.0))
