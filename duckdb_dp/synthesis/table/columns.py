"""dp_synthesize: from a request to the stored columns of a synthetic table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from duckdb_dp.answers import DETAIL, to_bytes
from duckdb_dp.domain.domain import Attribute, Clique
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.request import Request
from duckdb_dp.synthesis.base import Run, SyntheticTable, generator
from duckdb_dp.synthesis.table import methods

LEAST = 1e-16
"""Cost under which rows are not made unless their number is given: it would be noise of more than 10^8."""

DEFAULT = methods.Options()
"""The built-in method, as it comes."""

SHARES = "shares"
"""Note in a release's detail: its bins are stored as cell numbers with a share of the way through the bin."""


def options(request: Request) -> methods.Options:
    """How the rows are made."""
    given: dict[str, Any] = {name: value for name, value in request.options if name != "rows"}
    return methods.Options(method=request.mechanism, **given)  # type: ignore[arg-type]  # it checks the word itself


def check(request: Request) -> None:
    """Refuse what cannot be done, before anything is charged.

    Raises:
        DPError: as ``methods.check``; or a cost at which the number of rows is nothing but noise.
    """
    if request.cost < LEAST and "rows" not in dict(request.options):
        raise DPError(
            f"a cost of {request.cost:g} would give a number of rows that is nothing but noise; ask for a cost (rho, or mu^2) of "
            f"{LEAST:g} or more, or give rows."
        )
    methods.check(request.domain, dict(request.options).get("rows"), options(request))


def cliques(request: Request) -> tuple[Clique, ...]:
    """The marginals that may be measured, and so have to be counted."""
    return methods.cliques(request.domain, options(request))


def check_tables(request: Request, tables: Sequence[SyntheticTable], bound_holds: bool) -> None:
    """Does nothing: the rows of a table do not depend on other tables."""


def run(request: Request, tables: Sequence[SyntheticTable], track: Track) -> Run:
    """The function that draws the rows.

    Privacy: spends all that ``queryable`` has left.
    """

    def drawn(queryable: PrivateQueryable) -> Mapping[str, Array]:
        rng = generator(queryable)
        rows = dict(request.options).get("rows")
        codes, detail = methods.synthesize(queryable, rows=rows, options=options(request), rng=rng, track=track)
        columns = (values(attribute, codes[:, i], rng) for i, attribute in enumerate(request.attributes))
        return {
            DETAIL: to_bytes({"rows": len(codes), SHARES: True, **detail}),
            **{str(i): column for i, column in enumerate(columns)},
        }

    return drawn


def values(attribute: Attribute, codes: Codes, rng: np.random.Generator) -> Array:
    """A drawn column as the numbers that are stored: cell numbers, in bins with a uniform share of the way through the bin.

    Whatever type the column has, ``counting.encode.decode`` finds a value in the bin by it: 3.25 is a quarter through bin 3.

    Privacy: post-processing.
    """
    cells = np.asarray(codes, dtype=np.float64)
    if attribute.kind != "bins":
        return cells
    return np.minimum(cells + rng.random(len(cells)), np.nextafter(cells + 1, 0))
