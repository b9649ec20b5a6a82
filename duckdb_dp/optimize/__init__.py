"""Optimal strategies, each with a proved lower bound on the error of any other."""
