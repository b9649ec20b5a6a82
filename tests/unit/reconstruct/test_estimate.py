"""Trees, mixtures and their combination: what each must reproduce, and what judges between them."""

import itertools

import numpy as np
import pytest

from duckdb_dp.adaptive.neyman.allocation import effective, effective_all
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.reconstruct import estimate, mixture
from duckdb_dp.reconstruct.combination import MIDDLE, Models, best, halves, judged, leaning, said, together, weights
from duckdb_dp.reconstruct.estimate import by_counts, by_mixtures, by_tree, first, mixtures, quick, widest
from duckdb_dp.reconstruct.grem import ResidualEstimates, centred
from duckdb_dp.reconstruct.measurement import residual_measurement
from duckdb_dp.reconstruct.nonneg import simplex
from duckdb_dp.reconstruct.tilting import consistent, interactions, product, products, scaled, tilts
from duckdb_dp.reconstruct.tree import along, information, spanning_tree

DOMAIN = Domain({"a": 3, "b": 4, "c": 5, "d": 2})
PAIRS = list(itertools.combinations(DOMAIN.attributes, 2))
ROWS = 10_000.0


def chain() -> np.ndarray:
    """a - b - c - d, each leaning on the one before."""
    rng = np.random.default_rng(1)
    table = rng.dirichlet(np.ones(3)) * ROWS
    for size in (4, 5, 2):
        table = table[..., None] * rng.dirichlet(np.full(size, 0.5), table.shape[-1])
    return np.asarray(table)


def truth(clique: Clique) -> np.ndarray:
    axes = tuple(i for i, name in enumerate(DOMAIN.attributes) if name not in clique)
    return np.asarray(chain().sum(axis=axes))


def measured(cliques: list[Clique], variance: float, seed: int = 1) -> ResidualEstimates:
    rng = np.random.default_rng(seed)
    noisy = [truth(clique) + rng.normal(0, np.sqrt(variance), DOMAIN.shape(clique)) for clique in cliques]
    total = residual_measurement(DOMAIN, (), np.array(ROWS), 1.0)
    return ResidualEstimates.of(
        DOMAIN,
        [total, *(residual_measurement(DOMAIN, c, table, variance) for c, table in zip(cliques, noisy, strict=True))],
    )


SINGLES = [(name,) for name in DOMAIN.attributes]
EXACT = {pair: truth(pair) for pair in PAIRS}


def test_a_tree_is_found_and_says_all_pairs_of_its_own_data() -> None:
    edges = spanning_tree(EXACT)
    assert set(edges) == {("a", "b"), ("b", "c"), ("c", "d")}
    assert min(information(EXACT[edge]) for edge in edges) >= information(EXACT["a", "d"])
    singles = {single: truth(single) for single in SINGLES}
    found = along(DOMAIN, edges, EXACT, singles, PAIRS, ROWS)
    for pair in PAIRS:
        assert found[pair] == pytest.approx(EXACT[pair])


def test_from_its_edges_alone_a_tree_knows_the_other_pairs() -> None:
    known = measured([*SINGLES, ("a", "b"), ("b", "c"), ("c", "d")], 1e-6)
    found = by_tree(known, first(known, DOMAIN.attributes, PAIRS, ROWS))
    assert all(np.abs(found.pairs[pair] - EXACT[pair]).sum() < 0.01 * ROWS for pair in PAIRS)


def test_attributes_of_other_trees_are_independent() -> None:
    known = measured(SINGLES, 1e-6)
    found = by_tree(known, first(known, DOMAIN.attributes, PAIRS, ROWS))
    for a, b in PAIRS:
        assert found.pairs[a, b] == pytest.approx(np.outer(truth((a,)), truth((b,))) / ROWS, rel=1e-3)


def lone(size: int, stddev: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(the truth, on the simplex, as estimated) of one attribute measured with that noise."""
    rng, domain = np.random.default_rng(seed), Domain({"a": size})
    true = rng.dirichlet(np.full(size, 2.0)) * ROWS
    noisy = true + rng.normal(0, stddev, size)
    known = ResidualEstimates.of(domain, [residual_measurement(domain, ("a",), noisy, stddev**2)])
    return true, simplex(known.values["a",] + ROWS / size, ROWS), first(known, ["a"], [], ROWS).singles["a",]


def test_singles_that_drown_in_noise_are_shrunk() -> None:
    errors = []
    for seed in range(40):
        true, projected, found = lone(50, ROWS / 10, seed)
        assert (found >= 0).all()
        assert found.sum() == pytest.approx(ROWS)
        errors.append([np.abs(table - true).sum() for table in (projected, found)])
    projected, found = np.mean(errors, axis=0)
    assert found < 0.75 * projected


@pytest.mark.parametrize(("size", "stddev"), [(3, ROWS), (2, ROWS), (50, 1e-3)])
def test_singles_of_few_values_or_little_noise_are_not(size: int, stddev: float) -> None:
    for seed in range(5):
        _, projected, found = lone(size, stddev, seed)
        assert found == pytest.approx(projected, abs=1e-3)


def test_a_mixture_fits_what_it_sees() -> None:
    known = measured([*SINGLES, *PAIRS], 4.0)
    start = by_tree(measured(SINGLES, 4.0), first(known, DOMAIN.attributes, PAIRS, ROWS))
    found = mixtures(known, start, components=14, steps=300, seeds=(1,))
    again = mixtures(known, start, components=14, steps=300, seeds=(1,))
    for pair in PAIRS:
        raw = found[0].marginal(pair)
        assert raw.sum() == pytest.approx(ROWS, rel=1e-4)
        assert (raw == again[0].marginal(pair)).all()
        assert np.abs(raw - EXACT[pair]).sum() < 0.3 * np.abs(start.pairs[pair] - EXACT[pair]).sum() + 0.02 * ROWS
    pairs = by_mixtures(known, found, start).pairs
    assert all(np.abs(pairs[pair] - EXACT[pair]).sum() < 0.02 * ROWS for pair in PAIRS)
    assert found[0].marginal(("a", "b", "c")).sum(axis=2) == pytest.approx(found[0].marginal(("a", "b")), rel=1e-3)


def test_a_mixture_starts_from_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half the steps it is as near to less noisy residuals as one from a random start with all of them."""
    known = measured([*SINGLES, *PAIRS], 4.0)
    start = by_tree(measured(SINGLES, 4.0), first(known, DOMAIN.attributes, PAIRS, ROWS))
    earlier = mixtures(measured([*SINGLES, *PAIRS], 400.0), start, components=14, steps=300, seeds=(1,))
    anew = mixtures(known, start, components=14, steps=300, seeds=(1,), before=earlier)  # few values
    monkeypatch.setattr(estimate, "FEW", 1)
    found = mixtures(known, start, components=14, steps=300, seeds=(1,), before=earlier)
    errors = [
        sum(np.abs(one.pairs(PAIRS)[pair] - EXACT[pair]).sum() for pair in PAIRS)
        for one in (earlier[0], anew[0], found[0])
    ]
    assert errors[2] < 1.1 * errors[1] < errors[0]
    for pair in PAIRS:
        assert found[0].pairs([pair])[pair] == pytest.approx(found[0].marginal(pair), rel=1e-4, abs=1e-3)


def test_mixtures_have_the_attributes_that_fit() -> None:
    domain = Domain({"a": 3000, "b": 10, "c": 200, "d": 20})
    assert widest(domain, ["a", "b", "c", "d"]) == ["b", "c", "d"]
    assert widest(Domain({f"a{i}": 20 for i in range(200)}), [f"a{i}" for i in range(200)]) == []


def test_one_mixture_is_fitted_to_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    known = measured([*SINGLES, *PAIRS], 4.0)
    start = by_tree(known, first(known, DOMAIN.attributes, PAIRS, ROWS))
    assert len(mixtures(known, start, components=3, steps=2, seeds=(1, 2))) == 2
    monkeypatch.setattr(estimate, "WIDE", 1)
    assert len(mixtures(known, start, components=3, steps=2, seeds=(1, 2))) == 1


def test_the_halves_are_independent_and_average_to_the_whole() -> None:
    known = measured([*SINGLES, *PAIRS], 25.0)
    half, rest = halves(known)
    assert {noisy.clique for noisy in rest} == set(PAIRS)
    for noisy in rest:
        both = (half.values[noisy.clique] + noisy.answers.reshape(DOMAIN.shape(noisy.clique))) / 2
        assert both == pytest.approx(known.values[noisy.clique])
        assert noisy.variance == pytest.approx(50.0) == pytest.approx(1 / half.precisions[noisy.clique])


def test_residuals_of_so_many_attributes_stay_whole() -> None:
    triple = ("a", "b", "c")
    known = measured([*SINGLES, *PAIRS, triple], 25.0)
    half, rest = halves(known, whole=2)
    assert [noisy.clique for noisy in rest] == [triple]
    for clique in known.values:
        same = np.allclose(half.values[clique], known.values[clique])
        assert same == (len(clique) < 3)
        assert half.precisions[clique] == pytest.approx(known.precisions[clique] / (1 if same else 2))


def test_what_is_right_has_the_weight() -> None:
    """Of exact pairs and of products, judged by fresh residuals."""
    known = measured(SINGLES, 1e-6)
    products = first(known, DOMAIN.attributes, PAIRS, ROWS)
    exact = by_counts(measured([*SINGLES, *PAIRS], 1e-6), products)
    found = said(products.pairs, exact.pairs, measured(PAIRS, 1e-4).noisy())
    common, own = weights(found)
    assert common < 0.05
    assert all(weight < 0.2 for weight in own.values())
    assert weights({})[0] == MIDDLE


def test_what_two_say_counts_twice() -> None:
    one, other = {("a", "b"): (3.0, 4.0)}, {("a", "b"): (1.0, 2.0), ("b", "c"): (0.5, 1.0)}
    assert together([one, other]) == {("a", "b"): (4.0, 6.0), ("b", "c"): (0.5, 1.0)}


def test_the_better_of_two_models_takes_over_after_a_round() -> None:
    known, fresh = measured(SINGLES, 1e-6), measured([("a", "b"), ("b", "c")], 1e-4)
    wrong = first(known, DOMAIN.attributes, PAIRS, ROWS)
    exact = by_counts(measured([*SINGLES, *PAIRS], 1e-6), wrong)
    now = Models(known=fresh, tree=wrong, counted=exact)
    for pair, table in best(now, []).pairs.items():
        assert table == pytest.approx(wrong.pairs[pair], rel=1e-3)  # nothing is said: the model stands
    found = best(now, [(now, fresh.noisy())])
    for pair in PAIRS:
        near = exact if pair in fresh.values else wrong  # a pair that was not measured has no counts
        assert np.abs(found.pairs[pair] - near.pairs[pair]).sum() < 0.2 * ROWS
    found = best(
        Models(known=fresh, tree=wrong, mixture=exact),
        [(Models(known=fresh, tree=wrong, mixture=exact), fresh.noisy())],
    )
    assert all(np.abs(found.pairs[pair] - EXACT[pair]).sum() < 0.1 * ROWS for pair in PAIRS)


def test_counts_are_believed_down_and_above_the_noise() -> None:
    model, counted = np.array([[100.0, 0.01], [100.0, 100.0]]), np.array([[120.0, 20.01], [20.0, 100.0]])
    found = leaning(
        {("a", "b"): model, ("b", "c"): model}, {("a", "b"): counted, ("b", "c"): counted}, {("a", "b"): 1e-2}
    )
    assert found["a", "b"] == pytest.approx(
        np.array([[100 + 20 * np.sqrt(100 / 110), 0.01 + 20 * np.sqrt(0.01 / 10.01)], [20, 100]])
    )
    assert found["b", "c"] is model


def test_mixtures_are_quick_where_values_are_few() -> None:
    assert quick(Domain({"a": 200, "b": 100}), ["a", "b"])
    assert not quick(Domain({"a": 300, "b": 100}), ["a", "b"])
    assert quick(Domain({"a": 3000, "b": 2000}), ["a", "b"])  # no mixture at all


@pytest.mark.parametrize("variance", [1.0, 100.0, 1e4, 1e6])
def test_the_judged_estimate_is_near_the_better_of_two(variance: float) -> None:
    errors = np.zeros(3)
    for seed in range(4):
        known = measured([*SINGLES, *PAIRS], variance, seed)
        start = first(known, DOMAIN.attributes, PAIRS, ROWS)
        found = by_tree(known, start), by_counts(known, start), judged(known, DOMAIN.attributes, PAIRS, ROWS)
        errors += [sum(np.abs(one.pairs[pair] - EXACT[pair]).sum() for pair in PAIRS) for one in found]
    assert errors[2] <= 1.1 * min(errors[:2])


def test_tables_that_are_worked_on_together_are_as_if_alone() -> None:
    rng = np.random.default_rng(3)
    prior, noisy = rng.dirichlet(np.ones(12), 5) * ROWS, rng.normal(800, 300, (5, 12))
    strength = rng.uniform(1, 1000, 5)
    together = tilts(noisy, prior, strength, ROWS)
    gap = centred(noisy.reshape(5, 3, 4) - prior.reshape(5, 3, 4)).reshape(5, 12)
    theta = interactions(gap, prior, np.full(5, 100.0))
    for i in range(5):
        alone = tilts(noisy[i : i + 1], prior[i : i + 1], strength[i : i + 1], ROWS)[0]
        assert together[i] == pytest.approx(alone)
        assert theta[i] == pytest.approx(interactions(gap[i : i + 1], prior[i : i + 1], np.array([100.0]))[0])


def test_pairs_agree_after_scaling() -> None:
    rng = np.random.default_rng(4)
    pairs = {pair: rng.dirichlet(np.ones(DOMAIN.cells(pair))).reshape(DOMAIN.shape(pair)) * ROWS for pair in PAIRS}
    agreed, singles = consistent(pairs, {}, ROWS)
    agreed = scaled(agreed, singles, 50)
    for (a, b), table in agreed.items():
        assert table.sum(axis=1) == pytest.approx(singles[a,])
        assert table.sum(axis=0) == pytest.approx(singles[b,], rel=1e-3)


def test_scaling_is_proportional_fitting_and_leaves_zeros() -> None:
    rng = np.random.default_rng(5)
    table, (rows, columns) = rng.gamma(0.3, size=(6, 9)), rng.dirichlet(np.ones(9), 2) * ROWS
    table *= np.array([1, 1, 0, 1e-200, 1, 1])[:, None] * (np.arange(9) != 4)
    expected = table.copy()
    for _ in range(3):
        expected *= (rows[:6] / np.maximum(expected.sum(axis=1), 1e-300))[:, None]
        expected *= columns / np.maximum(expected.sum(axis=0), 1e-300)
    found = scaled({("a", "b"): table}, {("a",): rows[:6], ("b",): columns}, 3)["a", "b"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not found[2].any()
    assert not found[:, 4].any()


def test_many_tables_at_once_are_one_by_one() -> None:
    rng = np.random.default_rng(8)
    pairs = {pair: rng.dirichlet(np.ones(DOMAIN.cells(pair))).reshape(DOMAIN.shape(pair)) * ROWS for pair in PAIRS}
    singles = {(name,): rng.dirichlet(np.ones(n)) * ROWS for name, n in DOMAIN.sizes.items()}
    for pair, table in products(singles, pairs, ROWS).items():
        np.testing.assert_allclose(table, product(singles, pair, ROWS), rtol=1e-12)
    spread = effective_all({**pairs, **singles})
    assert spread == pytest.approx({clique: effective(table) for clique, table in {**pairs, **singles}.items()})
    for table in pairs.values():
        expected = np.multiply.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
        divergence = float((table / table.sum() * np.log(table / expected)).sum())
        assert information(table) == pytest.approx(divergence, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("sizes", [(20,) * 5, (3, 40, 11, 25), (2, 2, 2)], ids=["even", "uneven", "few"])
def test_gradients_are_the_same_with_and_without_large_matrices(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, names = np.random.default_rng(5), [f"a{i}" for i in range(len(sizes))]
    domain = Domain(dict(zip(names, sizes, strict=True)))
    noisy = [
        residual_measurement(domain, pair, centred(rng.normal(size=domain.shape(pair))), 1 + i)
        for i, pair in enumerate(itertools.combinations(names, 2))
        if i != 1  # one pair is not measured
    ]
    singles = {(name,): np.full(domain.sizes[name], 50 / domain.sizes[name]) for name in names}
    target = mixture.Target.of(names, ResidualEstimates.of(domain, noisy), singles, 50.0)
    middle = target.centred(rng.random((sum(sizes), 7)).astype(np.float32))
    weights = rng.dirichlet(np.ones(7)).astype(np.float32)
    found = []
    for many in (0.0, np.inf):
        monkeypatch.setattr(mixture, "MANY", many)
        found.append(mixture._residuals(target, middle, weights))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-4 * np.abs(found[1]).max())
