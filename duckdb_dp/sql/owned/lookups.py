"""Relations before one of their tables has looked up its owners: where nothing else reads these, that can be done last."""

from sqlglot import exp, parse_one

from duckdb_dp.grouped_sums import Lookup
from duckdb_dp.sql.owned.relations import Joined


def lookup(select: exp.Select, joined: Joined) -> Lookup | None:
    """The rows of a SELECT by the key that leads to their owners; None where an owner is read for anything else.

    Args:
        select: of a FROM, without the columns of the owner.
        joined: the FROM.
    """
    tables = {one.table if isinstance(one, exp.Column) else "" for one in joined.owner or ()}
    item = next((one for one in joined.items if tables == {one.alias} and not one.join), None)
    own = None if item is None else item.relation.lookup
    if item is None or own is None:
        return None
    found = select.copy()
    table = next((one for one in found.find_all(exp.Subquery) if one.alias == item.alias), None)
    if table is None or found.find(exp.Star) is not None:
        return None
    read = {column.name.lower() for column in found.find_all(exp.Column) if column.table == item.alias}
    if read.intersection(name.lower() for name in item.relation.owner):
        return None
    rows = parse_one(own.rows, dialect="duckdb")
    read.update(key for key, _ in own.keys)
    rows.set("expressions", [one for one in rows.expressions if one.alias.lower() in read])
    table.set("this", rows)
    for key, _ in own.keys:
        at = exp.column(exp.to_identifier(key, quoted=True), table=exp.to_identifier(item.alias, quoted=True))
        found = found.select(exp.alias_(at, key, quoted=True), copy=False)
    return Lookup(rows=found.sql("duckdb"), keys=own.keys, owners=own.owners)
