"""The process of a sandbox: an in-memory DuckDB of one session, which never held a private table. It imports nothing of this package.

It reads messages from stdin and answers on stdout: a length, JSON, a length, and a table as an Arrow stream, which may be empty. It may
neither write files nor reach the network by SQL, and the process that started it ends it when it takes too long.
"""

import json
import resource
import struct
import sys
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "threads": "1",
}
KINDS = {"SELECT", "EXPLAIN", "CREATE", "INSERT", "UPDATE", "DELETE", "DROP", "ALTER", "CREATE_FUNC"}
"""Statements that a sandbox takes; others change settings or files, and the lock refuses those a second time."""

BYTES = 64 << 20
"""Of one answer."""


def send(out: BinaryIO, head: dict[str, Any], table: pa.Table | None = None) -> None:
    """Write one message."""
    text = json.dumps(head).encode()
    sink = pa.BufferOutputStream()
    if table is not None:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    body = sink.getvalue()
    out.write(struct.pack("<QQ", len(text), body.size))
    out.write(text)
    out.write(body)
    out.flush()


def receive(source: BinaryIO) -> tuple[dict[str, Any], pa.Table | None] | None:
    """Read one message; None at the end."""
    sizes = source.read(16)
    if len(sizes) < 16:
        return None
    first, second = struct.unpack("<QQ", sizes)
    head = json.loads(source.read(first))
    body = source.read(second)
    return head, (pa.ipc.open_stream(body).read_all() if second else None)


def main() -> None:
    """Serve until stdin ends."""
    memory = int(sys.argv[1])
    con = duckdb.connect(":memory:", config={**SETTINGS, "memory_limit": f"{memory}MB"})
    con.execute("SET lock_configuration = true")
    # What Arrow, Python and the libraries take comes on top; their address space is 2 GB at the start.
    room = (memory + 3072) << 20
    for kind, limit in ((resource.RLIMIT_AS, room), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (limit, limit))
    source, out = sys.stdin.buffer, sys.stdout.buffer
    send(out, {"ready": True})
    while (message := receive(source)) is not None:
        head, table = message
        try:
            send(out, *answer(con, head, table))
        except Exception as error:
            send(out, {"error": type(error).__name__, "text": str(error)[:2000]})


def answer(con: duckdb.DuckDBPyConnection, head: dict[str, Any], table: pa.Table | None) -> tuple[dict[str, Any], Any]:
    """What one message asks for: a new table, or a statement's rows."""
    schema, name = ('"' + head.get(part, "").replace('"', '""') + '"' for part in ("schema", "name"))
    if head["do"] == "drop":
        con.execute(f"DROP TABLE IF EXISTS {schema}.{name}")
        return {}, None
    if head["do"] == "table":
        con.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        con.register("_dp_given", table)
        try:
            con.execute(f"CREATE OR REPLACE TABLE {schema}.{name} AS FROM _dp_given")
        finally:
            con.unregister("_dp_given")
        return {}, None
    statements = con.extract_statements(head["sql"])
    if len(statements) != 1:
        return {"refused": "these are several statements; send one at a time."}, None
    kind = statements[0].type.name
    if kind not in KINDS or (head["charged"] and kind in ("EXPLAIN", "CREATE_FUNC")):
        return {"kind": kind}, None
    given = {} if table is None else table.to_pylist()[0]
    if not head["undone"]:
        return rows_of(con, head, given)
    con.execute("BEGIN")
    try:
        return rows_of(con, head, given)
    finally:
        con.execute("ROLLBACK")


def rows_of(
    con: duckdb.DuckDBPyConnection, head: dict[str, Any], given: dict[str, Any]
) -> tuple[dict[str, Any], pa.Table | None]:
    """The rows of one statement, as far as its limits go."""
    found = con.execute(head["sql"], given) if given else con.execute(head["sql"])
    if not found.description:
        return {}, pa.table({})
    columns = [[str(column[0]), str(column[1])] for column in found.description]
    older = "fetch_record_batch"  # its name before DuckDB 2.0
    reader: Any = getattr(found, older if hasattr(found, older) else "to_arrow_reader")(10_000)
    batches, rows, size = [], 0, 0
    for batch in reader:
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > head["rows"]:
            return {"rows": rows}, None
        if size > BYTES:
            return {"refused": f"the answer has more than {BYTES >> 20} MB; ask for fewer or shorter values."}, None
    return {"columns": columns}, pa.Table.from_batches(batches, reader.schema)


if __name__ == "__main__":
    main()
