"""The gateway for one agent that started it: MCP over stdin and stdout. What runs is finished at the end of stdin, and on SIGTERM."""

import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast, final

import anyio
from anyio import from_thread, to_thread
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.stdio import stdio_server

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.config import Config
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.http.agents import server, serving_one
from duckdb_dp.gateway.http.tools import Asker

LATER = 5.0
"""Seconds beyond the limit of a statement for which the end waits for an answer."""

LINE = 1 << 20
"""Bytes of a message, as over HTTP; what is longer is no message."""


def run(database: Path, ledger: Path | None, name: str) -> None:
    """The command ``duckdb-dp mcp``.

    Raises:
        DPError: there is no token, it is wrong, or the database cannot be opened.
    """
    token = os.environ.get("DUCKDB_DP_TOKEN", "")
    if not token:
        raise DPError(f"mcp: put the token of '{name}' into the environment variable DUCKDB_DP_TOKEN.")
    gateway = Gateway.open(Config(database=database, ledger=ledger))
    try:
        anyio.run(over_stdio, gateway, name, token)
    finally:
        gateway.close()


async def over_stdio(gateway: Gateway, name: str, token: str) -> None:
    """Serve one account over stdin and stdout, until stdin ends or a signal comes.

    Raises:
        DPError: the name or the token is wrong.
    """
    account = await to_thread.run_sync(lambda: gateway.sign_in(name, token, client="mcp stdio"))
    session = gateway.session(account, client="mcp stdio")
    served, lines = server(), Lines(gateway.config.limits.seconds + LATER)
    try:
        with serving_one(Asker(gateway=gateway, session=session)):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lines.listen)
                async with stdio_server(stdin=cast(Any, lines)) as (incoming, outgoing):
                    answers = cast(Any, Answers(outgoing, lines))
                    await served.run(incoming, answers, served.create_initialization_options())
                tasks.cancel_scope.cancel()
    finally:
        sys.stdout.flush()
        session.close()


@final
class Lines:
    """The lines of stdin, until it ends or a signal comes; after the last one it waits until all of them are answered.

    Args:
        patience: seconds for which it waits.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._asked: set[object] = set()
        self._answered = anyio.Event()
        self._to, self._lines = anyio.create_memory_object_stream[bytes | None](100)

    async def listen(self) -> None:
        """Read stdin in a thread, which nobody need wait for; and hear signals, in the main thread."""
        async with from_thread.BlockingPortal() as portal:
            threading.Thread(target=_read, args=(portal, self._to), daemon=True, name="stdin").start()
            if threading.current_thread() is threading.main_thread():
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    async for _ in signals:
                        await self._to.send(None)
            await anyio.sleep_forever()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._lines.receive()) is not None:
            if line.strip():
                self._note(line)
                yield line.decode("utf-8", "replace")
        with anyio.move_on_after(self._patience):
            while self._asked:
                await self._answered.wait()

    def _note(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return
        if isinstance(number := message.get("id"), str | int):
            self._asked.add(number)
        elif message["method"] == "notifications/cancelled" and isinstance(message.get("params"), dict):
            self.answered(message["params"].get("requestId"))

    def answered(self, number: object) -> None:
        """Note that a request is answered."""
        if isinstance(number, str | int):
            self._asked.discard(number)
        self._answered.set()
        self._answered = anyio.Event()


@final
class Answers:
    """A stream of messages that notes which requests are answered."""

    def __init__(self, stream: Any, lines: Lines) -> None:
        self._stream, self._lines = stream, lines

    async def send(self, item: Any) -> None:
        """Send a message."""
        await self._stream.send(item)
        if getattr(item.message, "method", None) is None:
            self._lines.answered(getattr(item.message, "id", None))

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()

    async def __aenter__(self) -> "Answers":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _read(portal: from_thread.BlockingPortal, lines: "MemoryObjectSendStream[bytes | None]") -> None:
    """Send the lines of stdin, by its number: a thread that holds Python's own buffer cannot be left alone at the end."""
    rest = b""
    try:
        while chunk := os.read(0, 1 << 16):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                portal.call(lines.send, line)
            rest = rest if len(rest) <= LINE else b"!"
        for last in (rest, None):
            portal.call(lines.send, last)
    except (OSError, RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # the loop has ended
