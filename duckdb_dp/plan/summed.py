"""Noisy sums of groups, as a plan has measured them: what their steps stand for, their errors, and what beside them is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.linop import Array
from duckdb_dp.plan.open_ends import rows_needed, told
from duckdb_dp.plan.requested import of_sums
from duckdb_dp.plan.selection import SELECTED
from duckdb_dp.plan.sum_bounds import bounds, mostly_cut
from duckdb_dp.sum_names import BITS

if TYPE_CHECKING:
    from duckdb_dp.plan.direct import DirectPlan
    from duckdb_dp.reconstruct.quantiles import Prefixes


def grid(plan: DirectPlan, index: int, arrays: Mapping[str, Array]) -> float:
    """What one step of a sum stands for.

    Args:
        plan: it was measured with.
        index: of the sum.
        arrays: noisy answers, and choices, by name.

    Privacy: post-processing.
    """
    one = plan.sums[index][1]
    if one.norm:
        return (plan.bound(index, arrays) or 0.0) * 2.0**-BITS
    if not one.chosen:
        return one.grid
    largest = max(map(abs, bounds(plan, index, arrays) or (0.0, 1.0)))
    return float(largest ** (2 if one.square else 1) / 2**BITS)


def stddevs(plan: DirectPlan, index: int, arrays: Mapping[str, Array]) -> Array:
    """The standard deviation of each group's noise; arguments as in ``grid``.

    Privacy: post-processing.
    """
    part, one = plan.sums[index]
    rows = 1.0 if one.norm else plan.bound(index, arrays) or 1.0
    return np.full(part.size, np.sqrt(plan.variance(index)) * grid(plan, index, arrays) * rows)


def found(plan: DirectPlan, index: int, arrays: Mapping[str, Array]) -> Array:
    """Of every group what a quantile or a sum has beside its error; arguments as in ``grid``.

    (cell, share, low, high) of a quantile, NaN what is not told, and the rows of an owner that count; the (low, high) that were
    chosen for a sum, and whether half of the units have values beyond them; or the (bound,) on what an owner adds to it.

    Privacy: post-processing.
    """
    part, one = plan.sums[index]
    bound = plan.bound(index, arrays)
    if one.kind == "quantile":
        first, read = plan.first[index], plan.prefixes(index, arrays)
        picked = () if first is None else plan.selected(first)
        if picked:
            points = arrays[f"{SELECTED} {first}"].reshape(-1, len(picked))[:, [picked.index(one.quantile)]]
            quantiles = read.selected([one.quantile], points)[:, 0]
        else:
            quantiles = read.quantiles([one.quantile])[:, 0]
        assert one.cells is not None
        sure = (
            _sure(plan, first, one.quantile, read, 1.0 if bound is None else bound)
            if picked and first is not None
            else None
        )
        quantiles = told(quantiles, one.cells, read, sure)
        return np.column_stack([quantiles, np.full(part.size, np.nan if bound is None else bound)])
    if bound is not None:
        return np.full((part.size, 1), bound)
    limits = bounds(plan, index, arrays) if one.chosen else None
    if limits is None:
        return np.full((part.size, 3), np.nan)
    return np.tile((*limits, float(mostly_cut(plan, index, arrays))), (part.size, 1))


def _sure(plan: DirectPlan, first: int, quantile: float, read: Prefixes, rows: float) -> NDArray[np.bool_]:
    """In which groups a selected quantile is one of their own values: their number of rows is clearly as large as that needs."""
    needed = rows_needed(of_sums(plan, first), quantile, rows)
    return np.asarray(read.counts[:, -1] - read.width * np.sqrt(read.variances[:, -1]) > needed, dtype=np.bool_)
