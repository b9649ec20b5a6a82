"""Which parts of a workload one Kronecker product answers together: the groups of OPT_+.

[HDMM18] leaves the grouping to an expert. Ours starts from one group per attribute set and unites, as long as the total
error falls, the two groups for which it falls most. It is judged with one fixed strategy per axis: with t the error of
the total from it, a group of error E that takes in further axes has error E times their t, so that

    E(g and h) = E_g prod_{h - g} t + E_h prod_{g - h} t,    total error (sum_g E_g^(1/p))^p,

p = 2 for Gaussian and 3 for Laplace noise.
"""

import math

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.linop import Array

Flags = NDArray[np.bool_]


def unite(errors: Array, members: Flags, totals: Array, cells: Array, power: int, limit: float) -> list[list[int]]:
    """The groups, each a list of the positions of what it unites.

    Args:
        errors: E of every first group, shape (groups,).
        members: which axes each of them is on, shape (groups, axes).
        totals: t of every axis, at least 1 / cells, shape (axes,).
        cells: of every axis.
        power: p.
        limit: most cells of a group.

    Privacy: post-processing of public queries.
    """
    state = _State(errors.copy(), members.copy(), np.log(totals), np.log(cells), power, math.log(limit))
    found: list[list[int]] = [[index] for index in range(len(errors))]
    alive = np.ones(len(errors), dtype=bool)
    gains = np.stack([state.gains(index) for index in range(len(errors))]) if len(errors) else np.zeros((0, 0))
    np.fill_diagonal(gains, -np.inf)
    while len(errors) > 1:
        g, h = (int(i) for i in np.unravel_index(int(np.argmax(gains)), gains.shape))
        if not gains[g, h] > 0:
            break
        state.errors[g] = state.united(g)[h]
        state.members[g] |= state.members[h]
        found[g] += found[h]
        alive[h] = False
        gains[h], gains[:, h] = -np.inf, -np.inf
        fresh = np.where(alive, state.gains(g), -np.inf)
        fresh[g] = -np.inf
        gains[g], gains[:, g] = fresh, fresh
    return [sorted(found[index]) for index in np.flatnonzero(alive).tolist()]


class _State:
    """The groups as they are now."""

    def __init__(self, errors: Array, members: Flags, totals: Array, cells: Array, power: int, limit: float) -> None:
        self.errors, self.members, self.totals, self.cells = errors, members, totals, cells
        self.power, self.limit = power, limit

    def united(self, g: int) -> Array:
        """The error of group g together with every other."""
        mine = self.members[g]
        theirs_only = (self.members & ~mine) @ self.totals
        mine_only = (mine & ~self.members) @ self.totals
        found: Array = self.errors[g] * np.exp(theirs_only) + self.errors * np.exp(mine_only)
        return found

    def gains(self, g: int) -> Array:
        """How much the sum of roots falls when group g is united with each other."""
        root = 1 / self.power
        found: Array = self.errors[g] ** root + self.errors**root - self.united(g) ** root
        return np.where((self.members | self.members[g]) @ self.cells <= self.limit, found, -np.inf)
