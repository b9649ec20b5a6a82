"""The gateway for agents: an MCP server, over streamable HTTP."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, final

import mcp_types as types
from anyio import to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.http.door import Door, TooManyError
from duckdb_dp.gateway.http.tools import INSTRUCTIONS, TOOLS, Asker
from duckdb_dp.version import __version__

_asker: ContextVar[Asker] = ContextVar("asker")
"""Who sent the request that is being answered."""

BODY = 1 << 20
"""Bytes of a request."""


def server() -> Server[Any]:
    """An MCP server with the tools of this package."""
    return Server(
        "duckdb_dp",
        version=__version__,
        title="Differentially private answers",
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
    )


@final
class Agents:
    """An ASGI application that answers MCP requests with a bearer token; each request stands for itself."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.manager = StreamableHTTPSessionManager(
            server(), json_response=True, stateless=True, max_request_body_size=BODY
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if (
            request.method != "POST"
        ):  # requests stand for themselves: there is no stream to keep open, and no session to end
            await JSONResponse({"error": "MCP requests are sent with POST."}, 405, {"allow": "POST"})(
                scope, receive, send
            )
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        address = request.client.host if request.client else ""
        if scheme.lower() != "bearer" or not token:
            await _refusal("send your token in a header: Authorization: Bearer <token>.")(scope, receive, send)
            return
        try:
            client = f"mcp {address}"
            account = self._door.gateway.recent(token.strip()) or await self._door.account(
                None, token.strip(), address=address, client=client
            )
        except DPError as error:
            await _refusal(str(error), 429 if isinstance(error, TooManyError) else 401)(scope, receive, send)
            return
        _asker.set(Asker(gateway=self._door.gateway, session=self._door.session(account, client)))
        await self.manager.handle_request(scope, receive, send)


@contextmanager
def serving_one(asker: Asker) -> Iterator[None]:
    """While a block runs, all requests are one account's."""
    before = _asker.set(asker)
    try:
        yield
    finally:
        _asker.reset(before)


async def _list_tools(
    ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=tool.name,
                title=tool.title,
                description=tool.description,
                input_schema=tool.schema,
                annotations=types.ToolAnnotations(
                    read_only_hint=tool.free, destructive_hint=False, idempotent_hint=True, open_world_hint=False
                ),
            )
            for tool in TOOLS.values()
        ]
    )


async def _call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
    asker, tool = _asker.get(), TOOLS.get(params.name)
    try:
        if tool is None:
            raise DPError(f"there is no tool of this name; there are {', '.join(TOOLS)}.")
        arguments, chosen = params.arguments or {}, tool
        found = await to_thread.run_sync(lambda: chosen.call(asker, arguments))
        text = _json(found)
    except DPError as error:
        return _text(str(error), is_error=True)
    except Exception as error:
        told = asker.gateway.log.unforeseen(error, account=asker.session.account.name, tool=params.name[:80])
        return _text(str(told), is_error=True)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=found, is_error=False
    )


def _text(text: str, *, is_error: bool) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)


def _json(found: dict[str, Any]) -> str:
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _refusal(text: str, status: int = 401) -> JSONResponse:
    headers = {"www-authenticate": 'Bearer realm="duckdb_dp"'} if status == 401 else {"retry-after": "60"}
    return JSONResponse({"error": text}, status, headers)
