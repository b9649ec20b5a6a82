"""Attributes of links that are measured as shares of units: what depends on the ends is kept, and nothing else is."""

from dataclasses import replace

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.units import UNIT
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.links.link_attributes import draw
from duckdb_dp.synthesis.links.measure_attributes import measure_attributes, wanted
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


def measured_of(
    queryable: PrivateQueryable,
    codes: dict[str, Integers],
    owners: Integers,
    others: tuple[str, ...] = ("kind", "good"),
) -> list[LinearMeasurement]:
    """What is measured of stars with the whole budget."""
    together, _ = wanted(DOMAIN, ["stars"], others, queryable.left, UNITS)
    ends = {name: codes[name] for name in others}
    weights = 1 / np.bincount(owners)[owners]
    return measure_attributes(queryable, ["stars"], together, float(weights.sum()), ends, weights, by_unit=True)


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
    (found,) = draw(DOMAIN, ["stars"], measured, weights.sum(), codes, weights, np.random.default_rng(1))
    for by in codes.values():
        assert np.abs(shown(found, by) - shown(stars, by)).max() < 0.04
    assert (np.abs(shown(found, codes["kind"]) - plain).max() > 0.1) == depends


def test_a_unit_counts_as_one_link() -> None:
    """Noise is that of one link of each unit, and all of the budget is spent."""
    queryable, codes, owners, _ = units(np.full((3, 2, 4), 0.25), rho=1.0)
    for one in measured_of(queryable, codes, owners):
        size = np.prod([1 - 1 / n for n in DOMAIN.shape(one.clique)])
        assert one.variance >= size / 2
    assert queryable.left < 1e-6


def test_the_budget_goes_to_pairs_that_depend() -> None:
    """'stars' depend on 'good' alone, which a noisy distance shows; alike shares would give variances of a ratio of 3/4."""
    chance = np.tile(np.array([0.4, 0.3, 0.2, 0.1]), (3, 2, 1))
    chance[:, 1] = chance[:, 1, ::-1]
    queryable, codes, owners, _ = units(chance, rho=0.004, bits=SeededEntropy(1))
    found = {one.clique: one.variance for one in measured_of(queryable, codes, owners)}
    assert found[("good", "stars")] < 0.65 * found.get(("kind", "stars"), np.inf)


def test_pairs_that_noise_would_drown_are_not_looked_at() -> None:
    """Then the attributes alone take their part, and the rest stays for the links."""
    assert wanted(DOMAIN, ["stars"], ("kind", "good"), 1e-6, UNITS) == ([], pytest.approx(0.6e-6))
    together, spent = wanted(DOMAIN, ["stars"], ("kind", "good"), 1e-2, UNITS)
    assert set(together) == {("kind", "stars"), ("good", "stars")}
    assert spent == 1e-2
    queryable, codes, owners, _ = units(np.full((3, 2, 4), 0.25), rho=1e-6)
    assert [m.clique for m in measured_of(queryable, codes, owners)] == [("stars",)]


def test_links_alike_have_values_as_even_as_whole_numbers_allow() -> None:
    """Independent draws would be off by about sqrt(n p (1 - p)), here 27 and more."""
    shares = np.array([0.5, 0.25, 0.15, 0.1])
    queryable, codes, owners, _ = units(np.tile(shares, (3, 2, 1)))
    measured = [m for m in measured_of(queryable, codes, owners, ("kind",)) if m.clique == ("stars",)]
    weights = 1 / np.bincount(owners)[owners]
    (found,) = draw(DOMAIN, ["stars"], measured, weights.sum(), codes, weights, np.random.default_rng(1))
    whole = np.bincount(found, minlength=4)
    for kind in range(3):
        for good in range(2):
            here = found[(codes["kind"] == kind) & (codes["good"] == good)]
            assert np.abs(np.bincount(here, minlength=4) - len(here) * whole / len(found)).max() < 5


def test_two_attributes_have_nothing_in_common_where_all_links_differ() -> None:
    """Both are spread evenly over links alike, but each in an order of its own."""
    rng, links = np.random.default_rng(3), 20_000
    domain = Domain({"a": 500, "b": 500, "stars": 4, "paid": 4})
    codes = {name: rng.integers(0, 500, links) for name in ("a", "b")}
    counts = Counts(domain, {("stars",): (np.arange(4), np.full(4, 5000)), ("paid",): (np.arange(4), np.full(4, 5000))})
    queryable = PrivateQueryable(counts, total=2.0, accounting=ZCDP, rows=1, bits=NoNoise())
    measured = queryable.measure_residuals([(("stars",), 1.0), (("paid",), 0.5)])
    stars, paid = draw(domain, ["stars", "paid"], measured, links, codes, np.ones(links), rng)
    assert np.abs(shown(stars, paid) - 0.25).max() < 0.03


@pytest.mark.slow
def test_noise_that_no_residual_has_changes_nothing() -> None:
    """Noise of a residual is not centred, and the fit can have centred values alone."""
    queryable, codes, owners, _ = units(np.tile([0.4, 0.3, 0.2, 0.1], (3, 2, 1)) + np.eye(3, 4)[:, None, :] * 0.2)
    measured = measured_of(queryable, codes, owners)
    weights = 1 / np.bincount(owners)[owners]
    off = [
        replace(m, answers=(m.answers.reshape(DOMAIN.shape(m.clique)) + 50 * np.arange(4)).reshape(-1))
        if len(m.clique) == 2
        else m
        for m in measured
    ]
    one, other = (
        draw(DOMAIN, ["stars"], found, weights.sum(), codes, weights, np.random.default_rng(1))[0]
        for found in (measured, off)
    )
    assert np.mean(one == other) > 0.999
