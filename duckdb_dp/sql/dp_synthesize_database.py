"""CALL dp_synthesize_database: synthesises every protected table of a schema and its links, into a new schema."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import TOLERANCE
from duckdb_dp.budget import Budget
from duckdb_dp.counting.encode import full_name
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.request import Request, units
from duckdb_dp.sql import (
    catalog,
    chosen_parents,
    chosen_tables,
    dp_links,
    dp_synthesize,
    drawn_references,
    execute_database,
    link_counts,
    owners,
    public_copies,
    sibling_keys,
)
from duckdb_dp.sql.arguments import Arguments, Place, check_delta, flag, word
from duckdb_dp.sql.ddl import Target
from duckdb_dp.sql.drawn_references import Schema
from duckdb_dp.sql.execute_database import Step
from duckdb_dp.sql.ordered_columns import check_orders
from duckdb_dp.sql.precision import refuse
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import (
    Name,
    Table,
    number_columns,
    parents_first,
    refers_by_keys,
    with_referred_keys,
)
from duckdb_dp.synthesis.links.columns import DEFAULT as LINKING
from duckdb_dp.synthesis.links.methods import METHODS
from duckdb_dp.synthesis.table.columns import DEFAULT

COLUMNS = {
    "step": "INTEGER", "dataset": "VARCHAR", "what": "VARCHAR", "mechanism": "VARCHAR", "share": "DOUBLE",
    "cost": "DOUBLE", "epsilon": "DOUBLE", "rows": "BIGINT", "seconds": "DOUBLE", "note": "VARCHAR",
}  # fmt: skip


def rows(session: Session, arguments: Arguments, place: Place, _seen: str) -> Rows:
    """Rows of CALL dp_synthesize_database: the plan, or the steps that were done.

    Raises:
        DPError: a step cannot be done; nothing has been charged then.
    """
    source, target = (chosen_tables.schema(arguments, name, place) for name in ("schema", "target"))
    steps, copies = plan(session, source, target, arguments)
    execute_database.check_target(session, steps, copies, target)
    if flag(arguments, "plan"):
        return [execute_database.row(number, step) for number, step in enumerate(steps, 1)]
    if not session.quiet:
        sys.stderr.write(as_text(steps) + "\n")
    return list(execute_database.perform(session, steps, copies, target))


def as_text(steps: Sequence[Step]) -> str:
    """The plan for reading."""
    lines = [f"  {step.share:6.1%}  {step.dataset.name}: {step.what}" for step in steps]
    notes = [f"  {step.dataset.name}: {note}" for step in steps if step.last for note in step.target.notes]
    return "\n".join(["dp_synthesize_database: shares of the budget", *lines, *notes])


# The plan


def plan(
    session: Session, source: tuple[str, str], target: tuple[str, str], arguments: Arguments
) -> tuple[list[Step], list[Target]]:
    """All steps, each with its request, and the public tables that are copied: what can be refused is refused here.

    Raises:
        DPError: no protected table, a cycle of foreign keys, a budget that is too small, or a step is refused.
    """
    refuse(arguments, "how far synthetic rows are from the tables depends on them, and dp_quality measures that")
    typed = Budget(**{name: arguments.get(name) for name in ("epsilon", "delta", "rho", "mu")})
    if (linking := word(arguments, "link_method", LINKING)) not in METHODS:
        raise DPError(f"link_method is {as_sql(linking)}; use {' or '.join(map(repr, METHODS))}.")
    known = catalog.committed(session, [source, target])
    chosen_tables.check_target(known, source, target)
    found = chosen_tables.datasets(session, source, arguments.get("tables"))
    datasets = chosen_tables.bounded(found, arguments.get("max_rows"))
    tables = [chosen_tables.table_of(session, known, dataset) for dataset in datasets]
    keyed = with_referred_keys(drawn_references.referring(session, tables))
    tables = [replace(table, keys=one.keys, believed=one.believed) for table, one in zip(tables, keyed, strict=True)]
    public = public_copies.public_parents(session, tables)
    ordered = parents_first([*tables, *(table for table in public if refers_by_keys(table, tables))])
    schema = drawn_references.schema(session, ordered, {table.name: table for table in public}, target)
    chosen = {table.name: dataset for table, dataset in zip(tables, datasets, strict=True)}
    steps = [
        step
        for table in ordered
        if table.name in chosen
        for step in _steps(session, chosen[table.name], schema.kept(table), schema, target, arguments)
    ]
    for step in steps:
        declared = _dataset_of(session, step.target.table)
        if (most := chosen_tables.fewer(declared, step.dataset, arguments.get("max_rows"))) is not None:
            name = "max_rows" if step.kind == "rows" else "max_degree"
            step.arguments[name] = min(most, step.arguments.get(name, most))
    execute_database.check_bounded(steps)
    weights = chosen_tables.weights([(step.dataset, step.kind) for step in steps], arguments.get("shares"))
    for step, weight in zip(steps, weights, strict=True):
        step.share = weight / math.fsum(weights)
    _price(session, steps, typed, source)
    copies = public_copies.copies(session, public)
    if further := [copy.table.name[2] for copy in copies if copy.table.name not in schema.copied]:
        steps[-1].target.notes.append(f"copied too, as public tables refer to them: {few(map(repr, further))}")
    return steps, copies


def _steps(
    session: Session, dataset: Dataset, table: Table, schema: Schema, target: tuple[str, str], arguments: Arguments
) -> Iterator[Step]:
    """The steps that make one table."""
    by_name = {other.name: schema.kept(other) for other in schema.tables}
    numbered = [name for name in schema.numbered[table.name] if name not in schema.read(table.name)]
    declared = {
        name: found for name, found in session.declared(dataset).items() if name not in schema.numbered[table.name]
    }
    owned_by_join = owners.by_join(session, dataset)
    # The table's own rows can be referred to when all else of them is there.
    itself = drawn_references.to_itself(session, dataset, table, numbered)
    known, linking = drawn_references.references(session, dataset, table, schema.tables, itself)
    table, own = drawn_references.with_own_key(session, dataset, table, needed=bool(known) and not linking)
    made = [reference for reference in known if session.ledger.dataset(*reference.parent) is not None]
    for reference in made:
        numbers = [column for column in reference.key if column not in schema.valued[reference.parent]]
        drawn_references.check_numbered(f"'{dataset.name}' refers to", by_name[reference.parent], numbers)
        drawn_references.check_types(table, reference, by_name[reference.parent], numbers)
    referring = {column for reference in table.references for column in reference.columns}
    held = {column for reference in known for column in reference.columns}
    read = schema.read(table.name)
    keyed = schema.keyed[table.name]
    declared |= {attribute.name: attribute for attribute in keyed.values()}
    attributes = tuple(name for name in declared if name not in held)
    by_number = () if not known or linking else drawn_references.row_number(own, attributes, held, table)
    if known and not linking and not by_number:  # each row gets its parents by its own key
        own_key = [column for column in own if column not in attributes]
        other = [column for column in own_key if column not in referring]
        drawn_references.check_numbered(
            f"'{dataset.name}' refers to '{known[0].parent[2]}' and has the key", table, other or own_key
        )
    numbering = number_columns(table, schema.tables) or own
    # Of references that are not drawn, numbers in their place would join with rows of any parent.
    used = {column for one in schema.tables for r in one.references if r.parent == table.name for column in r.key}
    numbering = tuple(
        column for column in numbering if column not in referring - used - set(held) and column not in read
    )
    free = [column for column in numbering if column not in held and column not in attributes]
    key = tuple(column for column in free if dp_synthesize.numbered(table.columns[column]))
    itself_by = {column for reference in itself for column in reference.key}
    siblings = sibling_keys.sibling_keys(
        table, own, key, {name: declared[name] for name in attributes}, set(held), itself_by
    )
    plan_of = Target(
        table=table,
        filled=(*key, *attributes, *held, *read),
        references=tuple(known),
        keyed=tuple(r for r in (*keyed, *schema.declared[table.name]) if schema.copied[r.parent].distinct(r.key)),
        parents={**schema.copied, **by_name},
        itself=drawn_references.kept_itself(session, dataset, known),
        siblings=siblings,
        numbers=key,
        row_number=by_number,
        repeated=schema.repeated[table.name],
        referred=frozenset(used),
        nulls=_keeps_undeclared(arguments),
    )
    plan_of.describe()
    plan_of.note_numbers(numbered)
    possible = chosen_parents.drawn(session, dataset, table.references)
    plan_of.note_references(
        schema.copied,
        [
            r
            for r in table.references
            if owned_by_join and r not in (*possible, *plan_of.referring, *keyed) and not {*r.columns} <= {*attributes}
        ],
    )
    for reference in known:
        found = schema.also.get(reference.parent, ())
        plan_of.note_measured(reference, [attribute.name for attribute in found if attribute.name not in reference.key])
    whole_name = full_name(*target, dataset.name)
    fresh = {"fresh": True} if flag(arguments, "fresh") else {}
    if linking:
        listed = [attribute.name for attribute in schema.also[table.name]]
        plan_of.note_nulls([column for columns in units(dataset.unit) for column in columns], listed)
        synthetic = {reference.role: full_name(*target, reference.parent[2]) for reference in known}
        more = {
            "synthetic": synthetic,
            "method": word(arguments, "link_method", LINKING),
            dp_links.NUMBERED: schema.numbered,
            dp_links.HELD: schema.held,
            dp_links.ALSO: schema.also,
            dp_links.BY_REFERENCE: schema.joined,
            dp_links.PUBLIC_KEYS: True,
            dp_links.BELIEVED: any(r.key in by_name[r.parent].believed for r in known),
            **fresh,
        }
        if arguments.get("max_degree") is not None:
            more["max_degree"] = arguments["max_degree"]
        yield Step(kind="links", dataset=dataset, target=plan_of, arguments=more, makes=whole_name, last=True)
        return
    if not attributes:
        raise DPError(
            f"'{dataset.name}' has no attributes to make rows of. Declare them: CALL dp_attributes({dataset.argument}), or leave the table "
            "out by tables := [...]."
        )
    stages = [full_name(*target, f"{dataset.name} {i}") for i in range(len(known))]
    # A key that consists of references identifies the rows until they have their parents, so all of it is numbered.
    whole = key and referring.issuperset(numbering)
    numbering_key = [column for column in numbering if column in key or (whole and column not in attributes)]
    rows = {
        "attributes": list(attributes),
        "key": numbering_key if by_number else numbering_key or None,
        dp_synthesize.ALSO: tuple(keyed.values()),
        dp_synthesize.WIDE: (*sibling_keys.wide(siblings, numbering_key, held), *by_number),
        "method": word(arguments, "method", DEFAULT.method),
    }
    yield Step(
        kind="rows", dataset=dataset, target=plan_of, arguments={**rows, **fresh}, makes=(*stages, whole_name)[0], last=not known,
    )  # fmt: skip
    for place, reference in enumerate(known):
        own_rows = reference.parent == table.name
        parents = stages[place] if own_rows else full_name(*target, reference.parent[2])
        more = {
            "synthetic": {dataset.name: stages[place], reference.role: parents},
            dp_links.NUMBERED: schema.numbered,
            dp_links.HELD: schema.held,
            dp_links.OWN_KEY: by_number or own,
            dp_links.ALSO: schema.also,
            dp_links.BY_REFERENCE: schema.joined,
            dp_links.PUBLIC_KEYS: True,
            dp_links.BELIEVED: reference.key in by_name[reference.parent].believed,
            **fresh,
        }
        of_one = chosen_parents.of_one(session, dataset, reference)
        if (own_rows or of_one) and arguments.get("max_degree") is not None:
            more["max_degree"] = arguments["max_degree"]
        if (of_one or reference.columns in units(dataset.unit)) and not dataset.auto_rows:
            most = more.get("max_degree", dataset.max_rows)
            fitting = sibling_keys.room(table, siblings, declared, reference.columns)
            if fitting is not None and isinstance(most, int) and fitting < most:
                more["max_degree"] = fitting  # more rows of one parent have no keys that differ
        yield Step(
            kind="parents", dataset=dataset, target=plan_of, arguments=more, makes=(*stages, whole_name)[place + 1],
            last=place == len(known) - 1,
        )  # fmt: skip


def _keeps_undeclared(arguments: Arguments) -> bool:
    """Whether columns that were never declared are kept, as NULL.

    Raises:
        DPError: it is neither 'null' nor 'drop'.
    """
    found = word(arguments, "undeclared", "drop")
    if found not in ("null", "drop"):
        raise DPError(f"undeclared is {as_sql(found)}; use 'null' to keep such columns without values, or 'drop'.")
    return found == "null"


def _dataset_of(session: Session, table: Table) -> Dataset:
    found = session.ledger.dataset(*table.name)
    assert found is not None
    return found


# Budgets


def _price(session: Session, steps: Sequence[Step], typed: Budget, source: tuple[str, str]) -> None:
    """Give each step its budget and its request; refuse the plan if a dataset's budget is too small."""
    datasets = {step.dataset.id: step.dataset for step in steps}
    for dataset in datasets.values():
        check_delta(typed, dataset)
    kinds = {(d.accounting, typed.with_delta(d.cost_delta)) for d in datasets.values()}
    if len(kinds) > 1:
        names = few(
            f"'{d.name}' {d.accounting} {'' if d.cost_delta is None else f'{d.cost_delta:g}'}"
            for d in datasets.values()
        )
        deltas = [d.cost_delta for d in datasets.values() if d.cost_delta is not None]
        alike = len({d.accounting for d in datasets.values()}) == 1 and len(deltas) == len(datasets)
        raise DPError(
            f"one total needs one accounting and one delta, and the tables have several ({names}); "
            + (f"write the least, delta := {min(deltas):g}, or " if alike else "protect them alike, or ")
            + "make some of them alone with tables := [...]"
        )
    ((accounting, budget),) = kinds
    total = accounting.cost(budget)
    due: dict[int, float] = {}
    for step in steps:
        part = total * step.share
        step.arguments |= accounting.typed(part)
        if accounting.pure:
            raise DPError(
                "synthetic rows are made with Gaussian noise, which has no pure epsilon; protect with a delta."
            )
        step.request = _request(session, step, source)
        if flag(step.arguments, "fresh") or session.stored(step.request, None) is None:
            check_orders(step.request)
            due[step.dataset.id] = due.get(step.dataset.id, 0.0) + step.request.cost
    for number, owed in due.items():
        dataset = datasets[number]
        left = session.ledger.remaining(dataset)
        if owed > left * (1 + TOLERANCE):
            charged = dict.fromkeys(step.dataset.name for step in steps if step.dataset.id == number)
            works = _typed(dataset, typed, total * left / owed) + (
                ", or change shares := {...}" if len(due) > 1 else ""
            )
            raise DPError(
                f"{few(map(repr, charged))} would be charged {owed:.6g} of the total of {total:.6g}, and {left:.6g} is left "
                f"({accounting.unit}); nothing was charged; {works}."
            )


def _typed(dataset: Dataset, typed: Budget, total: float) -> str:
    """What to type so that a total is not exceeded, in the words of the call."""
    if total <= 0:
        return "there is nothing left to ask for"
    words = dataset.accounting.typed(total)
    if typed.epsilon is not None and dataset.cost_delta is not None:
        words = {"epsilon": dataset.accounting.epsilon(total, dataset.cost_delta)}
    ((name, value),) = words.items()
    digits = 10.0 ** (3 - math.floor(math.log10(value)))
    return f"{name} := {math.floor(value * digits) / digits:g} would fit"


def _request(session: Session, step: Step, source: tuple[str, str]) -> Request:
    arguments = {**step.arguments, "dataset": full_name(*_name(step.dataset))}
    if step.kind == "rows":
        return dp_synthesize.request_of(session, step.dataset, arguments)
    link = dp_links.link_of(session, step.dataset, arguments, source)
    if len(units(step.dataset.unit)) > 1 and step.dataset.schema != SCHEMA:
        step.promise = link_counts.promise(link)
    return link.request


def _name(dataset: Dataset) -> Name:
    return dataset.catalog, dataset.schema, dataset.name


FUNCTION = register(Function(name="dp_synthesize_database", rows=rows, columns=COLUMNS, compares=True))
