"""dp_queries: noisy answers to sets of linear queries, such as ranges, prefixes and conditions."""

from typing import Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Question, Request
from duckdb_dp.sql import layout
from duckdb_dp.sql.arguments import Arguments, no_postprocess
from duckdb_dp.sql.question_kinds import Declared, Kind
from duckdb_dp.sql.questions import register_kind


def recognises(arguments: Arguments) -> bool:
    """Whether something is entries {'attribute': kind, ...}."""
    asked = arguments["attributes"]
    return isinstance(asked, dict) or (
        isinstance(asked, list) and bool(asked) and all(isinstance(entry, dict) for entry in asked)
    )


def questions(asked: Any, _dataset: Dataset, declared: Declared, _arguments: Arguments) -> tuple[Question, ...]:
    """One question per entry.

    Raises:
        DPError: an entry is not valid.
    """
    from duckdb_dp.sql.entries import parse_entries  # for import time: it brings sqlglot

    return tuple(parse_entries(declared, asked))


def rows(request: Request, planned: Plan | None, handle: str, arguments: Arguments, private: bool) -> str:
    """SELECT with a row per query."""
    assert planned is not None
    no_postprocess(arguments, FUNCTION.name)
    return layout.queries(request, planned, handle, private=private)


FUNCTION = register_kind(
    Kind(
        name="dp_queries",
        argument="queries",
        recognises=recognises,
        questions=questions,
        rows=rows,
        describe=layout.describe,
    )
)
