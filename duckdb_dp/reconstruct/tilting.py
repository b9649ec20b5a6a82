"""Shrinking many noisy tables at once, each towards a prior as far as its own noise says, and scaling pairs to their singles.

Tables of about one shape are worked on together (``stacks``): a hundred attributes have thousands of small pairs. ``shrunk`` is empirical
Bayes: theta, how far the truth is from a prior, is estimated from the noisy residual.
"""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.stacks import shapes, stacks

STEPS = 50
TOLERANCE = 1e-7
SWEEPS = 4
"""Sweeps of iterative proportional fitting of a pair to its two singles."""

_TINY = 1e-300


@cache
def _omega() -> Any:
    from scipy.special import wrightomega  # for import time: a first answer needs none of scipy

    return wrightomega


def tilts(noisy: Array, prior: Array, strength: Array, total: float) -> Array:
    """argmin over mu >= 0 with sum mu = total of |mu - noisy|^2 / 2 + strength KL(mu || prior), for each row.

    Each cell solves mu / s + log(mu / s) = (noisy - nu) / s + log(prior / s), so that mu = s omega(...), omega the Wright
    function; the multiplier nu of the total by Newton: the sum is convex and falls in nu, with slope -mu / (s + mu).

    Args:
        noisy: noisy tables, shape (k, cells).
        prior: what they shrink to, no negative entry, shape (k, cells); where 0, the answer is 0.
        strength: s, positive: noise variance over theta, shape (k,).
        total: the sum of each answer, positive.

    Returns:
        Shape (k, cells).

    Privacy: post-processing.
    """
    s = strength[:, None]
    with np.errstate(divide="ignore"):
        base = noisy / s + np.log(prior / s)
    answer, level, left = np.empty_like(base), np.zeros(len(base)), np.arange(len(base))
    for _ in range(STEPS):
        own = s[left]
        mu = own * _omega()(base[left] - level[left, None] / own)
        answer[left] = mu
        excess = mu.sum(axis=1) - total
        far = np.abs(excess) > TOLERANCE * total
        if not far.any():
            break
        left, mu, own = left[far], mu[far], own[far]
        level[left] += excess[far] / np.maximum((mu / (own + mu)).sum(axis=1), _TINY)
    answer *= total / np.maximum(answer.sum(axis=1, keepdims=True), _TINY)
    return np.asarray(answer, dtype=np.float64)


def interactions(gap: Array, prior: Array, noise: Array, inside: NDArray[np.bool_] | None = None) -> Array:
    """theta of each row: how far the truth is from its prior, estimated as E (mu - prior)^2 = theta prior.

    Where KL(mu || prior) / theta is the negative log density of mu, cells vary by about theta times the prior. The gap's
    squares are on average noise + theta prior; they are weighted by the inverse variance of a square under the model, which
    depends on theta: a fixed point.

    Args:
        gap: the measured residuals minus those of the priors, centred, shape (k, cells).
        prior: the priors, no negative entry, shape (k, cells).
        noise: variance of the noise in a cell of the gap, shape (k,).
        inside: which cells are those of tables, shape (k, cells); by default all. Of others gap and prior are 0.

    Returns:
        theta, shape (k,); 0 where the gap is no larger than its noise.

    Privacy: post-processing.
    """
    excess: Array = gap**2 - (noise[:, None] if inside is None else noise[:, None] * inside)
    most = np.maximum(prior.max(axis=1), _TINY)
    theta = np.maximum(excess.sum(axis=1), 0.0) / np.maximum(prior.sum(axis=1), _TINY) + noise / most
    left = np.arange(len(gap))
    for _ in range(STEPS):
        m, old = prior[left], theta[left]
        weights = m / (noise[left, None] + old[:, None] * m) ** 2
        new = (weights * excess[left]).sum(axis=1) / np.maximum((weights * m).sum(axis=1), _TINY)
        theta[left] = np.maximum(new, 0.0)
        left = left[(new > 0) & (np.abs(new - old) > 1e-4 * old)]
        if not left.size:
            break
    return np.asarray(theta, dtype=np.float64)


def shrunk(components: ResidualEstimates, priors: Mapping[Clique, Array], total: float) -> dict[Clique, Array]:
    """Each table between its prior and its noisy residual; the prior itself where none was measured, or only noise is seen.

    Of a residual of groups (``ResidualEstimates.groups``) the table of groups is shrunk, and the prior scaled to it: the least of the same
    sum of squares and KL, as KL inside groups is 0 then.

    Args:
        components: noisy residuals with their precisions.
        priors: clique -> prior, whose sum is the total.
        total: positive.

    Privacy: post-processing.
    """
    for coarser in components.coarser:
        priors = shrunk(coarser, priors, total)
    found, measured = dict(priors), [clique for clique in priors if clique in components.values]
    seen_as = {clique: components.measured_as(clique, priors[clique]) for clique in measured}
    for stack in stacks(shapes(seen_as)):
        prior = stack.stacked(seen_as)
        gap = stack.stacked(components.values) - stack.centred(prior)
        flat, rest = prior.reshape(len(prior), -1), gap.reshape(len(prior), -1)
        variance = np.array([1 / components.precisions[clique] for clique in stack.cliques])
        noise = variance * np.prod(1 - 1 / stack.sizes, axis=1)
        theta = interactions(rest, flat, noise, None if stack.even else stack.inside.reshape(flat.shape))
        seen = np.flatnonzero(theta > 0)
        prior.reshape(flat.shape)[seen] = tilts((flat + rest)[seen], flat[seen], variance[seen] / theta[seen], total)
        found |= zip(stack.cliques, stack.apart(prior), strict=True)
    grouped = ((clique, components.groups[clique]) for clique in measured if clique in components.groups)
    return found | {clique: groups.scaled(priors[clique], found[clique]) for clique, groups in grouped}


def consistent(
    pairs: Mapping[Clique, Array], singles: Mapping[Clique, Array], total: float
) -> tuple[dict[Clique, Array], dict[Clique, Array]]:
    """(pairs, singles) that agree: each single becomes the mean of what its pairs say, and each pair is scaled to its singles.

    Args:
        pairs: clique of two -> table.
        singles: clique of one -> table; those of attributes without pairs stay.
        total: their sum.

    Privacy: post-processing.
    """
    sums: dict[Clique, Array] = {}
    for pair, table in pairs.items():
        for name, size in zip(pair, table.shape, strict=True):
            sums.setdefault((name,), np.zeros(size))
    for stack in stacks(shapes(pairs)):
        tables = stack.stacked(pairs)
        for side, own in enumerate((tables @ np.ones(tables.shape[2]), np.ones(tables.shape[1]) @ tables)):
            for clique, row in zip(stack.cliques, stack.apart(own, (side,)), strict=True):
                sums[clique[side],] += row
    better = {single: table * (total / max(float(table.sum()), _TINY)) for single, table in sums.items()}
    return scaled(pairs, better), {**singles, **better}


def scaled(pairs: Mapping[Clique, Array], singles: Mapping[Clique, Array], sweeps: int = SWEEPS) -> dict[Clique, Array]:
    """Each pair by iterative proportional fitting to its two singles.

    The table is scaled once, by the products of all factors: a sweep reads it twice and writes nothing. A row or column of zeros
    stays one.

    Privacy: post-processing.
    """
    found = dict(pairs)
    for stack in stacks(shapes(pairs)):
        table, rows, columns = stack.stacked(pairs), stack.stacked(singles, (0,)), stack.stacked(singles, (1,))
        left, right = np.ones_like(rows), np.ones_like(columns)
        for _ in range(sweeps):
            left *= _quotient(rows, left * np.matmul(table, right[:, :, None])[:, :, 0])
            right *= _quotient(columns, right * np.matmul(left[:, None, :], table)[:, 0, :])
        table *= left[:, :, None]
        table *= right[:, None, :]
        found |= zip(stack.cliques, stack.apart(table), strict=True)
    return found


def _quotient(wanted: Array, have: Array) -> Array:
    return np.divide(wanted, have, out=np.zeros_like(have), where=have > _TINY)


def product(singles: Mapping[Clique, Array], clique: Clique, total: float) -> Array:
    """The table of a clique whose attributes are independent."""
    table = np.asarray(total, dtype=np.float64)
    for name in clique:
        table = np.multiply.outer(table, singles[name,] / total)
    return table


def products(singles: Mapping[Clique, Array], pairs: Collection[Clique], total: float) -> dict[Clique, Array]:
    """``product`` of many pairs."""
    shares: dict[Clique, Array] = {
        (name,): singles[name,] / total for name in {name for pair in pairs for name in pair}
    }
    found = dict.fromkeys(pairs, np.zeros(0))
    for stack in stacks({(a, b): (len(shares[a,]), len(shares[b,])) for a, b in pairs}):
        rows, columns = total * stack.stacked(shares, (0,)), stack.stacked(shares, (1,))
        found |= zip(stack.cliques, stack.apart(rows[:, :, None] * columns[:, None, :]), strict=True)
    return found
