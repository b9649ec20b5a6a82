"""The attributes of the links themselves, such as the stars of a rating: they are measured, then drawn for synthetic links."""

from collections.abc import Mapping, Sequence

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement
from duckdb_dp.reconstruct.postprocess import postprocess

CELLS, HELD = 2**20, 2**25
"""Most cells of one pair that is measured with an attribute of the links, and of all of them together: 3 GiB."""


def measure(
    queryable: PrivateQueryable, attributes: Sequence[str], others: Clique, rho: float
) -> list[LinearMeasurement]:
    """Residuals of the links' attributes, alone and with one attribute of either side, in equal shares.

    Args:
        queryable: what measures.
        attributes: those of the links.
        others: those of both sides.
        rho: what to spend.

    Privacy: spends rho at most.
    """
    domain = queryable.domain
    singles = [(name,) for name in (*attributes, *others)]
    cliques: list[Clique] = [*singles, *pairs(domain, attributes, others)]
    cliques = [clique for clique in cliques if all(domain.sizes[name] > 1 for name in clique)]
    share = rho / max(len(cliques), 1) * (1 - 1e-9)
    return queryable.measure_residuals((clique, share) for clique in cliques)


def pairs(domain: Domain, attributes: Sequence[str], others: Clique) -> list[Clique]:
    """Pairs of an attribute of the links and another one, small ones first: as many as fit into memory."""
    candidates = (domain.clique((a, b)) for a in attributes for b in (*others, *(c for c in attributes if c > a)))
    chosen, room = [], HELD
    for pair in sorted(candidates, key=domain.cells):
        room -= domain.cells(pair)
        if room >= 0 and domain.cells(pair) <= CELLS:
            chosen.append(pair)
    return chosen


def draw(
    domain: Domain,
    attributes: Sequence[str],
    measured: Sequence[LinearMeasurement],
    total: float,
    ends: Mapping[str, Integers],
    links: int,
    rng: np.random.Generator,
) -> list[Integers]:
    """A code per link for each attribute, conditional on the attribute of either side with the largest mutual information.

    An attribute that was not measured with any other is drawn independently.

    Args:
        domain: the domain.
        attributes: those of the links.
        measured: what ``measure`` returned.
        total: links of the original, noisy.
        ends: for each attribute of both sides its code at every link, shape (links,).
        links: how many links were drawn.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    cliques = pairs(domain, attributes, tuple(ends))
    known = [*measured, residual_measurement(domain, (), np.array([total]), 1.0)]
    read = postprocess("fitted", domain, [*cliques, *((name,) for name in attributes)], known)
    drawn = []
    for name in attributes:
        tables = {
            other: _rows_of(read(pair), pair, other)
            for other in ends
            if (pair := domain.clique((name, other))) in cliques
        }
        if tables:
            best = max(tables, key=lambda other: _information(tables[other]))
            drawn.append(_draw_rows(tables[best], ends[best], rng))
        else:
            shares = np.maximum(read((name,)), 0) + 1e-12
            drawn.append(rng.choice(len(shares), links, p=shares / shares.sum()))
    return drawn


def _draw_rows(table: Array, given: Integers, rng: np.random.Generator) -> Integers:
    """For each link a column of the table, with the probabilities of the row that it is given."""
    rows = np.maximum(table, 0) + 1e-9
    size = rows.shape[1]
    # All rows' distributions one after another, so that one search finds every draw.
    bounds = np.cumsum(rows / rows.sum(axis=1, keepdims=True), axis=1) + np.arange(len(rows))[:, None]
    columns = bounds.reshape(-1).searchsorted(given + rng.random(len(given))) - given * size
    return np.asarray(np.clip(columns, 0, size - 1))


def _rows_of(table: Array, pair: Clique, first: str) -> Array:
    """The table of a pair with one row for each value of ``first``."""
    return table if pair[0] == first else table.T


def _information(table: Array) -> float:
    """Mutual information of a table of counts, in nats."""
    p = np.maximum(table, 0) + 1e-12
    p = p / p.sum()
    alone = np.multiply.outer(p.sum(axis=1), p.sum(axis=0))
    return float((p * np.log(p / alone)).sum())
