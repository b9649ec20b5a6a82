"""How far distributions of a synthetic database are from those of the original one."""

from collections.abc import Iterable

import duckdb


def distances(con: duckdb.DuckDBPyConnection, queries: Iterable[str]) -> list[float]:
    """L1 distances, of queries of cells with their numbers of rows, in which {0} stands for the schema."""
    found = []
    for query in queries:
        real, made = ({row[:-1]: row[-1] for row in con.execute(query.format(s)).fetchall()} for s in ("main", "syn"))
        cells, totals = real.keys() | made.keys(), (sum(real.values()), sum(made.values()))
        found.append(sum(abs(real.get(cell, 0) / totals[0] - made.get(cell, 0) / totals[1]) for cell in cells))
    return found
