"""Public tables of another engine that fail on a row."""

from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.test_public_views import TABLES


def test_public_tables_of_another_engine_are_worked_out_first(tmp_path: Path) -> None:
    """Its views, and expressions over them: whether its job fails would tell whether somebody's row is joined with what fails."""
    ibis = pytest.importorskip("ibis")
    found: list[list[str]] = []
    for gone in (-1, 7):
        engine = ibis.duckdb.connect()
        engine.raw_sql(TABLES)
        engine.raw_sql(f"UPDATE visits SET fee = 150_000 WHERE id = 7; DELETE FROM visits WHERE id = {gone}")
        with duckdb.connect() as con:
            ledger = tmp_path / f"{gone}"
            duckdb_dp.testing.load(con, ledger, seed=1)
            raw = engine.table("raw")
            tables = {name: engine.table(name) for name in ("people", "visits", "codes")}
            for name, table in (tables | {"made": raw.mutate(code=raw.code.cast("int32"))}).items():
                duckdb_dp.attach(con, name, table)
            con.execute(
                """CALL dp_link('visits', "references" := {'id': 'people.id'}); CALL dp_public(['codes', 'made'])"""
            )
            con.execute(
                "CALL dp_protect(['people', 'visits'], unit := 'people.id', max_rows := {'people': 1, 'visits': 9}, rho := 1e6)"
            )
            db = Loaded(con, ledger)
            asked = (
                f"FROM dp_sql('SELECT count(*) AS n FROM visits WHERE EXISTS (SELECT 1 FROM {name} r WHERE r.region = fee AND code > 1)', rho := 1)"
                for name in ("codes", "made")
            )
            found.append([db.refused(one) for one in asked])
    assert found[0] == found[1]
    assert all("did not count" in one and "ConversionException" in one for one in found[0])


@pytest.mark.parametrize(
    "call", ["dp_marginals('visits', ['fee'], rho := 1)", "dp_sql('SELECT count(*) FROM visits', rho := 1)"]
)
def test_a_register_of_another_engine_is_worked_out_first(tmp_path: Path, call: str) -> None:
    """A key that fails in a row of it that only somebody's rows lead to."""
    ibis = pytest.importorskip("ibis")
    found = []
    for gone in (-1, 7):
        engine = ibis.duckdb.connect()
        engine.raw_sql(
            "CREATE TABLE raw AS SELECT CASE WHEN i = 7 THEN 'x' ELSE '' || i END AS code FROM range(9) t(i)"
        )
        engine.raw_sql(
            f"CREATE TABLE visits AS SELECT i % 9 AS id, i % 4 AS fee FROM range(40) t(i) WHERE i % 9 <> {gone}"
        )
        raw = engine.table("raw")
        with duckdb.connect() as con:
            ledger = tmp_path / f"{gone}"
            duckdb_dp.testing.load(con, ledger, seed=1)
            duckdb_dp.attach(con, "register", raw.select(id=raw.code.cast("int64")))
            duckdb_dp.attach(con, "visits", engine.table("visits"))
            duckdb_dp.attach(con, "rests", engine.table("visits"))
            con.execute("CALL dp_public('register')")
            for table in ("visits", "rests"):
                con.execute(f"""CALL dp_link('{table}', "references" := {{'id': 'register.id'}})""")
            con.execute("CALL dp_protect(['visits', 'rests'], unit := 'register.id', max_rows := 5, rho := 1e6)")
            con.execute("CALL dp_attribute('visits', 'fee', low := 0, high := 3)")
            found.append(Loaded(con, ledger).refused(f"FROM {call}"))
    assert found[0] == found[1]
    assert "did not count" in found[0]


@pytest.mark.parametrize("table", ["chosen", "expression"])
@pytest.mark.parametrize(
    "joined",
    [
        "EXISTS (SELECT 1 FROM {r} r WHERE r.region = fee AND code > 1)",
        "NOT EXISTS (SELECT 1 FROM {r} r WHERE r.region = fee AND code IS NULL)",
        "fee > 1 AND EXISTS (SELECT 1 FROM {r} r WHERE code = fee)",
        "{r}.region = fee AND code > 1",
    ],
)
def test_a_condition_of_a_public_table_of_another_engine_is_heeded_first(
    tmp_path: Path, table: str, joined: str
) -> None:
    """It leaves out the row that fails, which only somebody's row is joined with."""
    ibis = pytest.importorskip("ibis")
    for gone in (-1, 7):
        engine = ibis.duckdb.connect()
        engine.raw_sql(TABLES)
        engine.raw_sql(f"UPDATE visits SET fee = 150_000 WHERE id = 7; DELETE FROM visits WHERE id = {gone}")
        raw = engine.table("raw")
        made = raw.filter(raw.region != 150_000).mutate(code=raw.code.cast("int32"))
        with duckdb.connect() as con:
            duckdb_dp.testing.load(con, tmp_path / f"{gone}", seed=1)
            for name in ("people", "visits"):
                duckdb_dp.attach(con, name, engine.table(name))
            duckdb_dp.attach(con, table, engine.table("chosen") if table == "chosen" else made)
            con.execute(f"""CALL dp_link('visits', "references" := {{'id': 'people.id'}}); CALL dp_public('{table}')""")
            con.execute(
                "CALL dp_protect(['people', 'visits'], unit := 'people.id', max_rows := {'people': 1, 'visits': 9}, rho := 1e12)"
            )
            condition = joined.format(r=table)
            source = f"visits JOIN {table} ON {condition}" if "EXISTS" not in joined else f"visits WHERE {condition}"
            ((count, *_),) = con.execute(f"FROM dp_sql('SELECT count(*) AS n FROM {source}', rho := 1e9)").fetchall()
            (exact,) = engine.raw_sql(
                f"WITH {table} AS MATERIALIZED (SELECT region, TRY_CAST(code AS INTEGER) AS code FROM raw WHERE region <> 150_000) "
                f"SELECT count(*) FROM {source}"
            ).fetchone()
            assert count == pytest.approx(exact, abs=1)
