"""Rows and SQL on a terminal."""

import os
import sys
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Rows = list[dict[str, Any]]

PIPED_WIDTH = 100
"""Columns of tables that are written to a file or a pipe."""


def console() -> "Console":
    """Standard output; plain text of ``PIPED_WIDTH`` columns where it is no terminal."""
    from rich.console import Console

    free = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if free else PIPED_WIDTH)


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
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    names = list(rows[0]) if columns is None else columns
    table = Table(box=SIMPLE_HEAD)
    for name in names:
        to_the_right = name in right or isinstance(rows[0][name], int | float)
        table.add_column(name.replace("_", " "), justify="right" if to_the_right else "left")
    for row in rows:
        table.add_row(*(_text(row[name]) for name in names))
    out.print(table)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value)
