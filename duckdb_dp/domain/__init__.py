"""The words of the field: attributes and their values, domains, conditions, queries and workloads."""
