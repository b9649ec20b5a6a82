"""Values that nobody has declared: the SQL that counts the units that hold each, and how released ones are stored and read."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from duckdb_dp.counting.encode import literal, quote, shuffled
from duckdb_dp.domain import types
from duckdb_dp.domain.types import ColumnType, Decimal, Enum, Real, Scalar, Truth, Whole
from duckdb_dp.linop import Array
from duckdb_dp.request import Request
from duckdb_dp.sql import render
from duckdb_dp.sql.opaque import written
from duckdb_dp.sql.signing import signed

LONGEST = 1_000
"""Bytes of a text; longer ones are left out before anything is counted, whatever they say."""


MISSING = b"\xff"
"""What stands for NULL among the bytes of values: the text of none, which is UTF-8."""


def run(request: Request, unit_key: str, *, name: str | None, fresh: bool) -> str:
    """CTEs that end in ``handle(handle)``: counts, charges and measures when the statement runs, and not before."""
    fresh_key = "current_query_id()::VARCHAR" if fresh else "NULL::VARCHAR"
    lists = "coalesce(list(v ORDER BY v), []), coalesce(list(n ORDER BY v), [])"
    call = f"_dp_run_values({signed(request)}, {literal(name)}::VARCHAR, {fresh_key}, {lists})"
    return f"held AS ({held(request, unit_key)}), {render.checked('handle', f'SELECT {call} AS text FROM held')}"


def held(request: Request, unit_key: str) -> str:
    """SELECT v, the bytes of a value, and n, how many units hold it; a unit is counted for at most ``max_values`` of them.

    Which of a unit's values count depends on that unit's values alone: they are ordered by a keyed hash, and where
    hashes tie by themselves. Values are told apart by their bytes, whatever collation the column has. Where the request asks for NULL too,
    that is one more value, and the last one of each unit: what is found of others is as without.
    """
    options = dict(request.options)
    table = render.relation(request)
    value = value_bytes(options["type"], quote(options["attribute"]))
    missing = f"'\\x{MISSING.hex()}'::BLOB"
    last = ""
    if options.get("nulls"):
        value = f"CASE WHEN {quote(options['attribute'])} IS NULL THEN {missing} ELSE {value} END"
        last = f"v = {missing}, "
    known = f"v IS NOT NULL AND octet_length(v) <= {LONGEST}"
    if request.unit is None:
        return f"SELECT v, count(*) AS n FROM (SELECT {value} AS v FROM {table}) WHERE {known} GROUP BY v"
    unit = [f"u{i}" for i in range(len(render.unit_columns(request)))]
    apart = render.unit_bytes(unit)
    named = ", ".join(f"{column} AS {alias}" for column, alias in zip(render.unit_columns(request), unit, strict=True))
    present = " AND ".join(f"{column} IS NOT NULL" for column in unit)
    groups = ", ".join([*apart, *unit])
    rows = f"SELECT {named}, {value} AS v FROM {table}"
    pairs = f"SELECT {', '.join(unit)}, v FROM ({rows}) WHERE {present} AND {known} GROUP BY {groups}, v"
    order = f"{last}{shuffled([literal(unit_key), *unit, 'v'])}, v"
    own = ", ".join(render.unit_keys(unit))
    kept = f"SELECT v FROM ({pairs}) QUALIFY row_number() OVER (PARTITION BY {own} ORDER BY {order}) <= {options['max_values']}"
    return f"SELECT v, count(*) AS n FROM ({kept}) GROUP BY v"


def value_bytes(type_: str, column: str) -> str:
    """SQL of a value as the bytes of its text; NULL for NULL and what is not finite. It never raises an error."""
    dtype, value = types.column_type(type_), f"TRY_CAST({column} AS {type_})"
    if isinstance(dtype, Real):
        value = f"CASE WHEN isfinite({value}) THEN {value} + 0 END"  # one zero, and not two
    return f"TRY(encode(CAST({written(value, type_)} AS VARCHAR)))"


def arrays(values: Sequence[bytes]) -> dict[str, Array]:
    """Values as arrays, because a release stores numbers: their bytes, one in each number, and their lengths."""
    joined = np.frombuffer(b"".join(values), dtype=np.uint8)
    return {"bytes": joined.astype(np.float64), "lengths": np.array([len(value) for value in values], np.float64)}


def only(values: Mapping[str, Array], kept: npt.NDArray[np.bool_]) -> dict[str, Array]:
    """The same arrays of those values where ``kept`` is true."""
    lengths = values["lengths"]
    return {"bytes": values["bytes"][np.repeat(kept, lengths.astype(np.int64))], "lengths": lengths[kept]}


def read(stored: Mapping[str, Array], type_: str) -> list[tuple[str, float]]:
    """(text, noisy count) of each released value that can be declared, in the order of the type.

    Privacy: post-processing.
    """
    dtype = types.column_type(type_)
    found = [
        (point, value.decode(), count)
        for value, count in zip(_released(stored), stored["counts"].tolist(), strict=True)
        if value != MISSING and (point := point_of(dtype, value.decode())) is not None
    ]
    return [(text, count) for _, text, count in sorted(found, key=lambda one: _order(dtype, one[0]))]


def missing(stored: Mapping[str, Array]) -> bool:
    """Whether NULL was released.

    Privacy: post-processing.
    """
    return MISSING in _released(stored)


def _released(stored: Mapping[str, Array]) -> list[bytes]:
    joined = stored["bytes"].astype(np.uint8).tobytes()
    ends = np.cumsum(stored["lengths"]).astype(int).tolist()
    return [joined[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def point_of(dtype: ColumnType, text: str) -> Any:
    """What orders like the value; None where no declaration can hold it."""
    try:
        if isinstance(dtype, Truth):
            return text == "true"
        if isinstance(dtype, Whole):
            return int(text)
        if isinstance(dtype, Decimal):
            return Fraction(text)
        point: Scalar = float(text) if isinstance(dtype, Real) else text
    except ValueError:
        return None
    return point if dtype.fits(point) else None


def _order(dtype: ColumnType, point: Any) -> Any:
    if isinstance(dtype, Enum):
        return list(dtype.members).index(point)
    if dtype.textual:
        return point.encode()
    return dtype.amount(point) if isinstance(point, str) else point
