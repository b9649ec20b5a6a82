"""Implicit linear operators on marginals: the strategies that measurements apply to exact counts."""

from duckdb_dp.linop.base import UNIT, Array, Explicit, Identity, Integers, LinOp, Measurable, Total, centre, contract
from duckdb_dp.linop.circulant import Circulant
from duckdb_dp.linop.compose import Dense, Kron
from duckdb_dp.linop.reflected import Reflected, Symmetric
from duckdb_dp.linop.residual import Centring, Factor, Factored

__all__ = [
    "UNIT",
    "Array",
    "Centring",
    "Circulant",
    "Dense",
    "Explicit",
    "Factor",
    "Factored",
    "Identity",
    "Integers",
    "Kron",
    "LinOp",
    "Measurable",
    "Reflected",
    "Symmetric",
    "Total",
    "centre",
    "contract",
]
