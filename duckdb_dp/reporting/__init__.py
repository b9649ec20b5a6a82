"""Reports: one self-contained HTML page per release, for those who decide on it and those who read it."""

from duckdb_dp.reporting.page import Page, report

__all__ = ["Page", "report"]
