"""SQL text: from a drawn cell back to a value of the column's own type, the inverse of ``encode``.

What is drawn is a cell number, and of bins a share of the way through the bin beside it: 3.25 is a quarter through bin 3.
"""

from typing import Any

from duckdb_dp.domain.attribute import Attribute


def decode(attribute: Attribute, code: str) -> str:
    """SQL expression for a drawn cell as a value in the attribute's own type; NULL for NULL.

    A bin gives one of the values that the type has in it, all alike: whole numbers and decimals to the last digit, dates
    and times to the type's unit. 'other' is a label in VARCHAR columns and NULL in others, since nothing is known of it.

    Args:
        attribute: its declaration.
        code: SQL of what is drawn.
    """
    if attribute.kind == "bins":
        cell, share = f"CAST(floor({code}) AS BIGINT) + 1", f"({code} - floor({code}))"
        return attribute.dtype.drawn(attribute.points, cell, share)
    labels: list[Any] = [*attribute.labels()]
    if attribute.other and attribute.type != "VARCHAR":
        labels[attribute.size - 1 - attribute.nulls] = None
    return f"({attribute.dtype.array(labels)})[CAST({code} AS BIGINT) + 1]"
