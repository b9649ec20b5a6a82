"""Serves the application on a thread of its own, until it is stopped."""

import asyncio
import contextlib
import socket
import threading
import time
from collections import Counter
from typing import final

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.http.app import application

CONNECTIONS, OF_ADDRESS = 1_000, 200
"""At once, in all, where further ones are told to come back; and of one address, where further ones are closed."""

PATIENCE = 20.0
"""Seconds for which a connection may be open without a whole request."""


def _protocol(proxy: str | None) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which closes connections that send no whole request, and those that one address has too many of."""
    held: Counter[str] = Counter()

    class Prompt(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._address, self._heard = str((transport.get_extra_info("peername") or ("",))[0]), time.monotonic()
            held[self._address] += 1
            if held[self._address] > OF_ADDRESS and self._address != proxy:
                transport.abort()
            self._look()

        def connection_lost(self, exc: Exception | None) -> None:
            held[self._address] -= 1
            held.pop(self._address) if held[self._address] <= 0 else None
            self._later.cancel()
            super().connection_lost(exc)

        def _look(self) -> None:
            now, busy = time.monotonic(), self.cycle is not None and not self.cycle.response_complete
            self._heard = now if busy else self._heard
            if now - self._heard > PATIENCE:
                self.transport.close()
            self._later = self.loop.call_later(PATIENCE / 4, self._look)

    return Prompt


@final
class HttpServer:
    """HTTP on a port, from now on until it is closed.

    Args:
        gateway: what is served; its configuration says host, port and TLS.

    Raises:
        DPError: the port or the certificate cannot be used.
    """

    def __init__(self, gateway: Gateway) -> None:
        config = gateway.config
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        self._socket = socket.socket(family)
        # The sockets of connections have it from this one: a body that comes after its headers would wait 40 ms otherwise.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((config.host, config.http or 0))
            certificate, key = config.tls or (None, None)
            settings = uvicorn.Config(
                application(gateway),
                log_config=None,
                access_log=False,
                server_header=False,
                http=_protocol(config.proxy),
                proxy_headers=config.proxy is not None,
                forwarded_allow_ips=config.proxy,
                limit_concurrency=CONNECTIONS,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=int(config.limits.seconds) + 5,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
            settings.load()
        except (OSError, ValueError) as error:
            self._socket.close()
            why = getattr(error, "strerror", None) or type(error).__name__
            raise DPError(f"serve: HTTP cannot be served on {config.host}:{config.http} ({why}).") from None
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._started = threading.Event()
        self._thread.start()
        self._started.wait(30)

    def finish(self) -> None:
        """Nothing: an answer is sent by the call that asks it, and ``close`` waits for these."""

    def close(self) -> None:
        """Take no more requests, finish those that run, and end."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        async def serve() -> None:
            with contextlib.suppress(SystemExit):
                serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
                while not self._server.started and not serving.done():
                    await asyncio.sleep(0.01)
                self._started.set()
                await serving

        asyncio.run(serve())
