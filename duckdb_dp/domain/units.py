"""Column types as numbers: a value in its type's own unit, what a type holds, and what lies between two edges.

The unit is 1 for whole numbers, the last digit for decimals, a day for dates, and the smallest part of a second for times.
Types without one, FLOAT and DOUBLE, hold numbers as they are.
"""

import math
import re
import struct
from collections.abc import Sequence
from datetime import date, datetime, time
from fractions import Fraction
from uuid import UUID

Scalar = str | int | float | bool
Amount = int | float | Fraction

PER_SECOND = {"TIME": 10**6, "TIMESTAMP": 10**6, "TIMESTAMP_S": 1, "TIMESTAMP_MS": 10**3, "TIMESTAMP_NS": 10**9}
"""How many units make a second."""

BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
"""Of the whole numbers with a sign; those without have the same, under a name with a U before it."""

_DAY, _HOUR = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d(:\d\d(\.\d{0,%d})?)?"


def is_moment(type_: str, text: str) -> bool:
    """Whether DuckDB and Python read the text as the same date, time or timestamp."""
    hour = _HOUR % {"TIMESTAMP_S": 0, "TIMESTAMP_MS": 3}.get(type_, 6)
    pattern = {"DATE": _DAY, "TIME": hour}.get(type_, f"{_DAY}([ T]{hour})?")
    if re.fullmatch(pattern, text, re.ASCII) is None:
        return False
    try:
        found = (time if type_ == "TIME" else datetime).fromisoformat(text)
    except ValueError:
        return False
    return type_ != "TIMESTAMP_NS" or (isinstance(found, datetime) and 1678 <= found.year <= 2261)


def is_uuid(text: str) -> bool:
    """Whether it is a UUID as DuckDB writes it."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def amount(type_: str, point: Scalar) -> Amount:
    """A point in the type's unit, exactly; for FLOAT and DOUBLE the nearest number that they hold.

    Raises:
        ValueError, OverflowError: it is no value to compare the type's with.
    """
    if type_ == "FLOAT":
        return single(float(point))
    if type_ == "DOUBLE":
        return float(point)
    if type_ in PER_SECOND or type_ == "DATE":
        return _moment(type_, str(point))
    exact = Fraction(str(point))
    return exact * 10 ** digits(type_)[1] if type_.startswith("DECIMAL") else exact


def _moment(type_: str, text: str) -> Fraction:
    if type_ == "TIME":
        since = datetime.combine(date(1970, 1, 1), time.fromisoformat(text)) - datetime(1970, 1, 1)
    else:
        since = datetime.fromisoformat(text) - datetime(1970, 1, 1)
    micros = (since.days * 86400 + since.seconds) * 10**6 + since.microseconds
    return Fraction(micros, 86400 * 10**6) if type_ == "DATE" else Fraction(micros * PER_SECOND[type_], 10**6)


def held(type_: str, points: Sequence[Scalar]) -> list[tuple[Amount, Amount]]:
    """The lowest and the highest value of the type in each bin between some edges: [a, b), and [a, b] for the last one.

    The lowest is above the highest where the type has no value in the bin.
    """
    edges = [amount(type_, point) for point in points]
    if type_ in ("FLOAT", "DOUBLE"):
        ends = [before(type_, float(edge)) for edge in edges[1:-1]] + [edges[-1]]
        return list(zip(edges, ends, strict=False))
    low, high = limits(type_)
    lows = [max(math.ceil(edge), low) for edge in edges[:-1]]
    highs = [min(math.ceil(edge) - 1, high) for edge in edges[1:-1]] + [min(math.floor(edges[-1]), high)]
    return list(zip(lows, highs, strict=True))


def limits(type_: str) -> tuple[int, int]:
    """The least and the greatest number of units that a type holds; of dates and times more than anybody can write."""
    if type_.startswith("DECIMAL"):
        most: int = 10 ** digits(type_)[0] - 1
        return -most, most
    bits = BITS.get(type_.removeprefix("U"), 128)
    return (0, 2**bits - 1) if type_.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def digits(type_: str) -> tuple[int, int]:
    """(width, scale) of a DECIMAL type."""
    width, scale = map(int, re.findall(r"\d+", type_))
    return width, scale


def single(number: float) -> float:
    """The number as a FLOAT column holds it.

    Raises:
        OverflowError: it is too large for one.
    """
    found: float = struct.unpack("f", struct.pack("f", number))[0]
    return found


def before(type_: str, number: float) -> float:
    """The next lower number that a FLOAT or DOUBLE column holds."""
    if type_ == "DOUBLE":
        return math.nextafter(number, -math.inf)
    if number == 0:
        return -(2.0**-149)
    (bits,) = struct.unpack("i", struct.pack("f", number))
    found: float = struct.unpack("f", struct.pack("i", bits - 1 if number > 0 else bits + 1))[0]
    return found


def decimal_text(units: int, scale: int) -> str:
    """A number of last digits as a decimal with as many places: -5 with a scale of 2 is '-0.05'."""
    text = f"{abs(units):0{scale + 1}}"
    whole, places = text[: len(text) - scale], text[len(text) - scale :]
    return ("-" if units < 0 else "") + whole + ("." + places if places else "")
