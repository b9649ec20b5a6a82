"""Every SQL and Python example runs: the headers of sql/*.sql, the README and docs/."""

import contextlib
import importlib.util
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pytest

import duckdb_dp

ROOT = Path(__file__).parents[2]
DATA = Path(duckdb_dp.__file__).parent / "data_files" / "adult.parquet"
HEADERS = sorted(path for path in (ROOT / "sql").glob("*.sql") if not path.stem.startswith("_"))
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

PROTECTED = """
CALL dp_protect('adult', epsilon := 3, delta := 1e-9);
CALL dp_attribute('adult', 'age', bins := [0, 18, 25, 35, 45, 55, 65, 120]);
CALL dp_attribute('adult', 'sex', "values" := ['Female', 'Male']);
CALL dp_attribute('adult', 'education', "values" := ['HS-grad', 'Bachelors', 'Masters'], other := true);
"""

BEFORE = {"dp_release": "dp_marginals"}
"""The example on the left reads what the one on the right has made."""

BLOCK = re.compile(
    r"(?P<comment><!--[^\n]*-->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", flags=re.DOTALL | re.MULTILINE
)
NOT_RUN = "<!-- not run:"
"""A block after a comment that begins so is not run; the comment says why."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a document."""

    language: str
    code: str
    run: bool


def blocks(text: str) -> list[Block]:
    return [
        Block(language=found["language"], code=found["code"], run=not (found["comment"] or "").startswith(NOT_RUN))
        for found in BLOCK.finditer(text)
    ]


def execute(con: duckdb.DuckDBPyConnection, sql: str) -> int:
    """Run every statement to its last row; how many there were."""
    statements = con.extract_statements(sql)
    for statement in statements:
        con.execute(statement).fetchall()
    return len(statements)


def examples(path: Path) -> str:
    """The SQL after 'Example:' in a header."""
    return str(reference().examples(path.read_text()))


@cache
def reference() -> ModuleType:
    """docs/make_sql_reference.py as a module."""
    spec = importlib.util.spec_from_file_location("make_sql_reference", ROOT / "docs" / "make_sql_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def con(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection in an empty folder, with the shipped data as a protected table."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as connection:
        duckdb_dp.load(connection, ledger=tmp_path / "ledger.dp", progress=False)
        connection.execute(f"CREATE TABLE adult AS FROM '{DATA}'")
        yield connection


@pytest.mark.slow
@pytest.mark.some(3)
@pytest.mark.parametrize("path", HEADERS, ids=lambda path: path.stem)
def test_examples_of_headers_run(path: Path, con: duckdb.DuckDBPyConnection) -> None:
    execute(con, PROTECTED)
    if path.stem in BEFORE:
        execute(con, examples(path.with_stem(BEFORE[path.stem])))
    assert path.stem in examples(path)
    assert execute(con, examples(path)) == examples(path).count(";")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")  # of Ibis with DuckDB
@pytest.mark.some(2)
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_of_documents_run(path: Path, con: duckdb.DuckDBPyConnection) -> None:
    """In order, in one namespace; what a Python block prints is the text block after it."""
    execute(con, PROTECTED)
    namespace: dict[str, Any] = {"con": con, "duckdb": duckdb, "duckdb_dp": duckdb_dp}
    found = blocks(path.read_text())
    with contextlib.ExitStack() as opened:
        for block, after in itertools.zip_longest(found, found[1:]):
            if not block.run:
                continue
            if block.language == "sql":
                execute(namespace["con"], block.code)
            elif block.language == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(block.code, str(path), "exec"), namespace)
                if namespace["con"] is not con:
                    opened.enter_context(namespace["con"])
                if printed.getvalue():
                    assert after is not None
                    assert after.language == "text"
                    assert printed.getvalue() == after.code


def test_few_blocks_are_not_run() -> None:
    runnable = [b for path in DOCUMENTS for b in blocks(path.read_text()) if b.language in ("sql", "python")]
    assert len(runnable) >= 10
    assert sum(not block.run for block in runnable) <= 4


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_printed_results_fit_on_a_phone_and_have_few_digits(path: Path) -> None:
    for block in blocks(path.read_text()):
        if block.language == "text" and re.search(r"[\u2500-\u257f]", block.code):
            assert max(map(len, block.code.splitlines())) <= 48, block.code
            assert not re.search(r"\d\.\d{7}", block.code), block.code


def test_the_sql_reference_is_up_to_date() -> None:
    """After a change of a header: python docs/make_sql_reference.py."""
    assert (ROOT / "docs" / "sql.md").read_text() == reference().reference()


def test_documents_quote_values() -> None:
    """DuckDB 1.4 and 1.5 refuse the bare word before ':='."""
    for path in [*DOCUMENTS, *HEADERS]:
        assert not re.search(r"(?<![\"\w])values\s*:=", path.read_text()), path
