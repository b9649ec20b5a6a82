"""The columns of joined relations that SELECTs group by and whose values nobody has declared."""

from collections.abc import Sequence

from sqlglot import exp

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import quote
from duckdb_dp.grouped_sums import Source
from duckdb_dp.request import units
from duckdb_dp.sql import routes
from duckdb_dp.sql.above.kinds import group_keys
from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.computed_groups import ranked
from duckdb_dp.sql.found_groups import MOST_VALUES, Column, Found, sought
from duckdb_dp.sql.owned.asked import Asked
from duckdb_dp.sql.owned.top import Top
from duckdb_dp.sql.row_bounds import Bounds
from duckdb_dp.sql.session import Session


def found(
    session: Session, dataset: Dataset, selects: Sequence[exp.Select], arguments: Arguments, place: Place
) -> Found | None:
    """The columns whose values a call finds first, each among the rows of all SELECTs that group by it; None where there are none.

    Raises:
        DPError: a SELECT is not understood, or they cannot be found with this budget.
    """
    if dataset.discovery_delta is None or dataset.accounting.pure:
        return None
    auto = Bounds.of("dp_sql", dataset, arguments, sums=True).auto
    as_written = bool(arguments.get(routes.AS_WRITTEN))
    asked = Asked(session, dataset, place, bounded=not auto, finds=True, as_written=as_written)
    relations: dict[str, list[Top]] = {}
    for top in map(asked.top, selects):
        keys = {column.name: None for key in group_keys(top.select) for column in key.find_all(exp.Column)}
        for name in keys:
            if name in top.columns and name not in top.declared:
                relations.setdefault(name, []).append(top)
    columns = {
        name: Column(
            type=tops[0].columns[name],
            most=max(_most(asked, top, name) for top in tops),
            source=_source(dataset, tops, name),
        )
        for name, tops in relations.items()
    }
    if not columns:
        return None
    largest = frozenset(name for name, tops in relations.items() if all(ranked(one.select) for one in tops))
    return sought(session, dataset, columns, arguments, place, known={}, joined=True, top=largest)


def _most(asked: Asked, top: Top, name: str) -> int:
    """How many of its values a unit is counted for: no more than it can have."""
    table, _ = top.origins.get(name, (None, ""))
    if top.source.single or asked.once(table):
        return 1
    return min(top.source.rows or MOST_VALUES, MOST_VALUES)


def _source(dataset: Dataset, tops: Sequence[Top], name: str) -> Source:
    """The rows of relations with a column and the owner, whose columns have the names that the dataset's unit has."""
    unit = [column for columns in units(dataset.unit) for column in columns]
    selects = []
    for source in dict.fromkeys(top.source for top in tops):
        own = [f"{quote(own)} AS {quote(column)}" for own, column in zip(source.owner, unit, strict=True)]
        selects.append(f"SELECT {', '.join([*own, f'{quote(name)} AS {quote(name)}'])} FROM ({source.sql})")
    return Source(sql=" UNION ALL ".join(selects), owner=tuple(unit))
