"""AIM with Private-PGM (McKenna et al. 2022), its loop over the package mbi: what AIM+GReM is compared with.

Exact noise and exact selection come from the same door as for the other mechanisms. The number of rounds, the split of the
budget and the limit on the model are those of the authors' code.

mbi compiles what it computes, anew for every set of cliques of a model and hence in most rounds. So its model is only
fitted by mbi, from where the last fit ended and until that gains no more, with noisy values of the same marginal averaged
into one measurement; and marginals, hundreds of them in a round, are read off its potentials by numpy.
"""

import math
from collections.abc import Callable
from time import process_time

from duckdb_dp import DPError, Workload
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array, Identity
from duckdb_dp.private import Candidate, PrivateQueryable
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.pgm import Fit, checked_tree, fit

MODEL = 80 * 2**20  # bytes
ROUND_STEPS, LAST_STEPS = 200, 1000
"""Of mirror descent. The authors' code takes 1000 in every round, which fits no better as each starts from the last."""


def aim_pgm(queryable: PrivateQueryable, workload: Workload, limit: float = math.inf) -> Callable[[Clique], Array]:
    """A reader of the fitted model's marginals; spends all that the door has left.

    Args:
        door: to the data.
        workload: marginals.
        limit: CPU seconds after which no round begins.

    Raises:
        TimeoutError: a round would begin later than that; its text says how far the mechanism was.
    """
    begun, domain, rho = process_time(), queryable.domain, queryable.left
    weights = scores(workload)
    rounds = 16 * len(domain.sizes)
    measuring, selecting = 0.9 * rho / rounds, 0.1 * rho / rounds
    measured: dict[Clique, LinearMeasurement] = {}

    def measure(clique: Clique, share: float) -> None:
        strategy = Identity(domain.cells(clique))
        new = queryable.measure(clique, strategy, share)
        if clique in measured:
            old = measured[clique]
            precision = 1 / old.variance + 1 / new.variance
            answers = (old.answers / old.variance + new.answers / new.variance) / precision
            new = LinearMeasurement(clique=clique, strategy=strategy, answers=answers, variance=1 / precision)
        measured[clique] = new

    def fitted(steps: int, before: Fit | None = None) -> Fit:
        return fit(domain, list(measured.values()), steps=steps, memory=MODEL, start=before and before.potentials)

    def fits(clique: Clique) -> bool:
        try:
            checked_tree(domain, [*measured, clique], MODEL * (1 - queryable.left / rho))
        except DPError:
            return clique in measured
        return True

    for name in domain.attributes:
        measure((name,), measuring)
    model, last, done = fitted(LAST_STEPS), False, 0
    while not last:
        if process_time() - begun > limit:
            raise TimeoutError(
                f"not ended in {limit:.0f} CPU s: {done} rounds, {1 - queryable.left / rho:.0%} of the budget"
            )
        last = queryable.left <= 2 * (measuring + selecting)
        if last:
            measuring, selecting = 0.9 * queryable.left, 0.1 * queryable.left
        stddev = 1 / math.sqrt(2 * measuring)
        small = [clique for clique in weights if fits(clique)]
        options = [
            Candidate(clique=c, weight=weights[c], bias=math.sqrt(2 / math.pi) * stddev * domain.cells(c))
            for c in small
        ]
        chosen = small[queryable.select(options, model.tree.marginal, selecting)]
        before = model.tree.marginal(chosen)
        measure(chosen, queryable.left if last else measuring)
        model, done = fitted(LAST_STEPS if last else ROUND_STEPS, model), done + 1
        if abs(model.tree.marginal(chosen) - before).sum() <= math.sqrt(2 / math.pi) * stddev * domain.cells(chosen):
            measuring, selecting = 4 * measuring, 4 * selecting
    return model.tree.marginal


def scores(workload: Workload) -> dict[Clique, float]:
    """Clique -> sum over the workload of the attributes in common, scaled to 1."""
    found = {
        clique: float(sum(len(set(clique) & set(asked)) for asked in workload.cliques))
        for clique in workload.closure
        if clique
    }
    return {clique: weight / max(found.values()) for clique, weight in found.items()}
