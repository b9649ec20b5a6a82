"""Runs the steps of dp_synthesize_database: either all tables are made or none."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import duckdb

from duckdb_dp.accounting.convert import shown
from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, few, first_line, quoted
from duckdb_dp.request import Request
from duckdb_dp.sql import alike_keys, dp_links, dp_synthesize, external_tables, joined_columns, provenance, stopping
from duckdb_dp.sql.arguments import Place
from duckdb_dp.sql.ddl import LEVEL, Target
from duckdb_dp.sql.explained_synthesis import at_bound
from duckdb_dp.sql.measured_pairs import pairs_note, too_large_note
from duckdb_dp.sql.ordered_columns import order_note
from duckdb_dp.sql.own_names import bound
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.links.columns import check_promise, left_out


@final
@dataclass(slots=True, kw_only=True)
class Step:
    """One call of dp_synthesize or dp_links.

    Attributes:
        kind: 'rows', 'links' (of two parents) or 'parents' (of a table's rows).
        dataset: what is charged.
        target: the table that is made.
        arguments: of the call, without its budget.
        makes: the table that the step makes: the target's own, or an intermediate one.
        last: whether the table is complete with it.
        share: of the total.
        request: what is asked, once the budget is known.
        promise: SELECT of whether a bound on links that was promised holds; None where nothing was, and in other engines.
    """

    kind: str
    dataset: Dataset
    target: Target
    arguments: dict[str, Any]
    makes: str
    last: bool
    share: float = 0.0
    request: Request | None = field(default=None)
    promise: str | None = None

    @property
    def what(self) -> str:
        """In words."""
        if self.kind == "rows":
            return "rows"
        ends = " and ".join(role for role in self.arguments["synthetic"] if role != self.dataset.name)
        return f"links to {ends}" if self.kind == "links" else f"parents in {ends}"


def perform(
    session: Session, steps: Sequence[Step], copies: Sequence[Target], target: tuple[str, str]
) -> Iterator[dict[str, Any]]:
    """Make the tables, all of them or none, and report each step; public tables are copied first.

    Privacy: spends the steps' costs.
    """
    cursor = _cursor(session)
    with cursor, stopping.also(cursor.interrupt):
        cursor.execute("BEGIN")
        try:
            _check_promises(session, cursor, steps)
            _use(cursor, target)
            for copy in copies:
                cursor.execute(copy.statement())
                cursor.execute(copy.insert(f"FROM {full_name(*copy.table.name)}"))
                _know(session, cursor, copy, full_name(*target, copy.table.name[2]))
            report = [_make(session, cursor, number, step) for number, step in enumerate(steps, 1)]
            cursor.execute("COMMIT")
        except duckdb.Error as error:
            cursor.execute("ROLLBACK")
            raise DPError(
                f"{first_line(error).rstrip('.')}. No table was made; what was charged stays in the ledger and is free to use "
                "again: the same call, without fresh := true, goes on from there at no new cost."
            ) from None
    yield from report


def check_bounded(steps: Sequence[Step]) -> None:
    """Refuse tables without a number of rows of each unit, all of them at once, as the argument that gives it takes them all.

    Raises:
        DPError: there is one.
    """
    free = [step.dataset.name for step in steps if step.dataset.auto_rows and "max_degree" not in step.arguments]
    if free:
        each = ", ".join(f"{quoted(name)}: 5" for name in dict.fromkeys(free))
        raise DPError(
            f"{few(map(repr, dict.fromkeys(free)))}: protected without a number of rows for each unit, and a synthesis needs one: add "
            f"max_rows := 5, say, or max_rows := {{{each}}}: of each unit 5 rows count at most, with 5 times the noise of one."
        )


def check_target(session: Session, steps: Sequence[Step], copies: Sequence[Target], target: tuple[str, str]) -> None:
    """Make the tables without rows, and remove them again, so that DuckDB's errors come before anything is charged.

    Raises:
        DPError: a table, or the schema, cannot be made.

    Privacy: looks at names, types and constraints only.
    """
    cursor = _cursor(session)
    with cursor, stopping.also(cursor.interrupt):
        cursor.execute("BEGIN")
        name = None
        try:
            _use(cursor, target)
            made = [step.target for step in steps if step.last and not step.target.table.view]
            for one in (*copies, *made):
                name = one.table.name[2]
                cursor.execute(one.statement())
        except duckdb.Error as error:
            what = f"schema '{target[1]}'" if name is None else f"a table with the constraints of '{name}'"
            raise DPError(
                f"{what} cannot be made, so nothing was charged: {first_line(error).rstrip('.!')}. "
                + (
                    "Name another target."
                    if name is None
                    else "Change the original table, or leave it out with tables := [...]"
                )
            ) from None
        finally:
            cursor.execute("ROLLBACK")


def _check_promises(session: Session, cursor: duckdb.DuckDBPyConnection, steps: Sequence[Step]) -> None:
    """Refuse a broken promise of any link table before the first step is charged.

    Raises:
        DPError: a table has rows with more links than were promised for both sides.
    """
    for step in steps:
        assert step.request is not None
        if step.kind == "rows" or (not step.arguments.get("fresh") and session.stored(step.request, None) is not None):
            continue  # rows promise nothing, and what is stored is read as it is
        kept = True
        if step.promise is not None:
            row = cursor.execute(bound(step.promise)).fetchone()
            kept = row is not None and bool(row[0])
        elif step.dataset.schema == SCHEMA:
            kept = external_tables.promise_holds(session, step.request)
        check_promise(step.request, kept)


def _cursor(session: Session) -> duckdb.DuckDBPyConnection:
    cursor = session.cursor()
    if cursor is None:
        raise DPError("the connection that was loaded is closed, and tables cannot be made; load an open one.")
    cursor.execute("SET SESSION default_collation = ''")  # whatever is set for all: text is compared by its bytes
    return cursor


def _use(cursor: duckdb.DuckDBPyConnection, target: tuple[str, str]) -> None:
    cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {'.'.join(map(quote, target))}")
    cursor.execute(f"USE {'.'.join(map(quote, target))}")


def _make(session: Session, cursor: duckdb.DuckDBPyConnection, number: int, step: Step) -> dict[str, Any]:
    start = time.perf_counter()
    place = (step.dataset.catalog, step.dataset.schema)
    arguments = {**step.arguments, "dataset": full_name(*place, step.dataset.name)}
    empty = None if step.kind == "rows" else _nothing_to_link(cursor, step)
    with session.seeing_with(cursor):
        rows = empty or bound((dp_synthesize if step.kind == "rows" else dp_links).plan(session, arguments, place))
    if not step.last:
        # What a constraint forbids goes before parents are chosen, so that nothing refers to it.
        held = [*step.target.numbers, *step.arguments["attributes"]] if step.kind == "rows" else []
        cursor.execute(f"CREATE TABLE {step.makes} AS {step.target.begun(rows, held)}")
    elif step.target.table.view:
        complete = step.target.complete(rows, step.target.filled)
        cursor.execute(f"CREATE TABLE {step.makes} AS {step.target.kept(complete, step.target.filled)}")
    elif step.target.itself is not None:
        _make_by_levels(cursor, step, rows)
    else:
        cursor.execute(step.target.statement())
        cursor.execute(step.target.insert(rows))
    _know(session, cursor, step.target, step.makes)
    found = row(number, step) | {"rows": _count(cursor, step.makes)}
    if empty is not None:
        found |= {
            "cost": 0.0,
            "epsilon": None,
            "note": "; ".join(["not charged, as there are no rows to link", *step.target.notes]),
        }
    elif step.request is not None:
        cut = at_bound(session, step.request) if step.kind != "rows" else None
        found["note"] = "; ".join(filter(None, [found["note"], cut, pairs_note(session, step.request)])) or None
    if step.kind != "links":
        before = (
            step.arguments["synthetic"][step.dataset.name]
            if step.kind == "parents"
            else _drawn(session, cursor, arguments, place)
        )
        if (lost := _count(cursor, before) - found["rows"]) > 0:
            note = f"{lost:,} rows left out, which a constraint forbids"
            found["note"] = "; ".join(filter(None, [found["note"], note]))
    if step.kind == "parents":
        cursor.execute(f"DROP TABLE {before}")
    return found | {"seconds": round(time.perf_counter() - start, 3)}


def _nothing_to_link(cursor: duckdb.DuckDBPyConnection, step: Step) -> str | None:
    """SELECT of what is left of rows that get parents, or of links, where a synthetic table has no rows, or a parent none with a key."""
    keys = {reference.role: reference.key for reference in step.target.references}
    ends = (
        (table, [] if name == step.dataset.name else keys[name]) for name, table in step.arguments["synthetic"].items()
    )
    if all(_count(cursor, table, key) for table, key in ends):
        return None
    types = step.target.table.columns
    if step.kind == "links":
        names = [name for name in step.target.filled if name not in step.target.read]
        return f"SELECT {', '.join(f'NULL::{types[name]} AS {quote(name)}' for name in names)} WHERE false"
    role = next(role for role in step.arguments["synthetic"] if role != step.dataset.name)
    columns = next(reference.columns for reference in step.target.references if reference.role == role)
    nulls = ", ".join(f"NULL::{types[name]} AS {quote(name)}" for name in columns)
    return f"SELECT *, {nulls} FROM {step.arguments['synthetic'][step.dataset.name]}"


def _drawn(session: Session, cursor: duckdb.DuckDBPyConnection, arguments: Mapping[str, Any], place: Place) -> str:
    """SQL of the rows that were drawn and stored for a table, before its constraints."""
    with session.seeing_with(cursor):
        asked = {name: value for name, value in arguments.items() if name != "fresh"}
        return f"({bound(dp_synthesize.plan(session, asked, place))})"


def _know(session: Session, cursor: duckdb.DuckDBPyConnection, target: Target, name: str) -> None:
    """Record in the ledger the digest of a table that was made, without its undeclared columns."""
    made = {column.lower() for column, *_ in cursor.execute(f"DESCRIBE {name}").fetchall()}
    columns = [column for column in (*target.filled, *target.row_number) if column.lower() in made]
    ((digest,),) = cursor.execute(provenance.digest(columns, name)).fetchall()
    session.ledger.public.note_rows(columns, digest, release=None, private=session.bits.private)


def _count(cursor: duckdb.DuckDBPyConnection, table: str, key: Iterable[str] = ()) -> int:
    """How many rows it has, of those with a key."""
    whole = " AND ".join(["true", *(f"{quote(column)} IS NOT NULL" for column in key)])
    (counted,) = cursor.execute(f"SELECT count(*) FROM {table} WHERE {whole}").fetchall()
    return int(counted[0])


def _make_by_levels(cursor: duckdb.DuckDBPyConnection, step: Step, rows: str) -> None:
    """Parents before their children."""
    cursor.execute(step.target.statement())
    stage = quote(f"{step.dataset.name} levels")
    cursor.execute(f"CREATE TABLE {stage} AS {step.target.levels(rows)}")
    levels = cursor.execute(f"SELECT DISTINCT {LEVEL} FROM {stage} ORDER BY ALL").fetchall()
    for (level,) in levels:
        cursor.execute(step.target.level(stage, level))
    cursor.execute(f"DROP TABLE {stage}")


def _notes(step: Step) -> list[str]:
    """What a step leaves out, links above a bound and pairs; what it keeps in order or reads by references; at the last a table's notes."""
    assert step.request is not None
    cut = left_out(step.request) if step.kind != "rows" else None
    ordered = order_note(step.request) if step.kind != "parents" else None
    joined = joined_columns.note(step.request)
    return [
        *filter(None, [cut, ordered, joined, alike_keys.note(step.request), too_large_note(step.request)]),
        *(step.target.notes if step.last else []),
    ]


def row(number: int, step: Step) -> dict[str, Any]:
    """The row of a step in the plan."""
    assert step.request is not None
    delta = step.dataset.cost_delta
    paid = step.request.cost
    return {
        "step": number,
        "dataset": step.dataset.name,
        "what": step.what,
        "mechanism": step.request.mechanism,
        "share": step.share,
        "cost": paid,
        "epsilon": None if delta is None else shown(step.dataset.accounting.epsilon(paid, delta)),
        "rows": None,
        "seconds": None,
        "note": "; ".join(_notes(step)) or None,
    }
