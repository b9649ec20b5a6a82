"""Conditions on the cells that are not shown: of values outside the declared ones, which no release names and totals count."""

import operator
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute, Hidden
from duckdb_dp.errors import DPError, brief

_SIDES = {"below": (0, 1), "above": (1, 0)}
"""A value of a cell and a declared one, of which a comparison is as of all of them."""


def beyond(
    attribute: Attribute, function: Callable[[Any, Any], Any] | None, point: Any, node: exp.Expr
) -> list[bool | None]:
    """A comparison of a column with a point on the cells that are not shown: NULL on that of NULL.

    Args:
        attribute: the column.
        function: of ``operator``; None for another condition, which is not known of values that are not declared.
        point: as ``attribute`` orders its points: of bins in the type's unit.
        node: the condition as it was written.

    Raises:
        DPError: it is not the same for all values of a cell.
    """
    found: list[bool | None] = []
    for what in attribute.hidden:
        if what == "null":
            found.append(None)
        elif function is None or not _known(attribute, what, function, point):
            raise DPError(
                f"{brief(node.sql('duckdb'))}: it is not known for values of '{attribute.name}' that are not declared; compare it "
                "with declared ones."
            )
        else:
            found.append(function is operator.ne if what == "unlisted" else bool(function(*_SIDES[what])))
    return found


def _known(attribute: Attribute, what: Hidden, function: Callable[[Any, Any], Any], point: Any) -> bool:
    """Whether a comparison is the same for all values of a cell."""
    if what == "unlisted":
        return function in (operator.eq, operator.ne) and point in attribute.dtype.orders(attribute.points)
    if attribute.kind == "bins":
        low, high = attribute.held[0][0], attribute.held[-1][1]
    else:
        low, high = attribute.dtype.orders(attribute.points)
    return bool(low <= point if what == "below" else point <= high)
