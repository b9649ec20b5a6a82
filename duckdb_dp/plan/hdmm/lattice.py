"""Which sets of attributes to measure, and with how much of the budget: the search of OPT_M.

Sets are tuples of names in a fixed order. A name stands for an attribute, or for an axis of several, and has a total
error t: that of the total when the name is measured with unit noise, n for plain cells. Measuring a with precision u_a
gives the component of tau, a subset, with precision u_a / prod_{i in a - tau} t_i.

Source: [HDMM18] section 8.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from duckdb_dp.domain.domain import Clique, subsets
from duckdb_dp.linop import Array
from duckdb_dp.noise.kinds import NOISES
from duckdb_dp.optimize.marginals import Shares, split

if TYPE_CHECKING:
    from scipy.sparse import csr_array

LATTICE = 14
"""Most names for which every set of them may be measured; beyond, the sets that are needed and their subsets."""

STARTS = 8
"""Random starts of the search with Laplace noise."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lattice:
    """Sets of names and what they cost.

    Attributes:
        cells: name -> number of cells, in order.
        totals: name -> t.
        dims: name -> dimension of its component without the total, per t: (n - 1)/n for plain cells.
    """

    cells: Mapping[str, int]
    totals: Mapping[str, float]
    dims: Mapping[str, float]

    def size(self, names: Clique) -> int:
        """Cells of a set."""
        return math.prod(self.cells[name] for name in names)

    def total(self, names: Clique) -> float:
        """Product of t over a set."""
        return math.prod(self.totals[name] for name in names)


def weigh(lattice: Lattice, needed: Mapping[Clique, float], noise: str, limit: int) -> list[tuple[Clique, float]]:
    """(set, share of the privacy cost) of what to measure.

    Args:
        lattice: the names.
        needed: component -> energy E of the workload on it.
        noise: 'gaussian' or 'laplace'.
        limit: most cells of all measured sets together.

    Privacy: post-processing of public queries.
    """
    each = limit
    while True:
        candidates = _candidates(lattice, list(needed), each)
        found = _split(lattice, needed, candidates, noise)
        chosen = [(clique, share) for clique, share in zip(candidates, found.shares.tolist(), strict=True) if share > 0]
        cells = sum(lattice.size(clique) for clique, _ in chosen)
        if cells <= limit or each <= max(map(lattice.size, needed)):
            return chosen
        each //= 8


def _candidates(lattice: Lattice, taus: Sequence[Clique], each: int) -> list[Clique]:
    used = {name for tau in taus for name in tau}
    names = tuple(name for name in lattice.cells if name in used)
    below = {sub for tau in taus for sub in subsets(tau)}
    if len(names) <= LATTICE:
        below |= {clique for clique in subsets(names) if lattice.size(clique) <= each}
    rank = {name: index for index, name in enumerate(lattice.cells)}
    return sorted(below, key=lambda clique: (len(clique), [rank[name] for name in clique]))


def _split(lattice: Lattice, needed: Mapping[Clique, float], candidates: Sequence[Clique], noise: str) -> Shares:
    taus = list(needed)
    energies = np.array([needed[tau] for tau in taus])
    coverage = _coverage(lattice, taus, candidates)
    inside = np.array([float(clique in needed) for clique in candidates])
    start = _closed_form(lattice, needed, candidates) + 1e-6 * inside / inside.sum()
    convex = split(coverage, energies, 2, [start])
    if not NOISES[noise].pure:
        return convex
    rng = np.random.default_rng(len(candidates))
    top = _maximal(taus)
    cells = np.array([lattice.size(clique) for clique in candidates], dtype=np.float64)
    randomly = [rng.random(len(candidates)) * (inside + 1e-9 if i % 2 else 1.0) for i in range(STARTS)]
    starts = [
        np.array([float(clique in top) for clique in candidates]) + 1e-9,
        np.sqrt(convex.shares) + 1e-9,
        cells**-0.5,
        *randomly,
    ]
    return split(coverage, energies, 1, starts)


def _coverage(lattice: Lattice, taus: Sequence[Clique], candidates: Sequence[Clique]) -> "csr_array":
    """prod_{i in a - tau} 1 / t_i where a contains tau, shape (components, candidates)."""
    from scipy.sparse import csr_array  # 0.1 s: only who plans pays for it

    number = {tau: place for place, tau in enumerate(taus)}
    used = {name for tau in taus for name in tau}
    names = [name for name in lattice.cells if name in used]
    if len(names) <= LATTICE:
        bit = {name: 1 << place for place, name in enumerate(names)}
        codes = np.array([sum(bit[name] for name in clique) for clique in candidates], dtype=np.int64)
        above = [np.flatnonzero((codes & code) == code) for code in (sum(bit[name] for name in tau) for tau in taus)]
        row, column = np.repeat(np.arange(len(taus)), [len(found) for found in above]), np.concatenate(above)
    else:
        pairs = [(number[tau], j) for j, a in enumerate(candidates) for tau in subsets(a) if tau in number]
        row, column = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    below = np.array([lattice.total(tau) for tau in taus])
    whole = np.array([lattice.total(clique) for clique in candidates])
    return csr_array((below[row] / whole[column], (row, column)), shape=(len(taus), len(candidates)))


def _closed_form(lattice: Lattice, needed: Mapping[Clique, float], candidates: Sequence[Clique]) -> Array:
    """Theorem 13: the precisions that attain the SVD bound, sqrt(E_tau / dim) each, where no share comes out negative.

    u_a = sum over b containing a of (-1)^|b - a| p_b / prod_{i in b - a} t_i; negative shares are set to 0.
    """
    number = {clique: index for index, clique in enumerate(candidates)}
    found = np.zeros(len(candidates))
    for b, energy in needed.items():
        wanted = math.sqrt(energy / math.prod(lattice.dims[name] for name in b))
        for a in subsets(b):
            found[number[a]] += (-1) ** (len(b) - len(a)) * wanted * lattice.total(a) / lattice.total(b)
    found = np.maximum(found, 0.0)
    return np.asarray(found / found.sum(), dtype=np.float64)


def _maximal(taus: Sequence[Clique]) -> set[Clique]:
    """The sets that are in no other, where all subsets are there too."""
    return set(taus) - {tau[:k] + tau[k + 1 :] for tau in taus for k in range(len(tau))}
