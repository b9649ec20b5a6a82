"""The planning task of HDMM: workload, noise and budget, and which operators fit it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.queries import MAX_REFLECTED, Intervals, Queries
from duckdb_dp.domain.workload import MAX_JOINT_CELLS, Part, Workload
from duckdb_dp.errors import as_sql
from duckdb_dp.noise.kinds import GAUSSIAN, LAPLACE, NOISES
from duckdb_dp.optimize.tridiagonal import KINDS
from duckdb_dp.optimize.windows import NARROW
from duckdb_dp.plan.energies import is_marginal
from duckdb_dp.plan.hdmm.axes import Axis, axis_of, effective, groups, is_null
from duckdb_dp.plan.hdmm.bounds import least_error, proved, pure_bound
from duckdb_dp.plan.hdmm.oracle import MAX_CELLS as MAX_DENSE
from duckdb_dp.plan.hdmm.oracle import Oracle

MAX_CELLS = 100_000_000
"""Most cells of all measured attribute sets together: 0.8 GB."""

MAX_JOINT = {GAUSSIAN.name: 4096, LAPLACE.name: 1024}
"""Most cells of all attributes together up to which 'opt_0' plans for them as one: seconds."""

MAX_RECONCILED = 2048
"""Most cells of all attributes together up to which 'opt_union' reconciles its answers, with exact variances."""

MAX_GROUPS = 1500
"""Most attribute sets that 'opt_union' tries to unite: every two are looked at."""


QUICK_JOINT = 512
"""Most cells of all attributes together at which the dense 'opt_0' is a moment too."""

QUICK_CELLS = 1_000_000
"""Most cells of all attributes together that are measured in a moment."""

QUICK_AXIS = 512
"""Most cells of one axis whose strategy is found in a moment."""

LAYERED = 1024
"""Cells of one axis above which strategies for Laplace noise are a layer over coarse cells."""

QUICK_WIDE = 1024
"""Cells up to which ranges of one width that is more than a 24th of them are solved, in a second: closed forms are 1 to 3 % above that."""

PLAIN = ("identity", "total")
"""Kinds of queries whose best strategy is the cells, or their total, however many there are."""

QUICK_PARTS = 200
"""Most query sets that are planned for in a moment."""


@final
@dataclass(frozen=True, eq=False)
class PlanningTask:
    """What is asked, and by which noise at which cost it is answered.

    Attributes:
        workload: the queries.
        noise: 'gaussian' or 'laplace'.
        cost: beta or epsilon.
        oracle: OPT_0 for this noise.
    """

    workload: Workload
    noise: str
    cost: float
    oracle: Oracle

    @cached_property
    def live(self) -> list[int]:
        """Positions of the parts that ask for anything."""
        known: dict[tuple[int, ...], bool] = {}
        found = []
        for index, part in enumerate(self.workload.parts):
            key = tuple([id(family) for family in part.queries])
            if key not in known:
                known[key] = not is_null(part)
            if known[key]:
                found.append(index)
        return found

    @cached_property
    def effective(self) -> list[Clique]:
        """The attributes that each part of the workload distinguishes."""
        known: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = {}
        found = []
        for part in self.workload.parts:
            key = tuple([id(family) for family in part.queries]), self.workload.domain.shape(part.clique)
            if key not in known:
                kept = set(effective(part, self.workload.domain))
                known[key] = tuple(place for place, name in enumerate(part.clique) if name in kept)
            found.append(tuple([part.clique[place] for place in known[key]]))
        return found

    @cached_property
    def used(self) -> Clique:
        """All attributes that are distinguished."""
        names = {name for index in self.live for name in self.effective[index]}
        return tuple(name for name in self.workload.domain.attributes if name in names)

    @cached_property
    def cells(self) -> int:
        """Of all attributes in use together."""
        return self.workload.domain.cells(self.used)

    def parts(self, indices: Sequence[int]) -> list[Part]:
        """Some parts of the workload."""
        return [self.workload.parts[index] for index in indices]

    def axes(self, indices: Sequence[int], clique: Clique) -> tuple[Axis, ...]:
        """One axis per attribute of a clique, those of joint parts together."""
        parts = self.parts(indices)
        return tuple(axis_of(names, parts, self.workload.domain) for names in groups(parts, clique))

    @cached_property
    def lower_bound(self) -> float:
        """No strategy with this noise at this cost has a smaller rmse."""
        least = (lambda gram: proved(self.oracle(gram))) if not NOISES[self.noise].pure else pure_bound
        parts = self.parts(self.live)
        error = least_error(parts, self.workload.domain, self.used, least, MAX_DENSE)
        unit = NOISES[self.noise].unit_variance(self.cost)
        return math.sqrt(error * unit / self.workload.queries)


def joint_refusal(task: PlanningTask) -> str | None:
    """Why 'opt_0' does not fit, or None."""
    limit = MAX_JOINT[task.noise]
    together = set_refusal(task, task.live, [task.used], limit)
    return f"plans for all attributes as one and {together}" if together else None


def kron_refusal(task: PlanningTask) -> str | None:
    """Why 'opt_kron' does not fit, or None."""
    return set_refusal(task, task.live, groups(task.parts(task.live), task.used), MAX_DENSE)


def reflected_refusal(task: PlanningTask) -> str | None:
    """Why 'opt_reflected' does not fit, or None."""
    return one_product(task.workload, NOISES[task.noise].pure)


def one_product(workload: Workload, pure: bool = False) -> str | None:
    """Why a workload is no product of queries with a closed form and of others on few cells, or None."""
    part = workload.parts[0]
    most = LAYERED if pure else QUICK_AXIS
    if len(workload.parts) > 1 or part.joint:
        return "plans for one product of queries on each attribute"
    if not any(is_reflected(family, pure) or (is_plain(family) and family.n > most) for family in part.queries):
        return f"plans for {', '.join(map(repr, (*KINDS, 'width', *PLAIN)))} on more than {most} cells"
    if math.prod(family.n for family in part.queries if not (is_plain(family) and family.count == 1)) > MAX_CELLS:
        return f"measures up to {MAX_CELLS:,} cells"
    for family in part.queries:
        others = QUICK_AXIS if pure else MAX_DENSE
        limit = MAX_REFLECTED if is_reflected(family, pure) else math.inf if is_plain(family) else others
        if family.n > limit:
            return f"plans for up to {limit:,} cells of such queries, and here are {family.n:,}"
    return None


def is_reflected(family: Queries, pure: bool = False) -> bool:
    """Whether the queries have a closed form that is good, and too many cells for a better one in a moment."""
    if not isinstance(family, Intervals) or is_plain(family) or family.n <= (LAYERED if pure else QUICK_AXIS):
        return False
    return family.kind in (*KINDS, "width")


def is_solved(family: Queries) -> bool:
    """Whether the queries have a closed form that is not good, on few enough cells for a better one in a second."""
    wide = isinstance(family, Intervals) and family.kind == "width" and NARROW * family.parameter > family.n
    return wide and family.n <= QUICK_WIDE


def is_plain(family: Queries) -> bool:
    """Whether the queries are the cells, or their total."""
    return isinstance(family, Intervals) and family.meaning in PLAIN


def union_refusal(task: PlanningTask) -> str | None:
    """Why 'opt_union' and 'opt_mixture' do not fit, or None."""
    own: dict[Clique, list[int]] = {}
    for index in task.live:
        own.setdefault(task.effective[index], []).append(index)
    known: dict[object, str | None] = {}
    for clique, indices in own.items():
        parts = task.parts(indices)
        key = tuple(sorted({(part.joint, *map(id, part.queries)) for part in parts}))
        if key not in known:
            known[key] = set_refusal(task, indices, groups(parts, clique), MAX_DENSE)
        if known[key]:
            return known[key]
    return None


def set_refusal(task: PlanningTask, indices: Sequence[int], sets: Sequence[Clique], limit: int) -> str | None:
    """Why some sets of attributes cannot each have one dense strategy."""
    domain = task.workload.domain
    for names in sets:
        cells = domain.cells(names)
        if cells > limit and cells <= MAX_JOINT_CELLS and len(names) > 1:
            cells = axis_of(names, task.parts(indices), domain).cells
        if cells > limit:
            return f"needs one dense strategy on the {cells:,} cells of {as_sql(names)}, above its limit of {limit:,}"
    return None


def kron_cells(task: PlanningTask) -> str | None:
    """Why what 'opt_kron' plans cannot be measured, or None."""
    return _above("all attributes at once", task.cells)


def union_cells(task: PlanningTask) -> str | None:
    """Why what 'opt_union' and 'opt_mixture' plan cannot be measured, or None."""
    cells = sum(map(task.workload.domain.cells, {task.effective[index] for index in task.live}))
    return _above("every attribute set", cells)


def is_small(task: PlanningTask) -> bool:
    """Whether all operators together take a moment."""
    return task.cells <= QUICK_JOINT


def quick_refusal(task: PlanningTask) -> str | None:
    """Why 'opt_kron' and 'opt_mixture' take more than a moment to plan or to measure, or None."""
    if task.cells > QUICK_CELLS:
        return f"measures {task.cells:,} cells, above its limit of {QUICK_CELLS:,}"
    if len(task.live) > QUICK_PARTS:
        return f"plans for {len(task.live):,} query sets, above its limit of {QUICK_PARTS:,}"
    return set_refusal(task, task.live, groups(task.parts(task.live), task.used), QUICK_AXIS)


def marginals_cells(task: PlanningTask) -> str | None:
    """Why what 'opt_marginals' and 'opt_residuals' plan cannot be measured, or None."""
    return _above("marginals", sum(map(task.workload.domain.cells, set(task.workload.cliques))))


def _above(what: str, cells: int) -> str | None:
    return f"measures {what}, {cells:,} cells where {MAX_CELLS:,} fit into memory" if cells > MAX_CELLS else None


def worth_joining(task: PlanningTask) -> bool:
    """Not on one axis, where 'opt_kron' solves the same problem, nor for products with the cells of an attribute, of which each has one."""
    first, *others = task.parts(task.live)
    cells = (isinstance(family, Intervals) and family.meaning == "identity" for family in first.queries)
    alike = not others and is_product(first) and any(cells)
    return len(groups([first, *others], task.used)) > 1 and not alike


def is_product(part: Part) -> bool:
    """Whether a part asks for all products of queries on single attributes."""
    return not part.joint and part.negated is None


def worth_mixing(task: PlanningTask) -> bool:
    """Not for marginals, where it is 'opt_marginals', nor for one product, where it is 'opt_kron'."""
    parts = task.parts(task.live)
    sets = groups(parts, task.used)
    if len(parts) == 1 and is_product(parts[0]):
        return False
    return len(sets) > 1 and not all(is_marginal(part) for part in parts)
