"""Attributes of links that are measured as shares of units: what depends on the ends is kept, and nothing else is."""

import math
from dataclasses import replace

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.units import UNIT
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.kept import kept_shares
from duckdb_dp.synthesis.links.link_attributes import NoisyAttribute, _inside, draw
from duckdb_dp.synthesis.links.measure_attributes import measure_attributes
from duckdb_dp.synthesis.links.measure_limited import measure_limited, wanted
from duckdb_dp.synthesis.links.measured_degrees import Measured
from duckdb_dp.synthesis.links.pair_groups import Wanted
from duckdb_dp.synthesis.links.per_unit import NoisyTable
from duckdb_dp.testing import NoNoise, SeededEntropy

DOMAIN = Domain({"kind": 3, "good": 2, "stars": 4})
MOST, UNITS = 12, 3000


def units(
    chance: Array, seed: int = 0, *, rho: float = 500.0, bits: object = None
) -> tuple[PrivateQueryable, dict[str, Integers], Integers, Integers]:
    """Units of three kinds, of which the last has ten times the links of the first, and stars by kind and good."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, UNITS)
    owners = np.repeat(np.arange(UNITS), rng.binomial(MOST, np.array([0.09, 0.3, 0.9])[kind]))
    codes = {"kind": kind[owners], "good": rng.integers(0, 2, len(owners))}
    ends = np.cumsum(chance[codes["kind"], codes["good"]], axis=1)
    stars = (rng.random(len(owners))[:, None] > ends).sum(1)
    held = np.bincount(owners)[owners]
    keys = np.ravel_multi_index((codes["kind"], codes["good"], stars), DOMAIN.shape(DOMAIN.attributes))
    counts = Counts(DOMAIN, {(UNIT, *DOMAIN.attributes): (keys, held)})
    queryable = PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=MOST, bits=bits or NoNoise())  # type: ignore[arg-type]
    return queryable, codes, owners, stars


def as_measured(linked: float = UNITS, number: int = MOST) -> Measured:
    """So many units, each with so many links."""
    sizes = NoisyTable(np.eye(MOST)[number - 1] * linked, 1.0)
    return Measured(rows=linked, linked=linked, linked_variance=1.0, sizes=sizes)


def measured_of(
    queryable: PrivateQueryable,
    codes: dict[str, Integers],
    owners: Integers,
    others: tuple[str, ...] = ("kind", "good"),
) -> dict[str, NoisyAttribute]:
    """What is measured of stars with the whole budget."""
    together = wanted(DOMAIN, ["stars"], others, queryable.left, as_measured(), MOST).pairs
    ends = {name: codes[name] for name in others}
    total = float((1 / np.bincount(owners)[owners]).sum())
    return measure_limited(queryable, ["stars"], together, total, ends, owners, np.random.default_rng(5))


def shown(stars: Integers, by: Integers) -> Array:
    """Shares of stars by value of another attribute."""
    table = np.zeros((int(by.max()) + 1, 4))
    np.add.at(table, (by, stars), 1.0)
    return table / table.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("depends", [False, True])
def test_stars_depend_on_what_they_depended_on(depends: bool) -> None:
    """Units of one kind have many links, so shares of units have other values than links: that is no dependence."""
    plain = np.array([0.5, 0.25, 0.15, 0.1])
    chance = np.tile(plain, (3, 2, 1))
    if depends:
        chance[2] *= [0.2, 1, 2, 5]
        chance[:, 1] *= [1, 3, 1, 1]
        chance /= chance.sum(axis=2, keepdims=True)
    queryable, codes, owners, stars = units(chance)
    measured = measured_of(queryable, codes, owners)
    weights = 1 / np.bincount(owners)[owners]
    (found,) = draw(measured, weights.sum(), codes, weights, np.random.default_rng(1))
    for by in codes.values():
        assert np.abs(shown(found, by) - shown(stars, by)).max() < 0.04
    assert (np.abs(shown(found, codes["kind"]) - plain).max() > 0.1) == depends


def test_all_of_the_budget_is_spent_and_noise_is_less_than_that_of_one_link() -> None:
    """What independent links of one unit add partly cancels out: the limit is below the length of one link."""
    rng, number = np.random.default_rng(0), 1000
    owners = np.repeat(np.arange(number), MOST)
    codes = {"kind": rng.integers(0, 3, len(owners)), "good": rng.integers(0, 2, len(owners))}
    keys = np.ravel_multi_index((codes["kind"], codes["good"], rng.integers(0, 4, len(owners))), (3, 2, 4))
    counts = Counts(DOMAIN, {(UNIT, *DOMAIN.attributes): (keys, np.full(len(owners), MOST))})
    queryable = PrivateQueryable(counts, total=0.01, accounting=ZCDP, rows=MOST, bits=SeededEntropy(1))
    (found,) = measured_of(queryable, codes, owners).values()
    assert queryable.left < 1e-6
    assert len(found.pairs) == 2
    one_link = sum(
        math.prod(float((scale**2).mean()) * (1 - 1 / len(scale)) for scale in pair.scales) for pair in found.pairs
    )
    for pair in found.pairs:
        assert 0 < pair.variance < 0.5 * one_link / (2 * 0.7 * 0.01)


def test_pairs_that_noise_would_drown_are_not_looked_at() -> None:
    """Those of few free numbers come first; without any, the attributes alone take their part, and the rest stays for the links."""
    sides = ("kind", "good")

    def found(rho: float) -> Wanted:
        return wanted(DOMAIN, ["stars"], sides, rho, as_measured(), MOST)

    nothing, all_ = found(1e-8), found(1e-2)
    assert (nothing.pairs, nothing.rho) == ([], pytest.approx(0.6e-8))
    assert (all_.pairs, all_.rho, all_.left_out) == ([("good", "stars"), ("kind", "stars")], 1e-2, [])
    assert nothing.left_out == all_.pairs
    noise = 1.5 / (2 * 0.7 * UNITS**2 * MOST)
    assert found(noise * 3 * 3 / 0.1 * 1.01).pairs == all_.pairs[:1]
    assert found(noise * 9 * 6 / 0.1 * 1.01).pairs == all_.pairs
    queryable, codes, owners, _ = units(np.full((3, 2, 4), 0.25), rho=1e-8)
    assert not measured_of(queryable, codes, owners)["stars"].pairs
    assert queryable.left < 1e-14


@pytest.mark.parametrize(
    "shapes",
    [
        [(3, 1)] * 8,
        [(4, n) for n in (1, 6, 20, *[1] * 18)],
        [(1, 5)],
        [(2, 2), (2, 30)],
        [(4, 1)],
        [(4, 1)] * 3,
        [(9, 3), (9, 2)],
    ],
)
def test_of_noise_alone_little_is_kept(shapes: list[tuple[int, int]]) -> None:
    """Its energy in the directions in which it happens to be largest is no reason to believe it."""
    rng = np.random.default_rng(1)
    left, whole = 0.0, 0.0
    for _ in range(40):
        tables = [rng.normal(size=shape) for shape in shapes]
        turn, kept = kept_shares(tables)
        left += sum(
            float(((part[:, None] * (turn.T @ table)) ** 2).sum()) for part, table in zip(kept, tables, strict=True)
        )
        whole += sum(float((table**2).sum()) for table in tables)
    assert left < 0.12 * whole


def test_what_is_strong_is_kept() -> None:
    """A direction that several tables share is found, and what is noise in others is not."""
    rng = np.random.default_rng(2)
    strong = np.array([0.6, 0.8, 0.0])
    tables = [rng.normal(size=(3, 6)) + np.multiply.outer(strong, rng.normal(size=6)) * 8 for _ in range(4)]
    turn, kept = kept_shares([*tables, rng.normal(size=(3, 6))])
    assert abs(strong @ turn[:, -1]) > 0.98
    assert kept[:4, -1].min() > 0.9
    assert kept[:4, :-1].max() < 0.9
    assert kept[4].max() < kept[:4, -1].min()


def test_links_that_no_one_unit_holds() -> None:
    """As many rows of a unit as there are links of it: distances say which pairs depend, and these get the budget."""
    rng = np.random.default_rng(4)
    codes = {"kind": rng.integers(0, 3, 20_000), "good": rng.integers(0, 2, 20_000)}
    chance = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])
    stars = (rng.random(20_000)[:, None] > np.cumsum(chance, axis=1)[codes["good"]]).sum(axis=1)
    keys = np.ravel_multi_index((codes["kind"], codes["good"], stars), DOMAIN.shape(DOMAIN.attributes))
    counts = Counts(DOMAIN, {DOMAIN.attributes: np.unique(keys, return_counts=True)})
    queryable = PrivateQueryable(counts, total=0.02, accounting=ZCDP, rows=3, bits=SeededEntropy(1))
    measured, _ = measure_attributes(queryable, ["stars"], 20_000, codes)
    assert queryable.left < 1e-6
    variances = {pair.other: pair.variance for pair in measured["stars"].pairs}
    assert variances["good"] < 0.65 * variances.get("kind", np.inf)
    (found,) = draw(measured, 20_000, codes, np.ones(20_000), rng)
    assert np.abs(shown(found, codes["good"]) - chance).max() < 0.05
    assert np.abs(shown(found, codes["kind"]) - shown(stars, codes["kind"])).max() < 0.05


def test_links_alike_have_values_as_even_as_whole_numbers_allow() -> None:
    """Independent draws would be off by about sqrt(n p (1 - p)), here 27 and more."""
    shares = np.array([0.5, 0.25, 0.15, 0.1])
    queryable, codes, owners, _ = units(np.tile(shares, (3, 2, 1)))
    measured = {name: replace(one, pairs=[]) for name, one in measured_of(queryable, codes, owners).items()}
    weights = 1 / np.bincount(owners)[owners]
    (found,) = draw(measured, weights.sum(), codes, weights, np.random.default_rng(1))
    whole = np.bincount(found, minlength=4)
    for kind in range(3):
        for good in range(2):
            here = found[(codes["kind"] == kind) & (codes["good"] == good)]
            assert np.abs(np.bincount(here, minlength=4) - len(here) * whole / len(found)).max() < 5


def test_two_attributes_have_nothing_in_common_where_all_links_differ() -> None:
    """Both are spread evenly over links alike, but each in an order of its own."""
    rng, links = np.random.default_rng(3), 20_000
    codes = {name: rng.integers(0, 500, links) for name in ("a", "b")}
    alone = NoisyAttribute(shares=np.full(4, 0.25))
    stars, paid = draw({"stars": alone, "paid": alone}, links, codes, np.ones(links), rng)
    assert np.abs(shown(stars, paid) - 0.25).max() < 0.03


@pytest.mark.slow
def test_noise_that_no_residual_has_changes_nothing() -> None:
    """Noise of a residual is not centred, and the fit can have centred values alone."""
    queryable, codes, owners, _ = units(np.tile([0.4, 0.3, 0.2, 0.1], (3, 2, 1)) + np.eye(3, 4)[:, None, :] * 0.2)
    measured = measured_of(queryable, codes, owners)
    weights = 1 / np.bincount(owners)[owners]
    alone = measured["stars"]
    off = [
        replace(pair, table=pair.table + np.multiply.outer(1 / pair.scales[0], 50 * np.arange(pair.table.shape[1])))
        for pair in alone.pairs
    ]
    one, other = (
        draw(found, weights.sum(), codes, weights, np.random.default_rng(1))[0]
        for found in (measured, {"stars": replace(alone, pairs=off)})
    )
    assert np.mean(one == other) > 0.999


NUMBERS = Domain({"unit": 60, "other": 40, "flag": 2, "value": 24})


def numbers(depends: bool, rho: float, seed: int) -> tuple[PrivateQueryable, dict[str, Integers], Integers, Integers]:
    """Units with up to MOST links, whose value of 24 follows their unit's one of 60, or nothing."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(UNITS), rng.integers(1, MOST, UNITS))
    own = rng.normal(size=UNITS)[owners]
    codes = {"unit": own, "other": rng.normal(size=len(owners)), "flag": rng.integers(0, 2, len(owners))}
    value = (0.8 * own if depends else 0.8 * rng.normal(size=len(owners))) + 0.6 * rng.normal(size=len(owners))
    cut = {
        name: np.clip((x + 3) / 6 * NUMBERS.sizes[name], 0, NUMBERS.sizes[name] - 1).astype(np.int64)
        for name, x in (codes | {"value": value}).items()
        if name != "flag"
    }
    codes = {"unit": cut["unit"], "other": cut["other"], "flag": codes["flag"]}
    keys = np.ravel_multi_index((*codes.values(), cut["value"]), NUMBERS.shape(NUMBERS.attributes))
    held = np.bincount(owners)[owners]
    counts = Counts(NUMBERS, {(UNIT, *NUMBERS.attributes): (keys, held)})
    queryable = PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=MOST, bits=SeededEntropy(seed))
    return queryable, codes, owners, cut["value"]


@pytest.mark.parametrize("depends", [True, False])
@pytest.mark.parametrize("rho", [0.003, 0.03])
def test_pairs_of_many_values_are_measured_in_groups_where_noise_would_drown_them(depends: bool, rho: float) -> None:
    """As many groups as let all pairs be measured, so that none is left out for its size; alone, every value keeps its share."""
    queryable, codes, owners, value = numbers(depends, rho, seed=1)
    asked = NUMBERS, ["value"], tuple(codes), rho, as_measured(UNITS, MOST // 2), MOST
    chosen = wanted(*asked)
    groups = chosen.groups
    assert set(chosen.pairs) == {("unit", "value"), ("other", "value"), ("flag", "value")}
    assert 4 <= groups < 24
    assert wanted(*asked[:3], rho / 4, *asked[4:]).groups <= groups
    total, weights = float(UNITS), 1 / np.bincount(owners)[owners]
    rng = np.random.default_rng(5)
    measured = measure_limited(queryable, ["value"], chosen.pairs, total, codes, owners, rng, groups=groups)
    assert queryable.left < 1e-6 * rho
    assert all(max(pair.table.shape) <= groups for pair in measured["value"].pairs)
    (found,) = draw(measured, total, codes, weights, rng)
    real, drawn = (float(np.corrcoef(one, codes["unit"])[0, 1]) for one in (value, found))
    assert drawn > 0.6 * real if depends else abs(drawn) < 0.06
    assert abs(float(np.corrcoef(found, codes["other"])[0, 1])) < 0.06
    shares = [np.bincount(one, weights, 24) / weights.sum() for one in (value, found)]
    assert np.abs(np.subtract(*shares)).sum() < 0.25


def test_values_of_a_group_without_shares_are_drawn_evenly() -> None:
    group, shares = np.array([0, 0, 1, 1]), np.array([0.4, 0.6, 0.0, 0.0])
    drawn = _inside(np.repeat([0, 1], 1000), group, shares, np.random.default_rng(1))
    assert np.bincount(drawn[:1000], minlength=4).tolist() == pytest.approx([400, 600, 0, 0], abs=2)
    assert np.bincount(drawn[1000:], minlength=4).tolist() == pytest.approx([0, 0, 500, 500], abs=2)
