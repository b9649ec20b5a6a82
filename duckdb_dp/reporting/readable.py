"""Answers beside their errors, as a person reads them: '5,102 ± 21'. What is shown is rounded; the data keep every digit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, final

from duckdb_dp.reporting.words import count

NOTE = "± is half of the 95 % interval; .mode line shows stddev, ci_low, ci_high and every digit"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy:
    """Positions of an answer and of its errors among the columns of a result.

    Attributes:
        value: of the answer.
        low, high: of the ends of its interval; both those of one column {'low', 'high'} where columns := 'short'.
        folded: of all columns that say its error.
    """

    value: int
    low: int
    high: int
    folded: tuple[int, ...]


def answers(names: Sequence[str], rows: Sequence[Sequence[Any]] = ()) -> list[Noisy]:
    """The answers of a result that have an interval, by the names of their columns.

    Errors without a prefix are of the only answer, which is the last column before them whose values lie in the intervals.
    """
    places = {name: place for place, name in enumerate(names)}
    found = []
    for place, name in enumerate(names):
        for end in ("ci_low", "ci"):
            prefix = name.removesuffix(end)
            errors = [prefix + word for word in (("stddev", "ci_low", "ci_high") if end == "ci_low" else ("ci",))]
            apart = prefix != name and (not prefix or prefix.endswith("_"))
            if not apart or not all(error in places for error in errors):
                continue
            before = [places[prefix[:-1]]] if prefix[:-1] in places else []
            if not prefix:
                before = list(range(places[errors[0]] - 1, -1, -1))
            folded = tuple(places[error] for error in errors)
            tried = (Noisy(value=value, low=place, high=folded[-1], folded=folded) for value in before)
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
    if not math.isfinite(half) or not math.isfinite(middle) or half <= 0:
        return None
    even = abs((last - middle) - (middle - first)) <= 0.02 * half
    texts = [middle, half] if even else [middle, first, last]
    written = [count(each, half).replace("\N{MINUS SIGN}", "-") for each in texts]
    return f"{written[0]} ± {written[1]}" if even else f"{written[0]} ({written[1]} to {written[2]})"


def error_size(value: float) -> str:
    """A standard deviation or a half width in three digits."""
    return count(value, value / 10) if 0 < value < math.inf else str(value)


def folded(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]], set[int]]:
    """A result for a person: each answer with its error in one column, and other errors rounded.

    Returns:
        (names, rows, positions of the columns that hold answers or errors, to the right).
    """
    found = {each.value: each for each in answers(names, rows)}
    hidden = {place for each in found.values() for place in each.folded}
    kept = [place for place in range(len(names)) if place not in hidden]
    sizes = {place for place in kept if names[place].endswith(("stddev", "half_width"))}
    changed = []
    for row in rows:
        cells = []
        for place in kept:
            value = row[place]
            if place in found:
                value = shown(value, *interval(row, found[place])) or value
            elif place in sizes and isinstance(value, float):
                value = error_size(value)
            cells.append(value)
        changed.append(cells)
    right = {i for i, place in enumerate(kept) if place in found or place in sizes}
    return [names[place] for place in kept], changed, right
