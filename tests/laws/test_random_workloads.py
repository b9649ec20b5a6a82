"""Any workload, every planner: exact answers without noise, the cost that was given, and no error below the bound."""

from collections.abc import Callable

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.errors import DPError
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import PLANNERS, PURE_PLANNERS
from duckdb_dp.plan.hdmm import hdmm, hdmm_pure
from duckdb_dp.plan.hdmm.operators import OPERATORS

KINDS = ["identity", "total", "prefix", "suffix", "range", "circular", "width-2", "hierarchy-2"]
JOINT = ["affine", "abs"]


def planners() -> dict[str, tuple[Callable[[Workload, float, str], Plan], str]]:
    found = {f"{name} gaussian": (planner, "beta") for name, planner in PLANNERS.items()}
    found |= {f"{name} laplace": (planner, "epsilon") for name, planner in PURE_PLANNERS.items()}
    for operator in OPERATORS:
        if operator == "opt_reflected":
            continue  # for more cells than these: tests/unit/plan/hdmm/test_select.py
        found[f"{operator} gaussian"] = (lambda w, c, o, op=operator: hdmm(w, c, o, operator=op)), "beta"
        if operator == "opt_residuals":
            continue  # has Gaussian noise only
        found[f"{operator} laplace"] = (lambda w, c, o, op=operator: hdmm_pure(w, c, o, operator=op)), "epsilon"
    return found


def random_workload(rng: np.random.Generator) -> Workload | None:
    """A few parts on a few small attributes: products of kinds, 0/1 and real matrices, and joint queries on pairs."""
    sizes = {name: int(rng.integers(1, 6)) for name in "abc"[: int(rng.integers(1, 4))]}
    domain, united = Domain(sizes), None
    for _ in range(int(rng.integers(1, 4))):
        names = [name for name in sizes if rng.random() < 0.6]
        weight = float(rng.random() + 0.2)
        if len(names) == 2 and rng.random() < 0.35 and min(sizes[name] for name in names) > 1:
            matrix = rng.integers(0, 2, (int(rng.integers(1, 4)), sizes[names[0]] * sizes[names[1]])).astype(float)
            kind = [*JOINT, matrix][int(rng.integers(3))]
            make = lambda k=kind, n=names, w=weight: Workload.predicates(domain, tuple(n), k, w)  # noqa: E731
        else:
            kinds = {name: random_kind(rng, sizes[name]) for name in names}
            make = lambda k=kinds, w=weight: Workload.product(domain, k, w)  # noqa: E731
        try:
            part = make()
        except DPError:  # an all-zero matrix, or a window wider than its attribute
            continue
        united = part if united is None else united + part
    return united


def random_kind(rng: np.random.Generator, size: int) -> str | np.ndarray:
    choice = rng.random()
    if choice < 0.25:
        return rng.integers(0, 2, (int(rng.integers(1, 4)), size)).astype(float)
    if choice < 0.35:
        return rng.normal(size=(2, size))
    return KINDS[int(rng.integers(len(KINDS)))]


def truth(part: Part, table: np.ndarray, domain: Domain) -> np.ndarray:
    """The answers, densely."""
    gone = tuple(axis for axis, name in enumerate(domain.attributes) if name not in part.clique)
    found = table.sum(axis=gone).astype(float)
    if part.joint:
        return part.queries[0].dense() @ found.reshape(-1)
    for axis, family in enumerate(part.queries):
        found = np.moveaxis(np.tensordot(family.dense(), found, axes=(1, axis)), 0, axis)
    return found.reshape(-1)


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 40), marks=pytest.mark.slow)], ids=["few", "more"])
@pytest.mark.parametrize("name", planners())
def test_any_workload(name: str, seeds: range) -> None:
    planner, cost = planners()[name]
    planned = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        workload = random_workload(rng)
        if workload is None:
            continue
        domain = workload.domain
        table = rng.integers(0, 9, domain.shape(domain.attributes))
        try:
            plan = planner(workload, 1.0, "total")
        except DPError:  # what a planner does not take it says
            continue
        planned += 1
        assert getattr(plan, cost) <= 1 + 1e-6
        assert plan.rmse >= plan.lower_bound * (1 - 1e-6)
        noisy = {}
        for m in plan.measurements:
            gone = tuple(axis for axis, name in enumerate(domain.attributes) if name not in m.clique)
            noisy[m.clique] = m.strategy.apply(table.sum(axis=gone).reshape(-1).astype(np.int64))[0]
        estimates = plan.estimates(noisy)
        for index, part in enumerate(workload.parts):
            answers = np.asarray(plan.answer(index, estimates)).reshape(-1)
            np.testing.assert_allclose(answers, truth(part, table, domain), atol=1e-5, err_msg=f"seed {seed}")
    assert planned > 0
