"""GROUP BY a column that refers to a public table: its groups are the keys there, as the statement has them that joins that table."""

from dataclasses import replace

from sqlglot import exp

from duckdb_dp.sql.above.kinds import group_keys
from duckdb_dp.sql.family import Family, Reference
from duckdb_dp.sql.owned.syntax import conjuncts, outside_queries
from duckdb_dp.sql.same_conditions import form
from duckdb_dp.synthesis.database import Name

_GROUPED = ("expressions", "group", "having", "order", "qualify")
"""The parts of a SELECT that see groups."""

_STRICT = (
    exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Cast,
    exp.DataType,
)  # fmt: skip
"""What is NULL where a column in it is."""


def with_keys(select: exp.Select, table: Name, column: str, family: Family) -> exp.Select | None:
    """The SELECT grouped by the keys of the public table that a column refers to; None where that would not be the same.

    Rows whose reference is NULL, or leads nowhere, are in no group, as rows are whose value is not declared. In an outer join they would
    be left out.

    Args:
        select: a SELECT that groups by the column, which nothing declares. It is not changed.
        table: a member of the family, whose column it is.
        column: its name.
        family: the dataset, with its public tables.
    """
    refers = [one for one in family.refers.get(table, ()) if [name.lower() for name in one.columns] == [column.lower()]]
    parents = [(one, to) for one in refers if (to := family.public_table(one.parent)) is not None]
    reference = next((replace(one, parent=to.name) for one, to in parents if one.parent_columns in to.keys), None)
    joins = select.args.get("joins") or []
    own = [
        source
        for source in (select.args["from_"].this, *(join.this for join in joins))
        if isinstance(source, exp.Table) and source.name.lower() == table[2].lower()
    ]
    if form() < 4 or reference is None or len(own) != 1 or any(join.side or join.args.get("using") for join in joins):
        return None
    if not _alone_in_groups(select, column, own[0].alias_or_name):
        return None
    found, alias, key = select.copy(), own[0].alias_or_name, reference.parent_columns[0]
    if (beside := _beside(found, reference, column, alias)) is not None:
        return _grouped(found, column, alias, exp.column(key, table=beside, quoted=True))
    taken = {source.alias_or_name.lower() for source in (select.args["from_"].this, *(join.this for join in joins))}
    names = (f"{column} of {reference.parent[2]}{more}" for more in ("", *(f" {i}" for i in range(2, 1000))))
    name = next(one for one in names if one.lower() not in taken)
    parent = exp.table_(reference.parent[2], db=reference.parent[1], catalog=reference.parent[0], quoted=True)
    keys = exp.select(exp.alias_(exp.column(key, quoted=True), name, quoted=True)).from_(parent).subquery(name)
    keys.args["alias"].this.set("quoted", True)
    its_key = exp.column(name, table=name, quoted=True)
    equal = exp.EQ(this=its_key, expression=exp.column(column, table=alias, quoted=True))
    return _grouped(found.join(keys, on=equal, copy=False), column, alias, its_key)


def _alone_in_groups(select: exp.Select, column: str, alias: str) -> bool:
    """Whether no group has rows without a key, as those of ROLLUP have, and of what is something where the column is NULL."""
    group = select.args.get("group")
    if group is None or group.find(exp.Cube, exp.Rollup, exp.GroupingSets) is not None:
        return False
    keys = [*group.expressions, *group_keys(select)]
    if any(isinstance(key, exp.Column) and _is(key, column, alias) for key in keys):
        return True
    keys = [key for key in keys if any(_is(one, column, alias) for one in key.find_all(exp.Column))]
    return bool(keys) and all(isinstance(node, _STRICT) for key in keys for node in key.walk())


def _beside(select: exp.Select, reference: Reference, column: str, alias: str) -> str | None:
    """The alias of the public table in FROM that is joined by the reference, so that its key is the column."""
    conditions = [join.args.get("on") for join in select.args.get("joins") or []]
    conditions += [select.args["where"].this] if select.args.get("where") else []
    for source in (select.args["from_"].this, *(join.this for join in select.args.get("joins") or [])):
        if not isinstance(source, exp.Table) or source.name.lower() != reference.parent[2].lower():
            continue
        ends = {(alias.lower(), column.lower()), (source.alias_or_name.lower(), reference.parent_columns[0].lower())}
        for one in (one.unnest() for condition in conditions for one in conjuncts(condition)):
            sides = [one.this, one.expression] if isinstance(one, exp.EQ) else []
            if {(side.table.lower(), side.name.lower()) for side in sides if isinstance(side, exp.Column)} == ends:
                return str(source.alias_or_name)
    return None


def _grouped(found: exp.Select, column: str, alias: str, key: exp.Column) -> exp.Select:
    """The SELECT with a key in place of a column, in place."""
    for item in list(found.expressions):
        if isinstance(item, exp.Column) and _is(item, column, alias):
            item.replace(exp.alias_(item.copy(), item.name, quoted=True))
    for part in _GROUPED:
        held = found.args.get(part)
        for node in held if isinstance(held, list) else [held] if held is not None else []:
            for one in [each for each in outside_queries(node) if isinstance(each, exp.Column)]:
                if _is(one, column, alias):
                    one.replace(key.copy())
    return found


def _is(node: exp.Column, column: str, alias: str) -> bool:
    return node.name.lower() == column.lower() and node.table.lower() in ("", alias.lower())
