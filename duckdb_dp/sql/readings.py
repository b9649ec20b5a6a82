"""What 'auto' takes for marginals, by how they will be read: a plan where they need intervals, 'neyman' where they are read fitted."""

from dataclasses import replace

from duckdb_dp.answers import price
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.plan.choose import FITTED
from duckdb_dp.release import check
from duckdb_dp.request import Request
from duckdb_dp.sql.arguments import Arguments, word
from duckdb_dp.sql.precision import asked as precision

AUTO, ADAPTIVE, PLANNED = "auto", "neyman", "residual"
UNBIASED = "unbiased"

MOST = 10**12
"""Most rows that a table can be said to have."""


def chosen(request: Request, arguments: Arguments) -> Request:
    """The request of a call of dp_marginals, with the mechanism that is nearest to the truth for its reading.

    'auto' read fitted is 'neyman', where that can answer it and some marginal has two attributes: less would gain nothing.

    A plan of 'residual' is one for being read fitted, with the number of rows that is said.

    Raises:
        DPError: what was said is no number of rows.

    Privacy: depends on public facts only.
    """
    rows = said_rows(arguments)
    if request.objective == FITTED:
        return _with_rows(request, rows)
    asked = word(arguments, "postprocess", UNBIASED) == FITTED and precision(arguments) is None
    if request.mechanism not in {AUTO, PLANNED} or request.objective != "total" or not asked:
        return request
    sizes = request.domain.sizes
    if all(sum(sizes[name] > 1 for name in clique) < 2 for clique in request.cliques):
        return request
    planned = request if price(request).beta is None else _with_rows(replace(request, objective=FITTED), rows)
    if request.mechanism == PLANNED:
        return planned
    found = replace(request, mechanism=ADAPTIVE)
    try:
        check(found)
    except DPError:
        return planned
    return found


def _with_rows(request: Request, rows: int | None) -> Request:
    return request if rows is None else replace(request, options=(("rows", rows),))


def said_rows(arguments: Arguments) -> int | None:
    """The number of rows that the call says; None where it does not.

    Raises:
        DPError: what was said is no number of rows.
    """
    said = arguments.get("rows")
    if said is not None and (isinstance(said, bool) or not isinstance(said, int) or not 1 <= said <= MOST):
        raise DPError(f"rows is {as_sql(said)}; it is a whole number of rows, e.g. rows := 50000.")
    return said
