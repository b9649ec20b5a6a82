"""``duckdb-dp serve``: one process that answers over Flight SQL and HTTP until it is told to stop."""

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.config import Config, check_files
from duckdb_dp.gateway.errors import hearing
from duckdb_dp.gateway.gateway import Gateway

FILES = 65_536
"""Open files and connections that are asked for."""

INSTALL = "pip install 'duckdb-dp[gateway]'"


def run(
    config: Config, stop: threading.Event | None = None, ready: Callable[[dict[str, int]], None] | None = None
) -> int:
    """Serve until SIGTERM or SIGINT; then let nothing more in, finish what runs, and close.

    Args:
        config: what is served, and where.
        stop: set to stop it.
        ready: called with the ports once it serves.

    Raises:
        DPError: a port cannot be had, or the database not opened, or a package is missing.
    """
    if config.flight is None and config.http is None:
        raise DPError(
            "serve: name a port: --flight 31337 for SQL clients, --http 8080 for browsers and agents, or both."
        )
    check_files(config)
    _open_more()
    serving = [name for name in ("flight", "http") if getattr(config, name) is not None]
    servers = {name: _server(name) for name in serving}
    over = stop or threading.Event()
    before = _listen(over)
    gateway = Gateway.open(config)
    with hearing(gateway.log):
        started: list[Any] = []
        ports: dict[str, int] = {}
        try:
            if config.twin is not None:
                gateway.make_twins(config.twin)
            for name, server in servers.items():
                started.append(server(gateway))
                ports[name] = started[-1].port
            gateway.log.write("serving", database=config.database.name, host=config.host, **ports)
            if ready is not None:
                ready(ports)
            while not over.wait(0.5):  # in steps, so that a signal is heard
                pass
            gateway.log.write("stopping")
        finally:
            gateway.turnstile.close(config.limits.seconds + 5)
            for each in started:
                each.finish()
            for each in started:
                each.close()
            gateway.close()
            gateway.log.write("stopped")
            for number, handler in before.items():
                signal.signal(number, handler)
    return 0


def _open_more() -> None:
    """Let this process have as many connections as the machine allows it: the usual first limit, 1,024, is a burst of idle ones."""
    try:
        import resource  # not on Windows

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = FILES if most == resource.RLIM_INFINITY else min(most, FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    except (ImportError, OSError, ValueError):
        return


def _server(name: str) -> Callable[[Gateway], Any]:
    """What makes a server, which serves from then on: it has a ``port``, ``finish()`` and ``close()``."""
    module, made = {"flight": ("flight.server", "Server"), "http": ("http.serving", "HttpServer")}[name]
    try:
        found = getattr(import_module(f"duckdb_dp.gateway.{module}"), made)
    except ModuleNotFoundError as error:
        missing = {"google": "protobuf"}.get(str(error.name).split(".")[0], error.name)
        raise DPError(f"serve: the package {missing} is missing; install: {INSTALL}") from None
    return cast(Callable[[Gateway], Any], found)


def _listen(over: threading.Event) -> dict[int, signal.Handlers]:
    """Set an event on SIGTERM and SIGINT, in the main thread; the handlers that were there before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = (signal.SIGTERM, signal.SIGINT)
    return {number: signal.signal(number, lambda *_: over.set()) for number in numbers}  # type: ignore[misc]
