"""Formats rows and SQL for a terminal."""

import itertools
import os
import sys
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duckdb_dp.reporting.readable import number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Rows = list[dict[str, Any]]

PIPED_WIDTH = 100
"""Columns of tables that are written to a file or a pipe."""

UNLIMITED = 10_000
"""Columns of a pipe for tables that nobody breaks into lines."""

WIDEST = 60
"""Most columns of a terminal that one column of a table takes; the last one that is shown takes what is left."""

NARROWEST = 20
"""Fewest columns of a terminal that a text is folded into."""

LINES = 4
"""Most lines that a text is folded into."""

SPACE = 3
"""Between two columns."""

PIECES = 3
"""Most tables that a wide result is folded into."""

DATASET = "dataset"
"""The column that names a protected table."""

FOLDED_ROWS = 40
"""Most rows of a result that is."""


def console(width: int | None = None) -> "Console":
    """Standard output; plain text of ``width`` or ``PIPED_WIDTH`` columns where it is no terminal."""
    from rich.console import Console

    free = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if free else width or PIPED_WIDTH)


def print_sql(out: "Console", sql: str) -> None:
    """Print SQL as it can be copied: coloured on a terminal, never wrapped."""
    from rich.syntax import Syntax

    text = Syntax("", "sql", theme="ansi_dark").highlight(sql)
    text.rstrip()
    out.print(text, soft_wrap=True)


def print_table(
    out: "Console", rows: Rows, columns: Sequence[str] | None = None, *, right: Collection[str] = ()
) -> None:
    """Print rows: numbers, and the columns named in ``right``, to the right; other text to the left."""
    names = list(rows[0]) if columns is None else columns
    table = _table()
    for name in names:
        to_the_right = name in right or isinstance(rows[0][name], int | float)
        table.add_column(name.replace("_", " "), justify="right" if to_the_right else "left")
    for row in rows:
        table.add_row(*(_cell(text(row[name])) for name in names))
    out.print(table)


def print_folded(
    out: "Console", names: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Collection[int] = ()
) -> list[str]:
    """Print a wide result as up to ``PIECES`` tables below each other; which of its columns did not fit.

    What says what a row is, is repeated. Of columns that did not fit beside the others, those with one value in all rows stand below.
    """
    rest = [*range(len(names) - print_result(out, names, rows, right=right), len(names))]
    same = [i for i in rest if len(rows) > 1 and all(row[i] == rows[0][i] for row in rows)]
    rest = [i for i in rest if i not in same]
    labels = _labels(names, rows, right)
    length = [max([len(names[i]), *(len(text(row[i], grouped=False)) for row in rows)]) for i in range(len(names))]
    widest = [min(WIDEST, length[i]) + SPACE for i in range(len(names))]
    if sum(widest[i] for i in labels) > max(out.width // 2, out.width - sum(widest[i] for i in rest)):
        labels = [i for i in labels if names[i] == DATASET]
    for _ in range(PIECES - 1):
        if not rest or len(rows) > FOLDED_ROWS:
            break
        chosen = [*labels, *rest]
        left = print_result(
            out,
            [names[i] for i in chosen],
            [[row[i] for i in chosen] for row in rows],
            right=[place for place, i in enumerate(chosen) if i in right],
            least=len(labels) + 1,
        )
        rest = rest[len(rest) - min(left, len(rest)) :]
    if same:
        print_result(out, ["in every row", ""], [[names[i], text(rows[0][i], grouped=False)] for i in same])
    return [names[i] for i in rest]


def _labels(names: Sequence[str], rows: Sequence[Sequence[Any]], right: Collection[int]) -> list[int]:
    """The columns that say what a row is: those before the first number, two at most; the dataset, and what tells its rows apart."""
    if DATASET in names:
        place = names.index(DATASET)
        return [
            i for i in range(place + 1) if i == place or (i in (0, place - 1) and len({row[i] for row in rows}) > 1)
        ]
    numbers = [i for i in range(len(names)) if i in right or _are_numbers([row[i] for row in rows])]
    return list(range(min([2, len(names), *numbers[:1]])))


def print_result(
    out: "Console", names: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Collection[int] = (), least: int = 1
) -> int:
    """Print the result of a query as wide as the console is; how many of its columns did not fit.

    Columns of numbers, and those in ``right``, are set to the right.

    The last columns are left out first: the first ones say what a row is. The last one that is shown is folded into what is
    left, unless that is too little for its texts; ``least`` columns are shown in any case.
    """
    cells = [[text(value, grouped=False) for value in row] for row in rows]
    longest = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(names)]
    widths = [length if out.width >= UNLIMITED else min(WIDEST, length) for length in longest]
    taken = list(itertools.accumulate(width + SPACE for width in widths))
    fitting = max(least, sum(end <= out.width for end in taken))
    to_right = [i in right or _are_numbers([row[i] for row in rows]) for i in range(len(names))]
    last = min(fitting, len(names) - 1)  # the first that does not fit, or the last of all
    left = out.width - SPACE - (taken[last - 1] if last else 0)
    if folds := not to_right[last] and left >= NARROWEST and longest[last] <= LINES * left:
        fitting, widths[last] = last + 1, min(left, longest[last])
    if fitting == least and taken[fitting - 1] > out.width:
        widths[fitting - 1] = max(1, out.width - SPACE - (taken[fitting - 2] if fitting > 1 else 0))
    table = _table()
    for i, name in enumerate(names[:fitting]):
        folded = folds and i == last
        table.add_column(
            _cell(name),
            justify="right" if to_right[i] else "left",
            no_wrap=not folded,
            overflow="fold" if folded else "ellipsis",
            max_width=widths[i],
        )
    for shown, row in zip(cells, rows, strict=True):
        # The word NULL is dim where it is no text.
        table.add_row(*(_cell(x, dim=row[i] is None) for i, x in enumerate(shown[:fitting])))
    out.print(table)
    return len(names) - fitting


def _are_numbers(column: Sequence[Any]) -> bool:
    """Whether a column has numbers, and nothing else."""
    known = [value for value in column if value is not None]
    return all(isinstance(value, int | float) for value in known) and any(
        not isinstance(value, bool) for value in known
    )


def text(value: object, *, grouped: bool = True) -> str:
    """A value for a person: numbers to six significant digits, large ones with separators."""
    if value is None:
        return "" if grouped else "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int):
        return f"{value:,}" if grouped else str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_inside(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_inside(each)}' for key, each in value.items())}}}"
    found = f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value)
    found = found.replace("\n", "↵")
    return (
        found if found.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in found)
    )


def _inside(value: object) -> str:
    """A part of a list, whose commas are between its parts."""
    return number(value).replace(",", "") if isinstance(value, float) else text(value, grouped=False)


def ago(moment: datetime, now: datetime) -> str:
    """How long ago a moment was, in the largest unit that is over."""
    seconds = (now - moment).total_seconds()
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if (number := int(seconds // length)) > 0:
            return f"{number:,} {unit}{'s' * (number > 1)} ago"
    return "just now"


def _table() -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD, pad_edge=False)


def _cell(shown: str, *, dim: bool = False) -> Any:
    """A cell that rich takes as it is: square brackets in it are no markup."""
    from rich.text import Text

    return Text(shown, style="dim" if dim else "")
