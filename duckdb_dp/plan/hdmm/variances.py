"""What the strategy of one axis is worth for the queries on it, by closed forms where it has one."""

import math
from dataclasses import replace

import numpy as np

from duckdb_dp.domain.queries import Intervals
from duckdb_dp.linop import Array, Blended, Circulant, Folded, Identity, Layered, Merged, Reflected, Waves
from duckdb_dp.plan.hdmm.axes import AxisQueries
from duckdb_dp.plan.hdmm.oracle import AxisStrategy


def error_of(asked: AxisQueries, factor: AxisStrategy) -> float:
    """tr(G (A^T A)^+); a closed form serves the queries that it was found for, and knows it without a matrix."""
    if isinstance(factor.strategy, Reflected | Circulant | Waves | Layered | Merged | Folded | Blended):
        return factor.error
    family = asked.families[0] if asked.simple else None
    if isinstance(family, Intervals) and isinstance(factor.strategy, Identity):
        return float((family.means() * family.n).sum())  # as many cells as its intervals have
    return factor.against(asked.gram() if asked.places else None)


def squares_of(asked: AxisQueries, factor: AxisStrategy) -> Array:
    """q (A^T A)^+ q^T of every query; of many cells and few queries without that matrix."""
    n = factor.strategy.shape[1]
    family = asked.families[0] if asked.simple else None
    if isinstance(family, Intervals) and isinstance(factor.strategy, Merged) and family.kind == "width":
        inner = replace(factor, strategy=factor.strategy.inner)
        fewer = Intervals("width", inner.strategy.shape[1], family.parameter - factor.strategy.run + 1)
        return squares_of(AxisQueries((fewer.n,), (0,), (fewer,), joint=False), inner)
    if isinstance(family, Intervals) and isinstance(factor.strategy, Identity):
        return family.means() * family.n
    if isinstance(family, Intervals) and isinstance(factor.strategy, Waves):
        return factor.strategy.squares(family.kind, family.parameter)
    if isinstance(family, Intervals) and isinstance(factor.strategy, Layered):
        return factor.strategy.squares(*family.bounds())
    if (
        isinstance(family, Intervals)
        and isinstance(factor.strategy, Circulant | Folded | Blended)
        and family.kind == "width"
    ):
        return factor.strategy.windows(family.parameter)
    if not isinstance(factor.strategy, Reflected | Circulant) or math.prod(asked.shape) > n:
        return asked.squares(factor.covariance)
    kind = getattr(asked.families[0], "kind", "") if asked.simple else ""
    if isinstance(factor.strategy, Reflected) and kind in ("prefix", "suffix"):
        return factor.strategy.sums_squared[kind]
    found = np.zeros(math.prod(asked.shape))
    for sign, some in factor.strategy.halves():
        found += sign * np.square(asked.answers(some)).sum(axis=1)
    return found
