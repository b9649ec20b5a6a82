"""Which picture is chosen, and that its marks are where the numbers are."""

import itertools
import re

import pytest

from duckdb_dp.reporting import charts
from duckdb_dp.reporting.answers import Answer, AnswerSet
from duckdb_dp.reporting.charts import Bars, HeatMap, Line, Table, chart


def answers(*sizes: int, stddev: float | None = 2.0) -> list[Answer]:
    """Answer number i has the value i - 1, so that one is negative and one is 0."""
    found = []
    for i, cells in enumerate(itertools.product(*map(range, sizes))):
        value, half = float(i - 1), None if stddev is None else 1.96 * stddev
        low, high = (None, None) if half is None else (value - half, value + half)
        found.append(Answer(labels=tuple(f"c{cell}" for cell in cells), value=value, stddev=stddev, low=low, high=high))
    return found


def answer_set(*sizes: int, ordered: bool = False, stddev: float | None = 2.0) -> AnswerSet:
    found = answers(*sizes, stddev=stddev)
    names = tuple("abcdef"[: len(sizes)])
    return AnswerSet(title="t", names=names, ordered=ordered, size=len(found), answers=found)


@pytest.mark.parametrize(
    ("sizes", "ordered", "kind"),
    [
        ((), False, Bars), ((40,), True, Bars), ((5, 8), False, Bars), ((2, 2, 2), False, Bars), ((41,), True, Line), ((41,), False, Bars),
        ((20, 12), False, Table), ((12, 20), False, Table), ((60, 12), False, Table), ((61, 12), False, HeatMap), ((13, 13), False, HeatMap),
        ((4, 4, 4), False, Bars), ((2100,), True, Bars),
    ],
)  # fmt: skip
def test_the_picture_fits_the_answers(sizes: tuple[int, ...], ordered: bool, kind: type) -> None:
    found, note = chart(answer_set(*sizes, ordered=ordered))
    assert type(found) is kind
    cut = isinstance(found, Bars) and len(found.bars) < len(answers(*sizes))
    assert bool(note) == cut


def test_bars_and_intervals_are_in_proportion() -> None:
    found, _ = chart(answer_set(5))
    assert isinstance(found, Bars)
    width = (3 + 3.92) - (-1 - 3.92)
    for i, bar in enumerate(found.bars):
        at = 1000 * (i - 1 + 1 + 3.92) / width
        assert bar.start + bar.length == pytest.approx(max(at, found.zero), abs=0.11)
        assert bar.start == pytest.approx(min(at, found.zero), abs=0.11)
        assert (bar.high - bar.low) == pytest.approx(1000 * 2 * 3.92 / width, abs=0.2)
        assert (bar.high + bar.low) / 2 == pytest.approx(at, abs=0.11)


def test_without_errors_there_are_bars_without_intervals() -> None:
    found, _ = chart(answer_set(5, stddev=None))
    assert isinstance(found, Bars)
    assert not any(bar.known for bar in found.bars)
    zeros = AnswerSet(title="t", names=("a",), ordered=False, size=1)
    zeros.answers = [Answer(labels=("x",), value=0.0, stddev=None, low=None, high=None)]
    assert isinstance(chart(zeros)[0], Bars)


def test_the_largest_of_many_are_shown() -> None:
    found, note = chart(answer_set(10, 10, 10))
    assert isinstance(found, Bars)
    assert [bar.value for bar in found.bars[:2]] == ["998.0", "997.0"]
    assert "30 largest of 1,000" in note
    cut = answer_set(50, 50, 50)
    cut.size = 10**6
    assert "The first 30 of 1,000,000" in chart(cut)[1]
    cut.top = cut.answers[:3]
    assert len(chart(cut)[0].bars) == 3  # type: ignore[union-attr]


def test_every_cell_of_a_heat_map_is_drawn_once() -> None:
    found, _ = chart(answer_set(30, 50))
    assert isinstance(found, HeatMap)
    corners = [corner for _, _, path in found.cells for corner in re.findall(r"M([\d.]+) ([\d.]+)", path)]
    assert len(set(corners)) == len(corners) == 1500
    assert all(charts.LEFT - 1 <= float(x) <= charts.WIDTH for x, _ in corners)
    assert all(0 <= tick.at <= found.height for tick in found.ys)
    assert any(below for _, below, _ in found.cells)


def test_ranges_of_one_attribute_are_a_triangle() -> None:
    cells = [(i, j) for i in range(20) for j in range(i, 20)]
    found = AnswerSet(title="t", names=("a",), ordered=False, size=len(cells))
    found.answers = [
        Answer(labels=(f"{i} to {j}" if i < j else str(i),), value=j - i, stddev=1.0, low=j - i - 2, high=j - i + 2)
        for i, j in cells
    ]
    drawn, _ = chart(found)
    assert isinstance(drawn, HeatMap)
    assert (drawn.row_name, drawn.column_name) == ("from (a)", "to")


def test_a_line_goes_through_its_answers() -> None:
    found, _ = chart(answer_set(100, ordered=True))
    assert isinstance(found, Line)
    points = [tuple(map(float, point.split())) for point in found.line.removeprefix("M").split("L")]
    assert len(points) == 100
    xs, ys = zip(*points, strict=True)
    assert list(xs) == sorted(xs)
    assert list(ys) == sorted(ys, reverse=True)
    assert ys[1] == pytest.approx(found.base)  # its value is 0
    assert found.band.count("L") == 199
    texts = [tick.text for tick in found.xs]
    assert sum(map(len, texts)) * 7 < charts.WIDTH
