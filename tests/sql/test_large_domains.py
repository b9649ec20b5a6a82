"""Domains that are too large: what fits is made within a known amount of memory, the rest is refused before any charge."""

import tracemalloc
from typing import Any

import pytest

from duckdb_dp.adaptive.candidates import HELD_PAIRS, LARGEST_MARGINAL
from duckdb_dp.domain.domain import Domain
from duckdb_dp.synthesis.links.measure_attributes import COUNTED, HELD, countable
from duckdb_dp.synthesis.links.pair_groups import candidates

pytestmark = pytest.mark.slow

TABLES = """
CREATE TABLE wide AS SELECT i % 50000 AS a, i * 7 % 10000 AS b, i % 3 AS c, i % 5 AS d FROM range(2000) t(i);
CREATE TABLE middling AS SELECT i % 1000 AS a, i * 7 % 1000 AS b, i % 1000 AS c, i % 50 AS d FROM range(1000) t(i);
CREATE TABLE ones (id INTEGER PRIMARY KEY, a INTEGER); CREATE TABLE others (id INTEGER PRIMARY KEY, b INTEGER, c INTEGER);
CREATE TABLE pairs (one INTEGER REFERENCES ones (id), other INTEGER REFERENCES others (id), stars INTEGER, PRIMARY KEY (one, other));
INSERT INTO ones SELECT i, i * 7 % 2000 FROM range(40) t(i); INSERT INTO others SELECT i, i * 3 % 2000, i % 9 FROM range(30) t(i);
INSERT INTO pairs SELECT i % 40, i % 30, i % 5000 FROM range(120) t(i); CREATE TABLE ties AS FROM pairs;
"""
PROTECTED = """
CALL dp_protect('wide', rho := 1000); CALL dp_attribute('wide', 'a', low := 0, high := 49999);
CALL dp_attribute('wide', 'b', low := 0, high := 9999); CALL dp_attribute('wide', 'c', low := 0, high := 2);
CALL dp_attribute('wide', 'd', low := 0, high := 4);
CALL dp_protect('middling', rho := 1000); CALL dp_attribute('middling', 'a', low := 0, high := 4999);
CALL dp_attribute('middling', 'b', low := 0, high := 4999); CALL dp_attribute('middling', 'c', low := 0, high := 4999);
CALL dp_attribute('middling', 'd', low := 0, high := 49);
CALL dp_protect('ones', rho := 1000); CALL dp_protect('others', rho := 1000);
CALL dp_protect('pairs', unit := 'one', max_rows := 5, rho := 1000); CALL dp_public('others', links := 'pairs');
CALL dp_attribute('ones', 'a', low := 0, high := 1999); CALL dp_attribute('others', 'b', low := 0, high := 1999);
CALL dp_attribute('others', 'c', low := 0, high := 8); CALL dp_attribute('pairs', 'stars', low := 0, high := 4999);
CALL dp_protect('ties', unit := ['one', 'other'], max_rows := 9, rho := 1000); CALL dp_attribute('ties', 'stars', low := 0, high := 4999);
CALL dp_link('ties', "references" := {'one': 'ones.id', 'other': 'others.id'});
CREATE TABLE ones_syn AS FROM dp_synthesize('ones', rho := 10); CREATE TABLE others_syn AS FROM dp_synthesize('others', rho := 10);
"""
SIDES = "synthetic := {'ones': 'ones_syn', 'others': 'others_syn'}"


@pytest.fixture(scope="module")
def large(shared: Any) -> Any:
    """Tables of few rows over large domains."""
    shared(TABLES)
    shared(PROTECTED)
    return shared


@pytest.mark.parametrize(
    ("call", "most"),
    [
        ("dp_synthesize('wide', rho := 1)", 400),
        (f"dp_links('pairs', {SIDES}, rho := 1)", 400),
        (f"dp_links('ties', {SIDES}, rho := 1)", 600),
    ],
)
def test_what_is_made_stays_within_memory(large: Any, call: str, most: int) -> None:
    """Pairs of 500 million cells are never looked at; of 10 million with an attribute of links groups are, of two units by their cells."""
    tracemalloc.start()
    try:
        assert large(f"SELECT count(*) > 0 FROM {call}") == [(True,)]
        assert tracemalloc.get_traced_memory()[1] < most * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            "dp_marginals('wide', 'all 2-way', mechanism := 'aim', rho := 1)",
            f"the marginal of a, b has 500,000,000 cells, and up to {LARGEST_MARGINAL:,} fit into memory (3.2 GiB); "
            f"max_cells := {LARGEST_MARGINAL} leaves it out",
        ),
        ("dp_marginals('wide', 'all 2-way', mechanism := 'neyman', rho := 1)", f"max_cells := {LARGEST_MARGINAL} leaves it out"),
        (
            "dp_marginals('middling', 'all 2-way', mechanism := 'neyman', rho := 1)",
            f"up to {HELD_PAIRS:,} fit into memory (3 GiB); max_cells := 24999999 leaves the largest out",
        ),
        ("dp_links('pairs', SIDES, method := 'paper', rho := 1)", "all have too many values; use 'auto'"),
    ],
)  # fmt: skip
def test_what_would_not_fit_is_refused_before_the_charge(large: Any, call: str, said: str) -> None:
    assert said in large.refused(f"FROM {call.replace('SIDES', SIDES)}")


def test_the_limit_that_an_error_names_works(large: Any) -> None:
    call = "dp_marginals('middling', 'all 2-way', mechanism := 'neyman', max_cells := 24999999, rho := 1)"
    assert large(f"EXPLAIN FROM {call}")


def test_pairs_of_an_attribute_of_links_fit_into_memory() -> None:
    sizes = {"own": 1000, **{f"x{i}": 1000 for i in range(50)}, "y": 10, "z": 100_000}
    found = countable(Domain(sizes), candidates(Domain(sizes), ["own"], tuple(sizes)[1:]))
    cells = [Domain(sizes).cells(pair) for pair in found]
    assert (("own", "y") in found, ("own", "z") in found) == (True, False)
    assert max(cells) <= COUNTED
    assert sum(cells) <= HELD
    assert len(found) == 34


def test_more_than_a_thousand_query_sets(exact: Any) -> None:
    """More than the expressions that DuckDB 1.4 reads nested in one another."""
    columns = [f"c{i}" for i in range(46)]
    exact(
        f"CREATE TABLE many AS SELECT {', '.join(f'i * {k + 1} % 60 AS {c}' for k, c in enumerate(columns))} FROM range(50) t(i)"
    )
    exact("CALL dp_protect('many', rho := 1e9)")
    for column in columns:
        exact(f"CALL dp_attribute('many', '{column}', low := 0, high := 59)")
    found = exact("SELECT count(DISTINCT marginal), sum(count) FROM dp_marginals('many', 'all 2-way', rho := 1e8)")
    assert found[0][0] == 46 * 45 // 2 > 1000
    assert found[0][1] == pytest.approx(1035 * 50, abs=1)
    selects = ", ".join(f"'SELECT count(*) AS n FROM many WHERE c{i % 46} = {i // 46}'" for i in range(1001))
    assert exact(f"SELECT count(*) FROM dp_sql([{selects}], rho := 1e8)") == [(1001,)]
