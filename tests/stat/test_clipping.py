"""Sums that are clipped at a chosen norm: intervals hold the clipped sum, and the bound suits the data."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

import duckdb_dp
from duckdb_dp.answers import load
from duckdb_dp.sql import execute

SHAPES = {
    "even": lambda rng: rng.integers(1, 9, 2000),
    "skewed": lambda rng: np.ceil(rng.lognormal(1.5, 1.2, 2000)).astype(int),
    "a few heavy units": lambda rng: np.concatenate([rng.integers(1, 5, 2000), [9_000, 20_000]]),
}
DRAWS = 200


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["delta := 1e-9", "delta := 0"])
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_hold_the_clipped_sum_and_the_bound_suits_the_data(tmp_path: Path, shape: str, budget: str) -> None:
    rows = SHAPES[shape](np.random.default_rng(5))
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT unnest(?) AS u, unnest(?) AS n", [list(range(len(rows))), rows.tolist()])
        con.execute("CREATE TABLE r AS SELECT u FROM t, range(n)")
        duckdb_dp.load(con, ledger=f"{tmp_path}/l.dp")
        con.execute(f"CALL dp_protect('r', unit := 'u', max_rows := 'auto', epsilon := 1e4, {budget})")
        drawn: list[Any] = []
        draw = execute._draw

        def kept(session: Any, *arguments: Any, **named: Any) -> str:
            drawn[:] = [session, draw(session, *arguments, **named)]
            return str(drawn[1])

        held, whole, taus, errors = 0, 0, [], []
        with patch.object(execute, "_draw", kept):
            for _ in range(DRAWS):  # each with a bound of its own
                con.execute("FROM dp_sql('SELECT count(*) AS n FROM r', epsilon := 1, fresh := true)").fetchall()
                session, release = drawn
                answers = load(session.ledger, session.release_of("dp_sql", release))
                ((answer,),), ((stddev,),) = answers.parts([0]), answers.stddevs([0])
                ((tau,),) = answers.found(0)
                held += abs(answer - np.minimum(rows, tau).sum()) <= answers.sums.quantile * stddev
                whole += abs(answer - rows.sum()) <= answers.sums.quantile * stddev
                taus.append(tau)
                errors.append(abs(answer - rows.sum()))
    assert len(set(taus)) > 1
    assert 0.90 <= held / DRAWS <= 0.99
    if shape != "a few heavy units":  # whom no answer can hold
        assert whole / DRAWS >= 0.6, "what is left out suits the noise"
    ordered = np.sort(rows)
    # Bounds that are far too large, which would ruin the mean, are as rare.
    assert np.mean(np.array(taus) > 16 * ordered[-3]) <= 0.02
    best = min(np.maximum(rows - tau, 0).sum() + 2 * tau for tau in 2.0 ** np.arange(0, 16))
    worst = {"even": 8, "skewed": 12, "a few heavy units": 12}[shape]
    assert np.mean(errors) <= worst * best * (6 if budget == "delta := 1e-9" else 1)


@pytest.mark.slow
@pytest.mark.parametrize("accounting", ["delta := 1e-9", "delta := 0"])
def test_averages_of_few_units_are_told_with_little_budget(tmp_path: Path, accounting: str) -> None:
    """Ratings from 1 to 5 of 3,000 people: a bound is told at an epsilon of 0.2, as no candidate is below what one rating adds."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE r AS SELECT i % 3000 AS who, 1 + (hash(i) % 5)::INTEGER AS stars, (i % 500)::DECIMAL(8, 2) AS fee FROM range(12000) t(i)"
        )
        duckdb_dp.load(con, ledger=f"{tmp_path}/l.dp")
        con.execute(f"CALL dp_protect('r', unit := 'who', max_rows := 'auto', epsilon := 1e4, {accounting})")
        con.execute("CALL dp_attributes('r', {'stars': [1, 2, 3, 4, 5]})")
        truth = con.execute("SELECT avg(stars) FROM r").fetchall()[0][0]
        found = [
            con.execute("FROM dp_sql('SELECT avg(stars) AS m FROM r', epsilon := 0.2, fresh := true)").fetchall()[0]
            for _ in range(40)
        ]
    assert sum(row[0] is not None for row in found) >= 38
    assert sum(row[2] <= truth <= row[3] for row in found if row[0] is not None) >= 32
