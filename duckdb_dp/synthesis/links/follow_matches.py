"""Links that follow whether their ends match: measured after single attributes, and before anything is learnt of pairs."""

from collections.abc import Sequence

import numpy as np

from duckdb_dp.counting.units import capped_of, weight_of
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array, Centring, Measurable
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.fit import Tilt, tilted
from duckdb_dp.synthesis.links.learner import Learner
from duckdb_dp.synthesis.links.matches import Match, merged
from duckdb_dp.synthesis.links.per_unit import PerUnit
from duckdb_dp.synthesis.links.sides import coordinates

STEEPEST, HALVINGS, SCALED = 12.0, 40, 30
"""Logarithm of the largest ratio of links that match to others, halvings of its interval, and rounds of scaling for each."""

LOUD = 0.05
"""Standard deviation of the noise of a match, over all links, above which it is not measured: few links differ more from chance."""

SIZES, CHANCE_ALONE = np.concatenate([[0.0], np.geomspace(0.003, 0.3, 13)]), 0.5
"""How far, over all links, the number of those that match may be from chance, and how likely it is that they match by chance alone."""


def follow_matches(learner: Learner, matches: Sequence[Match], rho: float) -> Tilt:
    """Measure how many links match, and change the links around which all else is fitted accordingly: the change, as a tilt.

    A pair of attributes of n values each has (n - 1)^2 numbers, and its match one, which is known at budgets at which these are not.
    What is measured is shrunk towards the number of links that match by chance, by how much of the difference is noise.

    Privacy: spends rho.
    """
    blocks, queryable, found = learner.blocks, learner.queryable, dict[Clique, Array]()
    one = PerUnit(Centring((2,)), 1, queryable.rows) if learner.per_unit else Centring((2,))
    clear = (LOUD * learner.total) ** 2 * 2 * rho / (queryable.rows**2 * one.squared_sensitivity)
    if not (looked_at := matches[: int(clear)]):
        return found
    links = learner.fitted(1)[0]
    for match, (number, variance) in zip(looked_at, _measured(learner, looked_at, rho), strict=True):
        pair, same = _toward(blocks, match)
        table = blocks.marginal(links, pair)
        expected = float((table * same).sum())
        gap, noise = number - expected, variance + _error(learner, pair, same, table)
        power = _power(table, same, expected + _kept(gap, noise, learner.total) * gap)
        change = power * coordinates(same[None])[0]
        learner.base, links = (
            tilted(blocks, before, {pair: change}, one_parent=learner.one_parent) for before in (learner.base, links)
        )
        found[pair] = change
    learner.tilts.clear()
    return found


def _measured(learner: Learner, matches: Sequence[Match], rho: float) -> list[tuple[float, float]]:
    """(links that match, the variance of the noise) of each match.

    Privacy: spends rho.
    """
    queryable, share = learner.queryable, rho / len(matches) * (1 - 1e-12)
    asked = list[tuple[Clique, Measurable, float]]()
    for match in matches:
        clique, query = merged(queryable.domain, matches, (match.name,), Centring((2,)))
        if learner.per_unit:
            clique = capped_of(clique, learner.per_unit)
            query = PerUnit(query, weight_of(clique), queryable.rows)
        asked.append((clique, query, share))
    scale = max(learner.per_unit, 1)
    found = queryable.answer_all(asked)
    learner.spent["matches"] = learner.spent.get("matches", 0.0) + share * len(matches)
    return [(float(answers[1]) * scale + learner.total / 2, variance * scale**2) for answers, variance in found]


def _kept(gap: float, noise: float, total: float) -> float:
    """How much of a difference from what is expected is no noise, which has this variance: the mean over what the difference may be.

    Privacy: post-processing.
    """
    prior = (SIZES * total) ** 2
    logs = -0.5 * (np.log(prior + noise) + gap**2 / (prior + noise))
    likely = np.exp(logs - logs.max()) * np.where(SIZES > 0, (1 - CHANCE_ALONE) / (len(SIZES) - 1), CHANCE_ALONE)
    return float(likely @ (prior / (prior + noise)) / likely.sum())


def _toward(blocks: Blocks, match: Match) -> tuple[Clique, Array]:
    """(the attributes, that of the blocks' left side first; where they are the same)."""
    same = match.same.astype(np.float64)
    if match.left in blocks.right.attributes:
        return (match.right, match.left), same.T
    return (match.left, match.right), same


def _error(learner: Learner, pair: Clique, same: Array, table: Array) -> float:
    """The variance of how many more links match than by chance, as single attributes are not known exactly, nor the total."""
    total = float(table.sum())
    variance = learner.total_relative_variance * (total / 2 - float((table * same).sum())) ** 2
    for axis, name in enumerate(pair):
        one = learner.residuals.get((name,))
        held = table.sum(axis=1 - axis)
        if one is not None:
            chance = (table * same).sum(axis=1 - axis) / np.maximum(held, 1e-300)
            variance += one.uncertainty(held) * float(((chance - chance.mean()) ** 2).sum())
    return variance


def _power(table: Array, same: Array, number: float) -> float:
    """The logarithm of the factor for links that match with which so many of them do, and single attributes stay as they are."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    right = np.ones(table.shape[1])

    def matching(power: float) -> float:
        nonlocal right
        tried = table * np.exp(power * same)
        for _ in range(SCALED):
            left = rows / np.maximum(tried @ right, 1e-300)
            right = columns / np.maximum(left @ tried, 1e-300)
        return float(left @ (tried * same) @ right)

    low, high = -STEEPEST, STEEPEST
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if matching(middle) < number else (low, middle)
    return (low + high) / 2
