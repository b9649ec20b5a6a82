"""Counting: the SQL that turns private rows into exact marginals, and the arrays they arrive in."""
