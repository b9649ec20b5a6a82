"""What stands above the aggregates of dp_sql: public work on noisy answers, done by DuckDB after the noise."""
