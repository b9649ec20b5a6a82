"""Synthetic tables that stand beside a private one: their rows as cell numbers, in the statement that counts the other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from duckdb_dp.attribute import Attribute
from duckdb_dp.data.counts import words
from duckdb_dp.data.encode import encode, inside, quote
from duckdb_dp.domain import Clique, Domain

SIDE_TYPE = "STRUCT(n BIGINT, keys BIGINT, outside BIGINT[], words BIGINT[][], digest VARCHAR)[]"
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


def lists(attributes: Sequence[Attribute], rows: str, codes: Mapping[str, str], keys: Sequence[str] = ()) -> str:
    """SELECT of one struct: the words of all synthetic rows in the order of their keys, and a digest of them.

    Args:
        attributes: what the words are made of.
        rows: FROM clause of the coded rows.
        codes: attribute -> its cell number.
        keys: SQL of what orders the rows and tells them apart; without, they are in the order of their words.
    """
    domain = Domain({attribute.name: attribute.size for attribute in attributes})
    numbers = [f"v{i}" for i in range(len(words(domain, domain.attributes)))]
    parts = [f"{sql} AS {n}" for n, sql in zip(numbers, worded(domain, domain.attributes, codes), strict=True)]
    held = [f"k{i}" for i in range(len(keys))]
    marks = [f"{sql} AS {key}" for sql, key in zip(keys, held, strict=True)]
    missing = [f"{sql} IS NULL AS m{i}" for i, sql in enumerate(codes.values())]
    source = f"SELECT {', '.join([*marks, *parts, *missing])} FROM {rows}"
    order = ", ".join(held or numbers)
    listed = ", ".join(f"list({number} ORDER BY {order})" for number in numbers)
    outside = ", ".join(f"count(*) FILTER (m{i})" for i in range(len(codes)))
    # md5 stays the same from version to version of DuckDB. A sum, since equal rows would cancel in an exclusive or.
    digest = f"concat(count(*), '/', sum(md5_number_lower(concat_ws(',', {', '.join([*held, *numbers])}))::HUGEINT))"
    known = " AND ".join(f"{key} IS NOT NULL" for key in held)
    packed = ", ".join(f"{key} := {key}" for key in held)
    distinct = f"count(DISTINCT struct_pack({packed})) FILTER ({known})" if held else "count(*)"
    return (
        f"SELECT {{'n': count(*), 'keys': {distinct}, 'outside': CAST([{outside}] AS BIGINT[]), 'words': [{listed}], "
        f"'digest': {digest}}} FROM ({source})"
    )


def table(name: str, columns: Sequence[Column], keys: Sequence[str] = ()) -> str:
    """``lists`` of one table: its SQL name, its columns, and the columns that are its key."""
    attributes = [attribute for _, attribute in columns]
    held = [f"k{i}" for i in range(len(keys))]
    rows = f"({coded(name, columns, list(map(quote, keys)), strict=False)})"
    return lists(attributes, rows, codes_of(attributes), held)
