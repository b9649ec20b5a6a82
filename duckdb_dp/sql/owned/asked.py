"""Which SELECTs of a call read more than one table, whose rows they read, and the sums that answer them."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from sqlglot import exp, parse_one

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import FINDS, Attribute, UnknownAttribute
from duckdb_dp.errors import DPError, NoGroups, Undeclared, as_written, brief, few, identifier, quoted_name
from duckdb_dp.grouped_sums import GroupedSums, Sum
from duckdb_dp.request import SELECT
from duckdb_dp.sql import collations, provenance
from duckdb_dp.sql.arguments import Place, UnknownDataset, candidates, find_dataset, full_name_of, name_parts
from duckdb_dp.sql.family import family
from duckdb_dp.sql.lineage import FILES
from duckdb_dp.sql.no_numbers import INTERVAL, group_instead
from duckdb_dp.sql.older_forms import NUMBERED
from duckdb_dp.sql.same_conditions import form
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name

if TYPE_CHECKING:
    from duckdb_dp.sql.owned.top import Top


_SUBQUERY = re.compile(r"subquery( \d+)?")
"""What a subquery is called that is grouped by."""


def several(select: exp.Select) -> bool:
    """Whether a SELECT reads more than one table: it has a join, a subquery or a WITH."""
    source = select.args.get("from_")
    if select.args.get("with_") or select.args.get("joins") or source is None or not isinstance(source.this, exp.Table):
        return True
    return any(node is not select for node in select.find_all(exp.Query))


def joined(session: Session, selects: Sequence[exp.Select], place: Place) -> bool:
    """Whether SELECTs are answered over relations of several tables: one of them reads several, or they read different ones."""
    if any(map(several, selects)):
        return True
    read = [dataset_of(session, select, place) for select in (selects if len(selects) > 1 else ())]
    return len({(one.catalog, one.schema, one.name) for one in read}) > 1


def of_few_rows(
    session: Session, dataset: Dataset, selects: Sequence[exp.Select], place: Place, declared: Mapping[str, Attribute]
) -> set[int]:
    """The SELECTs of a view, by their numbers, that keep fewer rows of each unit than count of it, by conditions on a row_number() there.

    Where the view has declarations of its own that they need, there are none: its tables' declarations say what is known there.

    Privacy: reads names, types and declarations.
    """
    from duckdb_dp.sql.views import compiled  # for import time

    view = None if dataset.member is None else dataset.member.view
    if view is None or not NUMBERED.search(view) or form() < 4:
        return set()
    asked, found = Asked(session, dataset, place, bounded=True), set[int]()
    for number, select in enumerate(selects, 1):
        with suppress(DPError):  # which is said where it is answered
            rows = asked.top(select).source.rows if select.args.get("where") is not None else None
            if rows is not None and rows < dataset.max_rows:
                inherited = compiled(session, family(session, dataset), view).declared
                found |= {number} if _same_declared(select, inherited, declared) else set()
    return found


def _same_declared(select: exp.Select, inherited: Mapping[str, Attribute], declared: Mapping[str, Attribute]) -> bool:
    """Whether a SELECT reads no column that a view declares in its own way, but for conditions on columns that nothing else declares."""
    before, own = (
        {name.lower(): replace(one, name="") for name, one in each.items()} for each in (inherited, declared)
    )
    where = select.args["where"]
    for column in select.find_all(exp.Column):
        name, inside = column.name.lower(), column.find_ancestor(exp.Where) is where
        if before.get(name) != own.get(name) and (name in before or not inside):
            return False
    return True


def names(select: exp.Select) -> list[str]:
    """The tables that a SELECT reads anywhere, without its CTEs."""
    tables = (table for table in select.find_all(exp.Table) if isinstance(table.this, exp.Identifier))
    read = (table.parts for table in tables if not (len(table.parts) == 1 and _is_cte(table)))
    return list(dict.fromkeys(".".join(part.sql("duckdb") for part in parts) for parts in read))


def _is_cte(table: exp.Table) -> bool:
    """Whether a WITH around a table defines its name: in its own definition, and in those before it, the name is a table's."""
    node: exp.Expr | None = table
    inside: exp.Expr | None = None
    while node is not None:
        if isinstance(node, exp.CTE):
            inside = node
        words = node.args.get("with_")
        recursive = words is not None and bool(words.args.get("recursive"))
        for cte in [] if words is None else words.expressions:
            if cte is inside and not recursive:
                break
            if cte.alias.lower() == table.name.lower():
                return True
        node = node.parent
    return False


def _check_files(select: exp.Select) -> None:
    """Refuse functions that read files: rows of a table are protected, and no others.

    Raises:
        DPError: there is one.
    """
    for node in select.find_all(exp.Func):
        name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
        if name.lower() in FILES:
            text = node.sql("duckdb", normalize_functions="lower")
            raise DPError(
                f"{brief(text)} reads a file; make a table of it, CREATE TABLE my_table AS FROM {text}, protect it by dp_protect, "
                "or by dp_public where anybody may see it, and ask that."
            )


def dataset_of(session: Session, select: exp.Select, place: Place, *, as_written: bool = False) -> Dataset:
    """The dataset whose rows a SELECT reads, with the rows of a unit that count where several tables are joined.

    Args:
        session: the session.
        select: the SELECT.
        place: where names are looked for.
        as_written: whether of several tables of a dataset the first one is meant, and not that of the first name.

    Raises:
        DPError: it reads several, or none.
    """
    _check_files(select)
    found, unknown = [], None
    for name in names(select):
        full = full_name_of(session.ledger, name, place)
        try:
            found.append(find_dataset(session.ledger, full, *place))
        except UnknownDataset as error:
            unknown = unknown or (None if _is_public(session, name, place) else error)
    if unknown is not None:
        from duckdb_dp.sql.owned.tables import unread, unseen  # for import time: one table is read without these

        parts = name_parts(unknown.name)
        if found and (gone := [one for one in candidates(parts, *place) if session.ledger.public.holds(one)]):
            if session.ledger.account is None:  # which is told nothing of tables that are not granted to it
                provenance.check_public(session, gone[0])  # a view that is there, and public no more
            raise unseen(gone[0])
        known = [*session.ledger.public.tables(), *((d.catalog, d.schema, d.name) for d in session.ledger.datasets())]
        near = [one[2] for one in known] if session.ledger.account is None else []
        raise unread(parts, found[0].name, near) if found else unknown
    if not found:
        what = "public tables alone" if names(select) else "no table"
        raise DPError(f"{brief(select.sql('duckdb'))} reads {what}: run it as it is, at no cost.")
    if len({one.id for one in found}) > 1:
        raise DPError(
            f"{brief(select.sql('duckdb'))} reads several datasets ({few(sorted({one.name for one in found}))}) of different units; "
            "ask each by itself, or protect the tables together: CALL dp_protect(['a', 'b'], unit := 'a.id', ...)."
        )
    first = found[0] if as_written else min(found, key=lambda one: (one.catalog, one.schema, one.name))
    return replace(first, max_rows=max(one.max_rows for one in found), auto_rows=any(one.auto_rows for one in found))


def _is_public(session: Session, name: str, place: Place) -> bool:
    if any(session.ledger.public.holds(full) for full in session.attached.named(name_parts(name))):
        return True
    try:
        return provenance.named(session, name, [place])[2]
    except DPError:
        return False


_OTHER = object()
"""In place of a declaration: that of another SELECT, which this one's is not."""


@final
class Asked:
    """The SELECTs of one call that read several tables.

    Args:
        session: of the call.
        dataset: whose rows they read.
        place: where names are looked for.
        bounded: whether it is asked how many rows of a unit their relations have at most.
        finds, as_written: as in ``top``.
    """

    def __init__(
        self,
        session: Session,
        dataset: Dataset,
        place: Place,
        *,
        bounded: bool,
        finds: bool = False,
        as_written: bool = False,
    ) -> None:
        self._session, self._family, self._place = session, family(session, dataset), place
        self._taken: dict[str, object] = {}
        collated = collations.in_use(session)
        self._how = {"bounded": bounded, "collated": collated, "finds": finds, "as_written": as_written}
        self._advice = "" if dataset.discovery_delta else FINDS
        self.declared: dict[str, Attribute] = {}
        """The declarations of the columns of all relations."""

    def top(self, select: exp.Select, by_keys: frozenset[str] = frozenset()) -> "Top":
        """The relation that a SELECT aggregates, and the SELECT over it.

        Args:
            select: the SELECT.
            by_keys: as in ``top.top``.

        Raises:
            DPError: it mixes rows of several units, or is not understood.
        """
        from duckdb_dp.sql.owned import gate  # for import time
        from duckdb_dp.sql.owned.kept import Kept

        kept: Kept = self._session.kept(Kept)
        taken, read, all_ = dict(self._taken), self._read, self._read_all
        asked = kept.top(self._family, self._place, select, self._taken, read, all_, **self._how, by_keys=by_keys)
        while clash := [name for name, a in asked.declared.items() if self.declared.get(name, a) != a]:
            # Other values than those that the same name has in another SELECT: they take another name.
            taken |= {name.lower(): _OTHER for name in clash}
            self._taken = dict(taken)
            asked = kept.top(self._family, self._place, select, self._taken, read, all_, **self._how, by_keys=by_keys)
        late = asked.source.lookup
        for sql in (asked.source.sql, *(() if late is None else (late.rows, late.owners))):
            gate.check(sql, self._family, self._session)
        self.declared |= asked.declared
        return asked

    def once(self, table: Name | None) -> bool:
        """Whether no unit has two rows of a table, so that each of its columns has one value for each unit."""
        family, member = self._family, None if table is None else self._family.member(table)
        if member is None or table != family.unit_table:
            return False
        return any(set(key) <= set(family.unit) for key in member.keys)

    def parts(
        self, select: exp.Select, number: int, *, pure: bool, by_keys: frozenset[str] = frozenset(), **more: Any
    ) -> list[GroupedSums]:
        """The sums of a SELECT, over a relation whose rows have one owner each.

        Columns that refer to a public table, and that nothing declares, are grouped by the keys there.

        Raises:
            DPError: it mixes rows of several units, or cannot be answered.
        """
        from duckdb_dp.sql import kept_parts  # for import time
        from duckdb_dp.sql.owned import once_in_groups

        asked = self.top(select, by_keys)
        try:
            found = kept_parts.parts(
                self._session,
                asked.select,
                number,
                asked.columns,
                asked.unit,
                asked.declared,
                pure=pure,
                never=asked.never,
                held=[one.condition for one in asked.held],
                **more,
            )
        except UnknownAttribute as error:
            column = asked.refers.get(error.name)
            if column is not None and column not in by_keys and form() >= 4 and not self._how["as_written"]:
                try:
                    return self.parts(select, number, pure=pure, by_keys=by_keys | {column}, **more)
                except (Undeclared, NoGroups):  # of another column, which is what is missing; or no declaration is
                    raise
                except DPError:  # a declaration may help
                    pass
            raise self._undeclared(asked, error) from None
        except NoGroups:
            raise
        except DPError as error:  # in the words of the SELECT, and not of what it was compiled to
            own, compiled = (brief(as_written(one.sql("duckdb"))) for one in (select, asked.select))
            raise DPError(own.join(map(asked.as_asked, str(error).split(compiled)))) from None
        made = [replace(part, source=asked.source, sums=self._of_few_values(part, asked)) for part in found]
        return [once_in_groups.counted(part) for part in made] if asked.once else made

    def _of_few_values(self, part: GroupedSums, asked: "Top") -> tuple[Sum, ...]:
        """The sums, with how many distinct values of a unit count, where it has fewer of them than rows; rows elsewhere are not cut so."""
        from duckdb_dp.sql.owned.different_values import read_of  # for import time

        def one(each: Sum) -> Sum:
            if each.kind != "values" or asked.source.rows is None or self._family.dataset.schema == SCHEMA:
                return each
            read = read_of(parse_one(each.value, dialect="duckdb"))
            most = asked.different.get(read, asked.source.rows)
            return replace(each, each=most) if most < asked.source.rows else each

        return tuple(map(one, part.sums))

    def _undeclared(self, asked: "Top", error: UnknownAttribute) -> DPError:
        origin = asked.origins.get(error.name)
        if asked.columns.get(error.name) == INTERVAL:
            return Undeclared(group_instead(error.name, INTERVAL))
        if origin is None and _SUBQUERY.fullmatch(error.name):
            return Undeclared(
                "GROUP BY a subquery: its values are worked out of private rows, so they are not public; name it in FROM, and say which "
                "ones to count by: SELECT k, count(*) FROM (SELECT (SELECT ...) AS k FROM ...) WHERE k BETWEEN 0 AND 20 GROUP BY k."
            )
        if origin is None:
            return Undeclared(
                f"GROUP BY {identifier(error.name)}: its values are worked out of private rows, so they are not public; say which ones "
                f"to count by: WHERE {identifier(error.name)} BETWEEN 0 AND 20, or IN ('a', 'b')."
            )
        table, column = origin
        # Its text alone: it names the column's own table, and not that of the call.
        known = [one.name for one in asked.declared.values()]
        return Undeclared(str(UnknownAttribute(column, known, (table[2], quoted_name(table[2])), self._advice)))

    def _read(self, select: str) -> list[tuple[Any, ...]]:
        """The rows of public tables."""
        from duckdb_dp.sql.owned import gate  # for import time

        return gate.read(select, self._family, self._session)

    def _read_all(self, selects: Sequence[str]) -> list[list[tuple[Any, ...]]]:
        """The same of several SELECTs."""
        from duckdb_dp.sql.owned import gate  # for import time

        return gate.read_all(selects, self._family, self._session)


def check_one_kind(selects: Sequence[exp.Select], mechanism: str) -> None:
    """Refuse a planner for joined tables, which are summed on the rows themselves.

    Raises:
        DPError: one is asked.
    """
    if mechanism not in ("auto", "direct", SELECT):
        raise DPError(
            f"{brief(selects[0].sql('duckdb'))}: joined tables are answered on their rows, by mechanism 'auto', 'direct' or 'select'."
        )
