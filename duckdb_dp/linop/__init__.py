"""Implicit linear operators on marginals: the strategies that measurements apply to exact counts."""

from duckdb_dp.linop.base import UNIT, Array, Explicit, Identity, Integers, LinOp, Measurable, Total, centre, contract
from duckdb_dp.linop.circulant import Circulant
from duckdb_dp.linop.compose import Dense, Kron
from duckdb_dp.linop.distance import Distance
from duckdb_dp.linop.layered import Layered
from duckdb_dp.linop.merged import Merged
from duckdb_dp.linop.reflected import Reflected, Symmetric
from duckdb_dp.linop.residual import Centring, Factor, Factored
from duckdb_dp.linop.waves import Waves

__all__ = [
    "UNIT",
    "Array",
    "Centring",
    "Circulant",
    "Dense",
    "Distance",
    "Explicit",
    "Factor",
    "Factored",
    "Identity",
    "Integers",
    "Kron",
    "Layered",
    "LinOp",
    "Measurable",
    "Merged",
    "Reflected",
    "Symmetric",
    "Total",
    "Waves",
    "centre",
    "contract",
]
