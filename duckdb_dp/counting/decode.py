"""SQL text: from a drawn cell back to a value of the column's own type, the inverse of ``encode``.

What is drawn is a cell number, and of bins a share of the way through the bin beside it: 3.25 is a quarter through bin 3.
"""

from typing import Any

from duckdb_dp.counting.encode import array, literal
from duckdb_dp.domain import units
from duckdb_dp.domain.attribute import Attribute

_EXACT = 2**53
"""Up to here every whole number is a double."""


def decode(attribute: Attribute, code: str) -> str:
    """SQL expression for a drawn cell as a value in the attribute's own type; NULL for NULL.

    A bin gives one of the values that the type has in it, all alike: whole numbers and decimals to the last digit, dates
    and times to the type's unit. 'other' is a label in VARCHAR columns and NULL in others, since nothing is known of it.

    Args:
        attribute: its declaration.
        code: SQL of what is drawn.
    """
    if attribute.kind != "bins":
        found: list[Any] = [*attribute.labels()]
        if attribute.other and attribute.type != "VARCHAR":
            found[attribute.size - 1 - attribute.nulls] = None
        return f"({array(attribute.type, found)})[CAST({code} AS BIGINT) + 1]"
    cell, share = f"CAST(floor({code}) AS BIGINT) + 1", f"({code} - floor({code}))"
    if attribute.type in ("FLOAT", "DOUBLE"):
        return _real(attribute, cell, share)
    return _from_units(attribute.type, _units(attribute, cell, share))


def _real(attribute: Attribute, cell: str, share: str) -> str:
    low, high = (f"({array('DOUBLE', [float(end[i]) for end in attribute.held])})[{cell}]" for i in (0, 1))
    between = f"{low} * (1 - {share}) + {high} * {share}"  # high - low might overflow
    return f"CAST(least(greatest(CAST({between} AS {attribute.type}), {low}), {high}) AS {attribute.type})"


def _units(attribute: Attribute, cell: str, share: str) -> str:
    """The number of units: low + floor(share * n), of the n numbers from low to high."""
    _, top = attribute.held[-1]
    lows = [int(min(low, top)) for low, _ in attribute.held]  # a bin without a value gives the nearest one
    numbers = [max(int(high) - int(low) + 1, 1) for low, high in attribute.held]
    wide = "UHUGEINT" if attribute.type == "UHUGEINT" else "HUGEINT"
    type_ = "BIGINT" if max(*map(abs, lows), *numbers) < 2**61 else wide
    # A little less than n where n is no double, so that nothing is rounded up and out of the bin.
    spans = [float(n) if n <= _EXACT else float(n) * (1 - 2.0**-48) for n in numbers]
    offset = f"floor({share} * ({array('DOUBLE', spans)})[{cell}])"
    if type_ == "HUGEINT":  # from the middle, as an offset may be twice what the type holds
        halves = [n // 2 if n <= _EXACT else int(span / 2) for n, span in zip(numbers, spans, strict=True)]
        offset += f" - ({array('DOUBLE', [float(half) for half in halves])})[{cell}]"
        lows = [low + half for low, half in zip(lows, halves, strict=True)]
    return f"({array(type_, map(str, lows))})[{cell}] + CAST({offset} AS {type_})"


def _from_units(type_: str, number: str) -> str:
    if type_ == "DATE":
        return f"(DATE '1970-01-01' + CAST({number} AS INTEGER))"
    if type_ == "TIME":
        return f"(TIME '00:00:00' + to_microseconds(CAST({number} AS BIGINT)))"
    if type_ == "TIMESTAMP_NS":
        return f"make_timestamp_ns(CAST({number} AS BIGINT))"
    if type_ in units.PER_SECOND:
        micros = 10**6 // units.PER_SECOND[type_]
        return f"CAST(make_timestamp(CAST({number} AS BIGINT) * {micros}) AS {type_})"
    if not type_.startswith("DECIMAL"):
        return f"CAST({number} AS {type_})"
    scale = units.digits(type_)[1]
    unit = f" * CAST({literal(units.decimal_text(1, scale))} AS DECIMAL({max(scale, 1)}, {scale}))" if scale else ""
    return f"CAST(CAST({number} AS DECIMAL(38, 0)){unit} AS {type_})"
