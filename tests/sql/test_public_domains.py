"""Columns of public tables are attributes by their rows, whatever type they have and however many values."""

import pytest

from duckdb_dp.domain import types
from duckdb_dp.sql.bindings import LOADED
from duckdb_dp.sql.public_domains import BINS, MOST, attributes
from duckdb_dp.synthesis.database import Table
from tests.conftest import Loaded

COLUMNS = {
    "BOOLEAN": "i % 2 = 0", "TINYINT": "i % 50", "SMALLINT": "i", "INTEGER": "i", "BIGINT": "i", "UBIGINT": "i", "HUGEINT": "i",
    "FLOAT": "i / 7", "DOUBLE": "i / 7", "DECIMAL(4,1)": "i / 10", "DECIMAL(10,2)": "i / 7", "DECIMAL(18,6)": "i / 7", "VARCHAR": "'v' || i",
    "DATE": "DATE '2020-01-01' + i::INTEGER", "TIME": "TIME '00:00:00' + INTERVAL 1 MINUTE * i",
    "TIMESTAMP": "TIMESTAMP '2020-01-01 10:00:00' + INTERVAL 1 HOUR * i", "UUID": "('00000000-0000-0000-0000-' || lpad(i::VARCHAR, 12, '0'))",
}  # fmt: skip


@pytest.mark.parametrize("type_", COLUMNS)
@pytest.mark.parametrize("rows", [MOST // 2, 10 * MOST])
@pytest.mark.parametrize("nulls", [False, True])
def test_each_type_is_an_attribute(exact: Loaded, type_: str, rows: int, nulls: bool) -> None:
    missing = " UNION ALL SELECT NULL" if nulls else ""
    exact(f"CREATE TABLE parts AS SELECT ({COLUMNS[type_]})::{type_} AS x FROM range({rows}) r(i){missing}")
    session = LOADED[exact("SELECT _dp_loaded()")[0][0]].session
    table = Table(name=("memory", "main", "parts"), columns={"x": type_})
    with session.ledger.held(), session.planning():
        found = attributes(session, table, ())
    ((number,),) = exact("SELECT count(DISTINCT x) FROM parts")
    dtype = types.find(type_)
    assert dtype is not None
    if number > MOST and not (dtype.numeric or dtype.ordered):
        assert found == ()
        return
    (one,) = found
    assert one.base == number if number <= MOST else BINS - 2 <= one.base <= BINS
    assert one.nulls == nulls
