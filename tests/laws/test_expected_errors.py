"""The error that is expected of unbiased answers is that of the plan, of all marginals that are asked, however many there are."""

import math

import pytest

from duckdb_dp.noise.kinds import GAUSSIAN
from tests.conftest import Loaded

ROWS = 7_000
DOMAINS = {
    "narrow": (2, 3, 4),
    "wide": (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40),
    "uneven": (2, 2, 2, 2, 2, 2, 2, 2, 2, 400),
}


def declare(db: Loaded, sizes: tuple[int, ...], budget: str) -> None:
    """A table of one row, as none is read."""
    db(f"CREATE TABLE wide AS SELECT {', '.join(f'0 AS c{i}' for i in range(len(sizes)))}")
    db(f"CALL dp_protect('wide', {budget})")
    for i, size in enumerate(sizes):
        db(f"CALL dp_attribute('wide', 'c{i}', low := 0, high := {size - 1})")


def agree(db: Loaded, asked: str) -> set[str]:
    """The mechanisms whose expected errors were compared with the standard deviations of what is asked."""
    expected = db(
        f"SELECT mechanism, noise, expected_error FROM dp_explain('wide', {asked}, mechanism := 'all', rows := {ROWS}) "
        "WHERE reading = 'unbiased' AND rmse IS NOT NULL"
    )
    for mechanism, noise, error in expected:
        ((mean,),) = db(f"SELECT avg(cells * stddev) FROM dp_explain('wide', {asked}, mechanism := '{mechanism}')")
        size = 1 / 2 if mechanism == "laplace" and noise != GAUSSIAN.name else 2 / math.pi
        assert error == pytest.approx(math.sqrt(size) * mean / ROWS, rel=1e-5), mechanism
    return {mechanism for mechanism, *_ in expected}


@pytest.mark.parametrize(
    ("domain", "order"),
    [
        pytest.param(domain, order, marks=[pytest.mark.slow] if order > 1 else [])
        for domain in DOMAINS
        for order in (1, 2, 3)
    ],
)
def test_of_unbiased_answers_it_follows_from_the_plan(db: Loaded, domain: str, order: int) -> None:
    declare(db, DOMAINS[domain], "mu := 9, delta := 1e-9")
    found = agree(db, f"'all {order}-way', mu := 0.5")
    assert {"residual", "gaussian", "hdmm", "querysmasher", "residual_plus", "wff", "laplace"} == found


def test_of_marginals_of_different_sizes_under_pure_privacy(db: Loaded) -> None:
    declare(db, DOMAINS["wide"], "epsilon := 9, delta := 0")
    assert agree(db, "[['c0'], ['c11'], ['c3', 'c10'], ['c1', 'c2', 'c5']], epsilon := 0.5") == {"hdmm", "laplace"}
