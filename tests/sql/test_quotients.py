"""Quotients above the SELECTs that aggregate are those of one SELECT: the same release, with errors, and with one weight of each unit."""

import math

import pytest

from tests.conftest import Loaded

ROWS = "visits JOIN towns USING (town)"
BOUNDS = {"auto": "'auto'", "number": "{'visits': 40}"}


@pytest.fixture(params=list(BOUNDS))
def visits(request: pytest.FixtureRequest, exact: Loaded) -> Loaded:
    """Bounds on norms, and a number of rows."""
    exact(
        "CREATE TABLE guests AS SELECT i AS id FROM range(900) t(i); ALTER TABLE guests ADD PRIMARY KEY (id);"
        "CREATE TABLE visits AS SELECT i % 900 AS id, ['a', 'b', 'c'][1 + i % 3] AS town, i % 41 AS paid, i % 7 AS days, "
        "i % 5 = 0 AS late FROM range(9000) t(i); CREATE TABLE towns AS SELECT unnest(['a', 'b', 'c']) AS town, unnest([1, 2, 2]) AS area;"
        "CALL dp_public(['towns']); CALL dp_link('visits', \"references\" := {'id': 'guests.id'});"
        "CALL dp_protect(['guests', 'visits'], unit := 'guests.id', "
        f"max_rows := {BOUNDS[request.param]}, epsilon := 1e6, delta := 1e-9);"
        "CALL dp_attributes('visits', {'town': ['a', 'b', 'c'], 'paid': {'low': 0, 'high': 40}, 'days': {'low': 0, 'high': 6}})"
    )
    return exact


def asked(visits: Loaded, select: str) -> list[tuple[object, ...]]:
    return visits("FROM dp_sql(?, epsilon := 50)", [select])


BELOW = "SELECT town, sum(paid) AS s, count(*) AS n, avg(days) AS d FROM visits GROUP BY town"
ALL = "SELECT sum(paid) AS s, count(*) AS n FROM visits"
SAME = [  # forms of each question; the first one is one SELECT
    [
        "SELECT town, sum(paid) / count(*) AS q FROM visits GROUP BY town",
        "SELECT town, s / n AS q FROM (SELECT town, sum(paid) AS s, count(*) AS n FROM visits GROUP BY town)",
        "SELECT town, s / n AS q FROM (SELECT town, sum(paid) AS s, count(*) AS n FROM visits GROUP BY 1) ORDER BY town",
        "SELECT b.town, b.s / b.n AS q FROM (SELECT town, sum(paid) AS s, count(*) AS n FROM visits GROUP BY town) AS b",
        "WITH b AS (SELECT town, sum(paid) AS s, count(*) AS n FROM visits GROUP BY town) SELECT town, s / nullif(n, 0) AS q FROM b",
        "WITH b AS (SELECT town, sum(paid) AS s, count(*) AS n FROM visits GROUP BY town) SELECT b.town, (s) / n AS q FROM b JOIN towns USING (town)",
        "FROM (SELECT town, sum(paid) AS s, count(*) AS n FROM visits GROUP BY ALL) SELECT town, s / n AS q WHERE s / n > 0",
    ],
    [
        "SELECT sum(paid) / count(*) AS q FROM visits",
        f"SELECT s / n AS q FROM ({ALL})",
        f"WITH b AS ({ALL}), c AS (SELECT 1 AS one) SELECT s / n AS q FROM b, c",
        "SELECT (SELECT sum(paid) FROM visits) / (SELECT count(*) FROM visits) AS q",
    ],
    [
        "SELECT 100.0 * count(*) FILTER (late) / count(*) AS q FROM visits",
        "SELECT 100.0 * k / n AS q FROM (SELECT count(*) FILTER (late) AS k, count(*) AS n FROM visits)",
        "SELECT 100.0 * (SELECT count(*) FROM visits WHERE late) / (SELECT count(*) FROM visits) AS q",
    ],
    [
        "SELECT 1 - sum(paid) FILTER (late) / sum(paid) AS q FROM visits",
        "SELECT 1 - k / n AS q FROM (SELECT sum(paid) FILTER (late) AS k, sum(paid) AS n FROM visits)",
        "SELECT 1 - (SELECT sum(paid) FROM visits WHERE late) / (SELECT sum(paid) FROM visits) AS q",
    ],
]


@pytest.mark.some(8)
@pytest.mark.parametrize(
    ("first", "other"), [(forms[0], other) for forms in SAME for other in forms[1:]], ids=lambda text: text[:40]
)
def test_a_quotient_above_is_that_of_one_select(visits: Loaded, first: str, other: str) -> None:
    wanted = sorted(asked(visits, first))
    before = visits.charges()
    found = sorted(asked(visits, other))
    assert visits.charges() == before
    for row, same, (*labels, value) in zip(found, wanted, sorted(visits(other)), strict=True):
        answer = len(labels)
        assert row[:answer] == same[:answer] == tuple(labels)
        assert row[answer] == pytest.approx(value, rel=0.01)
        assert row[answer : answer + 4] == pytest.approx(same[answer : answer + 4], rel=1e-9)
        assert math.isfinite(float(str(row[answer + 1])))  # its standard deviation


OTHERS = [
    f"SELECT *, s / n AS q FROM ({BELOW}) ORDER BY town",
    f"SELECT b.*, towns.area, s / n AS q FROM ({BELOW}) AS b JOIN towns USING (town) ORDER BY town",
    f"SELECT * EXCLUDE (s), s / n AS q FROM ({BELOW}) ORDER BY town",
    f"SELECT town, s * 2 AS s, s / n AS q FROM ({BELOW}) ORDER BY town",
    f"SELECT town, s * 2 AS n, s / n AS q, s FROM ({BELOW}) ORDER BY town, s / n",
    f"SELECT area, sum(s) / sum(n) AS q FROM ({BELOW}) JOIN towns USING (town) GROUP BY area ORDER BY area",
    f"SELECT avg(s / n) AS q FROM ({BELOW})",
    f"SELECT town, s / area AS q FROM ({BELOW}) JOIN towns USING (town) ORDER BY town",
    f"SELECT town, round(d / (s / n), 3) AS q FROM ({BELOW}) ORDER BY town",
    f"SELECT town FROM ({BELOW} HAVING n > 10) WHERE s / n > 0 ORDER BY s / n DESC, town",
    f"WITH b AS ({BELOW}), c AS (SELECT town, s / n AS q FROM b) SELECT c.town, q - (SELECT s / n FROM b WHERE town = 'a') AS r FROM c ORDER BY ALL",
    f"WITH b AS ({BELOW}) SELECT x.town, x.s / x.n - y.s / y.n AS r FROM b AS x, b AS y WHERE y.town = 'a' ORDER BY x.town",
    f"WITH b AS ({BELOW}) SELECT x.town, x.s / y.n AS r FROM b AS x, b AS y WHERE y.town = 'a' ORDER BY x.town",
    f"WITH b(town, n, s, d) AS ({BELOW}) SELECT town, s / n AS q FROM b ORDER BY town",
    f"WITH b(town, n, s, d) AS ({BELOW}), c(one, two) AS (SELECT n, s FROM b WHERE town = 'a') SELECT two / one AS q, one FROM c",
    f"SELECT town, s / n AS q FROM ({BELOW}) AS b(town, n, s, d) ORDER BY town",
    f"SELECT town, s / n AS q FROM ({BELOW}) UNION ALL SELECT 'z', 0.5 ORDER BY town",
    f"WITH b AS ({BELOW}) SELECT town, (WITH b AS (SELECT 2 AS s, 4 AS n) SELECT s / n FROM b) AS q FROM b ORDER BY town",
    f"SELECT o.town, (SELECT s / n FROM ({ALL})) / (o.s / o.n) AS q FROM ({BELOW}) AS o ORDER BY town",
    f"SELECT town, s / n AS q, count(*) OVER () AS k FROM ({BELOW}) ORDER BY q, town",
    f"SELECT DISTINCT s / n > 0 AS q FROM ({BELOW})",
    "SELECT town, dense_rank() OVER (ORDER BY sum(paid) / count(*) < 0) AS k, sum(paid) / count(*) AS q FROM visits GROUP BY town ORDER BY town",
    "SELECT town, sum(paid) / count(*) AS q FROM visits GROUP BY town QUALIFY row_number() OVER (ORDER BY town) < 3 ORDER BY town",
    "SELECT (SELECT count(*) FROM visits WHERE late) / (SELECT sum(area) FROM towns) AS q",
    "SELECT (SELECT count(*) FROM visits WHERE late AND town = 'a') / (SELECT count(*) FROM visits WHERE town = 'a') AS q",
    "SELECT (SELECT sum(paid) - count(*) FILTER (late) FROM visits WHERE days > 1) / (SELECT count(*) FROM visits) AS q",
    "SELECT (SELECT count(*) FROM visits WHERE town IN (SELECT town FROM towns WHERE area = 2)) / (SELECT count(*) FROM visits) AS q",
    f"SELECT (SELECT count(*) FROM {ROWS} WHERE area = 2) / (SELECT count(*) FROM {ROWS}) AS q",
    f"SELECT area, s / n AS q FROM (SELECT area, sum(paid) AS s, count(*) AS n FROM {ROWS} GROUP BY area) ORDER BY area",
]


@pytest.mark.some(20)
@pytest.mark.parametrize("select", OTHERS)
def test_whatever_moves_the_answer_is_that_of_sql(visits: Loaded, select: str) -> None:
    """Names that hide others, stars, columns under other names, several readers: without noise it is what DuckDB says, under its names."""
    found, real = asked(visits, select), visits(select)
    names = [name for name, _ in visits.columns(select)]
    shown = [name for name, _ in visits.columns("FROM dp_sql('" + select.replace("'", "''") + "', epsilon := 50)")]
    places = [shown.index(name) for name in names]
    assert [name for name in shown if name.startswith("_dp")] == []
    assert len(found) == len(real)
    for row, wanted in zip(found, real, strict=True):
        for place, value in zip(places, wanted, strict=True):
            assert row[place] == (pytest.approx(float(value), rel=0.02) if isinstance(value, int | float) else value)


def test_what_a_quotient_alone_reads_is_measured_once(visits: Loaded, request: pytest.FixtureRequest) -> None:
    """Of the sums below none is measured for itself, and what is read beside the quotient is."""
    ledger = (
        "SELECT len(json_extract(request, '$.direct[0].sums')::JSON[]) FROM dp_ledger() ORDER BY release DESC LIMIT 1"
    )
    quotient = "SELECT s / n AS q{} FROM (SELECT town, sum(paid) AS s, count(*) AS n FROM visits GROUP BY town)"
    asked(visits, quotient.format(""))
    ((alone,),) = visits(ledger)
    asked(visits, quotient.format(", n"))
    ((beside,),) = visits(ledger)
    assert (alone, beside) == ((2, 3) if "auto" in request.node.name else (2, 2))
