"""Implicit linear operators on marginals: what a measurement applies to exact counts."""

from duckdb_dp.linop.base import UNIT, Array, Explicit, Integers, LinOp, Measurable, centre, contract
from duckdb_dp.linop.compose import Dense, Kron, Stack, Weighted
from duckdb_dp.linop.intervals import AllRange, Identity, Prefix, Total, WidthRange
from duckdb_dp.linop.marginals import Marginals
from duckdb_dp.linop.residual import Centring, Factor, Factored

__all__ = [
    "UNIT",
    "AllRange",
    "Array",
    "Centring",
    "Dense",
    "Explicit",
    "Factor",
    "Factored",
    "Identity",
    "Integers",
    "Kron",
    "LinOp",
    "Marginals",
    "Measurable",
    "Prefix",
    "Stack",
    "Total",
    "Weighted",
    "WidthRange",
    "centre",
    "contract",
]
