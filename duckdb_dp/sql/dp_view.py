"""CALL dp_view: names a relation of a dataset, whose rows have one owner each; it has attributes, and no budget of its own."""

from dataclasses import replace
from typing import Any

from duckdb_dp.accounting.budget_filter import check_own
from duckdb_dp.accounting.families import NewMember
from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import plain_unit
from duckdb_dp.accounting.tables import AUTO
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import canonical
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql import catalog, declarations, views
from duckdb_dp.sql.arguments import Arguments, Place, candidates, name_parts
from duckdb_dp.sql.external_tables import relation
from duckdb_dp.sql.family import Family, family
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.views import View
from duckdb_dp.synthesis.database import Name

COLUMNS = {"column": "VARCHAR", "type": "VARCHAR", "cells": "BIGINT", "declare": "VARCHAR"}


def rows(session: Session, arguments: Arguments, place: Place, _seen: str) -> Rows:
    """Rows of CALL dp_view: one per column of the view, which is now declared.

    Raises:
        DPError: the name is taken, or the SELECT mixes the rows of several units, or is not understood.

    Privacy: reads names, types and declarations; spends nothing.
    """
    name, text = _free_name(session, arguments["name"], place), arguments["query"]
    query, datasets = views.qualified(session, text, place)
    dataset = datasets[0]
    check_own(dataset)
    found = family(session, dataset)
    if dataset.schema == SCHEMA:  # it is where its tables are
        name = (dataset.catalog, SCHEMA, name[2])
    asked = arguments.get("max_rows")
    view = views.compiled(session, found, query, bounded=asked is None and not any(one.auto_rows for one in datasets))
    if dataset.schema == SCHEMA:  # or it is refused there, where its rows are asked
        relation(session, name, view.sql)
    owner = [views.apart(column, view.columns) for column in found.unit]
    most = 1 if not found.unit or view.single else _bound(asked, view)
    if asked is None and most is not None and _stored_rows(session, name, query) not in (None, most):
        most = _earlier_rows(session, found, query)
    declared = NewMember(name=name, unit=plain_unit(owner) if owner else None, max_rows=most, view=query)
    made = session.ledger.families.add_view(dataset, declared)
    before = session.declared(made)
    new = {
        column: replace(attribute, name=column) for column, attribute in view.declared.items() if column not in before
    }
    session.ledger.declare_all(made, {column: canonical(each.to_json()) for column, each in new.items()})
    known = {**new, **before}
    return [
        {
            "column": column,
            "type": type_,
            "cells": known[column].size if column in known else None,
            "declare": None if column in known or column in owner else _call(made, column, type_),
        }
        for column, type_ in view.columns.items()
    ]


def _free_name(session: Session, asked: object, place: Place) -> Name:
    """The full name of the view, which no table has."""
    if not isinstance(asked, str) or not asked.strip():
        raise DPError(f"name is {as_sql(asked)}; give the view a name, e.g. 'visits_by_clinic'.")
    parts = name_parts(asked)
    name: Name = parts if len(parts) == 3 else (place[0], parts[0] if len(parts) == 2 else place[1], parts[-1])
    options = [
        name,
        *session.attached.named(parts),
        *(option for option in candidates(parts, *place) if len(parts) < 3),
    ]
    known = catalog.committed(session, [option[:2] for option in options])
    if any(catalog.find(known, option) is not None for option in options):
        raise DPError(f"{as_sql(asked)} is a table or view already; choose another name.")
    return name


def _bound(asked: Any, view: View) -> int | None:
    """How many of the view's rows count of each unit, as asked, or else by what is declared of the tables; None where it is chosen."""
    if asked is None and view.most is not None and view.most.public:
        raise DPError(
            f"a unit may have {view.most.rows} rows in the view ({view.most}), as the public tables are now; say how many count: "
            f"max_rows := {view.most.rows}, or max_rows := '{AUTO}', where each request chooses privately."
        )
    if asked is None:
        return None if view.most is None else view.most.rows
    if asked == AUTO:
        return None
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise DPError(f"max_rows is {as_sql(asked)}; give a whole number of at least 1, or '{AUTO}'.")
    return asked


def _stored_rows(session: Session, name: Name, query: str) -> int | None:
    """How many rows of a unit count in the view that is declared under this name already; None where it is none, or another one."""
    full = tuple(part.lower() for part in name)
    for known in session.ledger.families.relations():
        if (known.catalog.lower(), known.schema.lower(), known.name.lower()) == full:
            return known.max_rows if known.member is not None and known.member.view == query else None
    return None


def _earlier_rows(session: Session, found: Family, query: str) -> int | None:
    """How many an earlier version took by itself, which is no other declaration."""
    from duckdb_dp.sql.same_conditions import in_form  # for import time: it brings sqlglot

    with in_form(5):
        return _bound(None, views.compiled(session, found, query, bounded=True))


def _call(dataset: Dataset, column: str, type_: str) -> str:
    dtype = types.find(type_)
    if dtype is None:
        return "-- " + types.refusal(type_, f"attribute '{column}'")
    return declarations.call(dataset.argument, column, dtype.declared_by)


FUNCTION = register(Function(name="dp_view", rows=rows, columns=COLUMNS, curator=True))
