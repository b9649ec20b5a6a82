"""Triples in the last round: what their pairs do not say of them is measured where that is worth its price."""

import itertools
import math
from collections.abc import Mapping, Sequence

from duckdb_dp.adaptive.candidates import alive
from duckdb_dp.adaptive.neyman.allocation import Residual, effective, prior_precision
from duckdb_dp.adaptive.neyman.scores import Scores
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Array

STDDEV = 0.02
"""Of the noise in a triple's score, over the number of rows."""

SHARE = 0.03
"""Most of the last round's budget that the scores of triples may take; where they would take more, no triple is measured."""

MOST, CELLS = 5_000, 2**25
"""Most triples that are scored, and most cells of all of them."""


def triples(workload: Workload, max_cells: int | None) -> dict[Clique, float]:
    """The triples inside the workload's marginals with the sums of their weights; none where they are too many.

    Privacy: depends on public facts only.
    """
    domain = workload.domain
    found: dict[Clique, float] = {}
    for clique, weight in workload.weights.items():
        if math.comb(len(clique), 3) > MOST:
            return {}
        for triple in itertools.combinations(clique, 3):
            if alive(domain, triple) and domain.cells(triple) <= (max_cells or CELLS):
                found[triple] = found.get(triple, 0.0) + weight
        if len(found) > MOST:
            return {}
    return found if sum(map(domain.cells, found)) <= CELLS else {}


def residuals(
    domain: Domain, weights: Mapping[Clique, float], priors: Mapping[Clique, Array], scores: Scores, pairs: Scores
) -> dict[Clique, Residual]:
    """What is known of each triple's residual: its score less what the errors of its pairs explain, as a sum of squares.

    Privacy: post-processing.
    """
    found = {}
    for triple, prior in priors.items():
        explained = math.fsum(pairs.distances.get(pair, 0.0) ** 2 for pair in itertools.combinations(triple, 2))
        own = math.sqrt(max(scores.distances[triple] ** 2 - explained, 0.0))
        cells = effective(prior)
        found[triple] = Residual(
            weight=weights[triple], cells=cells, known=prior_precision(own, cells), cost=cost(domain, triple)
        )
    return found


def cost(domain: Domain, clique: Sequence[str]) -> float:
    """prod (n_i - 1) / n_i: what one unit of precision of a residual costs, in 2 rho of one row."""
    return math.prod(1 - 1 / domain.sizes[name] for name in clique)
