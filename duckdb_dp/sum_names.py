"""The names of sums among marginals, and the fineness of their grids: what counts alone need of sums."""

from duckdb_dp.domain.domain import Clique

BITS = 30
"""Values are rounded to multiples of 2^(e - BITS), where 2^e is the smallest power of 2 that none exceeds."""

PER_OCTAVE = 4
"""Candidates for a bound in each octave."""

MARK = "#"
"""What the names of sums begin with, and those of no attribute that is counted beside them."""


def sum_name(index: int) -> Clique:
    """What the i-th sum of a request is called where marginals are named by attributes."""
    return (f"{MARK}{index}",)


def sum_number(name: Clique) -> int | None:
    """The inverse, of a histogram too; None of a marginal."""
    return int(name[0][len(MARK) :]) if name and name[0].startswith(MARK) else None
