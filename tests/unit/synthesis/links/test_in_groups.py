"""Attributes of sides in groups of neighbouring values: which, and that what links have in common with them is kept."""

from types import MappingProxyType

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.units import UNIT
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Integers
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.in_groups import in_groups
from duckdb_dp.synthesis.links.matches import Match
from duckdb_dp.synthesis.links.methods import Rules, links
from duckdb_dp.synthesis.links.sides import Side, side_of
from duckdb_dp.testing import NoNoise, SeededEntropy

UNITS, AGES, KINDS, MOST = 3_000, 60, 4, 20
DOMAIN = Domain({"v.kind": KINDS, "v.month": 24, "p.age": AGES, "p.sex": 2, "p#": 2})
ORDERED = {"v.kind": 0, "v.month": 24, "p.age": AGES}


def rows(seed: int = 0) -> tuple[Integers, Integers, Integers]:
    """(visits, people, whose each visit is): the old go to the last two kinds in half of their visits, the young in a tenth."""
    rng = np.random.default_rng(seed)
    people = np.stack([rng.integers(0, AGES, UNITS), rng.integers(0, 2, UNITS)], axis=1)
    whose = np.sort(rng.integers(0, UNITS, 2 * UNITS))
    last = rng.random(len(whose)) < np.where(people[whose, 0] >= AGES // 2, 0.5, 0.1)
    kinds = rng.integers(0, 2, len(whose)) + 2 * last
    return np.stack([kinds, rng.integers(0, 24, len(whose))], axis=1), people, whose


def queryable(rho: float, bits: EntropySource | None = None) -> PrivateQueryable:
    visits, people, whose = rows()
    keys = np.ravel_multi_index(
        [*visits.T, *people[whose].T, np.ones(len(whose), int)], DOMAIN.shape(DOMAIN.attributes)
    )
    held = np.bincount(whose, minlength=UNITS)
    tags = np.bincount(held, minlength=MOST + 1)
    blocks = {
        (UNIT, *DOMAIN.attributes): (keys, held[whose]),
        DOMAIN.attributes: np.unique(keys, return_counts=True),
        ("p#",): (np.arange(2), np.array([tags[0], UNITS - tags[0]])),
    }
    return PrivateQueryable(
        Counts(DOMAIN, blocks), total=rho, accounting=ZCDP, rows=MOST, bits=bits or SeededEntropy(1)
    )


def sides() -> tuple[Side, Side]:
    visits, people, _ = rows()
    return side_of(("v.kind", "v.month"), visits), side_of(("p.age", "p.sex"), people, max_degree=MOST, linked="p#")


def test_there_are_fewer_groups_the_less_there_is_to_spend() -> None:
    found = [in_groups(queryable(rho), sides(), 1, ORDERED)[0].domain.sizes for rho in (0.01, 0.3, 10.0, 1e6)]
    ages = [sizes["p.age"] for sizes in found]
    assert ages == sorted(ages)
    assert ages[0] < 10
    assert ages[-1] == AGES
    assert all(sizes["v.kind"] == KINDS and sizes["p.sex"] == 2 for sizes in found)


def test_rows_stay_in_their_places_and_are_grouped_as_counts_are() -> None:
    before = sides()
    grouped, after = in_groups(queryable(0.1, NoNoise()), before, 1, ORDERED)
    for side, new in zip(before, after, strict=True):
        for place, name in enumerate(side.attributes):
            codes, of = side.types[side.rows, place], new.types[new.rows, place]
            assert len({*zip(codes.tolist(), of.tolist(), strict=True)}) == len(np.unique(codes))
            assert (np.diff(of[np.argsort(codes, kind="stable")]) >= 0).all()  # neighbours are together
            if name.startswith("p."):
                continue
            (count,) = grouped.measure_marginals([((name,), grouped.left / 10)])
            assert count.answers == pytest.approx(np.bincount(of, minlength=grouped.domain.sizes[name]), abs=1e-6)


def test_what_has_no_order_is_compared_or_tells_rows_apart_stays_as_it_is() -> None:
    left, right = sides()
    same = Match(left="v.month", right="p.age", same=np.eye(24, AGES, dtype=np.int64))
    assert in_groups(queryable(0.01), (left, right), 1, MappingProxyType({}))[0].domain.sizes == DOMAIN.sizes
    assert in_groups(queryable(0.01), (left, right), 1, ORDERED, [same])[0].domain.sizes == DOMAIN.sizes
    keyed = Side(attributes=right.attributes, types=right.types, rows=right.rows, key="p.age")
    assert in_groups(queryable(0.01), (left, keyed), 1, ORDERED)[0].domain.sizes["p.age"] == AGES
    # Of 'other' and NULL, which come last, each stays alone.
    fewer = in_groups(queryable(0.01), (left, right), 1, {"p.age": AGES - 2})
    last = fewer[1][1].types[fewer[1][1].rows, 0][right.types[right.rows, 0] >= AGES - 2]
    assert len(np.unique(last)) == 2
    assert not np.isin(fewer[1][1].types[fewer[1][1].rows, 0][right.types[right.rows, 0] < AGES - 2], last).any()


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.03, 0.3])
def test_links_keep_what_they_have_in_common_with_ages(rho: float) -> None:
    kept = {}
    for ordered in (ORDERED, {}):
        left, right = sides()
        asked = queryable(rho)
        drawn, _ = links(
            asked, left, right, rules=Rules(child=True), unit=1, ordered=ordered, rng=np.random.default_rng(1)
        )
        assert asked.left < 1e-9 * rho
        old = right.types[right.rows[drawn[1]], 0] >= AGES // 2
        last = left.types[left.rows[drawn[0]], 0] >= 2
        kept[bool(ordered)] = last[old].mean() - last[~old].mean()
    assert kept[True] > 0.25  # of 0.4
    assert kept[True] > kept[False] - 0.02
