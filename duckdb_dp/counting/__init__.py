"""Counting: the SQL that computes exact marginals of private rows, and the arrays that hold them."""
