"""The bounds of the sums of a direct plan that nothing bounds: chosen when they are drawn, stored with them, and read again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from duckdb_dp.domain.domain import Clique
from duckdb_dp.grouped_sums import sum_number
from duckdb_dp.linop import Array
from duckdb_dp.plan.chosen_bounds import chosen, half_beyond

if TYPE_CHECKING:
    from duckdb_dp.plan.direct import DirectPlan

NAME = "bounds"
"""What the name of the array begins with, in a stored release, that holds the bounds that were chosen for a sum."""


def choice(plan: DirectPlan, name: Clique, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """(low, high) of the sum of that name, NaN where there are none, as it is stored; nothing where they are not chosen.

    Args:
        plan: that is being measured.
        name: of a measurement.
        arrays: noisy answers, by the number of their measurement.

    Privacy: post-processing.
    """
    index = sum_number(name)
    if index is None or len(name) > 1 or not plan.sums[index][1].chosen:
        return {}
    return {f"{NAME} {index}": np.array(_chosen(plan, index, arrays) or (np.nan, np.nan))}


def limits(plan: DirectPlan, name: Clique, arrays: Mapping[str, Array]) -> tuple[float, float] | None:
    """``bounds`` of the sum of that name, or (0, 1); None where they are not chosen, and for histograms."""
    index = sum_number(name)
    if index is None or len(name) > 1 or not plan.sums[index][1].chosen:
        return None
    return bounds(plan, index, arrays) or (0.0, 1.0)


def bounds(plan: DirectPlan, index: int, arrays: Mapping[str, Array]) -> tuple[float, float] | None:
    """(low, high) of a sum whose bounds are chosen; None where no values are clearly away from 0.

    Args:
        plan: it was measured with.
        index: of the sum.
        arrays: noisy answers, and what was chosen, by name.

    Privacy: post-processing.
    """
    if (kept := arrays.get(f"{NAME} {index}")) is None:
        return _chosen(plan, index, arrays, former=True)
    low, high = map(float, kept)
    return None if math.isnan(low) else (low, high)


def mostly_cut(plan: DirectPlan, index: int, arrays: Mapping[str, Array]) -> bool:
    """Whether half of the units have values beyond the bounds that were chosen for a sum: then there is no answer.

    Privacy: post-processing.
    """
    found = bounds(plan, index, arrays)
    return found is not None and half_beyond(_edges(plan, index), plan.prefixes(index, arrays), found)


def _chosen(
    plan: DirectPlan, index: int, arrays: Mapping[str, Array], *, former: bool = False
) -> tuple[float, float] | None:
    found, stddev, (part, _) = plan.prefixes(index, arrays), plan.stddev(index), plan.sums[index]
    edges, rows = _edges(plan, index), plan.rows_of(part)
    return chosen(edges, found, stddev=stddev, groups=part.size, rows=rows, noise=plan.noise, former=former)


def _edges(plan: DirectPlan, index: int) -> Array:
    cells = plan.sums[index][1].cells
    assert cells is not None
    return np.asarray([float(point) for point in cells.points])
