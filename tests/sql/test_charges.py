"""How often a statement charges: the contract with DuckDB, which plans and runs functions as often as it likes.

A call plans while it is bound and charges while it runs; what was charged once is read back ever after.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from duckdb_dp.accounting.ledger import Ledger

CALL = "dp_marginals('people', ['sex'], mu := 0.5)"
FRESH = "dp_marginals('people', ['sex'], mu := 0.5, fresh := true)"
NUMBER = itertools.count(1)

FREE = [
    "EXPLAIN FROM {call}",
    "EXPLAIN CREATE OR REPLACE TABLE made AS FROM {call}",
    "DESCRIBE FROM {call}",
    "PREPARE asked AS FROM {call}",
    "CREATE OR REPLACE VIEW seen AS FROM {call}",
    "CREATE OR REPLACE VIEW seen AS FROM {call}; DESCRIBE seen",
    "CREATE OR REPLACE VIEW seen AS FROM {call}; EXPLAIN FROM seen",
    "CREATE OR REPLACE MACRO asked() AS TABLE FROM {call}",
    "SELECT * FROM {call} LIMIT 0",
    "SELECT * FROM {call} WHERE false",
    "SELECT * FROM people WHERE false AND EXISTS (FROM {call})",
]
ONCE = [
    "SELECT * FROM {call}",
    "SELECT count(*) FROM {call}",
    "SELECT * FROM {call} LIMIT 1",
    "SELECT sum(count) OVER () FROM {call} ORDER BY count",
    "SELECT * FROM people SEMI JOIN {call} USING (sex)",
    "CREATE OR REPLACE TABLE made AS FROM {call}",
    "CREATE OR REPLACE TEMP TABLE temporary AS FROM {call}",
    "CREATE OR REPLACE TABLE made AS FROM {call} WITH NO DATA; INSERT INTO made FROM {call}",
    "CREATE OR REPLACE TABLE made (total DOUBLE); INSERT INTO made SELECT sum(count) FROM {call}",
    "COPY (FROM {call}) TO '{file}'",
    "CREATE OR REPLACE VIEW seen AS FROM {call}; FROM seen",
    "WITH x AS (FROM {call}) FROM x UNION ALL FROM x",
    "WITH x AS MATERIALIZED (FROM {call}) FROM x UNION ALL FROM x",
    "EXPLAIN ANALYZE FROM {call}",
    "SUMMARIZE FROM {call}",
    "PREPARE asked AS FROM {call}; EXECUTE asked",
    "CREATE OR REPLACE MACRO asked() AS TABLE FROM {call}; FROM asked()",
    # DuckDB runs the call two times or more in each of these.
    "CREATE OR REPLACE VIEW seen AS FROM {call}; FROM seen a JOIN seen b USING (sex)",
    "SELECT (SELECT max(count) FROM {call}), (SELECT min(count) FROM {call})",
    "WITH x AS NOT MATERIALIZED (FROM {call}) FROM x UNION ALL FROM x",
    "PIVOT (FROM {call}) ON sex USING sum(count)",
    "SELECT (SELECT max(count) FROM {call} m WHERE m.sex = p.sex) FROM people p",
    "SELECT * FROM people p, LATERAL (SELECT * FROM {call} m WHERE m.sex = p.sex)",
    "FROM {call} UNION ALL FROM {call}",
]


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many releases were drawn."""
    stored, store = [], Ledger.store

    def count(self: Ledger, release, arrays) -> None:
        stored.append(release)
        store(self, release, arrays)

    monkeypatch.setattr(Ledger, "store", count)
    return lambda: len(stored)


@pytest.fixture
def call() -> str:
    """A call that no test asked before."""
    return f"dp_marginals('people', ['sex'], mu := 0.5 + {next(NUMBER)} / 1e6)"


@pytest.mark.parametrize("statement", FREE)
def test_free(shared, draws, call: str, statement: str) -> None:
    before = shared.charges()
    shared(statement.format(call=call))
    shared(statement.format(call=call[:-1] + ", fresh := true)"))
    assert (shared.charges() - before, draws()) == (0, 0)


def test_a_bind_error_is_free(db, draws) -> None:
    for call in (CALL, FRESH):
        for statement in ("SELECT no_such_column FROM {call}", "INSERT INTO no_such_table FROM {call}"):
            with pytest.raises(duckdb.Error):
                db(statement.format(call=call))
    assert (db.charges(), draws()) == (0, 0)


@pytest.mark.some(6)
@pytest.mark.parametrize("statement", ONCE)
def test_once_ever(shared, draws, call: str, tmp_path: Path, statement: str) -> None:
    before = shared.charges()
    statement = statement.format(call=call, file=tmp_path / "made.csv")
    shared(statement)
    assert (shared.charges() - before, draws()) == (1, 1)
    shared(statement)
    shared(f"FROM {call}")
    assert (shared.charges() - before, draws()) == (1, 1)


@pytest.mark.some(6)
@pytest.mark.parametrize("statement", ONCE)
def test_fresh_once_per_statement(shared, draws, call: str, tmp_path: Path, statement: str) -> None:
    before = shared.charges()
    shared(statement.format(call=call[:-1] + ", fresh := true)", file=tmp_path / "made.csv"))
    # PIVOT without IN is two statements: one looks for the columns.
    expected = 2 if statement.startswith("PIVOT") else 1
    assert (shared.charges() - before, draws()) == (expected, expected)


def test_fresh_charges_every_statement_and_renews_what_is_read_later(db, draws) -> None:
    first = db(f"FROM {CALL}")
    second = db(f"FROM {FRESH}")
    assert db(f"FROM {CALL}") == second != first
    third = db(f"FROM {FRESH}")
    assert db(f"FROM {CALL}") == third
    assert len({tuple(first), tuple(second), tuple(third)}) == 3
    assert (db.charges(), draws()) == (3, 3)


def test_fresh_read_twice_in_a_statement_is_one_draw(db, draws) -> None:
    db(f"CREATE OR REPLACE VIEW renewed AS FROM {FRESH}")
    for read in ("renewed", FRESH):
        before = draws()
        rows = db(f"SELECT a.count, b.count FROM {read} a JOIN {read} b USING (sex)")
        assert len(rows) == 2
        assert all(a == b for a, b in rows)
        assert draws() == before + 1


def test_fresh_prepared_once_charges_each_execution(db, draws) -> None:
    db(f"PREPARE renew AS FROM {FRESH}")
    assert len({tuple(db("EXECUTE renew")) for _ in range(3)}) == 3
    assert (db.charges(), draws()) == (3, 3)


def test_the_same_numbers_however_they_are_read(db, tmp_path: Path) -> None:
    first = db(f"FROM {CALL}")
    db(
        f"CREATE OR REPLACE VIEW seen AS FROM {CALL}; CREATE OR REPLACE TABLE made AS FROM {CALL}; PREPARE asked AS FROM {CALL}"
    )
    db(f"COPY (FROM {CALL}) TO '{tmp_path / 'made.parquet'}'")
    for read in ("seen", "made", f"'{tmp_path / 'made.parquet'}'"):
        assert db(f"FROM {read}") == first
    assert db("EXECUTE asked") == first
    assert db("SELECT bool_and(a.count = b.count AND b.count = (SELECT count FROM seen s WHERE s.sex = a.sex)) "
              "FROM seen a JOIN seen b USING (sex)") == [(True,)]  # fmt: skip
    pivoted = db("PIVOT (SELECT sex, count FROM seen) ON sex USING sum(count)")
    assert pivoted == [tuple(count for _, count, *_ in first)]


def test_a_relation_shown_and_turned_into_a_frame_again_and_again(db, draws) -> None:
    relation = db.connection.sql(f"FROM {CALL}")
    shown = [str(relation) for _ in range(3)]
    frames = [relation.df() for _ in range(3)]
    assert shown[0] == shown[1] == shown[2]
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])
    assert str(db.connection.sql(f"FROM {CALL}")) == shown[0]
    assert (db.charges(), draws()) == (1, 1)


def test_parts_of_a_statement_that_differ_are_charged_each(db, draws) -> None:
    db("FROM dp_marginals('people', ['sex'], mu := 0.5) UNION ALL FROM dp_marginals('people', ['sex'], mu := 0.25)")
    assert (db.charges(), draws()) == (2, 2)
    assert sorted(charge["cost"] for charge in db.charged()) == pytest.approx([0.0625, 0.25])


def test_questions_about_the_ledger_and_the_plan_are_free(db, draws) -> None:
    db("FROM dp_explain('people', 'all 2-way', mu := 0.5); FROM dp_explain('people', ['sex'], target_stddev := 50)")
    db("FROM dp_budget(); FROM dp_ledger(); FROM dp_releases(); FROM dp_domain('people'); CALL dp_check('people')")
    assert (db.charges(), draws()) == (0, 0)
