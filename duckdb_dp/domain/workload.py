"""Workloads: weighted sets of linear queries to answer."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import ArrayLike

from duckdb_dp.domain.disjunctions import MAX_DENSE, Disjunctions
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.queries import Intervals, Predicates, Queries, parse_kind, parse_pair
from duckdb_dp.errors import DPError, as_sql, expect

MAX_JOINT_CELLS = 65_536
"""Most cells of a part whose queries are no product: its strategy is a dense matrix, queries by cells."""

MAX_WRITTEN = 1_000_000
"""Most entries, queries times cells, of disjunctions that are written out as a matrix."""

LISTED = 4
"""Attribute sets that a workload names when it is printed."""


@dataclass(frozen=True, slots=True)
class Part:
    """Queries on one attribute set: all products of one query per attribute, or (joint) queries on its cells.

    Attributes:
        clique: the attributes.
        queries: one family per attribute; or a single one on the joint cells, in row-major order.
        weight: weight of each query, times its own.
        joint: whether ``queries`` is a single joint family.
    """

    clique: Clique
    queries: tuple[Queries, ...]
    weight: float = 1.0
    joint: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of queries of each family: the answers form an array of this shape."""
        return tuple(family.count for family in self.queries)

    @property
    def is_marginal(self) -> bool:
        """Whether the queries are the cells themselves."""
        return not self.joint and all(isinstance(q, Intervals) and q.kind == "identity" for q in self.queries)

    @property
    def negated(self) -> "Part | None":
        """The products whose complements the queries are, where they are disjunctions; else None.

        Planners that know products need no joint matrix then: W = 1 - (x)_i W_i has the residuals of -(x)_i W_i, all
        but the total, and a Gram matrix of four products. Source: [HDMM18] appendix A.
        """
        family = self.queries[0] if self.joint else None
        return Part(self.clique, family.negated, self.weight) if isinstance(family, Disjunctions) else None


@dataclass(frozen=True)
class Workload:
    """A weighted union of query sets over a domain; ``+`` unites.

    The error that planners minimise is the sum over all queries of weight * variance.

    Attributes:
        domain: the public domain.
        parts: the query sets.
    """

    domain: Domain
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        expect("Workload", "domain", self.domain, Domain, "a duckdb_dp.Domain")
        expect("Workload", "parts", self.parts, tuple, "query sets, as Workload.marginals makes them")
        if not self.parts:
            raise DPError(
                "Workload: no marginal was asked for; name at least one attribute set, e.g. [('age', 'sex')]."
            )

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
        expect("Workload", "domain", domain, Domain, "a duckdb_dp.Domain")
        expect("Workload", "cliques", cliques, Iterable, "attribute sets, e.g. [('age', 'sex')]")
        if weights is not None:
            expect("Workload", "weights", weights, Sized, "one positive number per marginal")
        sets = [domain.clique(clique) for clique in cliques]
        if weights is not None and len(weights) != len(sets):
            raise DPError(f"Workload: {len(sets)} marginals but {len(weights)} weights; give one weight per marginal.")
        if len(set(sets)) < len(sets):
            twice = next(clique for clique in sets if sets.count(clique) > 1)
            raise DPError(f"Workload: the attribute set {as_sql(twice)} is named twice; name it once, with a weight.")
        given = [1.0] * len(sets) if weights is None else weights
        return cls.distinct(domain, sets, [_weight(clique, weight) for clique, weight in zip(sets, given, strict=True)])

    @classmethod
    def distinct(cls, domain: Domain, cliques: Sequence[Clique], weights: Sequence[float]) -> "Workload":
        """Marginals that were checked before: attributes in the domain's order, its weight positive."""
        identity = {name: Intervals("identity", size) for name, size in domain.sizes.items()}
        return cls(domain, tuple(map(Part, cliques, _shared(identity, cliques), weights)))

    @classmethod
    def product(cls, domain: Domain, kinds: Mapping[str, Any], weight: float = 1.0) -> "Workload":
        """All products of one query per attribute.

        Args:
            domain: the domain.
            kinds: attribute -> 'identity', 'total', 'prefix', 'suffix', 'range', 'circular', 'width-w', 'hierarchy-b',
                or predicates as a matrix (queries, cells).
            weight: weight of each query.

        Raises:
            DPError: an unknown attribute or kind, a matrix of the wrong width, or a weight that is not positive.
        """
        expect("Workload", "domain", domain, Domain, "a duckdb_dp.Domain")
        expect("Workload", "kinds", kinds, Mapping, "a kind per attribute, e.g. {'age': 'range'}")
        clique = domain.clique(kinds)
        families = tuple(parse_kind(kinds[name], domain.sizes[name]) for name in clique)
        return cls(domain, (Part(clique, families, _weight(clique, weight)),))

    @classmethod
    def disjunctions(cls, domain: Domain, kinds: Mapping[str, Any], weight: float = 1.0) -> "Workload":
        """q_1 OR ... OR q_k for all products of one predicate per attribute, in the order of the products.

        Few queries on few cells are written out as a matrix, for which better strategies are found.

        Args:
            domain: the domain.
            kinds: attribute -> kind, as for ``product``; predicates of 0 and 1.
            weight: weight of each query.

        Raises:
            DPError: as for ``product``, or predicates with other entries.
        """
        (part,) = cls.product(domain, kinds, weight).parts
        if len(part.clique) < 2:
            return cls(domain, (part,))
        family = Disjunctions.of(part.queries)
        written = family.n <= MAX_DENSE and family.count * family.n <= MAX_WRITTEN
        queries = Predicates.of(family.dense(), family.weights()) if written else family
        return cls(domain, (Part(part.clique, (queries,), part.weight, joint=True),))

    @classmethod
    def predicates(
        cls, domain: Domain, clique: Iterable[str], kind: Any, weight: float | ArrayLike = 1.0
    ) -> "Workload":
        """Queries on the joint cells of an attribute set that are no products.

        Args:
            domain: the domain.
            clique: the attributes, in the order of the matrix's row-major cells.
            kind: 'affine' (a + b <= c for all c), 'abs' (|a - b| <= c for all c), or a matrix (queries, cells).
            weight: one weight, or one per query.

        Raises:
            DPError: an unknown attribute or kind, a matrix of the wrong width, weights that are not positive, or a set
                with too many cells for a dense strategy.
        """
        expect("Workload", "domain", domain, Domain, "a duckdb_dp.Domain")
        expect("Workload", "clique", clique, Iterable, "names, e.g. ('age', 'sex')")
        given = (clique,) if isinstance(clique, str) else tuple(clique)
        ordered = domain.clique(given)
        if ordered != given and not isinstance(kind, str):
            raise DPError(
                f"predicates: name the attributes in the domain's order {as_sql(ordered)}, and lay the cells out so."
            )
        cells = domain.cells(ordered)
        if cells > MAX_JOINT_CELLS:
            raise DPError(
                f"predicates: {as_sql(ordered)} has {cells:,} cells and queries that are no products are planned up to "
                f"{MAX_JOINT_CELLS:,}; declare coarser bins, or use products of one-attribute queries."
            )
        scalar = isinstance(weight, int | float)
        family = parse_pair(kind, domain.shape(ordered), None if scalar else weight)
        return cls(domain, (Part(ordered, (family,), _weight(ordered, weight) if scalar else 1.0, joint=True),))

    @classmethod
    def all_k_way(
        cls, domain: Domain, k: int, upto: bool = False, kinds: Mapping[str, Any] | str | None = None
    ) -> "Workload":
        """All sets of exactly k attributes, or of 1 to k attributes when ``upto``.

        Args:
            domain: the domain.
            k: how many attributes.
            upto: also all smaller sets, but not the total.
            kinds: one kind for all attributes, or a kind per attribute (identity where not named); None for marginals.

        Raises:
            DPError: k is not between 0 and the number of attributes (1 with ``upto``), or an unknown kind.
        """
        expect("Workload", "domain", domain, Domain, "a duckdb_dp.Domain")
        expect("Workload", "upto", upto, bool, "True or False")
        if kinds is not None:
            expect("Workload", "kinds", kinds, (Mapping, str), "a kind for all attributes, or one per attribute")
        lowest = 1 if upto else 0
        if isinstance(k, bool) or not isinstance(k, int) or not lowest <= k <= len(domain.sizes):
            raise DPError(
                f"Workload: k = {as_sql(k)}, but k is {lowest} to {len(domain.sizes)}, the number of attributes."
            )
        named: Mapping[str, Any] = dict.fromkeys(domain.sizes, kinds) if isinstance(kinds, str) else kinds or {}
        domain.clique(named)
        family = {name: parse_kind(named.get(name, "identity"), size) for name, size in domain.sizes.items()}
        orders = range(1, k + 1) if upto else (k,)
        cliques = [clique for order in orders for clique in itertools.combinations(domain.attributes, order)]
        return cls(domain, tuple(map(Part, cliques, _shared(family, cliques))))

    def __repr__(self) -> str:
        named = [", ".join(clique) or "total" for clique in self.cliques[:LISTED]]
        more = ["..."] * (len(self.parts) > LISTED)
        return f"Workload({self.summary}: {'; '.join([*named, *more])})"

    def __add__(self, other: "Workload") -> "Workload":
        expect("Workload", "what is added", other, Workload, "another workload")
        if self.domain != other.domain:
            raise DPError("Workload: only workloads over the same domain can be united.")
        return Workload(self.domain, self.parts + other.parts)

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The attribute sets, in the order asked."""
        return tuple(part.clique for part in self.parts)

    @property
    def summary(self) -> str:
        """How much is asked, in words."""
        sets, queries = len(self.parts), self.queries
        return f"{sets:,} query set{'s' * (sets != 1)}, {queries:,} {'query' if queries == 1 else 'queries'}"

    @cached_property
    def is_marginals(self) -> bool:
        """Whether every part is a marginal, each named once."""
        cells = all(isinstance(one, Intervals) and one.kind == "identity" for one in self._families.values())
        return cells and not any(part.joint for part in self.parts) and len(set(self.cliques)) == len(self.parts)

    @cached_property
    def weights(self) -> Mapping[Clique, float]:
        """Clique -> weight, of a workload of marginals.

        Raises:
            DPError: the workload has other queries than marginals.
        """
        if not self.is_marginals:
            raise DPError(
                "this mechanism answers marginals only, each once; use mechanism 'querysmasher' for other queries."
            )
        return {part.clique: part.weight for part in self.parts}

    @cached_property
    def queries(self) -> int:
        """Number of scalar queries."""
        counts = {key: family.count for key, family in self._families.items()}
        products = {key: math.prod([counts[id(one)] for one in found]) for key, found in self._products.items()}
        return sum([products[id(part.queries)] for part in self.parts])

    @cached_property
    def _families(self) -> dict[int, Queries]:
        """Each family once, however many parts share it."""
        return {id(family): family for found in self._products.values() for family in found}

    @cached_property
    def _products(self) -> dict[int, tuple[Queries, ...]]:
        """Each tuple of families once."""
        return {id(part.queries): part.queries for part in self.parts}

    @cached_property
    def closure(self) -> tuple[Clique, ...]:
        """Every subset of a clique of the workload, smallest first, then in the domain's order."""
        rank = {name: index for index, name in enumerate(self.domain.attributes)}
        found = {
            tau
            for clique in set(self.cliques)
            for size in range(len(clique) + 1)
            for tau in itertools.combinations(clique, size)
        }
        return tuple(sorted(found, key=lambda tau: (len(tau), [rank[name] for name in tau])))


def _shared(family: Mapping[str, Queries], cliques: Sequence[Clique]) -> Iterator[tuple[Queries, ...]]:
    """The families of each clique, equal ones as the same object: 161,700 marginals of attributes of one size have one."""
    numbers: dict[Queries, int] = {}
    kind = {name: numbers.setdefault(queries, len(numbers)) for name, queries in family.items()}
    families = list(numbers)
    known: dict[tuple[int, ...], tuple[Queries, ...]] = {}
    for clique in cliques:
        key = tuple([kind[name] for name in clique])
        if key not in known:
            known[key] = tuple([families[number] for number in key])
        yield known[key]


def _weight(clique: Clique, weight: object) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise DPError(f"Workload: the weight of {as_sql(clique)} is {as_sql(weight)}; weights are positive and finite.")
    return float(weight)
