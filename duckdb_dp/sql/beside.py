"""Synthetic tables that stand beside a private one: their rows as cell numbers, in the statement that counts the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pyarrow as pa

from duckdb_dp.attribute import Attribute
from duckdb_dp.data.counts import words
from duckdb_dp.data.encode import encode, inside, literal, quote
from duckdb_dp.domain import Clique, Domain
from duckdb_dp.synthesis import SyntheticTable

SIDE_TYPE = "STRUCT(n BIGINT, numbers BIGINT[][], texts VARCHAR[][], outside BIGINT[], words BIGINT[][])[]"
"""Type of a list of what ``lists`` selects."""

Column = tuple[str, Attribute]
"""A column, and the attribute that says what it means, which may have another name."""


def coded(table: str, columns: Sequence[Column], keys: Sequence[str], *, strict: bool) -> str:
    """SELECT k0, k1, ..., c0, c1, ... of a table: keys, and cell numbers.

    Args:
        table: SQL of it.
        columns: its columns with the attributes that say what they mean.
        keys: SQL of the keys.
        strict: leave out rows with a NULL key or a value outside the domain; else those have NULL for a cell number.
    """
    names = [f"v{i}" for i in range(len(columns))]
    renamed = [replace(attribute, name=name) for name, (_, attribute) in zip(names, columns, strict=True)]
    casts = [f"TRY_CAST({quote(c)} AS {a.type}) AS {quote(n)}" for n, (c, a) in zip(names, columns, strict=True)]
    found = [f"{sql} AS k{i}" for i, sql in enumerate(keys)]
    rows = f"SELECT {', '.join([*found, *casts]) or '1 AS one'} FROM {table}"
    held = [f"k{i}" for i in range(len(keys))]
    if not strict:
        codes = [f"CASE WHEN {inside(a) or 'true'} THEN {encode(a)} END AS c{i}" for i, a in enumerate(renamed)]
        return f"SELECT {', '.join([*held, *codes]) or '1 AS one'} FROM ({rows})"
    conditions = [f"{key} IS NOT NULL" for key in held] + [c for a in renamed if (c := inside(a)) is not None]
    codes = [f"{encode(a)} AS c{i}" for i, a in enumerate(renamed)]
    known = [f"c{i} IS NOT NULL" for i in range(len(columns))]
    within = f"SELECT {', '.join([*held, *codes]) or '1 AS one'} FROM ({rows}){_where(conditions)}"
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
    """What tells the rows of a synthetic table apart.

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


def lists(
    attributes: Sequence[Attribute],
    rows: str,
    codes: Mapping[str, str],
    keys: Sequence[str] = (),
    *,
    texts: bool = False,
) -> str:
    """SELECT of one struct with all synthetic rows: their keys, and the cells of their attributes as words.

    Args:
        attributes: what the words are made of.
        rows: FROM clause of the coded rows.
        codes: attribute -> its cell number.
        keys: SQL of the key's columns.
        texts: whether these are texts.
    """
    domain = Domain({attribute.name: attribute.size for attribute in attributes})
    numbers = [f"v{i}" for i in range(len(words(domain, domain.attributes)))]
    parts = [f"{sql} AS {n}" for n, sql in zip(numbers, worded(domain, domain.attributes, codes), strict=True)]
    held = [f"k{i}" for i in range(len(keys))]
    marks = [f"{sql} AS {key}" for sql, key in zip(keys, held, strict=True)]
    missing = [f"{sql} IS NULL AS m{i}" for i, sql in enumerate(codes.values())]
    # All lists are in one order, that of the aggregate's input: whoever reads them sorts what is not sorted.
    source = f"SELECT {', '.join([*marks, *parts, *missing])} FROM {rows} ORDER BY {', '.join(held or numbers)}"
    listed = [f"list({name})" for name in held]
    found = {
        "n": "count(*)",
        "numbers": f"CAST([{'' if texts else ', '.join(listed)}] AS BIGINT[][])",
        "texts": f"CAST([{', '.join(listed) if texts else ''}] AS VARCHAR[][])",
        "outside": f"CAST([{', '.join(f'count(*) FILTER (m{i})' for i in range(len(codes)))}] AS BIGINT[])",
        "words": f"[{', '.join(f'list({number})' for number in numbers)}]",
    }
    return f"SELECT {{{', '.join(f'{literal(name)}: {sql}' for name, sql in found.items())}}} FROM ({source})"


def table(name: str, columns: Sequence[Column], key: Key) -> str:
    """``lists`` of one table: its SQL name, its columns, and what tells its rows apart."""
    attributes = [attribute for _, attribute in columns]
    held = [f"k{i}" for i in range(len(key.columns))]
    rows = f"({coded(name, columns, key.values, strict=False)})"
    return lists(attributes, rows, codes_of(attributes), held, texts=key.texts)


def read_table(found: pa.ListScalar, place: int) -> SyntheticTable:
    """One of the tables that a statement has read with ``lists``, as arrays."""
    rows = found.values

    def lists(name: str) -> list[pa.Array]:
        return [column.values for column in rows.field(name)[place]]

    return SyntheticTable.read(
        rows=rows.field("n")[place].as_py(),
        key=[pa.array([], pa.int64()) if column is None else column for column in lists("numbers") or lists("texts")],
        outside=rows.field("outside")[place].as_py(),
        words=[_numbers(values) for values in lists("words")],
    )


def _numbers(values: pa.Array | None) -> np.ndarray:
    return np.empty(0, np.int64) if values is None else values.to_numpy(zero_copy_only=False)
