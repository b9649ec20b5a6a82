"""Every SQL function is one file of SQL and one module of its name, and nothing else knows its name."""

import ast
from pathlib import Path

import pytest

import duckdb_dp.sql
from duckdb_dp.errors import DPError
from duckdb_dp.sql.install import macro_files
from duckdb_dp.sql.questions import kinds
from duckdb_dp.sql.registry import find, functions

FOLDER = Path(duckdb_dp.sql.__file__).parent
NAMES = {name.removesuffix(".sql") for name, _ in macro_files() if name.startswith("dp_")}


def test_each_file_of_sql_has_its_module() -> None:
    assert set(functions()) == NAMES == {path.stem for path in FOLDER.glob("dp_*.py")}
    for name, function in functions().items():
        assert function.name == name
        assert function.plan is not None or function.rows is not None
    assert set(kinds()) < NAMES


def test_no_other_module_says_its_name() -> None:
    """But in texts for people, which say more than the name."""
    found = [
        (path.stem, node.value)
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in NAMES and node.value != path.stem
    ]
    assert found == []


@pytest.mark.parametrize("name", ["dp_nothing", "calls", "../dp_sql", ""])
def test_there_is_no_other_function(name: str) -> None:
    with pytest.raises(DPError, match="there is no function"):
        find(name)
