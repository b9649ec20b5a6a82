"""A statement of dp_sql that works on answers: its SELECTs are one batch, and the rest is public work on what they return."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, final

import duckdb
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import units
from duckdb_dp.counting.encode import quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, as_sql, brief, first_line, meant, quoted_name
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Request
from duckdb_dp.sql import catalog, direct_rows, layout, provenance
from duckdb_dp.sql.above import gate, size
from duckdb_dp.sql.above.answers import Column, columns, selects_of, sorted_as_bins, tried, tried_table
from duckdb_dp.sql.above.bodies import shown_alone, together
from duckdb_dp.sql.above.error_columns import Errors, Passed
from duckdb_dp.sql.above.kinds import Kind, Relation, aggregated
from duckdb_dp.sql.above.lift import lists_apart
from duckdb_dp.sql.above.split import ANSWER, CTE, Split, answers_of, split
from duckdb_dp.sql.above.split import PUBLIC as NAMED_PUBLIC
from duckdb_dp.sql.answer_size import rows_of
from duckdb_dp.sql.arguments import Place, find_dataset, full_name_of
from duckdb_dp.sql.family import family
from duckdb_dp.sql.noisy_expressions import all_in_domain, check_aliases, check_whole
from duckdb_dp.sql.parsed import statements_of
from duckdb_dp.sql.provenance import PublicTable
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.typed import alone

if TYPE_CHECKING:
    from duckdb_dp.plan.direct import DirectPlan


def read(session: Session, asked: object, place: Place) -> "Above | None":
    """What texts ask above their SELECTs; None where each is one SELECT that aggregates.

    Raises:
        DPError: it works on answers in a way that is not understood.
    """
    queries: list[exp.Query] = []
    for text in asked if isinstance(asked, list) else [asked]:
        if not isinstance(text, str):
            return None
        try:
            statements = statements_of(text)
        except SqlglotError:
            return None  # which is said where SELECTs are read
        if len(statements) != 1 or not isinstance(statements[0], exp.Query):
            return None
        queries.append(lists_apart(statements[0]))
    found = split(
        queries,
        lambda table: _relation(session, table, place),
        lambda select: _planned(session, select, place),
    )
    if found is None:
        return None
    publics = [provenance.find(session, name, [place]) for name in found.publics]
    for public in publics:
        if not public.declared:
            raise DPError(
                f"{brief(public.asked)} may be joined with answers if its rows are public: CALL dp_public({quoted_name(public.asked)})"
            )
    return Above(session=session, split=found, publics=tuple(publics))


def _planned(session: Session, select: exp.Select, place: Place) -> bool:
    """Whether a SELECT can be planned over the declared cells of its table as it is."""
    from duckdb_dp.sql import routes  # for import time
    from duckdb_dp.sql.select import table_name

    try:
        name = full_name_of(session.ledger, table_name(select), place)
        dataset = find_dataset(session.ledger, name, *place)
    except DPError:
        return False
    return bool(routes.planned([select], session.declared(dataset), dataset.schema))


def batch(session: Session, request: Request) -> "Above":
    """The SELECTs of a request as they are, each with the route of its own."""
    every = [columns(request, number) for number in range(1, selects_of(request) + 1)]
    labels = {column.name.lower() for found in every for column in found if not column.errors}
    if alike := labels & {column.name.lower() for found in every for column in found if column.errors}:
        raise DPError(
            f"{as_sql(alike.pop())} is a group of one SELECT and an answer of another; give it another alias."
        )
    return Above(session=session, split=answers_of(len(every)), publics=())


def _relation(session: Session, table: exp.Table, place: Place) -> Relation:
    """What a table is: public, or else rows of people, which are refused below where they are not protected."""
    name = ".".join(part.sql("duckdb") for part in table.parts)
    try:
        dataset = find_dataset(session.ledger, full_name_of(session.ledger, name, place), *place)
    except DPError:
        try:
            found, _, declared = provenance.named(session, name, [place])
        except DPError:
            return Relation(kind=Kind.ROWS)
        if found.view and not declared:
            return Relation(kind=Kind.ROWS)
        kind = Kind.ABOVE if declared else Kind.ROWS
        return Relation(kind=kind, columns=lambda: frozenset(map(str.lower, found.columns)))
    return Relation(
        kind=Kind.ROWS, owners=cache(lambda: _owners(session, dataset)), columns=lambda: _columns(session, dataset)
    )


def _columns(session: Session, dataset: Dataset) -> frozenset[str]:
    table = catalog.of(session, dataset)
    return frozenset() if table is None else frozenset(map(str.lower, table.columns))


def _owners(session: Session, dataset: Dataset) -> frozenset[frozenset[str]]:
    """The columns that name the unit, and what leads to it: keys of a table, and its reference."""
    found = [tuple(name for names in units(dataset.unit) for name in names)]
    if (
        dataset.unit is not None
        and dataset.schema != SCHEMA
        and (dataset.member is None or dataset.member.view is None)
    ):
        found += family(session, dataset).leading((dataset.catalog, dataset.schema, dataset.name))
    return frozenset(frozenset(map(str.lower, key)) for key in found if key)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Above:
    """Statements and the SELECTs below them.

    Attributes:
        session: of the call.
        split: their parts.
        publics: the public tables that they read.
    """

    session: Session
    split: Split
    publics: tuple[PublicTable, ...]

    def check_found(self) -> None:
        """Refuse aggregates of groups that are found privately: they would be of those that were found and of 'other', and of no row.

        Raises:
            DPError: there is one that is no sum.
        """
        for node in (node for body in self.split.bodies for node in body.walk()):
            if aggregated(node) and not isinstance(node, exp.Sum):
                raise DPError(
                    f"{brief(node.sql('duckdb'))} works on groups whose values are found privately, so on those that were found and on "
                    "'other'; declare the column's values by dp_attribute, or GROUP BY the unit's key there, or a key that leads to it."
                )

    @property
    def selects(self) -> list[str]:
        """The texts of the SELECTs that are answered together."""
        return [select.sql("duckdb") for select in self.split.selects]

    def sql(
        self, request: Request, plan: "Plan | DirectPlan", handle: str, *, private: bool, found: Sequence[str] = ()
    ) -> str:
        """The statements on the answers to a request.

        Args:
            request: of ``selects``.
            plan: of it.
            handle: CTEs up to ``handle``, which charge and measure, or name what is stored.
            private: whether its noise is.
            found: columns whose values the statement finds, as ``direct_rows.answers`` takes them.

        Raises:
            DPError: the statement does not fit the columns of the answers, or reads something else; nothing was charged.

        Privacy: post-processing.
        """
        cuts = None if isinstance(plan, Plan) else plan
        answers = [columns(request, number, cuts, found) for number in range(1, selects_of(request) + 1)]
        known = [f"{ANSWER}{i}" for i in range(len(answers))] + [f"{NAMED_PUBLIC}{i}" for i in range(len(self.publics))]
        if self.session.most_rows is not None:
            size.check(self.split.bodies, self._rows(request, len(answers)), self.session.most_rows)
        passed = self._passed(answers, plan.quantile)
        for select in (select for body in self.split.bodies for select in body.find_all(exp.Select)):
            check_aliases({item.alias.lower(): item.unalias() for item in select.expressions if item.alias})
        noisy = {column.name.lower() for found in answers for column in found if column.errors}
        for each in self.split.bodies:
            check_whole(each, lambda one: any(column.name.lower() in noisy for column in one.find_all(exp.Column)))
        bodies = [(all_in_domain(body), body) for body in self.split.bodies]
        errors = [passed.add(shown) for shown, _ in bodies]
        for shown, asked in bodies:
            named = {cte.alias.lower() for cte in asked.find_all(exp.CTE) if cte.alias.startswith(CTE)}
            gate.check(shown.sql("duckdb"), {*known, *named}, self.session)
        labels = {column.name.lower() for found in answers for column in found if not column.errors}
        shown_ones = [body for body, _ in bodies]
        body = shown_alone(shown_ones[0], errors[0]) if len(bodies) == 1 else together(shown_ones, errors, labels)
        tried, answers = _tried(body, answers, self.publics)
        ctes = [handle]
        for i in range(len(answers)):
            if not isinstance(plan, Plan) and any(part.number == i + 1 for part in request.direct):
                text = direct_rows.answers(request, plan, private=True, only=i + 1, found=found)
            else:
                planned = plan if isinstance(plan, Plan) else plan.planned
                assert planned is not None
                text = layout.selected(request, planned, private=True, only=i + 1)
            ctes.append(f"{ANSWER}{i} AS MATERIALIZED ({sorted_as_bins(text, answers[i])})")
        ctes += [f"{NAMED_PUBLIC}{i} AS ({_public(public)})" for i, public in enumerate(self.publics)]
        marked = "" if private else ", false AS private"
        return f"WITH {', '.join(ctes)} SELECT {_as_texts(tried, answers)}{marked} FROM ({body})"

    def _rows(self, request: Request, answers: int) -> dict[str, int]:
        """How many rows each answer and each public table has at most, by the names that the statements know."""
        known = {f"{ANSWER}{i}": rows_of(request, i + 1, self.session.most_rows or size.MOST) for i in range(answers)}
        for i, public in enumerate(self.publics):
            with self.session.looking() as cursor:
                known[f"{NAMED_PUBLIC}{i}"] = size.MOST if cursor is None else _count(cursor, public)
        return known

    def _passed(self, answers: Sequence[Sequence[Column]], quantile: float) -> Passed:
        known: dict[str, tuple[list[str], Errors]] = {}
        for i, found in enumerate(answers):
            errors = {
                column.name.lower(): {error: f"{column.name}_{error}" for error in column.errors}
                for column in found
                if column.errors
            }
            known[f"{ANSWER}{i}"] = [column.name for column in found], errors
        for i, public in enumerate(self.publics):
            known[f"{NAMED_PUBLIC}{i}"] = list(public.table.columns), {}
        return Passed(known, quantile)


def _public(public: PublicTable) -> str:
    """SELECT of a public table by its full name, while it is the one that was declared."""
    refusal = public.refusal("dp_sql", [])
    seen = "" if refusal is None else f" WHERE CASE WHEN {refusal[0]} THEN error(({refusal[1]})[2:]) ELSE true END"
    names = ", ".join(quote(name) for name in public.table.columns)
    return f"SELECT {names} FROM {public.sql}{seen}"


def _count(cursor: duckdb.DuckDBPyConnection, public: PublicTable) -> int:
    """The rows of a public table, as far as it is the one that was declared: of another one nothing is told."""
    try:
        ((found,),) = cursor.execute(f"SELECT count(*) FROM ({_public(public)})").fetchall()
    except duckdb.Error:
        return size.MOST
    return int(found)


def _as_texts(tried: Mapping[str, str], answers: Sequence[Sequence[Column]]) -> str:
    """All columns of a statement, the labels of bins as texts again."""
    bins = {column.bins: "VARCHAR" for found in answers for column in found if column.bins}
    types = bins | {f"{one}[]": "VARCHAR[]" for one in bins}
    cast = [
        f"CAST({quote(name)} AS {types[type_]}) AS {quote(name)}" for name, type_ in tried.items() if type_ in types
    ]
    return f"* REPLACE ({', '.join(cast)})" if cast else "*"


def _tried(
    body: str, answers: list[list[Column]], publics: Sequence[PublicTable]
) -> tuple[dict[str, str], list[list[Column]]]:
    """The columns of a statement with their types, and the answers: labels of bins sort as these where it works with them so.

    An ENUM is no text where parts of texts, collations, or values in place of a missing one are asked for, nor inside of other types.
    """
    texts = [[replace(column, bins="") for column in found] for found in answers]
    nodes = [*parse_one(body, dialect="duckdb").walk()]
    read = sum(isinstance(node, exp.Table) and node.name.startswith(ANSWER) for node in nodes)
    every = read == 1 and any(type(node) is exp.Cast for node in nodes)  # of several, all pairs would be too many

    def shown(answers: list[list[Column]]) -> tuple[dict[str, str], list[list[Column]]]:
        return _try(body, answers, publics, every=every), answers

    if any(isinstance(node, exp.Lag | exp.Lead) and node.args.get("default") is not None for node in nodes):
        return shown(texts)
    try:
        tried, _ = shown(answers)
    except DPError:
        with suppress(DPError):
            return shown(texts)
        raise
    known = {column.bins for found in answers for column in found if column.bins}
    plain = known | {f"{one}[]" for one in known}
    if any(type_ not in plain and one in type_ for type_ in tried.values() for one in known):
        return shown(texts)
    return tried, answers


def _try(
    body: str, answers: Sequence[Sequence[Column]], publics: Sequence[PublicTable], *, every: bool
) -> dict[str, str]:
    """Describe the statement and run it on made-up rows of the same types, before anything is charged: its columns and their types.

    Args:
        body: the statement.
        answers, publics: what it reads.
        every: whether the rows have every label.

    Raises:
        DPError: DuckDB refuses it.
    """
    ctes = [f"{ANSWER}{i} AS ({tried(found, every=every)})" for i, found in enumerate(answers)]
    ctes += [
        f"{NAMED_PUBLIC}{i} AS ({tried_table(list(public.table.columns.items()))})" for i, public in enumerate(publics)
    ]
    with alone() as connection:
        try:
            made = connection.execute(f"WITH {', '.join(ctes)} SELECT * FROM ({body})")
            made.fetchall()
            return {str(column[0]): str(column[1]) for column in made.description or ()}
        except duckdb.Error as error:
            if "Cannot compare" in str(error) and "ENUM(" in str(error):
                raise DPError(
                    "a label of bins is a text, such as '[0, 10)'; compare numbers in WHERE of the SELECT that counts, or label with label."
                ) from None
            unknown = re.search(r'Referenced column "(.+?)" not found', first_line(error))
            names = [column.name for found in answers for column in found]
            near = "" if unknown is None else meant(names, unknown[1])
            why = first_line(error) if not near else f"there is no column {as_sql(unknown[1])}{near}"  # type: ignore[index]
            raise DPError(f"{why} (in what stands above the answers)") from None
