"""A ledger for each benchmark, and a line per ratio at the end of the run."""

import os
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory

import pytest

os.environ["DUCKDB_DP_CACHE"] = "off"  # planning times without what earlier runs left

LINES: list[str] = []


@pytest.fixture
def ledger() -> Iterator[str]:
    with TemporaryDirectory() as folder:
        yield f"{folder}/ledger.dp"


@pytest.fixture
def report() -> Callable[[str], None]:
    return LINES.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in LINES:
        terminalreporter.write_line(line)
