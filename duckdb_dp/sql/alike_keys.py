"""Which keys of a public table are alike: those of rows with the same values. Synthesis measures them together where noise hides each."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import decode, full_name, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.linop import Integers
from duckdb_dp.reconstruct.likeness import ALIKE
from duckdb_dp.request import Request
from duckdb_dp.sql import catalog, provenance
from duckdb_dp.sql.dp_link import declared_in, with_constraints
from duckdb_dp.sql.public_domains import MOST_KEYS
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Reference, Table

LEAST_KEYS = 8
"""Keys up to which each is measured alone at any noise."""

MOST, BINS = 32, 8
"""Values of a public column that are told apart; columns of more values in an order are cut into so many bins of about as many rows."""

TRIED, COLUMNS = 64, 6
"""Columns of a public table that are read, and of these how many say at most which keys are alike."""

FEW, SAID, SAME = 16, 0.2, 1e-6
"""Groups of columns that are preferred; nats that a column says of the keys at least; and those by which two columns differ."""


def with_alike(session: Session, dataset: Dataset, request: Request) -> Request:
    """The request of a synthesis, with the groups of its attributes' values that are keys of public rows with the same values.

    Each is (attribute, full name of the public table, columns of each way, groups of all values in each way).

    Privacy: reads public rows.
    """
    found = tuple(_found(session, dataset, request.attributes)) if request.schema != SCHEMA else ()
    if not found:
        return request
    return replace(request, options=tuple(sorted([*request.options, (ALIKE, found)])))


def note(request: Request) -> str | None:
    """By which public columns values are measured together, in words; None where by none."""
    said = [
        f"{name} by {', '.join(dict.fromkeys(column for way in columns for column in way))} of '{table[2]}'"
        for name, table, columns, _ in dict(request.options).get(ALIKE, ())
    ]
    return f"where noise hides single keys, measured together: {'; '.join(said)}" if said else None


def _found(session: Session, dataset: Dataset, attributes: Sequence[Attribute]) -> Iterator[tuple[Any, ...]]:
    table = catalog.of(session, dataset)
    if table is None:
        return
    known, done = (
        {a.name: a for a in attributes if a.kind != "bins" and LEAST_KEYS < a.size <= 2 * MOST_KEYS},
        set[str](),
    )
    for reference in with_constraints(table, declared_in(session.ledger.link(dataset))):
        name = reference.columns[0]
        if len(reference.columns) > 1 or name not in known or name in done:
            continue
        parent = catalog.find(catalog.committed(session, [reference.parent[:2]]), reference.parent)
        if parent is None or parent.name[1] == SCHEMA or not session.ledger.public.holds(parent.name):
            continue
        provenance.check_public(session, parent.name)  # a view under its name may read what is protected now
        done.add(name)
        if ways := _ways(*_codes(session, known[name], reference, parent)):
            columns, groups = zip(*ways, strict=True)
            yield name, parent.name, columns, tuple(tuple(group.tolist()) for group in groups)


def _codes(
    session: Session, attribute: Attribute, reference: Reference, parent: Table
) -> tuple[list[str], Integers, Collection[str]]:
    """(public columns, the code of each value's row in each, 0 where it has no row, shape (values, columns), those that are cut)."""
    empty = list[str](), np.empty((attribute.size, 0), dtype=np.int64), list[str]()
    (key,) = reference.key
    columns = {
        name: type_
        for name, type_ in parent.columns.items()
        if name.lower() != key.lower() and types.find(type_) is not None
    }
    with session.looking() as cursor:
        if cursor is None:
            return empty
        # Texts by their bytes: a collation may make one of two.
        plain = {
            name: f"encode(p.{quote(name)})" if type_ == "VARCHAR" else f"p.{quote(name)}"
            for name, type_ in [*columns.items()][:TRIED]
        }
        drawn = (
            f"drawn AS (SELECT c, encode(({decode(attribute, 'c')})::VARCHAR) AS v FROM range({attribute.size}) r(c))"
        )
        read = ", ".join(["d.c", *(f"{value} AS v{i}" for i, value in enumerate(plain.values()))])
        held = f"encode(TRY_CAST(p.{quote(key)} AS {attribute.type})::VARCHAR)"
        rows = f"{drawn}, held AS MATERIALIZED (SELECT {read} FROM {full_name(*parent.name)} p JOIN drawn d ON d.v = {held})"
        try:
            counts = ", ".join(f"count(DISTINCT v{i})" for i in range(len(plain)))
            different = cursor.execute(f"WITH {rows} SELECT {counts} FROM held").fetchone() if plain else ()
            codes, cut = dict[str, str](), dict[str, str]()
            for i, (name, number) in enumerate(zip(plain, different or (), strict=True)):
                if number <= MOST:
                    codes[name] = f"dense_rank() OVER (ORDER BY v{i})"
                elif (dtype := types.find(columns[name])) is not None and (dtype.numeric or dtype.ordered):
                    binned = f"1 + (rank() OVER (ORDER BY v{i}) - 1) * {BINS} // count(*) OVER ()"
                    cut[name] = f"CASE WHEN v{i} IS NULL THEN {BINS + 1} ELSE {binned} END"
            codes |= cut
            if not codes:
                return empty
            listed = ", ".join(f"{code} AS c{i}" for i, code in enumerate(codes.values()))
            own = ", ".join(f"coalesce(min(c{i}), 0)" for i in range(len(codes)))
            found = cursor.execute(
                f"WITH {rows}, coded AS (SELECT c, {listed} FROM held) "
                f"SELECT {own} FROM range({attribute.size}) r(c) LEFT JOIN coded USING (c) GROUP BY c ORDER BY c"
            ).fetchall()
        except duckdb.Error:
            return empty  # a generated column that fails, say
    return [*codes], np.array(found, dtype=np.int64).reshape(attribute.size, len(codes)), [*cut]


def _ways(names: Sequence[str], codes: Integers, cut: Collection[str]) -> list[tuple[tuple[str, ...], Integers]]:
    """(columns, group of each value) of each way in which values are alike: by each of some columns, and by the first two.

    First are columns of few values as they are, then numbers and dates that are cut into as few, and of each those that say most of a key.
    """
    known = codes[:, 0] > 0 if len(names) else np.zeros(0, dtype=bool)
    most = known.sum() / 2  # a column of nearly as many values as there are keys says what the key says
    groups = {name: _numbered(codes[:, i]) for i, name in enumerate(names)}
    groups = {name: one for name, one in groups.items() if 2 <= len(np.unique(one[known])) <= most}
    said = {name: _nats(one[known]) for name, one in groups.items()}
    taken = list[str]()
    for name in sorted(
        groups, key=lambda name: (len(np.unique(groups[name])) > FEW, name in cut, -round(said[name], 6), name)
    ):
        # Of two columns of which each says the other, the second one says nothing.
        again = any(
            _nats(_all([groups[name], groups[one]])[known]) < max(said[name], said[one]) + SAME
            and abs(said[name] - said[one]) < SAME
            for one in taken
        )
        if said[name] >= SAID and not again and len(taken) < COLUMNS:
            taken.append(name)
    ways = [(name,) for name in taken] + ([tuple(taken[:2])] if len(taken) > 1 else [])
    found = [(way, _all([groups[name] for name in way])) for way in ways]
    return [(way, group) for way, group in found if len(np.unique(group[known])) <= most]


def _all(groups: Sequence[Integers]) -> Integers:
    """The groups of values that are alike in all of these."""
    together = groups[0]
    for one in groups[1:]:
        together = _numbered(together * (int(one.max()) + 1) + one)
    return together


def _numbered(codes: Integers) -> Integers:
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _nats(codes: Integers) -> float:
    """How much the group of a value that is drawn from all says of it."""
    shares = np.bincount(codes) / len(codes)
    return -math.fsum(share * math.log(share) for share in shares.tolist() if share)
