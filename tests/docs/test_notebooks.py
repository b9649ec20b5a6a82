"""The notebooks run as they are, and keep outputs like those of a fresh run."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

LARGEST = 150_000
"""Most bytes of a notebook with its outputs."""


def cells(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["cells"])


def kinds(path: Path) -> list[list[tuple[str, list[str]]]]:
    """Kinds of the outputs of every code cell. What is printed may come in one piece or in several."""
    found = [
        [(output["output_type"], sorted(output.get("data", {}))) for output in cell["outputs"]]
        for cell in cells(path)
        if cell["cell_type"] == "code"
    ]
    return [[kind for kind, _ in itertools.groupby(outputs)] for outputs in found]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, tmp_path: Path) -> None:
    for module in ("nbclient", "ipykernel", "sql", "matplotlib", "pandas", "polars"):
        pytest.importorskip(module)
    found = subprocess.run(
        [sys.executable, ROOT / "notebooks" / "run.py", "--out", tmp_path, path.name],
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "module://matplotlib_inline.backend_inline"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert kinds(tmp_path / path.name) == kinds(path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_kept_outputs_are_small_and_plain(path: Path) -> None:
    text = path.read_text()
    assert len(text) < LARGEST
    assert any(outputs for outputs in kinds(path))
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)
    streams = [
        output for cell in cells(path) for output in cell.get("outputs", []) if output["output_type"] == "stream"
    ]
    assert all(output["name"] == "stdout" for output in streams)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_begins_with_a_title_and_says_what_is_not_private(path: Path) -> None:
    first = cells(path)[0]
    assert first["cell_type"] == "markdown"
    assert re.match(r"# [A-Z]", "".join(first["source"]))
    prose = "".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "markdown")
    code = "".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code")
    assert "duckdb_dp.testing" not in code or "**Nothing that it returns is private**" in prose


def test_all_are_listed() -> None:
    text = (ROOT / "notebooks" / "README.md").read_text()
    assert re.findall(r"\(([^)]+\.ipynb)\)", text) == [path.name for path in NOTEBOOKS]
