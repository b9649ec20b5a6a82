"""The catalogue calls: what an account may ask, as the tables that Flight SQL defines. They say what is declared, never how many rows."""

import glob
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, final

import duckdb
import pyarrow as pa

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.flight.information import COLUMNS, information, types, types_schema
from duckdb_dp.gateway.session import Session

CATALOG, SCHEMA = "memory", "main"
"""As they are called where the statements run: a session's own DuckDB."""

KINDS = ("DATASET", "TABLE")
"""What dp_ functions are asked about, whose rows nobody reads; and public and synthetic tables, which are read."""

_TEXT, _NAME, _NUMBER = pa.string(), "table_name", pa.int32()


def _schema(text: str) -> pa.Schema:
    """A schema as Flight SQL's specification writes it: 'name type!' with '!' for not null."""
    known = {"utf8": pa.string(), "int32": pa.int32(), "uint8": pa.uint8(), "bytes": pa.binary()}
    fields = (each.split() for each in text.split(","))
    return pa.schema(
        [pa.field(name, known[type_.rstrip("!")], nullable=not type_.endswith("!")) for name, type_ in fields]
    )


CATALOGS = _schema("catalog_name utf8!")
SCHEMAS = _schema("catalog_name utf8, db_schema_name utf8!")
TABLES = _schema("catalog_name utf8, db_schema_name utf8, table_name utf8!, table_type utf8!")
WITH_COLUMNS = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
TABLE_TYPES = _schema("table_type utf8!")
PRIMARY_KEYS = _schema(
    "catalog_name utf8, db_schema_name utf8, table_name utf8!, column_name utf8!, key_name utf8, key_sequence int32!"
)
FOREIGN_KEYS = _schema(
    "pk_catalog_name utf8, pk_db_schema_name utf8, pk_table_name utf8!, pk_column_name utf8!, fk_catalog_name utf8,"
    " fk_db_schema_name utf8, fk_table_name utf8!, fk_column_name utf8!, key_sequence int32!, fk_key_name utf8, pk_key_name utf8,"
    " update_rule uint8!, delete_rule uint8!"
)


LONGEST = 1_000
"""Characters of a pattern."""


def _like(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern of the catalogue calls: '%' is any text, '_' any character.

    Raises:
        DPError: the pattern is too long.
    """
    if len(pattern) > LONGEST:
        raise DPError(f"flight: a pattern has at most {LONGEST} characters; list all, and pick where you are.")
    pieces = re.split(r"([%_])", pattern.lower())
    # fnmatch tries no text twice, whatever the pattern.
    return fnmatchcase(name.lower(), "".join({"%": "*", "_": "?"}.get(each, glob.escape(each)) for each in pieces))


def _here(asked: Any, pattern: str = "db_schema_filter_pattern") -> bool:
    """Whether the one catalogue and schema are among those that are asked for."""
    if asked.HasField("catalog") and asked.catalog.lower() != CATALOG:
        return False
    return not asked.HasField(pattern) or _like(SCHEMA, getattr(asked, pattern))


def _catalogs(session: Session, asked: Any) -> pa.Table:
    return pa.table([[CATALOG]], schema=CATALOGS)


def _schemas(session: Session, asked: Any) -> pa.Table:
    here = _here(asked)
    return pa.table([[CATALOG] * here, [SCHEMA] * here], schema=SCHEMAS)


def _table_types(session: Session, asked: Any) -> pa.Table:
    return pa.table([list(KINDS)], schema=TABLE_TYPES)


def _tables(session: Session, asked: Any) -> pa.Table:
    found: list[tuple[str, str, Callable[[], list[dict[str, Any]]]]] = []
    if _here(asked):
        pattern = asked.table_name_filter_pattern if asked.HasField("table_name_filter_pattern") else "%"
        found = [
            (name, kind, columns)
            for name, (kind, columns) in sorted(session.tables().items())
            if (not asked.table_types or kind in asked.table_types) and _like(name, pattern)
        ]
    names, kinds = [name for name, _, _ in found], [kind for _, kind, _ in found]
    columns: list[list[Any]] = [[CATALOG] * len(found), [SCHEMA] * len(found), names, kinds]
    if not asked.include_schema:
        return pa.table(columns, schema=TABLES)
    schemas = [_columns(name, rows()).serialize().to_pybytes() for name, _, rows in found]
    return pa.table([*columns, schemas], schema=WITH_COLUMNS)


def _columns(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """The columns of a dataset or a table, with what is declared of each as a remark."""
    fields = []
    for row in rows:
        facts = {"CATALOG_NAME": CATALOG, "DB_SCHEMA_NAME": SCHEMA, "TABLE_NAME": name, "TYPE_NAME": row["type"]}
        facts |= {"IS_READ_ONLY": "1", "IS_AUTO_INCREMENT": "0", "REMARKS": row["values"] or ""}
        metadata = {f"ARROW:FLIGHT:SQL:{key}": value for key, value in facts.items()}
        fields.append(pa.field(row["column"], arrow_type(row["type"]), metadata=metadata))
    return pa.schema(fields)


@lru_cache(maxsize=1000)
def arrow_type(type_: str) -> pa.DataType:
    """The Arrow type of a DuckDB type; text where an Arrow type has no name for it."""
    with duckdb.connect() as con:
        try:
            found = con.sql(f"SELECT NULL::{type_} AS value LIMIT 0")
            return found.arrow().schema.field(0).type
        except (duckdb.Error, pa.ArrowException):
            return pa.string()


def _empty(schema: pa.Schema) -> Callable[[Session, Any], pa.Table]:
    """Keys of private tables are not told: nobody joins them by hand here."""
    return lambda session, asked: schema.empty_table()


@final
class _Call:
    """A catalogue call: its columns, and its rows for a session."""

    def __init__(self, schema: pa.Schema, rows: Callable[[Session, Any], pa.Table]) -> None:
        self.schema, self.rows = schema, rows


CALLS = {
    "CommandGetCatalogs": _Call(CATALOGS, _catalogs),
    "CommandGetDbSchemas": _Call(SCHEMAS, _schemas),
    "CommandGetTables": _Call(TABLES, _tables),
    "CommandGetTableTypes": _Call(TABLE_TYPES, _table_types),
    "CommandGetPrimaryKeys": _Call(PRIMARY_KEYS, _empty(PRIMARY_KEYS)),
    "CommandGetExportedKeys": _Call(FOREIGN_KEYS, _empty(FOREIGN_KEYS)),
    "CommandGetImportedKeys": _Call(FOREIGN_KEYS, _empty(FOREIGN_KEYS)),
    "CommandGetCrossReference": _Call(FOREIGN_KEYS, _empty(FOREIGN_KEYS)),
    "CommandGetSqlInfo": _Call(COLUMNS, lambda session, asked: information(asked.info)),
    "CommandGetXdbcTypeInfo": _Call(
        types_schema(), lambda session, asked: types(asked.data_type if asked.HasField("data_type") else None)
    ),
}


def schema(name: str, asked: Any) -> pa.Schema:
    """The columns that a call returns."""
    return WITH_COLUMNS if name == "CommandGetTables" and asked.include_schema else CALLS[name].schema


def rows(name: str, asked: Any, session: Session) -> pa.Table:
    """The rows that a call returns.

    Raises:
        DPError: as the session's methods.

    Privacy: reads declarations; spends nothing.
    """
    with session.noted(name):
        return CALLS[name].rows(session, asked)
