"""A statement of dp_sql that works on answers: its SELECTs are one batch, and the rest is public work on what they return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, final

import duckdb
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import units
from duckdb_dp.counting.encode import quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, as_sql, brief, quoted_name
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Request
from duckdb_dp.sql import answer_size, catalog, direct_rows, layout, provenance, short
from duckdb_dp.sql.above import gate, size
from duckdb_dp.sql.above.answers import Column, columns, selects_of, sorted_as_bins
from duckdb_dp.sql.above.bodies import check_grouped, shown_alone, together
from duckdb_dp.sql.above.compared_labels import by_place
from duckdb_dp.sql.above.error_columns import Errors, Passed
from duckdb_dp.sql.above.kinds import Kind, Relation, aggregated
from duckdb_dp.sql.above.lift import lists_apart
from duckdb_dp.sql.above.split import ANSWER, CTE, Split, answers_of, split
from duckdb_dp.sql.above.split import PUBLIC as NAMED_PUBLIC
from duckdb_dp.sql.above.tried import here, on_made_up_rows
from duckdb_dp.sql.arguments import Place, find_dataset, full_name_of
from duckdb_dp.sql.column_order import in_order
from duckdb_dp.sql.family import family
from duckdb_dp.sql.noisy_expressions import all_in_domain, check_aliases, check_whole
from duckdb_dp.sql.parsed import statements_of
from duckdb_dp.sql.provenance import PublicTable
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.signing import ACCOUNT, PARTS, leaves

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
        lambda table: _relation(session, ".".join(part.sql("duckdb") for part in table.parts), place),
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


def _relation(session: Session, name: str, place: Place) -> Relation:
    """What a table is: public, or else rows of people, which are refused below where they are not protected."""
    return session.once(("relation", name, place), lambda: _as_relation(session, name, place))


def _as_relation(session: Session, name: str, place: Place) -> Relation:
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
        return Relation(kind=kind, columns=lambda: frozenset(map(str.lower, found.columns)), name=found.name)
    return Relation(
        kind=Kind.ROWS,
        owners=cache(lambda: _owners(session, dataset)),
        columns=cache(lambda: _columns(session, dataset)),
        name=(dataset.catalog, dataset.schema, dataset.name),
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
    def aggregates(self) -> bool:
        """Whether it works on the groups of the SELECTs, which are answers of their own."""
        return any(aggregated(node) for body in self.split.bodies for node in body.walk())

    @property
    def selects(self) -> list[str]:
        """The texts of the SELECTs that are answered together."""
        return [select.sql("duckdb") for select in self.split.selects]

    def sql(
        self,
        request: Request,
        plan: "Plan | DirectPlan",
        handle: str,
        *,
        private: bool,
        found: Sequence[str] = (),
        in_short: bool = False,
    ) -> str:
        """The statements on the answers to a request.

        Args:
            request: of ``selects``.
            plan: of it.
            handle: CTEs up to ``handle``, which charge and measure, or name what is stored.
            private: whether its noise is.
            found: columns whose values the statement finds, as ``direct_rows.answers`` takes them.
            in_short: whether its columns are short.

        Raises:
            DPError: the statement does not fit the columns of the answers, or reads something else; nothing was charged.

        Privacy: post-processing.
        """
        body, tried, answers = self._worked(request, plan, found)
        names = self._names(len(answers))
        columns = [*tried, *([] if private else ["private"])]
        all_ = _as_texts(tried, answers) + ("" if private else ", false AS private")

        def whole(handle: Sequence[str], texts: Sequence[str]) -> str:
            ctes = [*handle, *(f"{name} AS {text}" for name, text in zip(names, texts, strict=True))]
            # Without an alias a column is called as its call is written, which is not how it was asked.
            text = f"WITH {', '.join(ctes)} SELECT {all_} FROM ({body}) AS shown_rows({', '.join(map(quote, tried))})"
            return short.in_pairs(text, columns) if in_short else text

        texts, publics = _texts(request, plan, len(answers), found), [f"({_public(public)})" for public in self.publics]
        self._check_publics(request)
        if not self.apart:
            sorted_ = [sorted_as_bins(text, bins) for text, bins in zip(texts, answers, strict=True)]
            return whole([handle], [*(f"MATERIALIZED ({text})" for text in sorted_), *publics])
        given = [
            sorted_as_bins(f"SELECT * FROM {PARTS}{i}", bins)
            for i, bins in enumerate([*answers, *[[] for _ in publics]])
        ]
        leaves(whole([], [f"({text})" for text in given]))
        told = [*(f"MATERIALIZED ({text})" for text in texts), *publics]
        ctes = [handle, *(f"{name} AS {text}" for name, text in zip(names, told, strict=True))]
        rows = [f"SELECT {name} AS part{i} FROM {name}" for i, name in enumerate(names)]
        return f"WITH {', '.join(ctes)} {' UNION ALL BY NAME '.join(rows)}"

    @property
    def apart(self) -> bool:
        """Whether it runs in another process.

        Then its SQL is of what it works on, each answer and public table in a column of STRUCTs; the rest is what ``signing.leaves`` notes.
        """
        return self.session.elsewhere is not None and ACCOUNT.get() is not None and bool(self.split.selects)

    def _names(self, answers: int) -> list[str]:
        """What it works on."""
        publics = [f"{NAMED_PUBLIC}{i}" for i in range(len(self.publics))]
        return [f"{ANSWER}{i}" for i in range(answers)] + publics

    def _worked(
        self, request: Request, plan: "Plan | DirectPlan", found: Sequence[str]
    ) -> tuple[str, dict[str, str], list[list[Column]]]:
        """SQL of the statement with errors, the types of its columns, and the columns of the answers that it reads."""
        cuts = None if isinstance(plan, Plan) else plan
        answers = [columns(request, number, cuts, found) for number in range(1, selects_of(request) + 1)]
        known = self._names(len(answers))
        passed = self._passed(answers, plan.quantile)
        for select in (select for body in self.split.bodies for select in body.find_all(exp.Select)):
            check_aliases({item.alias.lower(): item.unalias() for item in select.expressions if item.alias})
        noisy = {column.name.lower() for found in answers for column in found if column.errors}
        labels = {column.name.lower() for found in answers for column in found if not column.errors}
        for each in self.split.bodies:
            check_grouped(each, noisy - labels)
            check_whole(each, lambda one: any(column.name.lower() in noisy for column in one.find_all(exp.Column)))
        bodies = [(by_place(all_in_domain(body), answers), body) for body in self.split.bodies]
        errors = [passed.add(shown) for shown, _ in bodies]
        for shown, asked in bodies:
            named = {cte.alias.lower() for cte in asked.find_all(exp.CTE) if cte.alias.startswith(CTE)}
            gate.check(shown.sql("duckdb"), {*known, *named})
        shown_ones = [body for body, _ in bodies]
        public = labels | {column.lower() for one in self.publics for column in one.table.columns} - noisy
        if len(bodies) == 1:
            body = shown_alone(shown_ones[0], errors[0], public)
        else:
            body = together(shown_ones, errors, labels, public)
        run = self.session.elsewhere if self.apart else None
        return _forgiving(body), *on_made_up_rows(body, answers, self.publics, run or here)

    def check_size(self, request: Request) -> None:
        """Refuse, before anything is charged, a statement that may make more than can be counted on to be made.

        Raises:
            DPError: it is so.
        """
        wide = next(
            (one for one in self.publics if any("UHUGEINT" in each for each in one.table.columns.values())), None
        )
        if self.apart and wide is not None:
            raise DPError(
                f"{as_sql(wide.asked)} has a column of UHUGEINT, which is not passed on to where what stands above answers runs; read a "
                "public view without it."
            )
        if self.session.most_rows is not None:
            self._check_publics(request)
            size.check(self.split.bodies, self._rows(request, selects_of(request)), self.session.most_rows)

    def _check_publics(self, request: Request) -> None:
        if self.session.most_rows is not None:
            rows = self._rows(request, 0)
            asked = {one.asked: rows[f"{NAMED_PUBLIC}{i}"] for i, one in enumerate(self.publics)}
            size.check_public(asked, self.session.most_rows)

    def _rows(self, request: Request, answers: int) -> dict[str, int]:
        """How many rows each answer and each public table has at most, by the names that the statements know."""
        known = {
            f"{ANSWER}{i}": answer_size.rows_of(request, i + 1, self.session.most_rows or answer_size.MOST)
            for i in range(answers)
        }
        for i, public in enumerate(self.publics):
            with self.session.looking() as cursor:
                known[f"{NAMED_PUBLIC}{i}"] = answer_size.MOST if cursor is None else _count(cursor, public)
        return known

    def _passed(self, answers: Sequence[Sequence[Column]], quantile: float) -> Passed:
        known: dict[str, tuple[list[str], Errors]] = {}
        for i, found in enumerate(answers):
            errors = {
                column.name.lower(): {error: f"{column.name}_{error}" for error in column.errors}
                for column in found
                if column.errors
            }
            names = [column.name for column in found]
            selects = self.split.selects
            known[f"{ANSWER}{i}"] = (in_order(selects[i], names) if i < len(selects) else names), errors
        for i, public in enumerate(self.publics):
            known[f"{NAMED_PUBLIC}{i}"] = list(public.table.columns), {}
        return Passed(known, quantile)


def _forgiving(body: str) -> str:
    """The statement with NULL where a cast fails of a noisy answer, which no trial can tell before; of labels it was tried as it is."""
    if "CAST(" not in body:
        return body
    tree = parse_one(body, dialect="duckdb")
    for cast in list(tree.find_all(exp.Cast)):
        if type(cast) is exp.Cast and not isinstance(cast.this, exp.Literal):
            cast.replace(exp.TryCast(this=cast.this, to=cast.to))
    return tree.sql("duckdb")


def _texts(request: Request, plan: "Plan | DirectPlan", answers: int, found: Sequence[str]) -> list[str]:
    """The SELECT of each answer."""
    texts = []
    for number in range(1, answers + 1):
        if not isinstance(plan, Plan) and any(part.number == number for part in request.direct):
            texts.append(direct_rows.answers(request, plan, private=True, only=number, found=found))
        else:
            planned = plan if isinstance(plan, Plan) else plan.planned
            assert planned is not None
            texts.append(layout.selected(request, planned, private=True, only=number))
    return texts


def _public(public: PublicTable) -> str:
    """SELECT of a public table by its full name, while it is the one that was declared."""
    refusal = public.refusal("dp_sql", [])
    seen = (
        "" if refusal is None else f" WHERE CASE WHEN {refusal[0]} THEN error(substring({refusal[1]}, 2)) ELSE true END"
    )
    names = ", ".join(quote(name) for name in public.table.columns)
    return f"SELECT {names} FROM {public.sql}{seen}"


def _count(cursor: duckdb.DuckDBPyConnection, public: PublicTable) -> int:
    """The rows of a public table, as far as it is the one that was declared: of another one nothing is told."""
    try:
        ((found,),) = cursor.execute(f"SELECT count(*) FROM ({_public(public)})").fetchall()
    except duckdb.Error:
        return answer_size.MOST
    return int(found)


def _as_texts(tried: Mapping[str, str], answers: Sequence[Sequence[Column]]) -> str:
    """All columns of a statement, the labels of bins as texts again."""
    bins = {column.bins: "VARCHAR" for found in answers for column in found if column.bins}
    types = bins | {f"{one}[]": "VARCHAR[]" for one in bins}
    cast = [
        f"CAST({quote(name)} AS {types[type_]}) AS {quote(name)}" for name, type_ in tried.items() if type_ in types
    ]
    return f"* REPLACE ({', '.join(cast)})" if cast else "*"
