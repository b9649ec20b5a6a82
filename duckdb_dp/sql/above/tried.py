"""Tries a statement on made-up rows of the types of what it works on, before anything is charged."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import duckdb
from sqlglot import exp, parse_one

from duckdb_dp.errors import DPError, as_sql, first_line, meant
from duckdb_dp.sql.above.answers import Column, tried, tried_table
from duckdb_dp.sql.above.split import ANSWER
from duckdb_dp.sql.above.split import PUBLIC as NAMED_PUBLIC
from duckdb_dp.sql.provenance import PublicTable
from duckdb_dp.sql.typed import alone

Run = Callable[[str], dict[str, str]]
"""Runs a statement that reads no table, and returns its columns with their types."""


def on_made_up_rows(
    body: str, answers: list[list[Column]], publics: Sequence[PublicTable], run: Run
) -> tuple[dict[str, str], list[list[Column]]]:
    """The columns of a statement with their types, and the answers: labels of bins sort as these where it works with them so.

    An ENUM is no text where parts of texts, collations, or values in place of a missing one are asked for, nor inside of other types.
    """
    texts = [[replace(column, bins="") for column in found] for found in answers]
    nodes = [*parse_one(body, dialect="duckdb").walk()]
    read = sum(isinstance(node, exp.Table) and node.name.startswith(ANSWER) for node in nodes)
    every = read == 1 and any(type(node) is exp.Cast for node in nodes)  # of several, all pairs would be too many

    def shown(answers: list[list[Column]]) -> tuple[dict[str, str], list[list[Column]]]:
        return _try(body, answers, publics, run, every=every), answers

    if any(isinstance(node, exp.Lag | exp.Lead) and node.args.get("default") is not None for node in nodes):
        return shown(texts)
    try:
        tried, _ = shown(answers)
    except DPError:
        if texts != answers:
            with suppress(DPError):
                return shown(texts)
        raise
    known = {column.bins for found in answers for column in found if column.bins}
    plain = known | {f"{one}[]" for one in known}
    if any(type_ not in plain and one in type_ for type_ in tried.values() for one in known):
        return shown(texts)
    return tried, answers


def _try(
    body: str,
    answers: Sequence[Sequence[Column]],
    publics: Sequence[PublicTable],
    run: Run,
    *,
    every: bool,
) -> dict[str, str]:
    """Describe the statement and run it on made-up rows of the same types, before anything is charged: its columns and their types.

    Args:
        body: the statement.
        answers, publics: what it reads.
        run: runs it, and returns its columns with their types.
        every: whether the rows have every label.

    Raises:
        DPError: DuckDB refuses it.
    """
    ctes = [f"{ANSWER}{i} AS ({tried(found, every=every)})" for i, found in enumerate(answers)]
    ctes += [
        f"{NAMED_PUBLIC}{i} AS ({tried_table(list(public.table.columns.items()))})" for i, public in enumerate(publics)
    ]
    try:
        return run(f"WITH {', '.join(ctes)} SELECT * FROM ({body})")
    except DPError as error:
        text = str(error)
    if "ENUM(" in text and ("Cannot compare" in text or "No function matches" in text):
        raise DPError(
            "a label of bins, or beside 'other', is a text, such as '[0, 10)'; compare numbers in WHERE of the SELECT that counts, or "
            "label with label."
        )
    unknown = re.search(r'Referenced column "(.+?)" not found', text)
    names = [column.name for found in answers for column in found]
    near = "" if unknown is None else meant(names, unknown[1])
    why = text if not near else f"there is no column {as_sql(unknown[1])}{near}"  # type: ignore[index]
    raise DPError(f"{why} (in what stands above the answers)")


def here(sql: str) -> dict[str, str]:
    """Run a statement that reads no table, in this process: its columns and their types.

    Raises:
        DPError: DuckDB refuses it.
    """
    with alone() as connection:
        try:
            made = connection.execute(sql)
            made.fetchall()
            return {str(column[0]): str(column[1]) for column in made.description or ()}
        except duckdb.Error as error:
            raise DPError(first_line(error)) from None
