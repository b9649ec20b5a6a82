"""Flight SQL by clients as they are: ADBC, pandas and polars on it, and pyarrow's own; what they read, bind, list and are refused."""

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from duckdb_dp.gateway import gateway
from duckdb_dp.gateway.flight import clients
from duckdb_dp.gateway.flight.catalogue import arrow_type
from duckdb_dp.gateway.flight.messages import pack, unpack
from tests.server.conftest import make_database
from tests.server.flight_clients import ASKED, Flight, ask, command, dbapi, fl, serving

BOUND = "FROM dp_marginals('visits', [['sex']], epsilon := ?)"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    path = tmp_path_factory.mktemp("made") / "clinic.duckdb"
    return path, make_database(path)


@pytest.fixture(scope="module")
def flight(made: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flight]:
    with serving(made, tmp_path_factory.mktemp("served")) as served:
        yield served


def spent(flight: Flight, name: str = "alice") -> float:
    return float(flight.gateway.broker.ledger.accounts.grants(name)[0]["spent"])


@pytest.mark.slow
def test_every_client_reads_the_same_answer_which_is_charged_once(flight: Flight) -> None:
    with flight.connect() as connection:
        found = ask(connection, ASKED)
        once = spent(flight)
        assert (found.column_names[:2], found["sex"].to_pylist()) == (["sex", "count"], ["f", "m"])
        assert found.equals(ask(connection, BOUND, (0.2,)))
        assert pd.read_sql(ASKED, connection).to_dict("list") == found.to_pydict()
        assert pl.read_database(ASKED, connection).equals(pl.from_arrow(found))
        assert pl.read_database(BOUND, connection, execute_options={"parameters": [0.2]}).equals(pl.from_arrow(found))
        around = ask(connection, f"SELECT count * ? AS twice FROM ({BOUND}) WHERE sex = ?", (2, 0.2, "m"))
        assert around["twice"].to_pylist() == [2 * found["count"][1].as_py()]
    client, options = flight.client()
    info = client.get_flight_info(command("CommandStatementQuery", query=ASKED), options)
    assert (
        client.get_schema(command("CommandStatementQuery", query=ASKED), options).schema == info.schema == found.schema
    )
    assert client.do_get(info.endpoints[0].ticket, options).read_all().equals(found)
    assert "run the statement again" in flight.refused(lambda: client.do_get(info.endpoints[0].ticket, options))
    assert spent(flight) == once > 0


@pytest.mark.slow
def test_a_token_alone_signs_in_and_a_wrong_one_does_not(flight: Flight, monkeypatch: pytest.MonkeyPatch) -> None:
    client, options = flight.client("bob")
    _, token = client.authenticate_basic_token("bob", flight.tokens["bob"])
    named = fl.FlightCallOptions(headers=[(b"authorization", token)])
    for each in (options, named):
        info = client.get_flight_info(command("CommandStatementQuery", query="SELECT 42 AS answer"), each)
        assert client.do_get(info.endpoints[0].ticket, each).read_all().to_pydict() == {"answer": [42]}
    for name, password in (("bob", flight.tokens["alice"]), ("bob", ""), ("nobody", "x"), ("", "")):
        assert "is wrong" in flight.refused(
            lambda name=name, password=password: client.authenticate_basic_token(name, password)
        )
    for header in (
        b"Bearer",
        b"Bearer x",
        b"Basic",
        b"Basic !",
        b"Basic eA==",
        b"",
        b"Negotiate x",
        b"Bearer " + b"x" * 5000,
    ):
        wrong = fl.FlightCallOptions(headers=[(b"authorization", header)])
        line = flight.refused(lambda wrong=wrong: client.get_flight_info(command("CommandGetCatalogs"), wrong))
        assert "sign in with" in line or "is wrong" in line
    assert "sign in with" in flight.refused(lambda: list(client.list_actions()))
    monkeypatch.setattr(gateway, "FRESH", -1.0)
    token = flight.gateway.broker.ledger.accounts.add("carl", "analyst")
    options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    client.get_flight_info(command("CommandGetCatalogs"), options)
    flight.gateway.broker.ledger.accounts.add("carl", "closed")
    assert "is wrong" in flight.refused(lambda: client.get_flight_info(command("CommandGetCatalogs"), options))


def test_the_catalogue_lists_datasets_and_columns_and_no_rows(flight: Flight) -> None:
    with flight.connect() as connection:
        assert connection.adbc_get_info()["vendor_name"] == "duckdb_dp"
        assert connection.adbc_get_table_types() == ["DATASET", "TABLE"]
        schema = connection.adbc_get_table_schema("visits")
        assert [(field.name, str(field.type)) for field in schema] == [
            ("age", "int64"),
            ("sex", "string"),
            ("diagnosis", "string"),
        ]
        assert schema.field("sex").metadata[b"ARROW:FLIGHT:SQL:REMARKS"] == b"f, m"
        (catalog,) = connection.adbc_get_objects(depth="columns").read_all().to_pylist()
        (tables,) = (each["db_schema_tables"] for each in catalog["catalog_db_schemas"])
        kinds = {table["table_name"]: table["table_type"] for table in tables}
        assert kinds == {"towns": "TABLE", "visits": "DATASET", "visits_syn": "TABLE"}
        for name in (name for name, kind in kinds.items() if kind == "TABLE"):
            assert (
                connection.adbc_get_table_schema(name).names == ask(connection, f"FROM {name} LIMIT 0").column_names[:2]
            )
        assert "1000" not in str(tables)
        for pattern, found in (("vis%", 2), ("v_sits", 1), ("VISITS", 1), ("payroll", 0), ("v", 0)):
            objects = connection.adbc_get_objects(depth="tables", table_name_filter=pattern).read_all().to_pylist()
            listed = [
                each for one in objects for two in one["catalog_db_schemas"] for each in two["db_schema_tables"] or []
            ]
            assert len(listed) == found, pattern


@pytest.mark.parametrize(
    ("name", "fields", "rows"),
    [
        ("CommandGetCatalogs", {}, 1),
        ("CommandGetDbSchemas", {}, 1),
        ("CommandGetDbSchemas", {"catalog": "other"}, 0),
        ("CommandGetDbSchemas", {"catalog": "", "db_schema_filter_pattern": "m%"}, 0),
        ("CommandGetDbSchemas", {"db_schema_filter_pattern": "%" * 999 + "x"}, 0),
        ("CommandGetDbSchemas", {"db_schema_filter_pattern": "%n%" * 300}, 0),
        ("CommandGetTables", {"table_name_filter_pattern": "%%V_s[*]?%"}, 0),
        ("CommandGetTables", {"table_name_filter_pattern": "%%V_s%%s"}, 1),
        ("CommandGetTables", {"table_types": ["VIEW"]}, 0),
        ("CommandGetTables", {"include_schema": True, "db_schema_filter_pattern": "ma_n"}, 3),
        ("CommandGetTables", {"table_types": ["TABLE"]}, 2),
        ("CommandGetTables", {"table_types": ["DATASET", "VIEW"]}, 1),
        ("CommandGetTableTypes", {}, 2),
        ("CommandGetPrimaryKeys", {"table": "visits"}, 0),
        ("CommandGetImportedKeys", {"table": "visits"}, 0),
        ("CommandGetExportedKeys", {"table": "visits"}, 0),
        ("CommandGetCrossReference", {"pk_table": "visits", "fk_table": "visits"}, 0),
        ("CommandGetSqlInfo", {"info": [0, 3, 508]}, 3),
        ("CommandGetXdbcTypeInfo", {"data_type": 12}, 1),
        ("CommandGetXdbcTypeInfo", {}, 16),
    ],
)
def test_each_catalogue_call_has_the_columns_that_it_announced(
    flight: Flight, name: str, fields: dict[str, Any], rows: int
) -> None:
    client, options = flight.client()
    info = client.get_flight_info(command(name, **fields), options)
    found = client.do_get(info.endpoints[0].ticket, options).read_all()
    assert found.schema == info.schema == client.get_schema(command(name, **fields), options).schema
    assert found.num_rows == rows
    found.validate(full=True)
    assert not any(field.nullable is False and found[field.name].null_count for field in found.schema)


def test_a_pattern_that_is_too_long_is_refused(flight: Flight) -> None:
    client, options = flight.client()
    ticket = fl.Ticket(pack("CommandGetDbSchemas", db_schema_filter_pattern="%" * 1001))
    assert "at most 1000 characters" in flight.refused(lambda: client.do_get(ticket, options).read_all())


def test_types_have_an_arrow_type() -> None:
    found = {
        type_: str(arrow_type(type_))
        for type_ in ("BIGINT", "DECIMAL(10,2)", "DATE", "TIMESTAMP", "VARCHAR", "BLOB", "nothing")
    }
    expected = ["int64", "decimal128(10, 2)", "date32[day]", "timestamp[us]", "string", "binary", "string"]
    assert list(found.values()) == expected


def test_updates_transactions_and_other_ways_are_refused_in_one_line(flight: Flight) -> None:
    client, options = flight.client()
    before = spent(flight)
    row = pa.record_batch({"a": [1]})

    def put(descriptor: Any) -> None:
        writer, _ = client.do_put(descriptor, row.schema, options)
        writer.write_batch(row)
        writer.close()

    def exchange() -> None:
        writer, reader = client.do_exchange(command("CommandStatementQuery"), options)
        with writer:
            reader.read_all()

    taught = "it answers queries"
    with flight.connect() as connection, connection.cursor() as cursor:
        assert taught in flight.refused(lambda: cursor.adbc_ingest("stolen", row))
        assert taught in flight.refused(lambda: cursor.executemany("SELECT ?", [(1,), (2,)]))
        assert "of the grant of 'alice'" in flight.refused(
            lambda: cursor.execute("FROM dp_marginals('visits', [['sex']], epsilon := 30)")
        )
        assert "waits for a steward" in flight.refused(
            lambda: cursor.execute("FROM dp_marginals('visits', [['sex']], epsilon := 0.7)")
        )
        assert "does not exist" in flight.refused(lambda: cursor.execute("FROM payroll"))
    for name in (
        "CommandStatementUpdate",
        "CommandPreparedStatementUpdate",
        "CommandStatementIngest",
        "CommandStatementQuery",
    ):
        assert taught in flight.refused(lambda name=name: put(command(name)))
    assert "prepare it again" in flight.refused(
        lambda: put(command("CommandPreparedStatementQuery", prepared_statement_handle=b"x"))
    )
    assert taught in flight.refused(exchange)
    assert "no such action" in flight.refused(lambda: list(client.do_action(("BeginTransaction", b""), options)))
    assert "a path is no command" in flight.refused(
        lambda: client.get_flight_info(fl.FlightDescriptor.for_path("visits"), options)
    )
    assert "cannot be read" in flight.refused(lambda: client.do_get(fl.Ticket(b"\xff\xff"), options))
    assert list(client.list_flights(options=options)) == []
    assert {action.type for action in client.list_actions(options)} >= {"CreatePreparedStatement", "CancelFlightInfo"}
    assert spent(flight) == before
    assert "transactions" in flight.refused(lambda: list(client.do_action(("BeginTransaction", b""), options)))


def test_values_that_never_come_are_not_waited_for(flight: Flight) -> None:
    """A client may send empty batches without end: the server reads a few of them, and answers others meanwhile and after."""
    client, options = flight.client()
    prepared = command("ActionCreatePreparedStatementRequest", query="SELECT ?").command
    (result,) = client.do_action(("CreatePreparedStatement", prepared), options)
    handle = unpack(result.body.to_pybytes())[1].prepared_statement_handle
    empty, sent = pa.record_batch({"a": pa.array([], pa.int64())}), []

    def put() -> None:
        asked = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        writer, _ = client.do_put(asked, empty.schema, options)
        for _ in range(1_000_000):
            writer.write_batch(empty)
            sent.append(1)

    assert "bind one row of values" in flight.refused(put)
    assert len(sent) < 1_000_000
    assert flight.ask("SELECT 1 AS one").to_pydict() == {"one": [1]}


def test_an_answer_that_is_cancelled_is_gone_and_a_closed_session_too(flight: Flight) -> None:
    client, options = flight.client()
    for kind in ("CancelQuery", "CancelFlightInfo"):
        info = client.get_flight_info(command("CommandStatementQuery", query="SELECT 1"), options)
        request = command("ActionCancelQueryRequest", info=info.serialize()).command
        body = request if kind == "CancelQuery" else unpack(request)[1].SerializeToString()
        (result,) = client.do_action((kind, body), options)
        assert result.body.to_pybytes().endswith(b"\x08\x01")
        assert "read already" in flight.refused(lambda info=info: client.do_get(info.endpoints[0].ticket, options))
    prepared = command("ActionCreatePreparedStatementRequest", query="SELECT 1").command
    (result,) = client.do_action(("CreatePreparedStatement", prepared), options)
    handle = unpack(result.body.to_pybytes())[1].prepared_statement_handle
    list(client.do_action(("CloseSession", b""), options))
    again = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    assert "prepare it again" in flight.refused(lambda: client.get_flight_info(again, options))


@pytest.mark.slow
def test_a_statement_stops_when_its_client_goes_away(flight: Flight) -> None:
    # twenty seconds are the limit of this server's statements
    slow = "SELECT count(*) FROM range(100000) a, range(100000) b WHERE (a.range * b.range) % 7 = 3"
    began = time.monotonic()
    with flight.connect() as connection, connection.cursor() as cursor:
        threading.Timer(0.7, cursor.adbc_cancel).start()
        flight.refused(lambda: cursor.execute(slow))
    while flight.gateway.turnstile._running.get("alice"):
        assert time.monotonic() - began < 15
        time.sleep(0.05)
    assert flight.ask("SELECT 1 AS one").to_pydict() == {"one": [1]}


@pytest.mark.slow
def test_a_large_answer_comes_in_small_batches(flight: Flight) -> None:
    client, options = flight.client()
    sql = "SELECT range AS number, repeat('x', 1000) AS text FROM range(20000)"
    info = client.get_flight_info(command("CommandStatementQuery", query=sql), options)
    sizes = [chunk.data.nbytes for chunk in client.do_get(info.endpoints[0].ticket, options)]
    assert max(sizes) < 8 << 20
    assert flight.ask(sql)["number"].to_pylist() == list(range(20000))


@pytest.mark.slow
def test_tls(made: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    pair = (tmp_path / "cert.pem", tmp_path / "key.pem")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-out",
        str(pair[0]),
        "-keyout",
        str(pair[1]),
    ]
    subprocess.run([*words, *subject], check=True, capture_output=True)
    with serving(made, tmp_path / "served", tls=pair) as flight:
        roots = {"adbc.flight.sql.client_option.tls_root_certs": pair[0].read_text()}
        with flight.connect(**roots) as connection:
            assert ask(connection, "SELECT 1 AS one").to_pydict() == {"one": [1]}
        with pytest.raises(dbapi.Error, match="certificate"):
            flight.connect()


def test_a_refused_schema_has_no_columns_and_says_why(flight: Flight) -> None:
    client, options = flight.client()
    for sql, why in (("FROM dp_marginals('visits', [['nothing']], epsilon := 0.1)", b"nothing"), ("SELECT", b"SELECT")):
        schema = client.get_schema(command("CommandStatementQuery", query=sql), options).schema
        assert schema.names == []
        assert why in schema.metadata[b"error"]


def test_a_steward_decides_once_by_a_client_that_prepares(flight: Flight) -> None:
    large = "FROM dp_marginals('visits', [['age']], epsilon := 0.6)"
    assert "waits for a steward" in flight.refused(lambda: flight.ask(large, "bob"))
    accounts = flight.gateway.broker.ledger.accounts
    (number,) = (row["request"] for row in accounts.requests() if row["account"] == "bob")
    with flight.connect("sam") as connection:
        assert number in ask(connection, "FROM dp_requests()")["request"].to_pylist()
        before = len(accounts.accounts())
        token = ask(connection, "CALL dp_account('dora', role := 'analyst')").to_pylist()[0]
        assert len(accounts.accounts()) == before + 1
        ask(connection, f"CALL dp_approve({number})")
    assert accounts.requests()[-1]["state"] == "approved"
    assert flight.ask(large, "bob").num_rows == 5
    with flight.connect("bob") as connection, connection.cursor() as cursor:
        assert "there is no function dp_approve" in flight.refused(lambda: cursor.execute("CALL dp_approve(1)"))
    assert accounts.of_token(token["token"]) == ("dora", "analyst")


def test_odd_values_that_are_bound_are_told_in_a_line(flight: Flight) -> None:
    odd = [
        pa.array([2**64 - 1], pa.uint64()), pa.array([2**30], pa.int32()).cast(pa.date32()), pa.array([2**62], pa.int64()).cast(pa.timestamp("s")),
        pa.array([0], pa.int64()).cast(pa.timestamp("us", "No/Where")), pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")),
    ]  # fmt: skip
    with flight.connect() as connection, connection.cursor() as cursor:
        for values in odd:
            batch = pa.record_batch([values], names=["p1"])
            try:
                cursor.execute("SELECT ? AS x", batch)
                cursor.fetch_arrow_table()
            except Exception as error:  # of the client, around the server's line
                assert "internal error" not in str(error), values.type


def test_what_is_cancelled_is_an_answer(flight: Flight) -> None:
    client, options = flight.client()
    for kind in ("CancelQuery", "CancelFlightInfo"):
        for info in (b"", b"nonsense", b"\xff" * 40):
            request = command("ActionCancelQueryRequest", info=info).command
            body = request if kind == "CancelQuery" else unpack(request)[1].SerializeToString()
            try:
                list(client.do_action(fl.Action(kind, body), options))
            except pa.ArrowException as error:
                assert "internal error" not in str(error)


def test_a_server_that_stops_waits_until_what_was_answered_is_read(
    flight: Flight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "UNREAD", 60.0)
    client, options = flight.client("bob")
    info = client.get_flight_info(command("CommandStatementQuery", query="SELECT 1 AS one"), options)
    stops = threading.Thread(target=flight.server.finish)
    stops.start()
    stops.join(0.5)
    assert stops.is_alive()
    assert client.do_get(info.endpoints[0].ticket, options).read_all().to_pydict() == {"one": [1]}
    stops.join(30)
    assert not stops.is_alive()


@pytest.mark.slow
def test_statements_that_are_no_queries_run_and_are_told_what_is_wrong_with_them(flight: Flight) -> None:
    with flight.connect() as connection:
        for statement in (
            "CREATE TABLE mine AS SELECT 1 AS one",
            f"CREATE TABLE kept AS {ASKED}",
            "INSERT INTO mine VALUES (2), (3)",
            "UPDATE mine SET one = 4 WHERE one = 3",
            "DELETE FROM mine WHERE one = 4",
            "CREATE VIEW seen AS FROM mine",
            "CREATE MACRO twice(x) AS 2 * x",
            "ALTER TABLE mine RENAME TO ours",
        ):
            ask(connection, statement)
        assert ask(connection, "SELECT sum(twice(one)) AS n FROM ours")["n"].to_pylist() == [6]
        assert ask(connection, "SELECT sex FROM kept")["sex"].to_pylist() == ["f", "m"]
        assert ask(connection, "EXPLAIN SELECT 1").num_rows == 1
        assert ask(connection, "SHOW TABLES").num_rows >= 2
        ask(connection, "INSERT INTO ours VALUES (?)", (7,))
        assert "SET cannot be run here" in flight.refused(lambda: ask(connection, "SET threads = 4"))
        assert "syntax error" in flight.refused(lambda: ask(connection, "CREATE TABEL x (i INTEGER)"))


def test_catalogue_calls_are_in_the_audit_and_prepared_statements_count_once(
    made: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    with serving(made, tmp_path / "served", limits={"per_minute": 3}) as flight:
        client, options = flight.client("vera")
        client.do_get(fl.Ticket(pack("CommandGetCatalogs")), options).read_all()
        with flight.connect("vera") as connection:
            for number in range(3):
                assert ask(connection, f"SELECT {number} AS n")["n"].to_pylist() == [number]
            assert "within a minute" in flight.refused(lambda: ask(connection, "SELECT 3 AS n"))
        audit = (
            flight.gateway.steward(flight.gateway.sign_in("sam", flight.tokens["sam"], client="t")).audit().to_pylist()
        )
        assert "catalogue: CommandGetCatalogs" in [row["statement"] for row in audit if row["account"] == "vera"]
