"""Lists with both routes on neighbouring tables: one unit changes the counts by its rows, each sum by its bound, and no more."""

import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.sums import ExactSums
from duckdb_dp.grouped_sums import sum_name
from duckdb_dp.sql import execute
from tests.privacy.test_sums_neighbours import SeenError, fill, rows

LIST = [
    "SELECT g, count(*) AS c FROM t GROUP BY g",
    "SELECT n, count(*) AS c FROM t WHERE g = 'p' GROUP BY n",
    "SELECT g, n, count(*) AS c FROM t GROUP BY CUBE (g, n)",
    "SELECT g, sum(x) AS s FROM t WHERE x BETWEEN -2 AND 8 GROUP BY g",
    "SELECT count(*) AS c FROM t WHERE s LIKE 'a%'",
]


def seen(con: duckdb.DuckDBPyConnection) -> tuple[Counts, list[np.ndarray], list[int]]:
    """The exact counts that are planned, the sums, and how many steps a row adds to each."""
    found: list[Any] = []

    def stop(parts: Any, blocks: Any, counts: Any) -> None:
        exact, sums = ExactSums(parts, blocks, counts), [one for part in parts for one in part.sums]
        found.append((counts, [exact.marginal(sum_name(i)) for i in range(len(sums))], [one.steps for one in sums]))
        raise SeenError

    with patch.object(execute, "ExactSums", stop), pytest.raises(duckdb.Error, match="SeenError"):
        con.execute("FROM dp_sql(?, mu := 1)", [LIST]).fetchall()
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("bound", [None, 1, 3])
def test_a_unit_changes_counts_and_sums_by_their_bounds(bound: int | None, tmp_path: Path) -> None:
    con, rng = duckdb.connect(), random.Random(4)
    con.execute("CREATE TABLE t (u BIGINT, g VARCHAR, n INTEGER, x DOUBLE, s VARCHAR, w BIGINT, y DOUBLE)")
    duckdb_dp.testing.load(con, tmp_path / "l.dp", seed=1)
    of = "" if bound is None else f"unit := 'u', max_rows := {bound}, "
    con.execute(f"CALL dp_protect('t', {of}mu := 1000, delta := 1e-9)")
    con.execute("CALL dp_attribute('t', 'g', \"values\" := ['p', 'q', 'r'])")
    con.execute("CALL dp_attribute('t', 'n', low := 0, high := 3, nulls := true)")
    changed = False
    for _ in range(4):
        held = rows(rng, 25)
        fill(con, held)
        counts, sums, steps = seen(con)
        gone = rng.choice([row for row in held if row[0] is not None])
        rest = [row for row in held if (row[0] != gone[0] if bound is not None else row is not gone)]
        fill(con, rest)
        fewer, smaller, _ = seen(con)
        most = bound or 1
        # The plan's cost is that of one vector of at most so many rows, the same for all marginals.
        joint = counts.marginal(("g", "n")) - fewer.marginal(("g", "n"))
        assert (joint >= 0).all()
        assert joint.sum() <= most
        assert bound is not None or joint.sum() == 1  # each row is in a cell, whatever its values are
        for clique, axis in ((("g",), 1), (("n",), 0)):
            apart = counts.marginal(clique) - fewer.marginal(clique)
            assert apart.tolist() == joint.reshape(counts.domain.shape(("g", "n"))).sum(axis=axis).tolist()
        for one, other, step in zip(sums, smaller, steps, strict=True):
            assert np.abs(one - other).sum() <= most * step
            changed = changed or bool((one != other).any())
    assert changed
