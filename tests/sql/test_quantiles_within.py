"""Quantiles lie where the conditions of their rows say, however the column is declared."""

from typing import Any

import pytest

from tests.conftest import Loaded
from tests.sql.earlier_forms import as_in_form

TYPES = ["TINYINT", "INTEGER", "BIGINT", "DECIMAL(10,2)", "FLOAT", "DOUBLE"]

DECLARED = {
    "nothing": "",
    "bins": "bins := [0, 10, 25, 60, 100]",
    "steps": "low := 0, high := 100, step := 20",
    "values": '"values" := [0, 1, 2, 3, 5, 8, 13, 21, 34, 40, 41, 44, 55, 89]',
    "integers": "low := 0, high := 100",
}

CONDITIONS = {
    "x BETWEEN 40 AND 44": (40, 44),
    "x >= 40 AND x < 45": (40, 45),
    "45 > x AND NOT x < 40": (40, 45),
    "x > 40": (40, 100),
    "x <= 13": (0, 13),
    "x BETWEEN -20 AND 3": (-20, 3),
}


def made(t: Loaded, type_: str) -> str:
    """A table of 60 rows, so that noise is most of what is measured at a small budget."""
    name = f"t_{type_.split('(')[0].lower()}"
    listed = "[0, 1, 2, 3, 5, 8, 13, 21, 34, 40, 41, 44, 55, 89]"
    t(f"CREATE TABLE {name} AS SELECT i AS id, ({listed})[1 + i % 14]::{type_} AS x FROM range(60) r(i)")
    t(f"CALL dp_protect('{name}', epsilon := 1e6, delta := 1e-9)")
    return name


def _cases() -> list[Any]:
    whole = ("TINYINT", "INTEGER", "BIGINT")
    return [
        pytest.param(type_, how, id=f"{type_}-{how}")
        for how in DECLARED
        for type_ in TYPES
        if how != "integers" or type_ in whole
    ]


@pytest.mark.some(1)
@pytest.mark.parametrize(("type_", "how"), _cases())
def test_quantiles_and_their_intervals_lie_within_conditions(db: Loaded, type_: str, how: str) -> None:
    t, table = db, made(db, type_)
    if DECLARED[how]:
        t(f"CALL dp_attribute('{table}', 'x', {DECLARED[how]})")
    for condition, (low, high) in CONDITIONS.items():
        beyond = how == "nothing" and condition in ("x > 40", "x <= 13")  # one end is no range
        for text in (
            f"SELECT quantile_disc(x, 0.47) AS m FROM {table} WHERE {condition}",
            f"SELECT quantile_disc(x, 0.9) FILTER (WHERE {condition}) AS m FROM {table}",
        ):
            real = t(text)[0][0]
            ((_, _, near_low, near_high),) = t(
                "SELECT m, stddev, ci_low, ci_high FROM dp_sql(?, epsilon := 1000)", [text]
            )
            assert near_low <= float(real) <= near_high
            for epsilon in (0.3, 3):
                ((m, _, ci_low, ci_high),) = t(
                    f"SELECT m, stddev, ci_low, ci_high FROM dp_sql(?, epsilon := {epsilon})", [text]
                )
                assert (
                    beyond
                    or low <= (low if ci_low is None else ci_low) <= (high if ci_high is None else ci_high) <= high
                )
                assert how == "values" or "BETWEEN 40" not in condition or None not in (ci_low, ci_high), text
                assert beyond or m is None or low <= m <= high, text


def test_a_quantile_that_was_stored_with_wider_cells_is_found(db: Loaded) -> None:
    t, _ = db, made(db, "INTEGER")
    t("CALL dp_attribute('t_integer', 'x', low := 0, high := 100)")
    asked = "FROM dp_sql('SELECT quantile_disc(x, 0.47) AS m FROM t_integer WHERE x BETWEEN 40 AND 44', epsilon := 1)"
    with as_in_form(3):
        before = t(asked)
    assert t(asked) == before
    assert t.charges() == 1
