"""The published method for links ('paper', 'sliced'): select workloads, measure them, solve a relaxed problem, round."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import Candidate, PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.links.adaptive_links import TOTAL, Learned
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.learner import measure_total, workloads
from duckdb_dp.synthesis.links.pgd import Queries, solve
from duckdb_dp.synthesis.links.sides import Side
from duckdb_dp.synthesis.links.whole_links import totals

ROUNDS, SELECTED, SELECTING = 15, 3, 0.2
"""The paper's defaults: iterations T, workloads per iteration K, and alpha, the share that pays for selecting them."""

SLICES, WIDTH, LINKED, USED = 8, 1000, 0.2, 8
"""Slices per iteration, rows and columns of one, the share of those that have links, and the workloads that it fits."""

CELLS = 2**20
"""Larger workloads are not measured."""

PLAIN_STEPS = 30  # of plain projected gradient descent per slice

Update = Callable[[Sequence[LinearMeasurement], Array], Array]
"""(all measured marginals, links per block) -> links per block after one iteration."""


def mwem_pgd(
    blocks: Blocks,
    queryable: PrivateQueryable,
    *,
    rho: float,
    rng: np.random.Generator,
    k: int = 3,
    rounds: int = ROUNDS,
    sliced: bool = False,
    one_parent: bool = False,
    track: Track = silent,
) -> Learned:
    r"""Algorithm 4 in counts: scores ||mu - mu_syn||_1 / 2 of sensitivity d / 2, marginals of sensitivity d.

    Every iteration selects K of the cross-table k-way workloads that were not selected before, by the exponential
    mechanism against the rounded links, measures them with Gaussian noise, and solves the relaxed problem for all that
    were measured. The paper takes the number of links as public; here 5 % of the budget measures it.

    Args:
        blocks: the blocks.
        queryable: exact counts of links.
        rho: what may be spent.
        rng: rounds links and draws slices.
        k: attributes of a workload.
        rounds: T.
        sliced: whether to solve plain projected gradients on random slices of the matrix of rows, as the paper does for
            large tables, and not on row types.
        one_parent: whether each left row has one link exactly; not sliced then.
        track: shows progress.

    Returns:
        Relaxed links; sliced, rounded ones.

    Source: [RS25] Alg. 4, 5 and 6, Appendix C.

    Privacy: spends rho at most.
    """
    total, _, paid = measure_total(queryable, (TOTAL * rho, 0.0), 0.0)
    total, spent = max(total, 1.0), {"total": paid}
    left = small_workloads(queryable.domain, blocks.left.attributes, blocks.right.attributes, k)
    rounds = min(rounds, -(-len(left) // SELECTED))
    budget = (rho - sum(spent.values())) / max(min(rounds * SELECTED, len(left)), 1)
    update = _slices(blocks, total, rng) if sliced and not one_parent else _whole(blocks, total, one_parent)
    links, measured = blocks.independent(total), list[LinearMeasurement]()
    for _ in track(range(rounds), "learning links"):
        rounded = totals(links, rng).astype(np.float64)
        for turn in range(min(SELECTED, len(left))):
            clique = _select(blocks, queryable, left, rounded, SELECTING * budget, turn)
            measured += queryable.measure_marginals([(clique, (1 - SELECTING) * budget)])
            spent["selected"] = spent.get("selected", 0.0) + budget
        links = update(measured, links)
    return Learned(links=links, tilt={}, total=total, spent=spent)


def small_workloads(domain: Domain, left: Sequence[str], right: Sequence[str], k: int = 3) -> list[Clique]:
    """The workloads that may be selected: none of more than 2^20 cells."""
    return [clique for clique in workloads(left, right, k) if domain.cells(domain.clique(clique)) <= CELLS]


def too_large(domain: Domain, left: Sequence[str], right: Sequence[str]) -> list[Clique]:
    """The pairs across the sides that no workload of three attributes has that may be selected; public."""
    held = {pair for clique in small_workloads(domain, left, right) for pair in itertools.combinations(clique, 2)}
    pairs = (pair for pair in itertools.product(left, right) if min(domain.shape(pair)) > 1)
    return [pair for pair in pairs if pair not in held]


def _select(
    blocks: Blocks, queryable: PrivateQueryable, left: list[Clique], links: Array, rho: float, turn: int
) -> Clique:
    """Select one of the remaining workloads by the exponential mechanism, and remove it from the list."""
    ordered = [queryable.domain.clique(clique) for clique in left]
    candidates = [Candidate(clique=clique, weight=0.5) for clique in ordered]
    chosen = queryable.select(
        candidates, lambda clique: blocks.marginal(links, clique), rho, changed=None if turn == 0 else ()
    )
    del left[chosen]
    return ordered[chosen]


def _whole(blocks: Blocks, total: float, one_parent: bool) -> Update:
    caps = blocks.pairs()
    rows = blocks.left.sizes.astype(np.float64)[:, None]
    bound = min(total, float(caps.sum()))

    def update(measured: Sequence[LinearMeasurement], links: Array) -> Array:
        return solve(Queries(blocks, measured), links, caps, rows if one_parent else bound, one_parent=one_parent)

    return update


def _slices(blocks: Blocks, total: float, rng: np.random.Generator) -> Update:
    """Solve random slices of the matrix of rows, one after another, each rounded and put back."""
    sides = (blocks.left, blocks.right)
    whole = min(round(total), len(sides[0].rows) * len(sides[1].rows))
    taken = rng.choice(len(sides[0].rows) * len(sides[1].rows), whole, replace=False)
    state: list[Integers] = [taken // len(sides[1].rows), taken % len(sides[1].rows)]

    def update(measured: Sequence[LinearMeasurement], links: Array) -> Array:
        for _ in range(SLICES):
            rows = [_slice(side, ends, rng) for side, ends in zip(sides, state, strict=True)]
            _solve_slice(blocks, measured, state, rows, rng)
        cells = [side.rows[ends] for side, ends in zip(sides, state, strict=True)]
        counts = np.bincount(cells[0] * blocks.shape[1] + cells[1], minlength=links.size)
        return counts.reshape(blocks.shape).astype(np.float64)

    return update


def _slice(side: Side, ends: Integers, rng: np.random.Generator) -> Integers:
    """Rows of a slice: a fifth of them with links, the others any."""
    width = min(WIDTH, len(side.rows))
    linked = np.unique(ends)
    first = rng.choice(linked, min(int(LINKED * width), len(linked)), replace=False)
    others = np.setdiff1d(np.arange(len(side.rows)), first)
    return np.concatenate([first, rng.choice(others, width - len(first), replace=False)])


def _solve_slice(
    blocks: Blocks,
    measured: Sequence[LinearMeasurement],
    state: list[Integers],
    rows: Sequence[Integers],
    rng: np.random.Generator,
) -> None:
    """Links among the rows of a slice, anew, in ``state``: rows are their own types, and a block is one pair."""
    places = [np.full(len(side.rows), -1) for side in (blocks.left, blocks.right)]
    for index, chosen in zip(places, rows, strict=True):
        index[chosen] = np.arange(len(chosen))
    at = [index[ends] for index, ends in zip(places, state, strict=True)]
    inside = (at[0] >= 0) & (at[1] >= 0)
    count = int(inside.sum())
    if count == 0:
        return
    part = Blocks(blocks.domain, _own(blocks.left, rows[0]), _own(blocks.right, rows[1]))
    links = np.zeros(part.shape)
    links[at[0][inside], at[1][inside]] = 1.0
    scale = count / len(state[0])
    queries = Queries(part, _worst(part, measured, links, scale), scale)
    relaxed = solve(queries, links, part.pairs(), float(count), steps=PLAIN_STEPS, accelerate=False)
    chosen = np.flatnonzero(totals(relaxed, rng))
    for ends, sliced, new in zip(range(2), rows, np.divmod(chosen, part.shape[1]), strict=True):
        state[ends] = np.concatenate([state[ends][~inside], sliced[new]])


def _own(side: Side, rows: Integers) -> Side:
    return Side(attributes=side.attributes, types=side.types[side.rows[rows]], rows=np.arange(len(rows)))


def _worst(part: Blocks, measured: Sequence[LinearMeasurement], links: Array, scale: float) -> list[LinearMeasurement]:
    """The measured marginals that a slice is furthest from."""

    def error(noisy: LinearMeasurement) -> float:
        counts = noisy.answers.reshape(part.domain.shape(noisy.clique)) * scale
        return -float(np.abs(part.marginal(links, noisy.clique) - counts).sum())

    return sorted(measured, key=error)[:USED]
