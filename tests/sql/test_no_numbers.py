"""Sums, averages, quantiles and extremes of values that are no numbers: each refusal names what is answered as it is written."""

from collections.abc import Iterator

import pytest

from duckdb_dp.errors import quoted
from tests.conftest import Loaded
from tests.sql.some_visits import answers, loaded

VALUES = {
    "a": "TIMESTAMP",
    "na": "TIMESTAMP_NS",
    "da": "DATE",
    "ta": "TIME",
    "za": "TIMESTAMP WITH TIME ZONE",
    "iv": "INTERVAL",
    "b - a": "INTERVAL",
    "a - TIMESTAMP '2024-01-01'": "INTERVAL",
    "a - da": "INTERVAL",
    "reason": "VARCHAR",
}
"""Values that are no numbers, with their types."""

INSTEAD = {
    "TIMESTAMP": ["median({})", "avg(date_diff('day', TIMESTAMP '2025-01-01', {}))"],
    "TIMESTAMP_NS": ["median({})", "avg(date_diff('day', TIMESTAMP '2025-01-01', {}))"],
    "DATE": ["median({})", "avg({} - DATE '2025-01-01')", "stddev({} - DATE '2025-01-01')"],
    "TIME": ["median({})", "avg(epoch({}))", "sum(epoch({}))"],
    "TIMESTAMP WITH TIME ZONE": ["median({} AT TIME ZONE 'UTC')"],
    "INTERVAL": ["avg(epoch({}))", "avg(epoch({}) / 3600)", "median(epoch({}))", "stddev(epoch({}))"],
    "VARCHAR": ["count(TRY_CAST({} AS DOUBLE))"],
}
"""What is asked where the advice is followed."""

SOURCES = ["visits", "visits JOIN users ON person = id WHERE sex = 'f'"]


@pytest.fixture(scope="module", params=[False, True], ids=["undeclared", "declared"])
def visits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("numbers"), declared=request.param) as found:
        yield found


def advised(value: str, asked: str) -> str:
    """What of a question of the list stands in the message."""
    text = asked.format("@")
    inner = text if text.startswith("median(@") and "epoch" not in text else text.partition("(")[2][:-1]
    return inner.replace("@", value)


def written(value: str) -> str:
    """A value as messages have it."""
    known = {
        "b - a": '"b" - "a"',
        "a - da": '"a" - "da"',
        "a - TIMESTAMP '2024-01-01'": "\"a\" - CAST('2024-01-01' AS TIMESTAMP)",
    }
    return known.get(value, f'"{value}"')


@pytest.mark.some(4)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("function", ["avg", "sum", "stddev", "variance", "median"])
@pytest.mark.parametrize("value", VALUES)
def test_the_advice_is_answered(visits: Loaded, value: str, function: str, source: str) -> None:
    """Whether or not the columns are declared."""
    if function == "median" and VALUES[value] in ("TIMESTAMP", "TIMESTAMP_NS", "DATE", "TIME"):
        return
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [f"SELECT {function}({value}) AS s FROM {source}"])
    assert VALUES[value] in line
    for instead in INSTEAD[VALUES[value]]:
        if not instead.startswith(("sum", "stddev", "count", "median(epoch")):
            assert advised(written(value), instead).replace('"', "") in line.replace(
                '"', ""
            )  # quoted where one table is read
        asked = f"SELECT {instead.format(value)} AS s FROM {source}"
        ((found,),), ((truth,),) = answers(visits, asked), visits(asked)
        if isinstance(truth, int | float):
            assert found == pytest.approx(truth, rel=0.02), asked
        else:
            assert type(found) is type(truth), asked


@pytest.mark.some(4)
@pytest.mark.parametrize("function", ["max", "min"])
@pytest.mark.parametrize("value", [*VALUES, "x", "db - da", "x > 3"])
def test_the_quantile_in_place_of_an_extreme_is_answered(visits: Loaded, value: str, function: str) -> None:
    share = {"max": 0.99, "min": 0.01}[function]
    types = {"x": "INTEGER", "db - da": "BIGINT", "x > 3": "BOOLEAN"}
    taken = {"INTERVAL": "epoch({})", "TIMESTAMP WITH TIME ZONE": "{} AT TIME ZONE 'UTC'"}.get(
        VALUES.get(value, ""), "{}"
    )
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [f"SELECT {function}({value}) AS s FROM visits"])
    if value == "iv":
        assert 'epoch("iv")' in line
        return
    assert f"one row can change {function.upper()}(" in line
    if value == "reason":
        assert f"quantile_cont(TRY_CAST(reason AS DOUBLE), {share})" in line
        where = line.partition("listed by ")[2].partition(", and take")[0].replace("'a', 'b'", "'leg', 'eye'")
        select = f"SELECT reason, count(*) AS n FROM visits {where} GROUP BY reason ORDER BY reason"
        asked, place = f"FROM dp_sql({quoted(select)}, epsilon := 1e4)", 0 if "take the first" in line else -1
        assert visits(asked)[place][0] == visits(f"SELECT {function}(reason) FROM visits {where}")[0][0]
        return
    if (VALUES | types)[value] == "BOOLEAN":
        assert "quantile_cont" not in line
        assert "avg(x > 3)" in line
        return
    shown = taken.format(value.replace("TIMESTAMP '2024-01-01'", "CAST('2024-01-01' AS TIMESTAMP)"))
    assert f"quantile_cont({shown}, {share})" in line
    ((found,),) = answers(visits, f"SELECT quantile_cont({shown}, {share}) AS s FROM visits")
    assert found is not None


PER_UNIT = {
    "b - a": "epoch(b - a)",
    "a": "date_diff('day', TIMESTAMP '2025-01-01', a)",
    "da": "da - DATE '2025-01-01'",
    "ta": "epoch(ta)",
    "iv": "epoch(iv)",
    "za": "epoch(za AT TIME ZONE 'UTC')",
    "reason": "TRY_CAST(reason AS DOUBLE)",
}
"""What has an average of each unit's rows, and what is a number in its place."""


@pytest.mark.some(4)
@pytest.mark.parametrize("function", ["avg", "sum", "median", "stddev"])
@pytest.mark.parametrize("value", PER_UNIT)
def test_the_advice_for_each_unit_is_answered(visits: Loaded, value: str, function: str) -> None:
    text = "SELECT avg(d) AS s FROM (SELECT person, {}({}) AS d FROM visits GROUP BY person)"
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [text.format(function, value)])
    assert f"take {PER_UNIT[value]}." in line
    asked = text.format(function, PER_UNIT[value])
    ((found,),), ((truth,),) = answers(visits, asked), visits(asked)
    if truth is not None:
        assert found == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize(
    "inside",
    [
        "SELECT person, max(a) - min(b) AS d FROM visits GROUP BY person",
        "SELECT person, max(b - a) AS d FROM visits GROUP BY person",
        "SELECT DISTINCT person, b - a AS d FROM visits",
        "SELECT person, a - lag(a) OVER (PARTITION BY person ORDER BY a) AS d FROM visits",
        "SELECT person, max(iv) AS d FROM visits GROUP BY person",
        "SELECT person, b - a AS d FROM visits UNION ALL SELECT person, INTERVAL 1 HOUR FROM orders",
    ],
)
def test_an_interval_of_a_subquery_has_seconds(visits: Loaded, inside: str) -> None:
    for function in ("avg", "sum", "median", "stddev"):
        line = visits.refused("FROM dp_sql(?, epsilon := 1)", [f"SELECT {function}(d) AS s FROM ({inside})"])
        assert "ask for its seconds, epoch(d), or its hours, epoch(d) / 3600" in line
        for taken in ('epoch("d")', 'epoch("d") / 3600'):
            asked = f"SELECT {function}({taken}) AS s FROM ({inside})"
            ((found,),), ((truth,),) = answers(visits, asked), visits(asked)
            assert found == pytest.approx(truth, rel=0.05)


def test_seconds_of_any_interval(visits: Loaded) -> None:
    """Of huge ones, of negative ones and of NULL: no value raises."""
    visits(
        "CREATE TABLE odd AS SELECT i AS n, [INTERVAL 200000 YEARS, -INTERVAL 200000 YEARS, INTERVAL 1 SECOND, NULL, INTERVAL 5 MONTHS]"
        "[1 + i % 5] AS d FROM range(500) t(i); CALL dp_protect('odd', epsilon := 1e7, delta := 1e-9)"
    )
    asked = "SELECT count(epoch(d)) AS n, count(*) FILTER (WHERE epoch(d) = 1) AS k, avg(least(greatest(epoch(d), 0), 10)) AS s FROM odd"
    ((k, n, s),) = [(row[1], row[0], row[2]) for row in answers(visits, asked)]
    assert (round(n), round(k)) == (400, 100)
    assert s == pytest.approx(visits(asked)[0][2], rel=0.02)
    visits("DROP TABLE odd")


def test_a_text_of_numbers_has_an_average_however_it_is_declared(visits: Loaded) -> None:
    visits(
        "CREATE TABLE texts AS SELECT (i % 7)::VARCHAR AS t FROM range(700) r(i); CALL dp_protect('texts', epsilon := 1e7, delta := 1e-9)"
    )
    for declare in ("", "CALL dp_attribute('texts', 't', \"values\" := ['0', '1', '2', '3', '4', '5', '6'])"):
        visits(declare or "SELECT 1")
        assert 'TRY_CAST("t" AS DOUBLE)' in visits.refused("FROM dp_sql('SELECT avg(t) AS s FROM texts', epsilon := 1)")
        assert answers(visits, "SELECT avg(TRY_CAST(t AS DOUBLE)) AS s FROM texts")[0][0] == pytest.approx(3, rel=0.01)
    visits("DROP TABLE texts")


@pytest.mark.parametrize(
    ("asked", "says", "instead"),
    [
        (
            "count(*) FILTER (WHERE a < current_date)",
            "such as DATE '2025-01-01'",
            "count(*) FILTER (WHERE a < DATE '2024-02-01')",
        ),
        ("avg(epoch(age(b, a)))", "epoch(b - a)", "avg(epoch(b - a))"),
    ],
)
def test_functions_that_are_no_function_of_a_row(visits: Loaded, asked: str, says: str, instead: str) -> None:
    assert says in visits.refused("FROM dp_sql(?, epsilon := 1)", [f"SELECT {asked} AS s FROM visits"])
    text = f"SELECT {instead} AS s FROM visits"
    assert answers(visits, text)[0][0] == pytest.approx(visits(text)[0][0], rel=0.01)


def test_not_in_a_key_that_is_never_null(visits: Loaded) -> None:
    asked = "SELECT count(*) AS n FROM users WHERE id NOT IN (SELECT person FROM orders)"
    assert round(answers(visits, asked)[0][0]) == visits(asked)[0][0]


@pytest.mark.parametrize(
    "source",
    ["(SELECT person, max(iv) AS d FROM visits GROUP BY person)", "(SELECT DISTINCT person, b - a AS d FROM visits)"],
)
def test_groups_of_an_interval(visits: Loaded, source: str) -> None:
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [f"SELECT d, count(*) AS n FROM {source} GROUP BY d"])
    key = '(epoch("d") / 3600)::INTEGER AS hours'
    assert f"{key}, and WHERE hours BETWEEN 0 AND 24" in line
    asked = f"SELECT {key}, count(*) AS n FROM {source} WHERE hours BETWEEN 0 AND 24 GROUP BY hours"
    found = {hours: round(n) for hours, n in answers(visits, asked) if round(n)}
    assert found == dict(visits(asked))


@pytest.mark.parametrize("source", ["visits v", "visits v JOIN users u ON u.id = v.person"])
def test_groups_of_a_duration(visits: Loaded, source: str) -> None:
    """A column of durations cannot be declared: what is said to be grouped by in its place is answered."""
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [f"SELECT iv, count(*) AS n FROM {source} GROUP BY iv"])
    assert "dp_attribute" not in line
    group, where = line.split("count: ")[1].rstrip(".").split(", and ")
    select = f"SELECT {group}, count(*) AS n FROM {source} {where} GROUP BY hours"
    found = [(hours, round(n)) for hours, n in answers(visits, select) if round(n)]
    assert found == sorted(visits(select), key=str)
