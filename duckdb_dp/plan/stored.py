"""Plans as arrays, to be kept with what was measured by them.

A strategy is the result of a search, which may end a little elsewhere on another processor or with other libraries. A
release is read with the strategies that it was drawn with, or its answers would be biased; so they are stored with it.
Closed forms, as for marginals, are the same everywhere and are planned again.

Nothing private: a plan depends on the workload and the budget alone.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Centring, Factor, Factored, LinOp
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.plan.hdmm import stored as hdmm
from duckdb_dp.plan.smasher import SubspacePlan

PLAN = "plan"
"""Name of the array that holds the bytes of a JSON text: what the plan is, without its matrices."""

VERSION = 1


def dump(plan: Plan) -> dict[str, Array]:
    """Arrays by name that ``load`` makes the plan from again; none for closed forms.

    Privacy: post-processing of public queries.
    """
    if not isinstance(plan, SubspacePlan):
        return hdmm.dump(plan)
    arrays: dict[str, Array] = {}
    known: dict[int, int] = {}
    strategies = [_described(m.strategy, known, arrays) for m in plan.measurements]
    described = {
        "version": VERSION,
        "kind": "SubspacePlan",
        "mechanism": plan.mechanism,
        "objective": plan.objective,
        "lower_bound": plan.lower_bound,
        "errors": plan.errors,
        "cliques": [m.clique for m in plan.measurements],
        "variances": [m.variance for m in plan.measurements],
        "strategies": strategies,
    }
    text = np.frombuffer(json.dumps(described).encode(), dtype=np.uint8)
    return {PLAN: text.astype(np.float64), **arrays}


def load(workload: Workload, arrays: Mapping[str, Array]) -> Plan:
    """The plan that ``dump`` has taken apart.

    Raises:
        DPError: arrays of another version.

    Privacy: post-processing of public queries.
    """
    described: dict[str, Any] = json.loads(arrays[PLAN].astype(np.uint8).tobytes())
    if described["version"] != VERSION:
        raise DPError("this plan was stored by another version of duckdb_dp; read it with that version.")
    if described["kind"] != "SubspacePlan":
        return hdmm.load(workload, arrays)
    made: dict[int, Factor] = {}
    measurements = []
    for clique, variance, factors in zip(
        described["cliques"], described["variances"], described["strategies"], strict=True
    ):
        shape = workload.domain.shape(tuple(clique))
        strategy = Centring(shape) if factors is None else Factored(tuple(_made(f, made, arrays) for f in factors))
        measurements.append(Measurement(clique=tuple(clique), strategy=strategy, variance=variance))
    return SubspacePlan(
        workload=workload,
        mechanism=described["mechanism"],
        measurements=tuple(measurements),
        lower_bound=described["lower_bound"],
        objective=described["objective"],
        errors=tuple(described["errors"]),
    )


def _described(strategy: LinOp, known: dict[int, int], arrays: dict[str, Array]) -> list[list[Any]] | None:
    """[number of its matrix, sizes] of every factor, each matrix kept once; None for plain centring."""
    if not isinstance(strategy, Factored):
        return None
    for factor in strategy.factors:
        if id(factor.matrix) not in known:
            known[id(factor.matrix)] = len(known)
            arrays[f"matrix {known[id(factor.matrix)]}"] = factor.matrix
    return [[known[id(factor.matrix)], factor.sizes] for factor in strategy.factors]


def _made(described: list[Any], made: dict[int, Factor], arrays: Mapping[str, Array]) -> Factor:
    number, sizes = described
    if number not in made:
        made[number] = Factor(np.asarray(arrays[f"matrix {number}"]), tuple(sizes))
    return made[number]
