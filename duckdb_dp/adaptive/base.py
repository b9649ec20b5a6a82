"""What all adaptive mechanisms share: options, outcome, and how they select and measure through a ``PrivateQueryable``."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duckdb_dp.adaptive.candidates import Target
from duckdb_dp.domain.domain import Clique
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array, Centring, Grouped, Measurable
from duckdb_dp.private import Candidate, PrivateQueryable
from duckdb_dp.progress import Track
from duckdb_dp.reconstruct.combination import NONE
from duckdb_dp.reconstruct.estimate import Estimate
from duckdb_dp.reconstruct.groups import Groups
from duckdb_dp.reconstruct.measurement import LinearMeasurement

SELECTION = 0.1
"""Share of a round's rho that selection takes, as in [AIM+GReM]. Under GDP, where the same rho buys 1.25 times less epsilon, 5 %
gave aim 2 % less error on Adult and 2 % more on Titanic, and 2 to 30 % gave pairs the same (docs/benchmarks.md)."""

HALF_NORMAL = math.sqrt(2 / math.pi)
"""E|x| of a standard normal x."""

MEMORY = 2**30
"""Bytes of marginals that a mechanism holds at once by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of adaptive mechanisms.

    Attributes:
        rounds: the budget of the first round is 1 / rounds of what rounds may spend, in the mechanism's own split;
            annealing usually makes them fewer. None: the mechanism's own default.
        max_cells: marginals with more cells are not measured, only estimated from smaller ones. None: no limit.
        max_memory: bytes of marginals to hold in memory; beyond that they are computed when they are needed.
    """

    rounds: int | None = None
    max_cells: int | None = None
    max_memory: float = MEMORY

    def __post_init__(self) -> None:
        for name in ("rounds", "max_cells"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise DPError(f"{name} := {as_sql(value)} is not a whole number of at least 1.")
        number = isinstance(self.max_memory, int | float) and not isinstance(self.max_memory, bool)
        if not number or not 0 < self.max_memory < math.inf:
            raise DPError(f"max_memory := {as_sql(self.max_memory)} is not a positive number of bytes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an adaptive mechanism has measured.

    Attributes:
        measured: its own noisy residuals, one per clique: the averages of all rounds. Priors are not among them.
        rounds: for each round what was selected and spent, as plain dicts.
        estimate: of all singles and pairs, where the mechanism has its own: fitted marginals are read from it.
        grouped: pairs that were measured in groups of neighbouring values in the end -> how many groups of each attribute.

    Privacy: has been charged.
    """

    measured: tuple[LinearMeasurement, ...]
    rounds: tuple[Mapping[str, Any], ...]
    estimate: Estimate | None = None
    grouped: Mapping[Clique, tuple[int, ...]] = field(default_factory=dict)


def measure_residuals(
    queryable: PrivateQueryable,
    precisions: Mapping[Clique, float],
    rho: float,
    groups: Mapping[Clique, Groups] = NONE,
) -> tuple[LinearMeasurement, ...]:
    """Noisy residuals with precisions in the given proportions, which together cost exactly rho.

    Args:
        queryable: the private data.
        precisions: clique -> 1 / variance of its noise, up to a common factor.
        rho: what all together may cost.
        groups: of cliques whose tables of groups are measured: one row is in one group, so that nothing else changes.

    Source: [AIM+GReM] Alg. 5.

    Privacy: spends rho.
    """
    shapes = {tau: groups[tau].shape if tau in groups else queryable.domain.shape(tau) for tau in precisions}
    strategies = {tau: Centring(shape) for tau, shape in shapes.items()}
    costs = {tau: precisions[tau] * strategies[tau].squared_sensitivity for tau in precisions}
    total, left = math.fsum(costs.values()), rho
    asked = []
    for number, (tau, cost) in enumerate(costs.items(), start=1):
        # The last one takes what rounding has left of the others, so that the sum is exact.
        share = left if number == len(costs) else min(rho * cost / total, left)
        if share <= 0:
            continue
        left -= share
        asked.append((tau, strategies[tau], share))
    if not groups:
        return tuple(queryable.measure_all(asked))
    answered = queryable.answer_all(
        [(tau, grouped(strategy, groups.get(tau)), share) for tau, strategy, share in asked]
    )
    return tuple(
        LinearMeasurement(clique=tau, strategy=strategy, answers=answers, variance=variance)
        for (tau, strategy, _), (answers, variance) in zip(asked, answered, strict=True)
    )


def grouped(query: Measurable, groups: Groups | None) -> Measurable:
    """The query on the sums of groups, or on the table itself where there are none."""
    return query if groups is None else Grouped(query, groups.cells, math.prod(groups.shape))


def split(queryable: PrivateQueryable, rho: float, count: int) -> tuple[float, float, bool]:
    """How a round spends its rho: (for the selection, for the measurement, whether it is the last round).

    If less than two rounds are left, this round takes everything. A single candidate needs no selection.

    Source: [AIM+GReM] Alg. 7, lines 8 to 10.
    """
    last = queryable.left <= 2 * rho
    whole = queryable.left if last else rho
    selection = SELECTION * whole if count > 1 else 0.0
    return selection, whole - selection, last


def select(
    queryable: PrivateQueryable,
    choices: Sequence[Target],
    estimate: Callable[[Clique], Array],
    rho: float,
    noise: float,
    changed: Collection[Clique] | None,
) -> int:
    """The index of a candidate, by the exponential mechanism; a single candidate needs no selection.

    Formula: the score is w (||mu - estimate||_1 - sqrt(2/pi) s n), the last term what noise of stddev s in n cells adds.

    Args:
        queryable: the private data.
        choices: the marginals that may be selected.
        estimate: the present estimate of a marginal.
        rho: what the choice may cost.
        noise: s, of the measurement that follows.
        changed: marginals whose estimate changed since the last selection; None for all.

    Source: [AIM+GReM] Alg. 4 line 9.

    Privacy: spends rho, or nothing where there is one choice.
    """
    if len(choices) == 1:
        return 0
    candidates = [
        Candidate(clique=choice.clique, weight=choice.weight, bias=HALF_NORMAL * noise * choice.cells)
        for choice in choices
    ]
    return queryable.select(candidates, estimate, rho, changed)


def noise_of(queryable: PrivateQueryable, rho: float) -> float:
    """Standard deviation of the noise in each cell of a marginal measured as it is: k / sqrt(2 rho)."""
    return queryable.rows / math.sqrt(2 * rho)


def report(
    number: int, clique: Clique, queryable: PrivateQueryable, *, noise: float, change: float, rows: float
) -> dict[str, Any]:
    """What the release stores about a round; all of it has been charged.

    ``change`` is how much, in L1, the round changed the estimate of the selected marginal, by its error and by noise.
    ``error`` is that divided by the noisy number of rows.
    """
    return {
        "round": number,
        "marginal": ",".join(clique),
        "left": queryable.left,
        "stddev": noise,
        "change": change,
        "error": change / max(rows, 1.0),
    }


PARTS = 100


class Progress:
    """Iterates over hundredths of a budget; each one is called with what is left, and says whether it is passed."""

    def __init__(self, track: Track, budget: float, what: str) -> None:
        self._bar = track(range(1, PARTS + 1), f"{what}, % of the budget")
        self._budget = budget
        self._part = 0

    def __iter__(self) -> Iterator["Progress"]:
        for part in self._bar:
            self._part = part
            yield self

    def __call__(self, left: float) -> bool:
        """Whether more than this hundredth of the budget is spent, except for the last: the loop itself ends there."""
        return self._part < PARTS and self._budget - left > self._part / PARTS * self._budget

    def note(self, report: Mapping[str, Any]) -> None:
        """Show the round and its estimated error next to the progress bar, if it can show a note."""
        show = getattr(self._bar, "set_postfix_str", None)
        if show is not None:
            show(f"round {report['round']}, estimated error {report['error']:.3g}", refresh=False)
