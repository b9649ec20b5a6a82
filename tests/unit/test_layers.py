"""Imports go downwards only: that is what makes "a planner never sees data" true."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckdb_dp

PACKAGE = Path(duckdb_dp.__file__).parent
LAYERS = """
cli
demo | shell
terminal | testing
__init__
report
sql
release | picture | synthesis
answers
adaptive
private
plan | counting
reconstruct
optimize | noise
request
accounting
domain
budget
linop
errors
"""
"""Top to bottom; those on one line are siblings and do not import each other. See docs/architecture.md."""

RANK = {name: rank for rank, line in enumerate(LAYERS.split("\n")) for name in line.split(" | ") if name}
ANYWHERE = {"progress"}
UNDOCUMENTED = {"terminal", "testing", "__init__"}
HEAVY = {"cvxpy", "ibis", "jax", "jinja2", "matplotlib", "mbi", "prompt_toolkit", "pyspark", "rich", "sqlglot", "torch"}

PARSERS = {"predicate": {"sqlglot"}, "select": {"sqlglot"}}
"""Modules that are about parsing SQL: those that need them import them where they need them."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def layer(module: str) -> str:
    """The layer of 'duckdb_dp.plan.base': 'plan'."""
    return [*module.split("."), "__init__"][1]


def imports(tree: ast.AST) -> Iterator[str]:
    """Modules that are imported anywhere in a file, for types too; 'from a import b' gives a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write absolute imports"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def inner_layers(tree: ast.AST) -> Iterator[str]:
    """Layers of this package that a file imports; a name of __init__, such as DPError, counts as __init__."""
    for name in imports(tree):
        if name.split(".")[0] == "duckdb_dp":
            found = layer(name)
            yield found if found in RANK or found in ANYWHERE else "__init__"


def upward(own: str, source: str) -> set[str]:
    """What a module of layer ``own`` imports though it is above or beside it."""
    below = set(inner_layers(ast.parse(source)))
    if own in ANYWHERE:
        return below
    assert own in RANK, f"give '{own}' a place in LAYERS, and in docs/architecture.md"
    return {name for name in below - ANYWHERE - {own} if RANK[name] <= RANK[own]}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downwards(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    assert upward(own, path.read_text()) == set()


@pytest.mark.parametrize(
    ("own", "source", "found"),
    [
        ("plan", "from duckdb_dp.counting.counts import Counts", {"counting"}),
        ("plan", "def f():\n    import duckdb_dp.private", {"private"}),
        ("counting", "from duckdb_dp import release", {"release"}),
        ("linop", "from duckdb_dp import DPError", {"__init__"}),
        ("progress", "from duckdb_dp.errors import DPError", {"errors"}),
        ("plan", "from duckdb_dp.progress import silent\nfrom duckdb_dp.plan.base import Plan", set()),
    ],
)
def test_a_violation_is_seen(own: str, source: str, found: set[str]) -> None:
    assert upward(own, source) == found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_libraries_are_imported_where_they_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text())
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    found = {name.split(".")[0] for node in top for name in imports(node)}
    assert not (found & HEAVY) - PARSERS.get(path.stem, set())


def test_the_documented_layers_are_these() -> None:
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    block = next(block for block in text.split("```text\n")[1:] if "errors\n" in block).split("```")[0]
    documented = [set(part.replace(",", " |").split(" | ")) for part in " ".join(block.split()).split(" > ")]
    ours = [set(line.split(" | ")) - UNDOCUMENTED for line in LAYERS.split("\n") if line]
    assert documented == [names for names in ours if names]
