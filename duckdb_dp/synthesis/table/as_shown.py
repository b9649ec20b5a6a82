"""Columns of which one is never below another, as they are shown: rounded to their decimals or units, in their own types."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from duckdb_dp.counting.shown import Shown
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.linop import Array, Integers
from duckdb_dp.reconstruct.junction import Codes

Place = tuple[int, int, bool]
"""(place of the lower column, place of the upper one, whether they always differ)."""

Step = Callable[[int, int, bool, Integers, Any, Any], Array]


def as_shown(
    attributes: Sequence[Attribute], codes: Sequence[Codes], columns: Sequence[Array], pairs: Sequence[Place]
) -> list[Array]:
    """The columns as they are stored, in which the values that are shown are in order.

    1. A lower value above all that its bin shares with the bins above it, of every column that is never below, is spread over the values
    that are not. 2. An upper value below a lower one becomes the least value that is not, so of a chain a <= b <= c first b, then c. After
    1 there is one in its bin, unless the bins have no values in order: then it is in the next bin that has one. 3. Where none has one,
    the lower value becomes the greatest that is not above.

    Args:
        attributes: of the columns.
        codes: their cells, which say where values are NULL or other.
        columns: what would be stored.
        pairs: whose order is public.

    Privacy: post-processing; the order is public.
    """
    found = [*columns]
    both = [np.flatnonzero((codes[i] < attributes[i].base) & (codes[j] < attributes[j].base)) for i, j, _ in pairs]
    places = sorted({place for i, j, _ in pairs for place in (i, j)})
    shown = {place: Shown(attributes[place]) for place in places}
    ends = {place: one.ends() for place, one in shown.items()}

    def settle(stored: Any, changed: int, within: bool) -> None:
        """Change the lower (0) or upper (1) column of rows in the wrong order until none is left that can be mended."""
        for _ in places:
            moved = False
            for pair, rows in zip(pairs, both, strict=True):
                i, j, strict = pair
                values = [shown[place].values(stored[place][rows]) for place in (i, j)]
                wrong = values[0] >= values[1] if strict else values[0] > values[1]
                rows, target = rows[wrong], values[1 - changed][wrong]
                place = pair[changed]
                cells = np.floor(stored[place][rows]).astype(np.int64)
                lowest, highest = ends[place]
                if changed:
                    holds = _reaches(highest[cells], target, strict)
                    first = np.searchsorted(np.maximum.accumulate(highest), target, "right" if strict else "left")
                    other, can = first, first < shown[place].number
                else:
                    holds = _reaches(-lowest[cells], -target, strict)
                    least = np.minimum.accumulate(lowest[::-1])[::-1]
                    other = np.searchsorted(least, target, "left" if strict else "right") - 1
                    can = other >= 0
                can = holds if within else holds | can
                cells, rows, target = np.where(holds, cells, other)[can], rows[can], target[can]
                if len(rows):
                    moved = True
                    stored[place][rows] = _nearest(shown[place], cells, target, strict=strict, up=bool(changed))
            if not moved:
                return

    most = {
        place: shown[place].last(np.minimum(np.floor(found[place]).astype(np.int64), shown[place].number - 1))
        for place in places
    }
    whole = {place: cap.copy() for place, cap in most.items()}
    settle(most, 0, within=True)
    for place in places:
        cell, cap = np.floor(whole[place]), most[place]
        over = np.flatnonzero((found[place] > cap) & (cap < whole[place]) & (codes[place] < shown[place].number))
        cell, cap, top = cell[over], cap[over], cell[over] + 1
        found[place] = found[place].copy()
        found[place][over] = np.minimum(cell + (found[place][over] - cap) / (top - cap) * (cap - cell), cap)
    settle(found, 1, within=False)
    settle(found, 0, within=False)
    return found


def _reaches(values: Any, target: Any, strict: bool) -> Any:
    return values > target if strict else values >= target


def _nearest(shown: Shown, cells: Integers, target: Any, *, strict: bool, up: bool) -> Array:
    """The least stored number of a cell whose shown value is not below the target, or the greatest one whose value is not above.

    Found by bisection of the bits of doubles, which are in the order of the doubles from 0.
    """
    sign = 1 if up else -1
    ends = [cells.astype(np.float64).view(np.int64), shown.last(cells).view(np.int64)]
    good, bad = (ends[1], ends[0] - 1) if up else (ends[0], ends[1] + 1)
    while np.any(np.abs(good - bad) > 1):
        middle = bad + (good - bad) // 2
        middle = np.where(np.abs(good - bad) > 1, middle, good)
        fits = _reaches(sign * shown.values(middle.view(np.float64)), sign * target, strict)
        good, bad = np.where(fits, middle, good), np.where(fits, bad, middle)
    return good.view(np.float64)
