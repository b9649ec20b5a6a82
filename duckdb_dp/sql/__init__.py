"""The SQL surface: macros that plan while a statement is bound, and functions that measure while it runs."""
