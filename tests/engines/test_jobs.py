"""What is counted together: every marginal in a block, few blocks in a pass, by the sizes of the domain."""

import itertools
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.counting.engines import spark
from duckdb_dp.counting.engines.jobs import MOST_BLOCKS, jobs
from duckdb_dp.domain.domain import Domain
from duckdb_dp.errors import DPError


def pairs(domain: Domain) -> tuple[tuple[str, ...], ...]:
    return tuple(itertools.combinations(domain.attributes, 2))


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, 10, 100, 5000]), min_size=1, max_size=12), st.data())
def test_every_marginal_is_in_a_block(sizes: list[int], data: st.DataObject) -> None:
    domain = Domain({f"c{i}": size for i, size in enumerate(sizes)})
    clique = st.sets(st.sampled_from(domain.attributes), max_size=3).map(domain.clique)
    cliques = tuple(data.draw(st.lists(clique, min_size=1, max_size=40)))
    passes = jobs(domain, cliques)
    counted = [block for job in passes for block in job]
    assert all(any(set(clique) <= set(block) for block in counted) for clique in cliques)
    assert all(1 <= len(job) <= MOST_BLOCKS for job in passes)
    assert len(set(counted)) == len(counted)
    assert counted == [domain.attributes] or sum(map(domain.cells, counted)) < 2**31  # keys are int32
    assert jobs(domain, cliques[::-1]) == passes


def test_many_small_pairs_share_one_pass_and_large_ones_are_not_merged() -> None:
    small = Domain({f"c{i}": size for i, size in enumerate((9, 16, 7, 15, 6, 5, 2, 42, 10, 10, 20, 12, 8, 3, 30))})
    (only,) = jobs(small, pairs(small))
    assert len(only) < len(pairs(small)) / 2
    large = Domain({f"c{i}": 1000 for i in range(5)})
    (only,) = jobs(large, pairs(large))
    assert set(only) == set(pairs(large))


def test_what_is_missing_for_spark_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ibis", None)
    with pytest.raises(DPError, match=r"pip install 'duckdb-dp\[spark\]'"):
        spark.connect()


@pytest.mark.spark
def test_missing_java_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(DPError, match="openjdk-17-jre-headless"):
        spark.connect()
