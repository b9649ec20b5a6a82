"""Counting in other engines: exact marginals of their tables, through Ibis."""
