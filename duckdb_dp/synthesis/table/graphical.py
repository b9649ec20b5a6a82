"""MST and AIM: measurements selected against a graphical model, which Private-PGM (``mbi``) fits and records are drawn from.

Selections and measurements go through a ``PrivateQueryable``, so their noise is exact and charged; the library gets noisy numbers only.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain, subsets
from duckdb_dp.linop import Array
from duckdb_dp.private import Candidate, PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.junction import junction_tree
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.mirror import descend
from duckdb_dp.reconstruct.pgm import Fit

MEMORY = 2**24
"""Bytes that AIM's junction tree may take."""

FEW = 30
"""Steps of mirror descent for each measurement, before the library's."""

STEPS = 100
"""Steps of mirror descent after each round of AIM, from the model before."""

ROUNDS = 16
"""Rounds per attribute that AIM's first noise is meant for; it ends far sooner, as the noise falls."""

SELECTING = 0.1
"""AIM's share of the budget for choosing."""

CELLS = 2**20
"""Larger marginals are no candidates."""


def workload(domain: Domain, order: int) -> tuple[Clique, ...]:
    """All marginals of that order, or of all attributes where there are fewer; none larger than 2^20 cells."""
    order = min(order, len(domain.attributes))
    return tuple(clique for clique in itertools.combinations(domain.attributes, order) if domain.cells(clique) <= CELLS)


def closure(cliques: Sequence[Clique]) -> tuple[Clique, ...]:
    """All non-empty subsets of the cliques, small ones first."""
    below = {tau for clique in cliques for tau in subsets(clique) if tau}
    return tuple(sorted(below, key=lambda tau: (len(tau), tau)))


def mst(queryable: PrivateQueryable, *, track: Track = silent) -> list[LinearMeasurement]:
    """MST: one-way marginals, then the pairs of a maximum spanning tree; a third of the budget for each, a third to select.

    Each edge is selected by the exponential mechanism among the pairs that join two trees, with the score |mu - estimate|_1.

    Source: McKenna, Miklau, Sheldon. Winning the NIST Contest. 2021. Rare values are not merged.

    Privacy: spends all that ``queryable`` has left.
    """
    domain, budget = queryable.domain, queryable.left
    names = domain.attributes
    pairs = [pair for pair in workload(domain, 2) if len(pair) == 2]
    alone = budget * (1 - 1e-12) / (3 if pairs else 1)
    measured = queryable.measure_marginals([((name,), alone / len(names)) for name in names])
    model = descend(domain, measured, steps=STEPS, memory=MEMORY)
    tree = {name: name for name in names}
    edges: list[Clique] = []
    for step in track(range(len(names) - 1), "choosing pairs"):
        across = [pair for pair in pairs if tree[pair[0]] != tree[pair[1]]]
        if not across:
            break
        scored = [Candidate(clique=pair) for pair in across]
        # Estimates never change: all come from single attributes.
        pair = across[
            queryable.select(scored, model.tree.marginal, budget / 3 / (len(names) - 1), [] if step else None)
        ]
        edges.append(pair)
        one, other = tree[pair[0]], tree[pair[1]]
        tree = {name: one if root == other else root for name, root in tree.items()}
    left = queryable.left * (1 - 1e-12)
    measured += queryable.measure_marginals([(pair, left / len(edges)) for pair in edges])
    return measured


def aim(
    queryable: PrivateQueryable, *, order: int = 2, steps: int = STEPS, track: Track = silent
) -> list[LinearMeasurement]:
    """AIM: rounds of selecting a marginal below the workload, measuring it, and fitting, with noise that falls.

    The score of a marginal r is w_r (|mu_r - estimate|_1 - sqrt(2/pi) s n_r), w_r the number of attributes that it shares
    with workload marginals. Only marginals that keep the junction tree within memory, in proportion to the budget spent,
    may be selected. Where a round changed the estimate by less than its noise, s is halved.

    Args:
        queryable: what measures.
        order: the workload is all marginals of that many attributes.
        steps: of mirror descent after each round.
        track: shows progress.

    Source: McKenna, Mullins, Sheldon, Miklau. AIM: An Adaptive and Iterative Mechanism. VLDB 2022.

    Privacy: spends all that ``queryable`` has left.
    """
    domain, budget = queryable.domain, queryable.left
    names = domain.attributes
    weights = _weights(workload(domain, order))
    rounds = ROUNDS * len(names)
    measuring = budget * (1 - SELECTING) / rounds
    measured = queryable.measure_marginals([((name,), measuring) for name in names])
    model = descend(domain, measured, steps=steps, memory=MEMORY)
    selecting = budget * SELECTING / rounds
    ticks = iter(track(range(rounds), "choosing marginals"))
    while queryable.left > 1e-9 * budget:
        next(ticks, None)
        if queryable.left < 2 * (measuring + selecting):
            measuring, selecting = queryable.left * (1 - SELECTING), queryable.left * SELECTING * (1 - 1e-9)
        clique = _select(queryable, model, weights, measured, measuring, selecting, 1 - queryable.left / budget)
        before = model.tree.marginal(clique)
        measured += queryable.measure_marginals([(clique, min(measuring, queryable.left))])
        model = descend(domain, measured, steps=steps, memory=math.inf, start=model.potentials)
        noise = math.sqrt(2 / math.pi * measured[-1].variance) * domain.cells(clique)
        if float(np.abs(model.tree.marginal(clique) - before).sum()) <= noise:
            measuring, selecting = 4 * measuring, 4 * selecting
    return measured


def start(domain: Domain, measured: Sequence[LinearMeasurement]) -> Mapping[Clique, Array]:
    """Potentials near the fit of all measurements, for Private-PGM to start from: single attributes, then one by one.

    Privacy: post-processing.
    """
    alone = [one for one in measured if len(one.clique) < 2]
    model = descend(domain, alone, steps=STEPS, memory=math.inf)
    joint = [one for one in measured if len(one.clique) > 1]
    for last in range(len(joint)):
        some = [*alone, *joint[: last + 1]]
        model = descend(domain, some, steps=FEW, memory=math.inf, start=model.potentials)
    return model.potentials


def _select(
    queryable: PrivateQueryable,
    model: Fit,
    weights: dict[Clique, float],
    measured: Sequence[LinearMeasurement],
    measuring: float,
    selecting: float,
    spent: float,
) -> Clique:
    held = {one.clique for one in measured}
    allowed = [
        clique
        for clique in weights
        if len(clique) == 1 or clique in held or _bytes(queryable.domain, [*held, clique]) <= MEMORY * spent
    ]
    stddev = queryable.rows / math.sqrt(2 * measuring)
    scored = [
        Candidate(
            clique=clique,
            weight=weights[clique],
            bias=math.sqrt(2 / math.pi) * stddev * queryable.domain.cells(clique),
        )
        for clique in allowed
    ]
    return allowed[queryable.select(scored, model.tree.marginal, selecting)]


def _bytes(domain: Domain, cliques: Sequence[Clique]) -> int:
    return 8 * sum(map(domain.cells, junction_tree(domain, cliques)[0]))


def _weights(cliques: tuple[Clique, ...]) -> dict[Clique, float]:
    """For each marginal below the workload: sum over the workload's of the attributes that they share."""
    times: dict[str, int] = {}
    for name in itertools.chain.from_iterable(cliques):
        times[name] = times.get(name, 0) + 1
    return {tau: float(sum(times[name] for name in tau)) for tau in closure(cliques)}
