"""Links of tables of which a sample of rows is fitted: few rows may have most links, and no attribute may tell which."""

from dataclasses import replace

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.units import UNIT
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links import tiles, whole
from duckdb_dp.synthesis.links.fit import Wanted
from duckdb_dp.synthesis.links.methods import Rules, links
from duckdb_dp.synthesis.links.sides import Side, coordinates, side_of
from duckdb_dp.testing import SeededEntropy

USERS, MOST = 300, 12
SIZES = {"language": 4, "country": 6, "age": 12, "joined": 5, "posts": 4}
DOMAIN = Domain({f"{end}.{name}": size for end in ("who", "whom") for name, size in SIZES.items()})
RHO = {1.0: 0.024, 4.0: 0.31, 10.0: 1.5}
"""epsilon: rho, about."""


def users(seed: int) -> Integers:
    """Codes of the attributes, shape (users, attributes), nearly all rows different."""
    rng = np.random.default_rng(seed)
    language = rng.choice(4, USERS, p=[0.4, 0.3, 0.2, 0.1])
    country = np.where(rng.random(USERS) < 0.7, language, rng.integers(0, 6, USERS))
    return np.stack([language, country, *(rng.integers(0, SIZES[name], USERS) for name in list(SIZES)[2:])], 1)


def follows(codes: Integers, sigma: float, seed: int) -> Integers:
    """Links, shape (links, 2): of users of one's own language six times as often, and of the famous ones, whom chance chose."""
    rng = np.random.default_rng(seed)
    fame, found = rng.lognormal(0, sigma, USERS), []
    for user, number in enumerate(np.minimum(rng.poisson(5 * rng.gamma(1.5, 1 / 1.5, USERS)), MOST)):
        chance = fame * np.where(codes[:, 0] == codes[user, 0], 6.0, 1.0)
        chance[user] = 0
        found += [(user, other) for other in rng.choice(USERS, number, replace=False, p=chance / chance.sum())]
    return np.array(found, dtype=np.int64)


def queryable(codes: Integers, pairs: Integers, rho: float, seed: int) -> PrivateQueryable:
    """What counts these links, and those of each user who follows."""
    cells = np.zeros(len(pairs), dtype=np.int64)
    for end in (0, 1):
        for name, code in zip(SIZES, codes[pairs[:, end]].T, strict=True):
            cells = cells * SIZES[name] + code
    blocks = {
        (): (np.zeros(1, np.int64), np.array([len(pairs)])),
        DOMAIN.attributes: np.unique(cells, return_counts=True),
        (UNIT, *DOMAIN.attributes): (cells, np.bincount(pairs[:, 0])[pairs[:, 0]]),
    }
    for end, tag in enumerate(("who.linked", "whom.linked")):
        linked = len(np.unique(pairs[:, end]))
        blocks[tag,] = (np.array([0, 1]), np.array([USERS - linked, linked]))
    counts = Counts(Domain({**DOMAIN.sizes, "who.linked": 2, "whom.linked": 2}), blocks)
    return PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=MOST, bits=SeededEntropy(seed))


def ends_of(codes: Integers, unit: bool) -> tuple[Side, Side]:
    """The synthetic users as both sides, of whom those who follow are the units, or nobody is."""
    who, whom = (
        side_of(tuple(f"{end}.{name}" for name in SIZES), codes, linked=f"{end}.linked" if unit else None)
        for end in ("who", "whom")
    )
    return (replace(who, max_degree=MOST) if unit else who), whom


def shares(codes: Integers, pairs: Integers) -> list[Array]:
    """Distributions over links: the languages of both ends, and each attribute of those who are followed."""
    both = codes[pairs[:, 0], 0] * SIZES["language"] + codes[pairs[:, 1], 0]
    found = [np.bincount(both, minlength=SIZES["language"] ** 2)]
    found += [np.bincount(codes[pairs[:, 1], i], minlength=size) for i, size in enumerate(SIZES.values())]
    return [one / len(pairs) for one in found]


def errors(sigma: float, epsilon: float, seed: int, unit: bool) -> tuple[float, float, float]:
    """L1 distance of the joint distribution of languages, mean one of the attributes of the followed, and links over the real ones."""
    codes, others = users(seed), users(100 + seed)
    pairs = follows(codes, sigma, seed)
    opened = queryable(codes, pairs, RHO[epsilon] if unit else RHO[epsilon] * MOST**2, seed)
    found, _ = links(
        opened,
        *ends_of(others, unit),
        unit=0 if unit else None,
        rules=Rules(no_self_links=True),
        rng=np.random.default_rng(seed),
    )
    made = np.stack(found[:2], 1)
    apart = [np.abs(a - b).sum() for a, b in zip(shares(codes, pairs), shares(others, made), strict=True)]
    return float(apart[0]), float(np.mean(apart[1:])), len(made) / len(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("tiled", [True, False])
@pytest.mark.parametrize(("sigma", "unit"), [(0.5, True), (1.0, True), (2.0, True), (0.5, False)])
def test_links_to_famous_rows_are_no_worse_at_larger_budgets(
    monkeypatch: pytest.MonkeyPatch, sigma: float, unit: bool, tiled: bool
) -> None:
    """The tilt of the followed side had more numbers than the sample has rows, and gave other rows nearly all links."""
    monkeypatch.setattr(tiles, "LARGEST", USERS**2 // 2)
    monkeypatch.setattr(tiles, "SAMPLED", USERS * 6 // 10)
    monkeypatch.setattr(tiles, "TILE", USERS**2 // 3)
    monkeypatch.setattr(tiles, "DRAWN", 0 if tiled else USERS**2)
    found = {
        epsilon: np.mean([errors(sigma, epsilon, seed, unit) for seed in range(3)], axis=0) for epsilon in (1.0, 4.0)
    }
    for before, after, noise in zip(found[1.0][:2], found[4.0][:2], (0.1, 0.03), strict=True):
        assert after <= before + noise
    assert found[4.0][2] == pytest.approx(1, abs=0.1)


def test_a_part_has_its_share_of_the_rows_with_most_links() -> None:
    """Each row is in one part, parts differ by a row at most, and of the rows with most links each part has one."""
    rng, held = np.random.default_rng(4), np.random.default_rng(5).permutation(47).astype(float)
    parts = tiles._parts(held, 5, rng)
    assert sorted(np.concatenate(parts).tolist()) == list(range(47))
    assert {len(part) for part in parts} <= {9, 10}
    for most in range(5, 46, 5):
        assert [(held[part] >= 47 - most).sum() for part in parts] == [most // 5] * 5


@pytest.mark.parametrize("cells", [10**7, 200])
def test_what_was_measured_of_one_side_is_fitted_to_all_of_its_rows(
    monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    """Together, or where there are too many in parts that each have their share."""
    monkeypatch.setattr(whole, "CELLS", cells)
    side, rng = ends_of(users(3), unit=True)[1], np.random.default_rng(6)
    base = side.sizes * 5.0
    real = base * rng.lognormal(0, 1, len(base))
    real *= base.sum() / real.sum()
    wanted = {}
    for i, name in enumerate(side.attributes[:2]):
        table = np.bincount(side.types[:, i], real, DOMAIN.sizes[name])
        wanted[(name,)] = coordinates(table[None]).reshape(1, -1)
    found = whole.fitted(DOMAIN, side, base, Wanted(wanted, dict.fromkeys(wanted, 1e-6), {}), rng)
    assert found.sum() == pytest.approx(base.sum())
    for i, name in enumerate(side.attributes[:2]):
        made, asked = (np.bincount(side.types[:, i], of, DOMAIN.sizes[name]) for of in (found, real))
        np.testing.assert_allclose(made, asked, rtol=0.02)
