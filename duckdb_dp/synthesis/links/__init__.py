"""Synthetic links between synthetic tables: what to measure, how to fit it, and how to draw links that fit."""
