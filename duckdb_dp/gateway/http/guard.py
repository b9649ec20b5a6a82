"""Around every request: its size and its time, where it comes from, and the headers of its answer."""

import threading
from contextlib import suppress
from functools import cached_property
from typing import final
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = 1 << 20
"""Bytes of a request."""

SECONDS = 20.0
"""Within which a request has to be sent whole."""

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_SAFE = ("GET", "HEAD", "OPTIONS")

IMPORTING = threading.Lock()
"""Held while mcp is imported: two threads that import parts of one package at a time may each be given half of the other's."""


@final
class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp) -> None:
        self._inner = app

    @cached_property
    def _limited(self) -> ASGIApp:
        # For the time of a start, as all of mcp comes with it.
        with IMPORTING:
            from mcp.server.transport_security import RequestBodyLimitMiddleware

        return RequestBodyLimitMiddleware(self._inner, BODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        late = _Late()

        async def guarded(message: Message) -> None:
            if late.is_so:  # whatever was made of half a request
                return
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
                if scope["scheme"] == "https":
                    headers["strict-transport-security"] = "max-age=31536000"
            await send(message)

        if not _is_own(scope):
            await PlainTextResponse("This request was made by another site.\n", 403)(scope, receive, guarded)
            return
        app = await to_thread.run_sync(lambda: self._limited) if _has_body(scope) else self._inner
        with suppress(Exception):  # it was answered and noted already, and its traceback may quote values
            await app(scope, _in_time(receive, late), guarded)
        if late.is_so:
            late.is_so = False
            await PlainTextResponse(f"A request has to be sent within {SECONDS:g} s.\n", 408)(scope, receive, guarded)


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return scope["method"] not in _SAFE or "content-length" in headers or "transfer-encoding" in headers


def _is_own(scope: Scope) -> bool:
    """Whether a request that may change something comes from a page of this gateway, or from no page at all."""
    headers = Headers(scope=scope)
    if scope["method"] in _SAFE:
        return True
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    except ValueError:  # it is no address
        return False


@final
class _Late:
    """Whether a request was not sent in time."""

    is_so = False


def _in_time(receive: Receive, late: _Late) -> Receive:
    """The same messages; who sends a body too slowly is taken to be gone."""
    whole = False

    async def read() -> Message:
        nonlocal whole
        if whole:
            return await receive()
        with anyio.move_on_after(SECONDS):
            message = await receive()
            whole = not message.get("more_body", False)
            return message
        whole = late.is_so = True
        return {"type": "http.disconnect"}

    return read
