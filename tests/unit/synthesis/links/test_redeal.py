"""Structure within units: links are dealt anew within row types, towards what was measured, and not towards noise."""

import numpy as np
import pytest

from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.units import UNIT, pairs_of, values_of, weight_of
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Integers
from duckdb_dp.synthesis.links.per_unit import NoisyTable
from duckdb_dp.synthesis.links.sides import Side, side_of
from duckdb_dp.synthesis.links.within import Structure, keep_structure, looked_at

MOST, UNITS = 5, 800
DOMAIN = Domain({"kind": 2, "colour": 3})


def alike(seed: int) -> tuple[Side, Integers, Integers]:
    """Units of two types, their links, and the colours of these: mostly the same within a unit."""
    rng = np.random.default_rng(seed)
    side = side_of(("kind",), rng.integers(0, 2, UNITS)[:, None], max_degree=MOST)
    owners = np.repeat(np.arange(UNITS), rng.integers(0, MOST + 1, UNITS))
    usual = rng.integers(0, 3, UNITS)
    return side, owners, np.where(rng.random(len(owners)) < 0.8, usual[owners], rng.integers(0, 3, len(owners)))


def tables(side: Side, owners: Integers, colours: Integers, deviation: float, seed: int = 0) -> Structure:
    order = np.argsort(owners, kind="stable")
    held = np.bincount(owners)[owners[order]]
    keys = side.types[side.rows[owners[order]], 0] * 3 + colours[order]
    counts, rng = Counts(DOMAIN, {(UNIT, *DOMAIN.attributes): (keys, held)}), np.random.default_rng(seed)

    def noisy(clique: tuple[str, ...], *shape: int) -> NoisyTable:
        exact = counts.marginal(clique) / weight_of(clique)
        return NoisyTable((exact + rng.normal(0, deviation, exact.shape)).reshape(shape), deviation**2)

    return Structure(
        pairs={("colour", "colour"): noisy(pairs_of("colour", "colour"), 3, 3)},
        values={"colour": noisy(values_of(range(1, MOST + 1), "colour"), MOST, 3)},
        first=np.arange(1, MOST + 1),
    )


def same(owners: Integers, colours: Integers) -> float:
    """Share of pairs of one unit that have one colour; the mean over units."""
    found = [colours[owners == unit] for unit in np.unique(owners) if (owners == unit).sum() > 1]
    pairs = [((part[:, None] == part[None, :]).sum() - len(part)) / (len(part) * (len(part) - 1)) for part in found]
    return float(np.mean(pairs))


def kept(structure: Structure, side: Side, owners: Integers, colours: Integers, partners: Integers | None) -> Integers:
    return keep_structure(
        structure,
        owners,
        side,
        {"colour": colours},
        partners,
        scale=1.0,
        apart=None,
        rng=np.random.default_rng(5),
    )


def shuffled(side: Side, owners: Integers) -> Integers:
    """Places of links, mixed within row types."""
    rng, kinds = np.random.default_rng(9), side.rows[owners]
    places = np.arange(len(owners))
    for kind in np.unique(kinds):
        places[kinds == kind] = rng.permutation(places[kinds == kind])
    return places


def test_links_of_a_unit_get_what_they_have_in_common() -> None:
    side, owners, colours = alike(0)
    mixed = colours[shuffled(side, owners)]
    found = kept(tables(side, owners, colours, 0.5), side, owners, mixed, None)
    assert sorted(found) == list(range(len(owners)))
    assert (side.rows[owners] == side.rows[owners[found]]).all()  # row types keep their contents
    assert same(owners, mixed) < 0.4 < 0.7 < same(owners, colours)
    assert same(owners, mixed[found]) == pytest.approx(same(owners, colours), abs=0.02)


def test_links_of_units_of_many_are_as_alike_as_those_of_few() -> None:
    """Tables of whole units are reached by those of few links alone, where all units are as likely to be changed."""
    rng = np.random.default_rng(3)
    side = side_of(("kind",), rng.integers(0, 2, UNITS)[:, None], max_degree=20)
    number = np.where(np.arange(UNITS) < UNITS // 8, 12, 2)
    owners, usual = np.repeat(np.arange(UNITS), number), rng.integers(0, 3, UNITS)
    colours = np.where(rng.random(len(owners)) < 0.6, usual[owners], rng.integers(0, 3, len(owners)))
    mixed = colours[shuffled(side, owners)]
    structure = tables(side, owners, colours, 0.5)
    found = kept(structure, side, owners, mixed, None)
    of_many = owners < UNITS // 8
    many, few = (same(owners[here], mixed[found][here]) for here in (of_many, ~of_many))
    assert abs(many - few) < 0.1
    assert same(owners, mixed[found]) == pytest.approx(same(owners, colours), abs=0.02)


def test_where_no_two_units_are_of_one_type_nothing_is_dealt_anew() -> None:
    side = side_of(("kind",), np.array([[0], [1]]), max_degree=MOST)
    owners, colours = np.array([0, 0, 1, 1]), np.array([0, 1, 2, 2])
    assert kept(tables(side, owners, colours, 0.5), side, owners, colours, None).tolist() == [0, 1, 2, 3]


def test_noise_alone_deals_nothing_anew() -> None:
    side, owners, colours = alike(1)
    mixed = colours[shuffled(side, owners)]
    for seed in range(3):
        found = kept(tables(side, owners, mixed, 3000.0, seed), side, owners, mixed, None)
        assert abs(same(owners, mixed[found]) - same(owners, mixed)) < 0.15


def test_no_pair_is_linked_twice() -> None:
    side, owners, colours = alike(2)
    rng = np.random.default_rng(3)
    partners = np.concatenate([rng.permutation(8)[:n] for n in np.bincount(owners, minlength=UNITS) if n])
    mixed = partners % 3
    found = kept(tables(side, owners, colours, 0.5), side, owners, mixed, partners)
    assert (found != np.arange(len(found))).any()
    assert len({*zip(owners.tolist(), partners[found].tolist(), strict=True)}) == len(owners)


def test_wide_attributes_are_left_out() -> None:
    sizes = {f"a{i}": 30 for i in range(20)} | {"wide": 65, "one": 1, "small": 2}
    found = looked_at(Domain(sizes), list(sizes))
    assert {"wide", "one"}.isdisjoint(found)
    assert "small" in found
    assert sum(sizes[name] for name in found) <= 400
