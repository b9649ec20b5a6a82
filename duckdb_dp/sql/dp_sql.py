"""dp_sql: noisy answers to SELECT count, sum or avg of one table."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import units
from duckdb_dp.counting.encode import quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import UnknownAttribute
from duckdb_dp.errors import DPError, NoGroups, Undeclared, UnknownColumn, as_sql, few
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import SELECT, Question, Request
from duckdb_dp.sql import catalog, family, layout, routes
from duckdb_dp.sql.above.asked import Statement
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset, no_postprocess
from duckdb_dp.sql.question_kinds import Declared, Kind
from duckdb_dp.sql.questions import register_kind
from duckdb_dp.sql.row_bounds import Bounds
from duckdb_dp.sql.session import Session

if TYPE_CHECKING:
    from sqlglot import exp

    from duckdb_dp.sql.found_groups import Found


_SELECT = re.compile(r"(\s|--[^\n]*(\n|$)|/\*.*?\*/)*(select\b|with\s|from\s|\()", re.IGNORECASE | re.DOTALL)
"""How a SELECT begins, after comments."""


def recognises(arguments: Arguments) -> bool:
    """Whether something is the text of a SELECT, or a list of such texts."""
    asked = arguments["attributes"]
    texts = asked if isinstance(asked, list) else [asked]
    return bool(texts) and all(isinstance(text, str) and _SELECT.match(text) for text in texts)


def dataset(session: Session, arguments: Arguments, place: Place) -> Dataset:
    """The dataset that all SELECTs read; an argument may name it too.

    Raises:
        DPError: they read several, or one that is not protected.
    """
    asked = json.dumps([arguments["sql"], arguments.get("dataset"), arguments.get(routes.AS_WRITTEN)])
    return session.once(("dataset", asked, place), lambda: _dataset(session, arguments, place))


def _dataset(session: Session, arguments: Arguments, place: Place) -> Dataset:
    from duckdb_dp.sql.owned.asked import dataset_of, several  # for import time: these bring sqlglot
    from duckdb_dp.sql.parsed import shared_selects
    from duckdb_dp.sql.select import table_name

    found = []
    for select in shared_selects(arguments["sql"]):
        if not several(select):
            table_name(select)  # which refuses what is no table
        found.append(dataset_of(session, select, place, as_written=bool(arguments.get(routes.AS_WRITTEN))))
    if arguments.get("dataset") is not None:
        found.append(find_dataset(session.ledger, arguments["dataset"], *place))
    if len({dataset.id for dataset in found}) > 1:
        names = few(sorted({dataset.name for dataset in found}))
        raise DPError(f"the SELECTs read several datasets ({names}); ask each in a call of its own.")
    # Of joined tables as many rows of a unit count as of the table with the most.
    rows, auto = max(one.max_rows for one in found), any(one.auto_rows for one in found)
    return replace(found[0], max_rows=rows, auto_rows=auto)


def questions(asked: Any, _dataset: Dataset, declared: Declared, arguments: Arguments) -> tuple[Question, ...]:
    """The linear queries of all SELECTs that are not summed over the rows.

    Raises:
        DPError: a SELECT cannot be answered.
    """
    from duckdb_dp.sql.parsed import shared_selects  # for import time: these bring sqlglot
    from duckdb_dp.sql.select import questions

    summed = arguments.get("summed", ())
    selects = [each for each in enumerate(shared_selects(asked), 1) if each[0] not in summed]
    found = tuple(question for number, select in selects for question in questions(select.copy(), number, declared))
    if (arguments.get("objective") or "total") != "total":
        return found
    return tuple(replace(one, weight=_weight(one, declared)) if _hides(one, declared) else one for one in found)


def _hides(question: Question, declared: Declared) -> bool:
    return not question.joint and not question.disjunction and any(declared[name].rest for name in question.clique)


def _weight(question: Question, declared: Declared) -> float:
    """Which share of a question's answers is shown: the errors of the others are no matter, and this weighs the sum of all."""
    cells = [declared[n] for n, kind in zip(question.clique, question.kinds, strict=True) if kind == "identity"]
    return math.prod(one.shown / one.size for one in cells)


def domain(declared: Declared, dataset: Dataset, arguments: Arguments) -> Declared:
    """The attributes with cells for what nobody has declared, where SELECTs that are planned count rows in these."""
    from duckdb_dp.sql import undeclared_rows  # for import time: these bring sqlglot
    from duckdb_dp.sql.parsed import shared_selects

    if dataset.schema == SCHEMA or arguments.get(routes.OLDER):
        return declared
    summed = arguments.get("summed", ())
    selects = [each for each in enumerate(shared_selects(arguments["sql"]), 1) if each[0] not in summed]
    return undeclared_rows.with_needed(selects, declared) if selects else declared


def direct(
    session: Session, dataset: Dataset, declared: Declared, arguments: Arguments, place: Place
) -> tuple[tuple[GroupedSums, ...], Declared]:
    """The sums of the SELECTs that are answered row by row: sums and averages, and counts that cells cannot decide.

    With them the declarations that their groups are of: of joined tables those of the columns of the join.

    Raises:
        DPError: mechanism := 'direct', or sums, of what cannot be answered so.
    """
    try:
        return _direct(session, dataset, declared, arguments, place)
    except (UnknownAttribute, Undeclared) as error:
        key = ", ".join(name for names in units(dataset.unit) for name in names)
        if not key or arguments.get("above") is None or not arguments["above"].aggregates:
            raise
        advice = f" Or GROUP BY {key} there too, for groups of each unit: those of a subquery are answers of their own."
        if isinstance(error, Undeclared):
            raise DPError(f"{error}{advice}") from None
        raise UnknownAttribute(error.name, error.declared, error.table, error.advice + advice) from None


def _direct(
    session: Session, dataset: Dataset, declared: Declared, arguments: Arguments, place: Place
) -> tuple[tuple[GroupedSums, ...], Declared]:
    from duckdb_dp.sql import collations, computed_groups  # for import time: these bring sqlglot
    from duckdb_dp.sql import kept_parts as route
    from duckdb_dp.sql.group_labels import UndecidedKey
    from duckdb_dp.sql.no_numbers import advised
    from duckdb_dp.sql.owned import asked
    from duckdb_dp.sql.parsed import parse_selects

    mechanism = arguments.get("mechanism") or "auto"
    selects = parse_selects(arguments["sql"])
    given: Found | None = arguments.get("found")
    joined = (given is not None and given.joined) or asked.joined(session, selects, place)
    by_rows, compared = _compared(session, dataset, selects) if not joined else (set[int](), set[str]())
    if compared and mechanism not in ("auto", "direct", SELECT):
        raise collations.refusal(compared, mechanism)
    if joined:
        asked.check_one_kind(selects, mechanism)
    elif mechanism not in ("auto", "direct", SELECT) or (
        mechanism == "auto" and dataset.schema == SCHEMA and not _summed_outside(dataset)
    ):
        return (), declared
    bounds = Bounds.of("dp_sql", dataset, arguments, sums=True)
    computed = None if given is None else given.source
    cells = mechanism == "auto" and not joined and not bounds.auto and computed is None
    older, as_written = bool(arguments.get(routes.OLDER)), bool(arguments.get(routes.AS_WRITTEN))
    line = not older and dataset.schema != SCHEMA
    cells = cells and arguments.get(routes.ROUTE) != routes.ROWS
    planned = routes.planned(selects, declared, dataset.schema, older=older) if cells else set()
    table = catalog.of(session, dataset)
    outside = dataset.schema == SCHEMA or joined or given is not None
    keys = {} if table is None or outside else table.columns
    own = {
        number for number, select in enumerate(selects, 1) if keys and computed_groups.by_row(select, keys, declared)
    }
    if not (bounds.auto or arguments.get("max_rows") or arguments.get(routes.ALL_ROWS)):
        fewer = asked.of_few_rows(session, dataset, selects, place, declared)
        own |= fewer if planned <= own | by_rows | fewer else set()  # a plan has one bound for all of a request
    planned -= by_rows | own
    if len(planned) == len(selects):
        return (), declared
    planned = set() if dataset.schema == SCHEMA else planned  # an engine is asked once
    pure = dataset.accounting.pure

    placeholders = {} if given is None else given.placeholders
    bounded = not bounds.auto and arguments.get("max_rows") is None
    owners: list[asked.Asked] = []

    def by_owner(number: int, select: "exp.Select") -> list[GroupedSums]:
        if not owners:
            how = {"bounded": bounded, "finds": given is not None, "as_written": as_written}
            owners.append(asked.Asked(session, dataset, place, **how))
            owners[0].declared |= declared if len(selects) > 1 and not joined else {}
        return owners[0].parts(select, number, pure=pure, norms=bounds.norms, found=placeholders, once=not as_written)

    if joined:
        found = [part for number, select in enumerate(selects, 1) for part in by_owner(number, select)]
        collations.check_groups(session, found, {one.name: one.type for one in owners[0].declared.values()})
        _check_columns(found, arguments)
        _check_engine(session, dataset, found)
        return _selectable(mechanism, found, line=line), owners[0].declared
    columns = {a.name: a.type for a in declared.values()} if table is None else table.columns
    never = () if table is None or table.view else family.not_null(table)
    unit = [name for names in units(dataset.unit) for name in names]
    if given is not None and computed is not None:
        selects, columns = given.rewritten(selects), {**columns, **dict(given.computed)}

    def by_table(number: int, select: "exp.Select") -> list[GroupedSums]:
        try:
            return [
                part if computed is None else replace(part, source=computed)
                for part in route.parts(
                    session,
                    select,
                    number,
                    columns,
                    unit,
                    declared,
                    pure=pure,
                    found=placeholders,
                    norms=bounds.norms,
                    never=never,
                    once=not as_written,
                )
            ]
        except UnknownColumn as error:
            if table is not None:
                raise
            raise DPError(
                f"{as_sql(error.name)} is no declared column (declared are: {few(error.known) or 'none'}), and the table itself is not "
                f"read here, so no others are known.{error.near}"
            ) from None
        except DPError as error:
            listed = isinstance(error, UnknownAttribute | UndecidedKey) or dataset.member is not None
            if not listed or given is not None or dataset.schema == SCHEMA:
                raise
            try:  # which takes groups whose values a condition lists
                return by_owner(number, select)
            except DPError as other:
                if isinstance(other, NoGroups) or (isinstance(other, Undeclared) and _of_another(other, error)):
                    raise
                raise advised(error, select, columns, dataset) from None

    def by_rows_of(number: int, select: "exp.Select") -> list[GroupedSums]:
        if number in own:
            before = [(each, dict(each.declared)) for each in owners]
            try:
                return by_owner(number, select)
            except DPError:  # which the other way says with what helps; what was read so far is not asked
                owners[:] = [each for each, _ in before]
                for each, declarations in before:
                    each.declared = declarations
        return by_table(number, select)

    each = {number: by_rows_of(number, select) for number, select in enumerate(selects, 1) if number not in planned}
    found = [part for parts in each.values() for part in parts]
    if owners:  # where all SELECTs are read so, the domain is theirs alone
        only = not planned and all(part.source is not None for part in found)
        declared = owners[0].declared if only else {**declared, **owners[0].declared}
    _check_columns(found, arguments)
    _check_engine(session, dataset, found)
    return _selectable(mechanism, found, line=line), declared


def _check_engine(session: Session, dataset: Dataset, found: Sequence[GroupedSums]) -> None:
    """Refuse what another engine, where the rows are, may answer otherwise than DuckDB."""
    if dataset.schema == SCHEMA:
        from duckdb_dp.sql.engines.asked import check  # for import time: it brings sqlglot

        check(session, dataset, found)


def _compared(session: Session, dataset: Dataset, selects: Sequence["exp.Select"]) -> tuple[set[int], set[str]]:
    """As ``collations.compared``, of a dataset's own table.

    Raises:
        DPError: as there, or a text is compared with what is none.
    """
    from duckdb_dp.sql import collations  # for import time: it brings sqlglot
    from duckdb_dp.sql.typed import check_texts

    table = None if dataset.schema == SCHEMA else catalog.of(session, dataset)
    if table is None:
        return set(), set()
    types = {name.lower(): type_ for name, type_ in table.columns.items()}
    for select in selects:
        aliases = {
            item.alias.lower() for item in select.expressions
        }  # of aggregates, which HAVING compares with numbers
        check_texts([select], {name: type_ for name, type_ in types.items() if name not in aliases})
    name = ".".join(map(quote, (dataset.catalog, dataset.schema, dataset.name)))
    return collations.compared(session, name, table.columns, selects)


def _of_another(other: DPError, error: DPError) -> bool:
    """Whether an error is of another column than the one that an error before it has no declaration of, as that has public keys."""
    said = " has no declared domain"
    return (
        isinstance(error, UnknownAttribute) and said in str(other) and f"{as_sql(error.name)}{said}" not in str(other)
    )


def _summed_outside(dataset: Dataset) -> bool:
    from duckdb_dp.sql.external_tables import summed  # for import time: most tables are in DuckDB

    return summed(dataset)


def _selectable(mechanism: str, found: Sequence[GroupedSums], *, line: bool) -> tuple[GroupedSums, ...]:
    """What was found; without ``line`` quantiles have no cells beyond those of declared values.

    Raises:
        DPError: mechanism := 'select' of what has no quantile.
    """
    if mechanism == SELECT and not any(one.kind == "quantile" for part in found for one in part.sums):
        raise DPError("mechanism 'select' is for quantiles, such as median(x); leave it out.")
    return tuple(found if line else [part.without_line() for part in found])


def _check_columns(parts: Sequence[GroupedSums], arguments: Arguments) -> None:
    """Refuse columns that do not fit together, where nothing stands above them that says what becomes of them."""
    if not arguments.get("above"):
        from duckdb_dp.sql.together import check_together  # for import time

        check_together(parts)


def found(session: Session, arguments: Arguments, place: Place) -> "Found | None":
    """The columns that the SELECTs group by and whose values are found first.

    Raises:
        DPError: they cannot be found with this budget.
    """
    from duckdb_dp.sql import computed_groups, found_groups  # for import time: these bring sqlglot
    from duckdb_dp.sql.owned import found as joined_groups
    from duckdb_dp.sql.owned.asked import joined
    from duckdb_dp.sql.parsed import parse_selects

    selects, asked = parse_selects(arguments["sql"]), dataset(session, arguments, place)
    if asked.schema != SCHEMA and (joined(session, selects, place) or computed_groups.unknown(session, asked, selects)):
        columns = joined_groups.found(session, asked, selects, arguments, place)
    else:
        columns = found_groups.found(session, asked, selects, arguments, place)
    if columns is not None and columns.requests and _listed(session, asked, arguments, place):
        return None
    if columns is not None and (statement := arguments.get("above")):
        statement.check_found()
    return columns


MOST_LISTED = 1_000
"""Groups that conditions list, up to which they are taken as they are listed, and none is found at a price."""


def _listed(session: Session, dataset: Dataset, arguments: Arguments, place: Place) -> bool:
    """Whether the conditions list all groups that nobody has declared, as x IN ('a', 'b') does."""
    try:
        parts, _ = direct(session, dataset, session.declared(dataset), arguments, place)
    except DPError:
        return False
    return bool(parts) and all(part.size <= MOST_LISTED for part in parts)


def above(session: Session, asked: Any, place: Place) -> Statement | None:
    """What a statement asks above the SELECTs that aggregate.

    Raises:
        DPError: it is not understood.
    """
    from duckdb_dp.sql.above.statement import read  # for import time: it brings sqlglot

    return read(session, asked, place)


def arranged(session: Session, arguments: Arguments, answers: str, described: Callable[[], str]) -> str:
    """The answers with their columns in the order of the SELECT."""
    from duckdb_dp.sql import column_order  # for import time: it brings sqlglot

    return column_order.arranged(session, arguments, answers, described)


def rows(request: Request, planned: Plan | None, handle: str, arguments: Arguments, private: bool) -> str:
    """SELECT with the columns of the SELECTs, and each answer's error."""
    assert planned is not None
    no_postprocess(arguments, FUNCTION.name)
    return layout.select(request, planned, handle, private=private)


FUNCTION = register_kind(
    Kind(
        name="dp_sql",
        argument="sql",
        recognises=recognises,
        questions=questions,
        rows=rows,
        describe=layout.describe,
        domain=domain,
        dataset=dataset,
        direct=direct,
        found=found,
        above=above,
        own=("direct", SELECT),
        arranged=arranged,
    )
)
