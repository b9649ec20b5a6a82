"""Counting where the data live: exact marginals of tables in another engine, through Ibis."""
