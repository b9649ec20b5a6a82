"""Empirical Bayes: each step against what it solves, and its limits of no noise and of nothing but noise."""

import itertools
import math

import cvxpy
import numpy as np
import pytest

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Identity
from duckdb_dp.reconstruct.fitted import Fitted, interaction, proportional, tilted
from duckdb_dp.reconstruct.grem import ResidualEstimates, centred, decompose
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement
from duckdb_dp.reconstruct.nonneg import Nonnegative
from duckdb_dp.reconstruct.postprocess import KINDS, postprocess
from duckdb_dp.reconstruct.tilting import product

DOMAIN = Domain({"a": 3, "b": 4, "one": 1, "c": 5, "d": 2})
PAIRS = list(itertools.combinations(DOMAIN.attributes, 2))
TRIPLES = list(itertools.combinations(DOMAIN.attributes, 3))


def mildly_dependent(seed: int) -> np.ndarray:
    """Counts near a product of skewed marginals, cells off by half."""
    rng = np.random.default_rng(seed)
    shares = np.ones(())
    for size in DOMAIN.sizes.values():
        shares = np.multiply.outer(shares, rng.dirichlet(np.full(size, 1.5)))
    cells = shares.reshape(-1) * rng.gamma(4.0, size=shares.size)
    return rng.multinomial(2_000, cells / cells.sum())


EXACT = mildly_dependent(11)


def truth(clique: Clique) -> np.ndarray:
    axes = tuple(i for i, name in enumerate(DOMAIN.attributes) if name not in clique)
    return np.asarray(EXACT.reshape(DOMAIN.shape(DOMAIN.attributes)).sum(axis=axes), dtype=float)


def noisy(clique: Clique, table: np.ndarray, variance: float) -> LinearMeasurement:
    return LinearMeasurement(clique=clique, strategy=Identity(table.size), answers=table.reshape(-1), variance=variance)


def measured(cliques: list[Clique], noise: float, seed: int = 1) -> list[LinearMeasurement]:
    rng = np.random.default_rng(seed)
    return [
        one
        for clique in cliques
        for one in decompose(
            DOMAIN, noisy(clique, truth(clique) + rng.normal(0, noise, DOMAIN.shape(clique)), noise**2)
        )
    ]


@pytest.mark.parametrize("strength", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_tilted_against_a_convex_solver(strength: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    prior, noisy, total = rng.dirichlet(np.ones(8)) * 100, rng.normal(12, 10, 8), 100.0
    mu = cvxpy.Variable(8)
    loss = cvxpy.sum_squares(mu - noisy) / 2 + strength * cvxpy.sum(cvxpy.kl_div(mu, prior))
    cvxpy.Problem(cvxpy.Minimize(loss), [cvxpy.sum(mu) == total]).solve(solver=cvxpy.CLARABEL)
    assert tilted(noisy, prior, strength, total) == pytest.approx(mu.value, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("strength", [1e-6, 1e-2, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_tilted_solves_every_cell(strength: float, scale: float) -> None:
    """mu - y + s log(mu / m) is the same number nu in every cell, whatever the sizes."""
    rng = np.random.default_rng(3)
    prior = rng.dirichlet(np.full(50, 0.2)) * 1_000 * scale + 1e-12
    noisy = prior + rng.normal(0, 30 * scale, 50)
    total = float(prior.sum())
    mu = tilted(noisy, prior, strength * scale, total)
    assert mu.sum() == pytest.approx(total)
    alive = mu > 1e-200
    nu = noisy[alive] - mu[alive] - strength * scale * np.log(mu[alive] / prior[alive])
    slack = (
        1e-4 * (np.abs(noisy[alive]) + strength * scale * (1 + np.abs(np.log(mu[alive] / prior[alive])))) + 1e-6 * scale
    )
    assert (np.abs(nu - np.median(nu)) <= slack).all()


def test_tilted_keeps_zeros_of_the_prior() -> None:
    found = tilted(np.array([5.0, 5.0, 5.0]), np.array([0.0, 4.0, 6.0]), 1.0, 10.0)
    assert found[0] == 0
    assert found.sum() == pytest.approx(10.0)


@pytest.mark.parametrize("theta", [0.3, 3.0, 30.0])
def test_interaction_is_estimated(theta: float) -> None:
    """Averaged over draws of the model, the estimate is near; at half or twice theta it would not be."""
    rng = np.random.default_rng(4)
    prior = np.outer(rng.dirichlet(np.ones(20)), rng.dirichlet(np.ones(20))) * 10_000
    found = []
    for _ in range(40):
        gap = centred(rng.normal(0, np.sqrt(theta * prior)) + rng.normal(0, 5.0, prior.shape))
        found.append(interaction(gap, prior, 25.0))
    assert np.mean(found) == pytest.approx(theta, rel=0.2)


def test_only_noise_is_no_interaction() -> None:
    rng = np.random.default_rng(5)
    prior = np.full((30, 30), 10.0)
    found = [interaction(centred(rng.normal(0, 20.0, prior.shape)), prior, 400.0) for _ in range(20)]
    assert sum(theta == 0 for theta in found) >= 5
    assert np.mean(found) < 2.5  # 400 / 10 is what the noise alone would look like


def test_proportional_reaches_its_margins() -> None:
    targets = [(pair, truth(pair)) for pair in itertools.combinations(("a", "b", "c"), 2)]
    found = proportional(np.ones((3, 4, 5)), ("a", "b", "c"), targets, 200)
    for axis, (_, margin) in zip((2, 1, 0), targets, strict=True):
        assert np.abs(found.sum(axis=axis) - margin).sum() < 3e-3 * 2_000


@pytest.mark.parametrize("cliques", [PAIRS, TRIPLES, [DOMAIN.attributes], [("a", "b", "c", "d"), ("d",), ()]])
def test_without_noise_it_is_the_truth(cliques: list[Clique]) -> None:
    read = postprocess("fitted", DOMAIN, cliques, measured(cliques, 1e-6))
    for clique in cliques:
        assert np.abs(read(clique) - truth(clique)).sum() < 0.02 * 2_000


def test_with_nothing_but_noise_it_is_the_product() -> None:
    singles = [(name,) for name in DOMAIN.attributes]
    weak = [residual_measurement(DOMAIN, p, truth(p), 1e12) for p in PAIRS if "one" not in p]
    read = postprocess("fitted", DOMAIN, TRIPLES, [*measured(singles, 1e-6), *weak])
    for clique in TRIPLES:
        product = np.asarray(2_000.0)
        for name in clique:
            product = np.multiply.outer(product, truth((name,)) / 2_000)
        assert read(clique) == pytest.approx(product, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("cliques", [PAIRS, TRIPLES, [("a", "b", "c", "d")]])
def test_counts_are_not_negative_and_agree(cliques: list[Clique]) -> None:
    noisy = measured(cliques, 15.0)
    read = postprocess("fitted", DOMAIN, cliques, noisy)
    total = max(float(next(iter(ResidualEstimates.of(DOMAIN, noisy).values[()].reshape(-1)))), 0.0)
    said: dict[str, list[np.ndarray]] = {}
    for clique in cliques:
        found = read(clique)
        assert (found >= 0).all()
        assert found.sum() == pytest.approx(total, rel=1e-2)
        for axis, name in enumerate(clique):
            said.setdefault(name, []).append(found.sum(axis=tuple(i for i in range(len(clique)) if i != axis)))
    for found in said.values():
        assert all(np.abs(x - found[0]).sum() < 0.02 * total for x in found)


def test_it_is_nearer_than_the_unbiased() -> None:
    errors = []
    for kind in KINDS:
        read = postprocess(kind, DOMAIN, TRIPLES, measured(TRIPLES, 20.0))
        errors.append(sum(np.abs(read(clique) - truth(clique)).sum() for clique in TRIPLES))
    assert errors[2] < errors[1] < errors[0]


def test_larger_marginals_use_measured_larger_residuals() -> None:
    """A parity that no pair shows: only a measured triple tells a marginal of four attributes of it."""
    domain = Domain({"a": 2, "b": 2, "c": 2, "d": 2})
    table = np.array([1 + (-1) ** sum(cell) for cell in itertools.product(range(2), repeat=3)]).reshape(2, 2, 2) * 100.0
    four = np.repeat(table[..., None] / 2, 2, axis=3)
    parts = list(decompose(domain, noisy(("a", "b", "c"), table, 1.0)))
    with_triple = Fitted.fit(ResidualEstimates.of(domain, parts), [("a", "b", "c", "d")])
    without = Fitted.fit(
        ResidualEstimates.of(domain, [one for one in parts if len(one.clique) < 3]), [("a", "b", "c", "d")]
    )
    far, near = (np.abs(f.marginal(("a", "b", "c", "d")) - four).sum() / 800 for f in (without, with_triple))
    assert far == pytest.approx(1.0, abs=0.05)
    assert near < 0.05


def test_what_the_prior_is_wrong_of_is_read_from_the_counts() -> None:
    """Triples with a few full cells, which pairs do not point to, and triples that pairs say all of: near the better reading of both."""
    domain = Domain(dict.fromkeys("abc", 6))
    rng = np.random.default_rng(2)
    cells = rng.permutation(216)[:12]
    few = np.bincount(cells, rng.uniform(20, 200, 12), minlength=216).reshape(6, 6, 6)
    even = product({(name,): rng.dirichlet(np.ones(6)) * 1000 for name in "abc"}, ("a", "b", "c"), 1000.0)
    for table in (few, even):
        errors = np.zeros(3)
        for _ in range(4):
            parts = ResidualEstimates.of(
                domain, decompose(domain, noisy(("a", "b", "c"), table + rng.normal(0, 8, table.shape), 64.0))
            )
            wanted = [("a", "b", "c")]
            counts = Nonnegative.fit(parts, wanted, memory=math.inf)
            judged = Fitted.fit(parts, wanted)
            for i, read in enumerate((judged, Fitted(components=parts, estimate=judged.estimate), counts)):
                errors[i] += np.abs(read.marginal(("a", "b", "c")) - table).sum()
        assert errors[0] < 1.1 * min(errors[1:])


@pytest.mark.parametrize("total", [-3.0, 0.0])
def test_no_rows(total: float) -> None:
    parts = [
        residual_measurement(DOMAIN, (), np.array(total), 1.0),
        residual_measurement(DOMAIN, ("a", "b"), np.ones((3, 4)), 1.0),
    ]
    read = postprocess("fitted", DOMAIN, [("a", "b"), ("a",), (), ("a", "b", "c")], parts)
    assert not any(read(clique).any() for clique in ((), ("a",), ("a", "b"), ("a", "b", "c")))


def test_an_unknown_kind() -> None:
    with pytest.raises(DPError, match="'rounded' is not known; use 'unbiased', 'nonnegative' or 'fitted'"):
        postprocess("rounded", DOMAIN, PAIRS, [])


def test_unbiased_is_as_measured() -> None:
    noisy = measured([("a", "b")], 10.0)
    read = postprocess("unbiased", DOMAIN, [("a", "b")], noisy)
    assert read(("a", "b")) == pytest.approx(ResidualEstimates.of(DOMAIN, noisy).marginal(("a", "b")))
    assert math.isfinite(float(read(())))
