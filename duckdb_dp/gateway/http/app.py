"""The application that answers HTTP: pages, MCP at /mcp, and /health."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.http import pages, stewards
from duckdb_dp.gateway.http.agents import Agents
from duckdb_dp.gateway.http.door import Door, TooManyError
from duckdb_dp.gateway.http.guard import Guard
from duckdb_dp.gateway.http.visits import Visit, Visits
from duckdb_dp.gateway.http.web import Site, address, client, cookie_name, give_cookie, page, read_form

STATIC = {
    "report.css": ("duckdb_dp.reporting", "page.css", "text/css"),
    "gateway.css": ("duckdb_dp.gateway.http", "static/gateway.css", "text/css"),
    "icon.svg": ("duckdb_dp.gateway.http", "static/icon.svg", "image/svg+xml"),
    "sql.js": ("duckdb_dp.gateway.http", "static/sql.js", "text/javascript"),
}
"""File -> its package, its path there, its type."""


def application(gateway: Gateway) -> ASGIApp:
    """The application of one gateway, which it does not close."""
    site = Site(door=Door(gateway), visits=Visits())
    agents = Agents(site.door)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with agents.manager.run():
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
