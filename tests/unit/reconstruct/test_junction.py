import itertools

import numpy as np
import pytest

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct import junction
from duckdb_dp.reconstruct.junction import JunctionTree, calibrate, draw_given, junction_tree

RNG = np.random.default_rng


def drawn(seed: int) -> tuple[Domain, dict[Clique, Array]]:
    """A random domain of 1 to 6 attributes and potentials on random cliques of it."""
    rng = RNG(seed)
    names = [f"x{i}" for i in range(rng.integers(1, 7))]
    domain = Domain({name: int(rng.integers(1, 4)) for name in names})
    cliques = [
        domain.clique(rng.choice(names, size=min(len(names), rng.integers(1, 4)), replace=False).tolist())
        for _ in range(rng.integers(0, 6))
    ]
    return domain, {clique: rng.normal(size=domain.shape(clique)) for clique in cliques}


def fitted(domain: Domain, potentials: dict[Clique, Array], total: float = 7.0) -> JunctionTree:
    return calibrate(domain, total, *junction_tree(domain, potentials), potentials)


def full(domain: Domain, potentials: dict[Clique, Array], total: float = 7.0) -> Array:
    table = np.zeros(domain.shape(domain.attributes))
    for clique, potential in potentials.items():
        table = table + potential.reshape([n if name in clique else 1 for name, n in domain.sizes.items()])
    return np.exp(table) * (total / np.exp(table).sum())


@pytest.mark.parametrize("seed", range(60))
def test_every_marginal_is_that_of_the_full_table(seed: int) -> None:
    domain, potentials = drawn(seed)
    tree, table = fitted(domain, potentials), full(domain, potentials)
    for order in range(len(domain.attributes) + 1):
        for clique in itertools.combinations(domain.attributes, order):
            axes = tuple(i for i, name in enumerate(domain.attributes) if name not in clique)
            assert tree.marginal(clique) == pytest.approx(table.sum(axis=axes))


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_is_a_junction_tree(seed: int) -> None:
    domain, potentials = drawn(seed)
    cliques, parents = junction_tree(domain, potentials)
    assert all(any(set(wanted) <= set(clique) for clique in cliques) for wanted in potentials)
    assert set(itertools.chain(*cliques)) == set(domain.attributes)
    for place, parent in enumerate(parents):
        assert parent is None or parent < place
        before = set(itertools.chain(*cliques[:place]))
        shared = set(cliques[place]) & before
        assert shared == (set() if parent is None else set(cliques[place]) & set(cliques[parent]))
        assert not any(set(cliques[place]) <= set(other) for i, other in enumerate(cliques) if i != place)


def test_no_fill_in_on_a_tree() -> None:
    domain = Domain({"small": 2} | {f"x{i}": 50 for i in range(9)})
    cliques, _ = junction_tree(domain, [("small", f"x{i}") for i in range(9)])
    assert max(map(len, cliques)) == 2


def test_samples_follow_the_distribution() -> None:
    """Chi-square of 20,000 records stays below its 1 - 1e-6 quantile; sampling by rounding makes it smaller still."""
    domain, potentials = Domain({"a": 3, "b": 2, "c": 4, "d": 3}), {}
    for clique in [("a", "b"), ("b", "c"), ("c", "d")]:
        potentials[clique] = RNG(1).normal(size=domain.shape(clique))
    tree, rows = fitted(domain, potentials), 20_000
    codes = tree.sample(rows, RNG(2))
    table = full(domain, potentials, rows)
    counts = np.zeros(table.shape)
    np.add.at(counts, tuple(codes.T), 1)
    assert ((counts - table) ** 2 / table).sum() < 71 + 5 * np.sqrt(2 * 71)
    pair = counts.sum(axis=(2, 3))
    assert np.abs(pair - tree.marginal(("a", "b")) * rows / 7).max() < 2  # the root clique, to rounding
    assert np.array_equal(codes, tree.sample(rows, RNG(2)))


def test_a_long_chain_needs_no_full_table() -> None:
    names = [f"x{i:03d}" for i in range(300)]
    domain = Domain(dict.fromkeys(names, 10))
    potentials = {pair: RNG(0).normal(size=(10, 10)) for pair in itertools.pairwise(names)}
    tree = fitted(domain, potentials)
    ends = tree.marginal((names[0], names[-1]))
    assert ends == pytest.approx(np.outer(tree.marginal((names[0],)), tree.marginal((names[-1],))) / 7, rel=1e-6)
    assert tree.sample(100, RNG(0)).shape == (100, 300)


def test_too_large_a_marginal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junction, "CELLS", 100)
    domain = Domain({"a": 20, "b": 20, "c": 2})
    with pytest.raises(DPError, match="Ask for fewer attributes at once"):
        fitted(domain, {("a", "c"): np.zeros((20, 2)), ("b", "c"): np.zeros((20, 2))}).marginal(("a", "b"))


def test_draws_given_a_row() -> None:
    table = np.array([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [2.0, 0.0, 2.0]])
    given = np.repeat([0, 1, 2], 400)
    found = draw_given(table, given, RNG(0))
    counts = np.stack([np.bincount(found[given == row], minlength=3) for row in range(3)])
    assert counts == pytest.approx(np.array([[100, 300, 0], [150, 150, 100], [200, 0, 200]]), abs=1)
    assert np.bincount(draw_given(np.zeros((1, 4)), np.zeros(8, int), RNG(0))).tolist() == [2, 2, 2, 2]
