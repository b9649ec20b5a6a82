"""What types the expressions of a SELECT have: DuckDB is asked about them on an empty table, in a database of its own."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import duckdb

from duckdb_dp.domain import types
from duckdb_dp.errors import DPError, brief, first_line, identifier
from duckdb_dp.grouped_sums import GroupedSums, Sum
from duckdb_dp.outputs import Output, Piece
from duckdb_dp.sql.no_numbers import INTERVAL, ZONED, instead, numeric

if TYPE_CHECKING:
    from sqlglot import exp

Pieces = tuple[Piece, ...]

MOST_KNOWN = 4096
_KNOWN: dict[tuple[str, str], str] = {}
"""Types of expressions over an empty row, by their texts, which depend on nothing else."""

FEW = 8
"""Up to so many new expressions are asked about one by one: each has all columns beside it, and takes time for them."""


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def alone() -> duckdb.DuckDBPyConnection:
    """A connection to an empty database in memory, which knows no table and no macro of anybody; kept, as opening takes 10 ms."""
    return _database().cursor()


def type_of(columns: Mapping[str, str], text: str) -> str:
    """The type of an expression over the columns of a row.

    Raises:
        DPError: it does not fit their types.
    """
    with alone() as connection:
        return _type_of(connection, text, _empty(columns), text)


def nulls(columns: Mapping[str, str]) -> str:
    """A row in which every column is NULL.

    Of VALUES: of constants in a SELECT DuckDB 2.0 works out split_part(x, ',', 1) = 'a' beforehand, and fails.
    """
    if not columns:
        return "SELECT 1 AS _dp_row"
    values = ", ".join(f"NULL::{type_}" for type_ in columns.values())
    return f"FROM (VALUES ({values})) AS _dp_row({', '.join(map(identifier, columns))})"


def _empty(columns: Mapping[str, str]) -> str:
    """The same; columns whose values are not read (``zones``) are of any type."""
    read = (ZONED, INTERVAL)
    return nulls({name: type_ if types.find(type_) or type_ in read else "BLOB" for name, type_ in columns.items()})


def _type_of(connection: duckdb.DuckDBPyConnection, text: str, table: str, shown: str) -> str:
    try:
        if (text, table) not in _KNOWN:
            _learn(connection, [text], table)
        return _KNOWN[text, table]
    except duckdb.Error as error:
        raise DPError(f"{brief(shown)}: {first_line(error)}") from None


def _learn(connection: duckdb.DuckDBPyConnection, texts: Sequence[str], table: str) -> None:
    """Note the types of expressions, which are worked out together."""
    asked = f"SELECT {', '.join(f'{text} AS _dp_found{i}' for i, text in enumerate(texts))} FROM ({table})"
    connection.execute(asked).fetchall()
    found = connection.execute(f"DESCRIBE {asked}").fetchall()
    if len(_KNOWN) >= MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN.update(((text, table), str(row[1])) for text, row in zip(texts, found, strict=True))


def _learn_all(connection: duckdb.DuckDBPyConnection, texts: Sequence[str], table: str) -> None:
    """Note the types of many expressions, but where one of them fails; which one and why is said when each is asked about."""
    new = [text for text in dict.fromkeys(texts) if (text, table) not in _KNOWN]
    if len(new) > FEW:
        with suppress(duckdb.Error):
            _learn(connection, new, table)


def typed(
    columns: Mapping[str, str],
    condition: str,
    sums: Sequence[Sum],
    keys: Sequence[str],
    outputs: Sequence[Output],
    having: Pieces,
    order: Sequence[Pieces],
) -> tuple[Output, ...]:
    """The outputs, with whether each is a number, after the types of all expressions were found to fit.

    Args:
        columns: name -> type of the table's columns.
        condition: of WHERE; '' for none.
        sums: what is summed.
        keys: what is grouped by.
        outputs: expressions over sums and keys.
        having, order: likewise; of HAVING, () for none, and of ORDER BY.

    Raises:
        DPError: an expression does not fit the types of its columns, or fails where all of them are NULL, and so everywhere.
    """
    rows = _empty(columns)
    with alone() as connection:
        type_of = partial(_type_of, connection)
        texts = [condition, *(one.where for one in sums), *(one.value for one in sums)]

        def of_row(one: "exp.Expr") -> str:
            known = columns.get(one.name) if one.key == "column" else None  # a cast has the name of what is cast
            return known or type_of(one.sql("duckdb"), rows, "WHERE")

        check_literals(_quoting(texts), of_row)
        if "VARCHAR" in columns.values():
            check_texts(_comparing(texts), {name.lower(): type_ for name, type_ in columns.items()})
        _learn_all(connection, [one.value for one in sums if one.value], rows)
        for text in [condition, *(one.where for one in sums)]:
            if text:
                type_of(f"CAST(({text}) AS BOOLEAN)", rows, text)
        for one in sums:
            found = type_of(one.value, rows, one.value) if one.value else "BOOLEAN"
            if found != "BOOLEAN" and not numeric(found) and one.kind not in ("quantile", "values"):
                raise DPError(
                    f"{brief(one.value)} is {found}, and only numbers have a sum or an average; {instead(one.value, found)}."
                )
        labels = [f"({text}) AS g{i}, NULL::BOOLEAN AS o{i}" for i, text in enumerate(keys)]
        numbers = [f"NULL::{one.number} AS a{i}" for i, one in enumerate(sums)]
        above = f"SELECT {', '.join([*labels, *numbers, 'NULL::BOOLEAN AS known'])} FROM ({rows})"
        for pieces in order:
            type_of(_text(pieces), above, "ORDER BY")
        if having:
            check_literals(_quoting([_text(having)]), lambda one: type_of(one.sql("duckdb"), above, "HAVING"), "HAVING")
            type_of(f"CAST(({_text(having)}) AS BOOLEAN)", above, "HAVING")
        moments = {i for i, one in enumerate(sums) if not one.numeric}
        for output in outputs:
            if any(moments & {*guard} for guard in output.guards):
                raise DPError(
                    f"{brief(output.name)} divides by dates or times; ask them as columns, and divide in the result."
                )
        shown = [_text(output.pieces).join(output.outer) for output in outputs]
        _learn_all(connection, shown, above)
        found_types = [type_of(text, above, output.name) for text, output in zip(shown, outputs, strict=True)]
        return tuple(
            replace(
                output, numeric=output.noisy and output.numeric and numeric(type_) and not moments & {*output.pieces}
            )
            for output, type_ in zip(outputs, found_types, strict=True)
        )


def check_literals(
    roots: Iterable["exp.Expr"],
    type_of: Callable[["exp.Expr"], str],
    shown: str = "",
    named: "Callable[[exp.Expr], exp.Expr] | None" = None,
) -> None:
    """Refuse comparisons with a text that is no value of the other side's type: they are NULL in every row, and count nothing.

    Args:
        roots: the expressions that are checked, with all that is in them.
        type_of: the types of expressions.
        shown: what they are called, where they are not as they were written.
        named: an expression in the words of the statement, where it has others.

    Raises:
        DPError: there is one.
    """
    from sqlglot import exp  # for import time

    for node in (node for root in roots for node in root.walk()):
        if not isinstance(node, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between | exp.In):
            continue
        sides = [node.this, node.args.get("expression"), node.args.get("low"), node.args.get("high"), *node.expressions]
        literals = [side for side in sides if isinstance(side, exp.Literal) and side.is_string]
        other = next((side for side in sides if side is not None and side.find(exp.Column)), None)
        if not literals or other is None or other.find(exp.Query):
            continue
        type_ = type_of(other)
        if type_.startswith("ENUM(") and not isinstance(node, exp.EQ | exp.NEQ | exp.In):
            continue  # which DuckDB orders as texts, so that any text will do
        for literal in literals if type_ not in ("VARCHAR", '"NULL"') else []:
            with alone() as connection:
                row = connection.execute(f"SELECT TRY_CAST(? AS {type_}) IS NULL", [literal.this]).fetchone()
            if row is not None and row[0]:
                texts = [(one if named is None else named(one)).sql("duckdb") for one in (node, other)]
                what = shown or brief(texts[0])
                of = "what it is compared with" if shown else brief(texts[1])
                raise DPError(f"{what}: {literal.sql('duckdb')} is no {type_}, the type of {of}.")


def check_texts(
    roots: Iterable["exp.Expr"],
    columns: Mapping[str, str],
    type_of: Callable[["exp.Column"], str] | None = None,
    named: "Callable[[exp.Expr], exp.Expr] | None" = None,
) -> None:
    """Refuse comparisons of a text column with a number, a truth value or a date.

    DuckDB makes such a value of each text, and fails at the first that is none; here that would count nothing.

    Args:
        roots: the expressions that are checked, with all that is in them.
        columns: the types of columns, by their names in small letters.
        type_of: the same of resolved ones.
        named: as in ``check_literals``.

    Raises:
        DPError: there is one.
    """
    from sqlglot import exp  # for import time

    for node in (node for root in roots for node in root.walk()):
        if isinstance(node, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.In):
            sides = [node.this, node.args.get("expression"), *node.expressions]
        elif isinstance(node, exp.Case) and node.this is not None:
            sides = [node.this, *(one.this for one in node.args["ifs"])]
        else:
            continue
        plain = [side.unnest() for side in sides if side is not None]
        column = next((side for side in plain if isinstance(side, exp.Column)), None)
        other = next((side for side in plain if _no_text(side) is not None), None)
        if column is None or other is None:
            continue
        if (columns.get(column.name.lower()) if type_of is None else type_of(column)) != "VARCHAR":
            continue
        name, value = (column if named is None else named(column)).sql("duckdb"), other.sql("duckdb")
        literal = other.find(exp.Literal)
        text = exp.Literal.string(value if literal is None or not isinstance(other, exp.Cast) else literal.name).sql(
            "duckdb"
        )
        kind = _no_text(other)
        what = brief((node if named is None else named(node)).sql("duckdb"))
        raise DPError(
            f"{what}: {brief(name)} is a text (VARCHAR), and {brief(value)} is none; write {text}, or "
            f"TRY_CAST({brief(name)} AS {kind}) for the texts that are such a value."
        )


def _no_text(node: "exp.Expr") -> str | None:
    """The type of a constant that is no text; None of others."""
    from sqlglot import exp  # for import time

    inner = node.this if isinstance(node, exp.Neg) else node
    if isinstance(inner, exp.Literal):
        return None if inner.is_string else "DOUBLE"
    if isinstance(inner, exp.Boolean):
        return "BOOLEAN"
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and not inner.to.is_type("text", "varchar"):
        return inner.to.sql("duckdb")
    return None


def _quoting(texts: Iterable[str]) -> list["exp.Expr"]:
    """Expressions, of those texts that have a text in them."""
    from sqlglot import parse_one  # for import time

    return [parse_one(text, dialect="duckdb") for text in texts if "'" in text]


def _comparing(texts: Iterable[str]) -> list["exp.Expr"]:
    """Expressions, of those texts that compare or list something."""
    from sqlglot import parse_one  # for import time

    return [parse_one(text, dialect="duckdb") for text in texts if re.search("[=<>]|(?i: in |case)", text)]


def output_types(part: GroupedSums, parts: Sequence[GroupedSums]) -> list[str]:
    """The types of the outputs of a grouping set, of which ``parts`` has the others of its SELECT too."""
    labels = {label.key: label.type for other in parts if other.number == part.number for label in other.labels}
    sums = {f"a{i}": one.number for i, one in enumerate(part.sums)}
    above = nulls({f"g{key}": type_ for key, type_ in labels.items()} | sums | {"known": "BOOLEAN"})
    with alone() as connection:
        shown = [_text(out.pieces).join(out.outer) for out in part.outputs]
        _learn_all(connection, shown, above)
        return [_type_of(connection, text, above, out.name) for text, out in zip(shown, part.outputs, strict=True)]


def _text(pieces: Pieces) -> str:
    def one(piece: Piece) -> str:
        if isinstance(piece, str):
            return piece
        if isinstance(piece, int):
            return f"a{piece}"
        if piece[0] == "stddev":
            return "NULL::DOUBLE"
        return "known" if piece[0] == "known" else f"{piece[0][0]}{piece[1]}"

    return f"({''.join(map(one, pieces))})"
