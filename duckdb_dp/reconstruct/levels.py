"""Noisy counts of ordered values, smoothed level by level: months of days are known well where noise drowns each day."""

import math

import numpy as np

from duckdb_dp.linop import Array

LEAST = 32
"""Ordered values, at least: fewer say little of how much of each level is noise."""

OFFSETS = 4
"""Places of the blocks that are tried, whose mean has no edges of blocks."""

FLOOR = 1e-2
"""The least smoothed count, in shares of the mean: noise below it says little, and of a prior of 0 nothing is learnt any more."""


def smoothed(noisy: Array, variance: float, ordered: int, total: float) -> Array:
    """A prior for the counts of an attribute: those of ordered values smoothed, others as they are, none negative, with that total.

    Blocks of 2^l values, for all l, have a mean each. From the whole down the mean of a block is that of the one around it and the share
    f_l = max(0, 1 - noise / sum of squares) of the difference between both, over all blocks of the level, which noise does not explain,
    at one standard deviation above its mean.

    Source: empirical Bayes by levels of a Haar basis, with the factor of James & Stein 1961; means over places of the blocks as of
    Coifman & Donoho 1995.

    Args:
        noisy: counts with noise, shape (n,).
        variance: of the noise in each.
        ordered: how many of the first values are in an order.
        total: of the answer, positive.

    Privacy: post-processing.
    """
    found = np.array(noisy, dtype=np.float64)
    length = 1 << int(np.ceil(np.log2(2 * ordered)))
    offsets = np.linspace(0, length - ordered, OFFSETS).astype(np.int64)
    found[:ordered] = np.mean([_by_blocks(found[:ordered], variance, length, at) for at in offsets.tolist()], axis=0)
    found = np.maximum(found, FLOOR * total / len(found))
    return np.asarray(found * (total / found.sum()), dtype=np.float64)


def _by_blocks(noisy: Array, variance: float, length: int, offset: int) -> Array:
    """The counts with blocks that begin at 0, of ``length`` values of which those from ``offset`` on are there."""
    values, there = np.zeros(length), np.zeros(length)
    values[offset : offset + len(noisy)], there[offset : offset + len(noisy)] = noisy, 1.0
    mean, weight = np.array([noisy.mean()]), np.array([float(len(noisy))])
    found = mean
    while len(found) < length:
        around, whole = np.repeat(mean, 2), np.repeat(weight, 2)
        blocks = len(around)
        weight = there.reshape(blocks, -1).sum(axis=1)
        held = np.maximum(weight, 1.0)
        mean = np.where(weight > 0, values.reshape(blocks, -1).sum(axis=1) / held, around)
        apart = mean - around
        square = float((weight * apart**2).sum())
        noise = variance * float(np.where(weight > 0, 1 - weight / np.maximum(whole, 1.0), 0.0).sum())
        parted = int(((weight > 0) & (weight < whole)).sum()) // 2
        noise *= 1 + math.sqrt(2 / max(parted, 1))  # of few differences the squares of noise vary
        found = np.repeat(found, 2) + (1 - noise / square if square > noise else 0.0) * apart
    return np.asarray(found[offset : offset + len(noisy)])
