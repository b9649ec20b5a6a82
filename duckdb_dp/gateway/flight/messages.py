"""The messages of Flight SQL that the gateway reads and writes. Source: the Arrow project's FlightSql.proto, which numbers fields."""

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message, message_factory

from duckdb_dp.errors import DPError, as_sql

PACKAGE = "arrow.flight.protocol.sql"

MESSAGES = """
ActionCancelQueryRequest: bytes info 1
ActionCancelQueryResult: int32 result 1
ActionClosePreparedStatementRequest: bytes prepared_statement_handle 1
ActionCreatePreparedStatementRequest: string query 1, optional bytes transaction_id 2
ActionCreatePreparedStatementResult: bytes prepared_statement_handle 1, bytes dataset_schema 2, bytes parameter_schema 3
CommandGetCatalogs:
CommandGetCrossReference: optional string pk_catalog 1, optional string pk_db_schema 2, string pk_table 3, \
optional string fk_catalog 4, optional string fk_db_schema 5, string fk_table 6
CommandGetDbSchemas: optional string catalog 1, optional string db_schema_filter_pattern 2
CommandGetExportedKeys: optional string catalog 1, optional string db_schema 2, string table 3
CommandGetImportedKeys: optional string catalog 1, optional string db_schema 2, string table 3
CommandGetPrimaryKeys: optional string catalog 1, optional string db_schema 2, string table 3
CommandGetSqlInfo: repeated uint32 info 1
CommandGetTableTypes:
CommandGetTables: optional string catalog 1, optional string db_schema_filter_pattern 2, \
optional string table_name_filter_pattern 3, repeated string table_types 4, bool include_schema 5
CommandGetXdbcTypeInfo: optional int32 data_type 1
CommandPreparedStatementQuery: bytes prepared_statement_handle 1
CommandPreparedStatementUpdate: bytes prepared_statement_handle 1
CommandStatementIngest: string table 3
CommandStatementQuery: string query 1, optional bytes transaction_id 2
CommandStatementSubstraitPlan:
CommandStatementUpdate: string query 1, optional bytes transaction_id 2
TicketStatementQuery: bytes statement_handle 1
"""
"""Of each message its fields and their numbers. An enum is an int32 on the wire; what the gateway never looks at is left out."""


def _classes() -> dict[str, type[message.Message]]:
    """Of each message its class."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="flight_sql.proto", package=PACKAGE, syntax="proto3")
    for line in MESSAGES.strip().splitlines():
        name, _, fields = line.partition(":")
        made = file.message_type.add(name=name)
        for *labels, type_, field, number in (each.split() for each in fields.split(",") if each.strip()):
            added = made.field.add(name=field, number=int(number), type=getattr(kinds, f"TYPE_{type_.upper()}"))
            added.label = kinds.LABEL_REPEATED if labels == ["repeated"] else kinds.LABEL_OPTIONAL
            if labels == ["optional"]:  # proto3 knows whether such a field is there by a oneof of its own
                added.proto3_optional = True
                added.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{field}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        made.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{made.name}"))
        for made in file.message_type
    }


_CLASSES = _classes()


def pack(name: str, **fields: object) -> bytes:
    """A message of that name, inside google.protobuf.Any, as bytes."""
    made = _CLASSES[name](**fields)
    outer = any_pb2.Any(type_url=f"type.googleapis.com/{PACKAGE}.{name}", value=made.SerializeToString())
    return bytes(outer.SerializeToString())


def unpack(text: bytes) -> tuple[str, Any]:
    """The name of a message inside google.protobuf.Any, and the message.

    Raises:
        DPError: it cannot be read, or is none of Flight SQL's.
    """
    outer = any_pb2.Any()
    try:
        outer.ParseFromString(bytes(text))
        name = outer.type_url.rpartition("/")[2].removeprefix(f"{PACKAGE}.")
        if name not in _CLASSES:
            raise DPError(f"flight: there is no command {as_sql(name)} here; use a client of Arrow Flight SQL.")
        found = _CLASSES[name]()
        found.ParseFromString(outer.value)
    except message.DecodeError:
        raise DPError("flight: the command cannot be read; use a client of Arrow Flight SQL.") from None
    return name, found


def bare(name: str, text: bytes) -> Any:
    """A message that comes without google.protobuf.Any around it.

    Raises:
        DPError: it cannot be read.
    """
    found = _CLASSES[name]()
    try:
        found.ParseFromString(bytes(text))
    except message.DecodeError:
        raise DPError("flight: the action cannot be read; use a client of Arrow Flight SQL.") from None
    return found
