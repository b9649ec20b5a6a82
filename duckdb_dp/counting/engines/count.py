"""Counts marginals in one job of the engine, which returns only the non-empty cells of a few blocks."""

import itertools
from collections.abc import Mapping, Sequence
from functools import reduce
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duckdb_dp.counting.counts import Counts, words
from duckdb_dp.counting.engines.expressions import (
    Expression,
    by_bytes,
    encode,
    encode_listed,
    inside,
    is_null,
    listed,
    looked_up,
    outside,
    text_of,
)
from duckdb_dp.counting.engines.jobs import Job, jobs
from duckdb_dp.counting.engines.source import Source
from duckdb_dp.domain.domain import Attribute, Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.request import Request, units

Table = Any
"""An Ibis table."""

Cells = tuple[NDArray[np.integer], NDArray[np.integer]]


def count(source: Source, request: Request, unit_key: str, cliques: tuple[Clique, ...]) -> Counts:
    """Exact counts of a request's marginals.

    What is counted in how many passes over the rows depends on the domain and the cliques alone.

    Args:
        source: where the rows are.
        request: whose rows are counted: its attributes and unit.
        unit_key: the ledger's key of the hash that chooses which rows of a unit are kept.
        cliques: the marginals.

    Raises:
        DPError: the engine cannot count it, or failed.

    Privacy: exact counts; only ``private.py`` may read them.
    """
    source.check_now(request.attributes, _unit(request))
    domain = request.domain
    passes = jobs(domain, cliques)
    counted = tuple(block for job in passes for block in job)
    arrays = source.has("Array", "ArrayPosition", "Unnest")
    if len(counted) == 1:
        found = source.fetch(lambda table: _group(coded(table, request, unit_key, arrays=arrays), domain, counted[0]))
        return Counts(domain, {counted[0]: _one(found)})
    if not arrays:
        passes = tuple((block,) for block in counted)
    found = source.fetch(lambda table: _together(coded(table, request, unit_key, arrays=arrays), domain, passes))
    return Counts(domain, _split(found, domain, counted))


def check(source: Source, declared: Mapping[str, Attribute]) -> list[tuple[int, int, int]]:
    """(rows, rows outside the declared values, NULLs) per attribute, for the curator's eyes only.

    Privacy: NOT PRIVATE.
    """
    source.check_now(list(declared.values()), ())

    def build(table: Table) -> Table:
        sums = {}
        for i, (name, attribute) in enumerate(declared.items()):
            sums[f"o{i}"] = outside(attribute, table[name]).cast("int64").sum()
            sums[f"n{i}"] = is_null(table[name]).cast("int64").sum()
        return table.aggregate(rows=table.count(), **sums)

    (row,) = source.fetch(build).to_pylist()
    return [(row["rows"], row[f"o{i}"] or 0, row[f"n{i}"] or 0) for i in range(len(declared))]


def coded(table: Table, request: Request, unit_key: str, *, arrays: bool) -> Table:
    """The rows inside the domain, as cell numbers c0, c1, ... of the request's attributes; with the engine's arrays or not."""
    import ibis

    columns = {f"a{i}": table[attribute.name] for i, attribute in enumerate(request.attributes)}
    unit = {f"u{i}": table[name] for i, name in enumerate(_unit(request))}
    rows = table.select(**columns, **unit) if columns or unit else table.select(one=ibis.literal(1))
    if unit:
        rows = bound(rows, list(unit), request.max_rows, unit_key)
    return encoded(rows, request.attributes, [], arrays=arrays)


def encoded(rows: Table, attributes: Sequence[Attribute], held: Sequence[str], *, arrays: bool) -> Table:
    """The rows inside the domain, from values a0, a1, ... to cell numbers c0, c1, ..., beside the columns that are held."""
    for i, attribute in enumerate(attributes):
        rows = _look_up(rows, attribute, i) if looked_up(attribute) else rows
    codes, conditions = {}, []
    for i, attribute in enumerate(attributes):
        of = (attribute, rows[f"a{i}"], rows[f"p{i}"] if looked_up(attribute) else None)
        codes[f"c{i}"] = encode_listed(*of[:2]) if arrays and listed(attribute) else encode(*of)
        conditions += [condition for condition in [inside(*of)] if condition is not None]
    rows = rows.filter(*conditions) if conditions else rows
    return rows.select(*held, **codes) if held or codes else rows


def _unit(request: Request) -> tuple[str, ...]:
    """The columns that name the protected unit; none where a row is one.

    Raises:
        DPError: two units are protected.
    """
    found = units(request.unit)
    if len(found) > 1:
        raise DPError(
            f"'{request.table}' protects two units, and only the links of dp_links are counted so; protect it by one of them."
        )
    return found[0] if found else ()


def _look_up(rows: Table, attribute: Attribute, i: int) -> Table:
    """Add p<i>, the place of a text among the declared ones.

    Digests are joined, not texts: an engine may take 'a' for 'A', and a row that met two values would count twice.
    """
    import ibis

    digests = [sha256(str(point).encode()).hexdigest() for point in attribute.points]
    known = ibis.memtable(pa.table({f"v{i}": digests, f"p{i}": pa.array(range(len(digests)), pa.int32())}))
    digest = text_of(attribute, rows[f"a{i}"]).hexdigest("sha256")
    return rows.left_join(known, digest == known[f"v{i}"]).drop(f"v{i}")


def bound(rows: Table, unit: list[str], max_rows: int, unit_key: str) -> Table:
    """At most ``max_rows`` rows of each unit, the first ones of ``ranked``. Rows without a unit are left out."""
    found = ranked(rows, unit, unit_key)
    return found.filter(found["rank"] < max_rows).drop("rank")


def ranked(rows: Table, unit: list[str], unit_key: str) -> Table:
    """The rows of units with their ``rank`` among their unit's, from 0: by a keyed hash of the row's own values, ties by the values.

    Engines hash differently, so they may rank rows in different orders; each is one of the unit's rows alone.
    """
    import ibis

    values = [rows[name] for name in rows.columns]
    texts = [ibis.coalesce(value.cast("string"), ibis.literal("")) for value in values]
    text = reduce(lambda a, b: a + ibis.literal("|") + b, texts, ibis.literal(unit_key))
    # Text by its bytes: under a collation several people could be one, with other bounds than were promised.
    apart = [by_bytes(rows[name]) if rows[name].type().is_string() else rows[name] for name in unit]
    window = ibis.window(group_by=apart, order_by=[text.hexdigest("sha256"), *values])
    return rows.filter(*(~is_null(rows[name]) for name in unit)).mutate(rank=ibis.row_number().over(window))


def _group(rows: Table, domain: Domain, block: Clique) -> Table:
    """One block: its keys k0, k1, ... (several where a cell's position needs more than 62 bits) and n."""
    if not block:
        return rows.aggregate(n=rows.count())
    keys = {f"k{i}": _key(rows, domain, group, "int64") for i, group in enumerate(words(domain, block))}
    keyed = rows.select(**keys)
    return keyed.group_by(list(keys)).aggregate(n=keyed.count())


def _together(rows: Table, domain: Domain, passes: Sequence[Job]) -> Table:
    """All blocks in one statement: keys that number the blocks together, and n. Each job is one pass over the rows.

    In a pass each row becomes an array of one key per block, and the keys of all arrays are counted together.
    """
    import ibis

    offsets = iter(_offsets(domain, [block for job in passes for block in job]))
    found = []
    for job in passes:
        keys = [_key(rows, domain, block, "int32") + next(offsets) for block in job]
        keyed = rows.select(k=keys[0] if len(keys) == 1 else ibis.array(keys).unnest())
        found.append(keyed.group_by("k").aggregate(n=keyed.count()))
    return found[0] if len(found) == 1 else ibis.union(*found)


def _offsets(domain: Domain, counted: Sequence[Clique]) -> list[int]:
    """Where each block's keys begin when all are numbered together, and where the last ends."""
    return [0, *itertools.accumulate(map(domain.cells, counted))]


def _key(rows: Table, domain: Domain, block: Clique, type_: str) -> Expression:
    """A cell's position in row-major order."""
    code = {name: rows[f"c{domain.attributes.index(name)}"] for name in block}
    return reduce(lambda key, name: key * domain.sizes[name] + code[name], block[1:], code[block[0]].cast(type_))


def _one(found: pa.Table) -> Cells:
    """The cells of one block, in the form of ``Counts``."""
    counts = found["n"].to_numpy().astype(np.int64)
    keys = [found[name].to_numpy() for name in found.column_names if name != "n"] or [np.zeros_like(counts)]
    return np.stack(keys, axis=1).reshape(-1), np.repeat(counts, len(keys))


def _split(found: pa.Table, domain: Domain, counted: Sequence[Clique]) -> dict[Clique, Cells]:
    """The cells of each block, from keys that number the blocks together."""
    keys, counts = found["k"].to_numpy(), found["n"].to_numpy()
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order]
    offsets = _offsets(domain, counted)
    ends = np.searchsorted(keys, offsets)
    return {
        block: (keys[ends[i] : ends[i + 1]] - offsets[i], counts[ends[i] : ends[i + 1]])
        for i, block in enumerate(counted)
    }
