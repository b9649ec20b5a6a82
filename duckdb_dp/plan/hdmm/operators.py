"""The operators of HDMM by name: whether each fits a workload, and the plan that it finds.

Source: [HDMM18] sections 4, 6 and 8; 'opt_residuals' is [QS26].
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from duckdb_dp.domain import Clique
from duckdb_dp.linop import Kron
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.plan.hdmm.axes import Axis, axis, effective, groups, is_null
from duckdb_dp.plan.hdmm.bounds import least_error, svd_bound
from duckdb_dp.plan.hdmm.marginals import MarginalsPlan, measured, weighted_marginals
from duckdb_dp.plan.hdmm.oracle import MAX_CELLS as MAX_DENSE
from duckdb_dp.plan.hdmm.oracle import Oracle
from duckdb_dp.plan.hdmm.plans import Block, JointPlan, ProductPlan
from duckdb_dp.plan.hdmm.problem import problem
from duckdb_dp.plan.hdmm.product import Product, solve_product
from duckdb_dp.plan.smasher import querysmasher
from duckdb_dp.workload import MAX_JOINT_CELLS, Part, Workload

MAX_CELLS = 100_000_000
"""Most cells of all measured attribute sets together: 0.8 GB."""

MAX_JOINT = {"gaussian": 4096, "laplace": 1024}
"""Most cells of all attributes together up to which 'opt_0' plans for them as one: seconds."""

MAX_RECONCILED = 2048
"""Most cells of all attributes together up to which 'opt_union' reconciles its answers, with exact variances."""

MAX_GROUPS = 20_000
"""Most attribute sets for which 'opt_union' tries a second grouping."""


@final
@dataclass(frozen=True, eq=False)
class Task:
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
        return tuple(axis(names, parts, self.workload.domain) for names in groups(parts, clique))

    @cached_property
    def lower_bound(self) -> float:
        """No strategy with this noise at this cost has a smaller rmse."""
        least = (lambda gram: self.oracle(gram).bound) if self.noise == "gaussian" else svd_bound
        parts = self.parts(self.live)
        error = least_error(parts, self.workload.domain, self.used, least, MAX_DENSE)
        unit = 1 / self.cost if self.noise == "gaussian" else 2 / self.cost**2
        return math.sqrt(error * unit / self.workload.queries)


def opt_0(task: Task) -> ProductPlan:
    """One dense strategy on the joint cells of all attributes."""
    axes = (axis(task.used, task.parts(task.live), task.workload.domain),) if task.used else ()
    return _products(
        task, "opt_0", [(task.live, axes, solve_product(problem(task.parts(task.live), axes), task.oracle))]
    )


def opt_kron(task: Task) -> ProductPlan:
    """One Kronecker product over all attributes."""
    axes = task.axes(task.live, task.used)
    found = solve_product(problem(task.parts(task.live), axes), task.oracle)
    return _products(task, "opt_kron", [(task.live, axes, found)])


def opt_union(task: Task) -> ProductPlan | JointPlan:
    """A Kronecker product for each of several groups of parts, the budget split in the best way.

    A group is the parts on one attribute set, or all parts that fit into one set that no other contains.
    """
    own: dict[Clique, list[int]] = {}
    for index in task.live:
        own.setdefault(task.effective[index], []).append(index)
    plans = [_grouped(task, own)]
    if 1 < len(own) <= MAX_GROUPS:
        merged = _absorbed(task, own)
        if len(merged) < len(own):
            plans.append(_grouped(task, merged))
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


def opt_marginals(task: Task) -> MarginalsPlan:
    """Weighted marginals."""
    chosen = weighted_marginals(task.workload, task.noise, MAX_CELLS)
    return MarginalsPlan(
        workload=task.workload,
        mechanism="hdmm",
        measurements=measured(task.workload.domain, chosen, task.cost, task.noise),
        lower_bound=task.lower_bound,
        noise=task.noise,
        operator="opt_marginals",
    )


def opt_residuals(task: Task) -> Plan:
    """A Kronecker product after centring on every residual that the workload needs."""
    return querysmasher(task.workload, task.cost)


def _grouped(task: Task, cliques: dict[Clique, list[int]]) -> ProductPlan:
    found = []
    for clique, indices in cliques.items():
        axes = task.axes(indices, clique)
        found.append((indices, axes, solve_product(problem(task.parts(indices), axes), task.oracle)))
    return _products(task, "opt_union", found)


def _absorbed(task: Task, own: dict[Clique, list[int]]) -> dict[Clique, list[int]]:
    """Every set's parts with the smallest of the sets that contain it and are contained in none."""
    holders: dict[str, list[Clique]] = {}
    found: dict[Clique, list[int]] = {}
    for clique in sorted(own, key=len, reverse=True):
        near = holders.get(clique[0], []) if clique else list(found)
        above = [top for top in near if set(clique) <= set(top)]
        if above:
            found[min(above, key=task.workload.domain.cells)].extend(own[clique])
            continue
        found[clique] = list(own[clique])
        for name in clique:
            holders.setdefault(name, []).append(clique)
    return found


def _products(
    task: Task, operator: str, found: Sequence[tuple[Sequence[int], tuple[Axis, ...], Product]]
) -> ProductPlan:
    """Split the budget: shares of beta as the roots of the errors, shares of epsilon as their cube roots."""
    power = 1 / 2 if task.noise == "gaussian" else 1 / 3
    roots = [product.error**power for _, _, product in found]
    blocks = tuple(Block(axes=axes, factors=product.factors) for _, axes, product in found)
    serves = dict.fromkeys(range(len(task.workload.parts)), -1)
    for place, (indices, _, _) in enumerate(found):
        serves |= dict.fromkeys(indices, place)
    measurements = []
    for block, root in zip(blocks, roots, strict=True):
        strategy, cost = Kron(block.strategies), task.cost * root / math.fsum(roots)
        if task.noise == "gaussian":
            variance = strategy.squared_sensitivity / cost
        else:
            variance = 2 * (strategy.sensitivity / cost) ** 2
        measurements.append(Measurement(clique=block.clique, strategy=strategy, variance=variance))
    return ProductPlan(
        workload=task.workload,
        mechanism="hdmm",
        measurements=tuple(measurements),
        lower_bound=task.lower_bound,
        noise=task.noise,
        operator=operator,
        consistent=len(blocks) == 1,
        blocks=blocks,
        serves=tuple(serves[index] for index in range(len(serves))),
    )


def _joint_refusal(task: Task) -> str | None:
    limit = MAX_JOINT[task.noise]
    together = _set_refusal(task, task.live, [task.used], limit)
    return f"plans for all attributes as one and {together}" if together else None


def _kron_refusal(task: Task) -> str | None:
    if task.cells > MAX_CELLS:
        return f"measures all attributes at once, {task.cells:,} cells where {MAX_CELLS:,} fit into memory"
    return _set_refusal(task, task.live, groups(task.parts(task.live), task.used), MAX_DENSE)


def _union_refusal(task: Task) -> str | None:
    domain = task.workload.domain
    own: dict[Clique, list[int]] = {}
    for index in task.live:
        own.setdefault(task.effective[index], []).append(index)
    cells = sum(map(domain.cells, own))
    if cells > MAX_CELLS:
        return f"measures every attribute set, {cells:,} cells where {MAX_CELLS:,} fit into memory"
    known: dict[object, str | None] = {}
    for clique, indices in own.items():
        parts = task.parts(indices)
        key = tuple(sorted({(part.joint, *map(id, part.queries)) for part in parts}))
        if key not in known:
            known[key] = _set_refusal(task, indices, groups(parts, clique), MAX_DENSE)
        if known[key]:
            return known[key]
    return None


def _set_refusal(task: Task, indices: Sequence[int], sets: Sequence[Clique], limit: int) -> str | None:
    """Why some sets of attributes cannot each have one dense strategy."""
    domain = task.workload.domain
    for names in sets:
        cells = domain.cells(names)
        if cells > limit and cells <= MAX_JOINT_CELLS and len(names) > 1:
            cells = axis(names, task.parts(indices), domain).cells
        if cells > limit:
            return f"needs one dense strategy on the {cells:,} cells of {list(names)}, above its limit of {limit:,}"
    return None


def _marginals_refusal(task: Task) -> str | None:
    cells = sum(task.workload.domain.cells(clique) for clique in set(task.workload.cliques))
    if cells > MAX_CELLS:
        return f"measures marginals of {cells:,} cells where {MAX_CELLS:,} fit into memory"
    return None


@final
@dataclass(frozen=True, slots=True)
class Operator:
    """One of HDMM's operators.

    Attributes:
        plan: finds its plan.
        refusal: why it does not fit a task, or None.
        worth: whether it may find what the others do not.
    """

    plan: Callable[[Task], Plan]
    refusal: Callable[[Task], str | None]
    worth: Callable[[Task], bool]


OPERATORS: dict[str, Operator] = {
    # On one axis 'opt_kron' solves the same problem.
    "opt_0": Operator(opt_0, _joint_refusal, lambda task: len(groups(task.parts(task.live), task.used)) > 1),
    "opt_kron": Operator(opt_kron, _kron_refusal, lambda task: True),
    "opt_union": Operator(opt_union, _union_refusal, lambda task: len(task.live) > 1),
    "opt_marginals": Operator(opt_marginals, _marginals_refusal, lambda task: len(task.used) > 1),
    "opt_residuals": Operator(
        opt_residuals,
        lambda task: None if task.noise == "gaussian" else "has Gaussian noise only",
        lambda task: len(task.used) > 1,
    ),
}
"""By name, in the order that they are tried."""
