"""Degrees of linked rows: shares are kept, each row type gets its links, and noise alone changes little."""

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.synthesis.links.degrees import Degrees, drawn, model, spread
from duckdb_dp.synthesis.links.measured_degrees import ByGroup, Measured
from duckdb_dp.synthesis.links.negative_binomials import clipped
from duckdb_dp.synthesis.links.per_unit import NoisyTable
from duckdb_dp.synthesis.links.room import within_room
from duckdb_dp.synthesis.links.sides import side_of

RNG = np.random.default_rng


@pytest.mark.parametrize(("mean", "none", "most"), [(2.0, 0.3, 8), (7.0, 0.1, 10), (0.5, 0.7, 3), (1.0, 0.0, 1)])
def test_a_clipped_distribution_has_its_mean(mean: float, none: float, most: int) -> None:
    shares = clipped(mean, none, most)
    assert shares.sum() == pytest.approx(1)
    assert shares @ np.arange(most + 1) == pytest.approx(mean, abs=1e-3)


def test_a_clipped_distribution_has_its_share_of_none_where_it_can() -> None:
    assert clipped(2.0, 0.3, 8)[0] == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_each_type_gets_its_links_and_all_rows_their_shares(seed: int) -> None:
    rng = RNG(seed)
    sizes = rng.integers(0, 60, 40)
    shares = rng.dirichlet(np.ones(6))
    table = np.tile(shares, (40, 1))
    links = rng.binomial(np.maximum(sizes * 5, 0), shares @ np.arange(6) / 5)
    degrees = drawn(table, sizes, links, rng)
    assert len(degrees) == sizes.sum()
    kinds = np.repeat(np.arange(40), sizes)
    assert (np.bincount(kinds, degrees, 40) == links).all()
    found = np.bincount(degrees, minlength=6) / len(degrees)
    assert np.abs(found - shares).sum() < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3, 10, 200])
def test_rows_of_thin_types_have_their_shares_too(rows: int) -> None:
    """Of one row each in the extreme, of which none has the mean."""
    shares = np.array([0.4, 0.1, 0.0, 0.0, 0.0, 0.0, 0.5])
    mean, types = float(shares @ np.arange(7)), 1200 // rows
    sums = np.zeros(types)
    for seed in range(20):
        counts = spread(np.tile(shares, (types, 1)), np.full(types, rows), np.full(types, rows * mean), RNG(seed))
        assert (counts.sum(axis=1) == rows).all()
        assert (counts @ np.arange(7)).sum() == round(types * rows * mean)
        assert np.abs(counts.sum(axis=0) / counts.sum() - shares).sum() < 0.03
        sums += counts @ np.arange(7) / 20
    assert np.abs(sums - rows * mean).mean() < 3 * (rows if rows < 30 else 3) ** 0.5 / 20**0.5 + 0.5


@pytest.mark.parametrize("links", [260, 500, 900, 1000, 1200])
def test_rows_that_should_have_no_links_get_them_where_no_others_have_room(links: int) -> None:
    """1,000 rows with one link at most, each a type of its own, of which 250 should have none, and the last ones most."""
    expected = np.maximum(np.arange(1000) - 249.0, 0)
    expected *= links / expected.sum()
    counts = spread(np.full((1000, 2), 0.5), np.ones(1000, dtype=np.int64), expected, RNG(0))
    assert counts[:, 1].sum() == min(links, 1000)
    assert 0 <= counts[:250, 1].sum() - max(min(links, 1000) - 750, 0) <= 2
    assert counts[600:, 1].mean() > counts[250:600, 1].mean() or links >= 750


@pytest.mark.parametrize("seed", range(20))
def test_links_within_their_room_are_in_proportion(seed: int) -> None:
    rng = RNG(seed)
    links = rng.exponential(size=50) ** 3 * (rng.random(50) < 0.8)
    room = np.where(rng.random(50) < 0.2, [np.inf, 0.0][seed % 2], rng.exponential(size=50))
    found = within_room(links, room)
    assert (found <= room).all()
    assert found.sum() == pytest.approx(min(links.sum(), room.sum()))
    free = (links > 0) & (found < room)
    assert np.ptp(found[free] / links[free]) < 1e-9 if free.any() else True
    assert not free.any() or (found[links == 0] <= 1e-9 * found.sum()).all()
    np.testing.assert_allclose(within_room(np.zeros(3), np.ones(3)), 0.0, atol=1e-200)


def test_full_and_empty_types() -> None:
    degrees = drawn(np.full((3, 4), 0.25), np.array([5, 5, 0]), np.array([15, 0, 0]), RNG(0))
    assert degrees.tolist() == [3] * 5 + [0] * 5


def test_what_is_measured_well_is_what_rows_get() -> None:
    rng = RNG(1)
    codes = rng.integers(0, 2, 4000)[:, None]
    side = side_of(("side.kind",), codes, max_degree=4)
    degrees = np.where(
        codes[:, 0] == 0, rng.choice(5, 4000, p=[0, 1, 0, 0, 0]), rng.choice(5, 4000, p=[0.2, 0, 0.3, 0, 0.5])
    )
    sizes = np.bincount(degrees, minlength=5)[1:].astype(float)
    values = np.stack([np.bincount(degrees[codes[:, 0] == v], minlength=5)[1:] for v in (0, 1)], 1).astype(float)
    measured = Measured(
        rows=4000.0,
        linked=float(sizes.sum()),
        linked_variance=1e-6,
        sizes=NoisyTable(sizes, 1e-6),
        values={"side.kind": ByGroup(noisy=NoisyTable(values, 1e-6), group=np.arange(2))},
    )
    found = model(measured, side, Domain({"side.kind": 2}), int(degrees.sum()))
    table = found.of(side)
    assert table[0] == pytest.approx([0, 1, 0, 0, 0], abs=0.02)
    assert table[1] == pytest.approx([0.2, 0, 0.3, 0, 0.5], abs=0.03)


def test_values_differ_in_links_where_that_is_above_the_noise_and_only_there() -> None:
    rng, domain = RNG(3), Domain({"side.kind": 4})
    codes = rng.integers(0, 4, 4000)[:, None]
    side = side_of(("side.kind",), codes, max_degree=8)
    for means, differ in (((1.0, 2.0, 3.0, 4.0), True), ((2.5, 2.5, 2.5, 2.5), False)):
        degrees = np.minimum(rng.poisson(np.array(means)[codes[:, 0]]), 8)
        values = np.stack([np.bincount(degrees[codes[:, 0] == v], minlength=9)[1:] for v in range(4)], 1)
        sizes, noise = values.sum(1), 60.0
        measured = Measured(
            rows=4000.0,
            linked=float(sizes.sum()),
            linked_variance=noise**2,
            sizes=NoisyTable(sizes + rng.normal(0, noise / 3, 8), (noise / 3) ** 2),
            values={
                "side.kind": ByGroup(
                    noisy=NoisyTable(values + rng.normal(0, noise, values.shape), noise**2), group=np.arange(4)
                )
            },
        )
        found = model(measured, side, domain, int(degrees.sum())).of(side) @ np.arange(9)
        truth = np.array([degrees[codes[:, 0] == v].mean() for v in range(4)])
        assert np.abs(found - truth).max() < (0.8 if differ else 0.4)
        assert (found[3] - found[0] > 1.2) == differ


def test_noise_alone_leaves_the_distribution_smooth() -> None:
    side = side_of(("side.kind",), RNG(0).integers(0, 2, 500)[:, None], max_degree=4)
    sizes = NoisyTable(RNG(2).normal(100, 3000, 4), 3000.0**2)
    measured = Measured(rows=500.0, linked=400.0, linked_variance=3000.0**2, sizes=sizes)
    found = model(measured, side, Domain({"side.kind": 2}), 800)
    assert isinstance(found, Degrees)
    assert np.abs(found.shares - clipped(1.6, 1 - 0.7, 4)).sum() < 0.6


@pytest.mark.parametrize("noise", [0.5, 5.0])
@pytest.mark.parametrize(
    ("others", "few"), [((1,), (8,)), ((0, 1, 2), (6, 7, 8)), ((2,), (2, *[0] * 9)), ((1, 2, 3), (0,))]
)
def test_rows_of_a_value_have_their_links_though_no_others_have_so_many(
    others: tuple[int, ...], few: tuple[int, ...], noise: float
) -> None:
    """Of 4,000 rows 200 have a value of their own, and numbers of links that are rare, few or none."""
    codes = (np.arange(4000) % 20 == 0).astype(np.int64)
    degrees = np.where(codes == 1, np.resize(few, 4000), np.resize(others, 4000))
    degrees[codes == 1] = np.resize(few, 200)
    values = np.stack([np.bincount(degrees[codes == v], minlength=9)[1:] for v in (0, 1)], 1).astype(float)
    side, sizes = side_of(("side.kind",), codes[:, None], max_degree=8), values.sum(axis=1)
    found = []
    for seed in range(4):
        rng = RNG(seed)
        noisy = [NoisyTable(one + rng.normal(0, noise, one.shape), noise**2) for one in (sizes, values)]
        measured = Measured(
            rows=4000.0,
            linked=float(sizes.sum()),
            linked_variance=noise**2,
            sizes=noisy[0],
            values={"side.kind": ByGroup(noisy=noisy[1], group=np.arange(2))},
        )
        table = model(measured, side, Domain({"side.kind": 2}), int(degrees.sum())).of(side)
        found.append(table[side.types[:, 0] == 1][0] @ np.arange(9))
    assert np.mean(found) == pytest.approx(np.mean(few), rel=0.1, abs=0.01 * max(noise, 2))
