"""How much of several noisy tables of one attribute with others is not noise: empirical Bayes, with what they have in common."""

from collections.abc import Sequence

import numpy as np

from duckdb_dp.linop import Array

STRENGTHS = np.concatenate([[0.0], np.geomspace(0.01, 1000.0, 40)])
"""Of one table, relative to what all have in common; 0: it is noise alone."""

NOISE_ALONE, FIRST, PASSES = 0.2, 3.0, 10
"""Chance that a table is noise alone before anything is known; for how many tables that guess counts, and passes of its estimate."""

ANY, EVEN = 0.05, 0.1
"""Strength that all directions together have at least, over the noise; and the share of it that is even over all of them: a table
may have its own."""


NOTHING = 1e-9
"""Of the largest eigenvalue: smaller ones are 0 but for rounding."""


def outside(scale: Array) -> Array:
    """An orthonormal basis of what is orthogonal to 1 / scale, shape (n, n - 1)."""
    found = np.linalg.qr(np.concatenate([1 / scale[:, None], np.eye(len(scale))], axis=1))[0]
    return np.asarray(found[:, 1:])


def kept_shares(tables: Sequence[Array]) -> tuple[Array, Array]:
    """(directions, one a column, shape (J, J); the share of each table that is kept in each of them, shape (tables, J)).

    Formula: a table in direction j is N(0, (1 + t l_j) I). The directions are those of the energy of all tables together, and l_j its
    eigenvalues as they are without noise: of y J-dimensional vectors of noise and a few strong directions the largest eigenvalues
    are 1 + l + (J/n) (1 + l) / l. t is the strength of each table, drawn from an unknown distribution over ``STRENGTHS`` that is
    estimated from all. Kept is the mean of t l_j / (1 + t l_j).

    Args:
        tables: shape (J, n_a), with noise of variance 1 in each cell.

    Source: Efron and Morris 1976 for one shrinkage of several tables; Baik and Silverstein 2006 for the eigenvalues.

    Privacy: post-processing.
    """
    free = np.array([table.shape[1] for table in tables], dtype=np.float64)
    number = float(free.sum())
    values, turn = np.linalg.eigh(np.asarray(sum(table @ table.T for table in tables)) / number)
    ratio = len(values) / number
    above = np.maximum(values - 1 - ratio, 0.0)
    clear = above**2 > 4 * ratio
    strong = np.where(clear, (above + np.sqrt(np.where(clear, above**2 - 4 * ratio, 0.0))) / 2, 0.0)
    # The largest eigenvalue is large by selection too: each direction has the energy that its strength would have.
    # Of directions that no table has, as fewer vectors than directions leave some, rounding is all that is seen.
    energy = np.stack([((turn.T @ table) ** 2).sum(axis=1) for table in tables])
    any_ = values > NOTHING * float(values[-1])
    energy = (1 + strong) * np.where(any_, energy / np.where(any_, values, 1.0), free[:, None])
    strong += EVEN * max(float(strong.sum()), ANY) / len(strong)
    spread = 1 + STRENGTHS[:, None] * strong
    logs = -0.5 * (free * np.log(spread).sum(axis=1)[:, None] + (1 / spread) @ energy.T)
    likely = np.exp(logs - logs.max(axis=0))
    guess = np.full(len(STRENGTHS), (1 - NOISE_ALONE) / (len(STRENGTHS) - 1))
    guess[0] = NOISE_ALONE
    chances, spreads = likely, guess
    for _ in range(PASSES):
        joint = likely * spreads[:, None]
        chances = joint / joint.sum(axis=0)
        spreads = (FIRST * guess + chances.sum(axis=1)) / (FIRST + len(tables))
    return turn, np.asarray(chances.T @ (1 - 1 / spread))
