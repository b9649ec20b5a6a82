"""Implicit linear operators on marginals: the strategies that measurements apply to exact counts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duckdb_dp.linop.base import UNIT, Array, Explicit, Identity, Integers, LinOp, Measurable, Total, centre, contract
from duckdb_dp.linop.residual import Centring, Factor, Factored

if TYPE_CHECKING:
    from duckdb_dp.linop.blended import Blended, Chains
    from duckdb_dp.linop.circulant import Circulant
    from duckdb_dp.linop.compose import Dense, Kron
    from duckdb_dp.linop.distance import Distance
    from duckdb_dp.linop.folded import Folded
    from duckdb_dp.linop.grouped import Grouped
    from duckdb_dp.linop.layered import Layered
    from duckdb_dp.linop.merged import Merged
    from duckdb_dp.linop.reflected import Reflected, Symmetric
    from duckdb_dp.linop.waves import Waves

__all__ = [
    "UNIT",
    "Array",
    "Blended",
    "Centring",
    "Chains",
    "Circulant",
    "Dense",
    "Distance",
    "Explicit",
    "Factor",
    "Factored",
    "Folded",
    "Grouped",
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

_LATER = {
    name: module
    for module, names in {
        "blended": ("Blended", "Chains"),
        "circulant": ("Circulant",),
        "compose": ("Dense", "Kron"),
        "distance": ("Distance",),
        "folded": ("Folded",),
        "grouped": ("Grouped",),
        "layered": ("Layered",),
        "merged": ("Merged",),
        "reflected": ("Reflected", "Symmetric"),
        "waves": ("Waves",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    """The operators of searched strategies when they are first asked for: a first marginal needs none of them."""
    if name not in _LATER:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
