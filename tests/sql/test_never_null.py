"""count(x) of a column that is NOT NULL is count(*) where a norm bounds a unit, and only there where no join makes it NULL."""

import json
from typing import Any

import duckdb
import pytest

import duckdb_dp.testing

ROWS = """
CREATE TABLE p (id INTEGER PRIMARY KEY);
CREATE TABLE v (id INTEGER REFERENCES p, day DATE NOT NULL, x DECIMAL(8, 2) NOT NULL, y DECIMAL(8, 2), z DOUBLE NOT NULL);
INSERT INTO p FROM range(600);
INSERT INTO v SELECT i % 400, DATE '1994-01-01' + i::INTEGER, i % 10, CASE WHEN i % 2 = 0 THEN 1 END, CASE WHEN i % 4 > 0 THEN 1 ELSE 'nan'::DOUBLE END
FROM range(1200) r(i);
CALL dp_protect(['p', 'v'], unit := 'p.id', max_rows := 'auto', epsilon := 1e6, delta := 1e-6);
"""


@pytest.mark.parametrize(
    ("select", "merged"),
    [
        ("SELECT avg(x) AS a, count(x) AS n, count(*) AS m FROM v", True),
        (
            "SELECT avg(x) AS a, count(x) AS n, count(*) AS m FROM v WHERE day < DATE '1994-01-01' + INTERVAL 1 YEAR",
            True,
        ),
        ("SELECT avg(x) AS a, count(x) AS n, count(*) AS m FROM p JOIN v USING (id)", True),
        ("SELECT avg(y) AS a, count(y) AS n, count(*) AS m FROM v", False),
        ("SELECT avg(z) AS a, count(z) AS n, count(*) AS m FROM v WHERE NOT isnan(z)", False),
        ("SELECT avg(x) AS a, count(x) AS n, count(*) AS m FROM p LEFT JOIN v USING (id)", False),
        (
            "SELECT avg(q) AS a, count(q) AS n, count(*) AS m FROM (SELECT p.id, v.x AS q FROM p LEFT JOIN v USING (id))",
            False,
        ),
    ],
)
def test_what_is_never_null_is_counted_once(tmp_path: Any, select: str, merged: bool) -> None:
    with duckdb.connect() as con:
        duckdb_dp.testing.load(con, tmp_path / "v.dp", seed=1)
        con.execute(ROWS)
        exact = con.execute(select).fetchone()
        found = con.execute(f"SELECT a, n, m FROM dp_sql($${select}$$, epsilon := 3000)").fetchone()
        assert exact is not None
        assert found is not None
        assert [float(one) for one in found] == pytest.approx([float(one) for one in exact], rel=0.05)
        (request,) = con.execute("SELECT request FROM dp_ledger() ORDER BY time DESC LIMIT 1").fetchone() or ("",)
        (part,) = json.loads(request)["direct"]
        assert (len(part["sums"]) == 3) == merged, part["sums"]
