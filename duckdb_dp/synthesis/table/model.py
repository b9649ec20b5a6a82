"""The estimate that records are drawn from and fitted to: that of 'neyman', or where it cannot be made a forest of pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.adaptive import neyman
from duckdb_dp.adaptive.base import Options
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track
from duckdb_dp.reconstruct.estimate import Estimate
from duckdb_dp.reconstruct.likeness import UNKNOWN, Likeness
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.tree import spanning_tree
from duckdb_dp.synthesis.table.forest import candidates

CELLS = 2**24
"""Cells of all pairs together up to which 'neyman' estimates them."""


class Model(Protocol):
    """What ``records`` reads: an estimate of singles and pairs, and a forest of pairs along which records are drawn."""

    @property
    def domain(self) -> Domain:
        """Of the attributes."""

    @property
    def total(self) -> float:
        """Rows."""

    @property
    def singles(self) -> Mapping[str, Array]:
        """The estimate of each attribute."""

    @property
    def edges(self) -> list[Clique]:
        """The pairs of the forest."""

    @property
    def fitted(self) -> Mapping[Clique, Array]:
        """The pairs that records are fitted to."""

    def pair(self, clique: Clique) -> Array:
        """The estimate of a pair."""


@final
@dataclass(frozen=True, slots=True)
class Estimated:
    """The estimate of 'neyman' as a model.

    Attributes:
        domain, total, singles, edges, fitted: as of ``Model``.
        grouped: pairs that were measured in groups of neighbouring values -> how many groups of each attribute.
    """

    domain: Domain
    total: float
    singles: Mapping[str, Array]
    edges: list[Clique]
    fitted: Mapping[Clique, Array]
    grouped: Mapping[Clique, tuple[int, ...]]

    @classmethod
    def of(cls, domain: Domain, estimate: Estimate, grouped: Mapping[Clique, tuple[int, ...]]) -> "Estimated":
        """From singles and pairs that agree with one another."""
        total = estimate.total
        singles = {name: estimate.singles.get((name,), np.array([total])) for name in domain.attributes}
        edges = [domain.clique(edge) for edge in spanning_tree(estimate.pairs)]
        return cls(domain, total, singles, edges, estimate.pairs, grouped)

    def pair(self, clique: Clique) -> Array:
        """The estimate of a pair, in the domain's order."""
        held = self.fitted.get(clique)
        return (
            np.multiply.outer(self.singles[clique[0]], self.singles[clique[1]]) / self.total if held is None else held
        )


def workload(domain: Domain) -> Workload | None:
    """All pairs, where 'neyman' can estimate them: small enough, and at least one; a function of the domain alone."""
    pairs = candidates(domain)
    names = [name for name in domain.attributes if domain.sizes[name] > 1]
    complete = len(pairs) == len(names) * (len(names) - 1) // 2
    if not pairs or not complete or sum(map(domain.cells, pairs)) > CELLS:
        return None
    return Workload.marginals(domain, pairs)


def estimable(domain: Domain, rho: float, accounting: Accounting, rows: int, rounds: int | None = None) -> bool:
    """Whether 'neyman' takes the pairs of a domain at this cost; depends on public facts only."""
    asked = workload(domain)
    if asked is None:
        return False
    try:
        neyman.check(asked, Options(rounds=rounds), rho, accounting, rows=rows)
    except DPError:
        return False
    return True


def estimate(
    queryable: PrivateQueryable, rounds: int | None, track: Track, alike: Mapping[str, Likeness] | None = None
) -> tuple[list[LinearMeasurement], Estimated]:
    """All pairs, measured by 'neyman' with all that ``queryable`` has left.

    Args:
        queryable: what measures.
        rounds: of 'neyman'.
        track: shows progress.
        alike: which values of an attribute are; of those that are not named nothing is known.

    Privacy: spends ``queryable.left``.
    """
    asked = workload(queryable.domain)
    assert asked is not None, "checked before"
    every = {name: (alike or {}).get(name, UNKNOWN) for name in queryable.domain.attributes}
    outcome = neyman.neyman(queryable, asked, Options(rounds=rounds), alike=every, track=track)
    assert outcome.estimate is not None
    return list(outcome.measured), Estimated.of(queryable.domain, outcome.estimate, outcome.grouped)
