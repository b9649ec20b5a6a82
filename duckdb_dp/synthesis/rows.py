"""dp_synthesize: a table's rows, as the numbers that a release stores."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from duckdb_dp.answers import DETAIL, to_bytes
from duckdb_dp.attribute import Attribute
from duckdb_dp.domain import Clique
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.private import Door
from duckdb_dp.progress import Track
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.request import Request
from duckdb_dp.synth import synthesize
from duckdb_dp.synth.decode import decode
from duckdb_dp.synthesis.base import Run, generator

LEAST = 1e-16
"""Cost under which rows are not made unless their number is given: it would be noise of more than 10^8."""

DEFAULT = synthesize.Options()
"""The built-in method, as it comes."""

PER_UNIT = {"TIME": 1, "TIMESTAMP": 1, "TIMESTAMP_S": 10**6, "TIMESTAMP_MS": 10**3, "TIMESTAMP_NS": 1}
"""How many of what is stored make one of the type's own unit."""


def options(request: Request) -> synthesize.Options:
    """How the rows are made."""
    given: dict[str, Any] = {name: value for name, value in request.options if name != "rows"}
    return synthesize.Options(method=request.mechanism, **given)  # type: ignore[arg-type]  # it checks the word itself


def check(request: Request) -> None:
    """Refuse what cannot be done, before anything is charged.

    Raises:
        DPError: as ``synth.synthesize.check``; or a cost at which the number of rows is nothing but noise.
    """
    if request.cost < LEAST and "rows" not in dict(request.options):
        raise DPError(
            f"a cost of {request.cost:g} shows nothing of the number of rows but noise; ask for a cost (rho, or mu^2) of "
            f"{LEAST:g} or more, or give rows."
        )
    synthesize.check(request.domain, dict(request.options).get("rows"), options(request))


def cliques(request: Request) -> tuple[Clique, ...]:
    """The marginals that may be looked at: what has to be counted."""
    return synthesize.cliques(request.domain, options(request))


def run(request: Request, track: Track) -> Run:
    """What draws the rows.

    Privacy: spends all that the door has.
    """

    def drawn(door: Door) -> Mapping[str, Array]:
        rng = generator(door)
        rows = dict(request.options).get("rows")
        codes, detail = synthesize.synthesize(door, rows=rows, options=options(request), rng=rng, track=track)
        columns = (values(attribute, codes[:, i], rng) for i, attribute in enumerate(request.attributes))
        return {DETAIL: to_bytes({"rows": len(codes), **detail}), **{str(i): found for i, found in enumerate(columns)}}

    return drawn


def values(attribute: Attribute, codes: Codes, rng: np.random.Generator) -> Array:
    """A drawn column as the numbers that are stored: cell numbers, or values inside bins, NaN where there is none.

    Dates are days since 1970, times and timestamps microseconds (TIMESTAMP_NS: nanoseconds).

    Privacy: post-processing.
    """
    if attribute.kind != "bins":
        return np.asarray(codes, dtype=np.float64)
    drawn = decode(attribute, codes, rng)
    if (per_unit := PER_UNIT.get(attribute.type)) is not None:
        drawn = drawn.cast("int64")
    elif attribute.type == "DATE":
        drawn = drawn.cast("int32")
    numbers: Array = drawn.cast("float64", safe=False).to_numpy(zero_copy_only=False) * (per_unit or 1)
    return numbers if attribute.family == "real" else _as_doubles(numbers)


def _as_doubles(numbers: Array) -> Array:
    """Beyond 2^53 not every whole number is a double: the next one towards 0 stays inside a type's range."""
    return np.where(np.abs(numbers) > 2.0**53, np.nextafter(numbers, 0.0), numbers)
