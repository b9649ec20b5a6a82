"""Write docs/sql.md from the headers of sql/*.sql: python docs/make_sql_reference.py."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "sql.md"

INTRODUCTION = """\
# SQL reference

<!-- Made by docs/make_sql_reference.py from the headers of sql/*.sql: edit those. -->

After `duckdb_dp.load(con)` these functions work in plain SQL. Declarations are CALLs, and queries are table functions.
Arguments after the first ones are named (`:=` or `=>`). The tests run every example below.
DuckDB 1.4 and 1.5 need `"values" := [...]` in double quotes, which DuckDB 2.0 also accepts.

## Who may call what

| the curator's | the analyst's |
|---|---|
| `dp_protect`, `dp_attribute`, `dp_attributes`, `dp_link`, `dp_public`, `dp_view`, `dp_period`, `dp_check`, `dp_late`; `dp_account`, `dp_grant`, `dp_share`, `dp_requests`, `dp_approve`, `dp_refuse`, `dp_accounts`, `dp_audit`; `exact := true`; `declare := true` of `dp_discover`; DuckDB's EXPLAIN, EXPLAIN ANALYZE and profiles of these functions | `dp_marginals`, `dp_queries`, `dp_quantiles`, `dp_sql`, `dp_synthesize`, `dp_links`, `dp_quality`, `dp_synthesize_database`, `dp_discover`, `dp_max_rows`, `dp_running`; `dp_explain`, `dp_domain`, `dp_release`, `dp_releases`, `dp_budget`, `dp_ledger` |

`duckdb_dp.load(con, role="analyst")` leaves the curator's functions out ([why](privacy.md#who-may-call-what)).
"""  # noqa: E501  a table's rows are lines

SECTIONS = {
    "Declarations": (
        "dp_protect",
        "dp_attribute",
        "dp_attributes",
        "dp_discover",
        "dp_max_rows",
        "dp_link",
        "dp_public",
        "dp_view",
        "dp_period",
        "dp_domain",
        "dp_check",
        "dp_late",
    ),
    "Queries": ("dp_explain", "dp_marginals", "dp_queries", "dp_quantiles", "dp_sql", "dp_running", "dp_release"),
    "Synthetic data": ("dp_synthesize", "dp_links", "dp_synthesize_database", "dp_quality"),
    "Budget and ledger": ("dp_budget", "dp_ledger", "dp_releases"),
    "Accounts of the gateway": (
        "dp_account",
        "dp_grant",
        "dp_share",
        "dp_requests",
        "dp_approve",
        "dp_refuse",
        "dp_accounts",
        "dp_audit",
    ),
}


def reference() -> str:
    """The text of docs/sql.md."""
    public = {path.stem: path for path in (ROOT / "sql").glob("*.sql") if not path.stem.startswith("_")}
    if missing := set(public) - {name for names in SECTIONS.values() for name in names}:
        raise SystemExit(f"name a section of docs/make_sql_reference.py for: {', '.join(sorted(missing))}")
    parts = [INTRODUCTION]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [entry(public[name].read_text()) for name in names if name in public]
    return "\n".join(parts)


def header(text: str) -> list[str]:
    """The comment that a file begins with, without its dashes."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").removeprefix(" ").rstrip())
    return lines


def examples(text: str) -> str:
    """The SQL after 'Example:'."""
    lines = header(text)
    return "\n".join(line.strip() for line in lines[lines.index("Example:") + 1 :])


def entry(text: str) -> str:
    """One function as Markdown."""
    signature, *lines = header(text)
    name = signature.split("(")[0]
    found = [f"### {name}", "", "```text", signature, "```"]
    for paragraph in re.split(r"\n{2,}", "\n".join(lines[: lines.index("Example:")]).strip()):
        found += ["", *_paragraph(paragraph.splitlines())]
    return "\n".join([*found, "", "```sql", examples(text), "```", ""])


def _paragraph(lines: list[str]) -> list[str]:
    """A paragraph as it is; 'word   text' lines as a list; 'Columns: ...' lines as lines of their own."""
    if all(re.match(r"\S.*? {2,}\S| {8,}\S", line) for line in lines):
        items: list[str] = []
        for line in lines:
            if line.startswith(" "):
                items[-1] += f" {line.strip()}"
            else:
                word, text = re.split(r" {2,}", line, maxsplit=1)
                items.append(f"- `{word}`: {text}" if word[0].isalpha() else f"- {word}: {text}")
        return items
    if lines[0].startswith(("Columns:", "Rows:", "Cost:")):
        marked = [
            re.sub(r"^(\w+):", r"- **\1:**", line) if line[:1].isupper() and ":" in line[:9] else line for line in lines
        ]
        return [line if line.startswith("- ") else f"  {line}" for line in marked]
    return lines


if __name__ == "__main__":
    TARGET.write_text(reference())
