"""Public views that may fail on a row: whether DuckDB comes to that row depends on the private rows that it is joined with."""

from collections.abc import Collection, Mapping

import duckdb

from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, few, first_line, identifier
from duckdb_dp.sql import catalog, conversions, failing_views, lineage, own_names, typed_files
from duckdb_dp.sql.family import PublicTable
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Table

_TYPES = """
SELECT column_name, data_type FROM duckdb_columns() WHERE (database_name, schema_name, table_name) = (?, ?, ?)
"""


def check_read(session: Session, table: Table | PublicTable, used: Collection[str]) -> None:
    """``check_total`` for those columns of a public table that are read, in any letter case; of most tables in DuckDB itself none can fail.

    Raises:
        DPError: as it says.
    """
    if table.view or table.name[1] == SCHEMA or table.name[2].lower() in computing(session):
        folded = {column.lower() for column in used}
        check_total(
            session, table.name, {name: type_ for name, type_ in table.columns.items() if name.lower() in folded}
        )


def check_total(session: Session, name: Name, columns: Mapping[str, str]) -> None:
    """Refuse a public view that fails as it is now, that might on rows that it leaves out, or whose columns have other types now.

    DuckDB reads nothing of a view where no private row asks for it, so that an error of the view would tell of private rows. So
    all its rows are worked out before, which are public. Expressions that may fail beside a condition are refused, as DuckDB may
    work them out before that.

    Args:
        session: of the call.
        name: of the view.
        columns: those of its columns that are read, with their types: statements are made such that comparisons of these do not fail.

    Raises:
        DPError: it is so.
    """
    session.once(("public view", name, tuple(sorted(columns.items()))), lambda: _check(session, name, columns))


def computing(session: Session) -> frozenset[str]:
    """Last parts of the names of tables that may fail where they are read.

    DuckDB works out generated columns there, and checks them where rows are inserted alone; a table of another database may hold
    what its types do not.
    """

    def look() -> frozenset[str]:
        kinds = catalog.kinds(session)
        return frozenset(
            name.lower()
            for kind, database, _, name, _, sql in catalog.definitions(session)
            if kind == "table" and (kinds.get(database) != "duckdb" or "GENERATED ALWAYS AS" in str(sql).upper())
        )

    return session.once("computing", look)


def _check(session: Session, name: Name, columns: Mapping[str, str]) -> None:
    if name[1] == SCHEMA:
        _work_out(session, name, columns)
    else:
        _check_view(session, name, columns)


def _work_out(session: Session, name: Name, columns: Mapping[str, str]) -> None:
    """Have another engine work out all rows of a public table: what it fails on is said to have failed there."""
    from duckdb_dp.sql.external_tables import apart  # for import time: most tables are in DuckDB

    if columns:
        apart(session, name).fetch(
            lambda table: table.aggregate([table[column].max().name(f"c{i}") for i, column in enumerate(columns)])
        )


def _fallible(session: Session, texts: lineage.Texts, name: Name) -> list[str]:
    """What may fail in a view: what it says, generated columns of what it reads, and conversions that it does not say."""
    found = failing_views.fallible(texts, name)
    found += [f"a generated column of '{table}'" for table in sorted(computing(session) & lineage.sources(texts, name))]
    with session.looking() as cursor:
        if cursor is None or found:
            return found
        try:
            reads_files = any(one.startswith("file:") for one in lineage.sources(texts, name))
            query = typed_files.without(cursor, texts, name) if reads_files else f"FROM {full_name(*name)}"
            named = conversions.failing(cursor, query)
        except lineage.Unreadable:
            named = None
        except duckdb.Error:
            return []  # which is said where its rows are worked out
        return ["what it converts without a word"] if named is None else [f"a conversion of {one}" for one in named]


def _check_view(session: Session, name: Name, columns: Mapping[str, str]) -> None:
    made = f"make a table of it: CREATE TABLE {identifier(name[2] + '_rows')} AS FROM {identifier(name[2])}, and CALL dp_public of that"
    texts = session.once("texts", lambda: lineage.texts(session))
    kind, mended = (
        ("view", made) if lineage.is_view(texts, name) else ("table", "write TRY(...) in its generated columns")
    )
    if failing_views.chooses(texts, name) and (fails := _fallible(session, texts, name)):
        raise DPError(
            f"'{name[2]}' is a public view that chooses or joins rows, and {few(fails)} in it may fail on others; write TRY_CAST(...) or "
            f"TRY(...) there, or {made}."
        )
    worked_out = ", ".join(f"bit_xor(hash({quote(column)}))" for column in sorted(columns)) or "count(*)"
    with session.looking() as cursor:
        if cursor is None:
            return
        try:
            cursor.execute(own_names.bound(f"SELECT {worked_out} FROM {full_name(*name)}")).fetchall()
            now = dict(cursor.execute(_TYPES, name).fetchall())  # which DuckDB finds out where a view of files is read
        except duckdb.Error as error:
            raise DPError(
                f"'{name[2]}' is a public {kind} that fails: {first_line(error)}; mend it, or {mended}."
            ) from None
    changed = [column for column, type_ in columns.items() if now.get(column) != type_]
    if changed:
        raise DPError(
            f"'{name[2]}' is a public {kind} whose column {identifier(changed[0])} was {columns[changed[0]]} and is "
            f"{now.get(changed[0], 'gone')} now; ask again, or {made}."
        )
