"""Which rows of a child table have a parent, where some have none."""

import numpy as np

from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.linked import measure_linked
from duckdb_dp.synthesis.links.sides import Side
from duckdb_dp.synthesis.links.ubs import ubs

HALF = 0.5
"""Share of what is spent here for how many rows have a parent; the rest is for which values these have."""

LIFT = 0.3
"""How far, before it is measured, the share of linked rows among those of one value may be from that of all."""

LEAST = 1e-6
"""Of a lift, so that every row may have a parent."""

ROUNDS = 30
"""Of scaling to the values of each attribute in turn: what is scaled to is noisy anyhow."""


def linked_rows(
    queryable: PrivateQueryable, side: Side, tag: str, most: int, rho: float, rng: np.random.Generator
) -> Integers:
    """Positions of the rows that have a parent, in order: as many as measured, more among values that have more.

    The rows with a parent are measured by each attribute alone. A value's lift is its share of those over its share of the
    synthetic rows, drawn towards 1 as far as noise blurs it; row types get the probabilities of largest entropy with these
    lifts, and unbiased sampling the rows.

    Args:
        queryable: counts of the links over the side's attributes, and of its rows by ``tag``.
        side: the synthetic child table.
        tag: the 0/1 attribute that says whether a row has a parent.
        most: rows for which parents have room.
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


def _lift(queryable: PrivateQueryable, side: Side, place: int, rho: float) -> Array:
    """How much more often the rows of each value of an attribute have a parent than all rows.

    Privacy: spends rho.
    """
    name = side.attributes[place]
    size = queryable.domain.sizes[name]
    (noisy,) = queryable.measure_marginals([((name,), rho)])
    counts, variance = noisy.answers, noisy.variance
    ours = np.bincount(side.types[side.rows, place], minlength=size) / len(side.rows)
    whole = max(float(counts.sum()), np.sqrt(variance * size), 1.0)
    expected = np.maximum(whole * ours, 0.5)  # a value that no synthetic row has needs no lift
    trust = LIFT**2 / (LIFT**2 + variance / expected**2)
    return np.asarray(1 + trust * (np.maximum(counts, 0) / expected - 1))


def _chances(side: Side, lifts: list[Array], m: int) -> Array:
    """Each type's probability to have a parent: m rows in all, scaled to the lifts of every attribute in turn."""
    sizes = side.sizes.astype(np.float64)
    rows = _filled(sizes, sizes, m)
    for place, lift in [*enumerate(lifts)] * ROUNDS:
        codes = side.types[:, place]
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
