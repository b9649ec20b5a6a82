"""OPT_M: weighted marginals for any workload, and how answers come back from them.

Source: [HDMM18] sections 7 and 8, in the residual basis, where all marginals' Gram matrices are diagonal.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np

from duckdb_dp.domain import Clique, Domain
from duckdb_dp.linop import Array, Identity, centre
from duckdb_dp.optimize.marginals import Shares, split
from duckdb_dp.plan.base import Measurement
from duckdb_dp.plan.hdmm.energies import energies, joint_squares, part_energies, squares
from duckdb_dp.plan.hdmm.plans import HdmmPlan
from duckdb_dp.reconstruct.residual import marginal
from duckdb_dp.workload import Part, Workload

if TYPE_CHECKING:
    from scipy.sparse import csr_array

LATTICE = 14
"""Most attributes for which every set of them may be measured; beyond, the sets in the workload and their subsets."""

STARTS = 6
"""Random starts of the search with Laplace noise."""


@final
@dataclass(frozen=True, kw_only=True)
class MarginalsPlan(HdmmPlan):
    """Marginals measured with their own noise, and every answer from the best combination of them.

    Measuring the cells of marginal a with variance s_a gives the residual of tau, a subset, with precision
    1 / (s_a n_{a - tau}); precisions add up to p_tau, and a query has variance sum_tau |q_tau|^2 / p_tau.
    """

    @cached_property
    def precisions(self) -> Mapping[Clique, float]:
        """p_tau of every residual that a part of the workload needs."""
        cells = self.workload.domain.cells
        found = dict.fromkeys(self.workload.closure, 0.0)
        for m in self.measurements:
            for tau in _subsets(m.clique):
                if tau in found:
                    found[tau] += cells(tau) / (m.variance * cells(m.clique))
        return found

    def estimates(self, noisy: Mapping[Clique, Array]) -> dict[Clique, Array]:
        """The residuals, each the average of what all measurements say, weighted by precision."""
        domain, found = self.workload.domain, dict[Clique, Array]()
        for m in self.measurements:
            table = noisy[m.clique].reshape(domain.shape(m.clique))
            for tau in _subsets(m.clique):
                if tau in self.precisions and all(domain.sizes[name] > 1 for name in tau):
                    gone = tuple(axis for axis, name in enumerate(m.clique) if name not in tau)
                    residual = centre(table.sum(axis=gone) if gone else table)
                    weight = domain.cells(tau) / (m.variance * domain.cells(m.clique)) / self.precisions[tau]
                    found[tau] = found[tau] + weight * residual if tau in found else weight * residual
        return found

    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        part = self.part(which)
        table = marginal(self.workload.domain, part.clique, estimates)
        if part.joint:
            return part.queries[0].answers(table.reshape(-1), 0)
        for axis, family in enumerate(part.queries):
            table = family.answers(table, axis)
        return table

    def variance(self, which: int | Clique) -> float | Array:
        part = self.part(which)
        domain = self.workload.domain
        found = np.zeros(part.shape)
        for places in self._places(part):
            tau = tuple(part.clique[place] for place in places)
            if part.joint:
                term = joint_squares(part.queries[0], places, domain.shape(part.clique))
            else:
                term = np.ones(())
                for place, family in enumerate(part.queries):
                    term = np.multiply.outer(term, squares(family)[0 if place in places else 1])
            if term.any():
                found += term / self.precisions[tau]
        return float(found.flat[0]) if part.is_marginal else found

    def errors(self) -> tuple[float, ...]:
        domain, found = self.workload.domain, []
        known: dict[object, list[tuple[tuple[int, ...], float]]] = {}
        for part in self.workload.parts:
            key = tuple([id(family) for family in part.queries]), part.weight, domain.shape(part.clique)
            if key not in known:
                known[key] = part_energies(part, domain)
            found.append(
                math.fsum(
                    energy / self.precisions[tuple([part.clique[place] for place in places])]
                    for places, energy in known[key]
                )
            )
        return tuple(found)

    def _places(self, part: Part) -> list[tuple[int, ...]]:
        sizes = self.workload.domain.shape(part.clique)
        return [
            places
            for order in range(len(sizes) + 1)
            for places in itertools.combinations(range(len(sizes)), order)
            if all(sizes[place] > 1 for place in places)
        ]


def weighted_marginals(workload: Workload, noise: str, limit: int) -> list[tuple[Clique, float]]:
    """(clique, share of the privacy cost) of the marginals to measure: OPT_M.

    Args:
        workload: any queries.
        noise: 'gaussian' or 'laplace'.
        limit: most cells of all measured marginals together.

    Privacy: post-processing of public queries.
    """
    needed = energies(workload)
    taus, each = list(needed), limit
    while True:
        candidates = _candidates(workload, taus, each)
        found = _split(workload.domain, needed, candidates, noise)
        chosen = [(clique, share) for clique, share in zip(candidates, found.shares.tolist(), strict=True) if share > 0]
        cells = sum(workload.domain.cells(clique) for clique, _ in chosen)
        if cells <= limit or each <= max(workload.domain.cells(tau) for tau in taus):
            return chosen
        each //= 8


def _candidates(workload: Workload, taus: Sequence[Clique], each: int) -> list[Clique]:
    domain = workload.domain
    used = {name for tau in taus for name in tau}
    names = tuple(name for name in domain.attributes if name in used)
    if len(names) > LATTICE:
        found = set(taus) | {sub for tau in taus for sub in _subsets(tau)}
    else:
        found = {clique for clique in _subsets(names) if domain.cells(clique) <= each} | set(taus)
    rank = {name: index for index, name in enumerate(domain.attributes)}
    return sorted(found, key=lambda clique: (len(clique), [rank[name] for name in clique]))


def _split(domain: Domain, needed: Mapping[Clique, float], candidates: Sequence[Clique], noise: str) -> Shares:
    taus = list(needed)
    errors = np.array([needed[tau] for tau in taus])
    coverage = _coverage(domain, taus, candidates)
    inside = np.array([float(clique in needed) for clique in candidates])
    top = np.array([float(clique in _maximal(taus)) for clique in candidates]) + 1e-9
    convex = split(coverage, errors, 2, [_closed_form(domain, needed, candidates) + 1e-6 * inside / inside.sum()])
    if noise == "gaussian":
        return convex
    rng = np.random.default_rng(len(candidates))
    cells = np.array([domain.cells(clique) for clique in candidates], dtype=np.float64)
    randomly = [rng.random(len(candidates)) * (inside + 1e-9 if i % 2 else 1.0) for i in range(STARTS)]
    starts = [top, np.sqrt(convex.shares), cells**-0.5, *randomly]
    return split(coverage, errors, 1, starts)


def _coverage(domain: Domain, taus: Sequence[Clique], candidates: Sequence[Clique]) -> "csr_array":
    """1 / n_{a - tau} where a contains tau, shape (residuals, candidates)."""
    from scipy.sparse import csr_array  # 0.1 s: only who plans pays for it

    number = {tau: place for place, tau in enumerate(taus)}
    used = [name for name in domain.attributes if any(name in tau for tau in taus)]
    if len(used) <= LATTICE:
        bit = {name: 1 << place for place, name in enumerate(used)}
        codes = np.array([sum(bit[name] for name in clique) for clique in candidates], dtype=np.int64)
        above = [np.flatnonzero((codes & code) == code) for code in (sum(bit[name] for name in tau) for tau in taus)]
        row, column = np.repeat(np.arange(len(taus)), [len(found) for found in above]), np.concatenate(above)
    else:
        pairs = [(number[tau], j) for j, a in enumerate(candidates) for tau in _subsets(a) if tau in number]
        row, column = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    below = np.array([domain.cells(tau) for tau in taus], dtype=np.float64)
    measured_cells = np.array([domain.cells(clique) for clique in candidates], dtype=np.float64)
    return csr_array((below[row] / measured_cells[column], (row, column)), shape=(len(taus), len(candidates)))


def _closed_form(domain: Domain, needed: Mapping[Clique, float], candidates: Sequence[Clique]) -> Array:
    """Theorem 13: the precisions that attain the SVD bound, sqrt(E_tau / dim) each, where no share comes out negative.

    u_a = sum over b containing a of (-1)^|b - a| p_b / n_{b - a}; negative shares are set to 0.
    """
    number = {clique: index for index, clique in enumerate(candidates)}
    found = np.zeros(len(candidates))
    for b, energy in needed.items():
        wanted = math.sqrt(energy / math.prod((domain.sizes[name] - 1) / domain.sizes[name] for name in b))
        for a in _subsets(b):
            found[number[a]] += (-1) ** (len(b) - len(a)) * wanted * domain.cells(a) / domain.cells(b)
    found = np.maximum(found, 0.0)
    return np.asarray(found / found.sum(), dtype=np.float64)


def _maximal(taus: Sequence[Clique]) -> set[Clique]:
    """The sets that no other set contains."""
    below = {
        sub for tau in taus for k in range(len(tau)) for sub in [tau[:k] + tau[k + 1 :]]
    }  # closed downwards, but for empty residuals
    return {tau for tau in taus if tau not in below}


def _subsets(clique: Clique) -> list[Clique]:
    return [tau for order in range(len(clique) + 1) for tau in itertools.combinations(clique, order)]


def measured(
    domain: Domain, chosen: Sequence[tuple[Clique, float]], cost: float, noise: str
) -> tuple[Measurement, ...]:
    """The measurements at a privacy cost: variance 1 / (beta share), or scale 1 / (epsilon share)."""
    return tuple(
        Measurement(
            clique=clique,
            strategy=Identity(domain.cells(clique)),
            variance=1 / (cost * share) if noise == "gaussian" else 2 / (cost * share) ** 2,
        )
        for clique, share in chosen
    )
