"""What a measured residual says of its dispersion, and what a tilt does, by elimination and lookups as by dense algebra."""

import itertools
from functools import reduce

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array
from duckdb_dp.synthesis.links import evidence
from duckdb_dp.synthesis.links import fit as fitting
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.evidence import ResidualEstimate, surprise
from duckdb_dp.synthesis.links.fit import _Dual, _inverses, fit, tilted
from duckdb_dp.synthesis.links.sides import coordinates, helmert, residual_cells, side_of, spread


def basis(sizes: tuple[int, ...]) -> Array:
    """The bases of all attributes as one."""
    return reduce(np.kron, [helmert(n) for n in sizes])


@pytest.mark.parametrize("largest", [600, 20])
@pytest.mark.parametrize("sizes", [(2,), (5,), (2, 2), (3, 4), (9, 8), (40,), (2, 3, 4)])
def test_evidence_is_that_of_normal_coordinates(
    sizes: tuple[int, ...], largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all values, or where there are more coordinates than that, of sums over neighbouring values."""
    monkeypatch.setattr(evidence, "LARGEST", largest)
    rng = np.random.default_rng(len(sizes))
    names = tuple("abc"[: len(sizes)])
    expected = rng.gamma(0.3, 100.0, sizes)
    residual = ResidualEstimate(clique=names, sizes=sizes, dispersion=1.0, optimistic_dispersion=1.0)
    residual.mean, residual.precision = coordinates((expected * rng.gamma(2.0, 0.5, sizes))[None])[0], 0.02
    smaller = [
        ResidualEstimate(
            clique=tuple(names[i] for i in part),
            sizes=tuple(sizes[i] for i in part),
            dispersion=2.0,
            optimistic_dispersion=2.0,
            precision=0.01 * k,
        )
        for k in range(1, len(sizes))
        for part in itertools.combinations(range(len(sizes)), k)
    ]
    bases = evidence._bases(sizes)
    found, whole = surprise(residual, expected, smaller), reduce(np.kron, bases)
    assert whole.shape[1] <= largest
    np.testing.assert_allclose(basis(sizes) @ (basis(sizes).T @ whole), whole, atol=1e-12)
    prior, level = whole.T @ (expected.reshape(-1, 1) * whole), whole.T @ expected.reshape(-1)
    noise = whole.T @ whole / residual.precision
    gap = whole.T @ basis(sizes) @ np.reshape(residual.mean, -1) - level
    for part in smaller:
        leak = evidence._leak(residual, part, expected, bases)
        noise += part.uncertainty(evidence.expected_of(part, residual, expected)) * leak @ leak.T
    for i in (0, 60, 120, 180):
        variance = evidence._GRID[i] * prior + noise
        inverse = np.linalg.inv(variance)
        volume = np.linalg.slogdet(variance)[1] - np.linalg.slogdet(noise)[1]
        assert found.volume[i] == pytest.approx(volume, rel=1e-6, abs=1e-6)
        assert found.energy[i] == pytest.approx(gap @ inverse @ gap, rel=1e-6)
        assert found.known[i] == pytest.approx(level @ inverse @ level, rel=1e-6)
        assert found.shared[i] == pytest.approx(level @ inverse @ gap, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("sizes", [(3, 2, 4), (130, 3)])
def test_coordinates_attribute_by_attribute_are_those_of_the_whole_basis(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    tables, whole = rng.random((5, *sizes)), basis(sizes)
    found = coordinates(tables)
    np.testing.assert_allclose(found.reshape(5, -1), tables.reshape(5, -1) @ whole)
    np.testing.assert_allclose(residual_cells(found).reshape(5, -1), found.reshape(5, -1) @ whole.T)
    np.testing.assert_allclose(spread(tables[0]), whole.T @ (tables[0].reshape(-1, 1) * whole), atol=1e-12)


@pytest.mark.parametrize("one_parent", [False, True])
@pytest.mark.parametrize("number", [3, 9])
def test_links_are_the_base_times_the_tilt_of_each_clique(one_parent: bool, number: int) -> None:
    """Cliques of one side alone are looked up for each row type, others are products of columns."""
    rng = np.random.default_rng(number)
    domain = Domain({"u.a": 4, "u.b": 3, "m.c": 5, "m.d": 2})
    left = side_of(("u.a", "u.b"), rng.integers(0, 3, (30, 2)))
    right = side_of(("m.c", "m.d"), np.stack([rng.integers(0, 5, 20), rng.integers(0, 2, 20)], 1))
    blocks = Blocks(domain, left, right)
    every = [("u.a",), ("m.c",), ("m.c", "m.d"), ("u.a", "m.c"), ("u.b", "m.c", "m.d"), ("m.d",), ("u.a", "u.b")]
    tilt = {}
    for clique in [("u.a", "u.b", "m.d"), *every][-number:]:
        sides = [np.prod([domain.sizes[a] - 1 for a in part], dtype=int) for part in blocks.split(clique)]
        tilt[clique] = rng.normal(size=sides)
    base = rng.random(blocks.shape) + 0.1
    power = np.log(base)
    for clique, theta in tilt.items():
        ends = [
            blocks.columns(part) if part else np.ones((n, 1))
            for part, n in zip(blocks.split(clique), blocks.shape, strict=True)
        ]
        power += ends[0] @ theta @ ends[1].T
    wanted = np.exp(power)
    wanted *= (base.sum(1) / wanted.sum(1))[:, None] if one_parent else base.sum() / wanted.sum()
    np.testing.assert_allclose(tilted(blocks, base, tilt, one_parent=one_parent), wanted)
    dual = _Dual(blocks, base, tilt, dict.fromkeys(tilt, 0.1), one_parent)
    theta = rng.normal(size=len(dual.values)) * 0.3
    _, slope, _ = dual.value(theta)
    for i in range(0, len(theta), 7):
        step = np.eye(len(theta))[i] * 1e-5
        numeric = (dual.value(theta + step)[0] - dual.value(theta - step)[0]) / 2e-5
        assert slope[i] == pytest.approx(numeric, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("size", [3, 80])
def test_inverses_of_small_and_large_matrices(size: int) -> None:
    roots = np.random.default_rng(size).normal(size=(2, size, size + 2))
    matrices = [root @ root.T for root in roots]
    for inverse, matrix in zip(_inverses(matrices), matrices, strict=True):
        np.testing.assert_allclose(inverse @ matrix, np.eye(size), atol=1e-6)


def test_a_fit_by_the_diagonals_of_large_cliques_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    codes = [np.stack([rng.integers(0, n, 300) for n in sizes], 1) for sizes in ((7, 3), (6, 2))]
    domain = Domain({"left.a": 7, "left.b": 3, "right.c": 6, "right.d": 2})
    left, right = side_of(("left.a", "left.b"), codes[0]), side_of(("right.c", "right.d"), codes[1])
    blocks = Blocks(domain, left, right)
    base = blocks.independent(2000.0)
    wanted = {
        ("left.a", "right.c"): rng.normal(0, 20, (6, 5)),
        ("left.b", "right.d"): rng.normal(0, 20, (2, 1)),
        ("right.c",): rng.normal(0, 20, (1, 5)),
    }
    ridges = dict.fromkeys(wanted, 30.0)
    fine = {("left.a", "right.c"): ([np.linalg.qr(rng.normal(size=(n, 2)))[0] for n in (6, 5)], 400.0)}
    for more in (None, fine):
        monkeypatch.setattr(fitting, "_WHOLE", 600)
        exact, _ = fit(blocks, base, wanted, ridges, more, tolerance=1e-12)
        monkeypatch.setattr(fitting, "_WHOLE", 4)
        found, _ = fit(blocks, base, wanted, ridges, more, tolerance=1e-12)
        np.testing.assert_allclose(found, exact, atol=1e-2)
    dual = _Dual(blocks, base, wanted, ridges, False, fine)
    plain = _Dual(blocks, base, wanted, dict.fromkeys(wanted, 0.0), False)
    theta = rng.normal(0, 0.01, dual.values.size)
    first, whole = theta[:30], reduce(np.kron, fine["left.a", "right.c"][0])
    penalty = 0.5 * (400 * first @ first + (30 - 400) * np.sum((whole.T @ first) ** 2) + 30 * theta[30:] @ theta[30:])
    assert dual.value(theta)[0] == pytest.approx(plain.value(theta)[0] + penalty, rel=1e-9)
    slope = dual.value(theta)[1]
    for place in (0, 17, 29, 31):
        step = 1e-5 * np.eye(theta.size)[place]
        numeric = (dual.value(theta + step)[0] - dual.value(theta - step)[0]) / 2e-5
        assert slope[place] == pytest.approx(numeric, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("sizes", [(700,), (30, 25), (7, 150)])
def test_noise_alone_has_no_fine_dispersion_and_dependence_has_its_own(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    expected = np.full(sizes, 400.0)
    names = tuple("ab"[: len(sizes)])
    for strength in (0.0, 4.0):
        table = expected + rng.normal(0, np.sqrt(strength * expected)) + rng.normal(0, 20, sizes)
        residual = ResidualEstimate(clique=names, sizes=sizes, dispersion=1.0, optimistic_dispersion=1.0)
        residual.mean, residual.precision = coordinates(table[None])[0], 1 / 400
        found = evidence.fine(residual, expected)
        assert found == evidence._GRID[0] if strength == 0 else 0.3 * strength < found < 2 * strength


def test_pairs_of_many_values_are_measured_and_large_triples_are_not() -> None:
    domain = Domain({"l.a": 82, "l.b": 50, "r.c": 41, "r.d": 500})
    cliques = [("l.a", "r.c"), ("l.a", "l.b", "r.c"), ("l.a", "r.d")]
    known = evidence.residual_estimates(domain, cliques, lambda clique: len({name[0] for name in clique}) > 1)
    assert {("l.a", "r.c"), ("l.b", "r.c"), ("r.d",), ("l.a",)} <= set(known)
    assert not {("l.a", "l.b", "r.c"), ("l.a", "l.b"), ("l.a", "r.d")} & set(known)
