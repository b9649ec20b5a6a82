"""Of equal values that are not the same, which one stands for all does not depend on the order of rows."""

import random
from collections import Counter
from dataclasses import replace

import duckdb
import pytest
from sqlglot import exp, parse_one

from duckdb_dp.errors import DPError
from duckdb_dp.sql.family import Family, Member, PublicTable, Reference
from duckdb_dp.sql.owned.tables import Tables
from duckdb_dp.sql.owned.top import top

EQUAL = {
    "VARCHAR COLLATE NOCASE": ["'a'", "'A'", "'b'", "'B'", "NULL"],
    "DOUBLE": ["0.0", "-0.0", "'NaN'", "-('NaN'::DOUBLE)", "2.5", "NULL"],
    "FLOAT": ["0.0", "-0.0", "'NaN'", "-('NaN'::FLOAT)", "NULL"],
    "INTERVAL": ["'30 days'", "'1 month'", "'31 days'", "'1 month 1 day'", "NULL"],
    "DOUBLE[]": ["[0.0]", "[-0.0]", "[1.0, -0.0]", "[1.0, 0.0]", "NULL"],
    "STRUCT(a INTERVAL)": ["{'a': INTERVAL '30 days'}", "{'a': INTERVAL '1 month'}", "NULL"],
    "VARCHAR": ["'a'", "'A'", "NULL"],
}
"""Values of each type, of which some are equal and not the same."""

SELECTS = {
    "least": "SELECT count(*), count(DISTINCT lo || hi) FROM (SELECT id, min(x)::VARCHAR AS lo, max(x)::VARCHAR AS hi FROM v GROUP BY id)",
    "distinct least": "SELECT count(DISTINCT lo) FROM (SELECT id, min(DISTINCT x)::VARCHAR AS lo FROM v GROUP BY id)",
    "filtered": "SELECT count(DISTINCT hi) FROM (SELECT id, max(x) FILTER (WHERE y > 1)::VARCHAR AS hi FROM v GROUP BY id)",
    "groups": "SELECT count(DISTINCT s), sum(n) FROM (SELECT x::VARCHAR AS s, n FROM (SELECT id, x, count(*) AS n FROM v GROUP BY id, x))",
    "two groups": "SELECT count(DISTINCT s) FROM (SELECT x::VARCHAR || z::VARCHAR AS s FROM (SELECT id, x, z FROM v GROUP BY ALL))",
    "distinct": "SELECT count(DISTINCT s) FROM (SELECT x::VARCHAR AS s FROM (SELECT DISTINCT id, x FROM v))",
    "union": "SELECT count(DISTINCT s) FROM (SELECT x::VARCHAR AS s FROM (SELECT id, x FROM v UNION SELECT id, z FROM v))",
    "window": "SELECT count(DISTINCT s) FROM (SELECT (max(x) OVER (PARTITION BY id))::VARCHAR AS s FROM v)",
    "running": "SELECT count(DISTINCT s) FROM (SELECT (min(x) OVER (PARTITION BY id ORDER BY y))::VARCHAR AS s FROM v)",
    "scalar": "SELECT count(DISTINCT s) FROM (SELECT id, (SELECT min(x) FROM v WHERE v.id = p.id) AS s FROM p)",
    "median": "SELECT count(DISTINCT s) FROM (SELECT id, median(x)::VARCHAR AS s FROM v GROUP BY id)",
}


def family(type_: str) -> Family:
    plain = type_.removesuffix(" COLLATE NOCASE")
    columns = {"p": {"id": "INTEGER"}, "v": {"id": "INTEGER", "x": plain, "z": plain, "y": "INTEGER"}}
    to = Reference(columns=("id",), parent=("memory", "main", "p"), parent_columns=("id",), enforced=True)
    members = [
        Member(
            name=("memory", "main", table),
            columns=found,
            keys=(("id",),) if table == "p" else (),
            not_null=frozenset({"id"}),
            references=() if table == "p" else (to,),
            owner=("id",),
            max_rows=None,
        )
        for table, found in columns.items()
    ]
    return Family(
        dataset=None,  # type: ignore[arg-type]
        unit_table=("memory", "main", "p"),
        unit=("id",),
        members={one.name: one for one in members},
        public={},
        views={},
    )


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("type_", EQUAL)
def test_order_of_rows(type_: str) -> None:
    rng = random.Random(7)
    rows = [
        (i, rng.choice(EQUAL[type_]), rng.choice(EQUAL[type_]), rng.randint(0, 2)) for i in range(3) for _ in range(9)
    ]
    read = 0
    for kind, text in SELECTS.items():
        if kind == "median" and type_ not in ("DOUBLE", "FLOAT"):
            continue
        select = parse_one(text, dialect="duckdb")
        assert isinstance(select, exp.Select)
        found = top(Tables(family(type_), ("memory", "main"), lambda _: []), select, {}, lambda _: []).source.sql
        seen = []
        for turn in range(4):
            order = sorted(rows, key=lambda row: (row[1:], row[0]), reverse=turn == 1)
            if turn > 1:
                rng.shuffle(order)
            with duckdb.connect() as con:
                con.execute("CREATE TABLE p (id INTEGER); INSERT INTO p FROM range(3)")
                con.execute(f"CREATE TABLE v (id INTEGER, x {type_}, z {type_}, y INTEGER)")
                con.execute(f"INSERT INTO v VALUES {', '.join(f'({i}, {x}, {z}, {y})' for i, x, z, y in order)}")
                con.execute("SET default_order = 'DESC'; SET default_null_order = 'nulls_first'")
                # What is read of a row says that it is the same by its text.
                seen.append(
                    Counter(
                        tuple(map(repr, row))
                        for row in con.execute(f"SELECT COLUMNS(*)::VARCHAR FROM ({found})").fetchall()
                    )
                )
        assert all(one == seen[0] for one in seen), (kind, found)
        read += 1
    assert read >= 10


@pytest.mark.some(2)
@pytest.mark.parametrize("type_", EQUAL)
def test_least_and_largest_are_those_of_duckdb(type_: str) -> None:
    select = parse_one(
        "SELECT count(lo), count(hi) FROM (SELECT id, min(x) AS lo, max(x) AS hi FROM v GROUP BY id)", dialect="duckdb"
    )
    assert isinstance(select, exp.Select)
    found = top(Tables(family(type_), ("memory", "main"), lambda _: []), select, {}, lambda _: []).source
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE v (id INTEGER, x {type_}, z {type_}, y INTEGER)")
        for i, x in enumerate(EQUAL[type_] * 3):
            con.execute(f"INSERT INTO v VALUES ({i % 4}, {x}, NULL, 0)")
        own = f"SELECT lo, hi FROM (SELECT COLUMNS(*) FROM ({found.sql})) AS t(lo, hi, o) ORDER BY o"
        theirs = "SELECT min(x), max(x) FROM v GROUP BY id ORDER BY id"
        assert con.execute(
            f"SELECT count(*) FROM ({own}) a POSITIONAL JOIN ({theirs}) b(l, h) WHERE a.lo IS DISTINCT FROM b.l OR a.hi IS DISTINCT FROM b.h"
        ).fetchall() == [(0,)]


AROUND = [
    "SELECT count(*) FROM v WHERE (SELECT count(*) FROM t WHERE t.name >= v.x::VARCHAR) > 1",
    "SELECT sum(n) FROM (SELECT id, (SELECT count(*) FROM t WHERE t.name || 'a' < v.x::VARCHAR) AS n FROM v)",
    "SELECT count(*) FROM v WHERE EXISTS (SELECT 1 FROM v AS w WHERE w.id = v.id AND w.z::VARCHAR < v.x::VARCHAR)",
    "SELECT count(*) FROM v WHERE EXISTS (SELECT 1 FROM v AS w WHERE w.id = v.id AND w.z < v.x)",
]
"""Subqueries that read the row around them, of which the first two do not read whose it is."""


@pytest.mark.some(2)
@pytest.mark.parametrize("type_", EQUAL)
def test_equal_rows_of_other_units(type_: str) -> None:
    names = PublicTable(name=("memory", "main", "t"), columns={"name": "VARCHAR"})
    tables = replace(family(type_), public={names.name: names})
    read = 0
    for text in AROUND:
        select = parse_one(text, dialect="duckdb")
        assert isinstance(select, exp.Select)
        try:
            found = top(Tables(tables, ("memory", "main"), lambda _: []), select, {}, lambda _: []).source
        except DPError as error:
            assert type_ in str(error)
            assert "only compare it there" in str(error)
            continue
        read += 1
        with duckdb.connect() as con:
            con.execute("CREATE TABLE p (id INTEGER); INSERT INTO p FROM range(6)")
            con.execute(
                "CREATE TABLE t AS SELECT unnest(['-0.0', '0.0', '-nan', 'nan', 'A', 'a', '1 month', '30 days']) AS name"
            )
            con.execute(f"CREATE TABLE v (id INTEGER, x {type_}, z {type_}, y INTEGER)")
            values = ", ".join(f"({i}, {x}, {x}, 0)" for i, x in enumerate(EQUAL[type_]))
            con.execute(f"INSERT INTO v VALUES {values}")
            own = f"SELECT COLUMNS(*)::VARCHAR FROM ({found.sql})"
            together = Counter(map(repr, con.execute(own).fetchall()))
            alone: Counter[str] = Counter()
            for i in range(6):
                con.execute(f"BEGIN; DELETE FROM v WHERE id <> {i}")
                alone += Counter(map(repr, con.execute(own).fetchall()))
                con.execute("ROLLBACK")
            assert together == alone, (text, found.sql)
    assert read >= 1
