"""What types the expressions of a SELECT have: DuckDB is asked about them on an empty table, in a database of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb

from duckdb_dp.domain import types
from duckdb_dp.errors import DPError, brief, first_line, identifier
from duckdb_dp.grouped_sums import Output, Sum


def typed(
    columns: Mapping[str, str], condition: str, sums: Sequence[Sum], keys: Sequence[str], outputs: Sequence[Output]
) -> tuple[Output, ...]:
    """The outputs, with whether each is a number, after the types of all expressions were found to fit.

    Args:
        columns: name -> type of the table's columns.
        condition: of WHERE; '' for none.
        sums: what is summed.
        keys: what is grouped by.
        outputs: expressions over sums and keys.

    Raises:
        DPError: an expression does not fit the types of its columns.
    """
    known = [f"NULL::{type_} AS {identifier(name)}" for name, type_ in columns.items() if types.find(type_)]
    rows = f"SELECT {', '.join(known)}"
    with duckdb.connect() as connection:

        def type_of(text: str, table: str, shown: str) -> str:
            try:
                return str(connection.execute(f"DESCRIBE SELECT {text} FROM ({table})").fetchall()[0][1])
            except duckdb.Error as error:
                raise DPError(f"{brief(shown)}: {first_line(error)}") from None

        for text in [condition, *(one.where for one in sums)]:
            if text:
                type_of(f"CAST(({text}) AS BOOLEAN)", rows, text)
        for one in sums:
            found = type_of(one.value, rows, one.value) if one.value else "BOOLEAN"
            if found != "BOOLEAN" and not _numeric(found):
                raise DPError(f"{brief(one.value)} is {found}, and only numbers have a sum or an average.")
        labels = [f"({text}) AS g{i}" for i, text in enumerate(keys)]
        numbers = [f"NULL::DOUBLE AS a{i}" for i in range(len(sums))]
        above = f"SELECT {', '.join([*labels, *numbers, 'NULL::BOOLEAN AS known'])} FROM ({rows})"
        return tuple(
            replace(output, numeric=_noisy(output) and _numeric(type_of(_text(output), above, output.name)))
            for output in outputs
        )


def _numeric(type_: str) -> bool:
    found = types.find(type_)
    return found is not None and found.numeric


def _noisy(output: Output) -> bool:
    return any(isinstance(piece, int) for piece in output.pieces)


def _text(output: Output) -> str:
    def one(piece: str | int | tuple[str, int]) -> str:
        if isinstance(piece, str):
            return piece
        if isinstance(piece, int):
            return f"a{piece}"
        return "known" if piece[0] == "known" else f"g{piece[1]}"

    return "".join(map(one, output.pieces))
