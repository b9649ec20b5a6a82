"""How many rows of a side have a link, and which rows of a child table have a parent."""

import numpy as np

from duckdb_dp.linop import Array, Dense, Integers, Total
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.sides import Side
from duckdb_dp.synthesis.links.ubs import ubs

SPREAD = 0.25
"""How far, before it is measured, the share of linked rows may be from that of links drawn at random."""

HALF = 0.5
"""Share of what ``linked_rows`` spends for how many rows have a parent; the rest is for which values these have."""

LIFT = 0.3
"""How far, before it is measured, the share of linked rows among those of one value may be from that of all."""

LEAST = 1e-6
"""The least lift of a value, so that every row may have a parent."""

ROUNDS = 30
"""Rounds of scaling to the values of each attribute in turn: what is scaled to is noisy anyhow."""


def measure_linked(queryable: PrivateQueryable, tag: str, rho: float) -> tuple[float, float]:
    """The share of linked rows, and the noise's variance in it.

    A row here may change its cell: one link more makes an unlinked row a linked one, which changes two counts of the 0/1
    attribute ``tag``. But the calibration of noise assumes that rows are added or removed. So the number of all rows and
    that of linked rows are measured separately: such a row does not change the first, and changes the second by 1.

    Privacy: spends rho.
    """
    asked = ((tag,), Total(2), rho / 2), ((tag,), Dense(np.array([[0.0, 1.0]])), rho / 2)
    rows, linked = queryable.measure_all(asked)
    size = max(float(rows.answers[0]), 1.0)
    return float(np.clip(linked.answers[0] / size, 0, 1)), linked.variance / size**2


def shrunk(share: float, total_relative_variance: float, links: int, rows: int) -> float:
    """A measured share of linked rows, shrunk towards the share under random links, according to its variance.

    Privacy: post-processing.
    """
    random = 1 - float(np.exp(-links / rows))
    weight = SPREAD**2 / (SPREAD**2 + total_relative_variance)
    return weight * share + (1 - weight) * random


def linked_rows(
    queryable: PrivateQueryable, side: Side, tag: str, most: int, rho: float, rng: np.random.Generator
) -> Integers:
    """The rows of a synthetic child table that have a parent: their positions, in order.

    Some rows of the private child table have no parent. Two things are measured: the share of rows with a parent, and, by
    each attribute alone, how many rows of each value have one. The lift of a value is its share of the rows with a parent
    over its share of all synthetic rows; it is shrunk towards 1 according to its noise. Row types then get the
    probabilities of largest entropy that have these lifts, and the rows are drawn by unbiased sampling.

    Args:
        queryable: counts of the links over the side's attributes, and of its rows by ``tag``.
        side: the synthetic child table.
        tag: the 0/1 attribute that says whether a row has a parent.
        most: how many rows the parents can take.
        rho: what to spend.
        rng: the source of randomness; post-processing.

    Privacy: spends rho.
    """
    whole = HALF * rho if side.attributes else rho
    share, _ = measure_linked(queryable, tag, whole)
    m = max(min(round(share * len(side.rows)), most), 1)
    lifts = [_lift(queryable, side, i, (rho - whole) / len(side.attributes)) for i in range(len(side.attributes))]
    if m == len(side.rows):
        return np.arange(m)
    return ubs(_chances(side, lifts, m)[side.rows], m, rng)


def _lift(queryable: PrivateQueryable, side: Side, axis: int, rho: float) -> Array:
    """How much more often the rows of each value of an attribute have a parent than all rows.

    Privacy: spends rho.
    """
    name = side.attributes[axis]
    size = queryable.domain.sizes[name]
    (noisy,) = queryable.measure_marginals([((name,), rho)])
    counts, variance = noisy.answers, noisy.variance
    ours = np.bincount(side.types[side.rows, axis], minlength=size) / len(side.rows)
    whole = max(float(counts.sum()), np.sqrt(variance * size), 1.0)
    expected = np.maximum(whole * ours, 0.5)  # a value that no synthetic row has needs no lift
    trust = LIFT**2 / (LIFT**2 + variance / expected**2)
    return np.asarray(1 + trust * (np.maximum(counts, 0) / expected - 1))


def _chances(side: Side, lifts: list[Array], m: int) -> Array:
    """Each type's probability to have a parent: m rows in all, scaled to the lifts of every attribute in turn."""
    sizes = side.sizes.astype(np.float64)
    rows = _filled(sizes, sizes, m)
    for axis, lift in [*enumerate(lifts)] * ROUNDS:
        codes = side.types[:, axis]
        wanted = np.bincount(codes, sizes, len(lift)) * np.maximum(lift, LEAST)
        held = np.bincount(codes, rows, len(lift))
        rows = _filled(rows * (wanted / np.maximum(held, LEAST))[codes], sizes, m)
    return np.minimum(rows / np.maximum(sizes, 1), 1.0)


def _filled(rows: Array, sizes: Array, m: int) -> Array:
    """Scaled to m rows in all, no type above its size: what does not fit goes to the others."""
    full = np.zeros(len(rows), dtype=bool)
    while True:
        scale = (m - sizes[full].sum()) / max(rows[~full].sum(), LEAST)
        more = ~full & (rows * scale >= sizes) & (sizes > 0)
        if not more.any():
            return np.where(full, sizes, rows * scale)
        full |= more
