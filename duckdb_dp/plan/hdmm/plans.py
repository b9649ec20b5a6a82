"""Plans that measure Kronecker products, and how answers are reconstructed from them."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.queries import Intervals, Queries
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.errors import as_sql
from duckdb_dp.linop import Array, Dense, Explicit, Kron
from duckdb_dp.noise.kinds import NOISES
from duckdb_dp.plan.base import Measurement
from duckdb_dp.plan.hdmm.axes import Axis, AxisQueries, axis_of, level
from duckdb_dp.plan.hdmm.oracle import AxisStrategy, from_json, to_json
from duckdb_dp.plan.hdmm.problem import problem
from duckdb_dp.plan.hdmm.task import MAX_CELLS
from duckdb_dp.plan.hdmm.variances import error_of, squares_of
from duckdb_dp.plan.searched import Matrices, SearchedPlan
from duckdb_dp.reconstruct.lsmr import least_squares


@dataclass(frozen=True, kw_only=True)
class HdmmPlan(SearchedPlan):
    """A plan of HDMM; its lower bound holds for every strategy with this noise at this cost.

    Attributes:
        operator: which operator found it: 'opt_0', 'opt_kron', 'opt_union', 'opt_marginals' or 'opt_mixture'.
        consistent: whether all answers follow from one estimate of the data; else parts with different measurements
            may disagree.
    """

    operator: str
    consistent: bool = True

    @abstractmethod
    def errors(self) -> tuple[float, ...]:
        """Weighted sum of variances of each part's queries."""

    @cached_property
    def _errors(self) -> tuple[float, ...]:
        return self.errors()

    @property
    def total(self) -> float:
        return math.fsum(self._errors)

    def mean_variance(self, which: int | Clique) -> float:
        """As its part's error, where all queries of the part have the same weight."""
        index = self.index(which)
        part = self.workload.parts[index]
        if not all(isinstance(family, Intervals) for family in part.queries):
            return super().mean_variance(index)
        return self._errors[index] / (part.weight * math.prod(part.shape))

    def index(self, which: int | Clique) -> int:
        """Position of a part."""
        if isinstance(which, int):
            return which
        found = self.part(which)
        return next(i for i, part in enumerate(self.workload.parts) if part is found)

    def share(self, which: int | Clique) -> float:
        """As the part's share in the total error."""
        return self._errors[self.index(which)] / self.total

    def described(self, matrices: Matrices) -> dict[str, Any]:
        return {"operator": self.operator, "consistent": self.consistent}

    @staticmethod
    def named(described: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes that all of HDMM's plans have."""
        return {name: described[name] for name in ("operator", "consistent")}

    @property
    def beyond(self) -> tuple[Clique, ...]:
        asked = [set(part.clique) for part in self.workload.parts]
        measured = dict.fromkeys(measurement.clique for measurement in self.measurements)
        return tuple(clique for clique in measured if not any(one.issuperset(clique) for one in asked))

    @property
    def refusal(self) -> str | None:
        """An operator that is named plans for any domain, to be compared; what 'best' plans can always be measured."""
        cells = sum(self.workload.domain.cells(m.clique) for m in self.measurements)
        if cells <= MAX_CELLS:
            return None
        return (
            f"hdmm: what {as_sql(self.operator)} measures has {cells:,} cells, and {MAX_CELLS:,} fit into memory; "
            "use operator 'best', or coarser bins."
        )

    def cost_of(self, measurement: Measurement) -> float:
        """Privacy cost of one measurement in the unit of the plan's noise."""
        return NOISES[self.noise].cost(measurement.strategy, measurement.variance)


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Block:
    """What one measurement consists of: a strategy of sensitivity 1 on every axis."""

    axes: tuple[Axis, ...]
    factors: tuple[AxisStrategy, ...]

    @classmethod
    def restored(
        cls, described: Sequence[Sequence[Any]], parts: Sequence[Part], domain: Domain, arrays: Mapping[str, Array]
    ) -> "Block":
        """The block that ``described`` has named; cells that none of the parts tells apart are one class."""
        return cls(
            axes=tuple(axis_of(tuple(names), parts, domain) for names, *_ in described),
            factors=tuple(
                AxisStrategy(strategy=from_json(operator, arrays), error=error, bound=bound)
                for _, operator, error, bound in described
            ),
        )

    def described(self, matrices: Matrices) -> list[list[Any]]:
        """[names, operator, error, bound] of every axis, as JSON."""
        return [[axis.names, *factor.described(matrices)] for axis, factor in zip(self.axes, self.factors, strict=True)]

    @property
    def clique(self) -> Clique:
        """All attributes."""
        return tuple(name for axis in self.axes for name in axis.names)

    @property
    def strategies(self) -> tuple[Explicit, ...]:
        """The factors on the cells themselves, not on classes of them."""
        return tuple(
            factor.strategy if axis.label is None else Dense(factor.strategy.dense()[:, axis.label])
            for axis, factor in zip(self.axes, self.factors, strict=True)
        )

    def answers(self, noisy: Array, part: Part) -> Array:
        """The queries of a product part along each axis, from the noisy strategy answers."""
        table = noisy.reshape([factor.strategy.shape[0] for factor in self.factors])
        asked = [axis.queries_of(part) for axis in self.axes]
        # Totals first: they make the table smaller.
        for k in sorted(range(len(asked)), key=lambda k: len(asked[k].places) > 0):
            cells = self.factors[k].strategy.estimate(np.moveaxis(table, k, 0))
            found = asked[k].answers(cells)
            table = np.moveaxis(found.reshape(-1, *cells.shape[1:]), 0, k)
        return table

    def total(self, noisy: Array) -> float:
        """The number of rows, from the noisy strategy answers."""
        return float(self.answers(noisy, Part((), ())).item())

    def error(self, part: Part) -> float:
        """Weighted sum of variances of a part's queries, from unit noise."""
        found = problem([part], self.axes)
        traces: dict[tuple[int, int], float] = {}
        for place, factor in enumerate(self.factors):
            for number in {term.grams[place] for term in found.terms}:
                traces[place, number] = factor.against(found.grams[number] if number >= 0 else None)
        return math.fsum(
            term.weight * math.prod(traces[place, number] for place, number in enumerate(term.grams))
            for term in found.terms
        )


@final
@dataclass(frozen=True, kw_only=True)
class ProductPlan(HdmmPlan):
    """One Kronecker strategy per measurement, every part answered from one of them.

    Attributes:
        blocks: the make of each measurement.
        serves: for each part the measurement that answers it; -1 where all its queries are 0.
    """

    blocks: tuple[Block, ...]
    serves: tuple[int, ...]

    def estimates(self, noisy: Mapping[Clique, Array]) -> dict[Clique, Array]:
        """The noisy strategy answers: pseudo-inverses are applied per part, to no more than it asks for."""
        return dict(noisy)

    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        index = self.index(which)
        part, place = self.workload.parts[index], self.serves[index]
        if place < 0:
            return np.zeros(part.shape)
        block, noisy = self.blocks[place], estimates[self.measurements[place].clique]
        if part.negated is None:
            return arranged(part, block.clique, block.answers(noisy, part))
        return np.asarray((block.total(noisy) - block.answers(noisy, part.negated)).reshape(part.shape))

    def variance(self, which: int | Clique) -> Array:
        index = self.index(which)
        part, place = self.workload.parts[index], self.serves[index]
        if place < 0:
            return np.zeros(part.shape)
        block, product = self.blocks[place], part.negated or part
        found, crossed = np.ones(()), np.ones(())
        for axis, factor in zip(block.axes, block.factors, strict=True):
            asked = axis.queries_of(product)
            found = np.multiply.outer(found, squares_of(asked, factor).reshape(-1))
            if part.negated is not None:
                crossed = np.multiply.outer(crossed, asked.answers(factor.covariance.sum(axis=1)).reshape(-1))
        variance = self.measurements[place].variance
        if part.negated is None:
            return variance * arranged(part, block.clique, found, power=2)
        whole = math.prod(factor.against(None) for factor in block.factors)
        return np.asarray(variance * np.maximum(whole - 2 * crossed + found, 0.0).reshape(part.shape))

    def errors(self) -> tuple[float, ...]:
        known: dict[tuple[int, AxisQueries], float] = {}
        found = []
        for part, place in zip(self.workload.parts, self.serves, strict=True):
            if part.negated is not None and place >= 0:
                found.append(self.measurements[place].variance * self.blocks[place].error(part))
                continue
            error = part.weight * self.measurements[place].variance if place >= 0 else 0.0
            if place >= 0:
                block = self.blocks[place]
                for axis, factor in zip(block.axes, block.factors, strict=True):
                    key = id(factor), axis.queries_of(part)
                    if key not in known:
                        known[key] = error_of(key[1], factor)
                    error *= known[key]
                for family in outside(part, block.clique).values():
                    error *= level(family) or 0.0
            found.append(error)
        return tuple(found)

    def share(self, which: int | Clique) -> float:
        """A measurement's cost is divided among the parts it answers as their errors are."""
        index = self.index(which)
        place = self.serves[index]
        if place < 0:
            return 0.0
        costs = [self.cost_of(measurement) for measurement in self.measurements]
        return costs[place] / math.fsum(costs) * self._errors[index] / self._served[place]

    def described(self, matrices: Matrices) -> dict[str, Any]:
        blocks = [block.described(matrices) for block in self.blocks]
        return super().described(matrices) | {"serves": self.serves, "blocks": blocks}

    @classmethod
    def restored(
        cls, workload: Workload, described: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[list[Kron], dict[str, Any]]:
        serves = tuple(described["serves"])
        served = [
            [part for part, server in zip(workload.parts, serves, strict=True) if server == place]
            for place in range(len(described["blocks"]))
        ]
        blocks = tuple(
            Block.restored(block, parts, workload.domain, arrays)
            for block, parts in zip(described["blocks"], served, strict=True)
        )
        own = cls.named(described) | {"blocks": blocks, "serves": serves}
        return [Kron(block.strategies) for block in blocks], own

    @cached_property
    def _served(self) -> Mapping[int, float]:
        found = dict.fromkeys(range(len(self.measurements)), 0.0)
        for place, error in zip(self.serves, self._errors, strict=True):
            found[place] = found.get(place, 0.0) + error
        return found


@final
@dataclass(frozen=True, kw_only=True)
class JointPlan(HdmmPlan):
    """Several measurements, reconciled by least squares over the joint cells of all their attributes.

    The estimate has covariance V = (sum_m M_m^T B_m^T B_m M_m / s_m)^+, M_m the sums onto measurement m's cells, and a
    query q variance q V q^T.

    Attributes:
        axis: all attributes that are measured, as one.
    """

    axis: Axis

    @cached_property
    def covariance(self) -> Array:
        """V, shape (cells, cells)."""
        n, sizes = self.axis.cells, self.axis.sizes
        information = np.zeros((n, n))
        for measurement in self.measurements:
            gone = tuple(k for k, name in enumerate(self.axis.names) if name not in measurement.clique)
            gram = measurement.strategy.gram() / measurement.variance
            kept = [1 if k in gone else size for k, size in enumerate(sizes)]
            spread = np.broadcast_to(gram.reshape(kept + kept), sizes + sizes)
            information += spread.reshape(n, n)
        return np.asarray(np.linalg.pinv(information, rcond=1e-12, hermitian=True), dtype=np.float64)

    def estimates(self, noisy: Mapping[Clique, Array]) -> dict[Clique, Array]:
        """All cells, by LSMR."""
        cells = least_squares(
            self.workload.domain,
            self.axis.names,
            {m.clique: m.strategy for m in self.measurements},
            noisy,
            {m.clique: m.variance for m in self.measurements},
        )
        return {self.axis.names: cells}

    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        part = self.workload.parts[self.index(which)]
        found = self.axis.queries_of(part).answers(estimates[self.axis.names])
        return arranged(part, self.axis.names, found.reshape(-1))

    def variance(self, which: int | Clique) -> Array:
        part = self.workload.parts[self.index(which)]
        squares = self.axis.queries_of(part).squares(self.covariance)
        return arranged(part, self.axis.names, squares.reshape(-1), power=2)

    def errors(self) -> tuple[float, ...]:
        found = []
        for part in self.workload.parts:
            asked = self.axis.queries_of(part)
            trace = float((asked.gram() * self.covariance).sum()) if asked.places else float(self.covariance.sum())
            for family in outside(part, self.axis.names).values():
                trace *= level(family) or 0.0
            found.append(part.weight * trace)
        return tuple(found)

    def described(self, matrices: Matrices) -> dict[str, Any]:
        strategies = [m.strategy for m in self.measurements]
        factors = [[to_json(f, matrices) for f in kron.factors] for kron in strategies if isinstance(kron, Kron)]
        return super().described(matrices) | {"factors": factors}

    @classmethod
    def restored(
        cls, workload: Workload, described: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[list[Kron], dict[str, Any]]:
        measured = {name for clique in described["cliques"] for name in clique}
        names = tuple(name for name in workload.domain.attributes if name in measured)
        joint = Axis(names, workload.domain.shape(names))
        strategies = [Kron(tuple(from_json(f, arrays) for f in factors)) for factors in described["factors"]]
        return strategies, cls.named(described) | {"axis": joint}


def outside(part: Part, clique: Clique) -> dict[int, Queries]:
    """Place in the part -> family, of the attributes that are asked for nothing but multiples of their total."""
    if part.joint:
        return {}
    return {place: part.queries[place] for place, name in enumerate(part.clique) if name not in clique}


def arranged(part: Part, clique: Clique, inside: Array, power: int = 1) -> Array:
    """The answers on the measured attributes, times (q 1 / n)^power for the others, as an array of ``part.shape``."""
    others = outside(part, clique)
    shape = [count for place, count in enumerate(part.shape) if place not in others]
    found = inside.reshape(shape)
    for place in sorted(others):
        found = np.moveaxis(np.multiply.outer(found, others[place].means() ** power), -1, place)
    return found
