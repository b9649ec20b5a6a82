"""What 'auto' takes for marginals, by how they will be read: a plan where they need intervals, 'neyman' where they are read fitted."""

from dataclasses import replace

from duckdb_dp.answers import price
from duckdb_dp.errors import DPError
from duckdb_dp.plan.choose import FITTED
from duckdb_dp.release import check
from duckdb_dp.request import Request
from duckdb_dp.sql.arguments import Arguments, word
from duckdb_dp.sql.precision import asked as precision

AUTO, ADAPTIVE, PLANNED = "auto", "neyman", "residual"
UNBIASED = "unbiased"


def chosen(request: Request, arguments: Arguments) -> Request:
    """The request of a call of dp_marginals, with the mechanism that is nearest to the truth for its reading.

    'auto' read fitted is 'neyman', where that can answer it and some marginal has two attributes: less would gain nothing.

    A plan of 'residual' is one for being read fitted.

    Privacy: depends on public facts only.
    """
    asked = word(arguments, "postprocess", UNBIASED) == FITTED and precision(arguments) is None
    if request.mechanism not in {AUTO, PLANNED} or request.objective != "total" or not asked:
        return request
    sizes = request.domain.sizes
    if all(sum(sizes[name] > 1 for name in clique) < 2 for clique in request.cliques):
        return request
    planned = request if price(request).beta is None else replace(request, objective=FITTED)
    if request.mechanism == PLANNED:
        return planned
    found = replace(request, mechanism=ADAPTIVE)
    try:
        check(found)
    except DPError:
        return planned
    return found
