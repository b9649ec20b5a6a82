"""Imports go downwards only: that is what makes "a planner never sees data" true."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import duckdb_dp

PACKAGE = Path(duckdb_dp.__file__).parent
LAYERS = """
__main__
cli
demo | shell | gateway
terminal | testing
__init__
reporting
sql
trial
release | picture | synthesis
answers
adaptive
private
queryable
plan | counting
reconstruct
optimize | noise
request
grouped_sums | select_parts
outputs | sum_names
accounting
domain
budget
linop
arrow | errors | version
"""
"""Top to bottom; those on one line are siblings and do not import each other. See docs/architecture.md."""

RANK = {name: rank for rank, line in enumerate(LAYERS.split("\n")) for name in line.split(" | ") if name}
ANYWHERE = {"progress"}
UNDOCUMENTED = {"__main__", "terminal", "testing", "version", "__init__"}
HEAVY = {
    "cvxpy",
    "ibis",
    "jax",
    "jinja2",
    "matplotlib",
    "mcp",
    "mbi",
    "prompt_toolkit",
    "pyspark",
    "rich",
    "sqlglot",
    "starlette",
    "torch",
    "uvicorn",
}

PARSERS = {
    name: {"sqlglot"}
    for name in (
        "predicate",
        "hidden_cells",
        "size",
        "undeclared_rows",
        "not_parsed",
        "expression_bounds",
        "said_bounds",
        "qualifiers",
        "value_bounds",
        "row_expressions",
        "try_catches",
        "turned",
        "unlisted",
        "any_row",
        "distinct_units",
        "text_lengths",
        "patterns",
        "select",
        "direct",
        "clamped_sums",
        "direct_select",
        "same_conditions",
        "group_labels",
        "grouping_sets",
        "noisy_expressions",
        "products",
        "quantile_sums",
        "total_conditions",
        "epochs",
        "linear",
        "never_null",
        "zones",
        "constants",
        "kinds",
        "bodies",
        "lift",
        "quotients",
        "split",
        "error_columns",
        "statement",
        "tried",
        "computed_groups",
        "declared_groups",
        "worked_out",
        "kept_values",
        "said_ends",
        "overflows",
        "other_aggregates",
        "parsed",
        "compared_rows",
        "kept_parts",
        "inlined",
        "named_windows",
        "column_order",
        "picked",
        "compared_labels",
    )
}
"""Modules that are about parsing SQL: those that need them import them where they need them."""

MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def layer(module: str) -> str:
    """The layer of 'duckdb_dp.plan.base': 'plan'."""
    return [*module.split("."), "__init__"][1]


@cache
def imports(source: str) -> list[tuple[ast.stmt, list[str]]]:
    """What is imported anywhere in a file, for types too, with the modules of each; 'from a import b' gives a.b."""
    found: list[tuple[ast.stmt, list[str]]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.append((node, [name.name for name in node.names]))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write absolute imports"
            found.append((node, [f"{node.module}.{name.name}" for name in node.names]))
    return found


def inner_layers(source: str) -> Iterator[str]:
    """Layers of this package that a file imports; a name of __init__, such as DPError, counts as __init__."""
    for name in (name for _, names in imports(source) for name in names):
        if name.split(".")[0] == "duckdb_dp":
            found = layer(name)
            yield found if found in RANK or found in ANYWHERE else "__init__"


def upward(own: str, source: str) -> set[str]:
    """What a module of layer ``own`` imports though it is above or beside it."""
    below = set(inner_layers(source))
    if own in ANYWHERE:
        return below
    assert own in RANK, f"give '{own}' a place in LAYERS, and in docs/architecture.md"
    return {name for name in below - ANYWHERE - {own} if RANK[name] <= RANK[own]}


def test_imports_go_downwards() -> None:
    found = {path: upward(path.with_suffix("").parts[0], (PACKAGE / path).read_text()) for path in MODULES}
    assert {str(path): names for path, names in found.items() if names} == {}


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


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    wrong = {}
    for path in MODULES:
        every = imports((PACKAGE / path).read_text())
        found = {name.split(".")[0] for node, names in every if node.col_offset == 0 for name in names}
        allowed = (
            {"sqlglot"}
            if "owned" in path.parts or path.parts[:2] == ("sql", "engines")
            else PARSERS.get(path.stem, set())
        )
        served = {"mcp", "starlette", "uvicorn"} if path.parts[:2] == ("gateway", "http") else set()
        wrong[str(path)] = (found & HEAVY) - allowed - served
    assert {path: names for path, names in wrong.items() if names} == {}


EXCUSED = re.compile(r"# (noqa: \S+ *# *)?(for|because|so that|as|until) \S+")
"""A comment on the line of an import that says why it may close a circle, such as '# for import time'."""


def module(path: Path) -> str:
    """The name of a module of this package: 'duckdb_dp.plan.base'."""
    parts = path.with_suffix("").parts
    return ".".join([PACKAGE.name, *(parts[:-1] if parts[-1] == "__init__" else parts)])


def imported(sources: dict[str, str]) -> dict[str, set[str]]:
    """Module -> those that it imports itself: in functions and for types too, but not where the line says why."""
    found: dict[str, set[str]] = {}
    for name, source in sources.items():
        lines = source.split("\n")
        every = imports(source)
        named = [each for node, names in every if not EXCUSED.search(lines[node.lineno - 1]) for each in names]
        # 'from duckdb_dp.plan import base' is of a module, 'from duckdb_dp.plan.base import Plan' of a name in one.
        found[name] = {each if each in sources else each.rpartition(".")[0] for each in named} & set(sources) - {name}
    return found


def circles(edges: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Modules that import each other, in one or in several steps: the strongly connected components of several."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        stack = [start]
        while stack:
            new = edges[stack.pop()] - seen
            seen |= new
            stack += new
        return seen

    below = {name: reached(name) for name in edges}
    found = {tuple(sorted(other for other in below[name] if name in below[other])) for name in edges}
    return sorted(found - {()})


def test_no_modules_import_each_other() -> None:
    found = circles(imported({module(path): (PACKAGE / path).read_text() for path in MODULES}))
    assert not found, "\n".join(f"{len(circle)} modules import each other: {', '.join(circle)}" for circle in found)


def test_a_circle_of_any_length_is_seen() -> None:
    sources = {
        "p.a": "from p.b import f",
        "p.b": "if TYPE_CHECKING:\n    from p.c import T",
        "p.c": "def f():\n    from p import a",
        "p.d": "import p.a\nfrom p.e import g",
        "p.e": "def f():\n    import p.d  # for import time",
    }
    assert circles(imported(sources)) == [("p.a", "p.b", "p.c")]


def test_the_documented_layers_are_these() -> None:
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    block = next(block for block in text.split("```text\n")[1:] if "errors\n" in block).split("```")[0]
    documented = [set(part.replace(",", " |").split(" | ")) for part in " ".join(block.split()).split(" > ")]
    ours = [set(line.split(" | ")) - UNDOCUMENTED for line in LAYERS.split("\n") if line]
    assert documented == [names for names in ours if names]
