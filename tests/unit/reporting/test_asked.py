"""What was asked, in words and as SQL that asks the same again."""

import re
from pathlib import Path

import duckdb
import pytest

import duckdb_dp
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.reporting import again, asked
from duckdb_dp.reporting.facts import gather


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["overview", "weighted", "large", "ranges", "conditions"])
def test_the_sql_is_the_same_request(adult: duckdb.DuckDBPyConnection, name: str) -> None:
    facts = gather(adult, name)
    assert facts.request is not None
    sql = again.repeating(facts.request, facts.release, facts.postprocess)
    assert sql is not None
    before = adult.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    found = adult.execute(sql).fetchall()
    assert adult.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before
    assert found == adult.execute(again.reading(facts.request, facts.release, facts.postprocess)).fetchall()


@pytest.mark.parametrize(
    ("budget", "shown"),
    [
        ("epsilon := 0.123", "epsilon := 0.123, delta := 1e-9"),
        ("epsilon := 0.2, delta := 1e-10", None),  # the ledger knows its epsilon at the dataset's delta only
        ("rho := 0.0012345678901234", "rho := 0.0012345678901234"),
        ("mu := 0.1", "mu := 0.1"),
        ("mu := 0.03333333333333333", None),
    ],
)
def test_budgets_are_those_that_were_typed(adult: duckdb.DuckDBPyConnection, budget: str, shown: str | None) -> None:
    adult.execute(f"FROM dp_marginals('adult', ['race'], {budget})").fetchall()
    number = adult.execute("SELECT max(release) FROM dp_ledger()").fetchall()[0][0]
    facts = gather(adult, number)
    assert facts.request is not None
    sql = again.repeating(facts.request, facts.release, facts.postprocess)
    assert sql is not None
    assert shown is None or re.search(rf", {re.escape(shown)}\);$", sql), sql
    adult.execute(sql).fetchall()
    assert adult.execute("SELECT max(release) FROM dp_ledger()").fetchall()[0][0] == number


def test_selects_are_told_in_words(adult: duckdb.DuckDBPyConnection) -> None:
    facts = gather(adult, "selects")
    assert facts.request is not None
    assert again.repeating(facts.request, facts.release, facts.postprocess) is None
    titles = [found.title for found in facts.rows.sets]
    assert titles == [
        "n where hours_per_week is 30 to 40",
        "n where age is [0, 18) to [55, 65), by sex × race",
        "n where age is [0, 18) to [55, 65), by sex",
        "n where age is [0, 18) to [55, 65), by race",
        "n where age is [0, 18) to [55, 65)",
        "n, by sex",
        "n where age is [0, 18), [18, 25) or where hours_per_week is 41 to 99",
    ]
    assert [found.size for found in facts.rows.sets] == [1, 6, 2, 3, 1, 2, 1]


def test_a_release_without_a_name_is_read_by_its_number() -> None:
    assert again.reading(None, {"name": None, "release": 7}, None) == "FROM dp_release(7);"
    assert again.reading(None, {"name": "it's", "release": 7}, None) == "FROM dp_release('it''s');"


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ({"type": "BOOLEAN", "kind": "values", "points": (False, True), "nulls": True}, "false, true; missing values as NULL"),
        ({"type": "INTEGER", "kind": "values", "points": tuple(range(12))}, "0, 1, 2, 3, 4, 5, 6, 7 and 4 more"),
        ({"type": "INTEGER", "kind": "integers", "points": (3, 9), "other": True}, "whole numbers 3 to 9; everything else as “other”"),
        ({"type": "DOUBLE", "kind": "bins", "points": tuple(x / 2 for x in range(12))}, "bins with the edges 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, … 5.5"),
    ],
)  # fmt: skip
def test_domains_are_told_in_words(declared: dict[str, object], shown: str) -> None:
    assert asked.cells(Attribute(name="a", **declared)) == shown  # type: ignore[arg-type]


def test_several_aggregates_have_their_own_errors(adult: duckdb.DuckDBPyConnection) -> None:
    asking = "SELECT sex, avg(hours_per_week) AS hours, count(*) AS n FROM adult GROUP BY ROLLUP (sex)"
    adult.execute(f"FROM dp_sql('{asking}', rho := 0.001, release := 'averages')").fetchall()
    sets = gather(adult, "averages").rows.sets
    assert [(found.title, found.size) for found in sets] == [
        ("hours, by sex", 2), ("n, by sex", 2), ("hours", 1), ("n", 1),
    ]  # fmt: skip
    stored = adult.execute("SELECT hours, hours_stddev, n, n_stddev FROM dp_release('averages')").fetchall()
    told = [
        (hours.value, hours.stddev, n.value, n.stddev)
        for hours, n in zip(sets[0].answers, sets[1].answers, strict=True)
    ]
    assert told == stored[:2]


def test_cells_of_null_are_told_from_sums(folder: Path) -> None:
    with duckdb.connect() as con:
        duckdb_dp.load(con, folder, progress=False)
        con.execute("CREATE TABLE t AS SELECT i % 2 = 0 AS a, i % 3 AS b FROM range(100) r(i)")
        con.execute("CALL dp_protect('t', rho := 1)").fetchall()
        con.execute("CALL dp_attribute('t', 'a', nulls := true)").fetchall()
        con.execute("CALL dp_attribute('t', 'b', low := 0, high := 2)").fetchall()
        con.execute(
            "FROM dp_sql('SELECT a, b, count(*) AS n FROM t GROUP BY CUBE (a, b)', rho := 0.1, release := 'c')"
        ).fetchall()
        sets = gather(con, "c").rows.sets
    assert sorted(found.size for found in sets) == [1, 3, 3, 9]
