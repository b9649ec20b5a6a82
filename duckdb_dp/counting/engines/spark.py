"""A Spark session on this machine, for tests, benchmarks and first steps."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duckdb_dp.errors import DPError


def connect(*, master: str = "local[*]", memory: str = "2g", config: Mapping[str, str] | None = None) -> Any:
    """An Ibis connection to the Spark session that runs already, or to a new one.

    Args:
        master: where a new session runs: 'local[2]' is 2 threads of this machine.
        memory: of its driver, which in local mode does all the work.
        config: further settings, such as {'spark.ui.enabled': 'false'}.

    Raises:
        DPError: what is missing, and how to install it.
    """
    try:
        import ibis
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise DPError(f"Spark needs {error.name}, which is not installed: pip install 'duckdb-dp[spark]'") from None
    home = os.environ.get("JAVA_HOME")
    if not ((home and (Path(home) / "bin" / "java").is_file()) or shutil.which("java")):
        raise DPError(
            "Spark needs Java 17, and neither JAVA_HOME nor PATH has a java: install openjdk-17-jre-headless, "
            "or what your distribution calls it."
        )
    builder = SparkSession.builder.master(master).appName("duckdb_dp").config("spark.driver.memory", memory)
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    try:
        return ibis.pyspark.connect(builder.getOrCreate())
    except Exception as error:
        raise DPError(
            f"Spark did not start ({type(error).__name__}); is it Java 17 that runs? Try: java -version"
        ) from None
