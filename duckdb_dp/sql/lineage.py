"""Which tables a view is made of."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from duckdb_dp.relational.schema import Name

if TYPE_CHECKING:
    from duckdb_dp.sql.functions import Session

VIEWS = "SELECT database_name, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal"


def views(session: "Session") -> dict[Name, str]:
    """The text of every view, by its name in small letters; none where nobody can be asked, nor TEMP ones."""
    cursor = session.cursor()
    if cursor is None:
        return {}
    with cursor:
        rows = cursor.execute(VIEWS).fetchall()
    return {_folded((catalog, schema, view)): sql for catalog, schema, view, sql in rows}


def tables(texts: Mapping[Name, str], name: Name) -> frozenset[Name]:
    """The tables that a view reads, through other views too, in small letters; a table's own name alone.

    As far as the texts of views say: not what is behind a macro.
    """
    left, seen = [_folded(name)], set[Name]()
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += _named(texts[one], one) if one in texts else []
    return frozenset(seen - set(texts))


def _named(sql: str, view: Name) -> list[Name]:
    """The tables and views that a view's text names; without a schema, those of its own."""
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(sql, dialect="duckdb")
    except sqlglot.errors.SqlglotError:
        return []
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    source = tree.expression if isinstance(tree, exp.Create) else tree
    return [
        _folded((table.catalog or view[0], table.db or view[1], table.name))
        for table in source.find_all(exp.Table)
        if table.name and not (table.name.lower() in own and not table.db)
    ]


def _folded(name: Name) -> Name:
    catalog, schema, table = name
    return catalog.lower(), schema.lower(), table.lower()
