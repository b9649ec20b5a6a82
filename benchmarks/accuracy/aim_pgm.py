"""AIM with Private-PGM (McKenna et al. 2022), its loop over the package mbi: what AIM+GReM is compared with.

Exact noise and exact selection come from the same door as for the other mechanisms.
"""

import math
import os
import warnings
from collections.abc import Callable
from typing import Any

from duckdb_dp import Workload
from duckdb_dp.domain import Clique
from duckdb_dp.linop import Array, Identity
from duckdb_dp.private import Candidate, Door

MODEL_MB = 50.0  # the paper's choice
ROUND_STEPS, LAST_STEPS = 200, 1000


def aim_pgm(door: Door, workload: Workload) -> Callable[[Clique], Array]:
    """A reader of the fitted model's marginals; spends all that the door has left."""
    os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jax
        import mbi

        jax.config.update("jax_enable_x64", True)
        from mbi import estimation, junction_tree

    domain, rho = door.domain, door.left
    space = mbi.Domain(tuple(domain.sizes), tuple(domain.sizes.values()))
    weights = scores(workload)
    candidates = {c: w for c, w in weights.items() if domain.cells(c) * 8 / 2**20 <= MODEL_MB}
    solver = estimation.MirrorDescent()
    measured: dict[Clique, tuple[Array, float]] = {}

    def measure(clique: Clique, share: float) -> None:
        """Averaged with earlier ones of the same marginal, which says as much and compiles once."""
        values, variance = door.measure(clique, Identity(domain.cells(clique)), share)
        old, known = measured.get(clique, (0.0, 0.0))
        measured[clique] = ((known * old + values / variance) / (known + 1 / variance), known + 1 / variance)

    def fit(steps: int, start: Any = None) -> Any:
        found = [mbi.LinearMeasurement(values, c, 1 / math.sqrt(known)) for c, (values, known) in measured.items()]
        return solver.estimate(space, found, iters=steps, warm_start=start)

    def read(model: Any) -> Callable[[Clique], Array]:
        return lambda clique: model.project(clique).datavector().reshape(domain.shape(clique))

    rounds = 16 * len(domain.sizes)
    measuring, selecting = 0.9 * rho / rounds, 0.1 * rho / rounds
    for clique in candidates:
        if len(clique) == 1:
            measure(clique, measuring)
    model, last = fit(ROUND_STEPS), False
    while not last:
        last = door.left <= 2 * (measuring + selecting)
        if last:
            measuring, selecting = 0.9 * door.left, 0.1 * door.left
        stddev = 1 / math.sqrt(2 * measuring)
        taken = list(measured)
        room = MODEL_MB * (1 - door.left / rho)
        small = [
            c for c in candidates if junction_tree.hypothetical_model_size(space, [*taken, c]) <= room or c in taken
        ]
        options = [
            Candidate(clique=c, weight=weights[c], bias=math.sqrt(2 / math.pi) * stddev * domain.cells(c))
            for c in small
        ]
        chosen = small[door.select(options, read(model), selecting)]
        before = read(model)(chosen)
        measure(chosen, door.left if last else measuring)
        model = fit(LAST_STEPS if last else ROUND_STEPS, model)
        if abs(read(model)(chosen) - before).sum() <= math.sqrt(2 / math.pi) * stddev * domain.cells(chosen):
            measuring, selecting = 4 * measuring, 4 * selecting
    return read(model)


def scores(workload: Workload) -> dict[Clique, float]:
    """Clique -> sum over the workload of the attributes in common, scaled to 1."""
    found = {
        clique: float(sum(len(set(clique) & set(asked)) for asked in workload.cliques))
        for clique in workload.closure
        if clique
    }
    return {clique: weight / max(found.values()) for clique, weight in found.items()}
