"""Whether the ends of a link match: found by declarations, counted like any attribute, and kept in the links and their attributes."""

from fractions import Fraction

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.units import UNIT
from duckdb_dp.domain.domain import Attribute, Domain, declare
from duckdb_dp.linop import Array, Centring, Distance, Grouped, Integers
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.follow_matches import follow_matches
from duckdb_dp.synthesis.links.learner import start
from duckdb_dp.synthesis.links.matches import MOST, Match, extended, matches_of, merged
from duckdb_dp.synthesis.links.methods import links
from duckdb_dp.synthesis.links.sides import Side, side_of
from duckdb_dp.testing import NoNoise, SeededEntropy

TOWNS, STUDENTS, COURSES, BOUND = 6, 800, 60, 5
MATCH = Match(left="s.major", right="c.dept", same=np.eye(TOWNS, dtype=np.int64))


# Which are looked at


def texts(name: str, *values: str, **options: bool) -> Attribute:
    return declare(name=name, type="VARCHAR", values=list(values), **options)


def whole(name: str, low: int, high: int, type_: str = "INTEGER") -> Attribute:
    return declare(name=name, type=type_, low=low, high=high)


def found(left: list[Attribute], right: list[Attribute]) -> list[tuple[str, str]]:
    return [(match.left, match.right) for match in matches_of(left, right)]


def test_attributes_with_most_of_their_values_in_common_are_compared() -> None:
    major, dept = texts("s.major", "art", "law", "art history"), texts("c.dept", "law", "art", "art history", "physics")
    (match,) = matches_of([major, whole("s.year", 1, 4)], [dept, texts("c.kind", "seminar", "lecture", "lab")])
    assert (match.left, match.right) == ("s.major", "c.dept")
    assert match.same.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]
    ends = {"s.major": np.array([0, 0, 2]), "c.dept": np.array([1, 2, 2])}
    assert match.codes(ends).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("left", "right", "compared"),
    [
        (texts("a.x", "1", "2", "3"), whole("b.y", 1, 3), False),  # text and numbers
        (whole("a.x", 1, 3, "BIGINT"), declare(name="b.y", type="DOUBLE", values=[1, 2, 3]), True),
        (
            declare(name="a.x", type="DECIMAL(4,1)", values=[1.0, 2.5, 3.0]),
            declare(name="b.y", type="DOUBLE", values=[3.0, 2.5, 1.0]),
            True,
        ),
        (texts("a.x", "p", "q", "r"), declare(name="b.y", type="ENUM('q', 'r', 'p')"), True),
        (texts("a.x", "p", "q", "r"), texts("b.y", "q", "r"), False),  # two values, of other columns
        (texts("a.x", "p", "q", "r"), texts("b.X", "q", "r"), True),
        (declare(name="a.x", type="BOOLEAN"), declare(name="b.y", type="BOOLEAN"), False),
        (declare(name="a.x", type="BOOLEAN"), declare(name="b.x", type="BOOLEAN"), True),
        (texts("a.x", *"abcdefgh"), texts("b.x", *"fghijklm"), False),  # less than half
        (declare(name="a.x", type="INTEGER", bins=[0, 5, 9, 20]), declare(name="b.x", type="INTEGER", bins=[0, 5, 9, 20]), True),
        (declare(name="a.x", type="INTEGER", bins=[0, 5, 9, 20]), declare(name="b.x", type="INTEGER", bins=[0, 6, 8, 20]), False),
        (texts("a.x", "p", other=True, nulls=True), texts("b.x", "q", other=True, nulls=True), False),
    ],
)  # fmt: skip
def test_what_passes_for_the_same(left: Attribute, right: Attribute, compared: bool) -> None:
    assert found([left], [right]) == ([(left.name, right.name)] if compared else [])


def test_names_and_texts_come_first_and_few_are_looked_at() -> None:
    left = [whole("a.n", 1, 9), texts("a.t", "p", "q", "r"), whole("a.m", 1, 9)]
    right = [whole("b.m", 1, 5), texts("b.u", "r", "q", "p"), whole("b.o", 1, 9)]
    assert found(left, right)[:2] == [("a.m", "b.m"), ("a.t", "b.u")]
    assert len(found([whole(f"a.l{i}", 1, 9) for i in range(5)], [whole(f"b.r{i}", 1, 9) for i in range(5)])) == MOST


# How they are counted


@pytest.mark.parametrize("clique", [("m",), ("m", "y"), ("y", "m"), ("a", "m"), ("m", "m2")])
def test_a_query_on_matches_is_that_on_links_that_have_them(clique: tuple[str, ...]) -> None:
    rng, domain = np.random.default_rng(0), Domain({"y": 3, "a": 4, "b": 5})
    match = Match(left="a", right="b", same=np.eye(4, 5, dtype=np.int64))
    other = Match(left="a", right="y", same=np.eye(4, 3, dtype=np.int64))
    names = {"m": match.name, "m2": other.name}
    clique = tuple(names.get(name, name) for name in clique)
    table = rng.integers(0, 9, domain.shape(domain.attributes))
    codes = dict(zip(domain.attributes, np.indices(table.shape).reshape(3, -1), strict=True))
    codes |= {m.name: m.codes(codes) for m in (match, other)}
    whole_domain = extended(domain, [match, other])
    shape = whole_domain.shape(clique)
    expected = np.zeros(shape, dtype=np.int64)
    np.add.at(expected, tuple(codes[name] for name in clique), table.reshape(-1))
    for query in (Centring(shape), Distance(rng.random(expected.size))):
        counted, asked = merged(domain, [match, other], clique, query)
        axes = tuple(i for i, name in enumerate(domain.attributes) if name not in counted)
        counts = table.sum(axis=axes).reshape(-1)
        answers, errors = asked.apply(counts)
        np.testing.assert_allclose(answers, query.apply(expected.reshape(-1))[0])
        assert abs(Fraction(float(answers[0])) - asked.exact(counts, 0)) <= Fraction(float(np.max(errors)))
        assert asked.squared_sensitivity == query.squared_sensitivity
        for cell in range(len(counts)):  # one row more
            more = counts.copy()
            more[cell] += 1
            gone = [asked.exact(more, i) - asked.exact(counts, i) for i in range(len(answers))]
            assert float(sum(x * x for x in gone)) <= query.squared_sensitivity * (1 + 1e-12)


def test_attributes_alone_are_counted_as_they_are() -> None:
    query = Centring((4,))
    assert merged(Domain({"a": 4, "b": 4}), [], ("a",), query) == (("a",), query)
    large = Grouped(Centring((2,)), np.array([0, 0, 1]), 2)
    assert large.exact(np.array([2**60, 3, 1]), 0) == Fraction(2**60 + 2, 2)


# What comes out


def tables() -> tuple[Side, Side]:
    rng = np.random.default_rng(1)
    students = np.stack([rng.integers(0, TOWNS, STUDENTS), rng.integers(0, 3, STUDENTS)], 1)
    courses = np.stack([rng.integers(0, TOWNS, COURSES), rng.integers(0, 2, COURSES)], 1)
    return (
        side_of(("s.major", "s.year"), students, max_degree=BOUND, linked="s.linked"),
        side_of(("c.dept", "c.level"), courses, linked="c.linked"),
    )


def of(side: Side, rows: Integers, axis: int = 0) -> Integers:
    return side.types[side.rows[rows], axis]


def enrolled(left: Side, right: Side, lift: float, effect: float) -> tuple[Integers, Integers]:
    """(links to courses, of the own department more often by a factor; grades that are better there)."""
    rng, pairs = np.random.default_rng(2), []
    for student in range(STUDENTS):
        weight = np.where(of(right, np.arange(COURSES)) == left.types[left.rows[student], 0], lift, 1.0)
        chosen = rng.choice(COURSES, rng.integers(1, BOUND + 1), replace=False, p=weight / weight.sum())
        pairs += [(student, course) for course in chosen.tolist()]
    found = np.array(pairs)
    same = of(left, found[:, 0]) == of(right, found[:, 1])
    return found, np.clip(rng.integers(0, 2, len(found)) + np.rint(effect * same).astype(np.int64), 0, 3)


def opened(pairs: Integers, grades: Integers, *, unit: bool, rho: float, bits: EntropySource) -> PrivateQueryable:
    left, right = tables()
    sizes = {"s.major": TOWNS, "s.year": 3, "c.dept": TOWNS, "c.level": 2, "grade": 4}
    codes = (
        *(of(left, pairs[:, 0], axis) for axis in (0, 1)),
        *(of(right, pairs[:, 1], axis) for axis in (0, 1)),
        grades,
    )
    cells = np.ravel_multi_index(codes, tuple(sizes.values()))
    blocks = {
        (): (np.zeros(1, np.int64), np.array([len(pairs)])),
        tuple(sizes): np.unique(cells, return_counts=True),
    }
    if unit:
        blocks[UNIT, *sizes] = (cells, np.bincount(pairs[:, 0])[pairs[:, 0]])
    for place, (tag, n) in enumerate((("s.linked", STUDENTS), ("c.linked", COURSES))):
        held = len(np.unique(pairs[:, place]))
        blocks[tag,] = (np.array([0, 1]), np.array([n - held, held]))
    counts = Counts(Domain({**sizes, "s.linked": 2, "c.linked": 2}), blocks)
    return PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=BOUND, bits=bits)


def means(left: Side, right: Side, pairs: Integers, grades: Integers) -> tuple[float, Array]:
    """(share of links that match, the mean grade of those that do not and of those that do)."""
    same = of(left, pairs[:, 0]) == of(right, pairs[:, 1])
    return float(same.mean()), np.array([grades[~same].mean(), grades[same].mean()])


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize(("lift", "effect"), [(8.0, 2.0), (0.3, 2.0), (1.0, 0.0)])
def test_links_match_as_often_and_their_attributes_depend_on_it(unit: bool, lift: float, effect: float) -> None:
    left, right = tables()
    pairs, grades = enrolled(left, right, lift, effect)
    queryable = opened(pairs, grades, unit=unit, rho=200.0, bits=NoNoise())
    drawn, detail = links(
        queryable,
        left,
        right,
        matches=[MATCH],
        link_attributes=["grade"],
        unit=0 if unit else None,
        rng=np.random.default_rng(3),
    )
    share, by_match = means(left, right, pairs, grades)
    again, drawn_by_match = means(left, right, np.stack(drawn[:2], 1), drawn[2])
    assert again == pytest.approx(share, abs=0.02)
    np.testing.assert_allclose(drawn_by_match, by_match, atol=0.2)
    assert "matches" in detail["spent"]
    assert sum(detail["spent"].values()) == pytest.approx(200.0, rel=1e-6)


@pytest.mark.parametrize("unit", [True, False])
def test_all_of_the_budget_is_spent_with_noise(unit: bool) -> None:
    left, right = tables()
    queryable = opened(*enrolled(left, right, 4.0, 1.0), unit=unit, rho=0.2, bits=SeededEntropy(1))
    links(
        queryable,
        left,
        right,
        matches=[MATCH],
        link_attributes=["grade"],
        unit=0 if unit else None,
        rng=np.random.default_rng(3),
    )
    assert queryable.left == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("turned", [False, True])
def test_noise_is_hardly_taken_for_a_match(turned: bool) -> None:
    """Links that match by chance alone: over many runs the change is small against noise, and where noise is loud nothing is measured."""
    left, right = tables()
    pairs, grades = enrolled(left, right, 1.0, 0.0)
    changes, matches = [], [MATCH]
    sides = (right, left) if turned else (left, right)
    for seed in range(25):
        queryable = opened(pairs, grades, unit=False, rho=1.0, bits=SeededEntropy(seed))
        blocks = Blocks(queryable.domain, *sides)
        total = float(len(pairs))
        learner = start(
            blocks, queryable, total=total, total_relative_variance=0.0, k=2, one_parent=False,
            base=blocks.independent(total), per_unit=0,
        )  # fmt: skip
        before = learner.base
        rho = 2e-3
        noise = BOUND * np.sqrt(0.5 / (2 * rho))
        tilt = follow_matches(learner, matches, rho)
        assert set(tilt) == {("c.dept", "s.major") if turned else ("s.major", "c.dept")}
        assert learner.base.sum() == pytest.approx(before.sum())
        changes.append(float(np.abs(learner.base - before).sum()) / 2 / noise)
        assert not follow_matches(learner, matches, 1e-5)  # noise of 12 % of the links
    assert np.mean(changes) < 0.5
