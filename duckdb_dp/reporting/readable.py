"""Answers beside their errors, as a person reads them: '5,102 ± 21'. What is shown is rounded; the data keep every digit."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, final

from duckdb_dp.reporting.words import count

NOTES = {
    " ± ": "± is half of the 95 % interval",
    " to ": "(low to high) is the 95 % interval",
    "(sd ": "sd is the standard deviation",
}
"""What a text that is shown has in it, and what that means."""

HIDDEN = (
    "NULL: the noise hides the answer at the aggregate's share of the budget, which dp_explain shows; fewer aggregates or groups at "
    "once, or more epsilon, show more; of a median or a quantile a condition such as x BETWEEN 0 AND 100 too, which says where values end"
)
UNTOLD = (
    "NULL: at this share of the budget the data told no bound (clipped_at is NULL); spend more epsilon, or say a bound: how many rows of a "
    "unit count, such as max_rows := 5, or where values lie, such as x BETWEEN 0 AND 100"
)
BEYOND = "no interval: many values may lie beyond {}, and what is cut off is not noise"
UNKNOWN = (
    "no interval: the error of post-processed counts, of adaptive mechanisms, of selected quantiles of few rows, and of quantiles whose "
    "interval has no end is not known; of the last a condition such as x BETWEEN 0 AND 100 says where values end"
)
OPEN = (
    "of an interval with one end, such as (50 or more), nobody knows how far it goes on: rows are beyond what is declared, or the counts "
    "do not tell where values end"
)
DEPENDS = "an error is NULL where it depends on the data, as on bounds that are chosen"

BELOW = "below 0 where the truth may be 0: answers are not cut off at 0, so that they are right on average"

CLIPPED = "clipped_at"
"""What the columns are called that say at which bounds answers were cut, or how their names end."""

LONGEST = 1e15
"""From here on numbers are written with an exponent; an interval that is so much wider than its answer says nothing."""

DIGITS = 6
"""Significant digits of a number that a person reads."""

BESIDE = ("count", "rows_left_out")
"""Answers that have a standard deviation in the next column, and no interval."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy:
    """Positions of an answer and of its errors among the columns of a result.

    Attributes:
        value: of the answer.
        low, high: of the ends of its interval; both those of one column {'low', 'high'} where columns := 'short'.
        stddev: of its standard deviation; None where there is no such column.
        folded: of all columns that say its error.
    """

    value: int
    low: int
    high: int
    folded: tuple[int, ...]
    stddev: int | None = None


def answers(names: Sequence[str], rows: Sequence[Sequence[Any]] = ()) -> list[Noisy]:
    """The answers of a result that have an interval, by the names of their columns.

    Errors without a prefix are of the only answer, which is the last column before them whose values lie in the intervals.
    """
    places = {name: place for place, name in enumerate(names)}
    found = []
    for place, name in enumerate(names):
        for end in ("ci_low", "ci"):
            prefix = name.removesuffix(end)
            errors = [prefix + word for word in (("ci_low", "ci_high") if end == "ci_low" else ("ci",))]
            stddev = places.get(prefix + "stddev") if end == "ci_low" else None
            apart = prefix != name and (not prefix or prefix.endswith("_"))
            if not apart or not all(error in places for error in errors):
                continue
            before = [places[prefix[:-1]]] if prefix[:-1] in places else []
            if not prefix:
                before = list(range((place if stddev is None else min(stddev, place)) - 1, -1, -1))
            ends = tuple(places[error] for error in errors)
            folded = ends if stddev is None else (stddev, *ends)
            tried = (Noisy(value=one, low=place, high=ends[-1], folded=folded, stddev=stddev) for one in before)
            found += [one for one in tried if all(_inside(row, one) for row in rows)][:1]
    return found


def _inside(row: Sequence[Any], found: Noisy) -> bool:
    """Whether a value lies in its interval, where both are known."""
    value, (low, high) = row[found.value], interval(row, found)
    if None in (value, low, high):
        return True
    try:
        return bool(low <= value <= high)
    except TypeError:
        return False


def interval(row: Sequence[Any], found: Noisy) -> tuple[Any, Any]:
    """(low, high) of an answer in a row; (None, None) where it has none."""
    if found.low != found.high:
        return row[found.low], row[found.high]
    ends = row[found.low]
    return (ends.get("low"), ends.get("high")) if isinstance(ends, dict) else (None, None)


def shown(value: Any, low: Any, high: Any) -> str | None:
    """An answer with its error, in as many digits as the error gives sense to; None where it has no error.

    Where the interval lies unevenly around the answer, as that of a quantile may, its ends are shown.
    """
    if value is None or low is None or high is None:
        return None
    if not all(isinstance(each, int | float | Decimal) for each in (value, low, high)):
        return f"{value} ({low} to {high})"
    middle, first, last = float(value), float(low), float(high)
    half = (last - first) / 2
    if not math.isfinite(half) or not math.isfinite(middle) or half <= 0 or half >= max(LONGEST, LONGEST * abs(middle)):
        return None
    even = abs((last - middle) - (middle - first)) <= 0.02 * half
    texts = [middle, half] if even else [middle, first, last]
    written = [_digits(each, half) for each in texts]
    return f"{written[0]} ± {written[1]}" if even else f"{written[0]} ({written[1]} to {written[2]})"


def _digits(value: float, half: float) -> str:
    """A number in as many digits as its error gives sense to; a huge one with an exponent."""
    if abs(value) >= LONGEST:
        return f"{value:.3g}".replace("e+", "e")
    return count(value, half).replace("\N{MINUS SIGN}", "-")


def alone(value: Any, stddev: Any, low: Any, high: Any) -> Any:
    """An answer without an interval that says something, with what is known of its error; as it is where it has none.

    What is exact has an interval without a width, and no other value has.
    """
    if value is None or (low is not None and low == high):
        return value
    number = isinstance(value, int | float | Decimal) and math.isfinite(value)
    none = "no interval" if low is None or high is None else "no useful interval"
    if (low is None) != (high is None):
        end, more = (low, "or more") if high is None else (high, "or less")
        plain = isinstance(end, int | float | Decimal)
        none = f"{count(float(end), abs(float(value) - float(end)) or None) if number and plain else end} {more}"
    if number and isinstance(stddev, int | float) and 0 < stddev < math.inf:
        return f"{_digits(float(value), 2 * stddev)} (sd {error_size(stddev)}, {none})"
    if not number:
        return f"{value} ({none})"
    return f"{count(float(value), None) if abs(value) >= 1000 else f'{float(value):.3g}'} ({none})"


def number(value: float) -> str:
    """``DIGITS`` significant digits; no exponent from 0.0001 to 10^15, and never a digit dropped before the point."""
    size = abs(value)
    if not math.isfinite(value) or value == 0 or not 1e-4 <= size < 1e15:
        return re.sub(r"e([+-])0", r"e\1", f"{value:.{DIGITS}g}").replace("e+", "e")
    places = max(0, DIGITS - 1 - math.floor(math.log10(size)))
    found = f"{value:,.{places}f}"
    return found.rstrip("0").rstrip(".") if "." in found else found


def note(cells: Sequence[Sequence[Any]], right: Iterable[int]) -> str:
    """What is meant by the errors that a result shows; '' where it shows none."""
    texts = [row[place] for row in cells for place in right if isinstance(row[place], str)]
    return "; ".join(said for mark, said in NOTES.items() if any(mark in text for text in texts))


def reasons(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Why answers of a result, or their intervals, are not there."""
    found = []
    for one in answers(names, rows):
        prefix = names[one.folded[0]].removesuffix("stddev").removesuffix("ci_low").removesuffix("ci")
        known = [row for row in rows if row[one.value] is not None]
        if len(known) < len(rows):
            cut = names.index(f"{prefix}{CLIPPED}") if f"{prefix}{CLIPPED}" in names else None
            bounds = [] if cut is None else [row[cut] for row in rows if row[one.value] is None]
            untold = any(bound is None or (isinstance(bound, list) and None in bound) for bound in bounds)
            found.append(UNTOLD if untold else HIDDEN)
        bare = [row for row in known if None in interval(row, one)]
        if any(one.stddev is not None and row[one.stddev] is not None for row in bare):
            found += [BEYOND.format(f"{prefix}clipped_at")] if f"{prefix}clipped_at" in names else []
        elif bare:
            half = [row for row in bare if interval(row, one) != (None, None)]
            found += [OPEN] * bool(half) + [UNKNOWN] * (len(half) < len(bare))
    if any(_below_zero(row, one) for one in answers(names, rows) for row in rows):
        found.append(BELOW)
    found += cuts(names, rows)
    if "half_width" in names and any(row[names.index("half_width")] is None for row in rows):
        found.append(DEPENDS)
    return list(dict.fromkeys(found))


def _below_zero(row: Sequence[Any], found: Noisy) -> bool:
    """Whether a number below 0 may stand for one that is not."""
    value, (_, high) = row[found.value], interval(row, found)
    return isinstance(value, int | float | Decimal) and isinstance(high, int | float | Decimal) and value < 0 <= high


def is_clipping(name: str) -> bool:
    """Whether a column says where answers were cut."""
    return name == CLIPPED or name.endswith(f"_{CLIPPED}")


def cuts(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """What the ``clipped_at`` of a result say, a line for all answers that were cut at the same bounds."""
    lines: dict[str, list[str]] = {}
    for place, name in enumerate(names):
        if not is_clipping(name):
            continue
        values = [row[place] for row in rows if row[place] is not None]
        if not values:
            continue
        listed = [value if isinstance(value, list) else [value] for value in values]
        flat = all(isinstance(one, float) for value in listed for one in value)
        if flat and any(isinstance(value, list) and value[0] <= 0 for value in values):
            low, high = min(value[0] for value in listed), max(value[-1] for value in listed)
            said = f"values count as at least {number(low)} and at most {number(high)}"
        elif flat and len(set(map(tuple, listed))) == 1:
            said = (
                f"each unit adds at most {' and '.join(map(number, listed[0]))}, as rows or as a norm over all groups"
            )
        else:
            said = "each unit, or each value, adds at most a bound"
        lines.setdefault(said, []).append(name)
    return [
        f"{said} ({', '.join(columns)}): what is beyond is cut off, and no interval covers that"
        for said, columns in lines.items()
    ]


def error_size(value: float) -> str:
    """A standard deviation or a half width in three digits."""
    if value >= LONGEST:
        return _digits(value, value)
    return count(value, value / 10) if 0 < value < math.inf else str(value)


SHARES = ("units_whole", "rows_kept")
"""Shares of all units or rows, beside numbers that are as uncertain."""


def folded(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]], set[int]]:
    """A result for a person: each answer with its error in one column, and other errors rounded.

    Returns:
        (names, rows, positions of the columns that hold answers or errors, to the right).
    """
    found = {each.value: each for each in answers(names, rows)}
    hidden = {place for each in found.values() for place in each.folded}
    kept = [place for place in range(len(names)) if place not in hidden]
    sizes = {place for place in kept if names[place].endswith(("stddev", "half_width", "threshold"))}
    beside = {place for place in sizes if names[place] == "stddev" and place and names[place - 1] in BESIDE}
    changed = []
    for row in rows:
        cells = []
        for place in kept:
            value = row[place]
            if place in found:
                ends, stddev = interval(row, found[place]), found[place].stddev
                value = shown(value, *ends) or alone(value, None if stddev is None else row[stddev], *ends)
            elif place + 1 in beside and isinstance(value, float) and isinstance(row[place + 1], float):
                value = _digits(value, 2 * row[place + 1])
            elif names[place] in SHARES and isinstance(value, float):
                value = f"{value:.3g}"
            elif place in sizes and isinstance(value, float):
                value = error_size(value)
            cells.append(value)
        changed.append(cells)
    right = {
        i
        for i, place in enumerate(kept)
        if place in found or place in sizes or place + 1 in beside or names[place] in SHARES
    }
    return [names[place] for place in kept], changed, right
