"""OPT_M: weighted marginals for any workload, and how answers are reconstructed from them.

Source: [HDMM18] sections 7 and 8, in the residual basis, where all marginals' Gram matrices are diagonal.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from duckdb_dp.domain.domain import Clique, subsets
from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Array, Identity, LinOp, centre
from duckdb_dp.noise.kinds import NOISES
from duckdb_dp.plan.base import Measurement, family_answers
from duckdb_dp.plan.energies import energies, part_energies, part_squares
from duckdb_dp.plan.hdmm.lattice import Lattice, weigh
from duckdb_dp.plan.hdmm.plans import HdmmPlan
from duckdb_dp.plan.subspaces import residuals_of
from duckdb_dp.reconstruct.residual import marginal


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
            for tau in subsets(m.clique):
                if tau in found:
                    found[tau] += cells(tau) / (m.variance * cells(m.clique))
        return found

    def estimates(self, noisy: Mapping[Clique, Array]) -> dict[Clique, Array]:
        """The residuals, each the average of what all measurements say, weighted by precision."""
        domain, found = self.workload.domain, dict[Clique, Array]()
        for m in self.measurements:
            table = noisy[m.clique].reshape(domain.shape(m.clique))
            for tau in subsets(m.clique):
                if tau in self.precisions and all(domain.sizes[name] > 1 for name in tau):
                    gone = tuple(axis for axis, name in enumerate(m.clique) if name not in tau)
                    residual = centre(table.sum(axis=gone) if gone else table)
                    weight = domain.cells(tau) / (m.variance * domain.cells(m.clique)) / self.precisions[tau]
                    found[tau] = found[tau] + weight * residual if tau in found else weight * residual
        return found

    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        part = self.part(which)
        return family_answers(part, marginal(self.workload.domain, part.clique, estimates))

    def variance(self, which: int | Clique) -> float | Array:
        part = self.part(which)
        domain = self.workload.domain
        found = np.zeros(part.shape)
        for places in residuals_of(domain.shape(part.clique)):
            tau = tuple(part.clique[place] for place in places)
            term = part_squares(part, places, domain.shape(part.clique))
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

    @classmethod
    def restored(
        cls, workload: Workload, described: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[list[LinOp], dict[str, Any]]:
        return [Identity(workload.domain.cells(tuple(c))) for c in described["cliques"]], cls.named(described)


def weighted_marginals(workload: Workload, noise: str, cost: float, limit: int) -> tuple[Measurement, ...]:
    """What to measure: OPT_M. Variances are 1 / (beta share), or 2 / (epsilon share)^2.

    Args:
        workload: any queries.
        noise: 'gaussian' or 'laplace'.
        cost: beta or epsilon.
        limit: most cells of all measured marginals together.

    Privacy: post-processing of public queries.
    """
    sizes = workload.domain.sizes
    lattice = Lattice(
        cells=sizes,
        totals={name: float(n) for name, n in sizes.items()},
        dims={name: (n - 1) / n for name, n in sizes.items()},
    )
    return tuple(
        Measurement(
            clique=clique,
            strategy=Identity(workload.domain.cells(clique)),
            variance=NOISES[noise].unit_variance(cost * share),
        )
        for clique, share in weigh(lattice, energies(workload), noise, limit)
    )
