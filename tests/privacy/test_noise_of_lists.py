"""What is measured of a list, all together, covers one unit: its noise is compared with how far neighbours are apart.

With Gaussian noise the squares of ``|difference| / stddev`` of all measurements add up to at most mu^2, with Laplace noise
``|difference|_1 / scale`` to at most epsilon; and a unit with as many rows as are allowed comes near to it.
"""

import math
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp.answers import direct_plan
from duckdb_dp.sql import execute
from tests.privacy.test_sums_neighbours import SeenError

LISTS = [
    ["SELECT count(*) AS a FROM owners", "SELECT count(*) AS b FROM visits"],
    ["SELECT t, count(*) AS a FROM owners GROUP BY t", "SELECT sum(w) AS b FROM visits", "SELECT count(*) AS c FROM tests"],
    ["SELECT median(y) AS a FROM owners", "SELECT t, sum(w) AS b, count(*) AS c FROM owners JOIN visits USING (id) GROUP BY t"],
    ["SELECT avg(y) AS a FROM owners", "SELECT median(x) AS b FROM visits", "SELECT count(*) AS c FROM visits JOIN tests USING (visit)"],
    ["SELECT count(DISTINCT x) AS a FROM visits", "SELECT t, count(DISTINCT id) AS b FROM owners JOIN visits USING (id) GROUP BY t"],
]  # fmt: skip


def fill(con: duckdb.DuckDBPyConnection, rng: random.Random, without: int | None = None) -> None:
    """Owners, of whom the first has more rows than are allowed; rows of one of them are left out."""
    for table in ("owners", "visits", "tests"):
        con.execute(f"DELETE FROM {table}")
    for one in range(6):
        rows = [(one, "pq"[one % 2], rng.randrange(9))]
        visits = [
            (one, 10 * one + i, i if one == 0 else rng.randrange(9), 8 if one == 0 else 1)
            for i in range(6 if one == 0 else rng.randrange(5))
        ]
        tests = [(visit, 7) for _, visit, *_ in visits for _ in range(4 if one == 0 else rng.randrange(4))]
        if one != without:
            for table, held in (("owners", rows), ("visits", visits), ("tests", tests)):
                marks = ", ".join("?" for _ in held[0]) if held else ""
                for row in held:
                    con.execute(f"INSERT INTO {table} VALUES ({marks})", row)


def measured(con: duckdb.DuckDBPyConnection, asked: list[str], budget: str) -> tuple[Any, list[np.ndarray]]:
    """The request, and the exact answers of everything that it measures."""
    found: list[Any] = []

    def stop(_session: Any, request: Any, counts: Any, *_: Any, **__: Any) -> None:
        plan = direct_plan(request)
        found.append((request, [m.strategy.matvec(counts.marginal(m.clique).astype(float)) for m in plan.measurements]))
        raise SeenError

    with patch.object(execute, "_draw", stop), pytest.raises(duckdb.Error, match="SeenError"):
        con.execute(f"FROM dp_sql(?, {budget})", [asked]).fetchall()
    return found[0]


@pytest.mark.parametrize("asked", LISTS)
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("bound", ["", ", max_rows := 4"], ids=["declared", "asked"])
def test_the_noise_of_a_list_covers_a_unit_and_little_more(
    bound: str, pure: bool, asked: list[str], tmp_path: Path
) -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE owners (id BIGINT PRIMARY KEY, t VARCHAR, y BIGINT)")
    con.execute(
        "CREATE TABLE visits (id BIGINT, visit BIGINT PRIMARY KEY, x BIGINT, w BIGINT); CREATE TABLE tests (visit BIGINT, z BIGINT)"
    )
    duckdb_dp.testing.load(con, tmp_path / "l.dp", seed=1)
    con.execute("""CALL dp_link('visits', "references" := {'id': 'owners.id'})""")
    con.execute("""CALL dp_link('tests', "references" := {'visit': 'visits.visit'})""")
    budget, spends = (
        ("epsilon := 1", "epsilon := 1000, delta := 0") if pure else ("mu := 1", "mu := 1000, delta := 1e-9")
    )
    rows = "max_rows := {'owners': 1, 'visits': 4, 'tests': 12}"
    con.execute(f"CALL dp_protect(['owners', 'visits', 'tests'], unit := 'owners.id', {spends}, {rows})")
    con.execute("CALL dp_attribute('owners', 't', \"values\" := ['p', 'q'])")
    con.execute("CALL dp_attribute('owners', 'y', low := 0, high := 8)")
    con.execute("CALL dp_attribute('visits', 'x', low := 0, high := 8)")
    con.execute("CALL dp_attribute('visits', 'w', low := 0, high := 8)")
    most = 0.0
    for gone in range(6):
        answers = []
        for without in (None, gone):
            fill(con, random.Random(5), without)
            request, found = measured(con, asked, budget + bound)
            answers.append(found)
        plan = direct_plan(request)
        apart = [np.abs(one - other) for one, other in zip(*answers, strict=True)]
        stddevs = [math.sqrt(one.variance) for one in plan.measurements]
        if pure:
            cost = sum(one.sum() * math.sqrt(2) / stddev for one, stddev in zip(apart, stddevs, strict=True))
        else:
            cost = sum((one**2).sum() / stddev**2 for one, stddev in zip(apart, stddevs, strict=True))
        assert cost <= 1
        most = max(most, cost)
    assert most > 0.25
