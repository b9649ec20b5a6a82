"""Mechanisms and readings tried on a public, made-up table: the errors to expect before a budget is spent.

The error of a plan's unbiased answers is known from their standard deviations, of all that is asked. That of counts that are read
without negative ones, or fitted, or measured adaptively, depends on the data. Here the data are assumed: a number of rows, and records
whose attributes lean on one another. Each mechanism runs on them a few times, for a part of the request and with as much noise as in all
of it, and its L1 errors are counted: of a plan by how they compare with those of its unbiased answers to the same noise. No private value
is read.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.answers import AdaptiveAnswers, Answers, Planned, options, price
from duckdb_dp.answers import plan as planned_for
from duckdb_dp.counting.counts import Counts, words
from duckdb_dp.domain.domain import Clique
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.noise.kinds import GAUSSIAN
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import FITTED, PLANNERS, PURE_PLANNERS
from duckdb_dp.plan.independent import IndependentPlan
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.postprocess import KINDS
from duckdb_dp.release import check
from duckdb_dp.request import ADAPTIVE, Request

Item = TypeVar("Item")

ATTRIBUTES, MARGINALS, CELLS = 6, 60, 2**20
"""A trial has at most so many attributes, marginals and cells of these; of a larger request it takes an even choice by their sizes."""

RECORDS = 20_000
"""Records that are made at most; a table of more rows has less noise beside them instead."""

DRAWS, DRAWN = 10, 200
"""Runs over which errors that depend on the data are averaged: so many, or fewer of more cells, ``DRAWN`` cells in all; one at least."""

MEAN = math.sqrt(2 / math.pi)
"""The mean size of Gaussian noise of standard deviation 1, and of sums of much other noise."""

MEAN_ALONE = math.sqrt(1 / 2)
"""That of Laplace noise of standard deviation 1, as in an answer that is one measurement."""

UNBIASED = "unbiased"

LEANING = 0.4
"""Share of the records in which an attribute follows another one; then pairs are about a quarter of the rows from independence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One mechanism, read in one way.

    Attributes:
        mechanism, reading: their names.
        error: mean over the marginals of L1 / rows, as expected; None where the mechanism cannot answer, or its marginals are too
            large to try.
        intervals: whether its answers have standard deviations and intervals.
        refusal: why it cannot answer; '' where it can.
    """

    mechanism: str
    reading: str
    error: float | None
    intervals: bool
    refusal: str = ""


@lru_cache(maxsize=8)
def trial(request: Request, rows: int) -> tuple[Tried, ...]:
    """Every mechanism that might answer a request for marginals, in every reading, on a table of so many rows.

    Where each marginal is too large to try, only the errors that follow from the noise are known.

    Privacy: costs nothing; depends on public facts only.
    """
    if all(request.domain.cells(question.clique) > CELLS for question in request.questions):
        return tuple(one for name in _mechanisms() for one in _untried(replace(request, mechanism=name), rows))
    small = sampled(request)
    records = min(rows, RECORDS)
    small = replace(small, cost=_scaled(small, rows / records))
    table = _records(small, records)
    seeds = range(2, 2 + max(1, min(DRAWS, DRAWN // sum(map(small.domain.cells, set(small.cliques))))))
    found: list[Tried] = []
    for name in _mechanisms():
        asked = replace(request, mechanism=name)
        try:
            check(asked)
            known = _known(asked, rows)
            plans = {kind: (one, _plan(one)) for kind, one in _planned(replace(small, mechanism=name))}
            draws = {kind: [_answers(plan, table, seed) for seed in seeds] for kind, plan in plans.items()}
        except DPError as refusal:
            found.append(Tried(mechanism=name, reading="", error=None, intervals=False, refusal=str(refusal)))
            continue
        found += [
            Tried(
                mechanism=name,
                reading=kind,
                error=_expected(draws[kind], kind, table, None)
                if kind in draws and kind != UNBIASED  # unbiased, a plan for being read fitted errs by any amount
                else _expected(draws[UNBIASED], kind, table, known),
                intervals=kind == UNBIASED and name not in ADAPTIVE,
            )
            for kind in KINDS
        ]
    return tuple(found)


def _mechanisms() -> list[str]:
    """All that might answer a request for marginals, those too that somebody has added."""
    return list(dict.fromkeys([*PLANNERS, *PURE_PLANNERS, *ADAPTIVE]))


def _untried(request: Request, rows: int) -> list[Tried]:
    """A mechanism in every reading, of which the error is known where it follows from the noise."""
    try:
        check(request)
        known = _known(request, rows)
    except DPError as refusal:
        return [Tried(mechanism=request.mechanism, reading="", error=None, intervals=False, refusal=str(refusal))]
    return [
        Tried(
            mechanism=request.mechanism,
            reading=kind,
            error=known if kind == UNBIASED else None,
            intervals=kind == UNBIASED and request.mechanism not in ADAPTIVE,
        )
        for kind in KINDS
    ]


def _planned(request: Request) -> list[tuple[str, Request]]:
    """The request of a mechanism by its reading: of all readings, and where another plan is read fitted that one."""
    found = [(UNBIASED, request)]
    if request.mechanism == "residual" and request.objective == "total":
        found.append((FITTED, replace(request, objective=FITTED)))
    return found


def sampled(request: Request) -> Request:
    """A part of a request that can be tried in a moment, with the budget that leaves as much noise in it as there is in all.

    Attributes that are chosen evenly by their sizes, and the marginals of these; or of the marginals an even choice. The budget is that
    of which the unbiased error of 'residual', or of 'laplace' where only pure DP will do, is the same as for all that is asked.

    Raises:
        DPError: every marginal is too large to try.
    """
    cells, sizes = request.domain.cells, request.domain.sizes
    asked = [question for question in request.questions if cells(question.clique) <= CELLS]
    if not asked:
        raise DPError("its marginals are too large to try.")
    names = set(_evenly(sorted(sizes, key=sizes.__getitem__), ATTRIBUTES))
    inside = [question for question in asked if question.clique and set(question.clique) <= names]
    questions = _evenly(sorted(inside or asked, key=lambda question: cells(question.clique)), MARGINALS)
    while len(questions) > 1 and sum(cells(question.clique) for question in questions) > CELLS:
        questions = _evenly(questions, len(questions) // 2)
    used = {name for question in questions for name in question.clique}
    small = replace(
        request,
        questions=tuple(questions),
        attributes=tuple(attribute for attribute in request.attributes if attribute.name in used),
    )
    closed = "laplace" if request.accounting.pure else "residual"
    error, own = (_unbiased(planned_for(replace(one, mechanism=closed)), 1) for one in (request, small))
    return replace(small, cost=_scaled(small, own / error))


def _evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many, the middle one of each part of as many."""
    taken = min(len(items), most)
    return [items[(2 * i + 1) * len(items) // (2 * taken)] for i in range(taken)]


def _scaled(request: Request, factor: float) -> float:
    """The cost at which noise is smaller by a factor: costs of Gaussian noise grow with its square, epsilon as it is."""
    return request.cost * (factor if request.accounting.pure else factor**2)


def _records(request: Request, rows: int) -> Counts:
    """Made-up records: skewed attributes, each of which follows another one before it in some of the records."""
    rng, domain = np.random.default_rng(1), request.domain
    columns: list[NDArray[np.int64]] = []
    for size in domain.sizes.values():
        shares = rng.dirichlet(np.full(size, 0.7))
        own = rng.choice(size, rows, p=shares)
        if columns:
            before = columns[rng.integers(len(columns))]
            image = rng.choice(size, int(before.max()) + 1, p=shares)
            own = np.where(rng.random(rows) < LEANING, image[before], own)
        columns.append(own)
    groups, place = words(domain, domain.attributes), {name: i for i, name in enumerate(domain.attributes)}
    keys = np.zeros((rows, len(groups)), dtype=np.int64)
    for number, group in enumerate(groups):
        for name in group:
            keys[:, number] = keys[:, number] * domain.sizes[name] + columns[place[name]]
    distinct, counts = np.unique(keys, axis=0, return_counts=True)
    return Counts(domain, {domain.attributes: (distinct.reshape(-1), np.repeat(counts, len(groups)))})


def _plan(request: Request) -> Plan | None:
    """The plan of a request; an adaptive mechanism has none."""
    return None if request.adaptive else planned_for(request)


def _answers(asked: tuple[Request, Plan | None], table: Counts, seed: int) -> Answers:
    """The answers of a mechanism on made-up records."""
    request, plan = asked
    if plan is None:
        from duckdb_dp import adaptive  # for import time

        beta = price(request).beta
        assert beta is not None, "checked before"
        queryable = PrivateQueryable(
            table,
            total=beta * request.max_rows**2 / 2,
            accounting=request.accounting,
            rows=request.max_rows,
            bits=_Repeatable(seed),
        )
        own = replace(request, options=tuple((name, value) for name, value in request.options if name != "given"))
        found = adaptive.MECHANISMS[request.mechanism](queryable, request.workload, options(own))
        return AdaptiveAnswers(
            request=request, noisy=found.measured, count=0, rounds=found.rounds, estimate=found.estimate
        )
    return Planned(request=request, plan=plan, noisy=_noisy(plan, table, seed))


def _noisy(plan: Plan, table: Counts, seed: int) -> dict[Clique, Array]:
    """What a plan would measure of made-up records, in doubles."""
    rng, found = np.random.default_rng(seed), {}
    for one in plan.measurements:
        exact = one.strategy.matvec(table.marginal(one.clique).astype(np.float64))
        stddev = math.sqrt(one.variance)
        gaussian = plan.noise == GAUSSIAN.name
        draw: Callable[..., Array] = rng.normal if gaussian else rng.laplace
        found[one.clique] = exact + draw(0.0, stddev if gaussian else stddev / math.sqrt(2), exact.size)
    return found


def _known(request: Request, rows: int) -> float | None:
    """The expected error of a plan's unbiased answers; an adaptive mechanism has none that is known."""
    plan = _plan(request)
    return None if plan is None else _unbiased(plan, rows)


def _unbiased(plan: Plan, rows: int) -> float:
    """The expected error of a plan's unbiased answers: mean over the marginals of L1 / rows."""
    alone = isinstance(plan, IndependentPlan) and plan.noise != GAUSSIAN.name
    sums = [math.prod(part.shape) * float(np.mean(plan.stddev(i))) for i, part in enumerate(plan.workload.parts)]
    return (MEAN_ALONE if alone else MEAN) * math.fsum(sums) / len(sums) / rows


def _expected(draws: Sequence[Answers], kind: str, table: Counts, known: float | None) -> float:
    """The expected error of all marginals in one reading.

    Of a plan's unbiased answers it is known; by how much another reading changes it is less a matter of chance than its own size.
    """
    if known is not None and kind == UNBIASED:
        return known
    drawn = math.fsum(_error(one, kind, table) for one in draws)
    return (
        drawn / len(draws)
        if known is None
        else known * drawn / math.fsum(_error(one, UNBIASED, table) for one in draws)
    )


def _error(answers: Answers, kind: str, table: Counts) -> float:
    """Mean L1 / rows of all marginals in one reading."""
    cliques = answers.request.cliques
    places = range(len(cliques))
    read = answers.parts(places) if kind == UNBIASED else answers.postprocessed(places, kind)
    gaps = [float(np.abs(found - table.marginal(clique)).sum()) for clique, found in zip(cliques, read, strict=True)]
    return float(np.mean(gaps)) / int(table.marginal(()).sum())


class _Repeatable:
    """Random words of a seed, for data that nobody has to protect."""

    private = False

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def uint64(self, size: int) -> NDArray[np.uint64]:
        """Words, shape (size,)."""
        return self._rng.integers(2**64, size=size, dtype=np.uint64)
