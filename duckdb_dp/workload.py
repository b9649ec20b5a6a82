"""Workloads: the linear queries that are to be answered well."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from duckdb_dp.domain import Clique, Domain
from duckdb_dp.errors import DPError


@dataclass(frozen=True)
class Workload:
    """A weighted union of marginals over a domain.

    The error that planners minimise is the sum over all cells of all marginals of weight * variance.

    Attributes:
        domain: the public domain.
        weights: clique -> weight of each of its cells (positive, finite).
    """

    domain: Domain
    weights: Mapping[Clique, float]

    def __post_init__(self) -> None:
        if not self.weights:
            raise DPError("Workload: no marginal was asked for; name at least one attribute set, e.g. [('age', 'sex')].")
        for clique, weight in self.weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
                raise DPError(f"Workload: the weight of {list(clique)} is {weight!r}; weights are positive and finite.")

    @classmethod
    def marginals(
        cls,
        domain: Domain,
        cliques: Iterable[Iterable[str]],
        weights: Sequence[float] | None = None,
    ) -> "Workload":
        """The named marginals.

        Args:
            domain: the domain.
            cliques: attribute sets; ``()`` is the total.
            weights: one positive weight per clique; None weighs every cell the same.

        Raises:
            DPError: an unknown or repeated attribute, the same set twice, or weights that do not fit.
        """
        sets = [domain.clique(clique) for clique in cliques]
        if weights is not None and len(weights) != len(sets):
            raise DPError(f"Workload: {len(sets)} marginals but {len(weights)} weights; give one weight per marginal.")
        found: dict[Clique, float] = {}
        for clique, weight in zip(sets, [1.0] * len(sets) if weights is None else weights, strict=True):
            if clique in found:
                raise DPError(f"Workload: the attribute set {list(clique)} is named twice; name it once, with a weight.")
            found[clique] = weight
        return cls(domain, found)

    @classmethod
    def all_k_way(cls, domain: Domain, k: int, upto: bool = False) -> "Workload":
        """All marginals of exactly k attributes, or of 1 to k attributes when ``upto``.

        Raises:
            DPError: k is not between 0 and the number of attributes (1 with ``upto``).
        """
        lowest = 1 if upto else 0
        if isinstance(k, bool) or not isinstance(k, int) or not lowest <= k <= len(domain.sizes):
            raise DPError(f"Workload: k = {k!r}, but k is {lowest} to {len(domain.sizes)}, the number of attributes.")
        orders = range(1, k + 1) if upto else (k,)
        return cls(domain, {c: 1.0 for order in orders for c in itertools.combinations(domain.attributes, order)})

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The attribute sets, in the order asked."""
        return tuple(self.weights)

    @cached_property
    def queries(self) -> int:
        """Number of scalar queries: the cells of all marginals."""
        return sum(self.domain.cells(clique) for clique in self.weights)

    @cached_property
    def closure(self) -> tuple[Clique, ...]:
        """Every subset of a clique of the workload, smallest first, then in the domain's order."""
        rank = {name: index for index, name in enumerate(self.domain.attributes)}
        found = {tau for clique in self.weights for size in range(len(clique) + 1) for tau in itertools.combinations(clique, size)}
        return tuple(sorted(found, key=lambda tau: (len(tau), [rank[name] for name in tau])))
