"""Partitioned files on one machine: views over globs, through DuckDB itself."""

from pathlib import Path
from typing import Any

import pytest

ROWS = "SELECT i AS id, (i % 4)::INTEGER AS year, (i * i % 7)::INTEGER AS v, ['a', 'b', 'ü'][i % 3 + 1] AS w FROM range({0}) t(i)"
QUESTION = "FROM dp_marginals('{0}', 'all <=2-way', mu := 0.5)"


def declare(loaded: Any, name: str) -> None:
    loaded(
        f"CALL dp_protect('{name}', mu := 1000, delta := 1e-9); CALL dp_attribute('{name}', 'year', low := 0, high := 4)"
    )
    loaded(
        f"CALL dp_attribute('{name}', 'v', low := 1, high := 6); CALL dp_attribute('{name}', 'w', \"values\" := ['a', 'ü'])"
    )


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_hive_partitions_are_counted_as_one_table(exact: Any, tmp_path: Path, form: str) -> None:
    exact(f"CREATE TABLE one AS {ROWS.format(5000)}")
    exact(f"COPY one TO '{tmp_path}/parts' (FORMAT {form}, PARTITION_BY (year))")
    reader = f"read_{form}('{tmp_path}/parts/*/*.{form}', hive_partitioning = true)"
    exact(
        f"CREATE VIEW parts AS SELECT TRY_CAST(year AS INTEGER) AS year, TRY_CAST(v AS INTEGER) AS v, w FROM {reader}"
    )
    for name in ("one", "parts"):
        declare(exact, name)
    assert exact(QUESTION.format("parts")) == exact(QUESTION.format("one"))


def test_memory_stays_below_the_limit_that_is_set(exact: Any, tmp_path: Path) -> None:
    exact(f"COPY ({ROWS.format(3_000_000)}) TO '{tmp_path}/rows.parquet' (FORMAT parquet)")
    exact(f"CREATE VIEW big AS FROM '{tmp_path}/*.parquet'")
    declare(exact, "big")
    exact("SET memory_limit = '64MB'; SET threads = 1")
    assert exact("SELECT sum(count) FROM dp_marginals('big', ['w'], mu := 0.5)") == [(2_000_000.0,)]
    assert exact("SELECT sum(count) FROM dp_marginals('big', 'all 2-way', mu := 0.5)")
