"""Lower bounds against dense singular values, and against strategies that know nothing of them."""

import functools

import numpy as np
import pytest

from duckdb_dp.domain.disjunctions import Disjunctions
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.queries import Intervals
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.plan.energies import marginals_bound
from duckdb_dp.plan.hdmm import hdmm, hdmm_pure
from duckdb_dp.plan.hdmm.bounds import least_error, pinched_bound, svd_bound

D = Domain({"a": 4, "b": 3, "c": 2})


def rows(part: Part) -> np.ndarray:
    queries = dict(zip(part.clique, part.queries, strict=True)) if not part.joint else {}
    if part.joint:
        shape = [D.sizes[name] if name in part.clique else 1 for name in D.attributes]
        table = part.queries[0].dense().reshape(-1, *shape)
        return np.broadcast_to(table, (len(table), *D.sizes.values())).reshape(len(table), -1)
    factors = (queries[name].dense() if name in queries else np.ones((1, n)) for name, n in D.sizes.items())
    return functools.reduce(np.kron, factors)


def weighted(workload: Workload) -> np.ndarray:
    return np.concatenate([np.sqrt(part.weight) * rows(part) for part in workload.parts])


def singular(matrix: np.ndarray) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False).sum() ** 2 / matrix.shape[1])


def or_(*names: str) -> Workload:
    """Prefixes of some attributes or of others, never as a matrix."""
    families = [Intervals("prefix", D.sizes[name]) for name in names]
    return Workload(D, (Part(names, (Disjunctions.of(families),), joint=True),))


WORKLOADS = {
    "marginals": Workload.marginals(D, [("a", "b"), ("c",), ("b", "c"), ()], [1.0, 3.0, 0.5, 2.0]),
    "a product": Workload.product(D, {"a": "prefix", "b": "range", "c": "identity"}),
    "a product in four parts": Workload.all_k_way(D, 3, upto=True, kinds={"a": "prefix"}) + Workload.product(D, {}),
    "a mix": Workload.product(D, {"a": "prefix"}) + Workload.product(D, {"b": "range", "c": "identity"}, 2.0),
    "pairs": Workload.all_k_way(D, 2, kinds={"a": "prefix", "b": "range"}, upto=True),
    "kinds apart": Workload.product(D, {"a": "prefix"}, 3.0) + Workload.product(D, {"a": "identity", "b": "prefix"}),
    "constants outside": (Workload.product(D, {"a": "prefix", "c": [[0.5, 0.5]]}) + Workload.product(D, {"a": "range", "b": "prefix"})),
    "disjunctions": or_("a", "c") + Workload.product(D, {"a": "range"}, 0.3) + or_("a", "b"),
    "a joint part": Workload.predicates(D, ("a", "c"), "abs") + Workload.marginals(D, [("b",)]),
}  # fmt: skip


@pytest.mark.parametrize("name", ["marginals"])
def test_the_bound_of_marginals_is_the_svd_bound(name: str) -> None:
    """[HDMM18] Theorem 12."""
    workload = WORKLOADS[name]
    assert marginals_bound(workload.parts, D) == pytest.approx(singular(weighted(workload)), rel=1e-9)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_pinched_bound_is_below_the_singular_values(name: str) -> None:
    """With equal weights for all cells; it attains them for marginals, and beats the sum of the parts' for unions."""
    workload = WORKLOADS[name]
    found = pinched_bound(workload.parts, D, D.attributes, svd_bound, 100)
    assert 0 < found <= singular(weighted(workload)) * (1 + 1e-9)
    if name == "marginals":
        assert found == pytest.approx(singular(weighted(workload)), rel=1e-9)
    if name in ("pairs", "kinds apart", "a mix"):
        each = sum(singular(weighted(Workload(D, (part,)))) for part in workload.parts)
        assert found > each
        assert found > 0.75 * singular(weighted(workload))


@pytest.mark.parametrize("name", ["a product", "a product in four parts"])
def test_the_bound_of_products_is_the_svd_bound(name: str) -> None:
    """[HDMM18] Theorem 5, also where the product is not asked for as one."""
    workload = WORKLOADS[name]
    found = least_error(workload.parts, D, D.attributes, svd_bound, 100)
    assert found == pytest.approx(singular(weighted(workload)), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_no_strategy_is_below_the_bound(name: str) -> None:
    workload, rng = WORKLOADS[name], np.random.default_rng(3)
    queries = weighted(workload)
    gram = queries.T @ queries
    gaussian, pure = hdmm(workload, 1.0), hdmm_pure(workload, 1.0)
    bounds = {2: gaussian.lower_bound**2 * workload.queries, 1: pure.lower_bound**2 * workload.queries / 2}
    strategies = [
        np.eye(24),
        queries,
        *(rng.normal(size=(30, 24)) for _ in range(20)),
        *(rng.random((30, 24)) for _ in range(20)),
    ]
    values, vectors = np.linalg.eigh(gram)
    strategies.append(
        (vectors * np.maximum(values, 1e-9) ** 0.25).T
    )  # the singular vectors: best without the constraint
    for strategy in strategies:
        error = float(np.trace(gram @ np.linalg.pinv(strategy.T @ strategy, rcond=1e-10, hermitian=True)))
        for order, bound in bounds.items():
            sensitivity = float((np.abs(strategy) ** order).sum(axis=0).max()) ** (1 / order)
            assert bound <= error * sensitivity**2 * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a mix", "disjunctions"])
def test_dense_optimum_for_gaussian_noise(name: str) -> None:
    """All operators but the dense one stay above its certificate; on so few cells it is what is taken, or as good."""
    import cvxpy

    workload = WORKLOADS[name]
    queries = weighted(workload)
    root = np.linalg.qr(queries, "r").T if len(queries) > 24 else queries.T
    n, r = root.shape
    x, v = cvxpy.Variable((r, r), symmetric=True), cvxpy.Variable((n, n), symmetric=True)
    constraints = [cvxpy.bmat([[x, root.T], [root, v]]) >> 0, cvxpy.diag(v) <= 1]
    optimum = float(cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(x)), constraints).solve(solver=cvxpy.CLARABEL))
    plan = hdmm(workload, 1.0)
    assert plan.lower_bound**2 * workload.queries <= optimum * (1 + 1e-3)
    assert plan.total <= optimum * (1 + 1e-2)
