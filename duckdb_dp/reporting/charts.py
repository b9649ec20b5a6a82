"""Which picture shows a set of answers (bars, a shaded table, a line, a heat map), and the positions of its marks."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from duckdb_dp.reporting.answers import TOP, Answer, AnswerSet
from duckdb_dp.reporting.words import count

BARS = 40
"""Answers that are drawn as a bar each."""

COLUMNS, LINES = 12, 60
"""Largest table of numbers."""

POINTS = 2_000
"""Points of a line."""

SHADES = 10
"""Steps of a scale of colours."""

WIDTH, LEFT, RIGHT, BOTTOM = 600.0, 118.0, 12.0, 46.0
"""Of a drawing, in its own units; a letter is about 7 wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One answer: its texts, and where its bar and interval lie, from 0 to 1000."""

    labels: tuple[str, ...]
    value: str
    half: str
    start: float
    length: float
    low: float
    high: float
    known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A bar for each answer, with its 95 % interval."""

    names: tuple[str, ...]
    bars: list[Bar]
    zero: float
    kind: str = "bars"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers by two labels, shaded by size: (label, [(number, shade 0 to SHADES, whether negative)])."""

    row_name: str
    column_name: str
    columns: list[str]
    rows: list[tuple[str, list[tuple[str, int, bool]]]]
    kind: str = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A label beside an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through ordered answers, with the band of their intervals."""

    name: str
    height: float
    line: str
    band: str
    base: float
    xs: list[Tick]
    ys: list[Tick]
    kind: str = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Cells by two labels: (shade, whether negative, path), and (shade, negative, text) of the legend."""

    row_name: str
    column_name: str
    height: float
    cells: list[tuple[int, bool, str]]
    legend: list[tuple[int, bool, str]]
    xs: list[Tick]
    ys: list[Tick]
    kind: str = "heat"


Chart = Bars | Table | Line | HeatMap


def chart(found: AnswerSet) -> tuple[Chart, str]:
    """The picture of a set of answers, and what a reader must know of it.

    Small sets are bars with their intervals; two labels a table or a heat map; a long ordered one a line; of any other
    the largest answers are shown.
    """
    if found.size <= BARS:
        return _bars(found.names, found.answers), ""
    if found.whole:
        if found.ordered and found.size <= POINTS:
            return _line(found), ""
        grid = _grid(found)
        if grid is not None:
            rows, columns, cells = grid
            names = found.names if len(found.names) == 2 else (f"from ({found.names[0]})", "to")
            small = len(columns) <= COLUMNS and len(rows) <= LINES
            if small:
                return _table(names, rows, columns, cells), ""
            if len(rows) <= COLUMNS and len(columns) <= LINES:
                turned = {(b, a): answer for (a, b), answer in cells.items()}
                return _table((names[1], names[0]), columns, rows, turned), ""
            return _heat(names, rows, columns, cells), ""
        largest = sorted(found.answers, key=lambda answer: answer.value, reverse=True)[:TOP]
    else:
        largest = found.top
    if largest:
        note = f"The {len(largest)} largest of {found.size:,} answers. That they are largest makes them a little too large on average."
        return _bars(found.names, largest), note
    return _bars(found.names, found.answers[:TOP]), f"The first {TOP} of {found.size:,} answers."


def half_width(answer: Answer) -> float | None:
    """Half the width of its interval; None where no error is known."""
    return None if answer.high is None or answer.low is None else (answer.high - answer.low) / 2


def _bars(names: tuple[str, ...], answers: Sequence[Answer]) -> Bars:
    lows = [answer.value if answer.low is None else answer.low for answer in answers]
    highs = [answer.value if answer.high is None else answer.high for answer in answers]
    place = _scale(min([0.0, *lows]), max([0.0, *highs]), 0.0, 1000.0)
    bars = []
    for answer, low, high in zip(answers, lows, highs, strict=True):
        half = half_width(answer)
        ends = sorted((place(0.0), place(answer.value)))
        bars.append(
            Bar(
                labels=answer.labels,
                value=count(answer.value, half),
                half="" if half is None else count(half, half),
                start=ends[0],
                length=round(ends[1] - ends[0], 1),
                low=place(low),
                high=place(high),
                known=half is not None,
            )
        )
    return Bars(names=names, bars=bars, zero=place(0.0))


def _grid(found: AnswerSet) -> tuple[list[str], list[str], dict[tuple[str, str], Answer]] | None:
    """Answers by two labels, in the order they came; None where they do not fill a grid, or a triangle of one."""
    if len(found.names) == 2:
        cells = {(answer.labels[0], answer.labels[1]): answer for answer in found.answers}
    elif len(found.names) == 1 and all(answer.labels for answer in found.answers):
        spans = [answer.labels[0].split(" to ") for answer in found.answers]
        cells = {(span[0], span[-1]): answer for span, answer in zip(spans, found.answers, strict=True)}
    else:
        return None
    rows = list(dict.fromkeys(row for row, _ in cells))
    columns = list(dict.fromkeys(column for _, column in cells))
    full = len(cells) == len(found.answers) and 2 * len(cells) >= len(rows) * len(columns)
    return (rows, columns, cells) if full and len(rows) > 1 and len(columns) > 1 else None


def _table(names: tuple[str, ...], rows: list[str], columns: list[str], cells: dict[tuple[str, str], Answer]) -> Table:
    largest = max(abs(answer.value) for answer in cells.values())

    def number(row: str, column: str) -> tuple[str, int, bool]:
        answer = cells.get((row, column))
        if answer is None:
            return "", 0, False
        return count(answer.value, half_width(answer)), _shade(answer.value, largest), answer.value < 0

    return Table(
        row_name=names[0],
        column_name=names[1],
        columns=columns,
        rows=[(row, [number(row, column) for column in columns]) for row in rows],
    )


def _heat(names: tuple[str, ...], rows: list[str], columns: list[str], cells: dict[tuple[str, str], Answer]) -> HeatMap:
    """All cells of a shade are one path: a map of 15,000 cells is 200 kB."""
    wide = (WIDTH - LEFT - RIGHT) / len(columns)
    high = min(22.0, max(4.0, 420.0 / len(rows)))
    largest = max(abs(answer.value) for answer in cells.values())
    across = {label: index for index, label in enumerate(columns)}
    down = {label: index for index, label in enumerate(rows)}
    paths: dict[tuple[int, bool], list[str]] = {}
    for (row, column), answer in cells.items():
        corner = f"M{LEFT + across[column] * wide:.1f} {down[row] * high:.1f}"
        drawn = paths.setdefault((_shade(answer.value, largest), answer.value < 0), [])
        drawn.append(f"{corner}h{wide:.2f}v{high:.2f}h-{wide:.2f}z")
    negative = any(below for _, below in paths)
    legend = [(shade, False, count(largest * (shade / SHADES) ** 2, None)) for shade in range(0, SHADES + 1, 2)]
    return HeatMap(
        row_name=names[0],
        column_name=names[1],
        height=len(rows) * high + BOTTOM,
        cells=[(shade, below, "".join(drawn)) for (shade, below), drawn in sorted(paths.items())],
        legend=legend + [(SHADES // 2, True, "below 0")] * negative,
        xs=[Tick(at=LEFT + (i + 0.5) * wide, text=columns[i]) for i in _chosen(columns, WIDTH - LEFT - RIGHT)],
        ys=[Tick(at=(i + 0.5) * high, text=_short(rows[i])) for i in _spread(len(rows), int(len(rows) * high / 15))],
    )


def _line(found: AnswerSet) -> Line:
    height = 220.0
    values = [answer.value for answer in found.answers]
    lows = [answer.value if answer.low is None else answer.low for answer in found.answers]
    highs = [answer.value if answer.high is None else answer.high for answer in found.answers]
    least, most = min([0.0, *lows]), max([0.0, *highs])
    steps = [step for step in _nice(least, most) if least <= step]
    down = _scale(least, max(most, steps[-1]), height, 8.0)
    across = _scale(0, len(values) - 1, LEFT, WIDTH - RIGHT)

    def path(numbers: Iterable[tuple[int, float]]) -> str:
        return "L".join(f"{across(i):.1f} {down(y):.1f}" for i, y in numbers)

    there, back = enumerate(highs), reversed(list(enumerate(lows)))
    labels = [answer.labels[0] if answer.labels else "" for answer in found.answers]
    return Line(
        name=found.names[0] if found.names else "",
        height=height + BOTTOM,
        line=f"M{path(enumerate(values))}",
        band=f"M{path(there)}L{path(back)}Z",
        base=down(0.0),
        xs=[Tick(at=across(i), text=labels[i]) for i in _chosen(labels, WIDTH - LEFT - RIGHT)],
        ys=[Tick(at=down(step), text=count(step, None)) for step in steps],
    )


def _shade(value: float, largest: float) -> int:
    """The square root of a count's part of the largest: small counts stay visible."""
    return round(SHADES * math.sqrt(abs(value) / largest)) if largest > 0 else 0


def _scale(low: float, high: float, first: float, last: float) -> Callable[[float], float]:
    width = (high - low) or 1.0
    return lambda value: round(first + (value - low) / width * (last - first), 1)


def _nice(low: float, high: float) -> list[float]:
    """Round numbers from at or below ``low`` to at or above ``high``, about five of them."""
    raw = ((high - low) or 1.0) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
    return [i * step for i in range(math.floor(low / step), math.ceil(high / step) + 1)]


def _chosen(labels: Sequence[str], width: float) -> list[int]:
    """Places of labels that fit side by side."""
    longest = max(map(len, labels), default=1)
    return _spread(len(labels), int(width / (7.0 * longest + 14)))


def _spread(size: int, most: int) -> list[int]:
    step = max(1, math.ceil(size / max(1, most)))
    return list(range(0, size, step))


def _short(label: str) -> str:
    return label if len(label) <= 15 else label[:14] + "…"
