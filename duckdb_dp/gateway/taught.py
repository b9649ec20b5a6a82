"""Errors of a sandbox in words of what an account has there."""

import re
from collections.abc import Mapping, Sequence

from duckdb_dp.counting.encode import literal
from duckdb_dp.errors import as_sql, few, meant, nearest
from duckdb_dp.gateway import statement
from duckdb_dp.gateway.statement import Statement

READ = "stay where they are"
"""What is said of a dataset that is read as a table."""

SHOWN = 200
"""Characters of a statement that an error repeats."""

_COLUMN = re.compile(r'(?:Referenced column|a column named|^Column) "(.+?)"(?: (?:was )?not found| does not exist|$)')
_TABLE = re.compile(r'Table with name "?(?:\w+\.)*(\w+)"? does not exist')
_FITS = re.compile(r"\b(cast|convert|parse|out of range|format)\b", re.IGNORECASE)


def used_as_value(text: str) -> str | None:
    """What is said where a dp_ function is used as a value."""
    if re.search(r'Referenced (?:column|table) "(dp_\w+|dp\d*)"', text) is None:
        return None
    return "a dp_ function returns rows, as a table does: write FROM before it, as in FROM dp_budget()."


def no_column(text: str, read: Statement, answers: Sequence[Sequence[str]], twin: bool) -> str | None:
    """What is said where a statement names a column that there is not.

    Args:
        text: the error.
        read: the statement.
        answers: the columns of what its calls return.
        twin: whether it names a synthetic table.
    """
    found = _COLUMN.search(text)
    if found is None or (not answers and not (twin and found[1].lower() in read.text.lower())):
        return None
    if not answers:
        return f"the synthetic table has no column '{found[1]}'; it has those that are declared, which a description of it lists."
    names = list(dict.fromkeys(name for columns in answers for name in columns))
    of = "the answer has" if len(answers) == 1 else "the answers have"
    return f"there is no column {as_sql(found[1])}{meant(names, found[1])}; {of} {', '.join(names[:SHOWN])}."


def no_table(
    text: str, read: Statement, granted: Mapping[str, tuple[str, str | None]], readable: Sequence[str]
) -> str | None:
    """What is said where a statement names a table that there is not.

    Args:
        text: the error.
        read: the statement.
        granted: what may be asked about, by its name in small letters: the name, and its synthetic table.
        readable: the tables that may be read.
    """
    found = _TABLE.search(text)
    if found is None:
        return None
    if found[1].lower() not in granted:
        known = [f"{nearest(readable, found[1])} (read as tables)"] if readable else []
        names = [name for name, _ in granted.values()]
        known += [f"{nearest(names, found[1])} (asked about: FROM dp_sql('SELECT ...', ...))"] if names else []
        return f"Table with name {found[1]} does not exist; there {'are' if known else 'is'} {few(known, ' and ') or 'none'}."
    name, twin = granted[found[1].lower()]
    explored = "" if twin is None else f" Its synthetic rows, {twin}, can be explored freely."
    own = " ".join(read.text.split())
    plain = statement.first_word(own) == "select" and "(" in own and len(own) <= SHOWN
    plain = plain and not read.calls and re.search(r"\b(from|join)\s+\"?\w+\"?\s*\(", own, re.IGNORECASE) is None
    asked = own if plain else f"SELECT count(*) AS n FROM {name}"
    return f"the rows of '{name}' {READ}; ask of them: FROM dp_sql({literal(asked)}, epsilon := 0.1).{explored}"


def tried(text: str) -> str:
    """What is said of what fails on made-up answers, before anything is charged."""
    fits = "; TRY(...) gives NULL where a value does not fit" if _FITS.search(text) else ""
    return f"{text.rstrip('.')} (around the dp_ call, tried on made-up answers, so nothing was charged{fits})."
