"""SQL of the values that cells of an ordered attribute stand for."""

import sys

from duckdb_dp.counting.encode import array
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types import Decimal, Whole

LARGEST = {"FLOAT": (2 - 2.0**-23) * 2.0**127, "DOUBLE": sys.float_info.max}
"""The largest finite numbers."""


def value(attribute: Attribute, cell: str, share: str) -> str:
    """SQL of the value in a cell, below which a share of the cell's rows are; that of a bin lies on a line between its edges."""
    if attribute.kind != "bins":
        return _point(attribute, cell)
    if not attribute.dtype.numeric:
        return attribute.dtype.drawn(attribute.points, f"({cell} + 1)", share)
    return f"{end(attribute, cell, 0)} * (1 - {share}) + {end(attribute, cell, 1)} * {share}"


def end(attribute: Attribute, cell: str, side: int) -> str:
    """SQL of the lower (0) or upper (1) edge of a cell."""
    if attribute.kind != "bins":
        return _point(attribute, cell)
    edges = attribute.points[1:] if side else attribute.points[:-1]
    return f"({array(attribute.dtype.edge_type, edges)})[{cell} + 1]"


def outer_end(attribute: Attribute, cell: str, side: int) -> str:
    """The same as the end of an interval: infinite where the edge is the largest number of its type, as infinite values lie beyond it."""
    dtype, edge = attribute.dtype, attribute.points[-1 if side else 0]
    found = end(attribute, cell, side)
    if attribute.kind != "bins" or not dtype.continuous or abs(float(edge)) < LARGEST[attribute.type]:
        return found
    last = len(attribute.points) - 2 if side else 0
    return f"CASE WHEN {cell} = {last} THEN CAST('{'' if side else '-'}inf' AS {dtype.edge_type}) ELSE {found} END"


def _point(attribute: Attribute, cell: str) -> str:
    """SQL of the value that a cell stands for."""
    if attribute.kind == "integers":
        low, high = map(int, attribute.points)
        if max(abs(low), abs(high)) < 2**62:
            return f"CAST({low} + {cell} AS {attribute.type})"
    return f"({array(attribute.type, attribute.labels())})[{cell} + 1]"


def ends_of(type_: str) -> tuple[str, str]:
    """SQL of the smallest and the largest number of a type."""
    dtype = types.column_type(type_)
    if isinstance(dtype, Whole):
        low, high = map(str, dtype.limits)
    elif isinstance(dtype, Decimal):
        width, scale = dtype.digits
        nines = "9" * width
        high = f"{nines[: width - scale] or '0'}.{nines[width - scale :]}".rstrip(".")
        low = f"-{high}"
    else:
        low, high = "-inf", "inf"
    return f"CAST('{low}' AS {type_})", f"CAST('{high}' AS {type_})"
