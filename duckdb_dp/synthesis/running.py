"""dp_running: totals since a first day, one more for each step of time, from one charge for all steps of the horizon.

Of T steps let x be the counts and A the lower triangle of ones, so that A x are the totals. A = R R for the lower triangular Toeplitz
matrix R with r_0 = 1, r_k = r_(k-1) (2k - 1) / (2k). What is measured and kept is y = R x + z with independent Gaussian z, one row of
R for each step once the step is over, and the totals are R y: no noise is secret, and none is drawn twice. A row changes R x by at
most |r|_2, and the total of step t has the standard deviation sd(z) |(r_0, ..., r_t)|_2, about sd(z) sqrt(1 + ln(t) / pi).

Source: H. Fichtenberger, M. Henzinger, J. Upadhyay, Constant matters (ICML 2023), for the factorisation; S. Denisov et al., Improved
differential privacy for SGD via optimal private linear operators on adaptive streams (NeurIPS 2022), for rows that come step by step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from fractions import Fraction
from typing import final

import numpy as np

from duckdb_dp.accounting.journal import Step
from duckdb_dp.answers import price
from duckdb_dp.domain.types.moments import Interval
from duckdb_dp.linop import Array, Integers
from duckdb_dp.linop.base import UNIT, UP
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track
from duckdb_dp.request import Request
from duckdb_dp.synthesis.base import Run, SyntheticTable

MEASURED = "measured"
"""Name of the array of y, shape (steps, groups)."""


def now() -> datetime:
    """The time that it is at least, whether the table's are local or UTC."""
    return min(datetime.now(), datetime.now(UTC).replace(tzinfo=None))


def edges(start: str, every: str, steps: int) -> tuple[str, ...] | None:
    """Where each of so many steps begins, and where the last one ends; None where there is no such year."""
    first, step = datetime.fromisoformat(start), Interval.read(every)
    assert step is not None
    try:
        found = [step.after(first, times) for times in range(steps + 1)]
    except (ValueError, OverflowError):
        return None
    days = all(moment.time() == time() for moment in found)
    return tuple(str(moment.date() if days else moment) for moment in found)


def over(request: Request) -> int:
    """How many steps are over; public, as it is the clock's."""
    current, points = now(), request.attributes[-1].points
    ends = points[1 : int(dict(request.options)["horizon"]) + 1]
    return sum(datetime.fromisoformat(str(end)) <= current for end in ends)


def root(steps: int) -> Array:
    """r_0, ..., r_(steps - 1): the first column of the square root of the running total."""
    k = np.arange(1, steps)
    return np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))


@final
@dataclass(frozen=True, slots=True)
class RootRow:
    """Row t of R, for each group: a part of the strategy of all steps.

    Attributes:
        coefficients: r, one for each step of the horizon.
        step: t.
        groups: how many there are; the cells are (groups, at least as many as steps), those after the horizon do not count.
    """

    coefficients: Array
    step: int
    groups: int

    @property
    def shape(self) -> tuple[int, int]:
        """(the step's number, groups): which part of the strategy it is."""
        return self.step, self.groups

    @property
    def squared_sensitivity(self) -> float:
        """That of all rows together, |r|_2^2: a row of the table is in one group and one step."""
        return float(self.coefficients @ self.coefficients) * UP

    def apply(self, counts: Integers) -> tuple[Array, Array]:
        """(answers, bounds on their rounding errors)."""
        cells = counts.reshape(self.groups, -1)[:, : self.step + 1].astype(np.float64)
        answers = cells @ self.coefficients[self.step :: -1]
        return answers, 2 * (self.step + 2) * UNIT * answers

    def exact(self, counts: Integers, index: int) -> Fraction:
        """One group's answer, exactly."""
        cells = counts.reshape(self.groups, -1)[index, : self.step + 1].tolist()
        pairs = zip(cells, self.coefficients[self.step :: -1].tolist(), strict=True)
        return sum((int(count) * Fraction(value) for count, value in pairs if count), Fraction(0))


def check(request: Request) -> None:
    """Does nothing: ``sql.dp_running`` has checked the call."""


def check_tables(request: Request, tables: Sequence[SyntheticTable], bound_holds: bool) -> None:
    """Does nothing: no synthetic table is read."""


def run(request: Request, tables: Sequence[SyntheticTable], track: Track) -> Run:
    """The function that measures the steps that are over; it returns None while others are to come.

    Privacy: spends what the whole horizon costs.
    """
    horizon, ended = int(dict(request.options)["horizon"]), over(request)
    groups = request.domain.cells(request.domain.attributes[:-1])

    def measure(queryable: PrivateQueryable) -> Mapping[str, Array] | None:
        coefficients = root(horizon)
        rows = (RootRow(coefficients, step, groups) for step in range(ended))
        measured = queryable.answer_parts(queryable.domain.attributes, rows, queryable.left)
        return {MEASURED: np.array(measured)} if ended == horizon else None

    return measure


def estimates(request: Request, steps: Sequence[Step]) -> Array:
    """y as the journal has it, shape (steps, groups)."""
    groups = request.domain.cells(request.domain.attributes[:-1])
    return np.array([step.values for step in steps], np.float64).reshape(-1, groups)


def stddevs(request: Request, steps: int) -> Array:
    """Standard deviations of the totals of the first steps."""
    beta = price(request).beta
    assert beta is not None, "refused under pure DP"
    coefficients = root(int(dict(request.options)["horizon"]))
    size = float(np.linalg.norm(coefficients)) / np.sqrt(beta)
    return np.asarray(size * np.sqrt(np.cumsum(coefficients[:steps] ** 2)))


def totals(measured: Array) -> Array:
    """R y: the totals, shape (steps, groups).

    Privacy: post-processing.
    """
    coefficients, found = root(len(measured)), np.empty_like(measured)
    for group, column in enumerate(measured.T):
        # Not by a Fourier transform: a total stays what it was, to the last digit, when further steps come.
        found[:, group] = np.convolve(column, coefficients)[: len(column)]
    return found
