"""Programs that documents show or come from: the marimo notebook, and the README's picture."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, *command: str | Path) -> None:
    """Run Python in a folder; it must succeed."""
    found = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.slow
def test_the_marimo_notebook_runs(tmp_path: Path) -> None:
    pytest.importorskip("marimo")
    text = (ROOT / "docs" / "how-to" / "marimo.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "notebook.py").write_text(code)
    run(tmp_path, "notebook.py")
    assert (tmp_path / "marimo.dp" / "ledger.sqlite").is_file()


@pytest.mark.slow
def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run(tmp_path, ROOT / "docs" / "images" / "make_picture.py", tmp_path / "drawn.svg")
    drawn, kept = (tmp_path / "drawn.svg").read_text(), (ROOT / "docs" / "images" / "release.svg").read_text()
    assert drawn.startswith("<?xml")
    assert 0.8 < len(drawn) / len(kept) < 1.25
    assert "http" not in re.sub(
        r'"http://(www\.w3\.org|purl\.org|creativecommons\.org)[^"]*"|https://matplotlib\.org/', "", kept
    )
