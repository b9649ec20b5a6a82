"""The application that answers HTTP: pages, MCP at /mcp, and /health."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from types import ModuleType
from typing import Any, final

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.http import pages, stewards
from duckdb_dp.gateway.http.door import Door, TooManyError
from duckdb_dp.gateway.http.guard import IMPORTING, Guard
from duckdb_dp.gateway.http.visits import Visit, Visits
from duckdb_dp.gateway.http.web import Site, address, client, cookie_name, give_cookie, page, read_form

STATIC = {
    "report.css": ("duckdb_dp.reporting", "page.css", "text/css"),
    "gateway.css": ("duckdb_dp.gateway.http", "static/gateway.css", "text/css"),
    "icon.svg": ("duckdb_dp.gateway.http", "static/icon.svg", "image/svg+xml"),
    "sql.js": ("duckdb_dp.gateway.http", "static/sql.js", "text/javascript"),
}
"""File -> its package, its path there, its type."""

SOON = 2.0
"""Seconds after the start at which agents can be answered at once."""


def application(gateway: Gateway) -> ASGIApp:
    """The application of one gateway, which it does not close."""
    site = Site(door=Door(gateway), visits=Visits())
    agents = _Agents(site.door)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with agents.running():
            yield
        site.visits.close()
        site.door.close()

    async def sign_in(request: Request) -> Response:
        return await (_signed_in(site, request) if request.method == "POST" else _sign_in(site, request))

    async def sign_out(request: Request) -> Response:
        cookie = request.cookies.get(cookie_name(request), "")
        if site.visits.is_sealed(cookie, (await read_form(request)).get("csrf", "")):
            site.visits.end(cookie)
        return pages.signed_out()

    async def health(request: Request) -> Response:
        well = await to_thread.run_sync(gateway.healthy)
        return PlainTextResponse("ok\n" if well else "not well\n", 200 if well else 503)

    routes: list[BaseRoute] = [
        Route("/mcp", agents),
        Route("/health", health),
        Route("/static/{name}", _static),
        Route("/sign-in", sign_in, methods=["GET", "POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
        *pages.routes(site),
        *stewards.routes(site),
    ]

    async def unforeseen(request: Request, error: Exception) -> Response:
        told = gateway.log.unforeseen(error, path=request.url.path[:200])
        return PlainTextResponse(f"{told}\n", 500)

    handlers: Any = {404: _missing, 405: _missing, Exception: unforeseen}
    return Guard(Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers))


@final
class _Agents:
    """Answers agents. What that takes is imported when the first one asks, or SOON after the start, which it would make twice as long."""

    def __init__(self, door: Door) -> None:
        if find_spec("mcp") is None:
            raise ModuleNotFoundError(name="mcp")
        self._door = door
        self._ready: asyncio.Future[ASGIApp] | None = None
        self._wanted = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While a block runs, agents are answered."""
        over = asyncio.Event()
        ready = self._ready = asyncio.get_running_loop().create_future()

        async def run() -> None:  # of one task, as the manager has to end in that in which it began
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), SOON)
            if over.is_set():
                ready.cancel()
                return
            module = await to_thread.run_sync(_imported)
            agents = module.Agents(self._door)
            async with agents.manager.run():
                ready.set_result(agents)
                await over.wait()

        task = asyncio.create_task(run())
        yield
        over.set()
        self._wanted.set()
        await task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._ready is not None
        self._wanted.set()
        agents = await asyncio.shield(self._ready)
        await agents(scope, receive, send)


def _imported() -> ModuleType:
    with IMPORTING:
        return import_module("duckdb_dp.gateway.http.agents")


async def _sign_in(site: Site, request: Request, error: str | None = None, status: int = 200) -> Response:
    """The form; its token belongs to a cookie as those of all forms do."""
    if error is None and site.visits.find(request.cookies.get(cookie_name(request), "")):
        return RedirectResponse("/", 303)
    cookie = secrets.token_urlsafe(32)
    response = page(
        "sign_in.html.j2", status, account=None, path="/sign-in", csrf=site.visits.seal(cookie), error=error
    )
    give_cookie(request, response, cookie)
    return response


async def _signed_in(site: Site, request: Request) -> Response:
    form = await read_form(request)
    if not site.visits.is_sealed(request.cookies.get(cookie_name(request), ""), form.get("csrf", "")):
        return await _sign_in(site, request, "this form is out of date; sign in again.", 403)
    name, token = form.get("name", "").strip(), form.get("token", "").strip()
    try:
        account = await site.door.account(name, token, address=address(request), client=client(request))
    except DPError as error:
        return await _sign_in(site, request, str(error), 429 if isinstance(error, TooManyError) else 401)
    session = site.door.gateway.session(account, client=client(request))
    cookie = site.visits.begin(Visit(account=account, token=token, session=session))
    response = RedirectResponse("/", 303)
    give_cookie(request, response, cookie)
    return response


async def _static(request: Request) -> Response:
    found = STATIC.get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("There is no such file.\n", 404)
    package, path, media = found
    content = (files(package) / path).read_bytes()
    return Response(content, media_type=media, headers={"cache-control": "public, max-age=3600"})


async def _missing(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return PlainTextResponse("There is no such page.\n" if status == 404 else "A page is not asked so.\n", status)
