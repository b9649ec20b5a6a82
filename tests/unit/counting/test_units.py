"""Tables of units: equal to their definition in plain Python, and moved by one unit by 1 at most."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.units import UNIT, WEIGHT, classes, pairs_of, shares_of, sizes_of, values_of, weight_of
from duckdb_dp.domain.domain import Clique, Domain

DOMAIN = Domain({"own": 2, "kind": 3, "score": 4})
MOST = 7
Rows = list[list[tuple[int, int, int]]]


def drawn(seed: int) -> Rows:
    """Units with 1 to 7 rows (own, kind, score) each; a unit's own attribute is the same in all its rows."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(12):
        own, number = int(rng.integers(2)), int(rng.integers(1, MOST + 1))
        found.append([(own, int(rng.integers(3)), int(rng.integers(4))) for _ in range(number)])
    return found


def counted(units: Rows) -> Counts:
    keys = np.array([(a * 3 + b) * 4 + c for unit in units for a, b, c in unit], dtype=np.int64)
    held = np.array([len(unit) for unit in units for _ in unit], dtype=np.int64)
    return Counts(
        DOMAIN, {(UNIT, *DOMAIN.attributes): (keys, held), (): (np.zeros(1, np.int64), np.array([len(keys)]))}
    )


def defined(units: Rows, clique: Clique) -> list[Fraction]:
    """The table by its definition, in units."""
    place = {name: i for i, name in enumerate(DOMAIN.attributes)}
    kind = clique[1]
    joint = kind in ("pairs", "shares")
    names = clique[2:] if joint else clique[3:]
    sizes = ([] if joint else [MOST]) + [DOMAIN.sizes[name] for name in names]
    table = np.full(sizes, Fraction(0), dtype=object)
    for unit in units:
        k = len(unit)
        if kind == "sizes":
            table[(k - 1, *(unit[0][place[name]] for name in names))] += 1
        elif kind == "values":
            for row in unit:
                table[k - 1, row[place[names[0]]]] += Fraction(1, k)
        elif kind == "shares":
            for row in unit:
                table[tuple(row[place[name]] for name in names)] += Fraction(1, k)
        else:
            for one, other in itertools.permutations(unit, 2):
                table[one[place[names[0]]], other[place[names[1]]]] += Fraction(1, k * (k - 1))
    return list(table.reshape(-1))


TABLES = [
    sizes_of(MOST),
    sizes_of(MOST, "own"),
    values_of(range(1, MOST + 1), "kind"),
    pairs_of("kind", "kind"),
    pairs_of("kind", "score"),
    pairs_of("score", "score"),
    shares_of(("kind",)),
    shares_of(("own", "kind", "score")),
]


@pytest.mark.parametrize("clique", TABLES, ids="-".join)
def test_tables_are_those_of_the_definition_exactly(clique: Clique) -> None:
    units = drawn(1)
    found = counted(units).marginal(clique)
    assert [Fraction(int(n), weight_of(clique)) for n in found] == defined(units, clique)


@pytest.mark.parametrize("clique", TABLES, ids="-".join)
def test_a_unit_moves_a_table_by_its_weight_at_most(clique: Clique) -> None:
    units = drawn(2)
    whole = counted(units).marginal(clique)
    for i in range(len(units)):
        gone = whole - counted(units[:i] + units[i + 1 :]).marginal(clique)
        assert gone.min() >= 0
        assert gone.sum() <= weight_of(clique)


@pytest.mark.parametrize("clique", TABLES, ids="-".join)
def test_tables_in_groups_are_those_of_rows_in_groups(clique: Clique) -> None:
    of = {"score": np.array([0, 1, 1, 0]), "own": np.array([0, 0])}
    units = drawn(3)
    grouped = [[(int(of["own"][a]), b, int(of["score"][c])) for a, b, c in unit] for unit in units]
    found = counted(units).in_groups(of)
    keys = np.array([(a * 3 + b) * 2 + c for unit in grouped for a, b, c in unit], dtype=np.int64)
    held = np.array([len(unit) for unit in units for _ in unit], dtype=np.int64)
    same = Counts(Domain({"own": 1, "kind": 3, "score": 2}), {(UNIT, *DOMAIN.attributes): (keys, held)})
    assert found.domain.sizes == same.domain.sizes
    np.testing.assert_array_equal(found.marginal(clique), same.marginal(clique))
    assert found.marginal(()).tolist() == [len(keys)]


@pytest.mark.parametrize("number", [1, 2, 22, 23, 1000, 20_000])
def test_large_units_weigh_no_more(number: int) -> None:
    rng = np.random.default_rng(number)
    rows = [(1, kind, score) for kind, score in rng.integers(0, [3, 4], (number, 2)).tolist()]
    counts = counted([rows])
    for clique in (values_of([1, number // 2 + 2], "score"), pairs_of("kind", "score"), pairs_of("kind", "kind")):
        table = counts.marginal(clique)
        assert table.min() >= 0
        assert table.sum() <= WEIGHT
        if 1 < number <= 22:
            assert table.sum() == WEIGHT


def test_no_units_at_all() -> None:
    counts = counted([])
    assert not any(counts.marginal(clique).any() for clique in TABLES)


@pytest.mark.parametrize("most", [1, 2, 10, 32, 33, 100, 5000])
def test_classes_cover_every_number(most: int) -> None:
    first = classes(most)
    assert first[0] == 1
    assert first[-1] <= most
    assert (np.diff(first) > 0).all()
    assert len(first) <= 32 + 8 * np.log2(most)
