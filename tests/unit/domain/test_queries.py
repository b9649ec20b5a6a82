"""Every family of queries against its rows, made one by one."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.queries import MAX_CELLS, Intervals, Predicates, Queries, parse_kind, parse_pair
from duckdb_dp.domain.workload import MAX_JOINT_CELLS, Workload
from duckdb_dp.errors import DPError


def levels(n: int, fan: int) -> list[set[int]]:
    """All nodes of the tree, each interval once."""
    width, found = 1, []
    while True:
        found += [set(range(start, min(start + width, n))) for start in range(0, n, width)]
        if width >= n:
            return [node for i, node in enumerate(found) if node not in found[:i]]
        width *= fan


def brute_force(kind: str, n: int) -> list[set[int]]:
    """The cells of each query, in order."""
    name, _, number = kind.partition("-")
    return {
        "identity": lambda: [{i} for i in range(n)],
        "total": lambda: [set(range(n))],
        "prefix": lambda: [set(range(i + 1)) for i in range(n)],
        "suffix": lambda: [set(range(i, n)) for i in range(n)],
        "range": lambda: [set(range(i, j + 1)) for i in range(n) for j in range(i, n)],
        "circular": lambda: [{(i + k) % n for k in range(size)} for i in range(n) for size in range(1, n + 1)],
        "width": lambda: [set(range(i, i + int(number))) for i in range(n - int(number) + 1)],
        "hierarchy": lambda: levels(n, int(number or 2)),
    }[name]()


@st.composite
def kinds(draw: st.DrawFn) -> tuple[str, int]:
    n = draw(st.integers(1, 12))
    plain = st.sampled_from(["identity", "total", "prefix", "suffix", "range", "circular", "hierarchy"])
    kind = draw(
        st.one_of(plain, st.integers(1, n).map("width-{}".format), st.integers(2, 5).map("hierarchy-{}".format))
    )
    return kind, n


@settings(max_examples=150, derandomize=True, deadline=None)
@given(asked=kinds(), axis=st.integers(0, 2), seed=st.integers(0, 9))
def test_intervals(asked: tuple[str, int], axis: int, seed: int) -> None:
    kind, n = asked
    queries = parse_kind(kind, n)
    expected = np.array([[cell in query for cell in range(n)] for query in brute_force(kind, n)], dtype=float)
    check(queries, expected, np.ones(len(expected)), axis, seed)
    first, last = queries.bounds()
    for query, a, b in zip(brute_force(kind, n), first, last, strict=True):
        assert query == ({*range(a, b + 1)} if a <= b else {*range(a, n), *range(b + 1)})


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    m=st.integers(1, 6), n=st.integers(1, 6), axis=st.integers(0, 2), seed=st.integers(0, 99), weighted=st.booleans()
)
def test_matrices(m: int, n: int, axis: int, seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    matrix, weights = rng.normal(size=(m, n)), rng.random(m) + 0.1
    queries = Predicates.of(matrix.tolist(), weights if weighted else None)
    check(queries, matrix, weights if weighted else np.ones(m), axis, seed)
    assert queries.bounds() is None


def check(queries: Queries, expected: np.ndarray, weights: np.ndarray, axis: int, seed: int) -> None:
    assert (queries.count, queries.n) == expected.shape
    np.testing.assert_array_equal(queries.dense(), expected)
    np.testing.assert_array_equal(queries.weights(), weights)
    np.testing.assert_allclose(queries.gram(), expected.T @ (weights[:, None] * expected), atol=1e-12)
    np.testing.assert_allclose(queries.means(), expected.mean(axis=1), atol=1e-15)
    shape = [2, 3, 2]
    shape[axis] = queries.n
    table = np.random.default_rng(seed).normal(size=shape)
    answers = np.moveaxis(np.tensordot(expected, table, axes=(1, axis)), 0, axis)
    np.testing.assert_allclose(queries.answers(table, axis), answers, atol=1e-12)
    np.testing.assert_allclose(queries.answers(table, axis - 3), answers, atol=1e-12)


@pytest.mark.parametrize("kind", ["prefix", "suffix", "range", "circular", "width-300"])
def test_gram_matrices_without_the_rows(kind: str) -> None:
    """Closed forms; all ranges of 2,000 cells would be two million rows of 16 kB."""
    n, i = 2000, np.arange(2000)
    low, high = np.minimum.outer(i, i), np.maximum.outer(i, i)
    apart = (high - low).astype(float)
    expected = {
        "prefix": n - high,
        "suffix": low + 1,
        "range": (low + 1.0) * (n - high),
        # Arcs of s cells that hold both: max(0, s - d) + max(0, s - (n - d)), summed over s.
        "circular": ((n - apart) * (n - apart + 1) + apart * (apart + 1)) / 2,
        "width-300": np.maximum(np.minimum(low, n - 300) - np.maximum(high - 299, 0) + 1, 0),
    }[kind]
    np.testing.assert_array_equal(parse_kind(kind, n).gram(), expected)


def test_predicates_are_equal_when_their_content_is() -> None:
    matrix = [[1, 0, 1]]
    assert Predicates.of(matrix) == Predicates.of(np.array(matrix, dtype=float))
    assert hash(Predicates.of(matrix)) == hash(Predicates.of(matrix, [1.0]))
    assert Predicates.of(matrix) != Predicates.of(matrix, [2.0])
    assert Predicates.of([[1, 0, 1]]) != Predicates.of([[1], [0], [1]])
    assert parse_kind("range", 5) == parse_kind("range", 5) != parse_kind("range", 6)
    assert "matrix" not in repr(Predicates.of(matrix))


@pytest.mark.parametrize(("sizes", "seed"), [((3, 4), 0), ((4, 3), 1), ((1, 5), 2), ((6, 6), 3)])
def test_pairs(sizes: tuple[int, int], seed: int) -> None:
    cells = list(itertools.product(*map(range, sizes)))
    affine = [[a + b <= c for a, b in cells] for c in range(sum(sizes) - 1)]
    apart = [[abs(a - b) <= c for a, b in cells] for c in range(max(sizes))]
    np.testing.assert_array_equal(parse_pair("affine", sizes).dense(), affine)
    np.testing.assert_array_equal(parse_pair("abs", sizes).dense(), apart)
    weights = np.random.default_rng(seed).random(len(apart)) + 1
    np.testing.assert_array_equal(parse_pair("abs", sizes, weights).weights(), weights)
    np.testing.assert_array_equal(parse_pair(apart, sizes).dense(), apart)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("rnage", "query kind 'rnage' is not known; use identity, total"),
        ("width", "'width' needs a number of cells, e.g. 'width-7'"),
        ("width-0", "'width-0' does not fit 4 cells; the width is 1 to 4"),
        ("width-5", "'width-5' does not fit 4 cells"),
        ("hierarchy-1", "'hierarchy-1' has no levels; the fan-out is at least 2"),
        ("hierarchy-x", "query kind 'hierarchy-x' is not known"),
        ([], "give at least one row of finite numbers"),
        ([[]], "give at least one row of finite numbers"),
        ([[1, 0, 1]], "the matrix has 3 columns and the attribute 4 cells; give one column per cell"),
        ([[1, 0], [1]], "the matrix is not a rectangle of numbers"),
        ([["a", "b", "c", "d"]], "the matrix is not a rectangle of numbers"),
        ([[1, 0, 1, float("nan")]], "give at least one row of finite numbers"),
        ([[1, 0, 1, float("inf")]], "give at least one row of finite numbers"),
        ([[[1, 0, 1, 0]]], "a matrix of shape"),
        (Intervals("range", 5), "queries on 5 cells were given for an attribute of 4"),
        (None, "give at least one row of finite numbers"),
    ],
)
def test_bad_kinds(kind: object, says: str) -> None:
    refused(says, lambda: parse_kind(kind, 4))
    refused(says, lambda: Workload.product(Domain({"x": 4}), {"x": kind}))


@pytest.mark.parametrize(
    "weights",
    [[1.0], [1, 2, 3], [0, 1], [-1, 1], [float("nan"), 1], [float("inf"), 1], ["a", "b"], [[1, 2]], [None, 1]],
)
def test_bad_weights(weights: list) -> None:
    if len(weights) == 1 and np.ndim(weights) == 1:
        assert Predicates.of(np.eye(2), weights).weights().tolist() == [1, 1]
        return
    refused("weights are positive and finite, one per query", lambda: Predicates.of(np.eye(2), weights))
    refused("weights are positive and finite, one per query", lambda: parse_pair(np.eye(4)[:2], (2, 2), weights))


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), True, "1"])
def test_bad_weight_of_a_set(weight: object) -> None:
    domain = Domain({"x": 4, "y": 2})
    refused("weights are positive and finite", lambda: Workload.product(domain, {"x": "range"}, weight))
    if not isinstance(weight, str):
        refused("weights are positive and finite", lambda: Workload.predicates(domain, ("x", "y"), "affine", weight))


def test_bad_pairs() -> None:
    domain = Domain({"x": 4, "y": 2, "z": 300, "w": 300})
    refused("'range' on 2 attributes is not known", lambda: Workload.predicates(domain, ("x", "y"), "range"))
    refused("'affine' on 1 attributes is not known", lambda: Workload.predicates(domain, ("x",), "affine"))
    refused("'abs' on 3 attributes is not known", lambda: Workload.predicates(domain, ("x", "y", "z"), "abs"))
    refused(
        "the matrix has 7 columns and the attributes 8 cells",
        lambda: Workload.predicates(domain, ("x", "y"), np.ones((1, 7))),
    )
    refused(
        "name the attributes in the domain's order", lambda: Workload.predicates(domain, ("y", "x"), np.ones((1, 8)))
    )
    refused(
        f"has 90,000 cells and queries that are no products are planned up to {MAX_JOINT_CELLS:,}",
        lambda: Workload.predicates(domain, ("z", "w"), "abs"),
    )
    refused("unknown attribute 'q'", lambda: Workload.predicates(domain, ("x", "q"), "abs"))
    refused("unknown attribute 'q'", lambda: Workload.product(domain, {"q": "range"}))
    refused("unknown attribute 'q'", lambda: Workload.all_k_way(domain, 2, kinds={"q": "range"}))
    refused(
        "only workloads over the same domain can be united",
        lambda: Workload.product(domain, {}) + Workload.product(Domain({"x": 4}), {}),
    )
    assert Workload.predicates(domain, ("y", "x"), "affine").parts[0].clique == ("x", "y")  # the same either way round


def test_too_many_cells_for_a_strategy() -> None:
    queries = parse_kind("prefix", MAX_CELLS + 1)
    assert queries.count == MAX_CELLS + 1
    refused("strategies are planned up to 8,192 cells of one attribute; declare coarser bins", queries.gram)


def test_counting_queries() -> None:
    domain = Domain({"x": 4, "y": 3})
    workload = (
        Workload.product(domain, {"x": "range", "y": "circular"})
        + Workload.predicates(domain, ("x", "y"), "affine")
        + Workload.product(domain, {})
    )
    assert [part.shape for part in workload.parts] == [(10, 9), (6,), ()]
    assert workload.queries == 90 + 6 + 1
    assert [part.is_marginal for part in workload.parts] == [False, False, True]
    assert not (Workload.product(domain, {"x": "identity"}) + Workload.product(domain, {"x": "identity"})).is_marginals
    assert Fraction(workload.queries) == 97


def refused(says: str, call) -> None:
    with pytest.raises(DPError) as caught:
        call()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
