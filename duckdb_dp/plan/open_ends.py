"""Quantiles of which the released numbers cannot tell everything: their intervals end nowhere that was declared, or in a type's range."""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.public_cells import edges
from duckdb_dp.domain.types import Scalar, find
from duckdb_dp.linop import Array
from duckdb_dp.plan.selection import Selection
from duckdb_dp.reconstruct.quantiles import Prefixes

SLACK = 2
"""Cells by which an interval may go on beyond those where rows are seen."""

CLEAR = 3.0
"""Standard deviations that the noisy number of rows up to a value, and that from it on, are above 0 where it is one of the rows' own."""

BETA = 0.025
"""How often a selection may be farther from its rank than ``rows_needed`` supposes."""


def told(quantiles: Array, cells: Attribute, read: Prefixes, sure: NDArray[np.bool_] | None = None) -> Array:
    """(cell, share, low, high), of which an end is NaN where the interval ends nowhere, and all of it but where the value is sure.

    In cells of a type's whole range, nearly all of which are empty, an interval that goes on beyond those where rows are seen ends
    where the noise happens to be large, or at an end of the type: nobody knows how far away. Ends that were declared, or that a
    condition says, do tell something. The value itself is told where clearly rows are up to it and from it on; without it nothing is.

    Args:
        quantiles: as ``Prefixes.quantiles`` has them, shape (groups, 4).
        cells: of the value.
        read: the prefixes that they were read off.
        sure: in which groups the value is one of the group's own, whatever the interval, shape (groups,).

    Privacy: post-processing.
    """
    if cells.line:
        return on_declared(quantiles, cells, read)
    first, last = (cells.points[place] == end for place, end in zip((0, -1), _ends(cells.type), strict=True))
    if cells.kind != "bins" or not (first or last):
        return quantiles
    found, (low, high) = quantiles.copy(), read.seen()
    below, above = first & (found[:, 2] < low - SLACK), last & (found[:, 3] > high + SLACK)
    found[below, 2], found[above, 3] = np.nan, np.nan
    kept = _clear(found[:, 0], read) if sure is None else sure | _clear(found[:, 0], read)
    found[(below | above) & ~kept] = np.nan
    return found


def on_declared(quantiles: Array, cells: Attribute, read: Prefixes) -> Array:
    """(cell, share, low, high) in cells of a ``line``, as declared cells; an end is NaN where it lies beyond what is declared.

    A value beyond is the declared end. An interval that reaches there is open where rows are seen there: their noisy number is above
    one standard deviation. Otherwise it ends at the declared end, as where a group has so few rows that no value is told.

    Args:
        quantiles: as ``Prefixes.quantiles`` has them, shape (groups, ..., 4).
        cells: of the value.
        read: the prefixes that they were read off.

    Privacy: post-processing.
    """
    rows = (len(quantiles), *[1] * (quantiles.ndim - 2))
    known = ~np.isnan(quantiles[..., 0])
    below = read.counts[:, 0] > np.sqrt(read.variances[:, 0])
    above = read.counts[:, -1] - read.counts[:, -2] > np.sqrt(read.suffix_variances[:, -2])
    cell, share, low, high = np.moveaxis(quantiles, -1, 0)
    last = cells.size - 1
    # Between two listed values there is a cell: its value, and the lower end, are the lower one.
    each, up = (2, 1) if cells.kind == "values" else (1, 0)

    def declared(place: Array, up: int = 0) -> Array:
        return np.clip((place - 1 + up) // each, 0, cells.base - 1)

    # Through the numbers of a bin to its end; dates and times are counted up to the last one in it.
    share = np.where(cell == 0, 0.0, np.where(cell == last, 1.0 if cells.dtype.numeric else 1 - 2.0**-53, share))
    return np.stack(
        [
            declared(cell),
            share,
            np.where((low == 0) & below.reshape(rows) & known, np.nan, declared(low)),
            np.where((high == last) & above.reshape(rows) & known, np.nan, declared(high, up)),
        ],
        axis=-1,
    )


def _clear(cells: Array, read: Prefixes) -> NDArray[np.bool_]:
    """In which groups clearly rows are up to a cell, and from it on."""
    groups, places = np.arange(len(cells)), np.nan_to_num(cells).astype(np.int64)
    before = np.maximum(places - 1, 0)
    up_to, all_ = read.counts[groups, places], read.counts[:, -1]
    rest = all_ - np.where(places > 0, read.counts[groups, before], 0.0)
    least = CLEAR * np.sqrt(np.maximum([read.variances[groups, places], read.suffix_variances[groups, before]], 0.0))
    return np.asarray((up_to > least[0]) & (rest > least[1]), dtype=np.bool_)


def rows_needed(selection: Selection, quantile: float, rows: float = 1) -> float:
    """How many rows a group must have for a selected quantile to be one of its own values, whatever they are.

    A selection of epsilon from n cells draws a point whose score is worse than the best one's by more than
    t = (2 s / epsilon) ln(n POINTS / beta) with probability beta at most, s the sensitivity. Points beyond all M values have the score
    -m M at best, m = min(q, 1 - q), and the best point -|1/2 - q| M at worst, where one point stands for all rows: so what is drawn
    lies among the values where (m - |1/2 - q|) M > t. No number is enough for q outside (1/4, 3/4), nor for what is selected after
    another, between points that may stand for all rows of its part.

    Args:
        selection: the quantiles, and what they cost.
        quantile: one of them.
        rows: how many rows of a unit were chosen to count.

    Privacy: public.
    """
    from duckdb_dp.noise.ranks import POINTS  # for import time: most requests select nothing

    number = len(selection.quantiles)
    margin = 0.5 - 2 * abs(quantile - 0.5)
    if quantile != selection.quantiles[number // 2] or margin <= 0:
        return math.inf
    epsilon = selection.accounting.selection_epsilon(selection.cost / number.bit_length())
    scale = 2 * selection.rows * rows * max(quantile, 1 - quantile) / epsilon
    return scale * math.log(selection.shape[selection.axis] * (POINTS + 1) / BETA) / margin


def rows_to_tell(cells: Attribute, quantile: float, stddev: float, width: float) -> float:
    """Of about how many rows a quantile has a value: of fewer ones it is NULL, unless noise says otherwise.

    Args:
        cells: of the value.
        quantile: which one.
        stddev: of the number of rows below a value.
        width: the half-width of a 95 % interval in standard deviations.

    Privacy: public.
    """
    if _is_open(cells) and not cells.line:
        return CLEAR * stddev / max(min(quantile, 1 - quantile), 1e-9)
    return width * stddev


def _is_open(cells: Attribute) -> bool:
    """Whether cells reach to an end of their type's range."""
    return cells.kind == "bins" and any(
        cells.points[place] == end for place, end in zip((0, -1), _ends(cells.type), strict=True)
    )


@cache
def _ends(type_: str) -> tuple[Scalar, Scalar]:
    """The first and the last edge of cells over the whole range of a type."""
    dtype = find(type_)
    assert dtype is not None
    points = edges(dtype, fine=False)
    return points[0], points[-1]
