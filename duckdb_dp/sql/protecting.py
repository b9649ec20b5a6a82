"""Which table dp_protect and dp_period are about, whose rows it has, and its budget, from their arguments."""

from collections.abc import Sequence
from typing import Any

from duckdb_dp.accounting.base import PURE
from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.tables import AUTO
from duckdb_dp.budget import Budget
from duckdb_dp.domain.domain import canonical
from duckdb_dp.domain.types import column_type
from duckdb_dp.errors import DPError, as_sql, few, of_file
from duckdb_dp.request import units
from duckdb_dp.sql import lineage
from duckdb_dp.sql.arguments import Arguments, word
from duckdb_dp.sql.catalog import Catalog, find_column
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name

MOST_DELTA = 0.01
"""A larger delta is refused: it allows to publish one row in a hundred as it is."""

USUAL_DELTA = 1e-5
"""A larger one is noted: it should be less than one over the number of people."""


def table_of(asked: object, columns: Catalog) -> Name:
    """The one table that the columns are of.

    Raises:
        DPError: there is none, or there are several.
    """
    found = list(dict.fromkeys((c["catalog"], c["schema"], c["table"]) for c in columns))
    if not found:
        first = of_file(str(asked)) or "Create it first, or write its full name 'catalog.schema.table'."
        raise DPError(f"there is no table or view {as_sql(asked)}. {first}")
    if len(found) > 1:
        raise DPError(
            f"{as_sql(asked)} could be {few((repr('.'.join(name)) for name in found), ' or ')}; write the full name."
        )
    return found[0]


def bounded_unit(
    arguments: Arguments, columns: Catalog, table: str, *, known: bool = False
) -> tuple[str | None, int | str]:
    """The unit as the ledger has it, and how many of its rows count.

    Args:
        arguments: of the call.
        columns: of the table.
        table: its name.
        known: whether the types of the unit's columns are known to be supported.

    Raises:
        DPError: there is no such column, or no bound on the rows.
    """
    asked, max_rows = arguments.get("unit"), arguments.get("max_rows")
    if asked is None:
        return None, 1 if max_rows is None else max_rows
    unit = unit_of(columns, table, asked, max_rows)
    if not known:
        check_types(columns, units(unit))
    if max_rows is None:
        raise DPError(
            f"unit {as_sql(asked)} needs a bound on its rows: add max_rows := 5, say (1 where each has one row), and further rows of a "
            f"unit are left out; or max_rows := '{AUTO}', and each request chooses a bound privately."
        )
    return unit, max_rows


def unit_of(columns: Catalog, table: str, asked: object, max_rows: object) -> str:
    """A column, or several as the JSON that ``request.units`` reads: ['a', 'b'] are two units, ['a', ['b', 'c']] too."""
    given = asked if isinstance(asked, list) else [asked]
    if not 1 <= len(given) <= 2 or not all(given):
        raise DPError(
            f"unit is {as_sql(asked)}; name a column, or two that are both protected: unit := ['user_id', 'movie_id']."
        )
    found = [
        [find_column(columns, table, part)["column"] for part in (one if isinstance(one, list) else [one])]
        for one in given
    ]
    if len(found) == 2 and max_rows == AUTO:
        raise DPError(f"unit {as_sql(asked)} needs a promise on its links: max_rows := 10, say, and not '{AUTO}'.")
    if len(found) == 2 and found[0] == found[1]:
        raise DPError(f"unit is {as_sql(asked)}, the same twice; name it once.")
    return str(found[0][0]) if len(found) == 1 and len(found[0]) == 1 else canonical(found)


def check_types(columns: Catalog, named: Sequence[Sequence[str]]) -> None:
    """Refuse a unit whose type is not supported."""
    found = {column["column"]: column["type"] for column in columns}
    for column in (column for one in named for column in one):
        column_type(found[column], f"unit '{column}'")


def budget_of(function: str, arguments: Arguments) -> tuple[Budget, Any]:
    """The budget, and the delta at which epsilons are shown if the budget has none."""
    delta = arguments.get("delta")
    beside = arguments.get("rho") is not None or arguments.get("mu") is not None
    budget = Budget(**{name: arguments.get(name) for name in ("epsilon", "rho", "mu")}, delta=None if beside else delta)
    more = "..., " if arguments.get("time_column") else ""
    if budget.epsilon is not None and budget.delta is None and word(arguments, "accounting", "") != PURE.name:
        raise DPError(
            f"epsilon needs a delta: CALL {function}({as_sql(arguments['dataset'])}, {more}epsilon := {budget.epsilon:g}, "
            "delta := 1e-9), or delta := 0 for pure DP."
        )
    return budget, None if budget.epsilon is not None else delta


def notes_on_delta(delta: float | None) -> list[str]:
    """What is said of a delta that is large.

    Raises:
        DPError: it is no protection.
    """
    if delta is None or delta <= USUAL_DELTA:
        return []
    if delta > MOST_DELTA:
        raise DPError(
            f"delta {delta:g} may not protect one person in {max(1, round(1 / delta))}; use less than one over the "
            "number of people, e.g. delta := 1e-9."
        )
    return [f"delta {delta:g} is large: use less than one over the number of people, e.g. delta := 1e-9"]


def overlapping(session: Session, texts: lineage.Texts, name: Name) -> list[str]:
    """What is said of a table or view whose rows another protected table or view may have too."""
    twice = [dataset.name for dataset in session.ledger.datasets() if _of_one_table(texts, name, dataset)]
    if not twice:
        return []
    more = f" and {len(twice) - 3} more" if len(twice) > 3 else ""
    return [
        f"its rows may be those of {', '.join(map(repr, twice[:3]))}{more}, with a budget too: people in both are protected by "
        "the sum of the budgets, so protect one of them only, or lower both"
    ]


def _of_one_table(texts: lineage.Texts, name: Name, other: Dataset) -> bool:
    """Whether a table and a protected one are views of one another, or of one table or file."""
    names = (name, (other.catalog, other.schema, other.name))
    folded = [tuple(part.lower() for part in full) for full in names]
    if folded[0] == folded[1] or not any(lineage.is_view(texts, full) for full in names):
        return False
    try:
        return lineage.overlap(*(lineage.sources(texts, full) for full in names))
    except lineage.Unreadable:
        return False
