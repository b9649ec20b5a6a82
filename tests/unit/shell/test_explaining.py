"""Plans from a ledger alone."""

import re
from pathlib import Path

import duckdb
import pytest

import duckdb_dp
from duckdb_dp.errors import DPError
from duckdb_dp.shell.explaining import on_ledger, statements

BUDGET = {"epsilon": 0.5, "delta": None}


@pytest.mark.parametrize(
    ("asked", "sql"),
    [
        ("all <=2-way", "FROM dp_explain('t', 'all <=2-way', epsilon := 0.5)"),
        ("age, sex", "FROM dp_explain('t', ['age', 'sex'], epsilon := 0.5)"),
        ("age, sex; it's;", "FROM dp_explain('t', [['age', 'sex'], ['it''s'], []], epsilon := 0.5)"),
        ("", "FROM dp_explain('t', [], epsilon := 0.5)"),
        ("[['age'], []]", "FROM dp_explain('t', [['age'], []], epsilon := 0.5)"),
        ("{'age': 'range'}", "FROM dp_explain('t', {'age': 'range'}, epsilon := 0.5)"),
        ("SELECT count(*) FROM u; select 1", "FROM dp_explain(NULL, ['SELECT count(*) FROM u', 'select 1'], epsilon := 0.5)"),
    ],
)  # fmt: skip
def test_requests_become_sql(asked: str, sql: str) -> None:
    assert statements(asked, "t", BUDGET) == [sql]


def test_a_statement_brings_its_own_budget() -> None:
    asked = "FROM dp_sql('SELECT 1', rho := 1, release := 'x')"
    assert statements(asked, None, {}) == ["FROM dp_explain(NULL, 'SELECT 1', rho := 1)"]
    with pytest.raises(DPError, match="leave out --epsilon"):
        statements(asked, None, BUDGET)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(DPError, match="give a budget"):
        statements("age", "t", {"epsilon": None})
    with pytest.raises(DPError, match="--dataset"):
        statements("age", None, BUDGET)


@pytest.mark.parametrize("asked", ["SELEC count(*) FROM people", "selct sex, age from people", "SLECT sum (a)"])
def test_misspelt_sql_is_no_list_of_attributes(asked: str) -> None:
    with pytest.raises(DPError, match="is no SQL that begins with SELECT or FROM, and no request; a request is"):
        statements(asked, "t", BUDGET)
    assert statements("from, to; distance from", "t", BUDGET)


def test_a_ledger_is_enough(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "my data.duckdb") as con:
        duckdb_dp.load(con, progress=False)
        con.execute("CREATE SCHEMA other")
        for table in ("main.people", "other.visits"):
            con.execute(f"CREATE TABLE {table} AS SELECT 1 AS age")
            con.execute(f"CALL dp_protect('{table}', rho := 1)").fetchall()
            con.execute(f"CALL dp_attribute('{table}', 'age', low := 0, high := 9)").fetchall()
        # The file is in use, and nothing of it is opened.
        with on_ledger(tmp_path / "my data.duckdb.dp") as plans:
            for table in ("people", "other.visits", '"my data".main.people'):
                (sql,) = statements("age", table, {"rho": 0.1})
                assert plans.execute(f"SELECT cells FROM ({sql})").fetchall() == [(10,)]
            with pytest.raises(duckdb.Error, match=re.escape("'nothing' is not protected")):
                plans.execute("FROM dp_explain('nothing', ['age'], rho := 0.1)")
            assert plans.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(0,)]
