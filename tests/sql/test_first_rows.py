"""The first row of each unit: what DISTINCT ON, arg_min, LATERAL and LIMIT are refused with is answered as it is written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Loaded
from tests.sql.some_visits import answers, loaded

IN_FROM = {
    "(SELECT DISTINCT ON (person) person, reason FROM visits ORDER BY person, a) f": "",
    "(SELECT DISTINCT ON (person) person, reason FROM visits WHERE x > 3 ORDER BY person, a DESC, visit_id) f": "",
    "(SELECT person, arg_min(reason, a) AS reason FROM visits GROUP BY person) f": "",
    "(SELECT person, arg_max(reason, a) AS reason FROM visits WHERE x > 3 GROUP BY person) f": "",
    "(SELECT v.person, max_by(reason, a) AS reason FROM visits v JOIN users u ON u.id = v.person WHERE sex = 'f' GROUP BY v.person) f": "",
    "users u, LATERAL (SELECT reason FROM visits v WHERE v.person = u.id ORDER BY a LIMIT 1) f": "users u ",
    "users u, LATERAL (SELECT reason FROM visits v WHERE u.id = v.person AND x > 3 ORDER BY a DESC LIMIT 1) f": "users u ",
    "users u JOIN (SELECT reason FROM visits v WHERE v.person = u.id ORDER BY a LIMIT 1) f ON true": "users u ",
    "users u LEFT JOIN LATERAL (SELECT reason FROM visits v WHERE v.person = u.id ORDER BY a LIMIT 2) f ON true": "users u ",
    "users u JOIN LATERAL (SELECT reason FROM visits v WHERE v.person = u.id) f ON true": "users u ",
}
"""What stands in FROM, and what stands there before what is proposed."""


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("first")) as found:
        yield found


@pytest.mark.parametrize("source", IN_FROM)
def test_what_is_proposed_has_the_answer(visits: Loaded, source: str) -> None:
    """DuckDB says what the statement that is refused comes to."""
    asked = "SELECT f.reason AS r, count(*) AS n FROM {} WHERE f.reason IN ('flu', 'leg', 'eye') GROUP BY ALL"
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [asked.format(source)])
    before = next(word for word in ("write ", "the row that has it: ") if word in line)
    proposed = line.partition(before)[2].removesuffix(".")
    inside = f"{IN_FROM[source]}{proposed}" if IN_FROM[source] else f"({proposed}) f"
    found = [(reason, round(n)) for reason, n in answers(visits, asked.format(inside))]
    assert found == sorted(visits(asked.format(source)))


@pytest.mark.parametrize("extreme", ["arg_min", "max_by"])
def test_rows_without_a_value_are_not_the_first(tmp_path: Path, extreme: str) -> None:
    """As arg_min leaves them out, and as it does where what rows are ordered by is NULL."""
    asked = "SELECT f.reason AS r, count(*) AS n FROM {} WHERE f.reason IN ('flu', 'leg', 'eye') GROUP BY ALL"
    source = f"(SELECT person, {extreme}(reason, a) AS reason FROM visits WHERE x > 1 GROUP BY person) f"
    with loaded(tmp_path) as visits:
        visits(
            "UPDATE visits SET reason = NULL WHERE visit_id % 3 = 0; UPDATE visits SET a = NULL WHERE visit_id % 4 = 1"
        )
        line = visits.refused("FROM dp_sql(?, epsilon := 1)", [asked.format(source)])
        proposed = line.partition("the row that has it: ")[2].removesuffix(".")
        found = [(reason, round(n)) for reason, n in answers(visits, asked.format(f"({proposed}) f")) if round(n)]
        assert found == sorted(visits(asked.format(source)))


def test_aggregates_beside_each_row(visits: Loaded) -> None:
    asked = "SELECT avg(m) AS s FROM users u {}"
    lateral = "JOIN LATERAL (SELECT max(x) AS m FROM visits v WHERE v.person = u.id) f ON true"
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [asked.format(lateral)])
    proposed = line.partition("write ")[2].removesuffix(".")
    ((found,),), ((truth,),) = answers(visits, asked.format(proposed)), visits(asked.format(lateral))
    assert found == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize(
    "count",
    [
        "count(*)",
        "count(reason)",
        "count_if(x > 3)",
        "count(DISTINCT x)",
        "2 * count(*) + 1",
        "count(*) FILTER (WHERE x > 3)",
    ],
)
def test_counts_beside_each_row_are_0_where_there_is_none(visits: Loaded, count: str) -> None:
    """What is proposed to stand for them is what they are in the statement that is refused."""
    asked = "SELECT avg({1}) AS s FROM users u {0}"
    lateral = f"JOIN LATERAL (SELECT {count} AS m, max(x) AS y FROM visits v WHERE v.person = u.id AND x > 5) f ON true"
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [asked.format(lateral, "f.m")])
    proposed, _, value = line.partition("write ")[2].removesuffix(".").partition(", and coalesce")
    value, of, column = value.partition(" in place of ")
    assert (of, column) == (" in place of ", 'f."m"')
    select = asked.format(proposed, f"coalesce{value}")
    ((found,),), ((truth,),) = answers(visits, select), visits(asked.format(lateral, "f.m"))
    assert found == pytest.approx(truth, rel=0.01)


def test_a_single_value_that_is_the_first(visits: Loaded) -> None:
    asked = "SELECT count(*) AS n FROM users u {}"
    single = "WHERE (SELECT reason FROM visits v WHERE v.person = u.id ORDER BY a LIMIT 1) = 'flu'"
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [asked.format(single)])
    proposed = line.partition("write ")[2].removesuffix(".")
    ((found,),) = answers(visits, asked.format(f"{proposed} WHERE firsts.reason = 'flu'"))
    assert round(found) == visits(asked.format(single))[0][0]


@pytest.mark.parametrize(
    "inside",
    [
        "SELECT DISTINCT ON (person) person, reason FROM visits",
        "SELECT person, first(reason ORDER BY a) AS reason FROM visits GROUP BY person",
        "SELECT person, list(reason ORDER BY a)[1] AS reason FROM visits GROUP BY person",
        "SELECT * FROM visits ORDER BY a LIMIT 10",
        "SELECT x // 2 AS h, arg_min(reason, a) AS reason FROM visits GROUP BY person, x // 2",
    ],
)
def test_where_the_statement_does_not_say_how_it_goes_on(visits: Loaded, inside: str) -> None:
    line = visits.refused("FROM dp_sql(?, epsilon := 1)", [f"SELECT count(*) FROM ({inside}) WHERE reason = 'flu'"])
    assert "QUALIFY row_number() OVER (PARTITION BY the unit's key ORDER BY ...) = 1" in line


@pytest.mark.parametrize(
    "source",
    [
        "(SELECT * FROM users) JOIN (SELECT person, x FROM visits) ON person = id",
        "users u JOIN (SELECT v.person, x FROM visits v WHERE EXISTS (SELECT 1 FROM orders u WHERE u.person = v.person)) f ON f.person = u.id",
        "users JOIN (SELECT users.id AS who, x FROM users JOIN visits ON person = id) f ON f.who = users.id",
        "users u JOIN (WITH u AS (SELECT person, x FROM visits) SELECT u.person, u.x FROM u) f ON f.person = u.id",
        "users u JOIN (SELECT u.person, sum(x) AS x FROM visits u GROUP BY u.person) f ON f.person = u.id",
    ],
)
def test_a_subquery_that_reads_its_own_tables_is_no_lateral_one(visits: Loaded, source: str) -> None:
    asked = f"SELECT sex, count(*) AS n FROM {source} WHERE x > 3 GROUP BY sex"
    assert [(sex, round(n)) for sex, n in answers(visits, asked)] == sorted(visits(asked))
