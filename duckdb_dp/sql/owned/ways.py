"""By which columns two protected tables may be joined: what a refusal of other ones says to write."""

from duckdb_dp.errors import identifier
from duckdb_dp.sql.family import Family
from duckdb_dp.sql.owned.relations import Item
from duckdb_dp.sql.owned.ties import keys_of

MOST = 2
"""Ways that are named at most."""


def what_helps(family: Family, item: Item, other: Item, unit: str) -> str:
    """What to write where two tables are joined without a condition that says that their rows have one owner.

    Args:
        family: the tables of the dataset.
        item, other: the two.
        unit: the columns of the unit's key.

    Privacy: reads names and declarations.
    """
    if found := between(family, item, other):
        return f"join by {found}"
    for one, two in ((item, other), (other, item)):
        if through := _through(family, one):
            return f"no column of {one.called} leads to {two.called} at once; join {through} too"
    return f"join by the unit's key ({unit}), or by the key of a protected table that both refer to"


def between(family: Family, item: Item, other: Item) -> str:
    """Equalities of columns of two tables by which both rows have one owner, those of the unit's key first; '' where there are none."""
    ours, theirs = keys_of(item.relation.fields), keys_of(other.relation.fields)
    found: dict[str, bool] = {}
    for (key, _), own in ours.items():
        for (same, _), their in theirs.items():
            if key == same:
                pairs = zip(own, their, strict=True)
                text = " AND ".join(f"{_named(item, one[0])} = {_named(other, two[0])}" for one, two in pairs)
                found.setdefault(text, key[0] != family.unit_table)
    return ", or by ".join(sorted(found, key=found.__getitem__)[:MOST])


def _named(item: Item, at: str) -> str:
    """A column as the statement may name it."""
    if found := item.words.get(at):
        return ".".join(map(identifier, found))
    name = next((field.name for field in item.relation.fields if field.at == at), at)
    return identifier(name) if item.called == "a subquery" else f"{item.called}.{identifier(name)}"


def _through(family: Family, item: Item) -> str:
    """The protected table that a table refers to towards the unit, and by which columns; '' where it has the unit's key itself."""
    tables = {field.table for field in item.relation.fields if field.table is not None}
    member = family.member(next(iter(tables))) if len(tables) == 1 else None
    if member is None or member.owner or not member.references:
        return ""
    to = member.references[0]
    pairs = zip(to.columns, to.parent_columns, strict=True)
    parent = identifier(to.parent[2])
    equal = " AND ".join(f"{_named(item, one)} = {parent}.{identifier(two)}" for one, two in pairs)
    return f"{parent} by {equal}"
