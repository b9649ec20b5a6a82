"""dp_quality: how far a synthetic table, or links between synthetic tables, are from the private originals."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.counting.encode import literal, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.differences import DIFFERENCES
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.request import Request, units
from duckdb_dp.sql import dp_links, dp_synthesize, link_counts, precision, provenance, render, synthetic_tables
from duckdb_dp.sql.arguments import (
    Arguments,
    Place,
    find_dataset,
    flag,
    name_parts,
    no_postprocess,
    parse_budget,
    release_name,
    stable_cost,
)
from duckdb_dp.sql.links import DEGREE, TAGS, Link, Side
from duckdb_dp.sql.owners import owned
from duckdb_dp.sql.provenance import PublicTable
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.row_bounds import with_rows
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.synthetic_tables import CodedRows, Key
from duckdb_dp.synthesis.functions import check
from duckdb_dp.synthesis.quality import cliques
from duckdb_dp.synthesis.scores import CELLS as CELLS_OF_A_MARGINAL
from duckdb_dp.synthesis.scores import MOST

COLUMNS = {
    "what": "VARCHAR", "attributes": "INTEGER", "marginals": "BIGINT", "error": "DOUBLE", "stddev": "DOUBLE",
    "worst": "VARCHAR", "worst_error": "DOUBLE", "note": "VARCHAR",
}  # fmt: skip

EACH = {
    "what": "VARCHAR", "marginal": "VARCHAR", "error": "DOUBLE", "stddev": "DOUBLE", "note": "VARCHAR"
}  # fmt: skip
"""With each := true: a row per marginal."""

CELLS = {
    "what": "VARCHAR", "which": "VARCHAR", "marginal": "VARCHAR", "cell": "VARCHAR", "original": "DOUBLE",
    "synthetic": "DOUBLE", "note": "VARCHAR",
}  # fmt: skip
"""With cells := true: a row per cell of the worst marginal of each kind, and of a typical one."""

VIEWS = {"summary": COLUMNS, "each": EACH, "cells": CELLS}

NOT_PRIVATE = "NOT PRIVATE"


def plan(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL for dp_quality: reads the stored score if there is one, else counts, charges and measures it."""
    arguments = precision.refuse(arguments, "the score's error depends on the number of rows, and the score says it")
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    exact, view = flag(arguments, "exact"), _view(arguments)
    table = arguments.get("synthetic_table")
    if not isinstance(table, str):
        raise DPError(
            f"the synthetic table is {as_sql(table)}; name it: dp_quality({dataset.argument}, 'my_synthetic_table', ...)."
        )
    named = ".".join(map(quote, name_parts(table)))
    synthetic = provenance.find(session, named, [place])
    if arguments.get("synthetic") is None:
        request, counting, tables, refusals = _of_table(session, dataset, named, synthetic, arguments, exact=exact)
    else:
        request, counting, tables, refusals = _of_links(
            session, dataset, named, synthetic, arguments, place, exact=exact
        )
    if not cliques(request):
        raise DPError(f"'{dataset.name}' has no declared attribute to compare; declare some with dp_attribute.")
    name, fresh = release_name(arguments), flag(arguments, "fresh")
    stored = None if fresh or exact else session.stored(request, name)
    if stored is not None:
        return _read(synthetic_tables.unchanged(stored, session.detail(stored), tables, refusals), view)
    return _read(synthetic_tables.run(request, counting, tables, refusals, name=name, fresh=fresh), view)


def read(session: Session, stored: Release, arguments: Arguments, _place: Place) -> str:
    """SQL for the rows of a stored dp_quality, by its name or number."""
    no_postprocess(arguments, FUNCTION.name)
    return _read(render.stored_handle(stored), "summary")


def _view(arguments: Arguments) -> str:
    each, cells = flag(arguments, "each"), flag(arguments, "cells")
    if cells and not flag(arguments, "exact"):
        raise DPError(
            "cells := true shows exact shares of the private table; add exact := true, for the curator alone."
        )
    if cells and each:
        raise DPError("each and cells are two ways to show a score; give one of them.")
    return "cells" if cells else "each" if each else "summary"


def _read(handle: str, view: str) -> str:
    # An exact score is no release: its handle is the score itself.
    asked = f"to_json({{'handle': handle, 'view': {literal(view)}}})::VARCHAR"
    call = f"_dp_call('', {literal(FUNCTION.name)}, {asked}, '', '', NULL::VARCHAR)"
    rows = render.checked("rows", f"SELECT {call} AS text FROM handle")
    return f"WITH {handle}, {rows} {render.json_rows(VIEWS[view])}"


def rows(session: Session, arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """The rows of a stored score, or of an exact one, whose handle is the score itself, as one of ``VIEWS``."""
    handle, view = arguments["handle"], arguments["view"]
    score = json.loads(handle) if handle.startswith("{") else session.detail(session.release_of(FUNCTION.name, handle))
    return _as_rows(score, view)


def _as_rows(score: Mapping[str, Any], view: str) -> Rows:
    notes = [NOT_PRIVATE] if score["exact"] else []
    if view == "summary" and (large := _left_out(score)):
        notes.append(large)
    note = "; ".join(notes) or None
    found: list[dict[str, Any]] = []
    for group in score["groups"]:
        names, errors = [", ".join(clique) for clique in group["cliques"]], group["errors"]
        if view == "cells":
            found += [{"what": group["what"], **cell, "note": note} for cell in group["cells"]]
            continue
        if view == "each":
            found += [
                {"what": group["what"], "marginal": name, "error": error, "stddev": group["each"], "note": note}
                for name, error in zip(names, errors, strict=True)
            ]
            continue
        worst = max(range(len(errors)), key=errors.__getitem__)
        found.append(
            {
                "what": group["what"],
                "attributes": len(group["cliques"][0]),
                "marginals": len(names),
                "error": group["mean"],
                "stddev": group["stddev"],
                "worst": names[worst],
                "worst_error": errors[worst],
                "note": note,
            }
        )
    return found


def _left_out(score: Mapping[str, Any]) -> str:
    """Which pairs and triples of a table are too large to be compared; '' where none is, or nobody can tell."""
    held = {len(one["cliques"][0]): len(one["cliques"]) for one in score["groups"] if one["what"] == "rows"}
    said = []
    for order, name in ((2, "pairs"), (3, "triples")):
        every, here = math.comb(held.get(1, 0), order), held.get(order, 0)
        if here < min(every, MOST):
            said.append(f"{every - here:,} of {every:,} {name}")
    return f"{' and '.join(said)} have more than {CELLS_OF_A_MARGINAL:,} cells and are not compared" if said else ""


def _cost(dataset: Dataset, arguments: Arguments, *, exact: bool) -> float:
    if not exact:
        return stable_cost(parse_budget(arguments, dataset), dataset.accounting)
    if any(arguments.get(name) is not None for name in ("epsilon", "delta", "rho", "mu")):
        raise DPError("exact := true is charged nothing and is NOT PRIVATE; leave out the budget, or exact.")
    return 0.0


Scored = tuple[Request, str, list[CodedRows], list[tuple[str, str]]]
"""A request, CTEs that count, the synthetic rows, and when these are refused."""


def _of_table(
    session: Session, dataset: Dataset, named: str, synthetic: PublicTable, arguments: Arguments, *, exact: bool
) -> Scored:
    dataset = with_rows(FUNCTION.name, dataset, arguments)
    attributes = dp_synthesize.chosen_attributes(dataset, session.declared(dataset), arguments.get("attributes"))
    request = Request(
        function=FUNCTION.name,
        catalog=dataset.catalog,
        schema=dataset.schema,
        table=dataset.name,
        unit=dataset.unit,
        max_rows=dataset.max_rows,
        accounting=dataset.accounting,
        attributes=attributes,
        questions=(),
        cost=_cost(dataset, arguments, exact=exact),
        mechanism="distance",
        objective="",
        options=(("exact", exact), ("sizes", (len(attributes),)), ("synthetic", (named,))),
    )
    check(request)
    session.check_columns(dataset, attributes)
    request = owned(session, dataset, request)
    names = [attribute.name for attribute in attributes]
    _check_held(synthetic, names)
    refusal = synthetic.refusal(request.function, names)
    refusals = [] if refusal is None else [refusal]
    rows = CodedRows.of(synthetic.sql, list(zip(names, attributes, strict=True)), Key())
    if dataset.schema == SCHEMA:
        return request, synthetic_tables.UNCOUNTED, [rows], refusals
    counted = render.counting(request, session.unit_key(), cliques(request))
    return request, f"{counted}, {link_counts.LISTED}, promise AS (SELECT true AS kept)", [rows], refusals


def _check_held(synthetic: PublicTable, columns: Sequence[str]) -> None:
    for column in columns:
        if not synthetic.holds(column):
            raise DPError(
                f"'{synthetic.table.name[2]}' has no column '{column}', which is compared; its columns are: "
                f"{few(synthetic.table.columns)}."
            )


def _of_links(
    session: Session,
    dataset: Dataset,
    named: str,
    synthetic: PublicTable,
    arguments: Arguments,
    place: Place,
    *,
    exact: bool,
) -> Scored:
    cost = _cost(dataset, arguments, exact=exact)
    link = dp_links.link_of(session, dataset, {**arguments, "method": None}, place, cost)
    link = dp_links.located(session, link, [place])
    asked = link.request
    tags = {f"{side.role}.{tag}" for side in link.sides for tag in TAGS}
    degrees = tuple(
        Attribute(name=f"{side.role}.{DEGREE}", type="INTEGER", kind="integers", points=(0, asked.max_rows))
        for place, side in enumerate(link.sides)
        if _bounded(link, place)
    )
    # What is compared are columns, and the differences of two are none.
    options = {name: value for name, value in asked.options if name != DIFFERENCES}
    request = replace(
        asked,
        function=FUNCTION.name,
        attributes=(*(a for a in asked.attributes if a.name not in tags), *degrees),
        mechanism="distance",
        options=tuple(sorted({**options, "degrees": len(degrees), "exact": exact, "links": named}.items())),
    )
    left, right = (replace(side, believed=True) for side in link.sides)
    link = replace(link, request=request, sides=(left, right))
    columns = [column for place in link.parents for column in link.sides[place].reference.columns]
    columns += [name for name, _ in link.per_row]
    _check_held(synthetic, columns)
    refusal = synthetic.refusal(request.function, columns)
    refusals = [*([] if refusal is None else [refusal]), *dp_links.refusals(session, link)]
    found = [_joined(link, synthetic.sql), *(_degrees(link, at, tag, synthetic.sql) for at, tag in link.tagged(DEGREE))]
    return request, link_counts.counting(link, session.unit_key()), found, refusals


def _bounded(link: Link, place: int) -> bool:
    """Whether a side is the protected one: one unit more changes one degree on its side, and up to max_rows on the other."""
    if link.sides[place].child:
        return False
    folded = {column.lower() for column in link.sides[place].reference.columns}
    return [{column.lower() for column in unit} for unit in units(link.request.unit)] == [folded]


def _joined(link: Link, synthetic: str) -> CodedRows:
    """The cells of the synthetic links, joined to both synthetic tables."""
    sides = [side for side in link.sides if not side.child]
    columns = link.per_row
    keys = [value for side in sides for value in _referring(side).values]
    rows = f"({synthetic_tables.coded(synthetic, columns, keys, strict=False)}) x"
    codes = synthetic_tables.codes_of([attribute for _, attribute in columns], "x.")
    start = 0
    for place, side in enumerate(sides):
        alias = f"s{place}"
        table = synthetic_tables.coded(side.linked, side.columns, side.key.values, strict=False)
        on = " AND ".join(f"{alias}.k{i} = x.k{start + i}" for i in range(side.width))
        rows += f" JOIN ({table}) {alias} ON {on}"
        codes |= synthetic_tables.codes_of(side.renamed, f"{alias}.")
        start += side.width
    attributes = tuple(attribute for attribute in link.request.attributes if attribute.name in codes)
    return CodedRows(
        attributes=attributes, source=rows, codes={attribute.name: codes[attribute.name] for attribute in attributes}
    )


def _degrees(link: Link, place: int, tag: str, synthetic: str) -> CodedRows:
    side = link.sides[place]
    attribute = next(attribute for attribute in link.request.attributes if attribute.name == tag)
    names = [f"k{i}" for i in range(side.width)]
    held, referring = (
        ", ".join(f"{value} AS {name}" for value, name in zip(key.values, names, strict=True))
        for key in (side.key, _referring(side))
    )
    on = " AND ".join(f"x.{name} = s.{name}" for name in names)
    degrees = (
        f"SELECT least(count(x.k0), {attribute.size - 1}) AS c0 FROM (SELECT {held} FROM {side.linked}) s "
        f"LEFT JOIN (SELECT {referring} FROM {synthetic}) x ON {on}"
    )
    keys = ", ".join(f"s.{name}" for name in names)
    return CodedRows(attributes=(attribute,), source=f"({degrees} GROUP BY {keys})", codes={tag: "c0"})


def _referring(side: Side) -> Key:
    """The foreign key of synthetic links, as the key of the table that it refers to is read."""
    return Key(columns=side.reference.columns, texts=side.key.texts)


FUNCTION = register(
    Function(name="dp_quality", plan=plan, rows=rows, read=read, compares=True, exact=("exact", "cells"))
)
