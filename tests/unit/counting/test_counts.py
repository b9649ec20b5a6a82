"""Exact marginals from counted blocks, against sums over the whole table."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting import counts as module
from duckdb_dp.counting.counts import Counts, cover, words
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.testing import NoNoise

DOMAIN = Domain({"a": 4, "b": 3, "one": 1, "c": 5})
CLIQUES = [c for order in range(5) for c in itertools.combinations(DOMAIN.attributes, order)]


def counts(table: np.ndarray, blocks: tuple[Clique, ...]) -> Counts:
    """As a GROUP BY gives them: the non-empty cells of each block, in any order."""
    found = {}
    for block in blocks:
        flat = marginal(table, block)
        keys = np.random.default_rng(1).permutation(np.flatnonzero(flat))
        found[block] = (keys, flat[keys])
    return Counts(DOMAIN, found)


def in_words(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The block of all attributes, with a key for each of a cell's words, and as often its count."""
    groups, places, keys = words(DOMAIN, DOMAIN.attributes), np.array(np.nonzero(table)), []
    for group in groups:
        axes = [DOMAIN.attributes.index(name) for name in group]
        keys.append(np.ravel_multi_index(tuple(places[axes]), DOMAIN.shape(group)))
    return np.stack(keys, axis=1).reshape(-1), np.repeat(table[tuple(places)], len(groups))


def marginal(table: np.ndarray, clique: Clique) -> np.ndarray:
    return table.sum(axis=tuple(i for i, name in enumerate(DOMAIN.attributes) if name not in clique)).reshape(-1)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.sets(st.sampled_from(CLIQUES), min_size=1), st.integers(0, 2**32), st.sampled_from([0, 1, 3, 2**40]))
def test_every_marginal_of_every_cover(cliques: set[Clique], seed: int, largest: int) -> None:
    table = np.random.default_rng(seed).integers(0, largest + 1, DOMAIN.shape(DOMAIN.attributes))
    asked = tuple(sorted(cliques))
    found = counts(table, cover(DOMAIN, asked))
    for clique in (*asked, *reversed(asked)):
        exact = found.marginal(clique)
        assert exact.dtype == np.int64
        assert exact.shape == (math.prod(DOMAIN.shape(clique)),)
        np.testing.assert_array_equal(exact, marginal(table, clique))


@pytest.mark.parametrize("largest_key", [2**62, 13])
def test_large_blocks_stay_lists_of_cells(monkeypatch: pytest.MonkeyPatch, largest_key: int) -> None:
    """One word per cell, or several where its position fits none: the counts then come once per word."""
    monkeypatch.setattr(module, "LARGEST_DENSE", 1)
    monkeypatch.setattr(module, "LARGEST_KEY", largest_key)
    table = np.random.default_rng(2).integers(0, 3, DOMAIN.shape(DOMAIN.attributes))
    assert words(DOMAIN, DOMAIN.attributes) == (
        [DOMAIN.attributes] if largest_key > 60 else [("a", "b", "one"), ("c",)]
    )
    found = Counts(DOMAIN, {DOMAIN.attributes: in_words(table)})
    for clique in CLIQUES:
        np.testing.assert_array_equal(found.marginal(clique), marginal(table, clique))


def test_the_smallest_block_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.ones(DOMAIN.shape(DOMAIN.attributes), dtype=np.int64)
    found = counts(table, (("a", "b", "c"), ("a", "b"), ("c",)))
    read: list[Clique] = []
    inner = Counts._table
    monkeypatch.setattr(Counts, "_table", lambda self, block, name: read.append(block) or inner(self, block, name))
    for clique in (("a",), ("a", "b"), ("c",), (), ("a", "c")):
        found.marginal(clique)
    assert read == [("a", "b"), ("a", "b"), ("c",), ("c",), ("a", "b", "c")]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_marginals_of_a_large_block_share_tables(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table is summed once, and there are fewer of them than marginals."""
    monkeypatch.setattr(module, "LARGEST_DENSE", 0)
    domain = Domain({f"x{i}": 2 + i % 3 for i in range(8)})
    keys = np.random.default_rng(0).choice(domain.cells(domain.attributes), 500, replace=False)
    found = Counts(domain, {domain.attributes: (keys, np.arange(1, 501))})
    table = np.zeros(domain.cells(domain.attributes), dtype=np.int64)
    table[keys] = np.arange(1, 501)
    asked = [c for n in range(order + 1) for c in itertools.combinations(domain.attributes, n)]
    summed: list[Clique] = []
    inner = Counts._summed
    monkeypatch.setattr(Counts, "_summed", lambda self, block, name: summed.append(name) or inner(self, block, name))
    for place in found.order(asked):
        clique = asked[place]
        axes = tuple(i for i, name in enumerate(domain.attributes) if name not in clique)
        exact = table.reshape(domain.shape(domain.attributes)).sum(axis=axes).reshape(-1)
        np.testing.assert_array_equal(found.marginal(clique), exact)
    assert len(set(summed)) == len(summed) < len(asked) / 2


@pytest.mark.parametrize("largest_key", [2**62, 17, 13])
@pytest.mark.parametrize("dense", [1, 1 << 20])
def test_counts_in_groups_are_sums_of_cells(monkeypatch: pytest.MonkeyPatch, largest_key: int, dense: int) -> None:
    """Of blocks whose cells take one word or several, before or after they are in groups."""
    monkeypatch.setattr(module, "LARGEST_DENSE", dense if largest_key > 60 else 1)
    monkeypatch.setattr(module, "LARGEST_KEY", largest_key)
    table = np.random.default_rng(5).poisson(0.7, DOMAIN.shape(DOMAIN.attributes))
    of = {"a": np.array([0, 0, 1, 1]), "c": np.array([0, 1, 1, 2, 0])}
    found = Counts(DOMAIN, {DOMAIN.attributes: in_words(table)}).in_groups(of)
    summed = np.stack([table[of["a"] == i].sum(axis=0) for i in range(2)])
    summed = np.stack([summed[..., of["c"] == i].sum(axis=-1) for i in range(3)], axis=-1)
    assert found.domain.sizes == {"a": 2, "b": 3, "one": 1, "c": 3}
    for clique in CLIQUES:
        np.testing.assert_array_equal(found.marginal(clique), marginal(summed, clique))


def test_nothing_at_all() -> None:
    nothing = np.empty(0, np.int64)
    found = Counts(DOMAIN, {("a", "b"): (nothing, nothing)})
    np.testing.assert_array_equal(found.marginal(("a", "b")), np.zeros(12, np.int64))
    np.testing.assert_array_equal(found.marginal(()), np.zeros(1, np.int64))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64, np.int64])
def test_whatever_whole_numbers_arrive(dtype: type) -> None:
    found = Counts(DOMAIN, {("c",): (np.array([4, 0], dtype=dtype), np.array([7, 9], dtype=dtype))})
    np.testing.assert_array_equal(found.marginal(("c",)), [9, 0, 0, 0, 7])


@pytest.mark.parametrize(
    "sizes", [(1, 65_535), (65_535, 1), (255, 257), (256, 256), (1, 65_536), (257, 256), (70_000, 2)]
)
def test_the_last_cell_of_a_large_block(sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Below and above the numbers that two bytes hold."""
    monkeypatch.setattr(module, "LARGEST_DENSE", 0)
    domain = Domain({"a": sizes[0], "b": sizes[1], "c": 2})
    cells = domain.cells(("a", "b", "c"))
    found = Counts(domain, {("a", "b", "c"): (np.array([0, cells - 2, cells - 1]), np.array([5, 7, 9]))})
    exact = found.marginal(("a", "b"))
    assert (exact[0], exact[-1], exact.sum()) == (5, 16, 21)


def test_steps_share_tables_of_a_large_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked together is counted from fewer tables than there are marginals, once, and exactly."""
    monkeypatch.setattr(module, "LARGEST_DENSE", 0)
    domain = Domain({f"x{i}": 3 for i in range(8)})
    keys = np.random.default_rng(0).choice(domain.cells(domain.attributes), 500, replace=False)
    counted = Counts(domain, {domain.attributes: (keys, np.ones(500, np.int64))})
    table = np.bincount(keys, minlength=domain.cells(domain.attributes)).reshape(domain.shape(domain.attributes))
    summed: list[Clique] = []
    inner = Counts._summed
    monkeypatch.setattr(Counts, "_summed", lambda self, block, name: summed.append(name) or inner(self, block, name))
    queryable = PrivateQueryable(counted, total=3.0, accounting=ZCDP, rows=1, bits=NoNoise())
    pairs = list(itertools.combinations(domain.attributes, 2))
    for _ in range(2):
        for one in queryable.measure_marginals((pair, 1 / len(pairs)) for pair in pairs):
            axes = tuple(i for i, name in enumerate(domain.attributes) if name not in one.clique)
            np.testing.assert_array_equal(one.answers, table.sum(axis=axes).reshape(-1))
    assert len(summed) < len(pairs) / 2
