"""PIVOT, UNPIVOT and WITH RECURSIVE: what they are refused with is answered as it is written."""

import re
from collections.abc import Iterator

import pytest

from tests.conftest import Loaded
from tests.sql.some_visits import answers, loaded

BUDGET = "', epsilon := 1e4)"


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("turned"), declared=True) as found:
        found("CALL dp_attribute('visits', 'reason', \"values\" := ['flu', 'leg', 'eye'])")
        yield found


def numbers(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted((tuple(round(v) if isinstance(v, float | int) else v for v in row) for row in rows), key=str)


PIVOTS = [
    "PIVOT visits ON reason IN ('flu', 'leg') USING count(*) AS n GROUP BY x",
    "PIVOT visits ON reason USING count(*) GROUP BY x",
    "SELECT * FROM visits PIVOT (sum(x) AS s, count(*) AS n FOR reason IN ('flu' AS a, 'eye' AS b) GROUP BY x)",
    "SELECT * FROM visits PIVOT (count(*) FOR reason IN ('flu', 'leg') GROUP BY x)",
    "SELECT * FROM (SELECT x, reason FROM visits WHERE x > 1) AS v PIVOT (count(*) AS n FOR reason IN ('flu', 'eye'))",
    "WITH p AS (PIVOT visits ON reason IN ('flu', 'leg', 'eye') USING sum(x) GROUP BY x) FROM p",
]


@pytest.mark.parametrize("pivot", PIVOTS)
def test_the_answer_is_turned(visits: Loaded, pivot: str) -> None:
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [pivot])
    proposed = re.fullmatch(r".*a row of each group, (SELECT .*), and turn the answer: (PIVOT .*)\.", line)
    assert proposed is not None
    inner, outer = proposed.groups()
    found = visits(outer.replace("'...', ...", f"'{inner.replace(chr(39), chr(39) * 2)}{BUDGET[:-1]}"))
    if "GROUP BY x" in pivot:
        assert [row[:1] for row in numbers(found)] == [row[:1] for row in numbers(visits(pivot))]
        found = [tuple(v or 0 for v in row) for row in found]
        assert numbers(found) == numbers([tuple(v or 0 for v in row) for row in visits(pivot)])


@pytest.mark.parametrize(
    "pivot",
    [
        "SELECT sum(flu) AS s FROM (PIVOT visits ON reason IN ('flu', 'leg') USING count(*) GROUP BY person)",
        "SELECT avg(flu) AS s FROM visits PIVOT (sum(x) FOR reason IN ('flu', 'leg') GROUP BY person)",
    ],
)
def test_columns_of_each_unit(visits: Loaded, pivot: str) -> None:
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [pivot])
    inner = line.partition("a column for each value: ")[2].replace(" AS a, ...", " AS flu").removesuffix(".")
    asked = f"{pivot.partition(' FROM ')[0]} FROM ({inner})"
    assert answers(visits, asked)[0][0] == pytest.approx(visits(pivot)[0][0], rel=0.02)


@pytest.mark.parametrize(
    "turned",
    [
        "FROM visits UNPIVOT (v FOR k IN (x, person))",
        "UNPIVOT visits ON x, person INTO NAME k VALUE v",
        "SELECT k, sum(v) AS s FROM (UNPIVOT visits ON x, person INTO NAME k VALUE v) GROUP BY k",
    ],
)
def test_columns_below_each_other(visits: Loaded, turned: str) -> None:
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [turned])
    inner = line.partition("a SELECT for each column: ")[2].removesuffix(".")
    source = turned if turned.startswith("UNPIVOT") else turned.partition("FROM ")[2].partition(" GROUP BY")[0]
    select = "SELECT k, count(v) AS s FROM ({}) GROUP BY k"
    truth = visits(select.format(turned if turned.startswith(("UNPIVOT", "FROM")) else source.strip("()")))
    assert numbers(answers(visits, select.format(inner))) == numbers(truth)


STEPS = "WITH RECURSIVE d AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM d WHERE x < 5)"


def test_rows_that_read_no_table(visits: Loaded) -> None:
    select = "SELECT d.x, count(*) AS n FROM visits v JOIN d ON v.x = d.x GROUP BY d.x"
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [f"{STEPS} {select}"])
    first, second = line.partition("make it one: ")[2].partition("; ")[0].split(", CALL ")
    visits(first.replace("WITH RECURSIVE ...", f"{STEPS} FROM d"))
    visits(f"CALL {second}")
    visits("ALTER TABLE d ADD PRIMARY KEY (x)")
    assert numbers(answers(visits, select)) == numbers(visits(select))


def test_a_word_too_many(visits: Loaded) -> None:
    line = visits.refused(
        "FROM dp_sql(?, epsilon := 1)", ["WITH RECURSIVE r AS (FROM visits) SELECT count(*) AS n FROM r"]
    )
    assert "leave out RECURSIVE" in line
