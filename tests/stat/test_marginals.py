"""The noise in marginals: as large as predicted in every cell, unbiased, covered by the intervals.

Each test has power: it accepts what is drawn and rejects the same with its scale 5 % off, 8 % where one cell has to tell.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

import duckdb_dp
from duckdb_dp.accounting.base import GDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import declare
from duckdb_dp.plan.base import Plan
from duckdb_dp.private import measure
from duckdb_dp.request import Question, Request
from duckdb_dp.testing import SeededEntropy

ACCEPT = 1e-6  # of a right sampler one seed in a million fails; the seed here is fixed
WRONG, WRONG_IN_A_CELL = (0.95, 1.05), (0.92, 1.08)
ROUNDS = 5000
SIZES = {"age": 4, "sex": 2, "one": 1, "race": 3}
CLIQUES = [("age", "sex"), ("age", "sex", "one"), ("sex", "race"), ("race",), ()]
CASES = {
    "residual": ("residual", "total", None),
    "residual, weights": ("residual", "total", [1.0, 5.0, 0.2, 3.0, 0.5]),
    "residual, max": ("residual", "max", None),
    "gaussian": ("gaussian", "total", None),
    "gaussian, weights": ("gaussian", "total", [1.0, 5.0, 0.2, 3.0, 0.5]),
}
JOINT = (np.arange(24) * 7 % 11).reshape(4, 2, 1, 3)  # the exact counts
AXES = list(SIZES)


class Once:
    """A ledger that remembers one release and forgets it: nothing but the noise is tested here."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.state, self.choices = "charged", ()

    def charge(self, **_: Any) -> "Once":
        return self

    def store(self, _: "Once", arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays


@dataclass(frozen=True)
class Drawn:
    plan: Plan
    errors: list[np.ndarray]  # (rounds, cells) of each marginal
    answers: list[np.ndarray]


def exact(clique: tuple[str, ...]) -> np.ndarray:
    return JOINT.sum(axis=tuple(axis for axis, name in enumerate(AXES) if name not in clique)).reshape(-1)


@cache
def draw(case: str) -> Drawn:
    """Many draws of one request, through the queryable that all noise goes through."""
    mechanism, objective, weights = CASES[case]
    attributes = tuple(declare(name=name, type="INTEGER", low=0, high=size - 1) for name, size in SIZES.items())
    request = Request(
        function="dp_marginals",
        catalog="memory",
        schema="main",
        table="t",
        unit=None,
        max_rows=1,
        accounting=GDP,
        attributes=attributes,
        questions=tuple(Question.marginal(c, w) for c, w in zip(CLIQUES, weights or [1.0] * len(CLIQUES), strict=True)),
        cost=0.49,
        mechanism=mechanism,
        objective=objective,
    )
    plan = duckdb_dp.plan(request.workload, mechanism=mechanism, mu=math.sqrt(request.calibrated), objective=objective)
    bits = SeededEntropy(20)
    table = exact(("age", "sex", "one", "race"))
    counts = Counts(request.domain, {tuple(AXES): (np.arange(24), table)})
    answers: list[list[np.ndarray]] = [[] for _ in CLIQUES]
    for _ in range(ROUNDS):
        ledger = Once()
        measure(plan, counts, request=request, ledger=ledger, dataset=None, bits=bits)  # type: ignore[arg-type]
        noisy = {m.clique: ledger.arrays[str(i)] for i, m in enumerate(plan.measurements)}
        estimates = plan.estimates(noisy)
        for index in range(len(CLIQUES)):
            answers[index].append(plan.answer(index, estimates).reshape(-1))
    stacked = [np.array(found) for found in answers]
    return Drawn(plan, [found - exact(clique) for found, clique in zip(stacked, CLIQUES, strict=True)], stacked)


def variance_test(errors: np.ndarray, variance: float) -> float:
    """Two-sided p-value of the chi-square test that independent errors have a variance."""
    statistic = float((errors**2).sum() / variance)
    return 2 * min(stats.chi2.cdf(statistic, errors.size), stats.chi2.sf(statistic, errors.size))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_variance_of_every_cell(case: str) -> None:
    drawn = draw(case)
    for index in range(len(CLIQUES)):
        variance = float(drawn.plan.variance(index))
        for cell in drawn.errors[index].T:
            assert variance_test(cell, variance) > ACCEPT
            assert all(variance_test(cell, variance * wrong**2) < ACCEPT for wrong in WRONG_IN_A_CELL)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_cell_is_unbiased(case: str) -> None:
    drawn = draw(case)
    for index in range(len(CLIQUES)):
        error = drawn.plan.stddev(index) / math.sqrt(ROUNDS)
        means = drawn.errors[index].mean(axis=0)
        assert np.abs(means).max() < 5 * error
        assert np.abs(means + 0.1 * drawn.plan.stddev(index)).max() > 5 * error  # a bias of a tenth would show


@cache
def likely(inside: int) -> float:
    """The p-value of so many intervals that hold the truth."""
    return float(stats.binomtest(inside, ROUNDS, 0.95).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_intervals_cover_95_percent(case: str) -> None:
    drawn = draw(case)
    for index in range(len(CLIQUES)):
        for cell in drawn.errors[index].T:

            def coverage(scale: float, cell: np.ndarray = cell, index: int = index) -> float:
                return likely(int((np.abs(cell) <= scale * 1.959963984540054 * drawn.plan.stddev(index)).sum()))

            assert coverage(1.0) > ACCEPT
            assert coverage(0.88) < ACCEPT
            assert coverage(1.15) < ACCEPT


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_errors_are_normal(case: str) -> None:
    drawn = draw(case)
    for index in range(len(CLIQUES)):
        for cell in drawn.errors[index].T:
            assert stats.kstest(cell / drawn.plan.stddev(index), "norm").pvalue > ACCEPT


def summed(drawn: Drawn, index: int, onto: tuple[str, ...]) -> np.ndarray:
    clique = CLIQUES[index]
    table = drawn.answers[index].reshape(ROUNDS, *(SIZES[name] for name in clique))
    return table.sum(axis=tuple(1 + axis for axis, name in enumerate(clique) if name not in onto)).reshape(ROUNDS, -1)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if "residual" in case])
def test_residuals_answers_agree_with_each_other(case: str) -> None:
    drawn = draw(case)
    for i, first in enumerate(CLIQUES):
        for j, second in enumerate(CLIQUES):
            common = tuple(name for name in first if name in second)
            difference = np.abs(summed(drawn, i, common) - summed(drawn, j, common)).max()
            assert difference < 1e-6 * min(drawn.plan.stddev(i), drawn.plan.stddev(j))


@pytest.mark.slow
def test_independent_noise_does_not_agree() -> None:
    drawn = draw("gaussian")
    assert np.abs(summed(drawn, 0, ("sex",)) - summed(drawn, 2, ("sex",))).mean() > drawn.plan.stddev(0)


@pytest.mark.parametrize("mechanism", ["residual", "gaussian"])
def test_from_sql_and_through_the_ledger(db, mechanism: str) -> None:
    """30,000 cells at once: of a single marginal the noise of both mechanisms is independent from cell to cell."""
    db(
        "CREATE TABLE t AS SELECT (i * i % 300)::INTEGER AS a, (i % 100)::INTEGER AS b FROM range(50_000) t(i); CALL dp_protect('t', mu := 10)"
    )
    db("CALL dp_attribute('t', 'a', low := 0, high := 299); CALL dp_attribute('t', 'b', low := 0, high := 99)")
    truth = "SELECT a, b, count(*) AS n FROM t GROUP BY ALL"
    rows = db(
        f"SELECT count - coalesce(n, 0), stddev, coalesce(n, 0) BETWEEN ci_low AND ci_high FROM dp_marginals('t', ['a', 'b'], mu := 0.5, "
        f"mechanism := '{mechanism}') LEFT JOIN ({truth}) USING (a, b)"
    )
    errors, stddevs, covered = (np.array(column) for column in zip(*rows, strict=True))
    (stddev,) = set(stddevs.tolist())
    assert stddev == pytest.approx(2, rel=1e-8)
    assert variance_test(errors, stddev**2) > ACCEPT
    assert all(variance_test(errors, (stddev * wrong) ** 2) < ACCEPT for wrong in WRONG)
    assert abs(errors.mean()) < 5 * stddev / math.sqrt(len(errors))
    assert stats.binomtest(int(covered.sum()), len(covered), 0.95).pvalue > ACCEPT


def test_fresh_draws_are_independent(db) -> None:
    db(
        "CREATE TABLE t AS SELECT 1 AS a; CALL dp_protect('t', mu := 100); CALL dp_attribute('t', 'a', low := 0, high := 9_999)"
    )
    draws = [
        np.array(db("SELECT count FROM dp_marginals('t', ['a'], mu := 1, fresh := true) ORDER BY a")).ravel()
        for _ in range(3)
    ]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(draws[first], draws[second])[0, 1]) < 5 / math.sqrt(10_000)
    assert abs(np.corrcoef(draws[0][:-1], draws[0][1:])[0, 1]) < 5 / math.sqrt(10_000)
