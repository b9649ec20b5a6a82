"""Between which numbers expressions of declared columns are clamped: as conditions say, or between bounds that are chosen."""

import math
from collections.abc import Mapping, Sequence

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.expression_bounds import Bounds, apart, limits_of
from duckdb_dp.sql.same_conditions import form


def said(
    value: exp.Expr,
    found: Bounds | None,
    conditions: Sequence[exp.Expr],
    declared: Mapping[str, Attribute],
    *,
    average: bool,
) -> Bounds | None:
    """The bounds of a value, by its conditions; None where they are to be chosen.

    Two days of some years may be these years apart, and hardly are: an average of differences of dates, and of what is worked out of
    them, has chosen bounds unless conditions say both, or least and greatest do. A sum has those of the declarations, as a few long ones
    may be much of it.

    Args:
        value: a checked expression.
        found: its bounds by those of its columns; None where there are none.
        conditions: all of which hold.
        declared: the declarations, by name.
        average: whether it is averaged.
    """
    if found is None or form() < 4 or isinstance(value.unnest(), exp.Column):
        return found
    chosen = _apart(value, declared)  # up to form 4, of a bare difference
    if form() >= 5:
        narrow, wide = (apart(value, declared, conditions, anywhere=each) for each in (False, True))
        found, chosen = narrow or found, narrow != wide
    least, most = limits_of(value, conditions)
    if least > found[1] or found[0] > most:
        return found
    if average and chosen and not math.isfinite(most - least):
        return None
    low, high = max(least, found[0]), min(most, found[1])
    return min(low, high), max(low, high)  # of conditions that nothing satisfies


def _apart(value: exp.Expr, declared: Mapping[str, Attribute]) -> bool:
    """Whether it is how far two declared dates of a row are apart."""
    inner = value.unnest()
    ends = [inner.this.unnest(), inner.expression.unnest()] if isinstance(inner, exp.Sub) else []
    known = [declared.get(end.name) for end in ends if isinstance(end, exp.Column)]
    return len(known) == 2 and all(one is not None and not one.dtype.numeric for one in known)
