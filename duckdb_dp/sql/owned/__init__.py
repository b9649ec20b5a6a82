"""Compiles SELECTs over joined tables and subqueries to relations whose rows have one owner each."""
