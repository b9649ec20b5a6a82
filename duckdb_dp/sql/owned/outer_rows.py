"""How many rows of one unit a FROM with LEFT JOINs has at most: those with a row of such a table, and those without one."""

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import final

from sqlglot import exp

from duckdb_dp.sql.owned.public_rows import operands
from duckdb_dp.sql.owned.relations import Condition, Item, Most
from duckdb_dp.sql.owned.rows import Count, Joining
from duckdb_dp.sql.same_conditions import form

_APART = 4
"""Of how many tables rows with and without one are counted apart: each makes three times as many bounds to compare."""


def most(joining: Joining, wanted: Set[str] | None, read: Count) -> Most | None:
    """The most rows that one unit has; of some tables alone, the most different ones. None where a table's own are not bounded.

    Where a row of the tables before a LEFT JOIN has rows of its table, the join is an inner one, whose condition may say that each
    row of the table has one row before it: 10 parcels and their 40 events are 40 rows. Where it has none the table adds no row: these
    are 10. So there are at most 50, and not 10 x 40.

    Args:
        joining: the tables.
        wanted: the aliases of the tables that are asked about; all by default.
        read: counts public rows.
    """
    several = [one.alias for one in joining.items if one.join == "LEFT" and one.relation.owned and not _single(one)]
    # Of requests of earlier versions each row has all rows of the table.
    return _Apart(wanted, read).most(joining, (), several[:_APART] if form() >= 6 else [])


def with_inner(joining: Joining) -> Joining:
    """The same joins, where LEFT JOINs of public tables are inner ones if conditions leave out the rows that have none of theirs."""
    for item in joining.items if form() >= 6 else ():
        if item.join == "LEFT" and not item.relation.owned and not _may_miss(joining, item):
            joining = _there(joining, item)
    return joining


def _single(item: Item) -> bool:
    return item.relation.most is not None and item.relation.most.rows == 1


@final
class _Apart:
    """Bounds of the same FROM with some of its LEFT JOINs taken apart."""

    def __init__(self, wanted: Set[str] | None, read: Count) -> None:
        self._wanted, self._read = wanted, read

    def most(self, joining: Joining, missing: tuple[Item, ...], aliases: list[str]) -> Most | None:
        """The least bound, by whether each of some tables is taken apart or not.

        Args:
            joining: the tables but for those that have no row.
            missing: these tables.
            aliases: of the tables that may be taken apart.
        """
        if not aliases:
            wanted = None if self._wanted is None else self._wanted - {one.alias for one in missing}
            return joining.most(wanted, self._read, missing)
        item = next(one for one in joining.items if one.alias == aliases[0])
        rest = replace(joining, items=[one for one in joining.items if one is not item], _equal={})
        if _is_missed(joining, item, missing):
            return self.most(rest, (*missing, item), aliases[1:])
        there = self.most(_there(joining, item), missing, aliases[1:])
        if there is None or not _may_miss(joining, item):
            return there
        together = self.most(joining, missing, aliases[1:])
        if together is not None and together.rows <= there.rows:
            return together
        without = self.most(rest, (*missing, item), aliases[1:])
        apart = None if without is None else there.plus(without, item.relation.called)
        return min((one for one in (apart, together) if one is not None), key=lambda one: one.rows, default=None)


def _there(joining: Joining, item: Item) -> Joining:
    """The rows that have one of a LEFT JOIN's table: all of its conditions hold."""
    inner = replace(item, join="", on=[])
    return replace(
        joining,
        items=[inner if one is item else one for one in joining.items],
        conditions=[*joining.conditions, *item.on],
        equal=lambda more: joining.equal([*item.on, *more]),
        _equal={},
    )


def _may_miss(joining: Joining, item: Item) -> bool:
    """Whether the conditions may keep a row that has none of a LEFT JOIN's table, whose columns are NULL there."""

    def refuses(node: exp.Expr) -> bool:
        if isinstance(node, exp.Not):
            return _null(node.this.unnest(), item) is not None
        return any(_column(one, item) is not None for one in operands(node))

    return not any(map(refuses, _plain(joining.conditions)))


def _is_missed(joining: Joining, item: Item, missing: Sequence[Item]) -> bool:
    """Whether there are these rows alone: a column has to be NULL that is not in any row that is joined, or is compared with NULL."""
    known = {field.at for field in item.relation.fields if not field.nullable}
    for one in (one for node in _plain(item.on) for one in operands(node)):
        if any(_column(one, other) is not None for other in missing):
            return True
        if (at := _column(one, item)) is not None:
            known.add(at)
    return any(_null(node, item) in known for node in _plain(joining.conditions))


def _plain(conditions: Sequence[Condition]) -> list[exp.Expr]:
    return [one.node.unnest() for one in conditions if one.scope is None]


def _column(node: exp.Expr, item: Item) -> str | None:
    inner = node.unnest()
    return inner.name if isinstance(inner, exp.Column) and inner.table == item.alias else None


def _null(node: exp.Expr, item: Item) -> str | None:
    """The column of which a condition wants that it is NULL."""
    return _column(node.this, item) if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null) else None
