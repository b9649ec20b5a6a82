"""Pairs of attributes of links in groups of values: what is asked of the counts, its sensitivity, and what links keep."""

import itertools

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Centring, Distance, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links import pair_groups
from duckdb_dp.synthesis.links.link_attributes import draw
from duckdb_dp.synthesis.links.matches import Match, merged
from duckdb_dp.synthesis.links.measure_attributes import countable, measure_attributes
from duckdb_dp.synthesis.links.measure_limited import wanted
from duckdb_dp.testing import NoNoise, SeededEntropy
from tests.unit.synthesis.links.test_link_attributes import as_measured


def grouping(rng: np.random.Generator, size: int, groups: int) -> Integers:
    """Some groups of neighbours, each of one value at least."""
    starts = np.sort(rng.choice(np.arange(1, size), groups - 1, replace=False))
    return np.searchsorted(starts, np.arange(size), side="right")


@pytest.mark.parametrize("seed", range(6))
def test_one_link_moves_grouped_queries_by_their_sensitivity_at_most(seed: int) -> None:
    """In whichever cell it is, of single values, groups and matches; and the sums are those of the groups."""
    rng = np.random.default_rng(seed)
    domain = Domain({"a": 5, "b": 4, "c": 6})
    match = Match(left="a", right="b", same=np.eye(5, 4, dtype=np.int64))
    within = {"c": grouping(rng, 6, 3)} | ({"a": grouping(rng, 5, 2)} if seed % 2 else {})
    pair = [("a", "c"), ("b", "c"), ("c", match.name)][seed % 3]
    every = dict(zip(domain.attributes, np.indices(domain.shape(domain.attributes)), strict=True))
    every[match.name] = match.codes(every)
    seen = [within[name][every[name]] if name in within else every[name] for name in pair]
    shape = tuple(int(codes.max()) + 1 for codes in seen)
    for query in (Centring(shape), Distance(rng.random(shape).reshape(-1) * 5)):
        counted, asked = merged(domain, [match], pair, query, within)
        axes = tuple(i for i, name in enumerate(domain.attributes) if name not in counted)

        def answers(counts: Integers) -> np.ndarray:
            return np.asarray(asked.apply(counts.sum(axis=axes).reshape(-1))[0])  # noqa: B023

        counts = rng.integers(0, 5, domain.shape(domain.attributes))
        sums = np.zeros(shape, dtype=np.int64)
        np.add.at(sums, tuple(seen), counts)
        before = answers(counts)
        np.testing.assert_allclose(before, query.apply(sums.reshape(-1))[0], atol=1e-9)
        longest = 0.0
        for cell in itertools.product(*map(range, counts.shape)):
            more = counts.copy()
            more[cell] += 1
            longest = max(longest, float(((answers(more) - before) ** 2).sum()))
        assert longest <= asked.squared_sensitivity * (1 + 1e-9)
        assert longest > 0.5 * asked.squared_sensitivity  # and by no more than is needed


def test_the_most_groups_are_taken_that_let_all_pairs_be_measured() -> None:
    domain = Domain({"a": 200, "b": 300, "c": 3})
    pairs = [("a", "c"), ("a", "b")]

    def below(most: int, fewest: int = 4) -> tuple[int, list[tuple[str, ...]]]:
        groups, found = pair_groups.finest(
            domain, pairs, lambda sizes: [pair for pair in pairs if sizes.cells(pair) <= most], fewest
        )
        return groups, list(found)

    assert below(10**6) == (300, pairs)
    assert below(4096) == (64, pairs)
    assert below(4095) == (48, pairs)
    assert below(15) == (4, [("a", "c")])
    assert below(15, 8) == (8, [])
    large = Domain({"a": 2000, "b": 2000})
    assert pair_groups.finest(large, [("a", "b")], lambda _: [("a", "b")]) == (64, [("a", "b")])


def test_pairs_of_units_are_put_into_groups_where_they_have_too_many_cells() -> None:
    """However large the budget is: they were left out, and not named."""
    domain = Domain({"born": 3000, "paid": 2000})
    found = wanted(domain, ["paid"], ("born",), 1e9, as_measured(), 12)
    assert (found.pairs, found.groups, found.left_out) == ([("born", "paid")], 64, [])
    assert found.told(domain) == {"groups": 64, "grouped": [("born", "paid")], "left_out": []}


def linked(sizes: tuple[int, int], links: int = 30_000, seed: int = 0) -> tuple[Domain, dict[str, Integers]]:
    """An attribute of links that follows one of a side, of many values each, and one that follows nothing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=links)
    y = 0.8 * x + 0.6 * rng.normal(size=links)
    codes = {
        name: np.clip((values + 3.5) / 7 * size, 0, size - 1).astype(np.int64)
        for name, values, size in zip("xy", (x, y), sizes, strict=True)
    }
    return Domain({"x": sizes[0], "other": 3, "y": sizes[1]}), codes | {"other": rng.integers(0, 3, links)}


def asked(domain: Domain, codes: dict[str, Integers], rho: float, bits: object) -> PrivateQueryable:
    """Their counts."""
    keys = np.ravel_multi_index([codes[name] for name in domain.attributes], domain.shape(domain.attributes))
    counts = Counts(domain, {domain.attributes: np.unique(keys, return_counts=True)})
    return PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=3, bits=bits)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [(300, 200), (40, 2000)])
def test_links_keep_what_attributes_of_many_values_have_in_common(sizes: tuple[int, int]) -> None:
    """Noise would drown single values, of which each has far less than one link's noise; the charge is spent, and no more."""
    domain, codes = linked(sizes)
    ends = {name: codes[name] for name in ("x", "other")}
    queryable = asked(domain, codes, 0.02, SeededEntropy(3))
    measured, chosen = measure_attributes(queryable, ["y"], 30_000, ends)
    assert 0 <= queryable.left < 1e-6
    told = chosen.told(domain)
    assert told["groups"] < min(max(sizes), 65)
    assert ("x", "y") in told["grouped"]
    (found,) = draw(measured, 30_000, ends, np.ones(30_000), np.random.default_rng(1))
    assert np.corrcoef(found, codes["x"])[0, 1] > 0.5 * np.corrcoef(codes["y"], codes["x"])[0, 1]
    assert abs(np.corrcoef(found, codes["other"])[0, 1]) < 0.05


def test_without_noise_a_pair_in_groups_is_the_residual_of_their_sums() -> None:
    domain, codes = linked((60, 50), 5000)
    ends = {name: codes[name] for name in ("x", "other")}
    measured, chosen = measure_attributes(asked(domain, codes, 0.03, NoNoise()), ["y"], 5000, ends)
    (pair,) = (pair for pair in measured["y"].pairs if pair.other == "x")
    group = measured["y"].group
    assert group is not None
    assert pair.group is not None
    assert max(group.max(), pair.group.max()) < chosen.groups < 50
    table = np.zeros(pair.table.shape, dtype=np.int64)
    np.add.at(table, (group[codes["y"]], pair.group[codes["x"]]), 1)
    np.testing.assert_allclose(pair.table, table - table.mean(0) - table.mean(1)[:, None] + table.mean(), atol=0.01)


def test_pairs_that_do_not_fit_into_memory_when_they_are_counted_are_left_out() -> None:
    """The largest ones: the others are measured as without them."""
    domain = Domain({"x": 5000, "y": 5000, "z": 2})
    pairs = pair_groups.candidates(domain, ["y"], ("x", "z"))
    assert pairs == [("y", "z"), ("x", "y")]
    assert countable(domain, pairs) == [("y", "z")]
