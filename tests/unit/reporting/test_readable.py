"""Answers with their errors, in as many digits as the error gives sense to."""

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from duckdb_dp.reporting.notebook import page
from duckdb_dp.reporting.readable import alone, answers, folded, note, reasons, shown


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (5102.3427, 5081.42, 5123.26, "5,102 ± 21"),
        (26.326960474770075, 26.2, 26.454, "26.33 ± 0.13"),
        (0.0, -3.0, 3.0, "0.0 ± 3.0"),
        (-0.01, -21.01, 20.99, "0 ± 21"),
        (1234567.0, 1230000.0, 1239134.0, "1,234,567 ± 4,567"),
        (Decimal("12.50"), Decimal("10.00"), Decimal("20.00"), "12.5 (10.0 to 20.0)"),
        (date(2020, 1, 5), date(2020, 1, 1), date(2020, 2, 1), "2020-01-05 (2020-01-01 to 2020-02-01)"),
        (5.0, 5.0, 5.0, None),
        (5.0, None, None, None),
        (None, 1.0, 2.0, None),
        (math.nan, 1.0, 2.0, None),
        (5.0, -math.inf, math.inf, None),
        (50.0, -1e30, 2e17, None),
        (50.0, -1.797e308, 1.797e308, None),
        (1e22, -1e21, 2e30, "1e22 (-1e21 to 2e30)"),
    ],
)
def test_an_answer(value: Any, low: Any, high: Any, text: str | None) -> None:
    assert shown(value, low, high) == text


def test_which_columns_are_folded() -> None:
    names = ["sex", "n", "n_stddev", "n_ci_low", "n_ci_high", "mean", "mean_ci", "clipped_at", "ci_low"]
    rows = [["f", 10.0, 1.0, 8.0, 12.0, 3.26, {"low": 3.0, "high": 3.5}, "[0, 9]", 4]]
    shown_names, cells, right = folded(names, rows)
    assert shown_names == ["sex", "n", "mean", "clipped_at", "ci_low"]
    assert cells == [["f", "10.0 ± 2.0", "3.26 (3.00 to 3.50)", "[0, 9]", 4]]
    assert right == {1, 2}


def test_errors_without_a_prefix_are_of_the_column_whose_values_lie_in_them() -> None:
    names = ["n", "rank", "stddev", "ci_low", "ci_high"]
    rows = [[100.0, 1, 5.0, 90.0, 110.0], [80.0, 2, 5.0, 70.0, 90.0]]
    assert [one.value for one in answers(names, rows)] == [0]
    assert [one.value for one in answers(names)] == [1]
    assert answers(["stddev", "ci_low", "ci_high"]) == []
    assert folded(["a", "b"], [[1, 2]]) == (["a", "b"], [[1, 2]], set())


def test_a_page_is_escaped_and_has_a_bar_for_each_known_interval() -> None:
    names = ["<b>", "count", "stddev", "ci_low", "ci_high"]
    rows: list[list[Any]] = [
        ["<script>", 10.0, 1.0, 8.0, 12.0],
        ["&", 3.0, None, None, None],
        ["c", -math.inf, 1.0, -math.inf, math.inf],
    ]
    html = page(names, rows)
    assert html.count("<rect") == 1
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "10.0 ± 2.0" in html
    assert "The first 40 rows" in page(names, rows * 20)


@pytest.mark.parametrize(
    ("value", "stddev", "low", "high", "text"),
    [
        (69.949, 24.7, None, None, "70 (sd 24.7, no interval)"),
        (26.4, 1.02e17, -math.inf, math.inf, "26 (sd 1.02e17, no useful interval)"),
        (50.0, 2.5, -math.inf, math.inf, "50.0 (sd 2.50, no useful interval)"),
        (1479.46, None, None, None, "1,479 (no interval)"),
        (0.012345, None, None, None, "0.0123 (no interval)"),
        (3, math.nan, None, None, "3 (no interval)"),
        (date(2020, 1, 5), 1.0, None, None, "2020-01-05 (no interval)"),
        (math.inf, 1.0, None, None, "inf (no interval)"),
        (90, None, 50, None, "90 (50 or more)"),
        (1.25, None, None, 2.5, "1.25 (2.5 or less)"),
        (date(2020, 1, 5), None, date(2020, 1, 4), None, "2020-01-05 (2020-01-04 or more)"),
        (5.0, 0.0, 5.0, 5.0, 5.0),
        (None, 1.0, None, None, None),
    ],
)
def test_an_answer_without_an_interval_says_so(value: Any, stddev: Any, low: Any, high: Any, text: Any) -> None:
    assert shown(value, low, high) is None
    assert alone(value, stddev, low, high) == text


NAMES = ["a", "n", "stddev", "ci_low", "ci_high"]


@pytest.mark.parametrize(
    ("row", "said", "bars"),
    [
        (["x", 5102.3, 10.7, 5081.4, 5123.2], "± is half of the 95 % interval", True),
        (["x", 5.3, 2.0, 1.0, 30.0], "(low to high) is the 95 % interval", True),
        (["x", 5.3, 2.0, None, None], "sd is the standard deviation", False),
        (["to a ± b", 5.3, None, None, None], "", False),
    ],
)
def test_what_stands_below_a_result_is_about_what_is_in_it(row: list[Any], said: str, bars: bool) -> None:
    _, cells, right = folded(NAMES, [row])
    assert note(cells, right) == said
    html = page(NAMES, [row])
    assert [said in html, "<small>" in html, "the bars show it" in html] == [True, bool(said) or None in row, bars]


def test_an_interval_without_a_standard_deviation() -> None:
    """As dp_quantiles answers."""
    found = folded(["quantile", "value", "ci_low", "ci_high"], [[0.5, 40.2, 38.2, 42.2], [0.9, 60.0, None, None]])
    assert found == (["quantile", "value"], [[0.5, "40.2 ± 2.0"], [0.9, "60 (no interval)"]], {1})


def test_an_answer_beside_its_standard_deviation_alone() -> None:
    """As dp_discover and dp_max_rows answer; a standard deviation of the user's own is not one of what stands before it."""
    found = folded(["low", "count", "stddev", "threshold"], [["0", 3214.55, 232.4, 889.754], ["1", None, 1.0, None]])
    assert found == (
        ["low", "count", "stddev", "threshold"],
        [["0", "3,215", "232", "890"], ["1", None, "1.00", None]],
        {1, 2, 3},
    )
    assert folded(["age", "stddev"], [[39.123456, 12.3]])[1] == [[39.123456, "12.3"]]


CLIPPED = ["a", "d", "d_stddev", "d_ci_low", "d_ci_high", "d_clipped_at"]


@pytest.mark.parametrize(
    ("names", "row", "said"),
    [
        (CLIPPED, ["x", 5.0, 1.0, 3.0, 7.0, 9.0], ["each unit adds at most 9, as rows or as a norm over all groups (d_clipped_at): what"]),
        (CLIPPED, ["x", 5.0, 1.0, 3.0, 7.0, [-9.5, 2.0]], ["values count as at least -9.5 and at most 2 (d_clipped_at): what"]),
        (CLIPPED, ["x", 5.0, 1.0, 3.0, 7.0, [9.5, 2.0]], ["each unit adds at most 9.5 and 2, as rows or as a norm over all groups (d_clipped_at)"]),
        (CLIPPED, ["x", 5.0, 1.0, 3.0, 7.0, [[0.0, 2.0], [0.0, 3.0]]], ["each unit, or each value, adds at most a bound (d_clipped_at)"]),
        (CLIPPED, ["x", -5.0, 5.0, -14.0, 4.0, None], ["below 0 where the truth may be 0"]),
        (CLIPPED, ["x", -5.0, 1.0, -7.0, -3.0, None], []),
        (CLIPPED, ["x", None, None, None, None, None], ["NULL: at this share of the budget the data told no bound"]),
        (CLIPPED, ["x", None, None, None, None, [None, 4.0]], ["NULL: at this share of the budget the data told no bound", "each unit, or"]),
        (CLIPPED, ["x", None, None, None, None, 4.0], ["NULL: the noise hides", "each unit adds"]),
        (CLIPPED, ["x", 5.0, 1.0, None, None, 9.0], ["no interval: many values may lie beyond d_clipped_at", "each unit adds"]),
        (
            ["d", "d_ci", "d_clipped_at"], [5.0, {"low": None, "high": None}, 9.0],
            ["no interval: the error of post-processed", "each unit adds"],
        ),
        (NAMES, ["x", 5.0, None, None, None], ["no interval: the error of post-processed"]),
        (NAMES, ["x", 5.0, None, 4.0, None], ["of an interval with one end"]),
        (["marginal", "stddev", "half_width"], ["x", None, None], ["an error is NULL where"]),
        (["marginal", "stddev", "half_width"], ["x", 1.0, 2.0], []),
        (["a"], [None], []),
    ],
)  # fmt: skip
def test_why_something_is_not_there(names: list[str], row: list[Any], said: list[str]) -> None:
    found = reasons(names, [row, row])
    assert [text.startswith(start) for text, start in zip(found, said, strict=True)] == [True] * len(said)
    assert all(text in page(names, [row]) for text in found)
