"""Run the notebooks and keep their outputs: python notebooks/run.py [--out FOLDER] [names]."""

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

BAR = "application/vnd.jupyter.widget-view+json"
"""A progress bar, which is over when the notebook is read."""


def execute(path: Path) -> Any:
    """The notebook with fresh outputs, without what differs from machine to machine.

    It runs in a folder of its own, which is gone afterwards with the ledgers and databases made there.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        if (data := FOLDER / "data").is_dir():
            shutil.copytree(data, Path(folder) / "data")
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=where).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if BAR not in output.get("data", {})]
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    return notebook


def main() -> None:
    """Run and write, in place or elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of file names; by default all")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where to write them; by default in place")
    arguments = parser.parse_args()
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not arguments.names or path.name.startswith(tuple(arguments.names)):
            nbformat.write(execute(path), arguments.out / path.name)


if __name__ == "__main__":
    main()
