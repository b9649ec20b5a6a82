"""OPT_M with any strategy on each axis: weighted sets of axes, each measured by the product of their strategies.

[HDMM18] section 7 rests on I and 1 1^T having common eigenspaces. Any V_i = A_i^T A_i and 1 1^T have them too, in the
coordinates where V_i is the identity: with t_i = 1^T V_i^+ 1 and g_i = V_i^+ 1 / t_i,

    V_i^+ = t_i g_i g_i^T + P_i,   P_i 1 = 0,

and the Gram matrix sum_a u_a (x)_{i in a} V_i (x)_{i not in a} 1 1^T has the pseudo-inverse

    sum_tau 1 / kappa(tau) (x)_{i in tau} P_i (x)_{i not in tau} t_i g_i g_i^T,   kappa(tau) = sum_{a >= tau} u_a prod_{i not in a} t_i.

So all of OPT_M carries over: the mean along an axis, g = 1/n for plain cells, becomes the weighted sum by g_i. It costs no
more than OPT_M, and answers 2-way prefixes of many attributes with less than half its error.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from duckdb_dp.domain.domain import Clique, subsets
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.linop import Array, Identity, Kron
from duckdb_dp.plan.energies import moments, squares
from duckdb_dp.plan.hdmm.axes import Axis, AxisQueries
from duckdb_dp.plan.hdmm.lattice import Lattice, weigh
from duckdb_dp.plan.hdmm.oracle import AxisStrategy
from duckdb_dp.plan.hdmm.plans import Block, HdmmPlan, arranged, outside
from duckdb_dp.plan.searched import Matrices


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Basis:
    """One axis and the strategy by which it is measured wherever it is."""

    axis: Axis
    factor: AxisStrategy

    @property
    def name(self) -> str:
        """Of its first attribute."""
        return self.axis.names[0]

    @property
    def plain(self) -> bool:
        """Whether the cells themselves are measured, of one attribute."""
        return isinstance(self.factor.strategy, Identity) and len(self.axis.names) == 1

    @cached_property
    def total(self) -> float:
        """T."""
        return float(self.axis.cells) if self.plain else float(self.factor.covariance.sum())

    @cached_property
    def share(self) -> Array:
        """G, of sum 1, shape (n,)."""
        n = self.axis.cells
        return np.full(n, 1 / n) if self.plain else np.asarray(self.factor.covariance.sum(axis=1) / self.total)

    @cached_property
    def sees_total(self) -> bool:
        """Whether 1 is in the row space of the strategy; the decomposition of V^+ above needs that."""
        ones = np.ones(self.axis.cells)
        seen = self.factor.covariance @ self.factor.strategy.rmatvec(self.factor.strategy.matvec(ones))
        return self.plain or bool(np.allclose(seen, ones, atol=1e-6))

    def errors(self, asked: AxisQueries) -> tuple[float, float]:
        """The weighted sums of ``squares``."""
        if self.plain:
            return moments(asked.families[0])
        gram = asked.gram()
        mean = float(self.share @ gram @ self.share)
        rest = self.factor.against(gram) - self.total * mean
        return (rest if rest > 1e-12 * self.factor.against(gram) else 0.0), mean

    def squares(self, asked: AxisQueries) -> tuple[Array, Array]:
        """(q P q^T, (q g)^2) of every query."""
        if self.plain:
            return squares(asked.families[0])
        means = asked.answers(self.share) ** 2
        whole = asked.squares(self.factor.covariance)
        rest = whole - self.total * means
        return np.where(rest > 1e-12 * whole, rest, 0.0), means

    def means(self, asked: AxisQueries) -> Array:
        """q g of every query."""
        return asked.families[0].means() if self.plain else asked.answers(self.share)

    def centre(self, table: Array, place: int) -> Array:
        """X - g sum(x) along one axis of a table."""
        shape = [-1 if k == place else 1 for k in range(table.ndim)]
        return np.asarray(table - self.share.reshape(shape) * table.sum(axis=place, keepdims=True), dtype=np.float64)


@final
@dataclass(frozen=True, kw_only=True)
class MixturePlan(HdmmPlan):
    """Sets of axes measured by products of the axes' strategies, and every answer from the best combination of them.

    A query has variance sum_tau prod_{i in tau} q_i P_i q_i^T prod_{i not in tau} (q_i g_i)^2 / p_tau, with
    p_tau = sum_{a >= tau} 1 / (s_a prod_{i in a - tau} t_i).

    Attributes:
        bases: every axis.
    """

    bases: tuple[Basis, ...]

    @cached_property
    def _sets(self) -> Mapping[Clique, tuple[int, ...]]:
        """Measured clique -> the axes that it consists of."""
        return {m.clique: self._touched(m.clique) for m in self.measurements}

    def _touched(self, clique: Clique) -> tuple[int, ...]:
        names = set(clique)
        return tuple(place for place, basis in enumerate(self.bases) if names & set(basis.axis.names))

    @cached_property
    def precisions(self) -> Mapping[tuple[int, ...], float]:
        """p_tau of every component that a part needs."""
        needed = {tau for part in self.workload.parts for tau in subsets(self._touched(part.clique))}
        found = dict.fromkeys(needed, 0.0)
        for m in self.measurements:
            whole = self._sets[m.clique]
            for tau in subsets(whole):
                if tau in found:
                    lost = math.prod(self.bases[place].total for place in whole if place not in tau)
                    found[tau] += 1 / (m.variance * lost)
        return found

    def estimates(self, noisy: Mapping[Clique, Array]) -> dict[Clique, Array]:
        """The components, under their axes' names, each the average of what all measurements say."""
        found: dict[Clique, Array] = {}
        for m in self.measurements:
            whole = self._sets[m.clique]
            table = noisy[m.clique].reshape([self.bases[i].factor.strategy.shape[0] for i in whole])
            for k, i in enumerate(whole):
                table = np.moveaxis(self.bases[i].factor.strategy.estimate(np.moveaxis(table, k, 0)), 0, k)
            for tau in subsets(whole):
                if tau in self.precisions:
                    gone = tuple(k for k, i in enumerate(whole) if i not in tau)
                    component = table.sum(axis=gone) if gone else table
                    for k, i in enumerate(tau):
                        component = self.bases[i].centre(component, k)
                    lost = math.prod(self.bases[i].total for i in whole if i not in tau)
                    weighted = component / (m.variance * lost * self.precisions[tau])
                    key = tuple(self.bases[i].name for i in tau)
                    found[key] = found[key] + weighted if key in found else weighted
        return found

    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        asked = self.workload.parts[self.index(which)]
        part = asked.negated or asked
        places = self._touched(part.clique)
        table = self._cells(places, estimates)
        whole = table.sum()
        for k, i in enumerate(places):
            found = self.bases[i].axis.queries_of(part).answers(np.moveaxis(table, k, 0))
            rest = table.shape[:k] + table.shape[k + 1 :]
            table = np.moveaxis(found.reshape(-1, *rest), 0, k)
        answers = arranged(part, self._names(places), table)
        return answers if asked.negated is None else np.asarray((whole - answers).reshape(asked.shape))

    def variance(self, which: int | Clique) -> Array:
        asked = self.workload.parts[self.index(which)]
        part = asked.negated or asked
        places = self._touched(part.clique)
        terms = [self.bases[i].squares(self.bases[i].axis.queries_of(part)) for i in places]
        found = np.zeros([term[0].size for term in terms])
        for tau in subsets(places):
            product = np.ones(())
            for i, (inside, mean) in zip(places, terms, strict=True):
                product = np.multiply.outer(product, (inside if i in tau else mean).reshape(-1))
            if asked.negated is not None and not tau:
                product = np.ones(())
                for i in places:
                    product = np.multiply.outer(
                        product, self.bases[i].means(self.bases[i].axis.queries_of(part)).reshape(-1)
                    )
                product = (1 - product) ** 2
            if product.any():
                found += product / self.precisions[tau]
        return arranged(part, self._names(places), found, power=2).reshape(asked.shape)

    def errors(self) -> tuple[float, ...]:
        known: dict[tuple[int, AxisQueries], tuple[float, float]] = {}
        return tuple(
            math.fsum(
                energy / self.precisions[tau] for tau, energy in part_energies(part, self.bases, self._touched, known)
            )
            for part in self.workload.parts
        )

    def described(self, matrices: Matrices) -> dict[str, Any]:
        return super().described(matrices) | {"bases": _block(self.bases).described(matrices)}

    @classmethod
    def restored(
        cls, workload: Workload, described: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[list[Kron], dict[str, Any]]:
        whole = Block.restored(described["bases"], workload.parts, workload.domain, arrays)
        bases = tuple(Basis(axis=a, factor=f) for a, f in zip(whole.axes, whole.factors, strict=True))
        strategies = [
            Kron(_block([basis for basis in bases if set(basis.axis.names) & set(clique)]).strategies)
            for clique in described["cliques"]
        ]
        return strategies, cls.named(described) | {"bases": bases}

    def _names(self, places: Sequence[int]) -> Clique:
        return tuple(name for place in places for name in self.bases[place].axis.names)

    def _cells(self, places: tuple[int, ...], estimates: Mapping[Clique, Array]) -> Array:
        """The joint cells of some axes, as the sum of all components spread by g."""
        sizes = [self.bases[i].axis.cells for i in places]
        terms = np.zeros([n + 1 for n in sizes])
        for tau in subsets(places):
            key = tuple(self.bases[i].name for i in tau)
            if key in estimates:
                terms[tuple(slice(1, None) if i in tau else 0 for i in places)] = estimates[key]
        for k, i in enumerate(places):
            absent, present = np.split(terms, [1], axis=k)
            terms = present + absent * self.bases[i].share.reshape([-1 if j == k else 1 for j in range(len(places))])
        return terms


def part_energies(
    part: Part,
    bases: Sequence[Basis],
    touched: Callable[[Clique], tuple[int, ...]],
    known: dict[tuple[int, AxisQueries], tuple[float, float]],
) -> list[tuple[tuple[int, ...], float]]:
    """(component, energy) of one part, zeros left out."""
    if part.negated is not None:  # 1 - q and q differ in the total alone
        rest = [(tau, energy) for tau, energy in part_energies(part.negated, bases, touched, known) if tau]
        asked = [(bases[i], bases[i].axis.queries_of(part.negated)) for i in touched(part.clique)]
        means = [(found.weights().reshape(-1), basis.means(found).reshape(-1)) for basis, found in asked]
        whole = [math.prod(float(w @ m**power) for w, m in means) for power in (0, 1, 2)]
        return [((), part.weight * max(whole[0] - 2 * whole[1] + whole[2], 0.0)), *rest]
    places = touched(part.clique)
    weight = part.weight
    names = {name for place in places for name in bases[place].axis.names}
    for family in outside(part, tuple(names)).values():
        weight *= moments(family)[1]
    errors = {}
    for i in places:
        key = i, bases[i].axis.queries_of(part)
        if key not in known:
            known[key] = bases[i].errors(key[1])
        errors[i] = known[key]
    found = [(tau, weight * math.prod(errors[i][0 if i in tau else 1] for i in places)) for tau in subsets(places)]
    return [(tau, energy) for tau, energy in found if energy > 0]


def weighted_sets(parts: Sequence[Part], bases: Sequence[Basis], noise: str, limit: int) -> list[tuple[Block, float]]:
    """(what to measure, share of the privacy cost).

    Privacy: post-processing of public queries.
    """
    axis_of = {name: place for place, basis in enumerate(bases) for name in basis.axis.names}

    def touched(clique: Clique) -> tuple[int, ...]:
        return tuple(sorted({axis_of[name] for name in clique if name in axis_of}))

    known: dict[tuple[int, AxisQueries], tuple[float, float]] = {}
    needed: dict[Clique, float] = {}
    for part in parts:
        for tau, energy in part_energies(part, bases, touched, known):
            key = tuple(bases[i].name for i in tau)
            needed[key] = needed.get(key, 0.0) + energy
    lattice = Lattice(
        cells={basis.name: max(basis.factor.strategy.shape[0], math.prod(basis.axis.sizes)) for basis in bases},
        totals={basis.name: basis.total for basis in bases},
        dims=dict.fromkeys((basis.name for basis in bases), 1.0),
    )
    by_name = {basis.name: basis for basis in bases}
    found = []
    for names, share in weigh(lattice, needed, noise, limit):
        found.append((_block([by_name[name] for name in names]), share))
    return found


def _block(bases: Sequence[Basis]) -> Block:
    return Block(axes=tuple(basis.axis for basis in bases), factors=tuple(basis.factor for basis in bases))
