"""From links per block to links: totals, bounds and pairs are kept exactly, and the fit follows what was measured."""

import itertools

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Domain
from duckdb_dp.errors import DPError
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.allocate import allocate, incidence
from duckdb_dp.synthesis.links.assign_links import (
    End,
    assign_rows,
    each_once,
    feasible,
    filled,
    with_counts,
    within,
)
from duckdb_dp.synthesis.links.degrees import Degrees
from duckdb_dp.synthesis.links.evidence import residual_estimates
from duckdb_dp.synthesis.links.learner import workloads
from duckdb_dp.synthesis.links.methods import links
from duckdb_dp.synthesis.links.sides import side_of
from duckdb_dp.synthesis.links.whole_links import totals
from duckdb_dp.testing import NoNoise, SeededEntropy

RNG = np.random.default_rng(5)
LEFT = side_of(("u.a", "u.b"), RNG.integers(0, 3, (60, 2)))
RIGHT = side_of(("m.c",), RNG.integers(0, 4, (40, 1)))
SIZES = {"u.a": 3, "u.b": 3, "m.c": 4}


@pytest.mark.parametrize(("bound_left", "bound_right"), [(None, None), (5, None), (5, 9), (2, 3)])
@pytest.mark.parametrize("linked", [None, 0.5, 1.0])
def test_bounds_pairs_and_block_totals(bound_left: int | None, bound_right: int | None, linked: float | None) -> None:
    rng = np.random.default_rng(1)
    left, right = End(side=LEFT, bound=bound_left, linked=linked), End(side=RIGHT, bound=bound_right, linked=linked)
    m = 100
    expected = rng.random((len(LEFT.types), len(RIGHT.types))) ** 4
    scaled = feasible(expected, left, right, m, True)
    assert scaled.sum() == pytest.approx(m, rel=1e-6)
    blocks = within(totals(scaled, rng), scaled, left, right, rng)
    assert blocks.sum() == m
    lefts, rights = assign_rows(blocks, left, right, True, rng)
    assert len(set(zip(lefts.tolist(), rights.tolist(), strict=True))) == len(lefts) == m
    assert np.bincount(lefts).max() <= (bound_left or 40)
    assert np.bincount(rights).max() <= (bound_right or 60)
    found = np.zeros_like(blocks)
    np.add.at(found, (LEFT.rows[lefts], RIGHT.rows[rights]), 1)
    np.testing.assert_array_equal(found, blocks)
    assert (np.diff(lefts) >= 0).all()


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("m", [30, 300])
def test_no_row_of_one_table_is_linked_to_itself(distinct: bool, m: int) -> None:
    rng = np.random.default_rng(2)
    one = side_of(("u.a",), rng.integers(0, 3, (25, 1)))
    end = End(side=one, bound=None, linked=None)
    blocks = totals(np.full((3, 3), m / 9), rng)
    rows = np.arange(25)
    lefts, rights = assign_rows(blocks, end, end, distinct, rng, (rows, rows))
    assert len(lefts) == m
    assert (lefts != rights).all()
    assert not distinct or len(np.unique(lefts * 25 + rights)) == m
    found = np.zeros_like(blocks)
    np.add.at(found, (one.rows[lefts], one.rows[rights]), 1)
    np.testing.assert_array_equal(found, blocks)
    assert (assign_rows(blocks, end, end, distinct, rng)[0] >= 0).all()


@pytest.mark.parametrize("turned", [False, True])
def test_many_links_of_rows_that_are_all_different(turned: bool) -> None:
    """Where each row of one side has a type of its own, only swaps of the other side's ends can make pairs different."""
    rng = np.random.default_rng(3)
    alike = side_of(("u.a",), np.zeros((50, 1), np.int64))
    different = side_of(("m.c",), np.arange(20)[:, None])
    sides = (different, alike) if turned else (alike, different)
    left, right = (End(side=side, bound=None, linked=None) for side in sides)
    blocks = np.array([[25 + i for i in range(20)]])
    blocks = blocks.T if turned else blocks
    lefts, rights = assign_rows(blocks, left, right, True, rng)
    assert len(set(zip(lefts.tolist(), rights.tolist(), strict=True))) == len(lefts) == blocks.sum()
    np.testing.assert_array_equal(np.bincount(lefts if turned else rights), blocks.reshape(-1))


@pytest.mark.slow
def test_totals_are_unbiased() -> None:
    expected = np.array([[0.3, 2.5], [1.2, 4.0]])
    mean = np.mean([totals(expected, np.random.default_rng(seed)) for seed in range(4000)], axis=0)
    np.testing.assert_allclose(mean, expected, atol=0.04)
    assert totals(expected, np.random.default_rng(0)).sum() == 8


def test_totals_of_shares_that_are_nearly_whole() -> None:
    """Scaled up to a whole sum, some shares would exceed 1."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        expected = 1 - rng.random((8, 8)) ** rng.integers(1, 12) * 0.02
        assert totals(expected, rng).sum() == round(float(expected.sum()))


def test_every_child_has_one_parent() -> None:
    rng = np.random.default_rng(2)
    blocks = each_once(
        rng.random((len(LEFT.types), len(RIGHT.types))), LEFT.sizes, np.full(len(RIGHT.types), np.inf), rng
    )
    np.testing.assert_array_equal(blocks.sum(axis=1), LEFT.sizes)
    left, right = End(side=LEFT, bound=1, linked=1.0), End(side=RIGHT, bound=None, linked=0.5)
    lefts, rights = assign_rows(blocks, left, right, False, rng)
    np.testing.assert_array_equal(lefts, np.arange(60))
    assert len(set(rights.tolist())) <= 30  # parents without children are as many as were measured


@pytest.mark.parametrize("child", [True, False])
@pytest.mark.parametrize("kinds", [2, 40, 500])
def test_rows_have_the_degrees_that_were_measured_however_many_types_there_are(child: bool, kinds: int) -> None:
    """Of 500 rows with 500 types, none has the mean of them."""
    rng = np.random.default_rng(kinds)
    shares = np.array([0.4, 0.1, 0.0, 0.0, 0.0, 0.0, 0.5])
    units = side_of(("u.a",), rng.permutation(np.arange(500) % kinds)[:, None])
    number = round(500 * float(shares @ np.arange(7)))
    other = side_of(("m.c",), rng.integers(0, 30, (number if child else 200, 1)))
    unit = End(side=units, bound=6, linked=None, degrees=Degrees(shares=shares))
    end = End(side=other, bound=1 if child else None, linked=None)
    expected = np.multiply.outer(units.sizes, other.sizes) * (number / (500 * len(other.rows)))
    unit = with_counts(unit, expected.sum(axis=1), len(other.rows), rng)
    if unit.counts is None:
        blocks = totals(expected, rng)
    else:
        most = np.inf if child else np.multiply.outer(units.sizes, other.sizes)
        columns = other.sizes if child else end.held(expected.sum(axis=0))
        blocks = filled(expected, unit.held(expected.sum(axis=1)), columns, rng, most)
    blocks = within(blocks, expected, unit, end, rng)
    lefts, rights = assign_rows(blocks, unit, end, not child, rng)
    assert abs(len(lefts) - number) <= (0 if child else 20)
    assert not child or sorted(rights.tolist()) == list(range(number))
    assert child or len(set(zip(lefts.tolist(), rights.tolist(), strict=True))) == len(lefts)
    found = np.bincount(np.bincount(lefts, minlength=500), minlength=7) / 500
    assert np.abs(found - shares).sum() < 0.08


def queryable(
    pairs: np.ndarray, own: np.ndarray | None = None, *, bits: object = None, rows: int = 5, rho: float = 5.0
) -> PrivateQueryable:
    """The queryable to links given as pairs of positions."""
    sizes = {**SIZES, **({"l.stars": 3} if own is not None else {}), "u.linked": 2, "m.linked": 2}
    domain = Domain(sizes)
    cells = (*SIZES, *(["l.stars"] if own is not None else []))
    codes = [LEFT.types[LEFT.rows[pairs[:, 0]], i] for i in range(2)] + [RIGHT.types[RIGHT.rows[pairs[:, 1]], 0]]
    codes += [own] if own is not None else []
    keys, counts = np.unique(np.ravel_multi_index(tuple(codes), [sizes[name] for name in cells]), return_counts=True)
    blocks = {(): (np.array([0]), np.array([len(pairs)])), cells: (keys, counts)}
    for place, (tag, n) in enumerate((("u.linked", 60), ("m.linked", 40))):
        linked = len(set(pairs[:, place].tolist()))
        blocks[tag,] = (np.array([0, 1]), np.array([n - linked, linked]))
    return PrivateQueryable(Counts(domain, blocks), total=rho, accounting=ZCDP, rows=rows, bits=bits or NoNoise())


def strong_pairs() -> np.ndarray:
    """Links between equal codes only, two for each of three left rows in four."""
    rng = np.random.default_rng(3)
    same = [
        (i, j)
        for i, j in itertools.product(range(60), range(40))
        if LEFT.types[LEFT.rows[i], 0] == RIGHT.types[RIGHT.rows[j], 0]
    ]
    chosen = rng.permutation(same)
    kept, degree = [], np.zeros(60, int)
    for i, j in chosen:
        if degree[i] < 2 and i % 4:
            kept.append((i, j))
            degree[i] += 1
    return np.array(kept)


def sided() -> tuple:
    from dataclasses import replace

    return replace(LEFT, max_degree=5, linked="u.linked"), replace(RIGHT, linked="m.linked")


def test_each_child_has_a_parent_of_its_own() -> None:
    rng = np.random.default_rng(2)
    expected = rng.random((len(RIGHT.types), len(LEFT.types))) ** 4  # 40 children of 60 parents
    left, right = End(side=RIGHT, bound=1, linked=1.0), End(side=LEFT, bound=1, linked=None)
    blocks = within(each_once(expected, RIGHT.sizes, right.room, rng), expected, left, right, rng)
    np.testing.assert_array_equal(blocks.sum(axis=1), RIGHT.sizes)
    lefts, rights = assign_rows(blocks, left, right, False, rng)
    np.testing.assert_array_equal(lefts, np.arange(40))
    assert len(set(rights.tolist())) == 40


def test_links_follow_what_was_measured() -> None:
    pairs = strong_pairs()
    left, right = sided()
    (lefts, rights), detail = links(queryable(pairs, rho=500.0), left, right, rng=np.random.default_rng(4))
    assert len(lefts) == pytest.approx(len(pairs), abs=2)
    assert np.bincount(lefts).max() <= 5
    same = LEFT.types[LEFT.rows[lefts], 0] == RIGHT.types[RIGHT.rows[rights], 0]
    assert same.mean() > 0.95
    assert abs(len(set(lefts.tolist())) - len(set(pairs[:, 0].tolist()))) <= 3
    assert sum(detail["spent"].values()) == pytest.approx(500.0, rel=1e-6)


def test_attributes_of_links() -> None:
    pairs = strong_pairs()
    stars = LEFT.types[LEFT.rows[pairs[:, 0]], 1]
    left, right = sided()
    (lefts, _, drawn), _ = links(
        queryable(pairs, stars, rho=500.0), left, right, link_attributes=["l.stars"], rng=np.random.default_rng(4)
    )
    assert (drawn == LEFT.types[LEFT.rows[lefts], 1]).mean() > 0.9


def test_with_noise_all_of_the_budget_is_spent() -> None:
    left, right = sided()
    opened = queryable(strong_pairs(), bits=SeededEntropy(1), rho=0.1)
    (lefts, rights), _ = links(opened, left, right, rows=50, rng=np.random.default_rng(4))
    assert len(lefts) == len(rights) == 50
    assert opened.left == pytest.approx(0, abs=1e-9)


def test_a_side_without_rows_or_room() -> None:
    with pytest.raises(DPError, match="at least one row"):
        side_of(("u.a",), np.zeros((0, 1), np.int64))
    with pytest.raises(DPError, match="allows no link"):
        side_of(("u.a",), np.zeros((3, 1), np.int64), max_degree=0)


def test_many_residuals_share_a_budget_that_none_of_them_gets_much_of() -> None:
    domain = Domain({f"{side}.{i}": 2 for side in "lr" for i in range(12)})
    wanted = workloads([f"l.{i}" for i in range(12)], [f"r.{i}" for i in range(12)], 3)
    found = residual_estimates(domain, wanted)
    shares = allocate(found, incidence(wanted, found), allowed=list(found), rho=100.0, total=1e6, degree=1)
    assert sum(shares.values()) == pytest.approx(100)


@pytest.mark.parametrize(("left", "right"), [(9, 8), (90, 40), (40, 90), (700, 6)])
def test_what_two_attributes_have_in_common_is_kept_however_many_values_they_have(left: int, right: int) -> None:
    """Links between values that are about as high."""
    rng = np.random.default_rng(8)
    lefts, rights = np.arange(2000) * 7 % left, np.arange(500) * 3 % right
    near = np.exp(-(((lefts / left)[:, None] - (rights / right)[None, :]) ** 2) / 0.02)
    pairs = np.stack([np.repeat(np.arange(2000), 4), rng.integers(0, 500, 8000)], 1)
    pairs[:, 1] = [rng.choice(500, p=one / one.sum()) for one in near[pairs[:, 0]]]
    pairs = np.unique(pairs, axis=0)
    sides = side_of(("u.x",), lefts[:, None], linked="u.linked"), side_of(("m.y",), rights[:, None], linked="m.linked")
    domain = Domain({"u.x": left, "m.y": right, "u.linked": 2, "m.linked": 2})
    cells = lefts[pairs[:, 0]] * right + rights[pairs[:, 1]]
    blocks = {
        (): (np.array([0]), np.array([len(pairs)])),
        ("u.x", "m.y"): np.unique(cells, return_counts=True),
        **{
            (f"{name}.linked",): (np.array([0, 1]), np.array([n - held, held]))
            for name, n, held in zip("um", (2000, 500), (len(set(end)) for end in pairs.T.tolist()), strict=True)
        },
    }
    counted = PrivateQueryable(Counts(domain, blocks), total=2.0, accounting=ZCDP, rows=4, bits=SeededEntropy(9))
    drawn, _ = links(counted, *sides, rng=np.random.default_rng(1))
    real, found = (np.corrcoef(lefts[one[0]], rights[one[1]])[0, 1] for one in (pairs.T, drawn))
    assert real > 0.7
    assert found > 0.8 * real
