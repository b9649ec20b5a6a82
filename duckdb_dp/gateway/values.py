"""Values of Arrow in Python, also those that Python has no value for: 'infinity' as a date, years after 9999."""

from typing import Any

import pyarrow as pa

UNREADABLE = (OverflowError, ValueError, KeyError, NotImplementedError, pa.ArrowException)
"""What pyarrow raises where Python has no such value: a date, a zone, a text that is none."""


SYNTHETIC = "synthetic"
"""The column that says of rows that they were computed from synthetic ones."""


def listed(column: "pa.ChunkedArray | pa.Array") -> list[Any]:
    """The values of a column; those that Python has none for as texts."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UNREADABLE:
        return [_value(each) for each in column]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except UNREADABLE:
        pass
    if pa.types.is_struct(scalar.type):
        return {name: _value(each) for name, each in scalar.items()}
    if pa.types.is_list(scalar.type) or pa.types.is_large_list(scalar.type) or pa.types.is_map(scalar.type):
        return listed(scalar.values)
    try:
        text = (
            scalar.cast(pa.int64()).as_py() if pa.types.is_temporal(scalar.type) else scalar.cast(pa.string()).as_py()
        )
    except UNREADABLE:
        return "(out of range)"
    return f"(out of range: {text})" if text is not None else None


def marked(rows: pa.Table) -> pa.Table:
    """Rows with a last column that says that they are synthetic, in the place of those that are called so."""
    if not rows.num_columns:
        return rows
    for place in reversed(range(rows.num_columns)):
        if rows.column_names[place].lower() == SYNTHETIC:
            rows = rows.remove_column(place)
    return rows.append_column(SYNTHETIC, pa.array([True] * rows.num_rows, pa.bool_()))


def visible(text: str) -> str:
    """A text in which nothing is hidden: characters that are not shown, or that turn its direction, are written as numbers."""
    return "".join(each if each.isprintable() or each == "\n" else f"\\u{ord(each):04x}" for each in text)
