"""Pairs of attributes in which each unit is limited: by their definition, and no unit moves them by more than is charged for."""

import math
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest

import duckdb_dp.synthesis.links.limited as module
from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.limited import WHOLE, LimitedPairs, units_of

SIZES = 3, 4, 2
PAIRS = [(0, 1), (2, 1)]
Units = list[list[tuple[int, ...]]]


def drawn(seed: int, number: int = 15) -> Units:
    """Units with 1 to 9 links; those of the last ones are all alike."""
    rng = np.random.default_rng(seed)
    found = [[tuple(rng.integers(0, SIZES).tolist()) for _ in range(rng.integers(1, 10))] for _ in range(number)]
    return [*found, [(2, 3, 1)] * 9, [(0, 0, 0)], []]


def rows_of(units: Units) -> Integers:
    return np.array([(len(unit), *row) for unit in units for row in unit], dtype=np.int64).reshape(-1)


def query(bound: float = 0.8, rows: int = 1) -> LimitedPairs:
    centres = [np.array([0.7, 0.2, 0.05]), np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.9, 0.15])]
    scales = [share ** (-1 / 3) for share in centres]
    return LimitedPairs(centres=centres, scales=scales, pairs=PAIRS, bound=bound, counted=0.2, rows=rows)


def whole(unit: list[tuple[int, ...]], asked: LimitedPairs) -> Array:
    """v of one unit, by its definition."""
    parts = []
    for a, b in asked.pairs:
        table = np.zeros((SIZES[a], SIZES[b]))
        for row in unit:
            one, other = (np.eye(SIZES[i])[row[i]] - asked.centres[i] for i in (a, b))
            table += np.multiply.outer(asked.scales[a] * one, asked.scales[b] * other) / len(unit)
        parts.append(table.reshape(-1))
    return np.concatenate(parts)


def check_exact(asked: LimitedPairs, units: Units, answers: Array, errors: Array) -> None:
    """Each answer is as near to the exact one as is said, and no unit moves them all by more than the sensitivity."""
    whole_answers = [asked.exact(rows_of(units), i) for i in range(len(answers))]
    for place in range(len(units)):
        others = rows_of(units[:place] + units[place + 1 :])
        gone = [a - asked.exact(others, i) for i, a in enumerate(whole_answers)]
        assert sum(x * x for x in gone) <= Fraction(asked.squared_sensitivity)
    for index, (answer, error) in enumerate(zip(answers, errors, strict=True)):
        assert abs(Fraction(float(answer)) - whole_answers[index]) <= Fraction(float(error))


@pytest.mark.parametrize("bound", [0.05, 0.8, 100.0])
def test_answers_are_those_of_the_definition(bound: float) -> None:
    units, asked = drawn(1), query(bound)
    expected = np.zeros(asked.shape[0])
    for unit in filter(None, units):
        vector = whole(unit, asked)
        factor = min(1.0, bound / math.sqrt(vector @ vector))
        expected += factor * np.append(asked.counted, vector)
    answers, errors = asked.apply(rows_of(units))
    np.testing.assert_allclose(answers, expected, atol=1e-6)
    for index, (answer, error) in enumerate(zip(answers, errors, strict=True)):
        assert abs(Fraction(float(answer)) - asked.exact(rows_of(units), index)) <= Fraction(float(error))


def test_lengths_are_rounded_up_and_hardly() -> None:
    units, asked = [unit for unit in drawn(2) if unit], query()
    held, *codes = rows_of(units).reshape(-1, 4).T
    found, exact = asked.squares(held, codes), [float(np.square(whole(unit, asked)).sum()) for unit in units]
    assert (found >= exact).all()
    np.testing.assert_allclose(found, exact, atol=1e-6)
    with patch.object(module, "TOGETHER", 5):
        assert (asked.squares(held, codes) == found).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bound", [0.05, 0.8, 3.0])
def test_a_unit_moves_the_answers_by_its_limit_at_most(bound: float, seed: int) -> None:
    """Exactly: what the other units add is the same to the last bit, in whatever order the links come."""
    units, rng = [unit for unit in drawn(seed, 6) if unit], np.random.default_rng(seed)
    with_all = exact(units, bound)
    for place, unit in enumerate(units):
        others = [rng.permutation(other).tolist() for other in units[:place] + units[place + 1 :]]
        gone = [a - b for a, b in zip(with_all, exact(others, bound), strict=True)]
        assert gone == exact([unit], bound)
        assert 0 < sum(x * x for x in gone) <= Fraction(query(bound).squared_sensitivity)


def exact(units: Units, bound: float) -> list[Fraction]:
    asked, rows = query(bound), rows_of(units)
    return [asked.exact(rows, index) for index in range(asked.shape[0])]


def test_noise_is_calibrated_for_rows_of_a_unit() -> None:
    assert query(rows=5).squared_sensitivity * 25 == pytest.approx(0.8**2 + 0.2**2)


@pytest.mark.parametrize("number", [1, 30, 50_000])
def test_large_units_weigh_no_more(number: int) -> None:
    rng = np.random.default_rng(number)
    codes = [rng.integers(0, size, number) for size in SIZES]
    weights = query().weights(np.full(number, number), codes)
    assert 0 < weights.sum() <= WHOLE


def test_no_units_at_all() -> None:
    answers, _ = query().apply(np.zeros(0, dtype=np.int64))
    assert not answers.any()
    assert not len(units_of(np.zeros(0, dtype=np.int64)))
    with pytest.raises(IndexError):
        query().exact(np.zeros(0, dtype=np.int64), query().shape[0])


def test_attributes_that_follow_from_two_others_are_as_if_each_link_held_them() -> None:
    """What a link's own values say of each other: the limit is that of its unit all the same."""
    same = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    units, plain = drawn(4), query()
    centres, scales = [*plain.centres, np.array([0.7, 0.3])], [*plain.scales, np.array([1.1, 1.5])]
    options = {"centres": centres, "scales": scales, "pairs": [*PAIRS, (2, 3)], "bound": 0.5, "counted": 0.2, "rows": 1}
    asked = LimitedPairs(**options, compared=[(0, 1, same)])
    held = LimitedPairs(**options)
    with_it = np.array([(len(unit), *row, same[row[0], row[1]]) for unit in units for row in unit])
    answers, errors = asked.apply(rows_of(units))
    expected, _ = held.apply(with_it.reshape(-1))
    assert (answers == expected).all()
    assert asked.shape == held.shape
    check_exact(asked, units, answers, errors)


def test_the_number_of_a_units_links_is_an_attribute_as_if_each_link_held_it() -> None:
    """Numbers beyond the table are in its last class; beside attributes that follow from two others it comes last."""
    same = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    classes = np.array([0, 0, 1, 1, 2])
    units, plain = drawn(7), query()
    centres = [*plain.centres, np.array([0.7, 0.3]), np.array([0.5, 0.3, 0.2])]
    scales = [*plain.scales, np.array([1.1, 1.5]), np.array([1.0, 1.4, 1.9])]
    options = {
        "centres": centres,
        "scales": scales,
        "pairs": [*PAIRS, (2, 3), (2, 4)],
        "bound": 0.5,
        "counted": 0.2,
        "rows": 1,
    }
    asked = LimitedPairs(**options, compared=[(0, 1, same)], numbers=classes)
    held = LimitedPairs(**options)
    with_it = np.array(
        [(len(unit), *row, same[row[0], row[1]], classes[min(len(unit), 4)]) for unit in units for row in unit]
    )
    answers, errors = asked.apply(rows_of(units))
    expected, _ = held.apply(with_it.reshape(-1))
    assert (answers == expected).all()
    check_exact(asked, units, answers, errors)


def test_groups_of_an_attributes_values_are_an_attribute_as_if_each_link_held_it() -> None:
    """Beside attributes that follow from two others and the number of links, in that order; the limit is that of the unit."""
    same, group = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]), np.array([0, 0, 1, 1])
    classes = np.array([0, 0, 1, 1, 2])
    units, plain = drawn(8), query()
    centres = [*plain.centres, np.array([0.7, 0.3]), np.array([0.6, 0.4]), np.array([0.5, 0.3, 0.2])]
    scales = [*plain.scales, np.array([1.1, 1.5]), np.array([1.2, 0.9]), np.array([1.0, 1.4, 1.9])]
    options = {"centres": centres, "scales": scales, "pairs": [(0, 4), (2, 4), (2, 3), (2, 5)], "bound": 0.4}
    options |= {"counted": 0.2, "rows": 1}
    asked = LimitedPairs(**options, compared=[(0, 1, same)], grouped=[(1, group)], numbers=classes)
    held = LimitedPairs(**options)
    with_it = np.array(
        [
            (len(unit), *row, same[row[0], row[1]], group[row[1]], classes[min(len(unit), 4)])
            for unit in units
            for row in unit
        ]
    )
    answers, errors = asked.apply(rows_of(units))
    expected, _ = held.apply(with_it.reshape(-1))
    assert (answers == expected).all()
    check_exact(asked, units, answers, errors)
