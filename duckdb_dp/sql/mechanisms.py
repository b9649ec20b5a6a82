"""The mechanism that a call names, and the arguments that adaptive ones take."""

import math
from collections.abc import Sequence
from typing import Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.errors import DPError, as_sql, meant
from duckdb_dp.plan.choose import PLANNERS, PURE_PLANNERS
from duckdb_dp.request import ADAPTIVE, RETIRED
from duckdb_dp.sql.arguments import Arguments
from duckdb_dp.sql.session import Session


def check_mechanism(mechanism: str, dataset: Dataset, *, adaptive: bool, own: Sequence[str]) -> None:
    """Refuse an unknown mechanism; the error names those that the function supports for the dataset.

    Raises:
        DPError: there is no such mechanism.
    """
    pure = dataset.accounting.pure
    known = dict.fromkeys([*([] if pure else PLANNERS), *PURE_PLANNERS, *([] if pure else ADAPTIVE)])
    if mechanism in {"auto", *PLANNERS, *PURE_PLANNERS, *ADAPTIVE, *RETIRED, *own}:
        return
    if not adaptive:
        known = {name: None for name in known if name not in {"gaussian", "laplace", *ADAPTIVE}}
        known |= dict.fromkeys(own)
    raise DPError(
        f"mechanism {as_sql(mechanism)} is not known; use 'auto', {', '.join(map(repr, known))}{meant(known, mechanism)}."
    )


def mechanism_options(
    arguments: Arguments, mechanism: str, function: str, *, adaptive: bool
) -> tuple[tuple[str, Any], ...]:
    """Arguments that only adaptive mechanisms take.

    Raises:
        DPError: one is given to another mechanism, or such a mechanism is asked for other queries than marginals.
    """
    given = {
        name: arguments[name]
        for name in ("given", "max_cells", "max_memory", "rounds")
        if arguments.get(name) is not None
    }
    if mechanism not in {*ADAPTIVE, *RETIRED}:
        if given:
            names = ", ".join(given)
            raise DPError(f"{names}: mechanism {as_sql(mechanism)} does not take that; mechanism := 'neyman' does.")
        return ()
    if not adaptive:
        raise DPError(
            f"{function}: mechanism '{mechanism}' answers marginals; use dp_marginals, or mechanism := 'auto'."
        )
    for name, value in given.items():
        numbers = value if isinstance(value, list) else [value]
        if any(isinstance(each, float) and not math.isfinite(each) for each in numbers):  # which a request cannot hold
            raise DPError(f"{name} is {as_sql(value)}; it is a number, e.g. {name} := 20.")
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in sorted(given.items()))


def release_numbers(session: Session, given: Any) -> list[int]:
    """The stored releases that an adaptive mechanism starts from: numbers, so that a name's later release is another request."""
    keys = given if isinstance(given, list) else [given]
    if not keys or not all(isinstance(key, str | int) and not isinstance(key, bool) for key in keys):
        raise DPError(f"given is {as_sql(given)}; write the names of releases, e.g. given := ['overview'].")
    return sorted({session.ledger.release(key).id for key in keys})
