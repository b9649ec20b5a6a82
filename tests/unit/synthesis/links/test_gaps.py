"""How far dates of both ends of a link are apart: which are looked at, their classes, and that links keep them."""

import itertools

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.units import UNIT
from duckdb_dp.domain.domain import Attribute, Domain, declare
from duckdb_dp.linop import Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.follow_matches import _powers
from duckdb_dp.synthesis.links.gaps import MOST, gaps_of, pairs_of
from duckdb_dp.synthesis.links.matches import matches_of
from duckdb_dp.synthesis.links.methods import Rules, links
from duckdb_dp.synthesis.links.sides import side_of
from duckdb_dp.testing import NoNoise


def date(name: str, low: str, high: str, **more: object) -> Attribute:
    return declare(name=name, type="DATE", low=low, high=high, **more)  # type: ignore[arg-type]


YEARS = date("a.x", "2020-01-01", "2022-12-31")


@pytest.mark.parametrize(
    ("other", "looked_at"),
    [
        (date("b.y", "2021-01-01", "2023-12-31"), True),
        (date("b.y", "2022-10-01", "2025-12-31"), False),  # of three years three months
        (date("b.y", "2020-01-01", "2020-01-07"), False),  # seven values
        (date("b.y", "1900-01-01", "2022-12-31"), False),  # too many pairs
        (declare(name="b.y", type="DATE", bins=[f"{y}-01-01" for y in range(2014, 2024)]), True),
        (declare(name="b.y", type="DATE", values=[f"2021-{m:02}-15" for m in range(12, 0, -1)], nulls=True), True),
        (declare(name="b.y", type="TIMESTAMP", bins=[f"2021-{m:02}-01 00:00:00" for m in range(1, 13)]), True),
        (declare(name="b.y", type="TIME", bins=[f"{h:02}:00:00" for h in range(8, 20)]), False),
        (declare(name="b.y", type="INTEGER", low=0, high=99), False),
    ],
)  # fmt: skip
def test_dates_of_the_same_years_are_looked_at(other: Attribute, looked_at: bool) -> None:
    assert pairs_of([YEARS], [other]) == ([("a.x", "b.y")] if looked_at else [])
    assert pairs_of([other], [YEARS]) == ([("b.y", "a.x")] if looked_at else [])
    assert len(gaps_of([YEARS], [other])) == looked_at


def test_few_are_looked_at_those_of_most_in_common_first() -> None:
    lefts = [date(f"a.{i}", f"202{i}-01-01", "2022-12-31") for i in range(3)]
    found = pairs_of(lefts, [date(f"b.{i}", f"202{i}-01-01", "2022-12-31") for i in range(3)])
    assert len(found) == MOST
    assert {("a.0", "b.0"), ("a.1", "b.1"), ("a.2", "b.2")} <= set(found)


@pytest.mark.parametrize(
    ("one", "other", "step"),
    [
        (YEARS, date("b.y", "2021-01-01", "2023-12-31", nulls=True), 1),
        (date("a.x", "2020-01-01", "2022-12-31", other=True), declare(name="b.y", type="DATE", bins=[str(np.datetime64("2020-01-01") + 7 * week) for week in range(150)]), 7),
    ],
)  # fmt: skip
def test_classes_are_signs_and_powers_of_two(one: Attribute, other: Attribute, step: int) -> None:
    (gap,) = gaps_of([one], [other])
    assert gap.classes.shape == (one.size, other.size)
    assert set(np.unique(gap.classes)) == set(range(gap.size))
    rng, declared = np.random.default_rng(0), (slice(None, one.base), slice(None, other.base))
    starts = [
        np.array([np.datetime64(str(label)[:11].strip("[,")) for label in a.labels()[: a.base]]) for a in (one, other)
    ]
    lengths = [0.0, 0.0 if step == 1 else float(step)]
    days = [(s - np.datetime64("2000-01-01")).astype(float) + n / 2 for s, n in zip(starts, lengths, strict=True)]
    found: dict[int, list[float]] = {}
    for i, j in zip(rng.integers(0, one.base, 20_000), rng.integers(0, other.base, 20_000), strict=True):
        found.setdefault(int(gap.classes[declared][i, j]), []).append((days[0][i] - days[1][j]) / step)
    ends = [(min(apart), max(apart)) for _, apart in sorted(found.items())]
    for low, high in ends:
        assert (abs(low) < 0.5 and abs(high) < 0.5) or (
            low * high > 0 and max(abs(low), abs(high)) < 4 * min(abs(low), abs(high))
        )
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ends))
    hidden = np.ones(gap.classes.shape, dtype=bool)
    hidden[declared] = False
    assert not hidden.any() or set(gap.classes[hidden]) == {gap.size - 1}
    assert not (gap.classes[declared] == gap.size - 1).any() or not hidden.any()


@pytest.mark.parametrize("type_", ["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"])
def test_a_timestamp_is_as_far_from_a_date_as_another_date_is(type_: str) -> None:
    """A claim opened on a day, of a parcel delivered at a time."""
    days = [f"2021-{month:02}-01" for month in range(1, 13)]
    (by_date,) = gaps_of([YEARS], [declare(name="b.y", type="DATE", bins=[*days])])
    (gap,) = gaps_of([YEARS], [declare(name="b.y", type=type_, bins=[*days])])
    assert np.array_equal(gap.classes, by_date.classes)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_factors_give_classes_their_numbers_and_leave_singles(size: int) -> None:
    rng = np.random.default_rng(size)
    table, classes = rng.gamma(2.0, 1.0, (30, 20)), rng.integers(0, size, (30, 20))
    goal = table * np.exp(rng.normal(0, 1, size))[classes]
    for _ in range(500):  # a table with the singles of the first one
        goal *= (table.sum(axis=1) / goal.sum(axis=1))[:, None]
        goal *= table.sum(axis=0) / goal.sum(axis=0)
    wanted = np.bincount(classes.reshape(-1), goal.reshape(-1), size).astype(np.float64)
    tried = table * np.exp(_powers(table, classes, wanted))[classes]
    for _ in range(500):
        tried *= (table.sum(axis=1) / tried.sum(axis=1))[:, None]
        tried *= table.sum(axis=0) / tried.sum(axis=0)
    np.testing.assert_allclose(np.bincount(classes.reshape(-1), tried.reshape(-1), size), wanted, rtol=0.01)


DAYS, BOUND = 400, 6


def linked(seed: int) -> tuple[Integers, Integers, Integers]:
    """(days of reviews, days of stays, the stay of each review): one to thirty days after it."""
    rng = np.random.default_rng(seed)
    stays = rng.integers(0, DAYS - 31, 700)
    owner = np.repeat(np.arange(700), rng.integers(0, BOUND, 700))
    return stays[owner] + rng.integers(1, 31, len(owner)), stays, owner


@pytest.mark.parametrize("unit", [1, None])
def test_links_keep_how_far_dates_are_apart(unit: int | None) -> None:
    days, stays, owner = linked(1)
    end = np.datetime64("2020-01-01") + DAYS - 1
    attributes = [[date("review.day", "2020-01-01", str(end))], [date("stay.day", "2020-01-01", str(end))]]
    domain = Domain({"review.day": DAYS, "stay.day": DAYS, "stay.linked": 2})
    codes = np.ravel_multi_index((days, stays[owner]), (DAYS, DAYS))
    held = len(np.unique(owner))
    blocks = {
        (): (np.zeros(1, np.int64), np.array([len(owner)])),
        ("review.day", "stay.day"): np.unique(codes, return_counts=True),
        (UNIT, "review.day", "stay.day"): (codes, np.bincount(owner)[owner]),
        ("stay.linked",): (np.array([0, 1]), np.array([700 - held, held])),
    }
    queryable = PrivateQueryable(Counts(domain, blocks), total=50.0, accounting=ZCDP, rows=BOUND, bits=NoNoise())
    left = side_of(("review.day",), days[:, None])
    right = side_of(("stay.day",), stays[:, None], max_degree=BOUND, linked="stay.linked")
    found, detail = links(
        queryable, left, right, matches=matches_of(*attributes), gaps=gaps_of(*attributes), unit=unit,
        rules=Rules(child=True), rng=np.random.default_rng(3),
    )  # fmt: skip
    apart = days[found[0]] - stays[found[1]]
    assert ((apart >= 1) & (apart <= 31)).mean() >= 0.85
    assert (apart > 0).mean() >= 0.95
    assert detail["unmeasured"] == []
