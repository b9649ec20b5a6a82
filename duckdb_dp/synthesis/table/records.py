"""Records that follow a forest of pairs, and copies of records; ``fitting`` makes them fit all pairs."""

from collections.abc import Iterator, Mapping

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.junction import Codes, draw_given
from duckdb_dp.synthesis.table import fitting
from duckdb_dp.synthesis.table.fitting import WORK
from duckdb_dp.synthesis.table.model import Model

ROWS = 2**17
"""Records that are fitted at most; more are copies of them, all equally often but for less than a record each."""


def draw(forest: Model, rows: int, rng: np.random.Generator) -> Codes:
    """Records whose attributes follow the forest: each attribute given its neighbour in the tree.

    Among the records of one value, the next attribute's values follow its conditional distribution up to rounding, in random
    order.

    Privacy: post-processing.
    """
    names = forest.domain.attributes
    codes = np.zeros((rows, len(names)), dtype=np.int32)
    column = {name: i for i, name in enumerate(names)}
    for parent, name in _walk(forest):
        if parent is None:
            table, given = forest.singles[name][None, :], np.zeros(rows, dtype=np.int64)
        else:
            pair = forest.domain.clique((parent, name))
            table = forest.pair(pair) if pair[0] == parent else forest.pair(pair).T
            given = codes[:, column[parent]].astype(np.int64)
        codes[:, column[name]] = draw_given(table, given, rng)
    return codes


def farthest(
    codes: Codes, domain: Domain, targets: Mapping[Clique, Array], most: float = WORK[1]
) -> dict[Clique, Array]:
    """The targets that records are fitted to: all, or those from which the records are farthest in L1, which take no more work.

    So time is bounded, and not the number of pairs: all 780 of 40 binary attributes and 100,000 records, of which 300 left the others
    at 30 times the error of their estimates.

    Privacy: post-processing.
    """
    work = {pair: fitting.work(codes, table.shape) for pair, table in targets.items()}
    if sum(work.values()) <= most:
        return dict(targets)
    column = {name: i for i, name in enumerate(domain.attributes)}

    def distance(pair: Clique) -> float:
        table = targets[pair]
        cells = codes[:, column[pair[0]]].astype(np.int64) * table.shape[1] + codes[:, column[pair[1]]]
        held = np.bincount(cells, minlength=table.size) / len(codes)
        return float(np.abs(held - table.reshape(-1) / table.sum()).sum())

    chosen = sorted(targets, key=distance, reverse=True)
    ends = np.cumsum([work[pair] for pair in chosen])
    return {pair: targets[pair] for pair, end in zip(chosen, ends, strict=True) if end <= most}


def fitted(rows: int) -> int:
    """How many records are fitted for so many rows: of ``ROWS`` or fewer all, else as many as have equally many copies.

    If 131,072 were fitted for 200,000 rows, half of them would stand for two rows and half for one: on a table of that size pairs were
    1.5 times as far from the truth as their estimates at epsilon 4.
    """
    return -(-rows // max(1, -(-rows // ROWS)))


def copies(codes: Codes, rows: int, rng: np.random.Generator) -> Codes:
    """``rows`` records in random order, each of those given equally often but for the remainder.

    Privacy: post-processing.
    """
    times, rest = divmod(rows, len(codes))
    chosen = np.concatenate([np.tile(np.arange(len(codes)), times), rng.choice(len(codes), rest, replace=False)])
    return np.asarray(codes[rng.permutation(chosen)])


def _walk(forest: Model) -> Iterator[tuple[str | None, str]]:
    """(neighbour drawn before, attribute), over all trees."""
    near: dict[str, list[str]] = {name: [] for name in forest.domain.attributes}
    for one, other in forest.edges:
        near[one].append(other)
        near[other].append(one)
    seen: set[str] = set()
    for root in forest.domain.attributes:
        stack: list[tuple[str | None, str]] = [(None, root)] if root not in seen else []
        while stack:
            parent, name = stack.pop()
            seen.add(name)
            yield parent, name
            stack += [(name, other) for other in near[name] if other not in seen]
