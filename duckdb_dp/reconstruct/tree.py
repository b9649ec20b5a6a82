"""The Markov tree of pairs that says most: a maximum spanning tree by mutual information, and every pair along its chains."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.stacks import shapes, stacks
from duckdb_dp.reconstruct.tilting import products

LEAST = 1e-9
"""Mutual information, in nats, below which two attributes count as independent."""

CELLS = 2**24
"""Chains end before a pair of more cells: beyond it attributes count as independent."""

_TINY = 1e-300


def information(table: Array) -> float:
    """Mutual information of the two attributes of a pair, in nats: KL of the table and the product of its singles, over N.

    Privacy: post-processing.
    """
    return float(_information(table[None])[0])


def _information(tables: Array) -> Array:
    """The same of stacked tables, shape (k, n, m): the mean of log p, less those of the singles."""
    totals = tables.sum(axis=(1, 2), keepdims=True)
    shares = tables / np.where(totals > 0, totals, 1.0)
    whole = _entropy(shares.reshape(len(shares), -1))
    return np.asarray(_entropy(shares.sum(axis=2)) + _entropy(shares.sum(axis=1)) - whole)


def _entropy(shares: Array) -> Array:
    """-sum p log p of each row."""
    return np.asarray(-np.einsum("ij,ij->i", shares, np.log(np.maximum(shares, _TINY))))


def spanning_tree(pairs: Mapping[Clique, Array]) -> tuple[Clique, ...]:
    """The edges of a maximum spanning forest of the attributes by mutual information.

    Source: Chow & Liu 1968; Kruskal's algorithm.

    Privacy: post-processing.
    """
    said: list[tuple[float, Clique]] = []
    for stack in stacks(shapes(pairs)):
        said += zip(_information(stack.stacked(pairs)).tolist(), stack.cliques, strict=True)
    said.sort(reverse=True)
    trees: dict[str, list[str]] = {name: [name] for pair in pairs for name in pair}
    edges = []
    for bits, (a, b) in said:
        if bits > LEAST and trees[a] is not trees[b]:
            edges.append((a, b))
            trees[a].extend(trees[b])
            trees.update(dict.fromkeys(trees[b], trees[a]))
    return tuple(edges)


def along(
    domain: Domain,
    edges: Iterable[Clique],
    pairs: Mapping[Clique, Array],
    singles: Mapping[Clique, Array],
    wanted: Collection[Clique],
    total: float,
) -> dict[Clique, Array]:
    """Pairs as the tree says: P(a, c) = sum_b P(a, b) P(b, c) / P(b) along each chain; products between trees.

    One attribute's chains are followed at a time, so that no more than its pairs are held beyond those that are wanted.

    Args:
        domain: the domain.
        edges: of a forest.
        pairs: the tables of the edges, which agree with the singles.
        singles: of all attributes.
        wanted: the pairs that come out.
        total: the sum of each table.

    Privacy: post-processing.
    """
    steps: dict[str, list[tuple[str, Array]]] = defaultdict(list)
    for a, b in edges:
        table = pairs[a, b]
        steps[a].append((b, table / np.maximum(table.sum(axis=1, keepdims=True), _TINY)))
        steps[b].append((a, (table / np.maximum(table.sum(axis=0, keepdims=True), _TINY)).T))
    ends: dict[str, set[str]] = defaultdict(set)
    for a, c in wanted:
        ends[a].add(c)
    found: dict[Clique, Array] = {}
    for a, open_ends in ends.items():
        found |= _chains(a, open_ends, steps, singles)
    apart = products(singles, [pair for pair in wanted if pair not in found], total)
    return {pair: found[pair] if pair in found else apart[pair] for pair in wanted}


def _chains(
    first: str, ends: set[str], steps: Mapping[str, list[tuple[str, Array]]], singles: Mapping[Clique, Array]
) -> dict[Clique, Array]:
    """The pairs of one attribute with those of ``ends`` that a chain reaches."""
    found: dict[Clique, Array] = {}
    left = set(ends)
    waiting = [(name, first, singles[first,][:, None] * conditional) for name, conditional in steps.get(first, ())]
    while waiting and left:
        last, before, table = waiting.pop()
        if last in left:
            left.remove(last)
            found[first, last] = table
        for name, conditional in steps[last]:
            if name != before and len(table) * conditional.shape[1] <= CELLS:
                waiting.append((name, last, table @ conditional))
    return found
