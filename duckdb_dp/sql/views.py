"""Named relations of a dataset: from a SELECT to rows with one owner each, and to the columns that can be declared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import units
from duckdb_dp.counting.encode import quote
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, as_sql, brief, few, quoted_name
from duckdb_dp.grouped_sums import Source
from duckdb_dp.sql import catalog
from duckdb_dp.sql.arguments import Place, UnknownDataset, find_dataset, full_name_of
from duckdb_dp.sql.family import Family, family
from duckdb_dp.sql.session import Session

if TYPE_CHECKING:
    from sqlglot import exp

    from duckdb_dp.sql.owned.relations import Most  # for import time: it brings sqlglot


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A compiled SELECT.

    Attributes:
        sql: of its rows, with columns ``c0``, ``c1``, ... and those of the ``owner``.
        columns: name -> SQL type, in order.
        owner: the columns of ``sql`` that name a row's owner; () where each row is a unit.
        single: whether no unit has two rows.
        declared: the declarations of columns that are a table's own, as they are.
        most: how many rows of a unit it has at most; None where that is not asked, or is chosen privately.
    """

    sql: str
    columns: Mapping[str, str]
    owner: tuple[str, ...]
    single: bool
    declared: Mapping[str, Attribute] = field(default_factory=dict)
    most: "Most | None" = None


def qualified(session: Session, text: object, place: Place) -> tuple[str, list[Dataset]]:
    """A SELECT with all its tables in full, so that it means the same wherever it is read, and the datasets' tables among them.

    Raises:
        DPError: it is no single SELECT, or reads no protected table, tables of two datasets, or one that is not known.
    """
    from sqlglot import exp, parse  # for import time
    from sqlglot.errors import SqlglotError

    from duckdb_dp.domain.not_parsed import why_not_parsed
    from duckdb_dp.sql.named_windows import written_out
    from duckdb_dp.sql.parsed import refused

    try:
        statements = [one for one in parse(text, dialect="duckdb") if one is not None] if isinstance(text, str) else []
    except SqlglotError as error:
        raise DPError(f"{brief(str(text))} does not parse: {why_not_parsed(error)}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise DPError(
            f"query is {as_sql(text)}; write one SELECT as text, e.g. 'SELECT * FROM visits JOIN clinics USING (id)'."
        )
    (query,) = statements
    if (
        query.find(exp.Window) is not None and (why := refused(str(text))) is not None
    ):  # names of windows that there are not
        raise DPError(f"{brief(str(text))} does not parse: {why}.")
    written_out(query)
    found: list[Dataset] = []
    for table in list(query.find_all(exp.Table)):
        if isinstance(table.this, exp.Identifier) and not (len(table.parts) == 1 and _of_with(table)):
            full, dataset = _full(session, tuple(part.name for part in table.parts), place)
            found += [] if dataset is None else [dataset]
            alias = table.alias or table.name
            for word, part in zip(("catalog", "db", "this"), full, strict=True):
                table.set(word, exp.to_identifier(part, quoted=True))
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    if not found:
        raise DPError(
            f"{brief(str(text))} reads no protected table; public ones need no view of dp_view: CREATE VIEW ..."
        )
    if len({one.id for one in found}) > 1:
        names = few(sorted({repr(one.name) for one in found}))
        raise DPError(
            f"{brief(str(text))} reads several datasets ({names}), whose units are different; name tables of one."
        )
    return query.sql("duckdb"), found


def _of_with(table: "exp.Table") -> bool:
    """Whether a WITH around a table gives its name."""
    node: Any = table
    while node is not None:
        words = node.args.get("with_") or node.args.get("with")
        if words is not None and any(cte.alias.lower() == table.name.lower() for cte in words.expressions):
            return True
        node = node.parent
    return False


def _full(session: Session, parts: tuple[str, ...], place: Place) -> tuple[tuple[str, str, str], Dataset | None]:
    """The full name of a table, and its dataset where it is protected."""
    name = ".".join(map(quote, parts))
    try:
        dataset = find_dataset(session.ledger, full_name_of(session.ledger, name, place), *place)
    except UnknownDataset:
        for option in catalog.options(session, name, place):
            if session.ledger.public.holds(option):
                return option, None
        written = quoted_name(*parts)
        raise DPError(
            f"{written} is neither protected nor public; if anybody may see its rows: CALL dp_public({written})"
        ) from None
    return (dataset.catalog, dataset.schema, dataset.name), dataset


def compiled(session: Session, found: Family, query: str, *, bounded: bool = False) -> View:
    """The rows of a SELECT with their owners.

    Args:
        session: of the call.
        found: the dataset's tables.
        query: the SELECT, with all names in full.
        bounded: whether it is asked how many rows of a unit it has at most.

    Raises:
        DPError: it mixes the rows of several units, has two columns of one name, or reads what is gone.
    """
    from sqlglot import parse_one  # for import time

    from duckdb_dp.sql.owned import gate
    from duckdb_dp.sql.owned.compiler import Compiler
    from duckdb_dp.sql.owned.fan_out import check_work
    from duckdb_dp.sql.owned.tables import Tables

    place = (found.dataset.catalog, found.dataset.schema)
    tables = Tables(found, place, lambda text: gate.read(text, found, session), bounded=bounded)
    compiler, select = Compiler(tables, as_written=True), parse_one(query, dialect="duckdb")
    relation = compiler.query(select, {})
    check_work(select, compiler.copies)
    if not relation.owned:
        raise DPError(
            "the SELECT has rows of public tables alone; public rows need no view of dp_view: CREATE VIEW ..."
        )
    if not found.unit and not relation.single:
        raise DPError(
            f"each row of '{found.dataset.name}' is one unit, and a row of it may be there twice; join public tables by their PRIMARY KEY."
        )
    names = [field.name.lower() for field in relation.fields]
    if twice := [name for place, name in enumerate(names) if name in names[:place] or not name]:
        raise DPError(
            f"the SELECT has two columns {as_sql(twice[0])}, or one without a name; name them: SELECT a.x AS a_x, b.x AS b_x"
        )
    chosen = [f"r.{quote(field.at)} AS c{i}" for i, field in enumerate(relation.fields)]
    owner = tuple(f"o{i}" for i in range(len(relation.owner)))
    chosen += [f"r.{quote(at)} AS {name}" for at, name in zip(relation.owner, owner, strict=True)]
    sql = f"SELECT {', '.join(chosen)} FROM ({relation.query.sql('duckdb')}) AS r"
    gate.check(sql, found, session)
    return View(
        sql=sql,
        columns={field.name: field.type for field in relation.fields},
        owner=owner,
        single=relation.single,
        declared={field.name: field.attribute for field in relation.fields if field.attribute is not None},
        most=relation.most,
    )


def of(session: Session, dataset: Dataset) -> View | None:
    """The compiled SELECT of a named relation; None of a table."""
    if dataset.member is None or dataset.member.view is None:
        return None
    return compiled(session, family(session, dataset), dataset.member.view)


def source(session: Session, dataset: Dataset) -> Source | None:
    """The rows of a named relation under the names of its columns, with their owners; None of a table.

    Raises:
        DPError: as ``compiled``.

    Privacy: SQL of private rows; each has one owner.
    """
    view = of(session, dataset)
    if view is None:
        return None
    (unit,) = units(dataset.unit) or ((),)
    shown = [f"r.c{i} AS {quote(name)}" for i, name in enumerate(view.columns)]
    shown += [f"r.{one} AS {quote(name)}" for one, name in zip(view.owner, unit, strict=True)]
    return Source(sql=f"SELECT {', '.join(shown)} FROM ({view.sql}) AS r", owner=unit, single=view.single)


def apart(column: str, columns: Mapping[str, str] | Sequence[str]) -> str:
    """A name for the unit's column beside others."""
    taken = {own.lower() for own in columns}
    while column.lower() in taken:
        column = f"unit_{column}"
    return column
