"""What a statement or a request would cost and how accurate its answers would be, from the ledger alone, without the data."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb_dp
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.shell.statements import Call, calls, priced, split

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SENTENCE = re.compile(
    r"\w\s*\(|\w\s+from\s+\S|^(drop|create|insert|update|delete|alter|copy|call|attach|use|set|show|describe|explain)\s+[^,;]",
    re.IGNORECASE,
)
"""A call, or FROM behind a word: SQL with a slip in its first word, where names alone would have commas between them."""


@contextmanager
def on_ledger(folder: Path) -> Iterator["DuckDBPyConnection"]:
    """A connection that knows a ledger and none of its data: reports and plans need no more, and no lock on the file.

    Its current catalog and schema are those of the first protected table, so that short names mean what they mean there.
    """
    import duckdb

    with duckdb.connect() as con:
        con.execute("SET enable_progress_bar = false")  # on standard output, where the answer goes
        duckdb_dp.load(con, ledger=folder)
        found = con.execute("SELECT catalog, schema FROM dp_budget()").fetchall()
        for catalog, schema in reversed(found):
            _stand_in(con, catalog, schema)
        yield con


def _stand_in(con: "DuckDBPyConnection", catalog: str, schema: str) -> None:
    """Make an empty schema of that name, and make it the current one."""

    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    if catalog.lower() in ("memory", "temp"):
        con.execute(f"CREATE SCHEMA IF NOT EXISTS memory.{quoted(schema)}")
        con.execute(f"USE memory.{quoted(schema)}")
        return
    con.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quoted(catalog)}")
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(catalog)}.{quoted(schema)}")
    con.execute(f"USE {quoted(catalog)}.{quoted(schema)}")


def statements(asked: str, dataset: str | None, budget: Mapping[str, object]) -> list[str]:
    """The dp_explain statements for what was asked.

    Args:
        asked: a statement with calls of dp_ functions, with their budgets; or SELECTs that count, or a request such as
            'all 2-way', 'age, sex; income', "[['age', 'sex'], []]" or "{'age': 'range'}", which ``budget`` belongs to.
        dataset: the table of a request.
        budget: named arguments, such as epsilon.

    Raises:
        DPError: a statement has no call whose cost can be told, or a budget of its own beside ``budget``; a request has
            no budget, or is misspelt SQL.
    """
    given = {name: value for name, value in budget.items() if value is not None}
    found = calls(asked)
    if found:
        if given:
            raise DPError(f"explain: the statement has a budget of its own; leave out --{next(iter(given))}.")
        return [call.explained() for call in found]
    if (said := priced(asked)) is not None:
        raise DPError(f"explain: {said}")
    words = {"precision": '"precision"'}  # a keyword of DuckDB 1
    named = [f"{words.get(name, name)} := {value}" for name, value in given.items()]
    if not given:
        raise DPError("explain: give a budget: --epsilon 1, or --rho, --mu, or --precision 50 for the inverse.")
    if re.match(r"\s*(select|from|with)\b", asked, re.IGNORECASE):
        texts, rest = split(asked)
        selects = [*texts, *([rest.strip()] if rest else [])]
        return [Call(function="dp_sql", arguments=(_list(selects), *named)).explained()]
    if dataset is None:
        raise DPError("explain: say which table: --dataset NAME.")
    return [Call(function="dp_explain", arguments=(_text(dataset), _request(asked), *named)).explained()]


def _request(asked: str) -> str:
    """A request as SQL: brackets as they are, 'all 2-way' as text, names between commas and semicolons as lists."""
    asked = asked.strip()
    if asked.startswith(("[", "{")):
        return asked
    if _SENTENCE.search(asked):
        raise DPError(
            f"explain: {as_sql(asked)} is no SQL that begins with SELECT or FROM, and no request; a request is 'all 2-way', or "
            "attributes such as 'age, sex; income', or a list such as \"[['age', 'sex'], []]\"."
        )
    if re.fullmatch(r"all\s+(<=|≤)?\s*\d+-way", asked, re.IGNORECASE):
        return _text(asked)
    sets = [[name.strip() for name in part.split(",") if name.strip()] for part in asked.split(";")]
    lists = [f"[{', '.join(map(_text, names))}]" for names in sets]
    return lists[0] if len(lists) == 1 else f"[{', '.join(lists)}]"


def _list(texts: list[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
