"""Reads stored releases: the answers to a query set are reconstructed when they are asked for. All of it is post-processing."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np

from duckdb_dp.accounting.ledger import Ledger, Release
from duckdb_dp.domain.domain import Clique
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Centring, Identity
from duckdb_dp.plan import summed
from duckdb_dp.plan.base import PLAN, Plan
from duckdb_dp.plan.open_ends import on_declared
from duckdb_dp.plan.prefixes import prefixes
from duckdb_dp.plan.requested import direct_plan as direct_plan
from duckdb_dp.plan.requested import plan as plan
from duckdb_dp.plan.requested import price as price
from duckdb_dp.plan.selection import SELECTED
from duckdb_dp.private import VARIANCES
from duckdb_dp.reconstruct.grem import ResidualEstimates, decompose
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement
from duckdb_dp.reconstruct.postprocess import Read, postprocess
from duckdb_dp.request import Request

if TYPE_CHECKING:
    from duckdb_dp.plan.direct import DirectPlan
    from duckdb_dp.reconstruct.estimate import Estimate
    from duckdb_dp.reconstruct.quantiles import Prefixes

DETAIL = "detail"
"""Name of the array, in the release of an adaptive mechanism, that holds what was chosen, as the bytes of a JSON text."""

ESTIMATE = "estimate"
"""Name of the array that holds the cells of its estimate, one table after another."""


def check_postprocess(request: Request, kind: str | None) -> None:
    """Refuse, before anything is charged, a post-processing that would fail later.

    Raises:
        DPError: Private-PGM is not installed, or its junction tree would not fit into memory.
    """
    if kind == "pgm":
        from duckdb_dp.reconstruct import pgm  # for import time

        pgm.require()
        measured = request.cliques if request.adaptive else [m.clique for m in plan(request).measurements]
        pgm.checked_tree(request.domain, measured, pgm.MEMORY)


class Answers(ABC):
    """The answers of a stored release.

    Privacy: post-processing.
    """

    request: Request
    plan: Plan | None

    @abstractmethod
    def parts(self, indices: Iterable[int]) -> list[Array]:
        """The flat unbiased answers to some query sets of the request, by their position in it."""

    @abstractmethod
    def stddevs(self, indices: Iterable[int]) -> list[Array]:
        """Their standard deviations, flat; for an adaptive mechanism only the part of the measured residuals."""

    @abstractmethod
    def measured(self) -> Sequence[LinearMeasurement]:
        """The measured residuals from which answers to marginals are computed."""

    def measurements(self) -> Sequence[LinearMeasurement]:
        """All measurements, with any strategy, for Private-PGM to fit."""
        return self.measured()

    def own(self) -> Sequence[LinearMeasurement]:
        """The measurements of this release itself; another release may start from them, and each is used once."""
        return self.measured()

    def postprocessed(self, indices: Iterable[int], kind: str) -> list[Array]:
        """The flat answers to some marginals after post-processing, which biases them."""
        read, cliques = self._reader(kind), self.request.cliques
        return [np.asarray(read(cliques[index])).reshape(-1) for index in indices]

    @cached_property
    def _readers(self) -> dict[str, Read]:
        return {}

    def _reader(self, kind: str) -> Read:
        if kind not in self._readers:
            if kind == "pgm":
                from duckdb_dp.reconstruct import pgm  # for import time

                self._readers[kind] = pgm.fit(self.request.domain, self.measurements()).tree.marginal
            else:
                self._readers[kind] = postprocess(kind, self.request.domain, self.request.cliques, self.measured())
        return self._readers[kind]


def load(ledger: Ledger, stored: Release) -> Answers:
    """Load a release with the plan that it was drawn with, even if the planner would choose another one now."""
    request, arrays = Request.from_json(stored.request), ledger.load(stored)
    if request.synthetic:
        return Columns(request=request, arrays=arrays)
    if request.direct:
        return _summed(request, arrays, stored.id)
    return _chosen(request, arrays) if request.adaptive else _planned(request, arrays, stored.id)


@final
@dataclass(frozen=True, kw_only=True)
class Columns(Answers):
    """Synthetic rows, column by column.

    Attributes:
        request: what was asked.
        arrays: the columns by their number, and under ``DETAIL`` what is needed to read them.
    """

    request: Request
    arrays: Mapping[str, Array]
    plan: None = None

    @cached_property
    def detail(self) -> dict[str, Any]:
        """The details that were stored when the columns were drawn."""
        return from_bytes(self.arrays[DETAIL])

    def parts(self, indices: Iterable[int]) -> list[Array]:
        return [self.arrays[str(index)] for index in indices]

    def stddevs(self, indices: Iterable[int]) -> list[Array]:
        raise NotImplementedError("synthetic rows have no standard deviations")

    def measured(self) -> Sequence[LinearMeasurement]:
        raise NotImplementedError("synthetic rows are no residuals")


@final
@dataclass(frozen=True, kw_only=True)
class Sums(Answers):
    """Noisy sums of groups.

    Attributes:
        request: what was asked.
        arrays: the sums in steps of their grids, by their number.
        beside: the answers that were planned; their numbers follow those of the sums.
    """

    request: Request
    arrays: Mapping[str, Array]
    beside: Planned | None = None
    plan: None = None

    @cached_property
    def sums(self) -> DirectPlan:
        """The plan that they were drawn with."""
        stored = {key: array for key, array in self.arrays.items() if key.startswith("#")}
        return replace(direct_plan(self.request), stored=stored)

    def parts(self, indices: Iterable[int]) -> list[Array]:
        return [found for index in indices for found in self._part(index)]

    def _part(self, index: int) -> list[Array]:
        if self.beside is not None and index >= self.request.sums:
            return self.beside.parts([index - self.request.sums])
        return [self.arrays[str(self.sums.own(index))] * summed.grid(self.sums, index, self.arrays)]

    def stddevs(self, indices: Iterable[int]) -> list[Array]:
        return [found for index in indices for found in self._error(index)]

    def _error(self, index: int) -> list[Array]:
        if self.beside is not None and index >= self.request.sums:
            return self.beside.stddevs([index - self.request.sums])
        return [summed.stddevs(self.sums, index, self.arrays)]

    def found(self, index: int) -> Array:
        """What a quantile or a sum has beside its error, as ``plan.summed.found``."""
        return summed.found(self.sums, index, self.arrays)

    def measured(self) -> Sequence[LinearMeasurement]:
        raise NotImplementedError("sums are no residuals")


@final
@dataclass(frozen=True, kw_only=True)
class Planned(Answers):
    """Answers of a plan.

    Attributes:
        request: what was asked.
        plan: the plan with the noise variances it was drawn with.
        noisy: the noisy strategy answers by clique.
        points: those of quantiles that were selected, group by group; None where there are none.
    """

    request: Request
    plan: Plan
    noisy: Mapping[Clique, Array]
    points: Array | None = None

    @cached_property
    def estimates(self) -> dict[Clique, Array]:
        """The estimate of its marginal from each measurement."""
        return self.plan.estimates(self.noisy)

    def parts(self, indices: Iterable[int]) -> list[Array]:
        return [self.plan.answer(index, self.estimates).reshape(-1) for index in indices]

    def stddevs(self, indices: Iterable[int]) -> list[Array]:
        shapes = ((index, self.plan.workload.parts[index].shape) for index in indices)
        return [np.broadcast_to(self.plan.stddev(index), shape).reshape(-1) for index, shape in shapes]

    @cached_property
    def prefixes(self) -> Prefixes:
        """The prefix counts of the attribute that is asked by prefixes, in every group of the others."""
        (question,) = self.request.questions
        return prefixes(self.plan, question, self.request.domain, self.estimates)

    def quantiles(self, asked: Sequence[float]) -> Array:
        """(cell, share, low, high) of every group and quantile, as ``Prefixes.quantiles``, or by selected points; an end beyond is NaN."""
        if self.points is None or (known := self.request.selected) is None:
            found = self.prefixes.quantiles(asked)
        else:
            points = self.points.reshape(-1, len(known))[:, [known.index(q) for q in asked]]
            found = self.prefixes.selected(asked, points)
        lined = next((attribute for attribute in self.request.attributes if attribute.line), None)
        return found if lined is None else on_declared(found, lined, self.prefixes)

    def measurements(self) -> Sequence[LinearMeasurement]:
        return [
            LinearMeasurement(clique=m.clique, strategy=m.strategy, answers=self.noisy[m.clique], variance=m.variance)
            for m in self.plan.measurements
        ]

    def measured(self) -> Sequence[LinearMeasurement]:
        """Measured residuals as they are, or residuals of noisy marginals, as if the noise of these were independent."""
        marginals, domain = self.measurements(), self.request.domain
        if all(isinstance(m.strategy, Centring) for m in marginals):
            return marginals
        if not all(isinstance(m.strategy, Identity) for m in marginals):
            marginals = [
                LinearMeasurement(
                    clique=part.clique,
                    strategy=Identity(domain.cells(part.clique)),
                    answers=self.plan.answer(i, self.estimates).reshape(-1),
                    variance=float(np.mean(self.plan.variance(i))),
                )
                for i, part in enumerate(self.plan.workload.parts)
            ]
        return [residual for marginal in marginals for residual in decompose(domain, marginal)]


def _summed(request: Request, arrays: dict[str, Array], number: int) -> Sums:
    if not request.questions:
        return Sums(request=request, arrays=arrays)
    first = len(direct_plan(request).summed)
    own = {key: array for key, array in arrays.items() if not key.isdigit()}
    own |= {str(int(key) - first): array for key, array in arrays.items() if key.isdigit() and int(key) >= first}
    own[VARIANCES] = arrays[VARIANCES][first:]
    planned = direct_plan(request).planned
    return Sums(request=request, arrays=arrays, beside=_planned(request.beside, own, number, planned))


def _planned(request: Request, arrays: dict[str, Array], number: int, known: Plan | None = None) -> Planned:
    if PLAN in arrays:
        from duckdb_dp.plan.stored import restore  # for import time: marginals have plans in closed form

        planned = restore(request.workload, arrays)
    else:
        planned = known or plan(request)
    variances = arrays[VARIANCES]
    answers = [arrays[str(i)] for i in range(len(variances)) if str(i) in arrays]
    shapes = [measurement.strategy.shape[0] for measurement in planned.measurements]
    if [len(found) for found in answers] != shapes or len(answers) != len(variances):
        raise DPError(f"release {number} was made by another version of duckdb_dp; read it with that version.")
    pairs = zip(planned.measurements, variances, strict=True)
    measured = tuple(replace(measurement, variance=float(variance)) for measurement, variance in pairs)
    noisy = {measurement.clique: found for measurement, found in zip(measured, answers, strict=True)}
    points = arrays.get(SELECTED)
    return Planned(request=request, plan=replace(planned, measurements=measured), noisy=noisy, points=points)


@final
@dataclass(frozen=True, kw_only=True)
class AdaptiveAnswers(Answers):
    """Answers of an adaptive mechanism.

    Attributes:
        request: what was asked.
        noisy: the residuals that were measured, followed by those of the releases that were ``given``.
        count: how many of them this release measured itself.
        rounds: what was selected, round by round.
        estimate: the mechanism's own of singles and pairs, from which fitted marginals are read; None where it has none.
    """

    request: Request
    noisy: Sequence[LinearMeasurement]
    count: int
    rounds: Sequence[Mapping[str, Any]]
    estimate: Estimate | None = None
    plan: None = None

    @cached_property
    def components(self) -> ResidualEstimates:
        """All of them as estimates."""
        return ResidualEstimates.of(self.request.domain, self.noisy)

    def parts(self, indices: Iterable[int]) -> list[Array]:
        cliques = self.request.cliques
        return [self.components.marginal(cliques[index]).reshape(-1) for index in indices]

    def stddevs(self, indices: Iterable[int]) -> list[Array]:
        domain, cliques = self.request.domain, self.request.cliques
        return [
            np.full(domain.cells(cliques[index]), np.sqrt(self.components.variance(cliques[index])))
            for index in indices
        ]

    def measured(self) -> Sequence[LinearMeasurement]:
        return self.components.noisy()

    def own(self) -> Sequence[LinearMeasurement]:
        return self.noisy[: self.count]

    def _reader(self, kind: str) -> Read:
        if kind == "fitted" and self.estimate is not None:
            from duckdb_dp.reconstruct.fitted import Fitted  # for import time

            return Fitted.around(self.components, self.estimate, self.request.cliques).marginal
        return super()._reader(kind)


def options(request: Request) -> Any:
    """The options of an adaptive mechanism."""
    from duckdb_dp.adaptive import Options

    return Options(**{name: value for name, value in request.options if name != "given"})


def to_arrays(
    measured: Sequence[LinearMeasurement],
    rounds: Sequence[Mapping[str, Any]],
    given: Sequence[LinearMeasurement] = (),
    estimate: Estimate | None = None,
) -> dict[str, Array]:
    """What an adaptive mechanism measured and started from, and its estimate if it has its own, as arrays to store."""
    kept = [*measured, *given]
    cliques = [noisy.clique for noisy in kept]
    arrays = {str(i): noisy.answers for i, noisy in enumerate(kept)}
    detail: dict[str, Any] = {"cliques": cliques, "measured": len(measured), "rounds": list(rounds)}
    if estimate is not None:
        tables = {**estimate.singles, **estimate.pairs}
        detail |= {"total": estimate.total, "estimated": list(tables)}
        arrays[ESTIMATE] = np.concatenate([np.empty(0), *(table.reshape(-1) for table in tables.values())])
    return {VARIANCES: np.array([noisy.variance for noisy in kept]), DETAIL: to_bytes(detail), **arrays}


def to_bytes(detail: Mapping[str, Any]) -> Array:
    """Plain data as the bytes of a JSON text, one byte in each number, because a release stores numbers."""
    return np.frombuffer(json.dumps(detail).encode(), dtype=np.uint8).astype(np.float64)


def from_bytes(stored: Array) -> dict[str, Any]:
    """The inverse of ``to_bytes``."""
    found: dict[str, Any] = json.loads(stored.astype(np.uint8).tobytes())
    return found


def _chosen(request: Request, arrays: dict[str, Array]) -> AdaptiveAnswers:
    detail = from_bytes(arrays[DETAIL])
    domain, cliques = request.domain, map(tuple, detail["cliques"])
    measured = [
        residual_measurement(domain, clique, arrays[str(i)], float(variance))
        for i, (clique, variance) in enumerate(zip(cliques, arrays[VARIANCES], strict=True))
    ]
    estimate = _estimate(request, detail, arrays[ESTIMATE]) if ESTIMATE in arrays else None
    return AdaptiveAnswers(
        request=request, noisy=measured, count=detail["measured"], rounds=detail["rounds"], estimate=estimate
    )


def _estimate(request: Request, detail: Mapping[str, Any], cells: Array) -> Estimate:
    from duckdb_dp.reconstruct.estimate import Estimate  # for import time

    domain, cliques = request.domain, list(map(tuple, detail["estimated"]))
    parts = np.split(cells, np.cumsum([domain.cells(clique) for clique in cliques])[:-1]) if cliques else []
    tables = {clique: part.reshape(domain.shape(clique)) for clique, part in zip(cliques, parts, strict=True)}
    return Estimate(
        total=detail["total"],
        singles={clique: table for clique, table in tables.items() if len(clique) == 1},
        pairs={clique: table for clique, table in tables.items() if len(clique) == 2},
    )
