"""How much one unit changes the sums of groups."""

import math

from duckdb_dp.grouped_sums import GroupedSums, Sum


def squared(part: GroupedSums, one: Sum, rows: int, *, pure: bool) -> float:
    """The squared sensitivity of a sum in steps, as that of one row: of a unit it is k^2 times as much.

    A unit that counts once in each of the groups that its k rows may be in changes as many counts by 1, which is their square root in
    L2 and their number in L1; where there is one group, it is 1. A unit that has d distinct values at most changes a group's number of
    them by d at most, and k rows have k values in all groups together: that is most where as many groups as can be have d.

    Args:
        part, one: the sum and its groups.
        rows: the rows k of a unit.
        pure: whether it is in L1, for Laplace noise, or in L2.
    """
    if one.norm:
        # Of two sums, that of rows with and without a number, an owner may change both; a total is rounded by 1 at most.
        cells = part.size * (2 if one.kind in ("known", "missing") else 1)
        return (one.steps + (cells if pure else math.sqrt(cells))) ** 2
    if one.distinct or one.each:
        most = 1 if one.distinct else min(one.each, rows)
        full, left = divmod(min(rows, most * part.size), most)
        changed = full * most + left if pure else math.sqrt(full * most**2 + left**2)
        return (changed / rows) ** 2
    return float(one.steps) ** 2
