"""What notebooks show: answers with bars of their intervals, and errors in one line. Nothing is done outside of IPython."""

import re
import sys
import sysconfig
from collections.abc import Sequence
from html import escape
from itertools import accumulate, islice
from pathlib import Path
from types import TracebackType
from typing import Any

from duckdb_dp.errors import DPError
from duckdb_dp.reporting.readable import Noisy, answers, folded, interval, note, number, reasons
from duckdb_dp.reporting.refusals import in_our_words

ROWS = 40
"""Most rows of a result that is shown."""

WIDTH = 120
"""Pixels of the bars of one answer."""

LONG = 60
"""Characters of a text that is kept in one line of a page, or shown at all in plain text."""

COLUMNS = 120
"""Characters of a line of plain text."""

OURS = {"stddev", "half_width", "threshold", "rho", "epsilon", "epsilon_total", "epsilon_spent", "epsilon_remaining"}
"""Columns of results that have errors or budgets beside no interval; one such column is enough."""


def register() -> None:
    """Show results and errors of the notebook that runs this, once; nothing where none does.

    Privacy: post-processing. A result is read once for each time that it is shown, so that ``fresh := true`` is charged once.
    """
    if "IPython" not in sys.modules:
        return
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None or getattr(shell, "_duckdb_dp", None) is not None:
        return
    shell._duckdb_dp = True
    import duckdb

    shell.display_formatter.mimebundle_formatter.for_type(duckdb.DuckDBPyRelation, both)
    html = shell.display_formatter.formatters["text/html"]
    for module, name in (
        ("sql.run.resultset", "ResultSet"),
        ("pandas", "DataFrame"),
        ("pandas.core.frame", "DataFrame"),
    ):
        html.for_type_by_name(module, name, table)
    if not shell.custom_exceptions:
        shell.set_custom_exc((duckdb.Error, DPError), one_line)


def both(relation: Any) -> Any:
    """A relation as text and as HTML with bars, of one reading; as DuckDB shows it where it has no errors and no budgets."""
    names = relation.columns
    if not _ours(names):
        own = getattr(type(relation), "_repr_mimebundle_", None)
        return None if own is None else own(relation)
    rows = relation.limit(ROWS + 1).fetchall()
    from duckdb_dp.reporting.picked import picked  # for import time

    lines = picked(relation.sql_query(), names)
    return {"text/plain": plain(names, rows, lines), "text/html": page(names, rows, lines)}


def table(found: Any) -> str | None:
    """HTML of a result of JupySQL and of a data frame; as they show themselves where it has no errors, or a frame no intervals."""
    try:
        names = list(map(str, found.columns if hasattr(found, "columns") else found.keys))
        if answers(names) if hasattr(found, "head") else _ours(names):
            rows = found.head(ROWS + 1).itertuples(index=False, name=None) if hasattr(found, "head") else iter(found)
            from duckdb_dp.reporting.picked import picked  # for import time

            lines = picked(str(getattr(found, "_statement", "")), names)  # a frame does not know its statement
            return page(names, [tuple(row) for row in islice(rows, ROWS + 1)], lines)
    except (AttributeError, TypeError):
        pass  # another version of its library
    own = getattr(found, "_repr_html_", None)
    return None if own is None else own()


def _ours(names: Sequence[str]) -> bool:
    return bool(answers(names)) or any(name in OURS or name.endswith("_stddev") for name in names)


def plain(names: Sequence[str], rows: Sequence[Sequence[Any]], below: Sequence[str] = ()) -> str:
    """Text of a result, with its errors beside its answers, and what is said below it."""
    heads, cells, _ = folded(names, rows[:ROWS])
    lines = [heads, *(list(map(_text, row)) for row in cells)]
    lines = [[cell if len(cell) <= LONG else f"{cell[: LONG - 3]}..." for cell in line] for line in lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    fitting = max(1, sum(end <= COLUMNS for end in accumulate(width + 2 for width in widths)))
    more = ["..."] if fitting < len(heads) else []
    texts = ["  ".join([*map(str.ljust, line[:fitting], widths), *more]).rstrip() for line in lines]
    return "\n".join([*texts, *(["..."] if len(rows) > ROWS else []), *reasons(names, rows[:ROWS]), *below])


def page(names: Sequence[str], rows: Sequence[Sequence[Any]], below: Sequence[str] = ()) -> str:
    """HTML of a result, with a bar from low to high and a line at the answer in each row that has them, and what is said below it."""
    kept = rows[:ROWS]
    texts = folded(names, kept)
    noisy = {names[one.value]: one for one in answers(names, kept)}
    scales = {name: _scale(kept, one) for name, one in noisy.items()}
    head = "".join(
        f'<th style="text-align:left"{" colspan=2" if name in noisy else ""}>{escape(name)}</th>' for name in texts[0]
    )
    body = []
    for row, cells in zip(kept, texts[1], strict=True):
        line = ""
        for i, (name, cell) in enumerate(zip(texts[0], cells, strict=True)):
            right = "right" if i in texts[2] or isinstance(cell, int | float) else "left"
            text = _text(cell)
            wrap = ";white-space:nowrap" if len(text) <= LONG else f";min-width:{LONG // 2}em"
            line += f'<td style="text-align:{right}{wrap}">{escape(text)}</td>'
            if name in noisy:
                line += f"<td>{_bar(row, noisy[name], *scales[name])}</td>"
        body.append(f"<tr>{line}</tr>")
    more = f"<p>The first {ROWS} rows.</p>" if len(rows) > ROWS else ""
    said = note(texts[1], texts[2])
    said = said if "<rect" not in "".join(body) else f"{said}; the bars show it" if said else ""
    said = "; ".join(filter(None, [said, *reasons(names, kept), *below]))
    return (
        f'<div style="overflow-x:auto"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>{more}'
        f"{f'<p><small>{said}.</small></p>' if said else ''}"
    )


def _scale(rows: Sequence[Sequence[Any]], one: Noisy) -> tuple[float, float]:
    """(lowest, highest) of what is drawn, with 0 where answers are near it."""
    ends = [float(end) for row in rows for end in interval(row, one) if isinstance(end, int | float)]
    ends = [end for end in ends if abs(end) < float("inf")]
    if not ends:
        return 0.0, 0.0
    low, high = min(ends), max(ends)
    return (min(0.0, low), high) if low < (high - low) else (low, high)


def _bar(row: Sequence[Any], one: Noisy, least: float, most: float) -> str:
    low, high = interval(row, one)
    value = row[one.value]
    if most <= least or not all(
        isinstance(each, int | float) and abs(each) < float("inf") for each in (low, high, value)
    ):
        return ""
    first, last, middle = (round((float(each) - least) / (most - least) * WIDTH, 1) for each in (low, high, value))
    return (
        f'<svg width="{WIDTH + 4}" height="14" viewBox="0 0 {WIDTH + 4} 14" preserveAspectRatio="none" role="img" '
        'aria-label="95 % interval"><g transform="translate(2)">'
        f'<rect x="{first}" y="4" width="{max(1.0, round(last - first, 1))}" height="6" fill="#9db8d9"/>'
        f'<line x1="{middle}" x2="{middle}" y1="1" y2="13" stroke="#1f4e8c" stroke-width="2"/></g></svg>'
    )


def _text(cell: Any) -> str:
    if cell is None:
        return "NULL"
    if isinstance(cell, list):
        return f"[{', '.join(map(_text, cell))}]"
    return number(cell) if isinstance(cell, float) else str(cell)


def one_line(
    shell: Any, kind: type[BaseException], error: BaseException, trace: TracebackType, tb_offset: Any = None
) -> Any:
    """Show an error of a cell's SQL in one line; in full where the user's own modules are on the way to it."""
    if _through_modules(trace):
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
        return None
    text = in_our_words(f"{_cell(shell)}\n{error}", str(error))  # where no cell is kept, the error has its first line
    if text is None:
        text = _first(str(error)) or kind.__name__
        if not isinstance(error, DPError) and not re.match(r"\w+( \w+)?: ", text):
            text = f"{kind.__name__}: {text}"
    shell._showtraceback(kind, error, [text])
    return None


def _cell(shell: Any) -> str:
    """The cell that runs, where IPython has kept it."""
    try:
        return str(shell.history_manager.input_hist_raw[-1])
    except (AttributeError, IndexError):
        return ""


def _first(text: str) -> str:
    """The line of an error that says what is wrong, with the names that DuckDB proposes for one that there is not."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    meant = [line for line in lines[1:] if line.startswith(("Did you mean", "Candidate bindings"))]
    return " ".join([*lines[:1], *meant]).removeprefix("Invalid Input Error: ")


def _through_modules(trace: TracebackType | None) -> bool:
    """Whether a file that is neither a cell nor a library is on the way to an error."""
    libraries = [Path(path) for path in {*sysconfig.get_paths().values(), str(Path(__file__).parents[1])}]
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        cell = name.startswith("<") or "ipykernel_" in name or "ipython-input" in name
        if not cell and not any(Path(name).is_relative_to(library) for library in libraries):
            return True
        trace = trace.tb_next
    return False
