"""The operators of HDMM by name: whether each fits a workload, and its plan.

Source: [HDMM18] sections 4, 6 and 8; 'opt_mixture' is ours and 'opt_residuals' is [QS26].
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.queries import Intervals, Queries
from duckdb_dp.linop import Identity, Kron
from duckdb_dp.noise.kinds import NOISES
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.plan.hdmm.axes import Axis, AxisQueries, axis_of, groups, typical
from duckdb_dp.plan.hdmm.bounds import pure_bound
from duckdb_dp.plan.hdmm.grouping import unite
from duckdb_dp.plan.hdmm.marginals import MarginalsPlan, weighted_marginals
from duckdb_dp.plan.hdmm.mixtures import Basis, MixturePlan, weighted_sets
from duckdb_dp.plan.hdmm.oracle import MAX_CELLS as MAX_DENSE
from duckdb_dp.plan.hdmm.oracle import AxisStrategy, closed_form, closed_form_pure, steadied
from duckdb_dp.plan.hdmm.plans import Block, JointPlan, ProductPlan
from duckdb_dp.plan.hdmm.problem import Product, problem, solve_product
from duckdb_dp.plan.hdmm.task import (
    MAX_CELLS,
    MAX_GROUPS,
    MAX_RECONCILED,
    PlanningTask,
    is_plain,
    is_reflected,
    is_solved,
    joint_refusal,
    kron_cells,
    kron_refusal,
    marginals_cells,
    reflected_refusal,
    set_refusal,
    union_cells,
    union_refusal,
    worth_joining,
    worth_mixing,
)
from duckdb_dp.plan.residual import residual
from duckdb_dp.plan.smasher import querysmasher


def opt_0(task: PlanningTask) -> ProductPlan:
    """One dense strategy on the joint cells of all attributes; with Gaussian noise its certificate is for all there is."""
    axes = (axis_of(task.used, task.parts(task.live), task.workload.domain),) if task.used else ()
    found = _solved(task, task.live, axes)
    plan = _products(task, "opt_0", [(task.live, axes, found)])
    proved = math.prod(factor.bound / factor.error for factor in found.factors)
    return replace(plan, lower_bound=max(plan.lower_bound, plan.rmse * math.sqrt(proved) * (1 - 1e-9)))


def opt_kron(task: PlanningTask) -> ProductPlan:
    """One Kronecker product over all attributes."""
    axes = task.axes(task.live, task.used)
    found = _solved(task, task.live, axes)
    return _products(task, "opt_kron", [(task.live, axes, found)])


def opt_reflected(task: PlanningTask) -> ProductPlan:
    """One Kronecker product, in closed form on axes of many cells; the bounds of its factors multiply."""
    axes = task.axes(task.live, task.used)
    (part,) = task.workload.parts
    families = dict(zip(part.clique, part.queries, strict=True))
    factors = tuple(_large(task, families[name]) for axis in axes for name in axis.names)
    found = Product(factors=factors, error=math.prod(factor.error for factor in factors))
    proved = math.prod(factor.bound / factor.error for factor in factors)
    plan = _products(task, "opt_reflected", [(task.live, axes, found)], 0.0)
    return replace(plan, lower_bound=plan.rmse * math.sqrt(proved) * (1 - 1e-9))


def opt_union(task: PlanningTask) -> ProductPlan | JointPlan:
    """A Kronecker product for each of several groups of parts, the budget split in the best way.

    A group is the parts on one attribute set, or all that fit into a set that no other contains, or what
    ``grouping.unite`` makes of the first.
    """
    own: dict[Clique, list[int]] = {}
    for index in task.live:
        own.setdefault(task.effective[index], []).append(index)
    groupings = [list(own.values())]
    if 1 < len(own) <= MAX_GROUPS:
        groupings += [_absorbed(own), _united(task, own)]
    plans = [_grouped(task, found) for place, found in enumerate(groupings) if place == 0 or 0 < len(found) < len(own)]
    best = min(plans, key=lambda plan: plan.rmse)
    if len(best.measurements) == 1 or task.cells > MAX_RECONCILED:
        return best
    return JointPlan(
        workload=task.workload,
        mechanism="hdmm",
        measurements=best.measurements,
        lower_bound=task.lower_bound,
        noise=task.noise,
        operator="opt_union",
        axis=Axis(task.used, task.workload.domain.shape(task.used)),
    )


def opt_marginals(task: PlanningTask) -> MarginalsPlan:
    """Weighted marginals."""
    return MarginalsPlan(
        workload=task.workload,
        mechanism="hdmm",
        measurements=weighted_marginals(task.workload, task.noise, task.cost, MAX_CELLS),
        lower_bound=task.lower_bound,
        noise=task.noise,
        operator="opt_marginals",
    )


def opt_mixture(task: PlanningTask) -> MixturePlan:
    """Weighted sets of axes, measured by the axes' own strategies: as found for their queries, with and without the total."""
    axes = task.axes(task.live, task.used)
    plans = []
    for extra in (0.0, 1.0) if task.used else (0.0,):
        bases = tuple(Basis(axis=axis, factor=_typical(task, axis, extra)) for axis in axes)
        if not all(basis.sees_total for basis in bases):
            continue  # one that sees the total is next
        found = weighted_sets(task.parts(task.live), bases, task.noise, MAX_CELLS)
        plans.append(
            MixturePlan(
                workload=task.workload,
                mechanism="hdmm",
                measurements=tuple(_measurement(task, block, share) for block, share in found),
                lower_bound=task.lower_bound,
                noise=task.noise,
                operator="opt_mixture",
                bases=bases,
            )
        )
    return min(plans, key=lambda plan: plan.rmse)


def opt_residuals(task: PlanningTask) -> Plan:
    """A Kronecker product after centring on every residual that the workload needs; for marginals in closed form."""
    planner = residual if task.workload.is_marginals else querysmasher
    return planner(task.workload, task.cost)


def _large(task: PlanningTask, family: Queries) -> AxisStrategy:
    pure = NOISES[task.noise].pure
    if isinstance(family, Intervals) and is_reflected(family, pure) and (pure or not is_solved(family)):
        return closed_form_pure(family) if pure else closed_form(family)
    if is_plain(family):  # a total alone is no axis
        return AxisStrategy(strategy=Identity(family.n), error=float(family.n), bound=float(family.n))
    gram = family.gram()
    found = task.oracle(gram)
    return replace(found, bound=pure_bound(gram)[0]) if pure else found


def _grouped(task: PlanningTask, groups_: Sequence[Sequence[int]]) -> ProductPlan:
    """One product per group; groups that turn out to be on the same attributes are one."""
    cliques: dict[Clique, list[int]] = {}
    for indices in groups_:
        names = {name for index in indices for name in task.effective[index]}
        clique = tuple(name for name in task.workload.domain.attributes if name in names)
        cliques.setdefault(clique, []).extend(indices)
    found = []
    for clique, indices in cliques.items():
        axes = task.axes(indices, clique)
        found.append((indices, axes, _solved(task, indices, axes)))
    return _products(task, "opt_union", found)


def _absorbed(own: dict[Clique, list[int]]) -> list[list[int]]:
    """Every set's parts together with those of a set that contains it."""
    found: dict[Clique, list[int]] = {}
    for clique in sorted(own, key=len, reverse=True):
        above = next((top for top in found if set(clique) <= set(top)), None)
        found.setdefault(clique if above is None else above, []).extend(own[clique])
    return list(found.values())


def _united(task: PlanningTask, own: dict[Clique, list[int]]) -> list[list[int]]:
    """Groups of the parts on each attribute set, united where that pays; none where an axis is too large."""
    sets = groups(task.parts(task.live), task.used)
    if set_refusal(task, task.live, sets, MAX_DENSE):
        return []
    axes = task.axes(task.live, task.used)
    strategies = [_typical(task, one) for one in axes]
    known: dict[tuple[int, AxisQueries], float] = {}
    errors, members = [], []
    for clique, indices in own.items():
        inside = [bool(set(one.names) & set(clique)) for one in axes]
        error = 0.0
        for part in task.parts(indices):
            product = part.weight
            for place, one in enumerate(axes):
                if inside[place]:
                    key = place, one.queries_of(part.negated or part)
                    if key not in known:
                        known[key] = strategies[place].against(key[1].gram() if key[1].places else None)
                    product *= known[key]
            error += product
        errors.append(error)
        members.append(inside)
    groups_ = unite(
        np.array(errors),
        np.array(members, dtype=bool).reshape(len(errors), len(axes)),
        np.array([found.against(None) for found in strategies]),
        np.array([float(one.cells) for one in axes]),
        NOISES[task.noise].degree,
        MAX_CELLS / 10,
    )
    parts = list(own.values())
    return [[index for place in group for index in parts[place]] for group in groups_]


def _typical(task: PlanningTask, axis: Axis, extra: float = 0.0) -> AxisStrategy:
    """The best strategy for all that is asked of an axis."""
    return task.oracle(typical([axis.queries_of(part.negated or part) for part in task.parts(task.live)], extra))


def _solved(task: PlanningTask, indices: Sequence[int], axes: tuple[Axis, ...]) -> Product:
    """One product for some parts; p-Identity takes differences as they are."""
    found = problem(task.parts(indices), axes)
    return solve_product(found, steadied(task.oracle) if found.signed and not NOISES[task.noise].pure else task.oracle)


def _products(
    task: PlanningTask,
    operator: str,
    found: Sequence[tuple[Sequence[int], tuple[Axis, ...], Product]],
    lower_bound: float | None = None,
) -> ProductPlan:
    """Split the budget: shares of beta as the roots of the errors, shares of epsilon as their cube roots."""
    power = 1 / NOISES[task.noise].degree
    roots = [product.error**power for _, _, product in found]
    blocks = tuple(Block(axes=axes, factors=product.factors) for _, axes, product in found)
    serves = dict.fromkeys(range(len(task.workload.parts)), -1)
    for place, (indices, _, _) in enumerate(found):
        serves |= dict.fromkeys(indices, place)
    return ProductPlan(
        workload=task.workload,
        mechanism="hdmm",
        measurements=tuple(
            _measurement(task, block, root / math.fsum(roots)) for block, root in zip(blocks, roots, strict=True)
        ),
        lower_bound=task.lower_bound if lower_bound is None else lower_bound,
        noise=task.noise,
        operator=operator,
        consistent=len(blocks) == 1,
        blocks=blocks,
        serves=tuple(serves[index] for index in range(len(serves))),
    )


def _measurement(task: PlanningTask, block: Block, share: float) -> Measurement:
    """A block measured at a share of the privacy cost."""
    strategy, cost = Kron(block.strategies), task.cost * share
    variance = NOISES[task.noise].variance(strategy, cost)
    return Measurement(clique=block.clique, strategy=strategy, variance=variance)


@final
@dataclass(frozen=True, slots=True)
class Operator:
    """One of HDMM's operators.

    Attributes:
        plan: finds its plan.
        refusal: why it cannot plan for a task, or None.
        cells: why what it plans cannot be measured, or None.
        worth: whether it may find what the others do not.
    """

    plan: Callable[[PlanningTask], Plan]
    refusal: Callable[[PlanningTask], str | None]
    cells: Callable[[PlanningTask], str | None]
    worth: Callable[[PlanningTask], bool]


OPERATORS: dict[str, Operator] = {
    "opt_marginals": Operator(opt_marginals, lambda task: None, marginals_cells, lambda task: len(task.used) > 1),
    "opt_reflected": Operator(opt_reflected, reflected_refusal, kron_cells, lambda task: True),
    "opt_kron": Operator(opt_kron, kron_refusal, kron_cells, lambda task: True),
    "opt_union": Operator(opt_union, union_refusal, union_cells, lambda task: len(task.live) > 1),
    "opt_mixture": Operator(opt_mixture, union_refusal, union_cells, worth_mixing),
    "opt_residuals": Operator(
        opt_residuals,
        lambda task: None if not NOISES[task.noise].pure else "has Gaussian noise only",
        marginals_cells,
        lambda task: len(task.used) > 1,
    ),
    "opt_0": Operator(opt_0, joint_refusal, kron_cells, worth_joining),
}
"""By name, in the order that they are tried."""
