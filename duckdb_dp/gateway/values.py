"""Values of Arrow in Python, also those that Python has no value for: 'infinity' as a date, years after 9999."""

import json
from collections.abc import Iterable
from typing import Any

import duckdb
import pyarrow as pa

from duckdb_dp.counting.encode import quote
from duckdb_dp.gateway.made_up import NUMBERS
from duckdb_dp.reporting.asked import unsaid
from duckdb_dp.reporting.picked import picked
from duckdb_dp.sql.typed import alone

UNREADABLE = (OverflowError, ValueError, KeyError, NotImplementedError, pa.ArrowException)
"""What pyarrow raises where Python has no such value: a date, a zone, a text that is none."""


PLAIN = NUMBERS - {"uhugeint"} | {"boolean", "varchar"}
"""What DuckDB's Python package calls the types whose values JSON has."""

SYNTHETIC = "synthetic"
"""The column that says of rows that they were computed from synthetic ones."""


MARKED = b"synthetic"
"""Where a table says the same in its metadata, as a public table may have a column of that name."""

LEFT_OUT = b"left_out"
"""Where a table of answers says, in its metadata, what they leave out."""


def saying(table: pa.Table, lines: Iterable[str]) -> pa.Table:
    """Answers with lines on what they leave out."""
    found = [*dict.fromkeys(lines)]
    known = table.schema.metadata or {}
    if found:
        return table.replace_schema_metadata({**known, LEFT_OUT: json.dumps(found)})
    return (
        table.replace_schema_metadata({key: text for key, text in known.items() if key != LEFT_OUT}) if known else table
    )


def said(table: pa.Table) -> list[str]:
    """What answers leave out, in lines."""
    found: list[str] = json.loads((table.schema.metadata or {}).get(LEFT_OUT, b"[]"))
    return found


def picking(table: pa.Table, sql: str) -> pa.Table:
    """Answers with a line where their statement picks rows by them, and without what their columns say."""
    names = table.column_names
    return saying(table, unsaid([*said(table), *picked(sql, names)], names))


def listed(column: "pa.ChunkedArray | pa.Array") -> list[Any]:
    """The values of a column; those that Python has none for as texts."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UNREADABLE:
        return [_value(each) for each in column]


_AT_ONCE = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_null)
"""Arrow's types of such values."""


def readable(table: pa.Table) -> list[list[Any]]:
    """The values of each column as JSON may have them: numbers, truth values, texts, and lists and structs of these.

    All else is a text as DuckDB writes it.
    """
    if all(any(is_plain(column.type) for is_plain in _AT_ONCE) for column in table.columns):
        return [listed(column) for column in table.columns]  # most answers, which need no DuckDB
    names = [f"c{place}" for place in range(table.num_columns)]
    with alone() as connection:
        connection.register("_dp_shown", table.rename_columns(names))
        types = connection.execute("SELECT * FROM _dp_shown LIMIT 0").description or ()
        columns = ", ".join(f"CAST({name} AS {_readable(type_)}) AS {name}" for name, type_, *_ in types)
        found = fetched(connection.execute(f"SELECT {columns} FROM _dp_shown"), 0)
    return [listed(column) for column in found.columns]


def _readable(type_: Any) -> str:
    """The type, in SQL, as which a value is shown."""
    match type_.id:
        case "list" | "array":
            return f"{_readable(type_.children[0][1])}[]"
        case "struct" if type_.children and all(name for name, _ in type_.children):
            return f"STRUCT({', '.join(f'{quote(name)} {_readable(of)}' for name, of in type_.children)})"
        case "map":
            (_, key), (_, value) = type_.children
            return f"MAP({_readable(key)}, {_readable(value)})"
    return str(type_) if type_.id in PLAIN else "VARCHAR"


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
    """Rows with a last column that says that they are synthetic, in the place of those that are called so; ``is_marked`` knows them."""
    if not rows.num_columns:
        return rows
    for place in reversed(range(rows.num_columns)):
        if rows.column_names[place].lower() == SYNTHETIC:
            rows = rows.remove_column(place)
    rows = rows.append_column(SYNTHETIC, pa.array([True] * rows.num_rows, pa.bool_()))
    return rows.replace_schema_metadata({MARKED: b"true"})


def is_marked(rows: pa.Table) -> bool:
    """Whether rows are said to be synthetic, and do not just have a column that is called so."""
    return MARKED in (rows.schema.metadata or {})


def visible(text: str) -> str:
    """A text in which nothing is hidden: characters that are not shown, or that turn its direction, are written as numbers."""
    return "".join(each if each.isprintable() or each == "\n" else f"\\u{ord(each):04x}" for each in text)


def fetched(found: duckdb.DuckDBPyConnection, rows: int, size: int = 0) -> pa.Table:
    """Rows as Arrow: where there is a limit of rows or bytes, which 0 is not, a few more than that at most."""
    older = "fetch_record_batch"  # its name before DuckDB 2.0
    reader: Any = getattr(found, older if hasattr(found, older) else "to_arrow_reader")(10_000)
    batches, count, held = [], 0, 0
    for batch in reader:
        batches.append(batch)
        count, held = count + batch.num_rows, held + batch.nbytes
        if (rows and count > rows) or (size and held > size):
            break
    return pa.Table.from_batches(batches, reader.schema)
