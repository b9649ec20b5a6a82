"""Query plans show private facts, and the documents say so."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SHOWING = ("EXPLAIN", "EXPLAIN ANALYZE", "PRAGMA enable_profiling")


def test_plans_belong_to_the_curator() -> None:
    (paragraph,) = re.findall(
        r"^\*\*Query plans are the curator's\.\*\*.*?\n\n",
        (ROOT / "docs/privacy.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    for word in (*SHOWING, "the number of rows", "least and the largest value"):
        assert word in " ".join(paragraph.split())


def test_no_document_promises_otherwise() -> None:
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "sql").glob("*.sql")]
    for path in texts:
        if path.stem == "known-vulnerabilities":
            continue  # says what was promised once
        for sentence in re.split(r"(?<=[.;])\s|\n\n|\n[-|]", path.read_text()):
            if re.search(r"\bEXPLAIN\b", sentence):
                assert not re.search(r"no data|reads nothing|sees nothing", sentence), (path, sentence)


@pytest.mark.parametrize("how", ["EXPLAIN", "EXPLAIN ANALYZE"])
def test_what_they_show(exact: Any, how: str) -> None:
    """Were it otherwise in some DuckDB to come, the documents could say less."""
    exact("CREATE TABLE many AS SELECT (i % 8)::INTEGER AS x FROM range(7013) r(i)")
    exact("CALL dp_protect('many', mu := 10); CALL dp_attribute('many', 'x', low := 0, high := 9)")
    ((_, plan),) = exact(f"{how} FROM dp_marginals('many', ['x'], mu := 1)")
    assert re.search(r"7,?013", plan)
