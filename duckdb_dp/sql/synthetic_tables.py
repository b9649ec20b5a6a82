"""Reads synthetic tables, as keys and cell numbers, in the statement that counts the private tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import duckdb
import numpy as np
import pyarrow as pa

from duckdb_dp.accounting.ledger import Release
from duckdb_dp.counting.counts import words
from duckdb_dp.counting.encode import encode, inside, literal, quote
from duckdb_dp.domain.domain import Attribute, Clique, Domain
from duckdb_dp.request import Request
from duckdb_dp.sql import render
from duckdb_dp.sql.signing import signed
from duckdb_dp.synthesis.base import SyntheticTable

Column = tuple[str, Attribute]
"""A column, and the attribute that says what it means, which may have another name."""


def coded(table: str, columns: Sequence[Column], keys: Sequence[str], *, strict: bool) -> str:
    """SELECT k0, k1, ..., c0, c1, ... of a table: keys, and cell numbers.

    Args:
        table: SQL of it.
        columns: its columns with their attributes.
        keys: SQL of the keys.
        strict: leave out rows with a NULL key or a value outside the domain; otherwise such values have the cell number NULL.
    """
    names = [f"v{i}" for i in range(len(columns))]
    renamed = [replace(attribute, name=name) for name, (_, attribute) in zip(names, columns, strict=True)]
    casts = [f"TRY_CAST({quote(c)} AS {a.type}) AS {quote(n)}" for n, (c, a) in zip(names, columns, strict=True)]
    found = [f"{sql} AS k{i}" for i, sql in enumerate(keys)]
    rows = f"SELECT {', '.join([*found, *casts]) or '1 AS one'} FROM {table}"
    held, coded = [f"k{i}" for i in range(len(keys))], encode(renamed, f"({rows})")
    if not strict:
        codes = [
            f"CASE WHEN {inside(a) or 'true'} THEN {code} END AS c{i}"
            for i, (a, code) in enumerate(zip(renamed, coded.codes, strict=True))
        ]
        return f"SELECT {', '.join([*held, *codes]) or '1 AS one'} FROM {coded.rows}"
    conditions = [f"{key} IS NOT NULL" for key in held] + [c for a in renamed if (c := inside(a)) is not None]
    codes = [f"{code} AS c{i}" for i, code in enumerate(coded.codes)]
    known = [f"c{i} IS NOT NULL" for i in range(len(columns))]
    within = f"SELECT {', '.join([*held, *codes]) or '1 AS one'} FROM {coded.rows}{_where(conditions)}"
    return f"SELECT * FROM ({within}){_where(known)}"


def _where(conditions: Sequence[str]) -> str:
    return " WHERE " + " AND ".join(conditions) if conditions else ""


def codes_of(attributes: Sequence[Attribute], alias: str = "") -> dict[str, str]:
    """Attribute -> SQL of its cell number in a ``coded`` table."""
    return {attribute.name: f"{alias}c{i}" for i, attribute in enumerate(attributes)}


def worded(domain: Domain, clique: Clique, codes: Mapping[str, str]) -> list[str]:
    """What some attributes add to each word of a cell's key, as SQL; 0 where they are not in it."""
    found = []
    for group in words(domain, clique):
        terms = [
            f"{codes[name]}::BIGINT * {domain.cells(group[place + 1 :])}"
            for place, name in enumerate(group)
            if name in codes
        ]
        found.append(" + ".join(terms) or "0::BIGINT")
    return found


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The columns that identify the rows of a synthetic table.

    Attributes:
        columns: its columns; without any, equal rows are the same.
        texts: whether they are compared as text, and not as whole numbers of at most 64 bits.
    """

    columns: tuple[str, ...] = ()
    texts: bool = False

    @property
    def values(self) -> list[str]:
        """SQL of each column, NULL where it is not of that kind."""
        return [f"TRY_CAST({quote(column)} AS {'VARCHAR' if self.texts else 'BIGINT'})" for column in self.columns]


def key_text(column: str) -> str:
    """SQL of a key as text, to be compared with one of another type: that of a whole number is the same in all, 7 for 7.0."""
    text = f"TRY_CAST({column} AS VARCHAR)"
    fractions = f"typeof({column}) IN ('DOUBLE', 'FLOAT') OR starts_with(typeof({column}), 'DECIMAL')"
    return f"CASE WHEN {fractions} THEN regexp_replace({text}, '[.]0+$', '') ELSE {text} END"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CodedRows:
    """The coded rows of a synthetic table, in SQL.

    Attributes:
        attributes: what its words are made of.
        source: FROM clause.
        codes: attribute -> its cell number.
        keys: SQL of the key's columns.
        texts: whether these are texts.
    """

    attributes: tuple[Attribute, ...]
    source: str
    codes: Mapping[str, str]
    keys: tuple[str, ...] = ()
    texts: bool = False

    @classmethod
    def of(cls, name: str, columns: Sequence[Column], key: Key) -> "CodedRows":
        """The coded rows of one table, by its SQL name, its columns, and its key."""
        attributes = tuple(attribute for _, attribute in columns)
        return cls(
            attributes=attributes,
            source=f"({coded(name, columns, key.values, strict=False)})",
            codes=codes_of(attributes),
            keys=tuple(f"k{i}" for i in range(len(key.columns))),
            texts=key.texts,
        )

    def lists(self) -> str:
        """SELECT of one struct with all rows: their keys, the cells of their attributes as words, and a fingerprint."""
        keys, numbers, select = self._select()
        # All lists are in one order, that of the aggregate's input: whoever reads them sorts what is not sorted.
        source = f"{select} ORDER BY {', '.join(keys or numbers)}"
        listed = ", ".join(f"list({name})" for name in keys)
        found = {
            "n": "count(*)",
            "numbers": f"CAST([{'' if self.texts else listed}] AS BIGINT[][])",
            "texts": f"CAST([{listed if self.texts else ''}] AS VARCHAR[][])",
            "outside": f"CAST([{', '.join(f'count(*) FILTER (m{i})' for i in range(len(self.codes)))}] AS BIGINT[])",
            "words": f"[{', '.join(f'list({number})' for number in numbers)}]",
            "print": _print([*keys, *numbers]),
        }
        return f"SELECT {{{', '.join(f'{literal(name)}: {sql}' for name, sql in found.items())}}} FROM ({source})"

    def print(self) -> str:
        """SELECT of the fingerprint alone, which takes a hundredth of the time."""
        keys, numbers, select = self._select()
        return f"SELECT {_print([*keys, *numbers])} FROM ({select})"

    def _select(self) -> tuple[list[str], list[str], str]:
        """(names of the keys, names of the words, SELECT of both and of what is outside the domain)."""
        domain = Domain({attribute.name: attribute.size for attribute in self.attributes})
        numbers = [f"v{i}" for i in range(len(words(domain, domain.attributes)))]
        parts = [f"{sql} AS {n}" for n, sql in zip(numbers, worded(domain, domain.attributes, self.codes), strict=True)]
        held = [f"k{i}" for i in range(len(self.keys))]
        marks = [f"{sql} AS {key}" for sql, key in zip(self.keys, held, strict=True)]
        missing = [f"{sql} IS NULL AS m{i}" for i, sql in enumerate(self.codes.values())]
        return held, numbers, f"SELECT {', '.join([*marks, *parts, *missing])} FROM {self.source}"


def sides(tables: Sequence[CodedRows]) -> str:
    """CTE ``sides`` (found): all rows of some synthetic tables."""
    return f"sides AS MATERIALIZED (SELECT [{', '.join(f'({rows.lists()})' for rows in tables)}] AS found)"


UNCOUNTED = (
    "listed AS (SELECT NULL::VARCHAR[] AS names, NULL::STRUCT(k BIGINT, n BIGINT)[][] AS lists), "
    "promise AS (SELECT NULL::BOOLEAN AS kept)"
)
"""In place of counts in SQL for tables of another engine, which counts when the statement asks for it."""


def run(
    request: Request,
    counting: str,
    tables: Sequence[CodedRows],
    refusals: Sequence[tuple[str, str]],
    *,
    name: str | None,
    fresh: bool,
) -> str:
    """CTEs that end in ``handle(handle)``: counts, charges and draws or scores when the statement runs, and not before.

    Args:
        request: the request.
        counting: CTEs ``listed`` and ``promise``, as ``link_counts.counting`` writes them.
        tables: the synthetic tables that it is about.
        refusals: conditions for tables whose rows are not known; they are checked before anything else about a table.
        name: of the release.
        fresh: whether to draw and charge again.
    """
    fresh_key = "current_query_id()::VARCHAR" if fresh else "NULL::VARCHAR"
    call = f"_dp_run_beside({signed(request)}, {literal(name)}::VARCHAR, {fresh_key}, names, lists, kept, found)"
    handle = render.checked("handle", f"SELECT {_guarded(call, refusals)} AS text FROM listed, promise, sides")
    return f"{counting}, {sides(tables)}, {handle}"


def _guarded(sql: str, refusals: Sequence[tuple[str, str]]) -> str:
    """An expression, or the text of the first refusal that holds."""
    cases = " ".join(f"WHEN {condition} THEN {text}" for condition, text in refusals)
    return f"CASE {cases} ELSE {sql} END" if cases else sql


def unchanged(
    stored: Release,
    detail: Mapping[str, Any],
    tables: Sequence[CodedRows],
    refusals: Sequence[tuple[str, str]],
    *,
    needed: bool = False,
) -> str:
    """CTE ``handle`` of a release about synthetic tables; an error if they have changed.

    Args:
        stored: the release.
        detail: what was noted of it.
        tables: the tables as they are.
        refusals: conditions for tables whose rows are not known; the release's digest does not cover all columns that are returned.
        needed: whether the CTE ``sides`` must come before it in any case.
    """
    number = literal(str(stored.id))
    prints = detail["fingerprints"]
    if not all(found.startswith(f"v{duckdb.__version__} ") for found in prints):
        # Another version's hash: a digest that is the same in all of them, for which all rows must be read.
        check = render.checked(
            "handle", f"SELECT {_guarded(f'_dp_unchanged({number}, found)', refusals)} AS text FROM sides"
        )
        return f"{sides(tables)}, {check}"
    same = " AND ".join(f"({rows.print()}) = {literal(found)}" for rows, found in zip(tables, prints, strict=True))
    text = f"CASE WHEN {same} THEN {number} ELSE {literal('!' + changed(stored))} END"
    before = f"{sides(tables)}, " if needed else ""
    return f"{before}{render.checked('handle', f'SELECT {_guarded(text, refusals)} AS text')}"


def changed(stored: Release) -> str:
    """What is wrong when synthetic tables have changed."""
    return (
        f"{stored.function}: the synthetic tables changed since release {stored.id} was made of them; ask with "
        "fresh := true, which draws and charges again."
    )


def _print(columns: Sequence[str]) -> str:
    """The version of DuckDB, whose hash it is, and a sum over the rows, in whatever order they come."""
    return f"concat(version(), ' ', count(*), '/', sum(hash({', '.join(columns)})::HUGEINT))"


def read_table(found: pa.ListScalar, place: int) -> SyntheticTable:
    """One of the tables that a statement has read with ``CodedRows.lists``, as arrays."""
    rows = found.values

    def lists(name: str) -> list[pa.Array]:
        return [column.values for column in rows.field(name)[place]]

    return SyntheticTable.read(
        rows=rows.field("n")[place].as_py(),
        key=[pa.array([], pa.int64()) if column is None else column for column in lists("numbers") or lists("texts")],
        outside=rows.field("outside")[place].as_py(),
        words=[_numbers(values) for values in lists("words")],
        fingerprint=rows.field("print")[place].as_py(),
    )


def _numbers(values: pa.Array | None) -> np.ndarray:
    return np.empty(0, np.int64) if values is None else values.to_numpy(zero_copy_only=False)
