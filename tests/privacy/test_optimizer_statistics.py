"""What DuckDB's optimizer knows of a column, whether it has NULLs and its ends, changes no other person's part of an answer."""

from typing import Any

import duckdb
import pytest

import duckdb_dp.testing

FAILS = ("c * 2147483647", "c + 2147483600", "c::TINYINT + 100::TINYINT", "e * 99::DECIMAL(18, 0)")
SELECTS = (
    "SELECT count({e}) AS n FROM t",
    "SELECT count(*) AS n FROM t WHERE ({e}) IS NOT NULL",
    "SELECT count(*) AS n FROM t WHERE c >= 0 OR ({e}) > 0",
    "SELECT count(*) FILTER (WHERE NOT (({e}) IS NULL)) AS n FROM t",
    "SELECT sum(CASE WHEN ({e}) IS NULL THEN 1 ELSE 0 END) AS n FROM t WHERE c < 2000",
    "SELECT count(*) AS n FROM t WHERE concat(({e}) IS NULL, 'x') = 'falsex'",
    "SELECT ({e}) IS NULL AS g, count(*) AS n FROM t GROUP BY 1",
    "SELECT CASE WHEN ({e}) IS NULL THEN 'a' ELSE 'b' END AS g, count(*) AS n FROM t GROUP BY 1",
    "SELECT k, count(*) AS n FROM (SELECT ({e}) IS NULL AS k FROM t) GROUP BY k",
)
OF_FAMILIES = (
    "SELECT count(*) AS n FROM t JOIN p USING (id) WHERE ({e}) IS NOT NULL",
    "SELECT count(*) AS n FROM p WHERE id IN (SELECT id FROM t WHERE ({e}) IS NOT NULL)",
    "SELECT count(*) AS n FROM p WHERE EXISTS (SELECT 1 FROM t WHERE t.id = p.id AND ({e}) IS NULL)",
    "SELECT n, count(*) AS m FROM (SELECT id, sum(CASE WHEN ({e}) IS NULL THEN 1 ELSE 0 END) AS n FROM t GROUP BY id) "
    "WHERE n BETWEEN 0 AND 3 GROUP BY n",
    "SELECT count(*) AS n FROM (SELECT DISTINCT id, ({e}) IS NULL AS k FROM t)",
)
ROWS = (
    "CREATE TABLE p (id INTEGER PRIMARY KEY); INSERT INTO p SELECT i FROM range(400) r(i); "
    "CREATE TABLE t (id INTEGER {more}, c INTEGER, e DECIMAL(18, 0)); "
    "INSERT INTO t SELECT i % 390, i % 100, 999999999999990000 + i % 900 FROM range(1000) r(i);"
)


def answers(tmp_path: Any, kind: str, person: str, selects: tuple[str, ...]) -> list[list[float]]:
    """The noisy numbers of some SELECTs, beside one more person's row."""
    connection = duckdb.connect()
    duckdb_dp.testing.load(connection, tmp_path / f"{kind}{len(person)}.dp", seed=1)
    connection.execute(ROWS.format(more="REFERENCES p" if kind == "family" else ""))
    connection.execute(person)
    if kind == "family":
        connection.execute(
            "CALL dp_protect(['p', 't'], unit := 'p.id', max_rows := {'t': 4}, epsilon := 1e6, delta := 1e-6)"
        )
    else:
        connection.execute("CALL dp_protect('t', epsilon := 1e6, delta := 1e-6)")
    found = []
    for select in selects:
        shown = "COLUMNS(lambda c: c IN ('n', 'm'))" if "AS m" not in select else "m"
        rows = connection.execute(f"SELECT {shown} FROM dp_sql($${select}$$, epsilon := 300)").fetchall()
        found.append([float(value) for row in rows for value in row])
    connection.close()
    return found


@pytest.mark.parametrize("fails", [FAILS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in FAILS[1:])])
@pytest.mark.parametrize("kind", ["rows", "family"])
def test_one_person_changes_a_count_by_one(tmp_path: Any, kind: str, fails: str) -> None:
    selects = tuple(text.replace("{e}", fails) for text in (SELECTS if kind == "rows" else OF_FAMILIES))
    without = answers(tmp_path, kind, "", selects)
    for person in ("INSERT INTO t VALUES (395, NULL, NULL)", "INSERT INTO t VALUES (395, -1, 5) --"):
        for text, one, other in zip(selects, without, answers(tmp_path, kind, person, selects), strict=True):
            moved = [abs(a - b) for a, b in zip(one, other, strict=True)]
            assert max(moved) < 4, (text, one, other)  # two groups by one each, and the noise
