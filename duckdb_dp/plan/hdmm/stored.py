"""HDMM's plans as arrays, to be kept with what was measured by them.

Strategies for Laplace noise come from a search that takes other turns where a processor rounds otherwise. A release is
read with the strategies that it was drawn with, and those are only certain if they are stored.

Nothing private: a plan depends on the workload and the budget alone.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Dense, Explicit, Identity, Kron, Total
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.plan.hdmm.axes import Axis, axis
from duckdb_dp.plan.hdmm.marginals import MarginalsPlan
from duckdb_dp.plan.hdmm.mixtures import Basis, MixturePlan
from duckdb_dp.plan.hdmm.oracle import AxisStrategy
from duckdb_dp.plan.hdmm.plans import Block, HdmmPlan, JointPlan, ProductPlan

VERSION = 1


def dump(plan: Plan) -> dict[str, Array]:
    """Arrays by name that ``load`` makes the plan from again; none for plans that are no search's result.

    Privacy: post-processing of public queries.
    """
    if not isinstance(plan, HdmmPlan):
        return {}
    arrays: dict[str, Array] = {}
    described: dict[str, Any] = {
        "version": VERSION,
        "kind": type(plan).__name__,
        "mechanism": plan.mechanism,
        "noise": plan.noise,
        "operator": plan.operator,
        "consistent": plan.consistent,
        "lower_bound": plan.lower_bound,
        "cliques": [list(m.clique) for m in plan.measurements],
        "variances": [m.variance for m in plan.measurements],
    }
    if isinstance(plan, ProductPlan):
        described["serves"] = list(plan.serves)
        described["blocks"] = [_axes(block.axes, block.factors, arrays) for block in plan.blocks]
    elif isinstance(plan, MixturePlan):
        described["bases"] = _axes([b.axis for b in plan.bases], [b.factor for b in plan.bases], arrays)
    elif isinstance(plan, JointPlan):
        kroned = [m.strategy for m in plan.measurements]
        described["factors"] = [
            [_operator(factor, arrays) for factor in strategy.factors]
            for strategy in kroned
            if isinstance(strategy, Kron)
        ]
    text = np.frombuffer(json.dumps(described).encode(), dtype=np.uint8)
    return {"plan": text.astype(np.float64), **arrays}


def load(workload: Workload, arrays: Mapping[str, Array]) -> Plan:
    """The plan that ``dump`` has taken apart.

    Raises:
        DPError: arrays of another version.

    Privacy: post-processing of public queries.
    """
    described = json.loads(arrays["plan"].astype(np.uint8).tobytes())
    if described["version"] != VERSION:
        raise DPError("this plan was stored by another version of duckdb_dp; read it with that version.")
    common = {name: described[name] for name in ("mechanism", "noise", "operator", "consistent", "lower_bound")}
    cliques: list[Clique] = [tuple(clique) for clique in described["cliques"]]
    if described["kind"] == "MarginalsPlan":
        plain = [Identity(workload.domain.cells(clique)) for clique in cliques]
        return MarginalsPlan(workload=workload, measurements=_measured(cliques, plain, described), **common)
    if described["kind"] == "JointPlan":
        kroned = [Kron(tuple(_made(factor, arrays) for factor in factors)) for factors in described["factors"]]
        whole = tuple(name for name in workload.domain.attributes if any(name in clique for clique in cliques))
        joint = Axis(whole, workload.domain.shape(whole))
        return JointPlan(workload=workload, measurements=_measured(cliques, kroned, described), axis=joint, **common)
    if described["kind"] == "MixturePlan":
        bases = tuple(Basis(axis=a, factor=f) for a, f in _restored(workload, described["bases"], arrays, None))
        by_name = {name: basis for basis in bases for name in basis.axis.names}
        blocks = [_block([by_name[name] for name in clique]) for clique in cliques]
        measured = _measured(cliques, [Kron(block.strategies) for block in blocks], described)
        return MixturePlan(workload=workload, measurements=measured, bases=bases, **common)
    serves = tuple(described["serves"])
    blocks = []
    for place, block in enumerate(described["blocks"]):
        pairs = _restored(workload, block, arrays, [index for index, served in enumerate(serves) if served == place])
        blocks.append(Block(axes=tuple(a for a, _ in pairs), factors=tuple(f for _, f in pairs)))
    measured = _measured(cliques, [Kron(block.strategies) for block in blocks], described)
    return ProductPlan(workload=workload, measurements=measured, blocks=tuple(blocks), serves=serves, **common)


def _block(bases: Sequence[Basis]) -> Block:
    distinct = list(dict.fromkeys(bases))
    return Block(axes=tuple(b.axis for b in distinct), factors=tuple(b.factor for b in distinct))


def _measured(
    cliques: Sequence[Clique], strategies: Sequence[Explicit], described: Mapping[str, Any]
) -> tuple[Measurement, ...]:
    return tuple(
        Measurement(clique=clique, strategy=strategy, variance=variance)
        for clique, strategy, variance in zip(cliques, strategies, described["variances"], strict=True)
    )


def _axes(axes: Sequence[Axis], factors: Sequence[AxisStrategy], arrays: dict[str, Array]) -> list[list[Any]]:
    return [
        [list(a.names), _operator(f.strategy, arrays), f.error, f.bound] for a, f in zip(axes, factors, strict=True)
    ]


def _restored(
    workload: Workload, described: Sequence[Sequence[Any]], arrays: Mapping[str, Array], served: Sequence[int] | None
) -> list[tuple[Axis, AxisStrategy]]:
    """The axes and factors of a block; classes of cells are those of the parts that it serves."""
    parts = workload.parts if served is None else [workload.parts[index] for index in served]
    return [
        (
            axis(tuple(names), parts, workload.domain),
            AxisStrategy(strategy=_made(factor, arrays), error=error, bound=bound),
        )
        for names, factor, error, bound in described
    ]


def _operator(operator: Explicit, arrays: dict[str, Array]) -> list[Any]:
    """['identity' or 'total', n], or ['dense', name of its matrix], each matrix kept once."""
    if isinstance(operator, Identity | Total):
        return [type(operator).__name__.lower(), operator.n]
    assert isinstance(operator, Dense)
    for name, matrix in arrays.items():
        if matrix is operator.matrix:
            return ["dense", name]
    name = f"matrix {len(arrays)}"
    arrays[name] = operator.matrix
    return ["dense", name]


def _made(described: Sequence[Any], arrays: Mapping[str, Array]) -> Explicit:
    kind, value = described
    if kind == "dense":
        return Dense(arrays[value])
    return Identity(value) if kind == "identity" else Total(value)
