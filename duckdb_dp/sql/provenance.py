"""Which tables may be read together with private ones: synthetic rows that the ledger knows, and tables declared public."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from duckdb_dp.accounting.ledger import Release
from duckdb_dp.counting.encode import full_name, literal, quote
from duckdb_dp.counting.engines.source import SCHEMA, Source
from duckdb_dp.domain.domain import canonical
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.sql import catalog, lineage, render
from duckdb_dp.sql.arguments import candidates, name_parts
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Table


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTable:
    """A table that may be read together with private ones, as it is in the catalog.

    Attributes:
        table: its full name and its columns.
        asked: its name as it was asked for.
        declared: whether it was declared public; otherwise the digest of its rows must be among the ``digests``.
        seen: SQL condition that the statement sees the table that was declared, and not an earlier one of its transaction.
        digests: column names in small letters -> digests of the synthetic rows that were returned with these columns.
    """

    table: Table
    asked: str
    declared: bool
    seen: str | None = None
    digests: Mapping[tuple[str, ...], frozenset[str]] = field(default_factory=dict)

    @property
    def sql(self) -> str:
        """Its full name, quoted, so that no file, variable or search path can replace it."""
        return full_name(*self.table.name)

    def holds(self, column: str) -> bool:
        """Whether it has a column of that name."""
        return column.lower() in {name.lower() for name in self.table.columns}

    def checked(self, needed: Sequence[str]) -> str | None:
        """SQL condition that its rows are known, all columns that are needed with them.

        Raises:
            DPError: no synthetic rows with these columns were returned before.
        """
        if self.declared:
            return self.seen
        wanted, held = _folded(needed), _folded(self.table.columns)
        known = {columns: found for columns, found in self.digests.items() if wanted <= set(columns) <= held}
        if not known:
            raise DPError(self._unknown())
        own = {name.lower(): name for name in self.table.columns}  # DuckDB tells Ä from ä
        return " OR ".join(
            f"({digest([own[column] for column in columns], self.sql)}) IN ({', '.join(map(literal, sorted(found)))})"
            for columns, found in known.items()
        )

    def refusal(self, function: str, needed: Sequence[str]) -> tuple[str, str] | None:
        """(condition under which it is refused, text that says so), as SQL; None where there is nothing to check."""
        condition = self.checked(needed)
        return None if condition is None else (f"NOT ({condition})", literal(f"!{function}: {self._unknown()}"))

    def _unknown(self) -> str:
        if self.declared:
            return f"'{self.asked}' was replaced since this transaction began; COMMIT or ROLLBACK it, and ask again"
        return (
            f"{as_sql(self.asked)} does not hold rows as dp_synthesize or dp_links have made them; read them into a table anew, with "
            f"all their columns, or, if its rows are public: CALL dp_public({literal(self.asked)})"
        )


def find(session: Session, asked: str, places: Sequence[tuple[str, str]]) -> PublicTable:
    """The table of that name, which must be public by declaration or as synthetic rows.

    No message says anything about its contents before its rows are known.

    Args:
        session: the session.
        asked: its name.
        places: (catalog, schema) where names are looked for, in order.

    Raises:
        DPError: no such table, or it is protected, or not known to be public.
    """
    table, asked, declared = named(session, asked, places)
    if declared:
        return PublicTable(table=table, asked=asked, declared=True, seen=_seen(session, table))
    if table.view:
        raise DPError(
            f"{as_sql(asked)} is a view, and rows of a view are not known to be synthetic; make a table of it, or, if what it "
            f"reads is public: CALL dp_public({literal(asked)})"
        )
    digests = session.ledger.public.synthetic_rows(private=session.bits.private)
    return PublicTable(table=table, asked=asked, declared=False, digests=digests)


def named(session: Session, asked: str, places: Sequence[tuple[str, str]]) -> tuple[Table, str, bool]:
    """The table of that name, its name as it was asked for, and whether it was declared public.

    Args:
        session, asked, places: as in ``find``.

    Raises:
        DPError: no such table, or it is protected.
    """
    account = session.ledger.account
    found = lambda: _named(session, asked, places)  # noqa: E731  # one of two
    if account is not None:
        found = lambda: _of_account(session, account, asked, places)  # noqa: E731
    return session.once(("public", asked, tuple(places), account), found)


def _of_account(
    session: Session, account: str, asked: str, places: Sequence[tuple[str, str]]
) -> tuple[Table, str, bool]:
    """The same of an account of the gateway, to which there are public tables and its own synthetic ones: of others nothing is said.

    Raises:
        DPError: it is none of these, whatever else it is.
    """
    twins = {
        tuple(part.lower() for part in name_parts(row["synthetic"]))
        for row in session.ledger.accounts.grants(account)
        if row["synthetic"]
    }
    try:
        found = _named(session, asked, places)
        if found[2] or tuple(part.lower() for part in found[0].name) in twins:
            return found
    except DPError:
        pass
    mine = few(sorted(as_sql(".".join(twin)) for twin in twins)) or "none"
    name = as_sql(".".join(name_parts(asked)))
    raise DPError(
        f"there is no table {name} of synthetic or public rows for '{account}'; its synthetic tables are: {mine}."
    )


def _named(session: Session, asked: str, places: Sequence[tuple[str, str]]) -> tuple[Table, str, bool]:
    parts = name_parts(asked)
    asked = ".".join(part if part.isidentifier() else quote(part) for part in parts)
    options = list(dict.fromkeys(option for place in places for option in candidates(parts, *place)))
    options = [option for option in options if option[0] != "temp"]
    for option in options:
        if session.ledger.dataset(*option) is not None:
            raise DPError(
                f"{as_sql(asked)} is protected, so it is no synthetic table; make one: "
                f"CREATE TABLE my_synthetic_table AS FROM dp_synthesize({literal(asked)}, ...)"
            )
    options = [option for option in options if option[1] != SCHEMA]
    known = catalog.committed(session, [option[:2] for option in options])
    table = next((found for option in options if (found := catalog.find(known, option)) is not None), None)
    if table is None:
        raise DPError(
            f"there is no table {as_sql(asked)} that other connections see; create it, commit it, and do not make it a TEMP table."
        )
    declared = session.ledger.public.holds(table.name)
    if declared and table.view:  # a table reads nothing else, and the texts of all views and macros take 30 ms
        check_public(session, table.name)
    return table, asked, declared


def _seen(session: Session, table: Table) -> str | None:
    """SQL condition that a statement sees the table or view that is committed now, by its identifier and its text."""
    kind = "view" if table.view else "table"
    name = ", ".join(f"lower({literal(part)})" for part in table.name)
    where = f"(lower(database_name), lower(schema_name), lower({kind}_name)) = ({name})"
    query = f"SELECT concat({kind}_oid, ' ', sql) FROM duckdb_{kind}s() WHERE {where}"

    def look() -> str | None:
        with session.looking() as cursor:
            row = None if cursor is None else cursor.execute(query).fetchone()
        return None if row is None else str(row[0])

    found = session.once(query, look)
    return None if found is None else f"coalesce(({query}) = {literal(found)}, false)"


def check_public(session: Session, name: Name) -> None:
    """Refuse to declare or use a view as public if it may read a protected table, as things are now.

    Raises:
        DPError: it may, or it is not known what it reads.
    """
    attached = session.attached.find(*name)
    if attached is not None:
        _check_apart(session, attached)
        return
    texts = session.once("texts", lambda: lineage.texts(session))
    if not lineage.is_view(texts, name):
        return
    read = lineage.sources(texts, name)
    for dataset in session.ledger.datasets():
        own = (dataset.catalog, dataset.schema, dataset.name)
        if dataset.name.lower() in read or (
            lineage.is_view(texts, own) and lineage.overlap(read, lineage.sources(texts, own))
        ):
            raise DPError(
                f"'{name[2]}' may be read from '{dataset.name}', which is protected, so it is not public; make a table of "
                "what is public in it, and name that."
            )


def _check_apart(session: Session, own: Source) -> None:
    """Refuse an attached table as public that may be read from the rows of a protected one."""
    for dataset in session.ledger.datasets():
        other = session.attached.find(dataset.catalog, dataset.schema, dataset.name)
        if other is not None and (other is own or other.shares(own)):
            raise DPError(
                f"'{own.name}' may be read from '{dataset.name}', which is protected, so it is not public; make a table of "
                "what is public in it, and attach that."
            )


def digest(columns: Sequence[str], rows: str) -> str:
    """SELECT of a digest of some columns of rows, whatever the order of the rows: of their texts, the same in all versions."""
    texts = ", ".join(f"CAST({quote(column)} AS VARCHAR)" for column in sorted(columns, key=str.lower))
    return f"SELECT concat(count(*), '/', sum(hash({texts})::HUGEINT)) FROM {rows}"


def handed_out(session: Session, stored: Release | None, ctes: str, select: str, columns: Sequence[str]) -> str:
    """A SELECT of synthetic rows, which also records their digest in the ledger if it is not there yet.

    Args:
        session: the session.
        stored: the release; None where it is yet to be drawn.
        ctes: with ``handle(handle)``, the release.
        select: of the rows.
        columns: the columns of which a digest is noted.
    """
    if stored is not None and session.ledger.public.noted(stored, columns):
        return f"WITH {ctes} {select}"
    note = f"_dp_note((SELECT handle FROM handle), {literal(canonical(list(columns)))}, ({digest(columns, 'made')}))"
    check = render.checked("noted", f"SELECT {note} AS text")
    return f"WITH {ctes}, made AS MATERIALIZED ({select}), {check} SELECT made.* FROM made, noted"


def _folded(columns: Sequence[str] | Mapping[str, str]) -> set[str]:
    return {column.lower() for column in columns}
