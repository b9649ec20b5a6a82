"""How far synthetic records are from the private table: L1 distances of marginals, noisy or exact."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Distance
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.reconstruct.measurement import LinearMeasurement

ORDERS = (1, 2, 3)

CELLS = 2**20
"""Larger marginals are left out."""

MOST = 500
"""Marginals of one order; where there are more, that many at random, by numbers that do not depend on the data."""

Marginals = Callable[[Clique], Array]
"""Counts of a marginal, any shape with its cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The errors of some marginals: |p - q|_1 of the two distributions, 0 to 2: twice the total variation.

    Attributes:
        mean: over the marginals.
        stddev: of the noise in ``mean``, in the same unit.
        cliques: the marginals.
        errors: of each, (cliques,).
        each: stddev of the noise in each of ``errors``.
    """

    mean: float
    stddev: float
    cliques: tuple[Clique, ...]
    errors: Array
    each: float


def compared(domain: Domain, order: int, rng: np.random.Generator, most: int = MOST) -> tuple[Clique, ...]:
    """The marginals of one order that are compared: all, or ``most`` of them at random; none above 2^20 cells.

    Privacy: post-processing; ``rng`` must not depend on private data.
    """
    cliques = [c for c in itertools.combinations(domain.attributes, order) if domain.cells(c) <= CELLS]
    if len(cliques) > most:
        cliques = [cliques[i] for i in sorted(rng.choice(len(cliques), most, replace=False))]
    return tuple(cliques)


def counted(domain: Domain, codes: Codes) -> Marginals:
    """Marginals of records.

    Privacy: costs nothing for synthetic records.
    """
    column = {name: i for i, name in enumerate(domain.attributes)}

    def marginal(clique: Clique) -> Array:
        cells = np.zeros(len(codes), dtype=np.int64)
        for name in clique:
            cells = cells * domain.sizes[name] + codes[:, column[name]]
        return np.bincount(cells, minlength=domain.cells(clique)).astype(np.float64)

    return marginal


def errors(one: Marginals, other: Marginals, cliques: Sequence[Clique]) -> Array:
    """|p - q|_1 of each marginal, p and q the two distributions; no rows at all count as a uniform distribution.

    Privacy: exact: of a private table only for its curator.
    """
    return np.array([float(np.abs(shares(one(clique)) - shares(other(clique))).sum()) for clique in cliques])


def exact_score(private: Marginals, synthetic: Marginals, cliques: tuple[Clique, ...]) -> Score:
    """The errors of some marginals without noise.

    Privacy: exact: of a private table only for its curator.
    """
    distances = errors(private, synthetic, cliques)
    return Score(mean=float(distances.mean()), stddev=0.0, cliques=cliques, errors=distances, each=0.0)


def private_scores(
    queryable: PrivateQueryable, synthetic: Marginals, orders: Sequence[tuple[Clique, ...]], *, track: Track = silent
) -> list[Score]:
    """Noisy errors of synthetic records, order by order, with all that ``queryable`` has left, in equal parts.

    Args:
        queryable: what measures; one part goes to the number of rows, and one to each order.
        synthetic: counts of the synthetic records.
        orders: for each order the marginals to compare, not empty, chosen independently of the private data.
        track: shows progress.

    Raises:
        DPError: nothing to compare.

    Privacy: spends ``queryable.left``.
    """
    if not orders or not all(orders):
        raise DPError(
            f"no marginal of at most {CELLS:,} cells to compare; declare attributes with fewer values or bins."
        )
    (total,) = queryable.measure_marginals([((), queryable.left / (1 + len(orders)))])
    rho = queryable.left / len(orders) * (1 - 1e-12)
    return [private_score(queryable, synthetic, cliques, total, rho, track=track) for cliques in orders]


def private_score(
    queryable: PrivateQueryable,
    synthetic: Marginals,
    cliques: tuple[Clique, ...],
    total: LinearMeasurement,
    rho: float,
    *,
    moved: float = 1.0,
    track: Track = silent,
) -> Score:
    """Noisy errors of some marginals of synthetic records.

    Formula: with N the noisy number of rows and q a synthetic distribution, |mu - N q|_1 has sensitivity 1 and is measured
    with Gaussian noise; divided by N it is the error. The m marginals share rho: each has the noise stddev
    k sqrt(m / (2 rho)), and so their mean k / sqrt(2 rho), however many there are. That N is noisy adds at most
    |N - rows| / N to an error, which ``stddev`` and ``each`` include.

    Args:
        queryable: what measures.
        synthetic: counts of the synthetic records.
        cliques: the marginals, chosen independently of the private data.
        total: N, measured.
        rho: what to spend.
        moved: how far one of a unit's k rows moves a distance.
        track: shows progress.

    Privacy: spends rho.
    """
    rows = max(1.0, float(total.answers[0]))
    # One after another, as they are measured: all of them together may be large.
    answers = queryable.answer_all(
        (clique, Distance(rows * shares(synthetic(clique)).reshape(-1), moved), rho / len(cliques))
        for clique in track(cliques, "comparing marginals")
    )
    distances, each = [float(values[0]) for values, _ in answers], answers[0][1]
    return Score(
        mean=float(np.mean(distances)) / rows,
        stddev=math.sqrt(each / len(cliques) + total.variance) / rows,
        cliques=cliques,
        errors=np.array(distances) / rows,
        each=math.sqrt(each + total.variance) / rows,
    )


def shares(counts: Array) -> Array:
    """The distribution of counts; that of no rows at all is uniform."""
    total = float(counts.sum())
    return counts / total if total > 0 else np.full_like(counts, 1 / counts.size)
