"""The SQL functions: macros that plan while a statement is bound, and Python functions that measure while it runs."""
