"""The server of Arrow Flight SQL: one for a gateway, safe for many clients."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, final

import pyarrow as pa
import pyarrow.flight as fl

from duckdb_dp.errors import DPError
from duckdb_dp.gateway import statement
from duckdb_dp.gateway.flight import catalogue
from duckdb_dp.gateway.flight.clients import Client, Clients
from duckdb_dp.gateway.flight.messages import bare, pack, unpack
from duckdb_dp.gateway.flight.sign_in import Caller, Open, SignIn
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.values import UNREADABLE

ROWS, BYTES = 10_000, 4 << 20
"""Most rows and about most bytes of a batch; some clients take no message above 16 MB."""

MOST_BATCHES = 100
"""Batches that are read of a client's values, which are in one: empty ones could come without end."""

LINE = 2_000
"""Characters of an error: it travels in a header, whose length is limited."""

ACTIONS = {
    "CreatePreparedStatement": "Keeps a statement; nothing is charged.",
    "ClosePreparedStatement": "Forgets it.",
    "CancelQuery": "Forgets an answer that was not read.",
    "CancelFlightInfo": "Forgets an answer that was not read.",
    "CloseSession": "Ends the session: its prepared statements, and the tables that it made.",
}

CANCELLED = 1

READ_ONLY = (
    "flight: this server takes no rows and no updates, it answers queries; write SELECT or FROM, such as FROM dp_marginals('table', "
    "[['column']], epsilon := 0.1), with the values of dp_ calls as constants where your client does not say that it is a query."
)

_Method = Callable[..., Any]


def _guarded(method: _Method) -> _Method:
    """A method that raises nothing but errors of one line: pyarrow sends the traceback of any other error to the client."""

    @functools.wraps(method)
    def call(self: "Server", context: fl.ServerCallContext, *arguments: Any) -> Any:
        try:
            return method(self, context, *arguments)
        except DPError as error:
            told = error
        except Exception as error:
            told = self.gateway.log.unforeseen(error)
        raise fl.FlightServerError(" ".join(str(told).split())[:LINE].rstrip("."))  # '. Detail: Failed' follows

    return call


@final
class Server(fl.FlightServerBase):  # type: ignore[misc]
    """Serves from the moment that it is made until ``close``.

    GetFlightInfo runs a statement, and its answer waits until DoGet reads it; so a statement is charged, or refused, before its first
    row is read, and one that nobody reads is stored and free the next time.

    Args:
        gateway: what it serves; its configuration says where.

    Raises:
        DPError: the port cannot be had, or the certificate cannot be read.
    """

    def __init__(self, gateway: Gateway) -> None:
        self.gateway, self._clients = gateway, Clients(gateway)
        config = gateway.config
        host = f"[{config.host}]" if ":" in config.host else config.host
        try:
            pair = None if config.tls is None else [tuple(file.read_bytes() for file in config.tls)]
            super().__init__(
                f"grpc{'' if pair is None else '+tls'}://{host}:{config.flight or 0}",
                auth_handler=Open(),
                middleware={"caller": SignIn(gateway)},
                tls_certificates=pair,
            )
        except (OSError, pa.ArrowException) as error:
            raise DPError(
                f"serve: Flight SQL cannot be served on {host}:{config.flight} ({type(error).__name__}); try another port."
            ) from None

    def finish(self) -> None:
        """Once nothing more is let in: wait until what was answered is read, which takes a client a second call."""
        self._clients.finish()

    def close(self) -> None:
        """Finish what runs, and end all sessions."""
        self.shutdown()
        self._clients.close()

    # The calls of Flight

    @_guarded
    def get_flight_info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        """Run a statement, or say what a catalogue call returns."""
        name, asked = unpack(_command(descriptor))
        if name in catalogue.CALLS:
            return _info(catalogue.schema(name, asked), descriptor, descriptor.command)
        with self._clients.serving(_caller(context), context) as client:
            match name:
                case "CommandStatementQuery":
                    answer = client.session.run(asked.query)
                case "CommandPreparedStatementQuery":
                    prepared = client.statement(asked.prepared_statement_handle)
                    answer = client.session.run(prepared.sql, prepared.parameters)
                case _:
                    raise DPError(READ_ONLY)
            answer = answer.replace_schema_metadata(None)  # as its columns were said before
            ticket = pack("TicketStatementQuery", statement_handle=client.answers.keep(answer))
            return _info(answer.schema, descriptor, ticket, answer.num_rows)

    def get_schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        """The columns of a statement or a catalogue call; nothing is charged.

        Where it is refused there are none, and the schema's metadata has the line under 'error': of this call alone pyarrow (26)
        sends a client the traceback of every error, those of Flight included.
        """
        try:
            return fl.SchemaResult(self._schema(context, descriptor))
        except fl.FlightServerError as error:
            return fl.SchemaResult(pa.schema([], metadata={"error": str(error)}))

    @_guarded
    def _schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> pa.Schema:
        name, asked = unpack(_command(descriptor))
        if name in catalogue.CALLS:
            return catalogue.schema(name, asked)
        with self._clients.serving(_caller(context), context) as client:
            match name:
                case "CommandStatementQuery":
                    return client.session.schema(asked.query)
                case "CommandPreparedStatementQuery":
                    return client.session.schema(client.statement(asked.prepared_statement_handle).sql)
        raise DPError(READ_ONLY)

    @_guarded
    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.RecordBatchStream:
        """The rows of an answer, or of a catalogue call."""
        name, asked = unpack(ticket.ticket)
        with self._clients.serving(_caller(context), context) as client:
            if name in catalogue.CALLS:
                return fl.RecordBatchStream(catalogue.rows(name, asked, client.session))
            if name != "TicketStatementQuery":
                raise DPError("flight: this ticket is of no answer; run a statement first.")
            return _stream(client.answers.read(asked.statement_handle))

    @_guarded
    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: object,
    ) -> None:
        """Bind the parameters of a prepared statement; everything else is refused."""
        name, asked = unpack(_command(descriptor))
        if name != "CommandPreparedStatementQuery":
            raise DPError(READ_ONLY)
        with self._clients.serving(_caller(context), context) as client:
            client.bind(asked.prepared_statement_handle, _parameters(reader, 8 * self.gateway.config.limits.characters))

    @_guarded
    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> list[bytes]:
        """Prepare and close statements, and cancel."""
        kind = action.type
        if kind not in ACTIONS:
            raise DPError(
                f"flight: there is no such action here; there are {', '.join(ACTIONS)}. Charges cannot be rolled back, so "
                "there are no transactions: connect with autocommit."
            )
        body, caller = action.body.to_pybytes(), _caller(context)
        if kind == "CloseSession":
            self._clients.end(caller)
            return [b"\x08\x01"]  # status 1: closed
        with self._clients.serving(caller, context) as client:
            match kind:
                case "CreatePreparedStatement":
                    return [_prepared(client, _of(body, "ActionCreatePreparedStatementRequest").query)]
                case "ClosePreparedStatement":
                    handle = _of(body, "ActionClosePreparedStatementRequest").prepared_statement_handle
                    with client.lock:
                        client.prepared.pop(handle, None)
                    return []
            request = (
                bare("ActionCancelQueryRequest", body)
                if kind == "CancelFlightInfo"
                else _of(body, "ActionCancelQueryRequest")
            )
            for ticket in _tickets(request.info):
                name, asked = unpack(ticket)
                if name == "TicketStatementQuery":
                    client.answers.take(asked.statement_handle)
            packed = pack("ActionCancelQueryResult", result=CANCELLED)
            return [b"\x08\x01" if kind == "CancelFlightInfo" else packed]

    @_guarded
    def list_actions(self, context: fl.ServerCallContext) -> list[tuple[str, str]]:
        """The actions."""
        return list(ACTIONS.items())

    @_guarded
    def list_flights(self, context: fl.ServerCallContext, criteria: bytes) -> Iterator[fl.FlightInfo]:
        """Nothing: GetTables lists what there is."""
        return iter(())

    @_guarded
    def do_exchange(
        self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor, reader: object, writer: object
    ) -> None:
        """Refused."""
        raise DPError(READ_ONLY)


def _tickets(info: bytes) -> list[bytes]:
    """The tickets of an answer that is cancelled."""
    try:
        return [endpoint.ticket.ticket for endpoint in fl.FlightInfo.deserialize(info).endpoints]
    except (pa.ArrowException, ValueError, TypeError, OSError):
        raise DPError(
            "flight: what is to be cancelled is no FlightInfo; send the one that the statement returned."
        ) from None


def _caller(context: fl.ServerCallContext) -> Caller:
    return context.get_middleware("caller").caller  # type: ignore[no-any-return]


def _command(descriptor: fl.FlightDescriptor) -> bytes:
    if descriptor.descriptor_type != fl.DescriptorType.CMD:
        raise DPError("flight: a path is no command; use a client of Arrow Flight SQL.")
    return descriptor.command or b""


def _of(body: bytes, name: str) -> Any:
    """The message of an action."""
    found, message = unpack(body)
    if found != name:
        raise DPError(f"flight: the action's message is {found}; it takes {name}.")
    return message


def _info(schema: pa.Schema, descriptor: fl.FlightDescriptor, ticket: bytes, rows: int = -1) -> fl.FlightInfo:
    return fl.FlightInfo(schema, descriptor, [fl.FlightEndpoint(ticket, [])], rows, -1)


def _stream(answer: pa.Table) -> fl.RecordBatchStream:
    """The rows in batches that every client takes."""
    rows = max(1, min(ROWS, BYTES * max(answer.num_rows, 1) // max(answer.nbytes, 1)))
    return fl.RecordBatchStream(pa.RecordBatchReader.from_batches(answer.schema, answer.to_batches(max_chunksize=rows)))


def _parameters(reader: fl.MetadataRecordBatchReader, most: int) -> tuple[object, ...]:
    """The one row of values that a client binds, of so many bytes at most; read no further than that.

    Raises:
        DPError: there are more rows, or none, or they are too large.
    """
    rows: list[tuple[object, ...]] = []
    for chunk in itertools.islice(reader, MOST_BATCHES):
        if chunk.data is not None:
            if chunk.data.slice(0, 2).nbytes > most:
                raise DPError(f"flight: the values of a statement have at most {most:,} bytes; bind smaller ones.")
            try:
                rows += [
                    tuple(column[at].as_py() for column in chunk.data.columns)
                    for at in range(min(chunk.data.num_rows, 2))
                ]
            except UNREADABLE:
                raise DPError(
                    "flight: a parameter has a value that is none here, as a year after 9999 or a text that is not UTF-8; bind another."
                ) from None
        if len(rows) > 1:
            break
    if len(rows) != 1:
        raise DPError("flight: bind one row of values; run the statement once for each row.")
    return rows[0]


def _prepared(client: Client, sql: str) -> bytes:
    """Keep a statement; its handle, its columns where they do not hang on parameters of dp_ calls, and its parameters."""
    read, schema = client.session.prepared(sql)
    columns = schema.serialize().to_pybytes() if schema is not None and schema.names else b""
    count = max(statement.used(read.text), default=0)
    if count > 1_000:
        raise DPError("flight: a statement has at most 1,000 parameters; give fewer.")
    parameters = pa.schema([pa.field(f"p{number}", pa.null()) for number in range(1, count + 1)])
    return pack(
        "ActionCreatePreparedStatementResult",
        prepared_statement_handle=client.prepare(sql),
        dataset_schema=columns,
        parameter_schema=parameters.serialize().to_pybytes() if count else b"",
    )
