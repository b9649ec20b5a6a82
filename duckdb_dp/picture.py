"""Pictures: the strategy of a plan, and the marginals of a synthetic table next to the original ones."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from duckdb_dp.domain.domain import Clique
from duckdb_dp.errors import DPError, as_sql, expect
from duckdb_dp.plan.base import Plan

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST = 4_000_000
"""Most entries of a strategy that is drawn."""

BARS = 20
"""Cells of a marginal that are drawn."""


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
    expect("picture", "plan", plan, Plan, "a plan of duckdb_dp.plan")
    expect("picture", "clique", clique, tuple, "the attributes of one measurement, e.g. ('age', 'sex')")
    measured = {measurement.clique: measurement for measurement in plan.measurements}
    if clique not in measured:
        raise DPError(
            f"picture: the plan measures nothing on {as_sql(clique)}; choose one of its measurements' cliques."
        )
    operator = measured[clique].strategy
    rows, cells = operator.shape
    if len(clique) not in (1, 2) or rows * cells > LARGEST:
        raise DPError(
            f"picture: the strategy on {as_sql(clique)} is {rows:,} x {cells:,}; strategies on one or two attributes "
            f"with up to {LARGEST:,} entries are drawn."
        )
    figure_of = _figure()
    values = operator.dense()
    reach = float(np.abs(values).max())
    figure = figure_of(figsize=(6, 5), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(values, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=axes, label="entry of B")
    axes.set(xlabel=f"cells of {' x '.join(clique)}", ylabel="strategy answers")
    axes.set_title(f"{plan.mechanism}: {rows} answers on {cells} cells")
    return figure


def quality(
    con: "DuckDBPyConnection", dataset: str, table: str, synthetic: Mapping[str, str] | None = None
) -> "Figure":
    """The worst and a typical marginal of each kind, original against synthetic, as bars of their largest cells.

    Args:
        con: a loaded connection.
        dataset: the protected table.
        table: the synthetic one.
        synthetic: of links: role or parent -> its synthetic table, as in ``dp_links``.

    Returns:
        A matplotlib figure with a row per kind of marginal.

    Raises:
        DPError: matplotlib is not installed.

    Privacy: NONE. It shows exact shares of the private table, for its curator only, and says so.
    """
    from duckdb import DuckDBPyConnection

    expect("picture", "con", con, DuckDBPyConnection, "a connection that duckdb_dp.load was called with")
    for name, word in (("dataset", dataset), ("table", table)):
        expect("picture", name, word, str, "a table's name")
    if synthetic is not None:
        expect("picture", "synthetic", synthetic, Mapping, "a table per role, e.g. {'users': 'users_syn'}")
    figure_of = _figure()
    cells = con.execute(
        "FROM dp_quality($1, $2, synthetic := $3, exact := true, cells := true)",
        [dataset, table, dict(synthetic) if synthetic else None],
    ).fetchall()
    kinds: dict[tuple[str, int], dict[str, list[tuple[str, float, float]]]] = {}
    names = {}
    for what, which, marginal, cell, original, made, _ in cells:
        kind = (what, marginal.count(","))
        kinds.setdefault(kind, {}).setdefault(which, []).append((cell, original, made))
        names[kind, which] = marginal
    figure = figure_of(figsize=(11, 2.8 * len(kinds) + 0.6), layout="constrained")
    figure.suptitle(f"{table} against {dataset}: NOT PRIVATE, for the curator only")
    for row, (kind, marginals) in zip(figure.subplots(len(kinds), 2, squeeze=False), kinds.items(), strict=True):
        row[1].set_visible(names[kind, "worst"] != names[kind, "typical"])
        for axes, (which, bars) in zip(row, marginals.items(), strict=True):
            _draw_bars(axes, bars)
            axes.set_title(f"{which}: {names[kind, which]}", fontsize=9)
    figure.axes[0].legend(fontsize=8)
    return figure


def _draw_bars(axes: "Axes", bars: Sequence[tuple[str, float, float]]) -> None:
    """(cell, share in the original, share in the synthetic table) of the first cells, side by side."""
    labels, *shares = zip(*bars[:BARS], strict=True)
    places = np.arange(len(labels))
    for shift, (values, name) in enumerate(zip(shares, ("original", "synthetic"), strict=True)):
        axes.bar(places + 0.4 * shift - 0.2, values, 0.4, label=name, color=("#8a8f98", "#2f6fb0")[shift])
    axes.set_xticks(places, [label[:24] for label in labels], rotation=60, ha="right", fontsize=7)
    axes.set_ylabel("share of rows", fontsize=8)


def _figure() -> "type[Figure]":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DPError("picture: matplotlib is not installed. Install it: pip install 'duckdb-dp[plot]'") from None
    return Figure
