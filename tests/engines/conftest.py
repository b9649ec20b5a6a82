"""Tables in other engines: DuckDB's through Ibis, quick and everywhere, and local Spark's, under the marker ``spark``."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.counting.engines import spark
from duckdb_dp.errors import DPError

ROOT = Path(duckdb_dp.testing.__file__).parents[1]

Put = Callable[[duckdb.DuckDBPyConnection, str], Any]
"""Copies a DuckDB table to the engine: (connection, query) -> Ibis table."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ibis and Spark use what is deprecated in their neighbours; that is not ours to mend."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning", "UserWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))


@pytest.fixture(scope="session")
def spark_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Spark with 2 threads, or a reason to skip; DUCKDB_DP_SPARK=required makes that a failure."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.legacy.parquet.nanosAsLong": "true",
    }
    try:
        backend = spark.connect(master="local[2]", memory="1g", config=settings)
    except DPError as error:
        if os.environ.get("DUCKDB_DP_SPARK") == "required":
            raise
        pytest.skip(str(error))
    session = backend.raw_sql("SELECT 1").sparkSession
    session.sparkContext.setLogLevel("OFF")
    yield backend
    session.stop()


@pytest.fixture(scope="session", params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def backend(request: pytest.FixtureRequest) -> Any:
    """An Ibis connection."""
    ibis = pytest.importorskip("ibis")
    return ibis.duckdb.connect() if request.param == "duckdb" else request.getfixturevalue("spark_backend")


@pytest.fixture(scope="session")
def put(backend: Any, tmp_path_factory: pytest.TempPathFactory) -> Put:
    """Through a Parquet file, which both engines read."""
    folder = tmp_path_factory.mktemp("engine")

    def copy(con: duckdb.DuckDBPyConnection, query: str) -> Any:
        name = f"copy{len(list(folder.iterdir()))}"
        con.execute(f"COPY ({query}) TO '{folder}/{name}.parquet' (FORMAT parquet)")
        return backend.read_parquet(f"{folder}/{name}.parquet", table_name=name)

    return copy
