"""Which blocks are counted: every marginal can be summed from one, and the choice sees nothing but the domain."""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import duckdb_dp
from duckdb_dp.counting.counts import MERGED_CELLS, blocks, cover, passes
from duckdb_dp.domain.domain import Clique, Domain

NAMES = "abcdefghij"


@st.composite
def requests(draw: st.DrawFn) -> tuple[Domain, tuple[Clique, ...]]:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 10, 100, 1000, 200_000]), min_size=1, max_size=7))
    domain = Domain(dict(zip(NAMES, sizes, strict=False)))
    clique = st.sets(st.sampled_from(domain.attributes), max_size=4).map(domain.clique)
    return domain, tuple(draw(st.lists(clique, min_size=1, max_size=20)))


@pytest.mark.slow
@settings(max_examples=300, derandomize=True, deadline=None)
@given(requests())
def test_every_marginal_is_within_a_block(request: tuple[Domain, tuple[Clique, ...]]) -> None:
    domain, cliques = request
    blocks = cover(domain, cliques)
    for clique in cliques:
        assert any(set(clique) <= set(block) for block in blocks)
    for block in blocks:
        assert block == domain.clique(block)
        assert domain.cells(block) <= MERGED_CELLS or block in cliques
    assert len(set(blocks)) == len(blocks) <= len(set(cliques))
    assert cover(domain, cliques) == blocks


def test_many_small_pairs_share_blocks_and_large_ones_do_not() -> None:
    small = Domain({f"x{i:02}": 2 + i % 7 for i in range(15)})
    pairs = tuple(itertools.combinations(small.attributes, 2))
    blocks = cover(small, pairs)
    assert len(blocks) <= 25
    assert math.fsum(passes(small.cells(b)) for b in blocks) < math.fsum(passes(small.cells(p)) for p in pairs) / 2
    large = Domain({f"x{i}": 1000 for i in range(6)})
    pairs = tuple(itertools.combinations(large.attributes, 2))
    assert sorted(cover(large, pairs)) == sorted(pairs)


def test_subsets_need_no_block_of_their_own() -> None:
    domain = Domain({"a": 500, "b": 400, "c": 3})
    assert cover(domain, ((), ("a",), ("a", "b"), ("b",))) == (("a", "b"),)
    assert cover(domain, ((),)) == ((),)
    assert cover(domain, ((), ("c",))) == (("c",),)


def test_one_pass_costs_more_the_more_cells_it_has() -> None:
    assert passes(1) == passes(256) == 1
    costs = [passes(2**k) for k in range(8, 30)]
    assert costs == sorted(costs)
    assert abs(passes(90_000) / passes(256) - 160 / 35) < 0.6  # as it was measured


@pytest.mark.slow
def test_the_choice_does_not_depend_on_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import itertools; from duckdb_dp.counting.counts import blocks, cover; from duckdb_dp.domain.domain import Domain;"
        "d = Domain({f'x{i}': 2 + i * 7 % 11 for i in range(12)});"
        "print(cover(d, tuple(itertools.combinations(d.attributes, 3)) + tuple(itertools.combinations(d.attributes, 2))))"
    )
    root = str(Path(duckdb_dp.__file__).parents[1])
    printed = {
        subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_many_marginals_are_summed_from_the_distinct_rows() -> None:
    few = Domain(dict.fromkeys("abcdef", 3))
    pairs = tuple(itertools.combinations("abcdef", 2))
    assert blocks(few, pairs) == cover(few, pairs)
    many = Domain({f"x{i:02}": 2 for i in range(25)})
    triples = tuple(itertools.combinations(many.attributes, 3))
    assert blocks(many, triples) == (many.attributes,)  # 2,300 marginals
    large = Domain(dict.fromkeys("abcd", 500))
    assert blocks(large, (("a", "b", "c"), ("d",))) == (large.attributes,)  # 125 million cells
