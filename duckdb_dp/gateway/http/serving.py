"""Serves the application on a thread of its own, until it is stopped."""

import contextlib
import socket
import threading
from typing import final

import uvicorn

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.http.app import application

CONNECTIONS = 1_000
"""At once; further ones are told to come back."""


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
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((config.host, config.http or 0))
            certificate, key = config.tls or (None, None)
            settings = uvicorn.Config(
                application(gateway),
                log_config=None,
                access_log=False,
                server_header=False,
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

    def close(self) -> None:
        """Take no more requests, finish those that run, and end."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        import asyncio

        async def serve() -> None:
            with contextlib.suppress(SystemExit):
                serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
                while not self._server.started and not serving.done():
                    await asyncio.sleep(0.01)
                self._started.set()
                await serving

        asyncio.run(serve())
