"""Dates, times and timestamps as texts and back, a million at a time: one by one they take a second."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_LONGEST = len("2020-01-01 00:00:00.000000")

_DAY, _SECOND = 86400 * 10**6, 10**6
"""In microseconds."""

Micros = NDArray[np.int64]

Chars = NDArray[np.uint8]
"""The characters of many texts: the first of each in the first row, and 0 after the end of a shorter one."""


def read(texts: Sequence[str], places: int, *, dates: bool, times: bool) -> NDArray[np.datetime64] | None:
    """The moments that texts say; None where any is not written as DuckDB writes it, or does not exist.

    Args:
        texts: of dates, of times of day, which are those of the first day of 1970, or of both.
        places: how many places of a second they may have.
        dates, times: what they say.
    """
    longest = max(map(len, texts))
    if longest > _LONGEST or "\0" in "".join(texts):
        return None
    try:
        found = np.array(texts, dtype=f"S{longest}")
    except UnicodeEncodeError:
        return None
    chars = np.ascontiguousarray(found.view(np.uint8).reshape(len(texts), -1).T)
    clock = chars[11:] if dates else chars
    if dates and len(chars) > 10 and not (times and np.isin(chars[10], [ord(" "), ord("T")]).all()):
        return None
    days = _days(chars[:10]) if dates else np.zeros(len(texts), np.int64)
    whole = dates and len(chars) == 10
    micros = np.zeros(len(texts), np.int64) if whole else _micros(clock, places)
    return None if days is None or micros is None else (days * _DAY + micros).view("datetime64[us]")


def _days(chars: Chars) -> NDArray[np.int64] | None:
    if not _are(chars, "0000-00-00"):
        return None
    try:
        found = np.ascontiguousarray(chars.T).view("S10").ravel().astype("datetime64[D]")
    except ValueError:  # there is no such day
        return None
    return np.asarray(found.astype(np.int64))


def _micros(chars: Chars, places: int) -> Micros | None:
    """Of 00:00:00, and of 00:00:00.000000 with as many places or fewer."""
    if not _are(chars[:8], "00:00:00") or len(chars) == 9 or len(chars) > 9 + places:
        return None
    hours, minutes, seconds = (_digits(chars[at : at + 2]) for at in (0, 3, 6))
    if hours.max() > 23 or minutes.max() > 59 or seconds.max() > 59:
        return None
    found = ((hours * 60 + minutes) * 60 + seconds) * _SECOND
    if len(chars) == 8:
        return found
    point, rest = chars[8], chars[9:]
    there = rest > 0
    written = np.where(there[0], point == ord("."), point == 0).all() and not (there[1:] > there[:-1]).any()
    if not written or (rest[there] - ord("0") > 9).any():
        return None
    return np.asarray(found + _digits(np.where(there, rest, ord("0"))) * 10 ** (6 - len(rest)))


def _are(chars: Chars, shape: str) -> bool:
    """Whether all texts have digits where the shape has zeros, and its other characters where it has these."""
    if len(chars) != len(shape):
        return False
    signs = zip(chars, shape, strict=True)
    return all(bool((row - ord("0") <= 9).all() if sign == "0" else (row == ord(sign)).all()) for row, sign in signs)


def _digits(chars: Chars) -> Micros:
    """The numbers that digits make."""
    found = np.zeros(chars.shape[1], np.int64)
    for row in chars:
        found = 10 * found + (row - ord("0"))
    return found


def write(found: NDArray[np.datetime64], *, dates: bool, times: bool) -> list[str]:
    """Moments as Python writes them: with as many places of a second as are not 0, none or six."""
    days, rest = np.divmod(found.astype("datetime64[us]").astype(np.int64), _DAY)
    parts = [*_dates(days.astype("datetime64[D]"))] if dates else []
    parts += [ord(" ")] if dates and times else []
    parts += _clocks(rest) if times else []
    chars = np.empty((len(found), len(parts) + 1), np.uint8)
    for at, part in enumerate([*parts, ord("\n")]):
        chars[:, at] = part
    return chars.tobytes().decode().replace("\0", "").split("\n")[:-1]


Column = NDArray[np.uint8] | int
"""A character of each text, or of all."""


def _dates(days: NDArray[np.datetime64]) -> list[Column]:
    """2020-01-01; the months of neighbours are written once."""
    months = days.astype("datetime64[M]")
    new = np.append(True, months[1:] != months[:-1])
    texts = np.datetime_as_string(months[new]).astype("S7").view(np.uint8).reshape(-1, 7)
    of_month = (days - months.astype("datetime64[D]")).astype(np.int64) + 1
    return [*texts[np.cumsum(new) - 1].T, ord("-"), *_two(of_month)]


def _clocks(micros: Micros) -> list[Column]:
    seconds, rest = np.divmod(micros, _SECOND)
    found: list[Column] = [*_two(seconds // 3600), ord(":"), *_two(seconds // 60 % 60), ord(":"), *_two(seconds % 60)]
    if rest.any():
        dot = np.full(len(rest), ord("."), np.uint8)
        places = [dot, *_two(rest // 10**4), *_two(rest // 100 % 100), *_two(rest % 100)]
        found += [place * (rest > 0).astype(np.uint8) for place in places]
    return found


def _two(numbers: Micros) -> list[NDArray[np.uint8]]:
    return [(digit + ord("0")).astype(np.uint8) for digit in np.divmod(numbers, 10)]
