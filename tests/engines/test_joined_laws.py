"""Random statements over random tables: what an engine has of a compiled relation is what DuckDB has of it, or it is refused."""

import random
from collections import Counter
from typing import Any

import duckdb
import pytest

from duckdb_dp.counting.engines.source import Source
from duckdb_dp.errors import DPError
from duckdb_dp.sql.engines import joined
from tests.unit.sql.test_owned_removal import COLUMNS, Statements, compiled, fill

HERE, THERE = '"memory"."main".', '"{}"."(attached)".'


@pytest.mark.slow
@pytest.mark.some(1, "backend")
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("twice", [False, True])
def test_an_engine_has_the_rows_that_duckdb_has(backend: Any, put: Any, seed: int, twice: bool) -> None:
    rng, read, refused = random.Random(seed), 0, Counter[str]()
    with duckdb.connect() as con:
        fill(con, rng, twice=twice)
        tables = {table: Source.of(table, put(con, f"FROM {table}")) for table in COLUMNS}
        statements = Statements(rng)
        for _ in range(80 if backend.name == "duckdb" else 40):
            text = statements.select()
            found = compiled(con, text, enforced=False)
            if found is None:
                continue
            sql = found.source.sql
            try:
                own = joined.source(
                    sql.replace(HERE, THERE.format(backend.name)), "asked", lambda full: tables[full[2]]
                )
            except DPError as error:
                refused[str(error)] += 1
                continue
            read += 1
            rows = own.fetch(lambda table: table).to_pylist()
            there = Counter(tuple(repr(row[name]) for name in own.columns) for row in rows)
            here = Counter(tuple(map(repr, row)) for row in con.execute(sql).fetchall())
            assert there == here, (text, sql)
    assert read > (5 if backend.name == "duckdb" else 0), refused
    assert not [said for said in refused if "_dp_" in said or "x0" in said], refused
