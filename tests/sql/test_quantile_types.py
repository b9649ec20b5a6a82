"""Quantiles, distinct values and sums in dp_sql, of every column type and every declaration of it."""

import datetime
import math
from itertools import cycle, product
from typing import Any

import duckdb
import pytest

from tests.conftest import Loaded

VALUES = {
    "TINYINT": "(i % 100 - 50)",
    "UTINYINT": "(i % 200)",
    "INTEGER": "(i * 7919 % 100000 - 20000)",
    "BIGINT": "(i::BIGINT * 10000000019 % 900000000000)",
    "UBIGINT": "(i::UBIGINT * 10000000019)",
    "HUGEINT": "(i::HUGEINT * 1000000000000000000000)",
    "UHUGEINT": "(i * 3)",
    "FLOAT": "CASE WHEN i % 9 = 0 THEN 'NaN' WHEN i % 11 = 0 THEN '-inf' ELSE (i / 7.0)::VARCHAR END",
    "DOUBLE": "CASE WHEN i % 9 = 0 THEN 'NaN' WHEN i % 11 = 0 THEN 'inf' ELSE (exp(i % 50 / 3.0) - 400)::VARCHAR END",
    "DECIMAL(5,2)": "(i % 1000 / 7)",
    "DECIMAL(38,10)": "(i::DECIMAL(38,10) * 1000000.5)",
    "DATE": "(DATE '1999-12-31' + i::INTEGER)",
    "TIME": "(TIME '00:00:00' + INTERVAL (i * 37) SECOND)",
    "TIMESTAMP": "(TIMESTAMP '2001-02-03 04:05:06' + INTERVAL (i * 5) HOUR)",
    "TIMESTAMP_S": "(TIMESTAMP '2001-02-03 04:05:06' + INTERVAL (i * 5) HOUR)",
    "TIMESTAMP_NS": "(TIMESTAMP '2001-02-03 04:05:06' + INTERVAL (i * 5) HOUR)",
    "VARCHAR": "('v' || i % 13)",
    "BOOLEAN": "(i % 3 = 0)",
    "UUID": "('00000000-0000-0000-0000-' || lpad((i % 5)::VARCHAR, 12, '0'))",
}
ORDERED = {type_ for type_ in VALUES if type_ not in ("VARCHAR", "BOOLEAN", "UUID")}
SUMMED = {type_ for type_ in ORDERED if not type_.startswith(("DATE", "TIME"))} | {"BOOLEAN"}
DECLARED = ["", "low and high", "values"]


def declaration(loaded: Loaded, type_: str, how: str) -> str:
    """What declares x, by its true ends or by some of its values; '' where it cannot."""
    if type_ == "BOOLEAN":
        return "CALL dp_attribute('t', 'x')" if how == "values" else ""
    finite = "x IS NOT NULL" + (" AND isfinite(x)" if type_ in ("FLOAT", "DOUBLE") else "")
    ((low, high, some),) = loaded(
        f"SELECT min(x)::VARCHAR, max(x)::VARCHAR, list(DISTINCT x::VARCHAR)[:7] FROM t WHERE {finite}"
    )
    quoted = "{}" if type_ in SUMMED else "'{}'"
    if how == "values":
        return (
            f"CALL dp_attribute('t', 'x', \"values\" := [{', '.join(quoted.format(v) for v in some)}], nulls := true)"
        )
    return f"CALL dp_attribute('t', 'x', bins := [{quoted.format(low)}, {quoted.format(high)}])"


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize("how", DECLARED)
@pytest.mark.parametrize("type_", VALUES)
def test_every_type_by_every_declaration(exact: Loaded, type_: str, how: str) -> None:
    """The truth lies in the interval, or one line says why there is no answer, and nothing is charged."""
    exact(
        f"CREATE TABLE t AS SELECT i % 2 AS g, CASE WHEN i % 17 > 0 THEN ({VALUES[type_]})::{type_} END AS x FROM range(600) r(i)"
    )
    exact("CALL dp_protect('t', mu := 1e9); CALL dp_attribute('t', 'g', low := 0, high := 1)")
    known = "x IS NOT NULL" + (" AND NOT isnan(x)" if type_ in ("FLOAT", "DOUBLE") else "")
    if how and (declared := declaration(exact, type_, how)):
        try:
            exact(declared)
        except duckdb.Error:
            return  # such as a list of UHUGEINT
    cases = [(function, share) for function in ("quantile_disc", "quantile_cont") for share in (0.0, 0.3, 1.0)]
    asked = ", ".join(f"{function}(x, {share}) AS q{i}" for i, (function, share) in enumerate(cases))
    call = "FROM dp_sql(?, mu := 1e4)"
    if type_ not in ORDERED:
        assert "has no order; quantiles are of numbers, dates and times" in exact.refused(
            call, [f"SELECT {asked} FROM t"]
        )
    else:
        found = exact(call, [f"SELECT g, {asked} FROM t GROUP BY g"])
        plain = asked.replace("quantile_cont", "quantile_disc")
        truth = {row[0]: row[1:] for row in exact(f"SELECT g, {plain} FROM t WHERE {known} GROUP BY g")}
        for group, *answers in found:
            for place in range(len(cases)) if how != "values" or type_ in SUMMED else ():
                value, _, low, high = answers[4 * place : 4 * place + 4]
                true = number(truth[group][place])
                if value is None and cases[place][1] in (0, 1) and not how:  # nobody knows how far away they are
                    assert low is high is None
                    continue
                # Beyond some values lie others, and infinities beyond all that is declared.
                assert how in ("", "values") or type_ in ("FLOAT", "DOUBLE") or None not in (low, high)
                assert low is None or low <= value
                assert high is None or value <= high
                ends = (-math.inf if low is None else number(low), math.inf if high is None else number(high))
                if math.isinf(true):  # counts as the end of the cells
                    continue
                assert ends[0] - slack(ends[0]) <= true <= ends[1] + slack(ends[1]), (
                    cases[place],
                    ends,
                    true,
                )
    for aggregate in ("sum(x)", "avg(x)", "stddev(x)"):
        asked = f"SELECT {aggregate} AS s FROM t"
        if type_ in SUMMED:
            ((value, stddev),) = exact("SELECT s, stddev FROM dp_sql(?, mu := 1e4)", [asked])
            assert value is not None
            assert stddev >= 0
        else:
            assert "only numbers have a sum" in exact.refused("FROM dp_sql(?, mu := 1e4)", [asked])
    ((distinct,),) = exact("SELECT d FROM dp_sql('SELECT count(DISTINCT x) AS d FROM t', mu := 1e4)")
    assert distinct == pytest.approx(exact("SELECT count(DISTINCT x) FROM t")[0][0], abs=0.01)


def slack(end: float) -> float:
    return 1e-6 * abs(end) if math.isfinite(end) else 0.0


ENDS = {
    "TINYINT": ("-128", "127"),
    "UTINYINT": ("0", "255"),
    "INTEGER": ("-2147483648", "2147483647"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807"),
    "UBIGINT": ("0", "18446744073709551615"),
    "HUGEINT": ("-170141183460469231731687303715884105728", "170141183460469231731687303715884105727"),
    "UHUGEINT": ("0", "340282366920938463463374607431768211455"),
    "FLOAT": ("-3.4028235e38", "inf"),
    "DOUBLE": ("-1.7976931348623157e308", "inf"),
    "DECIMAL(38,38)": (f"-0.{'9' * 38}", f"0.{'9' * 38}"),
    "DECIMAL(4,4)": ("-0.9999", "0.9999"),
    "DECIMAL(1,0)": ("-9", "9"),
    "DECIMAL(38,0)": ("-" + "9" * 38, "9" * 38),
    "DATE": ("0044-03-15 (BC)", "infinity"),
    "TIME": ("00:00:00", "24:00:00"),
    "TIMESTAMP": ("-infinity", "294247-01-10 04:00:54.775806"),
    "TIMESTAMP_NS": ("1678-01-01 00:00:00", "2261-12-31 00:00:00"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "type_"), list(zip(cycle(["exact", "db"]), ENDS, strict=False)))
def test_values_at_the_ends_of_a_type_and_noise_beyond_raise_no_error(
    request: pytest.FixtureRequest, noise: str, type_: str
) -> None:
    """What is charged is answered: the largest and the smallest value, intervals that reach there, and what is made of them."""
    loaded: Loaded = request.getfixturevalue(noise)
    low, high = ENDS[type_]
    cases = enumerate(product(("quantile_disc", "quantile_cont"), (0, 0.5, 1)))
    asked = ", ".join(f"{function}(x, {share}) AS q{i}" for i, (function, share) in cases)
    more = "quantile_disc(x, 0.5) AS y"
    if not type_.startswith(("DATE", "TIME")):
        more = (
            "quantile_disc(x, 0.9) * 1000000000 AS y, -quantile_disc(x, 0.5) AS z, sum(x) AS s, "
            "quantile_disc(x, 0.9) - quantile_disc(x, 0.1) AS w"
        )
    loaded(f"CREATE TABLE t AS SELECT unnest(['{low}', '{high}', NULL])::{type_} AS x FROM range(10)")
    loaded("CALL dp_protect('t', mu := 1e6)")
    for mu in (0.003, 0.03, 3):
        call = "FROM dp_sql(?, mu := ?)"
        found = loaded(call, [f"SELECT {asked} FROM t", mu])
        assert loaded(call, [f"SELECT {asked} FROM t", mu]) == found
        assert len(loaded(call, [f"SELECT {more} FROM t", mu])) == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            ["SELECT median(x) AS m FROM t", "SELECT median(d) AS m FROM t"],
            "'m' would be one column of numbers and dates",
        ),
        (
            ["SELECT median(x) AS m FROM t", "SELECT quantile_disc(d, 0.5) AS n FROM t"],
            "'m' and 'n' would be one column of numbers and dates",
        ),
        (
            ["SELECT median(d) + INTERVAL 1 DAY AS m, sum(x) AS s FROM t", "SELECT avg(x) AS m, sum(x) AS s FROM t"],
            "'m' would be one column of dates and numbers",
        ),
        (
            ["SELECT DATE '2020-01-01' AS m, sum(x) AS s FROM t", "SELECT avg(x) AS m, sum(x) AS s FROM t"],
            "'m' would be one column of dates and numbers",
        ),
        ("SELECT sum(x) / (quantile_disc(d, 0.9) - quantile_disc(d, 0.1)) AS r FROM t", "divides by dates or times"),
        ("SELECT median(i) FROM t", "INTERVAL"),
        ("SELECT sum(i) FROM t", "INTERVAL"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_charged(exact: Loaded, asked: str | list[str], message: str) -> None:
    exact(
        "CREATE TABLE t AS SELECT i AS x, DATE '2020-01-01' + i::INTEGER AS d, INTERVAL (i) DAY AS i FROM range(9) r(i)"
    )
    exact("CALL dp_protect('t', mu := 1)")
    assert message in exact.refused("FROM dp_sql(?, mu := 0.5)", [asked])
    assert not exact.charged()


def test_a_difference_of_dates_has_no_error_and_quantiles_names_of_their_own(exact: Loaded) -> None:
    exact(
        "CREATE TABLE t AS SELECT i AS x, DATE '2020-01-01' + i::INTEGER AS d FROM range(900) r(i); CALL dp_protect('t', mu := 1e9)"
    )
    exact("CALL dp_attribute('t', 'd', low := DATE '2020-01-01', high := DATE '2022-12-31')")
    ((days, *errors),) = exact(
        "SELECT * EXCLUDE (private) FROM dp_sql('SELECT quantile_disc(d, 0.9) - quantile_disc(d, 0.1) AS days FROM t', mu := 1e5)"
    )
    assert days == 720
    assert errors == [None] * 3
    names = [
        name
        for name, *_ in exact(
            "DESCRIBE FROM dp_sql('SELECT quantile_cont(x, 0.1), quantile_cont(x, 0.9) FROM t', mu := 1)"
        )
    ]
    assert len(set(names)) == 9


def number(value: Any) -> float:
    """What can be compared and scaled: seconds of a moment."""
    if hasattr(value, "isoformat"):
        if isinstance(value, datetime.time):
            return value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
        if not isinstance(value, datetime.datetime):
            value = datetime.datetime.combine(value, datetime.time())
        return (value - datetime.datetime(1, 1, 1)).total_seconds()
    return float(value)


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("mechanism", ["auto", "select"])
@pytest.mark.parametrize("type_", sorted(ORDERED))
def test_of_few_rows_with_undeclared_values_nothing_is_told(db: Loaded, type_: str, mechanism: str) -> None:
    """No numbers such as 4e23, and no interval up to the ends of the type: of few rows all is NULL, and of many it is narrow."""
    db(
        "CREATE TABLE t AS SELECT CASE WHEN j < 9000 THEN 'many' ELSE 'few' END AS g, "
        f"({VALUES[type_]})::{type_} AS x FROM (SELECT j, j % 300 + 9 AS i FROM range(9003) r(j))"
    )
    db("CALL dp_protect('t', mu := 1e3)")
    db("""CALL dp_attribute('t', 'g', "values" := ['many', 'few', 'none'])""")
    asked = "SELECT g, median(x) AS m, quantile_disc(x, 0.6) AS q FROM t GROUP BY g"
    found = dict(
        db(f"SELECT g, [m, m_ci_low, m_ci_high] FROM dp_sql('{asked}', mu := 0.5, mechanism := '{mechanism}')")
    )
    assert found["few"] == found["none"] == [None, None, None]
    value, low, high = found["many"]
    assert low <= value <= high
    finite = f"x IS NOT NULL{' AND isfinite(x)' if type_ in ('FLOAT', 'DOUBLE') else ''}"
    ((least, most),) = db(f"SELECT min(x), max(x) FROM t WHERE {finite}")
    assert number(low) <= number(most)
    assert number(high) >= number(least)
