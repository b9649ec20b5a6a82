"""Which pairs of attributes to measure: each round selects the pair for which the estimate is most wrong."""

import math
from collections.abc import Iterable

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.private import Candidate, PrivateQueryable
from duckdb_dp.progress import Track
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.table.forest import Forest, candidates

PER_ATTRIBUTE = 3
"""Rounds per attribute. On Adult 1, 2 and 3 gave an error of pairs of 0.077, 0.057 and 0.049; more gave nothing."""

SELECTING = 0.1
"""Of the budget for pairs, for choosing them."""

POWER = 0.5
"""A pair's budget goes with n_ij^POWER: larger ones need more, and lose more of their noise by fitting."""

FINENESS = 0.5
"""Share of the raw noise that is expected to be left after fitting, in the penalty for noise."""


def measure_pairs(
    queryable: PrivateQueryable, forest: Forest, rho: float, track: Track, rounds: int | None = None
) -> list[LinearMeasurement]:
    """Measure residuals of pairs with all of rho, and fit them into the forest.

    Few candidates are all measured, which needs no selection. Else each round selects a pair by the exponential mechanism,
    with the score |mu - estimate|_1 - noise, the noise that measuring it would leave, and measures its residual.

    Args:
        queryable: what measures.
        forest: the estimates; grows.
        rho: the budget.
        track: shows progress.
        rounds: pairs to measure; by default 3 for each attribute.

    Returns:
        The measurements, in the order in which the forest takes them.

    Privacy: spends rho.
    """
    pairs = candidates(queryable.domain)
    if not pairs:
        return []
    rounds = min(rounds or PER_ATTRIBUTE * len(queryable.domain.attributes), len(pairs))
    if rounds == len(pairs):
        return _measure_all(queryable, forest, rho, pairs)
    return _select(queryable, forest, rho, list(pairs), rounds, track)


def grow(forest: Forest, measured: Iterable[LinearMeasurement]) -> None:
    """Fit measured pairs into the forest, in their order: the same estimates again.

    Privacy: post-processing.
    """
    for noisy in measured:
        forest.add(noisy)


def _measure_all(
    queryable: PrivateQueryable, forest: Forest, rho: float, pairs: tuple[Clique, ...]
) -> list[LinearMeasurement]:
    """All pairs at once; those that differ most from independence become the edges of the forest."""
    weights = _weights(queryable.domain, pairs)
    measured = queryable.measure_residuals(
        (pair, rho * weight) for pair, weight in zip(pairs, weights / weights.sum(), strict=True)
    )
    measured.sort(key=lambda one: -float(np.abs(forest.fit(one) - forest.pair(one.clique)).sum()))
    grow(forest, measured)
    return measured


def _select(
    queryable: PrivateQueryable, forest: Forest, rho: float, pairs: list[Clique], rounds: int, track: Track
) -> list[LinearMeasurement]:
    spare = max(0.0, queryable.left - rho)
    selecting = rho * SELECTING / rounds
    purse = rho * (1 - SELECTING)
    weights = _weights(queryable.domain, pairs)
    shares = dict(zip(pairs, purse / rounds * weights / math.exp(float(np.log(weights).mean())), strict=True))
    kept: dict[Clique, Candidate] = {}
    changed: set[Clique] | None = None
    measured: list[LinearMeasurement] = []
    for step in track(range(rounds), "choosing pairs"):
        budgets = [_budget(shares[pair], purse, rounds - step) for pair in pairs]
        scored = []
        for pair, budget in zip(pairs, budgets, strict=True):
            candidate = kept.get(pair) if budget < purse else None
            if candidate is None:
                noise = _noise_left(forest.pair(pair), queryable.rows / math.sqrt(2 * budget))
                candidate = Candidate(clique=pair, bias=noise)
            if budget < purse:
                kept[pair] = candidate
            scored.append(candidate)
        index = queryable.select(scored, forest.pair, selecting, changed)
        last = budgets[index] >= purse  # it takes what further selections would have cost, too
        measured += queryable.measure_residuals(
            [(pairs.pop(index), queryable.left - spare if last else budgets[index])]
        )
        if last:
            forest.add(measured[-1])
            break
        purse -= budgets[index]
        changed = forest.add(measured[-1])
        for pair in changed:
            kept.pop(pair, None)
    return measured


def _budget(share: float, purse: float, rounds: int) -> float:
    """What a pair would get: its share; all that is left in the last round, or where little would remain."""
    return purse if rounds == 1 or share > 0.7 * purse else share


def _noise_left(estimate: Array, stddev: float) -> float:
    """L1 error that measuring a pair would leave: of the noise, but in no cell more than its estimate."""
    return FINENESS * float(np.minimum(math.sqrt(2 / math.pi) * stddev, estimate).sum())


def _weights(domain: Domain, pairs: Iterable[Clique]) -> Array:
    return np.array([domain.cells(pair) ** POWER for pair in pairs])
