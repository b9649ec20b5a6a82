"""GROUP BY of EXISTS, of a count of a unit's rows compared with a number, and of CASE of these, under an alias or a place."""

from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing

VISITS = "(SELECT count(*) FROM visits v WHERE v.patient = p.patient)"
URGENT = "EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.patient AND v.urgent)"
ITEMS = [
    URGENT,
    f"NOT {URGENT}",
    f"{VISITS} > 3",
    f"{VISITS} BETWEEN 1 AND 3",
    f"CASE WHEN {URGENT} THEN 'urgent' ELSE 'calm' END",
    f"CASE WHEN {VISITS} = 0 THEN 'none' WHEN {VISITS} < 4 THEN 'few' ELSE 'many' END",
    "(SELECT max(cost) FROM visits v WHERE v.patient = p.patient) > 9",
    "p.patient IN (SELECT v.patient FROM visits v WHERE v.patient IS NOT NULL AND v.urgent)",
]
GROUPS = [
    "GROUP BY k",
    "GROUP BY 1",
    "GROUP BY ALL",
    "GROUP BY k, ward",
    "GROUP BY k HAVING count(*) > 5 ORDER BY k",
    "GROUP BY k HAVING k IS NOT NULL",
]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE patients AS SELECT i AS patient, ['a', 'b'][1 + i % 2] AS ward FROM range(300) t(i);"
            "ALTER TABLE patients ADD PRIMARY KEY (patient);"
            "CREATE TABLE visits (id INTEGER, patient BIGINT REFERENCES patients (patient), urgent BOOLEAN, cost DECIMAL(9, 2));"
            "INSERT INTO visits SELECT i, (i * i * 7) % 290, i % 5 = 0, i % 13 FROM range(900) t(i);"
            "INSERT INTO visits SELECT 1000 + i, NULL, true, 1 FROM range(9) t(i)"
        )
        duckdb_dp.testing.load_exact(connection, tmp_path_factory.mktemp("l") / "l.dp")
        connection.execute(
            "CALL dp_protect(['patients', 'visits'], unit := 'patients.patient', epsilon := 1e6, delta := 1e-9);"
            "CALL dp_attributes('patients', {'ward': ['a', 'b']})"
        )
        yield connection


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("item", ITEMS)
def test_groups_of_a_subquery_are_those_of_sql(con: duckdb.DuckDBPyConnection, item: str, group: str) -> None:
    ward = "ward, " if "ward" in group else ""
    sql = f"SELECT {item} AS k, {ward}count(*) AS n FROM patients p {group}"
    expected = con.execute(sql).fetchall()
    got = con.execute("FROM dp_sql(?, epsilon := 9, clip := 1, fresh := true)", [sql]).fetchall()
    width = 3 if ward else 2
    shown = sorted(
        (str(row[: width - 1]), round(row[width - 1])) for row in got if row[0] is not None and round(row[width - 1])
    )
    assert shown == sorted((str(row[: width - 1]), row[width - 1]) for row in expected if row[0] is not None)
    if "max(" not in item:  # of which a patient without visits has none
        assert all(row[0] is not None for row in got)


def test_a_count_alone_is_no_public_group(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="say which ones to count by"):
        con.execute(f"FROM dp_sql('SELECT {VISITS} AS k, count(*) AS n FROM patients p GROUP BY k', epsilon := 1)")


DETERMINED = {
    "SELECT avg(x) AS m FROM (SELECT length(any_value(p.ward)) AS x FROM patients p JOIN visits v USING (patient) GROUP BY p.patient)": 1.0,
    "SELECT w, count(*) AS n FROM (SELECT any_value(p.ward) AS w FROM patients p LEFT JOIN visits v ON v.patient = p.patient "
    "GROUP BY p.patient) WHERE w IN ('a', 'b') GROUP BY w": None,
    "SELECT w, count(*) AS n FROM (SELECT any_value(p.ward) FILTER (WHERE v.cost > 1) AS w FROM patients p JOIN visits v "
    "ON v.patient = p.patient GROUP BY v.patient) WHERE w IN ('a', 'b') GROUP BY w": None,
}


@pytest.mark.parametrize("sql", DETERMINED)
def test_any_value_of_what_the_units_key_determines(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    got = con.execute("FROM dp_sql(?, epsilon := 9, fresh := true)", [sql]).fetchall()
    if DETERMINED[sql] is not None:
        assert got[0][0] == pytest.approx(DETERMINED[sql])
        return
    assert sorted((row[0], round(row[1])) for row in got) == sorted(con.execute(sql).fetchall())


def test_any_value_of_rows_is_refused(con: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT avg(x) FROM (SELECT any_value(cost) AS x FROM visits GROUP BY patient)"
    with pytest.raises(duckdb.Error, match="depends on the order of the rows"):
        con.execute("FROM dp_sql(?, epsilon := 1)", [sql])
