"""What every page needs: the visit of its cookie, the checked form, its template."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, final
from urllib.parse import parse_qsl

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.http import words
from duckdb_dp.gateway.http.door import Door
from duckdb_dp.gateway.http.pictures import shown
from duckdb_dp.gateway.http.visits import Visit, Visits
from duckdb_dp.gateway.values import visible
from duckdb_dp.reporting.labels import summary

if TYPE_CHECKING:
    from jinja2 import Environment

FIELDS = 20
"""Of a form."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all pages share."""

    door: Door
    visits: Visits


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of a signed-in person."""

    site: Site
    request: Request
    visit: Visit
    cookie: str
    form: Mapping[str, str]

    def page(self, template: str, status: int = 200, **facts: Any) -> HTMLResponse:
        """A page of a template."""
        return page(
            template,
            status,
            account=self.visit.account,
            csrf=self.site.visits.seal(self.cookie),
            path=self.request.url.path,
            **facts,
        )

    def refused(self, error: DPError, status: int = 400) -> HTMLResponse:
        """A page that says what was refused."""
        return self.page("refused.html.j2", status, error=str(error))


Handler = Callable[[Call], Response]


def page(template: str, status: int = 200, **facts: Any) -> HTMLResponse:
    """A page of a template, for anyone."""
    return HTMLResponse(_environment().get_template(template).render(**facts), status)


def route(site: Site, path: str, handler: Handler, *methods: str, steward: bool = False) -> Route:
    """A page for those who are signed in; the others are sent to the sign-in page."""

    async def endpoint(request: Request) -> Response:
        cookie = request.cookies.get(cookie_name(request), "")
        visit = site.visits.find(cookie)
        if visit is None or not await _is_still(site, visit, request):
            site.visits.end(cookie)
            return RedirectResponse("/sign-in", 303)
        form = await read_form(request) if request.method == "POST" else {}
        call = Call(site=site, request=request, visit=visit, cookie=cookie, form=form)
        if request.method == "POST" and not site.visits.is_sealed(cookie, form.get("csrf", "")):
            return call.refused(
                DPError("this form is out of date; go back, load the page again, and send it again."), 403
            )
        if steward and visit.account.role != "steward":
            return call.refused(DPError("this page is for stewards."), 403)
        try:
            return await to_thread.run_sync(handler, call)
        except DPError as error:
            return call.refused(error)

    return Route(path, endpoint, methods=list(methods or ["GET"]))


async def _is_still(site: Site, visit: Visit, request: Request) -> bool:
    """Whether the account is what it was: a closed one, or one with a new token, is out at once."""
    try:
        found = await site.door.account(
            visit.account.name, visit.token, address=address(request), client=client(request)
        )
    except DPError:
        return False
    return found == visit.account


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; none where it is no form."""
    body = await request.body()
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS, strict_parsing=bool(body)))
    except ValueError:
        return {}


def address(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client else ""


def client(request: Request) -> str:
    """Who asks, for the audit."""
    return f"web {address(request)}"


def cookie_name(request: Request) -> str:
    """Of the cookie; under TLS a browser lets no other host or path set one of this name."""
    return "__Host-duckdb_dp" if request.url.scheme == "https" else "duckdb_dp"


def give_cookie(request: Request, response: Response, cookie: str) -> None:
    """A cookie that scripts do not see and that no other site's request carries."""
    response.set_cookie(
        cookie_name(request), cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https", path="/"
    )


@cache
def _environment() -> "Environment":
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("duckdb_dp.gateway.http", "templates"), PackageLoader("duckdb_dp.reporting", ".")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "shown": shown,
        "percent": words.share,
        "number": words.number,
        "visible": visible,
        "summary": summary,
    }
    return environment
