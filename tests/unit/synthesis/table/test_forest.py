import itertools

import numpy as np
import pytest

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Centring
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.table.forest import Forest, candidates


def chain(sizes: dict[str, int], rng: np.random.Generator) -> Array:
    """A full table in which each attribute depends on the one before alone; total 1000."""
    table = rng.dirichlet(np.ones(next(iter(sizes.values()))))
    for n in list(sizes.values())[1:]:
        table = table[..., None] * rng.dirichlet(np.ones(n), size=table.shape[-1])
    return 1000 * table


def sums(domain: Domain, table: Array, clique: Clique) -> Array:
    return np.asarray(table.sum(axis=tuple(i for i, name in enumerate(domain.attributes) if name not in clique)))


def residual(domain: Domain, table: Array, clique: Clique, variance: float = 1e-12) -> LinearMeasurement:
    strategy = Centring(domain.shape(clique))
    return LinearMeasurement(
        clique=clique,
        strategy=strategy,
        answers=strategy.matvec(sums(domain, table, clique).reshape(-1)),
        variance=variance,
    )


@pytest.fixture
def domain() -> Domain:
    return Domain({"a": 3, "b": 4, "c": 2, "d": 5})


@pytest.fixture
def table(domain: Domain) -> Array:
    return chain(dict(domain.sizes), np.random.default_rng(3))


@pytest.fixture
def forest(domain: Domain, table: Array) -> Forest:
    return Forest(domain, 1000.0, {name: sums(domain, table, (name,)) for name in domain.attributes})


@pytest.mark.parametrize("order", list(itertools.permutations([("a", "b"), ("b", "c"), ("c", "d")])))
def test_a_chain_gives_every_pair(forest: Forest, domain: Domain, table: Array, order: tuple[Clique, ...]) -> None:
    for pair in order:
        forest.add(residual(domain, table, pair))
    for pair in itertools.combinations(domain.attributes, 2):
        assert forest.pair(pair) == pytest.approx(sums(domain, table, pair), abs=1e-3)


@pytest.mark.parametrize("order", list(itertools.permutations([("a", "b"), ("b", "c"), ("c", "d")])))
def test_a_chain_holds_nothing_larger_than_a_candidate(
    domain: Domain, table: Array, order: tuple[Clique, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without (b, d), 20 cells; what is chained is as exact as ever, or independent where its chain would need that."""
    monkeypatch.setattr("duckdb_dp.synthesis.table.forest.CELLS", 15)
    assert ("b", "d") not in candidates(domain)
    forest = Forest(domain, 1000.0, {name: sums(domain, table, (name,)) for name in domain.attributes})
    for pair in order:
        forest.add(residual(domain, table, pair))
    assert ("b", "d") not in forest._chained
    for pair in (("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")):
        assert forest.pair(pair) == pytest.approx(sums(domain, table, pair), abs=1e-3)
    if order[-1] == ("b", "c"):  # a chain from both sides, which (b, d) is not needed for
        assert forest.pair(("a", "d")) == pytest.approx(sums(domain, table, ("a", "d")), abs=1e-3)


def test_the_changed_pairs_are_those_that_changed(forest: Forest, domain: Domain, table: Array) -> None:
    pairs = list(itertools.combinations(domain.attributes, 2))
    for pair in [("a", "b"), ("c", "d"), ("b", "c"), ("a", "d")]:
        before = {other: forest.pair(other) for other in pairs}
        changed = forest.add(residual(domain, table, pair))
        assert {other for other in pairs if not np.allclose(forest.pair(other), before[other], atol=1e-6)} <= changed
        assert pair in changed
    assert forest.edges == [("a", "b"), ("c", "d"), ("b", "c")]  # the last one closes a cycle


def test_noise_alone_leaves_independence(forest: Forest, domain: Domain) -> None:
    rng = np.random.default_rng(0)
    product = forest.pair(("a", "d"))
    moved = []
    for _ in range(50):
        noise = LinearMeasurement(
            clique=("a", "d"), strategy=Centring((3, 5)), answers=rng.normal(0, 30, 15), variance=900.0
        )
        forest.fitted.clear()
        moved.append(np.abs(forest.fit(noise) - product).sum() / 1000)
    assert np.mean(moved) < 0.5 * np.sqrt(2 / np.pi) * 30 * 15 / 1000  # raw, the noise would move it by this


def test_margins_stay(forest: Forest, domain: Domain, table: Array) -> None:
    rng = np.random.default_rng(1)
    noisy = residual(domain, table, ("b", "d"), 100.0)
    fitted = forest.fit(
        LinearMeasurement(
            clique=noisy.clique, strategy=noisy.strategy, answers=noisy.answers + rng.normal(0, 10, 20), variance=100.0
        )
    )
    assert (fitted >= 0).all()
    assert fitted.sum(axis=0) == pytest.approx(forest.singles["d"], rel=1e-9)
    assert fitted.sum(axis=1) == pytest.approx(forest.singles["b"], rel=1e-3)
