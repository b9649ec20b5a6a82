"""Optimal strategies, each with a proved bound on how much better any other could be."""
