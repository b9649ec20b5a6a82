"""Links that follow whether their ends match, or how far apart they are: measured after single attributes, and before anything of pairs."""

from collections.abc import Sequence

import numpy as np

from duckdb_dp.counting.units import capped_of, weight_of
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array, Centring, Integers, Measurable
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.fit import Tilt, tilted
from duckdb_dp.synthesis.links.learner import Learner
from duckdb_dp.synthesis.links.matches import Compared, merged
from duckdb_dp.synthesis.links.per_unit import PerUnit
from duckdb_dp.synthesis.links.sides import coordinates

STEEPEST, SCALED, CLOSE = 12.0, 100, 1e-3
"""Logarithm of the largest ratio of links of a class to those by chance, rounds of scaling, and by how much the last round changes it."""

LOUD = 0.05
"""Standard deviation of the noise of a class, over all links, above which nothing is measured: few links differ more from chance."""

SIZES, CHANCE_ALONE = np.concatenate([[0.0], np.geomspace(0.003, 0.3, 13)]), 0.5
"""How far, over all links, the number of those of a class may be from chance, and how likely it is that they are in it by chance alone."""


def follow_matches(learner: Learner, matches: Sequence[Compared], rho: float) -> Tilt:
    """Measure how many links match, or are so far apart, and change the links around which all else is fitted accordingly, as a tilt.

    A pair of attributes of n values each has (n - 1)^2 numbers, its match one, and the difference of two dates about 2 log n. They are
    known at budgets at which the pair is not. What is measured is shrunk towards the number of links of each class by chance, by how
    much of the difference is noise.

    Privacy: spends rho.
    """
    blocks, queryable, found = learner.blocks, learner.queryable, dict[Clique, Array]()
    one = PerUnit(Centring((2,)), 1, queryable.rows) if learner.per_unit else Centring((2,))
    clear = (LOUD * learner.total) ** 2 * 2 * rho / (queryable.rows**2 * one.squared_sensitivity)
    if not (looked_at := matches[: int(clear)]):
        return found
    links = learner.fitted(1)[0]
    for match, (numbers, variance) in zip(looked_at, _measured(learner, looked_at, rho), strict=True):
        pair, classes = _toward(blocks, match)
        table = blocks.marginal(links, pair)
        expected = np.bincount(classes.reshape(-1), table.reshape(-1), match.size)
        noises = variance + _errors(learner, pair, classes, table, match.size)
        gaps = numbers - expected
        kept = [_kept(gap, noise, learner.total) for gap, noise in zip(gaps, noises, strict=True)]
        powers = _powers(table, classes, np.asarray(expected + kept * gaps, dtype=np.float64))
        change = coordinates(powers[classes][None])[0]
        learner.base, links = (
            tilted(blocks, before, {pair: change}, one_parent=learner.one_parent) for before in (learner.base, links)
        )
        found[pair] = change
    learner.tilts.clear()
    return found


def _measured(learner: Learner, matches: Sequence[Compared], rho: float) -> list[tuple[Array, float]]:
    """(links of each class, the variance of the noise) of each match.

    Privacy: spends rho.
    """
    queryable, share = learner.queryable, rho / len(matches) * (1 - 1e-12)
    asked = list[tuple[Clique, Measurable, float]]()
    for match in matches:
        clique, query = merged(queryable.domain, matches, (match.name,), Centring((match.size,)))
        if learner.per_unit:
            clique = capped_of(clique, learner.per_unit)
            query = PerUnit(query, weight_of(clique), queryable.rows)
        asked.append((clique, query, share))
    scale = max(learner.per_unit, 1)
    found = queryable.answer_all(asked)
    learner.spent["matches"] = learner.spent.get("matches", 0.0) + share * len(matches)
    return [
        (answers * scale + learner.total / match.size, variance * scale**2)
        for match, (answers, variance) in zip(matches, found, strict=True)
    ]


def _kept(gap: float, noise: float, total: float) -> float:
    """How much of a difference from what is expected is no noise, which has this variance: the mean over what the difference may be.

    Privacy: post-processing.
    """
    prior = (SIZES * total) ** 2
    logs = -0.5 * (np.log(prior + noise) + gap**2 / (prior + noise))
    likely = np.exp(logs - logs.max()) * np.where(SIZES > 0, (1 - CHANCE_ALONE) / (len(SIZES) - 1), CHANCE_ALONE)
    return float(likely @ (prior / (prior + noise)) / likely.sum())


def _toward(blocks: Blocks, match: Compared) -> tuple[Clique, Integers]:
    """(the attributes, that of the blocks' left side first; the class of each pair of their values)."""
    if match.left in blocks.right.attributes:
        return (match.right, match.left), match.classes.T
    return (match.left, match.right), match.classes


def _errors(learner: Learner, pair: Clique, classes: Integers, table: Array, size: int) -> Array:
    """The variance of how many links of each class there are by chance, as single attributes are not known exactly, nor the total."""
    total, flat = float(table.sum()), classes.reshape(-1)
    by_chance = np.bincount(flat, table.reshape(-1), size)
    variances = learner.total_relative_variance * (total / size - by_chance) ** 2
    for axis, name in enumerate(pair):
        if (one := learner.residuals.get((name,))) is None:
            continue
        held, places = table.sum(axis=1 - axis), np.arange(table.shape[axis])
        codes = (classes + size * (places[None, :] if axis else places[:, None])).reshape(-1)
        chance = np.bincount(codes, table.reshape(-1), size * len(held)).reshape(len(held), size)
        chance = chance / np.maximum(held, 1e-300)[:, None]
        variances += one.uncertainty(held) * ((chance - chance.mean(axis=0)) ** 2).sum(axis=0)
    return np.asarray(variances)


def _powers(table: Array, classes: Integers, numbers: Array) -> Array:
    """The logarithms of the factors of links of each class with which so many are in each, and single attributes stay as they are."""
    rows, columns, flat, size = table.sum(axis=1), table.sum(axis=0), classes.reshape(-1), len(numbers)
    wanted = np.maximum(numbers, 1e-6 * float(table.sum()))
    wanted *= float(table.sum()) / float(wanted.sum())
    powers, right = np.zeros(size), np.ones(table.shape[1])
    for _ in range(SCALED):
        tried = table * np.exp(powers)[classes]
        left = rows / np.maximum(tried @ right, 1e-300)
        right = columns / np.maximum(left @ tried, 1e-300)
        held = np.bincount(flat, (left[:, None] * tried * right).reshape(-1), size)
        before, powers = powers, np.clip(powers + np.log(wanted / np.maximum(held, 1e-300)), -STEEPEST, STEEPEST)
        if np.abs(powers - before).max() <= CLOSE:
            break
    return np.asarray(powers)
