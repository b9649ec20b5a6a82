"""Run the notebooks and keep their outputs: python notebooks/run.py [names]. Without what differs from machine to machine."""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent

SECONDS = 300
"""Most time for one cell."""


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs.

    Args:
        path: the notebook.
        folder: where it runs; ledgers and databases that it makes stay there.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(plain, cell.outputs) if output is not None]
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    return notebook


def plain(output: Any) -> Any:
    """An output as it is kept: none of progress bars."""
    if "application/vnd.jupyter.widget-view+json" in output.get("data", {}):
        return None
    return output


def copy(folder: Path) -> None:
    """The notebooks' data, where a notebook looks for them."""
    if (data := FOLDER / "data").is_dir():
        shutil.copytree(data, folder / "data", dirs_exist_ok=True)


def main() -> None:
    """Run and write in place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of file names; by default all")
    names = parser.parse_args().names
    for path in sorted(FOLDER.glob("*.ipynb")):
        if names and not any(name in path.name for name in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy(Path(folder))
            nbformat.write(execute(path, Path(folder)), path)


if __name__ == "__main__":
    main()
