"""Public views that may fail on a row: whether DuckDB comes to that row depends on the private rows that it is joined with."""

from collections.abc import Collection, Mapping

import duckdb

from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, few, first_line, identifier
from duckdb_dp.sql import failing_views, lineage, own_names
from duckdb_dp.sql.family import PublicTable
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Table

_TYPES = """
SELECT column_name, data_type FROM duckdb_columns() WHERE (database_name, schema_name, table_name) = (?, ?, ?)
"""


def check_read(session: Session, table: Table | PublicTable, used: Collection[str]) -> None:
    """``check_total`` for those columns of a public table that are read, in any letter case; of a table in DuckDB itself none can fail.

    Raises:
        DPError: as it says.
    """
    if table.view or table.name[1] == SCHEMA:
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


def _check(session: Session, name: Name, columns: Mapping[str, str]) -> None:
    if name[1] == SCHEMA:
        _work_out(session, name, columns)
    else:
        _check_view(session, name, columns)


def _work_out(session: Session, name: Name, columns: Mapping[str, str]) -> None:
    """Have another engine work out all rows of a public table: what it fails on is said to have failed there."""
    from duckdb_dp.sql.external_tables import source  # for import time: most tables are in DuckDB

    if columns:
        source(session, name).fetch(
            lambda table: table.aggregate([table[column].max().name(f"c{i}") for i, column in enumerate(columns)])
        )


def _check_view(session: Session, name: Name, columns: Mapping[str, str]) -> None:
    made = f"make a table of it: CREATE TABLE {identifier(name[2] + '_rows')} AS FROM {identifier(name[2])}, and CALL dp_public of that"
    texts = session.once("texts", lambda: lineage.texts(session))
    if failing_views.chooses(texts, name) and (fails := failing_views.fallible(texts, name)):
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
                f"'{name[2]}' is a public view that fails: {first_line(error)}; mend it, or {made}."
            ) from None
    changed = [column for column, type_ in columns.items() if now.get(column) != type_]
    if changed:
        raise DPError(
            f"'{name[2]}' is a public view whose column {identifier(changed[0])} was {columns[changed[0]]} and is "
            f"{now.get(changed[0], 'gone')} now; ask again, or {made}."
        )
