"""What counts of a unit however many rows it has: itself, once in each group, and so many of its distinct values."""

from collections.abc import Sequence

from duckdb_dp.counting.encode import literal
from duckdb_dp.grouped_sums import GroupedSums


def counted_once(
    rows: str, part: GroupedSums, key: str, units: str, cells: Sequence[str], added: Sequence[str], more: Sequence[str]
) -> str:
    """The rows, of which each unit counts once in each group where units are counted, and has no more values than it may have.

    Keys say that it has no more. Here none of its further ones count, so that the noise is enough whatever the tables hold. Which ones
    do depends on that unit's rows alone: they are ordered by a keyed hash, and where hashes tie by themselves.

    Args:
        rows: SQL of the rows that count.
        part: what they add to.
        key: of the hash.
        units: columns that tell units apart.
        cells: columns that say in which group a row is.
        added: columns of what a row adds to each sum.
        more: other columns.
    """
    if not any(one.distinct or one.each for one in part.sums):
        return rows
    columns = []
    for one, name in zip(part.sums, added, strict=True):
        if one.distinct:
            apart = ", ".join([units, *cells, f"{name} IS NULL"])
            columns.append(f"CASE WHEN row_number() OVER (PARTITION BY {apart}) = 1 THEN {name} END AS {name}")
        elif one.each:
            order = f"{name} IS NULL, hash({literal(key)}, {name}), {name}"
            rank = f"dense_rank() OVER (PARTITION BY {units} ORDER BY {order})"
            columns.append(f"CASE WHEN {rank} <= {one.each} THEN {name} END AS {name}")
        else:
            columns.append(name)
    return f"SELECT {', '.join([*cells, *columns, *more])} FROM ({rows})"
