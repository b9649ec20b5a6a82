"""From a request to the SQL that counts its rows and returns its answers, inside the user's own statement."""

from collections.abc import Iterable, Mapping, Sequence

from duckdb_dp.attribute import Attribute, Scalar, canonical
from duckdb_dp.data.cover import cover
from duckdb_dp.data.encode import encode, inside, literal, quote
from duckdb_dp.domain import Clique
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Request

Z95 = 1.959963984540054
"""Normal quantile of 97.5 %: half-width of a 95 % interval in standard deviations."""


def full_name(catalog: str, schema: str, table: str) -> str:
    """The quoted full name: what no CTE or TEMP table can shadow."""
    return ".".join(map(quote, (catalog, schema, table)))


def source(request: Request, unit_key: str) -> str:
    """SELECT of the columns in use; with a unit, at most ``max_rows`` rows of each.

    Which rows of a unit are kept depends on that unit's rows alone: they are ordered by a keyed hash of their own
    values and, where hashes tie, by the values. Rows without a unit are left out: they could not be told apart.
    """
    columns = [quote(attribute.name) for attribute in request.attributes]
    # The declared type, whatever became of the column: DuckDB drops a cast to the same type, and with another one no
    # error can show a private value.
    casts = [f"TRY_CAST({c} AS {a.type}) AS {c}" for c, a in zip(columns, request.attributes, strict=True)]
    table = full_name(request.catalog, request.schema, request.table)
    if request.unit is None:
        return f"SELECT {', '.join(casts) or '1 AS one'} FROM {table}"
    unit = quote(request.unit)
    order = ", ".join([f"hash({', '.join([literal(unit_key), unit, *columns])})", *columns])
    return (
        f"SELECT {', '.join(casts) or '1 AS one'} FROM {table} WHERE {unit} IS NOT NULL "
        f"QUALIFY row_number() OVER (PARTITION BY {unit} ORDER BY {order}) <= {request.max_rows}"
    )


def counting(request: Request, unit_key: str) -> str:
    """Two CTEs: ``coded`` (cell numbers of the rows inside the domain) and ``blocks`` (block, cells).

    ``cells`` lists {k: row-major position, n: rows} of the non-empty cells of a block of attributes.
    """
    codes = {attribute.name: f"c{i}" for i, attribute in enumerate(request.attributes)}
    blocks = cover(request.domain, request.cliques)
    encoded = ", ".join(f"{encode(attribute)} AS {codes[attribute.name]}" for attribute in request.attributes)
    rows = f"SELECT {encoded or '1'} FROM ({source(request, unit_key)}){_where(map(inside, request.attributes))}"
    known = _where(f"{codes[a.name]} IS NOT NULL" for a in request.attributes if a.kind == "values" and not a.other)
    once = "MATERIALIZED" if len(blocks) > 1 else "NOT MATERIALIZED"
    grouped = " UNION ALL ".join(_group(request, block, codes) for block in blocks)
    return f"coded AS {once} (SELECT * FROM ({rows}){known}), blocks AS ({grouped})"


def _where(conditions: Iterable[str | None]) -> str:
    found = [condition for condition in conditions if condition is not None]
    return " WHERE " + " AND ".join(found) if found else ""


def _group(request: Request, block: Clique, codes: Mapping[str, str]) -> str:
    """One block's cells. Grouping by the narrow codes and packing them after is 1.4 times faster than the reverse."""
    domain = request.domain
    name = literal(canonical(list(block)))
    if not block:
        return f"SELECT {name} AS block, [{{'k': 0::BIGINT, 'n': count(*)}}] AS cells FROM coded"
    columns = ", ".join(codes[attribute] for attribute in block)
    key = f"{codes[block[0]]}::BIGINT"
    for attribute in block[1:]:
        key = f"({key}) * {domain.sizes[attribute]} + {codes[attribute]}"
    groups = f"SELECT {columns}, count(*) AS n FROM coded GROUP BY {columns}"
    return f"SELECT {name} AS block, list({{'k': {key}, 'n': n}}) AS cells FROM ({groups})"


def run(request: Request, unit_key: str, *, name: str | None, fresh: bool) -> str:
    """CTEs that end in ``handle(handle)``: counts, charges and measures when the statement runs, and not before."""
    fresh_key = "current_query_id()::VARCHAR" if fresh else "NULL::VARCHAR"
    call = f"_dp_run({literal(request.to_json())}, {literal(name)}::VARCHAR, {fresh_key}, list(block), list(cells))"
    return f"{counting(request, unit_key)}, {checked('handle', f'SELECT {call} AS text FROM blocks')}"


def checked(name: str, select: str) -> str:
    """CTEs that run a function once and turn its text into an error where it starts with '!'."""
    return (
        f"{name}_text AS MATERIALIZED ({select}), {name} AS MATERIALIZED "
        f"(SELECT CASE WHEN text[1] = '!' THEN error(text[2:]) ELSE text END AS {name} FROM {name}_text)"
    )


def marginals(request: Request, plan: Plan, handle: str, *, bounds: bool, private: bool) -> str:
    """SELECT with one row per cell of each marginal, in order, with error columns.

    Args:
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
        "sd": ("DOUBLE", [float(plan.stddev(clique)) for clique in request.cliques]),
    }
    if several:
        layout["marginal"] = ("VARCHAR", [",".join(clique) for clique in request.cliques])
    for i, attribute in enumerate(request.attributes):
        layout[f"s{i}"] = ("INTEGER", [_stride(request, clique, attribute.name) for clique in request.cliques])
        columns += _decoded(attribute, i, bounds)
    unnested = ", ".join(f"unnest({_list(type_, values)}) AS {name}" for name, (type_, values) in layout.items())
    interval = f"count - {Z95!r}::DOUBLE * sd AS ci_low, count + {Z95!r}::DOUBLE * sd AS ci_high"
    marked = "" if private else ", false AS private"
    return (
        f"WITH {handle}, layout AS (SELECT {unnested}), "
        "answers AS (SELECT layout.*, unnest(range(cells)) AS cell, unnest(_dp_cells(handle, idx)) AS count FROM layout, handle) "
        f"SELECT {', '.join([*columns, 'count', 'sd AS stddev', interval])}{marked} FROM answers"
    )


def _stride(request: Request, clique: Clique, name: str) -> int | None:
    return request.domain.cells(clique[clique.index(name) + 1 :]) if name in clique else None


def _decoded(attribute: Attribute, index: int, bounds: bool) -> list[str]:
    code = f"cell // s{index} % {attribute.size}"

    def column(name: str, type_: str, values: Sequence[Scalar | None]) -> str:
        return f"CASE WHEN s{index} IS NOT NULL THEN ({_list(type_, values)})[{code} + 1] END AS {quote(name)}"

    found = [column(attribute.name, attribute.column_type, attribute.labels())]
    if bounds and attribute.kind == "bins":
        edges = attribute.bounds()
        number = attribute.type if attribute.family == "temporal" else "DOUBLE"
        found += [
            column(f"{attribute.name}_{end}", number, [edge[i] for edge in edges])
            for i, end in enumerate(("low", "high"))
        ]
    return found


def _list(type_: str, values: Iterable[Scalar | None]) -> str:
    return f"CAST([{', '.join(map(literal, values))}] AS {type_}[])"


def table(name: str, columns: Mapping[str, str], call: str) -> str:
    """SELECT from a function that returns rows as JSON text: small public tables."""
    structure = canonical([dict(columns)])
    parsed = f"unnest(from_json(rows, {literal(structure)}))"
    chosen = ", ".join(f"r[{literal(column)}] AS {quote(column)}" for column in columns)
    return f"WITH {checked('rows', f'SELECT {call} AS text')} SELECT {chosen} FROM (SELECT {parsed} AS r FROM rows)"
