"""The SQL prompt ``duckdb-dp shell``: DuckDB's own cannot load functions that are written in Python."""
