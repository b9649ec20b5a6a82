"""Budgets: what a request or a dataset may spend, as the user typed it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real

from duckdb_dp.errors import DPError, as_sql

_SMALLEST, _LARGEST = 1e-100, 1e100  # squares and conversions of anything in between stay inside a double
_SMALLEST_DELTA = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One privacy budget: epsilon with a delta, rho (zCDP) or mu (GDP), and never two of them.

    A mechanism M is (epsilon, delta)-DP when P[M(D) in S] <= e^epsilon P[M(D') in S] + delta for all neighbours
    D, D' and all S; delta 0 is pure DP. `Budget(epsilon=1)` leaves delta open; `with_delta` fills in the dataset's.
    Numbers are kept as floats, so that 1, 1.0 and Decimal('1') are the same budget.

    Privacy: states a bound; spends nothing.
    """

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "rho", "mu"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _number(name, getattr(self, name)))
        typed = [
            f"{name} {getattr(self, name):g}" for name in ("epsilon", "rho", "mu") if getattr(self, name) is not None
        ]
        if len(typed) > 1:
            raise DPError(f"{' and '.join(typed)} are {len(typed)} budgets: type exactly one of epsilon, rho and mu.")
        if not typed:
            found = "no budget" if self.delta is None else f"delta {self.delta:g} alone is no budget"
            raise DPError(f"{found}: type exactly one of epsilon, rho and mu, such as epsilon := 1.")
        for name in ("epsilon", "rho", "mu"):
            _check_size(name, getattr(self, name))
        if self.delta is not None:
            _check_delta(self.delta)
            if self.epsilon is None:
                raise DPError(f"{typed[0]} takes no delta: leave out delta {self.delta:g}, or type epsilon with it.")

    def with_delta(self, delta: float | None) -> Budget:
        """This budget, with `delta` filled in where epsilon was typed without one.

        Privacy: states a bound; spends nothing.
        """
        return replace(self, delta=delta) if self.epsilon is not None and self.delta is None else self

    def __str__(self) -> str:
        values = ((name, getattr(self, name)) for name in ("epsilon", "delta", "rho", "mu"))
        return ", ".join(f"{name} {value:g}" for name, value in values if value is not None)


def reserved_delta(discovery_delta: object) -> float:
    """A discovery_delta as a number.

    Raises:
        DPError: it is no delta.
    """
    try:
        return Budget(epsilon=1, delta=discovery_delta).delta or 0.0  # type: ignore[arg-type]
    except DPError as error:
        raise DPError(f"discovery_{error}") from None


def _number(name: str, value: object) -> float:
    """`value` as a float; text, truth values, NaN and infinities are refused."""
    if isinstance(value, bool):  # what DuckDB makes of unit = 'a', a comparison in the place of the first argument
        raise DPError(
            f"{name} {as_sql(value)} is not a number: a number such as {_example(name)} works. A named argument is written "
            f"with :=, as {name} := {_example(name)}; with = it is a comparison."
        )
    if not isinstance(value, Real | Decimal):
        raise DPError(f"{name} {as_sql(value)} is not a number: a number such as {_example(name)} works.")
    try:
        number = float(value)
    except (OverflowError, ValueError):  # an integer beyond a double; a signalling NaN
        number = math.nan
    if not math.isfinite(number):
        raise DPError(f"{name} {value} is not a finite number: a number such as {_example(name)} works.")
    return number


def _example(name: str) -> str:
    return "1e-9" if name == "delta" else "1"


def _check_size(name: str, value: float | None) -> None:
    if value is not None and not _SMALLEST <= value <= _LARGEST:
        wrong = "is not positive" if value <= 0 else "is out of range"
        raise DPError(f"{name} {value:g} {wrong}: a number from {_SMALLEST:g} to {_LARGEST:g}, such as 1, works.")


def _check_delta(delta: float) -> None:
    if delta != 0 and not _SMALLEST_DELTA <= delta < 1:
        raise DPError(
            f"delta {delta:g} is not between 0 and 1 (at least {_SMALLEST_DELTA:g}): 1e-9 works, or 0 for pure DP."
        )
