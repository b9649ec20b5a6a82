"""Triples in the last round: what their pairs do not say of them is measured where that is worth its price."""

import itertools
import math
from collections.abc import Mapping, Sequence

from duckdb_dp.adaptive.candidates import alive
from duckdb_dp.adaptive.neyman.allocation import Residual, effective, scored
from duckdb_dp.adaptive.neyman.scores import Scores, price
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.grem import ResidualEstimates

STDDEV, MOST_STDDEV = 0.02, 0.1
"""Of the noise in a triple's score, over the number of rows: below the first it need not be, above the second no triple is scored."""

SHARE = 0.03
"""Most of a round's budget that the scores of triples may take."""

FREE = 0.01
"""What scores may take of a round however good they are: they cost half of that in error, and at large budgets tables that are nearer than
``STDDEV`` are told apart. On Adult errors were 1 % less at epsilon 4 and 8."""

MOST, CELLS = 5_000, 2**25
"""Most triples that are scored, and most cells of all of them."""


def triples(workload: Workload, max_cells: int | None) -> tuple[Clique, ...]:
    """The triples inside the workload's marginals; none where they are too many.

    Privacy: depends on public facts only.
    """
    domain = workload.domain
    found: dict[Clique, None] = {}
    for clique in workload.cliques:
        if math.comb(len(clique), 3) > MOST:
            return ()
        for triple in itertools.combinations(clique, 3):
            if alive(domain, triple) and domain.cells(triple) <= (max_cells or CELLS):
                found[triple] = None
        if len(found) > MOST:
            return ()
    return tuple(found) if sum(map(domain.cells, found)) <= CELLS else ()


def dense(found: Sequence[Clique], domain: Domain, total: float, left: float) -> bool:
    """Whether the counts of triples are mostly above the noise of half of what is left, if all are measured alike.

    Then they are worth a large part of it, which the rounds before the last must leave.

    Args:
        found: the triples.
        domain: the domain.
        total: noisy number of rows.
        left: 2 rho / k^2, for units of k rows.
    """
    if not found:
        return False
    cells = math.fsum(map(domain.cells, found)) / len(found)
    return total / cells > math.sqrt(2 * len(found) / left)


def scoring(count: int, rows: int, total: float, budget: float) -> float:
    """The rho that scores of so many triples take; 0 where they would say too little for it.

    Args:
        count: of triples.
        rows: of a unit.
        total: noisy number of rows.
        budget: the round's rho.
    """
    if not count or price(count, rows, MOST_STDDEV * total) > SHARE * budget:
        return 0.0
    return min(max(price(count, rows, STDDEV * total), FREE * budget), SHARE * budget)


def residuals(
    known: ResidualEstimates, priors: Mapping[Clique, Array], scores: Scores, pairs: Scores
) -> dict[Clique, Residual]:
    """What is known of each triple's residual: its score less what the errors of its pairs explain, as a sum of squares.

    Privacy: post-processing.
    """
    found = {}
    for triple, prior in priors.items():
        explained = math.fsum(pairs.distances.get(pair, 0.0) ** 2 for pair in itertools.combinations(triple, 2))
        found[triple] = scored(
            effective(prior),
            cost(known.domain, triple),
            known.precisions.get(triple, 0.0),
            scores.cases,
            scores.chances[triple],
            explained,
        )
    return found


def cost(domain: Domain, clique: Sequence[str]) -> float:
    """prod (n_i - 1) / n_i: what one unit of precision of a residual costs, in 2 rho of one row."""
    return math.prod(1 - 1 / domain.sizes[name] for name in clique)
