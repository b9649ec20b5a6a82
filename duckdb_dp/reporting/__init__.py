"""Reports: one self-contained HTML page for each release, for those who approve it and those who read it."""

from duckdb_dp.reporting.page import Page, report

__all__ = ["Page", "report"]
