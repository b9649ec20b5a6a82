"""The bet: bounds that hold, and that are as tight as they can be."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from duckdb_dp.accounting.base import GDP, PURE, ZCDP
from duckdb_dp.accounting.convert import gdp_epsilon, zcdp_epsilon
from duckdb_dp.plan.choose import PLANNERS, PURE_PLANNERS
from duckdb_dp.reporting import words
from duckdb_dp.reporting.words import count, guess, number, percent, protected
from duckdb_dp.request import ADAPTIVE, RETIRED
from duckdb_dp.request import SYNTHESES as FUNCTIONS
from duckdb_dp.sql.dp_marginals import POSTPROCESSES
from duckdb_dp.synthesis.links.methods import METHODS as LINKING
from duckdb_dp.synthesis.table.methods import METHODS as SYNTHESISING


def test_every_mechanism_has_one_sentence() -> None:
    assert set(words.MECHANISMS) == {*PLANNERS, *PURE_PLANNERS, *ADAPTIVE, *RETIRED}
    assert set(words.SYNTHESES) == set(words.SYNTHETIC) == set(FUNCTIONS)
    assert set(words.SYNTHESES["dp_synthesize"]) == set(SYNTHESISING)
    assert set(words.SYNTHESES["dp_links"]) == set(LINKING)
    assert set(words.PROCESSED) == set(POSTPROCESSES) - {"unbiased"}
    tables = [words.MECHANISMS, words.SYNTHESES["dp_synthesize"], words.SYNTHESES["dp_links"], words.PROCESSED]
    for sentence in (sentence for table in tables for sentence in table.values()):
        assert sentence[0].isupper()
        assert sentence.endswith(".")


def test_a_mechanism_is_told_by_its_function() -> None:
    assert "GReM" in words.mechanism({"function": "dp_marginals", "mechanism": "aim"})
    assert "rows were drawn" in words.mechanism({"function": "dp_synthesize", "mechanism": "aim"})
    assert words.mechanism({"function": "dp_later", "mechanism": "later"}) == ""


def test_two_units_are_told_in_words() -> None:
    noun, meaning = protected({"dataset": "ratings", "unit": '[["user_id"],["movie_id"]]'}, 5)
    assert noun == "one user_id or movie_id"
    assert "all of its up to 5 rows" in meaning
    assert "was promised" in meaning


def best_guess(mu: float) -> float:
    """The best test of N(0, 1) against N(mu, 1) by brute force over thresholds."""
    thresholds = np.linspace(-8, 8 + mu, 200_001)
    return float(np.max((norm.cdf(thresholds) + norm.sf(thresholds - mu)) / 2))


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0])
def test_the_bet_is_exact_for_gaussian_noise_and_a_bound_for_the_rest(mu: float) -> None:
    exact = best_guess(mu)
    assert guess(accounting=GDP, cost=mu**2, epsilon=None, delta=None) == pytest.approx(exact, abs=1e-6)
    for delta in (1e-9, 1e-3):
        assert guess(accounting=PURE, cost=0, epsilon=gdp_epsilon(mu, delta), delta=delta) >= exact - 1e-9
        rho = mu**2 / 2
        assert 1 >= guess(accounting=ZCDP, cost=rho, epsilon=zcdp_epsilon(rho, delta), delta=delta) >= exact - 1e-9


def test_the_bet_is_exact_for_randomised_response() -> None:
    for epsilon in (0.1, 1.0, 5.0):
        truth = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert guess(accounting=PURE, cost=epsilon, epsilon=epsilon, delta=0.0) == pytest.approx(truth, rel=1e-12)
    assert guess(accounting=PURE, cost=1e6, epsilon=1e6, delta=0.0) == pytest.approx(1)


def test_without_any_bound_it_is_certain() -> None:
    assert guess(accounting=PURE, cost=1, epsilon=None, delta=None) == 1


@pytest.mark.parametrize(
    ("value", "half", "shown"),
    [
        (1234.5678, 91.0, "1,234 or 1,235"), (-0.3, 20.0, "0"), (-38.4, 84.0, "−38"), (1.23456, 0.5, "1.23"), (12.34, 4.0, "12.3"),
        (0.00012, 1e-9, "0.000120"), (5.0, None, "5"), (0.25, None, "0.25"), (1e7, 0.0, "10,000,000"),
    ],
)  # fmt: skip
def test_answers_have_the_digits_that_their_error_gives_sense_to(value: float, half: float | None, shown: str) -> None:
    assert count(value, half) in shown.split(" or ")


def test_probabilities_are_rounded_up_and_never_to_certainty() -> None:
    assert percent(0.5) == "50 %"
    assert percent(0.50001) == "50.1 %"
    assert percent(0.518) == "51.8 %"
    assert percent(0.99912) == "99.92 %"
    assert percent(0.999999) == "over 99.99 %"
    assert percent(1.0) == "100 %"


def test_numbers() -> None:
    assert [number(x) for x in (0.499999999999528, 1e-9, None, -0.25, 3)] == ["0.5", "1e-9", "–", "−0.25", "3"]
