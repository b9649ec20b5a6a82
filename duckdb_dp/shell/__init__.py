"""The SQL prompt ``duckdb-dp shell``, because DuckDB's own shell cannot load functions that are written in Python."""
