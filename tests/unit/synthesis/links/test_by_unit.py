"""Links of units: what everybody is linked to has its links, whether units have few links or many, and of how many row types they are."""

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.units import UNIT, classes
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.assign_links import End, feasible, filled
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.by_unit import OF_LINKS, ByUnit, by_number
from duckdb_dp.synthesis.links.degrees import Degrees, model
from duckdb_dp.synthesis.links.fit import tilted
from duckdb_dp.synthesis.links.measured_degrees import Measured
from duckdb_dp.synthesis.links.methods import Rules, links
from duckdb_dp.synthesis.links.per_unit import NoisyTable
from duckdb_dp.synthesis.links.sides import Side, side_of
from duckdb_dp.synthesis.links.within import Structure
from duckdb_dp.testing import NoNoise, SeededEntropy

USERS, FILMS, MOST = 400, 40, 30


def sides(kinds: int, films: str) -> tuple[Side, Side]:
    """Users of so many kinds, with a bound, and films of eight genres, of which the first has one film or five."""
    genres = np.arange(FILMS) % 8
    if films == "alone":
        genres[(genres == 0) & (np.arange(FILMS) > 0)] = 1
    users = side_of(("u.kind",), np.arange(USERS)[:, None] % kinds, max_degree=MOST, linked="u.linked")
    return users, side_of(("f.genre",), genres[:, None], linked="f.linked")


def rated(degrees: str) -> Integers:
    """Links, shape (links, 2): nine users in ten have film 0, and 5 others each, or most none and a few many."""
    rng = np.random.default_rng(7)
    more = np.full(USERS, 5) if degrees == "even" else np.where(rng.random(USERS) < 0.2, 25, rng.integers(0, 2, USERS))
    found = [(u, 0) for u in range(USERS) if u % 10]
    found += [(u, 1 + f) for u in range(USERS) for f in rng.choice(FILMS - 1, more[u], replace=False).tolist()]
    return np.array(sorted(found))


def queryable(pairs: Integers, users: Side, films: Side, rho: float, bits: object) -> PrivateQueryable:
    """What counts these links by user."""
    kinds, genres = len(users.types), len(films.types)
    domain = Domain({"u.kind": kinds, "f.genre": genres})
    cells = users.rows[pairs[:, 0]] * genres + films.types[films.rows[pairs[:, 1]], 0]
    blocks = {
        (): (np.zeros(1, np.int64), np.array([len(pairs)])),
        domain.attributes: np.unique(cells, return_counts=True),
        (UNIT, *domain.attributes): (cells, np.bincount(pairs[:, 0])[pairs[:, 0]]),
    }
    for place, (tag, n) in enumerate((("u.linked", len(users.rows)), ("f.linked", len(films.rows)))):
        held = len(np.unique(pairs[:, place]))
        blocks[tag,] = (np.array([0, 1]), np.array([n - held, held]))
    counts = Counts(Domain({**domain.sizes, "u.linked": 2, "f.linked": 2}), blocks)
    return PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=MOST, bits=bits)  # type: ignore[arg-type]


def by_genre(rows: Integers, films: Side) -> Array:
    return np.bincount(films.types[films.rows[rows], 0], minlength=len(films.types)).astype(np.float64)


@pytest.mark.parametrize("kinds", [1, 3, USERS])
@pytest.mark.parametrize("films", ["alone", "several"])
@pytest.mark.parametrize(
    ("degrees", "distinct", "turned"), [("skewed", True, False), ("skewed", False, True), ("even", True, True)]
)
def test_what_everybody_is_linked_to_has_its_links(
    kinds: int, films: str, degrees: str, distinct: bool, turned: bool
) -> None:
    """A unit with two links, one of them to the film that all have, has half of its links there, and one with 25 the 25th."""
    users, others = sides(kinds, films)
    pairs = rated(degrees)
    opened = queryable(pairs, users, others, 1e8, NoNoise())
    ends = (others, users) if turned else (users, others)
    found, detail = links(opened, *ends, unit=int(turned), rules=Rules(distinct=distinct), rng=np.random.default_rng(1))
    real, made = by_genre(pairs[:, 1], others), by_genre(found[1 - turned], others)
    assert made.sum() == pytest.approx(len(pairs), rel=0.01)
    np.testing.assert_allclose(made, real, rtol=0.02, atol=4)
    assert np.bincount(found[int(turned)]).max() <= MOST
    assert not distinct or len(np.unique(found[0] * 1000 + found[1])) == len(found[0])
    assert sum(detail["spent"].values()) <= 1e8 * (1 + 1e-9)


def test_links_weigh_more_than_as_shares_where_that_says_something() -> None:
    """Not where noise for all links of a unit drowns them, and not where all units have as many."""
    users, films = sides(3, "several")
    for degrees, rho, counted in (("skewed", 1e4, True), ("skewed", 0.05, False), ("even", 1e-2, False)):
        opened = queryable(rated(degrees), users, films, rho, SeededEntropy(3))
        _, detail = links(opened, users, films, unit=0, rng=np.random.default_rng(1))
        assert ("heavier" in detail["spent"]) == counted, (degrees, rho)
        assert opened.left == pytest.approx(0, abs=1e-6 * rho)
        assert detail["spent"].get("heavier", 0.0) <= OF_LINKS * rho


@pytest.mark.slow
def test_a_kind_of_nearly_everybody_has_its_links_where_noise_is_large() -> None:
    """Too large for weights of more than one link: values by the number of links say what units with many go to."""
    rng, n = np.random.default_rng(8), 3000
    held = np.minimum(np.floor(np.exp(rng.normal(0.7, 1.3, n))), MOST - 1).astype(np.int64)
    kinds = np.arange(100) % 25
    users = side_of(("u.kind",), np.zeros((n, 1), np.int64), max_degree=MOST, linked="u.linked")
    films = side_of(("f.genre",), kinds[:, None], linked="f.linked")
    pairs = [(u, 1 + f) for u in range(n) for f in rng.choice(99, held[u], replace=False).tolist()]
    pairs += [(u, 0) for u in range(n) if u % 10]
    links_ = np.array(sorted(pairs))
    real = by_genre(links_[:, 1], films) / len(links_)
    each = 1 / np.bincount(links_[:, 0], minlength=n)[links_[:, 0]]
    assert np.bincount(kinds[links_[:, 1]], each)[0] / each.sum() > 2 * real[0]
    shares = []
    for seed in range(3):
        opened = queryable(links_, users, films, 0.3, SeededEntropy(seed))
        found, detail = links(opened, users, films, unit=0, rng=np.random.default_rng(seed))
        assert "heavier" not in detail["spent"]
        shares.append(by_genre(found[1], films)[0] / len(found[1]))
    assert np.mean(shares) == pytest.approx(real[0], rel=0.2)


def test_a_number_of_links_that_is_asked_for_changes_no_shares() -> None:
    users, films = sides(3, "several")
    pairs = rated("skewed")
    opened = queryable(pairs, users, films, 1e8, NoNoise())
    found, _ = links(opened, users, films, unit=0, rows=len(pairs) // 2, rng=np.random.default_rng(1))
    real, made = by_genre(pairs[:, 1], films), by_genre(found[1], films)
    np.testing.assert_allclose(made / made.sum(), real / real.sum(), atol=0.01)


def test_what_a_block_cannot_hold_goes_to_others_of_its_row_types() -> None:
    """Rows with many links have one each to a row that all are linked to: then it has others of rows with few."""
    left = side_of(("u.a",), np.arange(50)[:, None])
    right = side_of(("m.c",), np.arange(30)[:, None])
    ends = End(side=left, bound=30, linked=None), End(side=right, bound=None, linked=None)
    degrees = np.where(np.arange(50) < 10, 20.0, 2.0)
    shares = np.append(0.4, np.full(29, 0.6 / 29))
    expected = np.multiply.outer(degrees, shares)
    scaled = feasible(expected, *ends, 280, True)
    assert scaled.max() <= 1
    assert scaled.sum() == pytest.approx(280)
    np.testing.assert_allclose(scaled.sum(axis=1), degrees, rtol=0.05)
    assert scaled[:, 0].sum() == pytest.approx(min(0.4 * 280, 50), rel=0.05)
    whole = filled(scaled, degrees, np.append(45.0, np.full(29, 235 / 29)), np.random.default_rng(2), 1.0)
    assert whole.max() == 1
    np.testing.assert_array_equal(whole.sum(axis=1), degrees)
    assert abs(whole[:, 0].sum() - 45) <= 1


def test_units_with_many_links_keep_them_where_a_smooth_model_has_none() -> None:
    """Classes of degrees that the negative binomial has nothing of, as its mean is that of the links that are asked for."""
    side = side_of(("u.a",), np.zeros((1000, 1), np.int64), max_degree=100, linked="u.linked")
    first = classes(100)
    table = np.zeros(len(first))
    table[0], table[-1] = 900.0, 100.0
    sizes = NoisyTable(table, 1e-9)
    measured = Measured(rows=1000.0, linked=1000.0, linked_variance=1e-9, sizes=sizes)
    degrees = model(measured, side, Domain({"u.a": 1}), 1500)
    assert degrees.shares.sum() == pytest.approx(1, abs=1e-3)
    assert degrees.shares[first[-1] :].sum() == pytest.approx(0.1, abs=1e-3)


@pytest.mark.parametrize("nested", [False, True])
def test_attributes_that_determine_one_another_may_contradict_each_other(nested: bool) -> None:
    """A city and its region are measured each with its own noise: links went nearly all to a few values of any attribute."""
    rng, n = np.random.default_rng(3), 240
    codes = np.stack([np.arange(n) % 10, np.arange(n) % 10 // (2 if nested else 1), rng.integers(0, 16, n)], 1)
    films = side_of(("f.city", "f.region", "f.size"), codes)
    users = side_of(("u.kind",), np.arange(USERS)[:, None] % 16, max_degree=8)
    blocks = Blocks(
        Domain({"u.kind": 16, "f.city": 10, "f.region": int(codes[:, 1].max()) + 1, "f.size": 16}), users, films
    )
    by_unit = ByUnit(end=0, degrees=Degrees(shares=np.append(0.0, np.full(8, 1 / 8))), total=float(USERS), variance=1.0)
    base, first = by_unit.base(blocks), np.array([1, 3, 6])
    values = {}
    for name in films.attributes:
        even = base.sum(axis=0) @ blocks.indicator((name,), right=True)
        lifts = np.outer([-1, 0, 1], rng.normal(0, 0.3, len(even)))
        values[name] = NoisyTable(
            np.outer([0.25, 0.375, 0.375], even) * (1 + lifts) + rng.normal(0, 1, lifts.shape), 1.0
        )
    links_ = tilted(
        blocks, base, by_number(by_unit, blocks, {}, Structure(pairs={}, values=values, first=first)), one_parent=True
    )
    shares = {name: links_.sum(axis=0) @ blocks.indicator((name,), right=True) / USERS for name in films.attributes}
    for name, share in shares.items():
        even = base.sum(axis=0) @ blocks.indicator((name,), right=True) / USERS
        assert np.abs(share - even).sum() < 0.2, name
