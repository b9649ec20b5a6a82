"""Keys of two columns: columns of one row make up the key of that row, and columns of two rows that of a third, whoever owns it."""

import itertools
import random
from collections import Counter
from typing import Any

import duckdb
import pytest
from sqlglot import exp, parse_one

from duckdb_dp.errors import DPError
from duckdb_dp.sql.family import Family, Member, Reference
from duckdb_dp.sql.owned.tables import Tables
from duckdb_dp.sql.owned.top import Top, top
from duckdb_dp.synthesis.database import Name

COLUMNS = {
    "p": {"id": "INTEGER", "town": "INTEGER"},
    "v": {"k1": "INTEGER", "k2": "INTEGER", "pid": "INTEGER", "fee": "INTEGER"},
    "d": {"k1": "INTEGER", "k2": "INTEGER", "days": "INTEGER"},
}
UNITS = range(4)

ONE_ROW = [
    "SELECT k1, k2, pid FROM v",
    "SELECT DISTINCT k1, k2, pid FROM v WHERE fee > 0",
    "SELECT a.k1, a.k2, b.pid FROM v AS a JOIN v AS b ON a.pid = b.pid",
    "SELECT DISTINCT b.k1, b.k2, a.pid FROM v AS a JOIN v AS b ON a.pid = b.pid AND a.fee = b.fee",
    "SELECT k1, k2, pid FROM v UNION ALL SELECT b.k1, b.k2, a.id FROM p AS a JOIN v AS b ON b.pid = a.id",
    "SELECT k1, k2, pid, row_number() OVER (PARTITION BY pid ORDER BY fee) AS n FROM v QUALIFY n = 1",
    "SELECT k1, k2, max(pid) AS pid, count(*) AS n FROM v GROUP BY k1, k2",
]
TWO_ROWS = [
    "SELECT a.k1, b.k2, a.pid FROM v AS a JOIN v AS b ON a.pid = b.pid",
    "SELECT DISTINCT a.k1, b.k2, a.pid FROM v AS a JOIN v AS b ON a.pid = b.pid",
    "SELECT a.k1, b.k2, a.pid, row_number() OVER (PARTITION BY a.pid ORDER BY b.fee) AS n FROM v AS a JOIN v AS b ON a.pid = b.pid",
    "SELECT a.k1, b.k2, a.pid, count(*) AS n FROM v AS a JOIN v AS b ON a.pid = b.pid GROUP BY a.k1, b.k2, a.pid",
    "WITH c AS (SELECT DISTINCT k1, k2, pid FROM v) SELECT DISTINCT a.k1, b.k2, a.pid FROM c AS a JOIN c AS b ON a.pid = b.pid",
    "SELECT k1, k2, pid FROM v UNION ALL SELECT a.k1, b.k2, a.pid FROM v AS a JOIN v AS b ON a.pid = b.pid",
    "SELECT a.k1, b.k2, a.pid FROM v AS a JOIN v AS b ON a.pid = b.pid UNION SELECT k1, k2, pid FROM v",
]
USES = [
    "SELECT count(*), sum(d.days) FROM ({}) AS x JOIN d ON d.k1 = x.k1 AND d.k2 = x.k2",
    "SELECT count(*), sum(d.days) FROM ({}) AS x JOIN d USING (k1, k2)",
    "SELECT count(*), sum(d.days) FROM ({}) AS x LEFT JOIN d ON d.k1 = x.k1 AND d.k2 = x.k2",
    "SELECT count(*) FROM ({}) AS x SEMI JOIN d ON d.k1 = x.k1 AND d.k2 = x.k2",
    "SELECT count(*) FROM ({}) AS x ANTI JOIN d ON d.k1 = x.k1 AND d.k2 = x.k2",
    "SELECT count(*) FROM ({}) AS x WHERE NOT EXISTS (SELECT 1 FROM d WHERE d.k1 = x.k1 AND d.k2 = x.k2)",
    "SELECT count(*), sum(y.fee) FROM ({}) AS x JOIN v AS y ON y.k1 = x.k1 AND y.k2 = x.k2",
    "SELECT count(*), sum(n) FROM (SELECT x.k1, x.k2, count(*) AS n FROM ({}) AS x GROUP BY x.k1, x.k2)",
    "SELECT count(*) FROM (SELECT DISTINCT x.k1, x.k2 FROM ({}) AS x)",
]


def name(table: str) -> Name:
    return "memory", "main", table


FAMILY = Family(
    dataset=None,  # type: ignore[arg-type]
    unit_table=name("p"),
    unit=("id",),
    members={
        name(table): Member(
            name=name(table),
            columns=columns,
            keys=keys,
            not_null=frozenset(column for key in keys for column in key),
            references=references,
            owner=owner,
            max_rows=30,
        )
        for (table, columns), keys, references, owner in zip(
            COLUMNS.items(),
            ((("id",),), (("k1", "k2"),), ()),
            (
                (),
                (Reference(columns=("pid",), parent=name("p"), parent_columns=("id",), enforced=True),),
                (Reference(columns=("k1", "k2"), parent=name("v"), parent_columns=("k1", "k2"), enforced=True),),
            ),
            (("id",), ("pid",), ()),
            strict=True,
        )
    },
    public={},
    views={},
)


def fill(con: duckdb.DuckDBPyConnection, seed: int) -> None:
    rng = random.Random(seed)
    visits = [(*key, rng.choice(UNITS), rng.randint(0, 3)) for key in itertools.product(range(4), repeat=2)]
    rows: dict[str, list[tuple[Any, ...]]] = {
        "p": [(i, rng.randint(0, 2)) for i in UNITS],
        "v": rng.sample(visits, 13),
        "d": [(*rng.choice(visits)[:2], rng.randint(1, 9)) for _ in range(12)],
    }
    for table, columns in COLUMNS.items():
        con.execute(f"CREATE OR REPLACE TABLE {table} ({', '.join(f'{c} {type_}' for c, type_ in columns.items())})")
        con.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows[table])


def compiled(con: duckdb.DuckDBPyConnection, text: str) -> Top | None:
    select = parse_one(text, dialect="duckdb")
    assert isinstance(select, exp.Select)

    def read(sql: str) -> list[tuple[Any, ...]]:
        return con.execute(sql).fetchall()

    try:
        return top(Tables(FAMILY, ("memory", "main"), read, bounded=True), select, {}, read)
    except DPError as refusal:
        assert "one owner" in str(refusal) or "several units" in str(refusal) or "other units" in str(refusal), refusal
        return None


def rows(con: duckdb.DuckDBPyConnection, found: Top) -> Counter[tuple[str, ...]]:
    read = con.execute(f"SELECT * FROM ({found.source.sql})").fetchall()
    return Counter(tuple(map(repr, row)) for row in read if row[-1] is not None)


@pytest.mark.some(3)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("inside", ONE_ROW + TWO_ROWS)
def test_removing_a_unit_changes_its_own_rows_alone(inside: str, use: str) -> None:
    text, seen = use.format(inside), 0
    with duckdb.connect() as con:
        for seed in range(6):
            fill(con, seed)
            found = compiled(con, text)
            assert (found is not None) == (inside in ONE_ROW), text
            if found is None:
                continue
            before = rows(con, found)
            seen += len(before)
            for unit in UNITS:
                con.execute("BEGIN")
                own = f"SELECT k1, k2 FROM v WHERE pid = {unit}"
                con.execute(f"DELETE FROM d WHERE (k1, k2) IN ({own})")
                con.execute(f"DELETE FROM v WHERE pid = {unit}; DELETE FROM p WHERE id = {unit}")
                after = rows(con, found)
                con.execute("ROLLBACK")
                assert after == Counter({row: n for row, n in before.items() if row[-1] != repr(unit)}), text
    assert seen > 0 or inside in TWO_ROWS
