"""Attributes and their values, domains, conditions, queries and workloads."""
