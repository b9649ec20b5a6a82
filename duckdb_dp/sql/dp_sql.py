"""dp_sql: noisy answers to SELECT count, sum or avg of one table."""

from typing import Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import units
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, few
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Question, Request
from duckdb_dp.sql import catalog, layout
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset, full_name_of, no_postprocess
from duckdb_dp.sql.questions import Declared, Kind, register_kind
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.together import check_together


def recognises(arguments: Arguments) -> bool:
    """Whether something is the text of a SELECT, or a list of such texts."""
    asked = arguments["attributes"]
    texts = asked if isinstance(asked, list) else [asked]
    return bool(texts) and all(isinstance(text, str) and text.lstrip().lower().startswith("select") for text in texts)


def dataset(session: Session, arguments: Arguments, place: Place) -> Dataset:
    """The dataset that all SELECTs read; an argument may name it too.

    Raises:
        DPError: they read several, or one that is not protected.
    """
    from duckdb_dp.sql.select import parse_selects, table_name  # for import time: it brings sqlglot

    names = [full_name_of(session.ledger, table_name(select), place) for select in parse_selects(arguments["sql"])]
    found = [find_dataset(session.ledger, name, *place) for name in names]
    if arguments.get("dataset") is not None:
        found.append(find_dataset(session.ledger, arguments["dataset"], *place))
    if len({dataset.id for dataset in found}) > 1:
        several = few(sorted({dataset.name for dataset in found}))
        raise DPError(f"the SELECTs read several datasets ({several}); ask each in a call of its own.")
    return found[0]


def questions(asked: Any, _dataset: Dataset, declared: Declared, _arguments: Arguments) -> tuple[Question, ...]:
    """The linear queries of all SELECTs.

    Raises:
        DPError: a SELECT cannot be answered.
    """
    from duckdb_dp.sql.select import parse_selects, questions  # for import time: it brings sqlglot

    selects = enumerate(parse_selects(asked), 1)
    return tuple(question for number, select in selects for question in questions(select, number, declared))


def direct(session: Session, dataset: Dataset, declared: Declared, arguments: Arguments) -> tuple[GroupedSums, ...]:
    """The sums of all SELECTs, where they are answered row by row: sums and averages, and counts that cells cannot decide.

    Raises:
        DPError: mechanism := 'direct', or sums, of what cannot be answered so.
    """
    from duckdb_dp.sql import direct as route  # for import time: these bring sqlglot
    from duckdb_dp.sql.clamped_sums import sums_numbers
    from duckdb_dp.sql.select import parse_selects, questions

    mechanism = arguments.get("mechanism") or "auto"
    if mechanism not in ("auto", "direct"):
        return ()
    selects = parse_selects(arguments["sql"])
    if dataset.schema == SCHEMA:
        if mechanism == "direct":
            raise DPError(
                f"'{dataset.name}' lives in another engine, and mechanism 'direct' is for DuckDB's own tables."
            )
        return ()
    if mechanism == "auto" and not any(map(sums_numbers, selects)):
        try:
            for number, select in enumerate(selects, 1):
                questions(select, number, declared)
            return ()
        except DPError:
            pass
    table = catalog.of(session, dataset)
    columns = {a.name: a.type for a in declared.values()} if table is None else table.columns
    unit = [name for names in units(dataset.unit) for name in names]
    numbered = enumerate(selects, 1)
    pure = dataset.accounting.pure
    found = [
        part for number, select in numbered for part in route.parts(select, number, columns, unit, declared, pure=pure)
    ]
    check_together(found)
    return tuple(found)


def rows(request: Request, planned: Plan | None, handle: str, arguments: Arguments, private: bool) -> str:
    """SELECT with the columns of the SELECTs, and each answer's error."""
    assert planned is not None
    no_postprocess(arguments, FUNCTION.name)
    return layout.select(request, planned, handle, private=private)


FUNCTION = register_kind(
    Kind(
        name="dp_sql",
        argument="sql",
        recognises=recognises,
        questions=questions,
        rows=rows,
        describe=layout.describe,
        dataset=dataset,
        direct=direct,
    )
)
