"""Answers with their errors, in as many digits as the error gives sense to."""

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from duckdb_dp.reporting.notebook import page
from duckdb_dp.reporting.readable import answers, folded, shown


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
