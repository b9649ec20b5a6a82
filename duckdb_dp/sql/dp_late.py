"""dp_late: exact numbers of rows that closed periods lack, for the curator only."""

from duckdb_dp.accounting.periods import Rule
from duckdb_dp.counting.encode import full_name, literal, quote
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql import catalog
from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.dp_period import inside, table_of
from duckdb_dp.sql.registry import Function, register
from duckdb_dp.sql.session import Session


def plan(session: Session, arguments: Arguments, place: Place) -> str:
    """SELECT that compares the table with its periods, as multisets of rows.

    Raises:
        DPError: the table has no closed periods.

    Privacy: NOT PRIVATE.
    """
    table = table_of(session, arguments["dataset"], place)
    whole = session.ledger.dataset(*table.name)
    closed = [] if whole is None or whole.rule is None else session.ledger.periods.of(whole)
    if whole is None or whole.rule is None or not closed:
        raise DPError(
            f"{as_sql(arguments['dataset'])} has no closed periods: CALL dp_period(...) closes those that are over."
        )
    column, known = (
        Rule.from_json(whole.rule).time_column,
        catalog.committed(session, [Rule.from_json(whole.rule).place]),
    )
    selects = []
    for one in closed:
        name = (one.dataset.catalog, one.dataset.schema, one.dataset.name)
        kept = catalog.find(known, name)
        if kept is None or column not in table.columns:
            continue
        columns = ", ".join(quote(each) for each in kept.columns if each in table.columns)
        then = f"SELECT {columns} FROM {full_name(*name)}"
        today = f"SELECT {columns} FROM {full_name(*table.name)} WHERE {inside(table, column, one.period)}"
        selects.append(
            f"SELECT {literal(one.period.label)} AS period, {literal('.'.join(name))} AS dataset, "
            f"(SELECT count(*) FROM {full_name(*name)}) AS rows, (SELECT count(*) FROM ({today} EXCEPT ALL {then})) AS late, "
            f"(SELECT count(*) FROM ({then} EXCEPT ALL {today})) AS gone, 'NOT PRIVATE' AS note"
        )
    if not selects:
        raise DPError(f"the tables of all closed periods of {as_sql(arguments['dataset'])} are gone.")
    return " UNION ALL ".join(selects)


FUNCTION = register(Function(name="dp_late", plan=plan, curator=True))
