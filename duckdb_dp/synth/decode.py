"""From cell numbers back to values: labels, and numbers, dates and times drawn uniformly inside their bins."""

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duckdb_dp.attribute import Attribute, Scalar, enum_values
from duckdb_dp.reconstruct.junction import Codes

_ARROW = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
}
_PER_SECOND = {"TIME": 10**6, "TIMESTAMP": 10**6, "TIMESTAMP_S": 1, "TIMESTAMP_MS": 10**3, "TIMESTAMP_NS": 10**9}
_SMALL = 2**62
"""Below this, whole numbers and their sums fit 64 bits."""


def decode_table(attributes: Sequence[Attribute], codes: Codes, rng: np.random.Generator) -> pa.Table:
    """Records as values, one column per attribute, under its name.

    Privacy: post-processing.
    """
    return pa.table({a.name: decode(a, codes[:, place], rng) for place, a in enumerate(attributes)})


def decode(attribute: Attribute, codes: NDArray[np.integer], rng: np.random.Generator) -> pa.Array:
    """One column of values from its cell numbers.

    A bin gives a uniform value of the column's type inside it: whole numbers and decimals to the last digit, dates and
    times to the type's unit. A bin that holds no such value, which no row can be in, gives the nearest one. NULL gives
    NULL; 'other' gives the text 'other' in a VARCHAR column, and NULL in any other, since nothing is known of it.

    Args:
        attribute: its declaration.
        codes: cell numbers, (rows,).
        rng: random numbers.

    Returns:
        (rows,), of the arrow type that DuckDB reads as the column's type; as text for HUGEINT, UHUGEINT, UUID and ENUM,
        which arrow lacks: DuckDB casts them.

    Privacy: post-processing.
    """
    codes = np.asarray(codes, dtype=np.int64)
    declared = attribute.size - attribute.other - attribute.nulls
    known = codes < declared
    if attribute.family in ("text", "boolean"):
        labels: list[Scalar | None] = list(attribute.points)
        labels += [_other(attribute)] * attribute.other + [None] * attribute.nulls
        return pa.array(labels, type=_ARROW.get(attribute.type, pa.string())).take(pa.array(codes))
    inside = np.where(known, codes, 0)
    if attribute.type in ("FLOAT", "DOUBLE"):
        return pa.array(_reals(attribute, inside, rng), mask=~known)
    return _from_units(attribute.type, _whole(attribute, inside, rng), known)


def _other(attribute: Attribute) -> str | None:
    text = attribute.type == "VARCHAR" and enum_values(attribute.type) is None
    return "other" if text else None


def _reals(attribute: Attribute, codes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
    """Doubles or floats: the points, or uniform between them."""
    kind: type[np.float32 | np.float64] = np.float32 if attribute.type == "FLOAT" else np.float64
    points = np.array(attribute.points, dtype=np.float64)
    if attribute.kind == "values":
        return points.astype(kind)[codes]
    low, high = points[codes], points[codes + 1]
    share: NDArray[np.float64] = rng.random(size=len(codes))
    drawn = (low * (1 - share) + high * share).astype(kind)  # high - low might overflow
    last = codes == len(points) - 2
    edge = high.astype(kind)
    below = np.where(last, edge, np.nextafter(edge, kind(-np.inf), dtype=kind))
    return np.asarray(np.clip(drawn, np.minimum(low.astype(kind), below), below))


def _whole(attribute: Attribute, codes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
    """Whole numbers of the type's unit: 64-bit where they fit, else Python's."""
    if attribute.kind == "integers":
        low = int(attribute.points[0])
        first = _narrow([low, int(attribute.points[1])])[:1]
        return np.asarray(first + codes.astype(first.dtype))
    exact = [_units(attribute.type, point) for point in attribute.points]
    if attribute.kind == "values":
        return _narrow([int(value) for value in exact])[codes]
    lows = [math.ceil(a) for a in exact[:-1]]
    highs = [math.ceil(b) - 1 for b in exact[1:-1]] + [math.floor(exact[-1])]
    lows = [_held(attribute.type, low) for low in lows]
    highs = [max(low, _held(attribute.type, high)) for low, high in zip(lows, highs, strict=True)]
    if max(map(abs, (*lows, *highs))) < _SMALL:
        starts, ends = np.array(lows)[codes], np.array(highs)[codes]
        return np.asarray(rng.integers(starts, ends, endpoint=True))
    return np.array([lows[c] + _below(highs[c] - lows[c] + 1, rng) for c in codes.tolist()], dtype=object)


def _below(n: int, rng: np.random.Generator) -> int:
    """A whole number below n, uniform to 2^-64."""
    bits = n.bit_length() + 64
    return int.from_bytes(rng.bytes(-(-bits // 8)), "little") % n


def _narrow(values: list[int]) -> NDArray[Any]:
    fits = max(map(abs, values)) < _SMALL
    return np.array(values, dtype=np.int64 if fits else object)


def _held(type_: str, value: int) -> int:
    """The nearest number that the type holds; a bin's edge may be beyond."""
    bits = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}.get(type_.removeprefix("U"))
    if bits is not None:
        low, high = (0, 2**bits - 1) if type_.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return int(min(max(value, low), high))
    if type_.startswith("DECIMAL"):
        most = 10 ** _digits(type_)[0] - 1
        return int(min(max(value, -most), most))
    return value


def _units(type_: str, point: Scalar) -> int | Fraction:
    """A point in the type's unit, exactly: ones, last decimals, days, or parts of a second since 1970 or midnight."""
    if type_ == "DATE":
        return int((date.fromisoformat(str(point)) - date(1970, 1, 1)).days)
    if type_ in _PER_SECOND:
        if type_ == "TIME":
            moment = datetime.combine(date(1970, 1, 1), time.fromisoformat(str(point)))
        else:
            moment = datetime.fromisoformat(str(point))
        since = moment - datetime(1970, 1, 1)
        micros = (since.days * 86400 + since.seconds) * 10**6 + since.microseconds
        return micros * _PER_SECOND[type_] // 10**6
    scale = _digits(type_)[1] if type_.startswith("DECIMAL") else 0
    return Fraction(str(point)) * Fraction(10**scale)


def _digits(type_: str) -> tuple[int, int]:
    width, scale = map(int, re.findall(r"\d+", type_))
    return width, scale


def _decimal(units: int, scale: int) -> Decimal:
    """Exactly, whatever precision the caller's decimals have."""
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


def _from_units(type_: str, units: NDArray[Any], known: NDArray[np.bool_]) -> pa.Array:
    if type_.startswith("DECIMAL"):
        width, scale = _digits(type_)
        values = [_decimal(int(u), scale) if k else None for u, k in zip(units, known, strict=True)]
        return pa.array(values, type=pa.decimal128(width, scale))
    if type_ in ("HUGEINT", "UHUGEINT"):
        return pa.array([str(u) if k else None for u, k in zip(units, known, strict=True)], type=pa.string())
    arrow = _ARROW[type_]
    if units.dtype == object:
        return pa.array([u if k else None for u, k in zip(units.tolist(), known, strict=True)], type=arrow)
    plain = pa.int32() if type_ == "DATE" else pa.int64() if type_ in _PER_SECOND else arrow
    return pa.array(units, mask=~known).cast(plain).cast(arrow)
