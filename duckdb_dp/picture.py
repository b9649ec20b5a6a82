"""Pictures of what a plan measures."""

from typing import TYPE_CHECKING

import numpy as np

from duckdb_dp.domain import Clique
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Centring, Factored, LinOp, centre
from duckdb_dp.plan.base import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST = 4_000_000
"""Most entries of a strategy that is drawn."""


def strategy(plan: Plan, clique: Clique) -> "Figure":
    """The strategy matrix B of one measurement as a heat map: a row per answer, a column per cell.

    Args:
        plan: any plan.
        clique: the attributes of the measurement, one or two of them.

    Returns:
        A matplotlib figure; ``figure.savefig('strategy.png')`` keeps it.

    Raises:
        DPError: matplotlib is not installed, nothing is measured on that set, or it is too large to be seen.

    Source: [HDMM18] figure 1.

    Privacy: costs nothing; a strategy is public.
    """
    measured = {measurement.clique: measurement for measurement in plan.measurements}
    if clique not in measured:
        raise DPError(f"picture: the plan measures nothing on {list(clique)}; choose one of its measurements' cliques.")
    operator = measured[clique].strategy
    rows, cells = operator.shape
    if len(clique) not in (1, 2) or rows * cells > LARGEST:
        raise DPError(
            f"picture: the strategy on {list(clique)} is {rows:,} x {cells:,}; strategies on one or two attributes "
            f"with up to {LARGEST:,} entries are drawn."
        )
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DPError("picture: matplotlib is not installed. Install it: pip install 'duckdb-dp[plot]'") from None
    values = _matrix(operator)
    reach = float(np.abs(values).max())
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(values, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=axes, label="entry of B")
    axes.set(xlabel=f"cells of {' x '.join(clique)}", ylabel="strategy answers")
    axes.set_title(f"{plan.mechanism}: {rows} answers on {cells} cells")
    return figure


def _matrix(operator: LinOp) -> Array:
    """B (answers, cells), without a matrix product where its factors are at hand."""
    if isinstance(operator, Factored):
        found: Array = np.ones((1, 1))
        for factor in operator.factors:
            found = np.asarray(np.kron(found, factor.centred), dtype=np.float64)
        return found
    if isinstance(operator, Centring):
        cells = operator.shape[1]
        return centre(np.eye(cells).reshape(cells, *operator.sizes), first=1).reshape(cells, cells)
    return operator.dense()
