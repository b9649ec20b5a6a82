"""From a request to the SQL that counts its rows and returns its answers, inside the user's own statement."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from duckdb_dp.accounting.ledger import Release
from duckdb_dp.counting.counts import blocks, words
from duckdb_dp.counting.encode import (
    array,
    encode,
    full_name,
    inside,
    literal,
    one_to_one,
    quote,
    shuffled,
    union_all,
    with_differences,
)
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.counting.tally import OPEN, described, tallied
from duckdb_dp.domain.domain import Attribute, Clique, Domain, canonical
from duckdb_dp.domain.turns import Turns
from duckdb_dp.domain.types import Scalar
from duckdb_dp.domain.types.base import LISTED
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Request, units
from duckdb_dp.sql.signing import signed

HEAPED = 1
"""Up to so many rows of a unit are kept by an aggregate: 0.75 (whole numbers) and 0.6 (texts) of a window's time for one row of each
unit, 1.7 and 1.2 for two."""


def source(request: Request, unit_key: str) -> str:
    """SELECT of the columns in use; with a unit, at most ``max_rows`` rows of each, and with their turns where a request has these.

    Which rows of a unit are kept depends on that unit's rows alone: they are ordered by a keyed hash of their own
    values and, where hashes tie, by the values. Rows whose unit is NULL are left out.
    """
    columns = [quote(attribute.name) for attribute in request.attributes]
    # The declared type, whatever became of the column: DuckDB drops a cast to the same type, and with another one no
    # error can show a private value.
    casts = [f"TRY_CAST({c} AS {a.type}) AS {c}" for c, a in zip(columns, request.attributes, strict=True)]
    table = relation(request)
    if request.unit is None:
        return f"SELECT {', '.join(casts) or '1 AS one'} FROM {table}"
    unit = unit_columns(request)
    where = _where(f"{name} IS NOT NULL" for name in unit)
    hashed = shuffled([literal(unit_key), *unit, *columns])
    if request.max_rows > HEAPED:
        # Named below the window, which would work out twice what it partitions by.
        own = free_prefix(attribute.name for attribute in request.attributes)
        named = {f"{own}unit{i}": sql for i, sql in enumerate(unit_keys(unit))}
        kept = [*casts, *(f"{sql} AS {name}" for name, sql in named.items())]
        if request.turns is not None:
            return _with_turns(
                request, request.turns, f"SELECT {', '.join(kept)} FROM {table}{where}", list(named), unit_key, own
            )
        rows = ", ".join([*kept, f"{hashed} AS {own}hash"])
        window = f"PARTITION BY {', '.join(named)} ORDER BY {', '.join([f'{own}hash', *columns])}"
        return (
            f"SELECT {', '.join(columns) or '1 AS one'} FROM (SELECT {rows} FROM {table}{where}) "
            f"QUALIFY row_number() OVER ({window}) <= {request.max_rows}"
        )
    groups = ", ".join([*unit_bytes(unit), *unit])
    fields = ", ".join(f"'c{i}': {value}" for i, value in enumerate([hashed, *columns]))
    found = [f"TRY_CAST(kept.c{i} AS {a.type}) AS {quote(a.name)}" for i, a in enumerate(request.attributes, 1)]
    return f"SELECT {', '.join(found) or '1 AS one'} FROM (SELECT min({{{fields}}}) AS kept FROM {table}{where} GROUP BY {groups})"


def _with_turns(request: Request, turns: Turns, rows: str, unit: Sequence[str], unit_key: str, own: str) -> str:
    """SELECT of the rows that are kept, with their turn among those of their unit; ``own`` begins no column's name.

    Rows of a unit that are the same are told apart by number before they are hashed: else those that it has once would come as often first.
    """
    columns, values, again = [quote(attribute.name) for attribute in request.attributes], f"{own}values", f"{own}again"
    hashed = f"SELECT *, {shuffled([literal(unit_key), *columns])} AS {values} FROM ({rows})"
    numbered = f"SELECT *, row_number() OVER (PARTITION BY {', '.join([*unit, values])}) AS {again} FROM ({hashed})"
    order = shuffled([literal(unit_key), *unit, values, again])
    turn = f"row_number() OVER (PARTITION BY {', '.join(unit)} ORDER BY {own}hash, {values}, {again})"
    return (
        f"SELECT {', '.join([*columns, f'{turn} AS {quote(turns.name)}'])} FROM "
        f"(SELECT *, {order} AS {own}hash FROM ({numbered})) QUALIFY {turn} <= {request.max_rows}"
    )


def free_prefix(names: Iterable[str]) -> str:
    """What names of our own begin with, and none of these, in any letter case: else a person's value would stand for a unit."""
    known, found = [name.lower() for name in names], "_dp_"
    while any(name.startswith(found) for name in known):
        found = f"_{found}"
    return found


def relation(request: Request) -> str:
    """What the request's rows are read from, each with the columns of its unit: its table, or a member's rows with their owners."""
    if request.source is not None:
        return f"({request.source.sql})"
    return full_name(request.catalog, request.schema, request.table)


def unit_columns(request: Request) -> list[str]:
    """The columns that name the protected unit, quoted."""
    (names,) = units(request.unit)
    return [quote(name) for name in names]


def unit_bytes(unit: Iterable[str]) -> list[str]:
    """SQL of text by its bytes: under a column's collation several people could be one, with other bounds than were promised."""
    return [f"CASE WHEN typeof({c}) = 'VARCHAR' THEN encode(TRY_CAST({c} AS VARCHAR)) END" for c in unit]


def unit_keys(unit: Iterable[str]) -> list[str]:
    """SQL of what tells units apart, for windows: values that are no texts, then texts in the collation that compares bytes.

    A window sorts rows. It takes half as much time for texts as for their bytes as BLOBs, and a column of NULLs at the end, which there is
    for each of the other type, costs half as much as in front.
    """
    unit = list(unit)
    others = [f"CASE WHEN typeof({c}) <> 'VARCHAR' THEN {c} END" for c in unit]
    return [*others, *(f"CASE WHEN typeof({c}) = 'VARCHAR' THEN TRY_CAST({c} AS VARCHAR) END COLLATE C" for c in unit)]


def counting(request: Request, unit_key: str, cliques: tuple[Clique, ...] | None = None) -> str:
    """CTEs: ``coded`` (cell numbers of the rows inside the domain), and others up to ``blocks`` (block, cells).

    Marginals of the given cliques can be summed from the blocks; by default those of the questions. ``cells`` lists
    {k: row-major position, n: rows} of the non-empty cells of a block of attributes. Many blocks are counted in Python,
    and one row of ``blocks`` says where.
    """
    attributes, domain = request.read, Domain({one.name: one.size for one in request.read})
    codes = {attribute.name: f"c{i}" for i, attribute in enumerate(attributes)}
    counted = blocks(domain, request.cliques if cliques is None else cliques)
    coded = encode(attributes, with_differences(f"({source(request, unit_key)})", request.differences))
    later = {codes[a.name]: a for a in attributes if one_to_one(a)} if len(counted) == 1 else {}
    named = ", ".join(
        f"{quote(later[name].name) if name in later else code} AS {name}"
        for code, name in zip(coded.codes, codes.values(), strict=True)
    )
    rows = f"SELECT {named or '1'} FROM {coded.rows}{_where(map(inside, attributes))}"
    listed = [a for a in attributes if a.line or (a.kind == "values" and not a.other and not a.hidden)]
    known = _where(f"{codes[a.name]} IS NOT NULL" for a in listed)
    if len(counted) == 1:
        return f"coded AS NOT MATERIALIZED (SELECT * FROM ({rows}){known}), blocks AS ({_group(domain, counted[0], codes, later)})"
    if tallied(domain, counted):
        return f"coded AS NOT MATERIALIZED (SELECT * FROM ({rows}){known}), {_tally(domain, counted, codes)}"
    cells = union_all([_cells(domain, place, block, codes) for place, block in enumerate(counted)])
    named = array("VARCHAR", [canonical(list(block)) for block in counted])
    return (
        f"coded AS MATERIALIZED (SELECT * FROM ({rows}){known}), cells AS ({cells}), "
        f"names AS (SELECT unnest({named}) AS block, unnest(range({len(counted)})) AS b), "
        "blocks AS (SELECT block, cells FROM names LEFT JOIN "
        "(SELECT b, list(struct_pack(k := k, n := n)) AS cells FROM cells GROUP BY b) USING (b))"
    )


def _tally(domain: Domain, counted: Sequence[Clique], codes: Mapping[str, str]) -> str:
    """CTEs that hand all rows to a ``Tally`` and end in ``blocks``, the name of that tally with the number of rows.

    A sum, because DuckDB leaves out what it need not know to count rows.
    """
    opening = f"_dp_tally({literal(described(domain, counted))}, current_connection_id(), current_query_id())"
    row = ", ".join(f"{codes[name]}::USMALLINT" for name in domain.attributes)
    added = f"sum(_dp_tally_add((SELECT tally::BIGINT FROM tally), [{row}]))"
    name = f"json_object({literal(OPEN)}, tally::BIGINT, 'rows', coalesce(added, 0)::BIGINT)::VARCHAR"
    return (
        f"{checked('tally', f'SELECT {opening} AS text')}, added AS MATERIALIZED (SELECT {added} AS added FROM coded), "
        f"blocks AS (SELECT {name} AS block, []::STRUCT(k BIGINT, n BIGINT)[] AS cells FROM tally, added)"
    )


def _where(conditions: Iterable[str | None]) -> str:
    found = [condition for condition in conditions if condition is not None]
    return " WHERE " + " AND ".join(found) if found else ""


def _group(domain: Domain, block: Clique, codes: Mapping[str, str], later: Mapping[str, Attribute]) -> str:
    """One block's cells. Grouping by the narrow codes and packing them after is 1.4 times faster than the reverse.

    Columns in ``later`` have values still: of a few groups they are encoded in no time.
    """
    name = literal(canonical(list(block)))
    if not block:
        return f"SELECT {name} AS block, [{{'k': 0::BIGINT, 'n': count(*)}}] AS cells FROM coded"
    columns = ", ".join(codes[attribute] for attribute in block)
    groups = f"SELECT {columns}, count(*) AS n FROM coded GROUP BY {columns}"
    if later:
        encoded = [f"{encode([replace(a, name=c)], '').codes[0]} AS {c}" for c, a in later.items()]
        groups = f"SELECT * REPLACE ({', '.join(encoded)}) FROM ({groups})"
    entries = [f"{{'k': {_key(domain, group, codes)}, 'n': n}}" for group in words(domain, block)]
    cells = f"list({entries[0]})" if len(entries) == 1 else f"flatten(list([{', '.join(entries)}]))"
    return f"SELECT {name} AS block, {cells} AS cells FROM ({groups})"


def _cells(domain: Domain, place: int, block: Clique, codes: Mapping[str, str]) -> str:
    """One of several blocks, cell by cell: DuckDB takes half as long to plan a thousand of these as of lists of cells."""
    if not block:
        return f"SELECT {place} AS b, 0::BIGINT AS k, count(*) AS n FROM coded"
    columns = ", ".join(codes[attribute] for attribute in block)
    return f"SELECT {place} AS b, {_key(domain, block, codes)} AS k, count(*) AS n FROM coded GROUP BY {columns}"


def _key(domain: Domain, block: Clique, codes: Mapping[str, str]) -> str:
    """A cell's position in row-major order."""
    key = f"{codes[block[0]]}::BIGINT"
    for attribute in block[1:]:
        key = f"({key}) * {domain.sizes[attribute]} + {codes[attribute]}"
    return key


def run(
    request: Request, unit_key: str, *, name: str | None, fresh: bool, cliques: tuple[Clique, ...] | None = None
) -> str:
    """CTEs that end in ``handle(handle)``: counts, charges and measures when the statement runs, and not before."""
    fresh_key = "current_query_id()::VARCHAR" if fresh else "NULL::VARCHAR"
    if request.schema == SCHEMA:
        wanted = literal(canonical(request.cliques if cliques is None else cliques))
        call = f"_dp_run_attached({signed(request)}, {literal(name)}::VARCHAR, {fresh_key}, {wanted})"
        return checked("handle", f"SELECT {call} AS text")
    call = f"_dp_run({signed(request)}, {literal(name)}::VARCHAR, {fresh_key}, list(block), list(cells))"
    return f"{counting(request, unit_key, cliques)}, {checked('handle', f'SELECT {call} AS text FROM blocks')}"


def stored_handle(stored: Release) -> str:
    """CTE ``handle`` of a release that is stored."""
    return f"handle AS (SELECT {literal(str(stored.id))} AS handle)"


def checked(name: str, select: str) -> str:
    """CTEs that run a function once and turn its text into an error where it starts with '!'."""
    return (
        f"{name}_text AS MATERIALIZED ({select}), {name} AS MATERIALIZED "
        f"(SELECT CASE WHEN text[1] = '!' THEN error(substring(text, 2)) ELSE text END AS {name} FROM {name}_text)"
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """The contents of the error columns of marginals.

    Attributes:
        stddevs: one per marginal; None for NULL, where the error depends on the data.
        each: whether every cell has one of its own, read with the counts.
        quantile: half-width of the interval in standard deviations.
        measured: whether there is a column ``measured_stddev``, the part that the measured residuals contribute.
        postprocess: the post-processing, whose counts are biased; None for unbiased counts.
    """

    stddevs: Sequence[float] | None
    each: bool = False
    quantile: float = 0.0
    measured: bool = False
    postprocess: str | None = None

    @classmethod
    def of(cls, plan: Plan) -> "Errors":
        """Those of unbiased answers."""
        found = [plan.stddev(part.clique) for part in plan.workload.parts]
        if all(isinstance(stddev, float) for stddev in found):
            return cls(stddevs=[float(stddev) for stddev in found], quantile=plan.quantile)
        return cls(stddevs=None, each=True, quantile=plan.quantile)


def marginals(request: Request, errors: Errors, handle: str, *, bounds: bool, private: bool) -> str:
    """SELECT with one row per cell of each marginal, in order, with error columns.

    Args:
        errors: the error columns.
        handle: CTEs that end in ``handle(handle)``.
        bounds: also the low and high edge of each bin.
        private: False adds a column that says that the noise was seeded.
    """
    several = len(request.cliques) > 1
    domain = request.domain
    columns = [f"marginal AS {quote('marginal')}"] if several else []
    layout: dict[str, tuple[str, Iterable[Scalar | None]]] = {
        "idx": ("INTEGER", range(len(request.cliques))),
        "cells": ("INTEGER", map(domain.cells, request.cliques)),
        "sd": ("DOUBLE", errors.stddevs or [None] * len(request.cliques)),
    }
    if several:
        layout["marginal"] = ("VARCHAR", [",".join(clique) for clique in request.cliques])
    places = {attribute.name: i for i, attribute in enumerate(request.attributes)}
    layout["places"] = ("INTEGER[]", [str([places[name] for name in clique]) for clique in request.cliques])
    layout["strides"] = ("INTEGER[]", [str(_strides(domain, clique)) for clique in request.cliques])
    found = [f"strides[list_position(places, {i})] AS s{i}" for i in range(len(request.attributes))]
    for i, attribute in enumerate(request.attributes):
        columns += _decoded(attribute, i, bounds)
    half = f"{errors.quantile!r}::DOUBLE * sd"
    interval = f"count - {half} AS ci_low, count + {half} AS ci_high"
    marked = "" if private else ", false AS private"
    inner, read = "", "handle" if errors.postprocess is None else f"handle || {literal('/' + errors.postprocess)}"
    if errors.each:
        inner = ", unnest(_dp_stddevs(handle, idx)) AS sd"
        del layout["sd"]
    if errors.measured:
        inner = ", unnest(_dp_stddevs(handle, idx)) AS measured_stddev"
        interval += ", measured_stddev"
    lists = {name: _listed(type_, values) for name, (type_, values) in layout.items()}
    laid_out = (
        f"*, {', '.join(found)} FROM (SELECT {', '.join(f'unnest({one}) AS {name}' for name, one in lists.items())})"
    )
    if not several:  # constants, with which it is planned in half the time
        strides = dict(zip(request.cliques[0], _strides(domain, request.cliques[0]), strict=True))
        own = [f"({lists[name]})[1] AS {name}" for name in ("idx", "cells", "sd") if name in lists]
        steps = [f"{strides.get(one.name, 'NULL')}::INTEGER AS s{i}" for i, one in enumerate(request.attributes)]
        laid_out = ", ".join([*own, *steps])
    return (
        f"WITH {handle}, layout AS (SELECT {laid_out}), "
        f"answers AS (SELECT layout.*, unnest(range(cells)) AS cell, unnest(_dp_cells({read}, idx)) AS count"
        f"{inner} FROM layout, handle) "
        f"SELECT {', '.join([*columns, 'count', 'sd AS stddev', interval])}{marked} FROM answers"
    )


def _strides(domain: Domain, clique: Clique) -> list[int]:
    """How far apart the cells of neighbouring values of each attribute are in a marginal."""
    sizes = domain.shape(clique)
    return [math.prod(sizes[place + 1 :]) for place in range(len(clique))]


def _listed(type_: str, values: Iterable[Scalar | None]) -> str:
    """A SQL list of values; lists among them are given as texts."""
    return f"CAST({array('VARCHAR', values)} AS INTEGER[][])" if type_ == "INTEGER[]" else array(type_, values)


def _decoded(attribute: Attribute, index: int, bounds: bool) -> list[str]:
    code = f"cell // s{index} % {attribute.size}"

    def shown(name: str, end: str) -> str:
        if attribute.size > LISTED:
            type_, column = label_type(attribute, end), f"{index} {end}".rstrip()
            listed = f"SELECT CAST(_dp_labels(handle, '{column}') AS {type_}[]) FROM handle"
        else:
            listed = array(*labels(attribute, end))
        return f"CASE WHEN s{index} IS NOT NULL THEN ({listed})[{code} + 1] END AS {quote(name)}"

    counted = _counted(attribute, code)
    found = [shown(attribute.name, "") if counted is None else f"{counted} AS {quote(attribute.name)}"]
    if bounds and attribute.kind == "bins":
        found += [shown(f"{attribute.name}_{end}", end) for end in ("low", "high")]
    return found


def label_type(attribute: Attribute, end: str) -> str:
    """The type of a column of labels, or of the low or the high ends of bins."""
    return attribute.dtype.edge_type if end else attribute.column_type


def labels(attribute: Attribute, end: str) -> tuple[str, list[Scalar | None]]:
    """The type and the values of such a column, cell by cell."""
    if not end:
        return label_type(attribute, end), attribute.labels()
    return label_type(attribute, end), [edges[("low", "high").index(end)] for edges in attribute.bounds()]


def _counted(attribute: Attribute, code: str) -> str | None:
    """SQL of the label of a cell of whole numbers, by addition; None for other attributes, and where BIGINT might overflow."""
    if attribute.kind != "integers":
        return None
    low, high = map(int, attribute.points)
    if max(abs(low), abs(high)) >= 2**62:
        return None
    found = f"CAST(CASE WHEN {code} <= {high - low} THEN {low} + {code} END AS {attribute.column_type})"
    if not attribute.other:
        return found
    return f"CASE WHEN {code} = {high - low + 1} THEN {literal(attribute.other_label)} ELSE {found} END"


def table(name: str, columns: Mapping[str, str], call: str) -> str:
    """SELECT from a function that returns rows as JSON text: small public tables."""
    return f"WITH {checked('rows', f'SELECT {call} AS text')} {json_rows(columns)}"


def json_rows(columns: Mapping[str, str]) -> str:
    """SELECT of the rows of a JSON text, that of the CTE ``rows(rows)``."""
    structure = canonical([dict(columns)])
    parsed = f"unnest(from_json(rows, {literal(structure)}))"
    chosen = ", ".join(f"r[{literal(column)}] AS {quote(column)}" for column in columns)
    return f"SELECT {chosen} FROM (SELECT {parsed} AS r FROM rows)"
