"""How many rows of one unit a FROM has at most: the product of its tables' bounds, along keys that do not multiply."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import final

from sqlglot import exp

from duckdb_dp.sql.owned.relations import Condition, Item, Most, atom
from duckdb_dp.sql.owned.ties import Atom, Equalities

_TRIED = 10
"""Of how many tables all orders are tried; of more the bound is a larger one, that of the order which takes the least at each step."""

Count = Callable[[exp.Select], int]
"""The number that a SELECT of public tables returns."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The tables of one FROM, and by which conditions they are joined.

    Attributes:
        items: the tables.
        conditions: resolved ones, which all rows satisfy.
        equal: which columns are equal by them, and by further ones.
        source: SQL of an item in FROM.
        condition: SQL of a resolved condition.
    """

    items: Sequence[Item]
    conditions: Sequence[Condition]
    equal: Callable[[Sequence[Condition]], Equalities]
    source: Callable[[Item], exp.Expr]
    condition: Callable[[exp.Expr], exp.Expr]

    def one_row(self, item: Item, settled: Iterable[Item], *, declared: bool = False) -> list[tuple[Atom, Atom]] | None:
        """Pairs of equal columns by which a row of the settled tables has one row of a table at most; None where it may have more.

        Columns that are equal to a constant are in no pair.

        Args:
            item: the table.
            settled: the others.
            declared: whether keys that nothing enforces count.
        """
        fixed, relation = self._fixed(item, settled), item.relation
        for key in (*relation.keys, *(relation.declared if declared else ())):
            if key <= set(fixed):
                return [((item.alias, at), other) for at in sorted(key) if (other := fixed[at]) is not None]
        return None

    def most(self, wanted: Iterable[str] | None, read: Count) -> Most | None:
        """The most rows that one unit has; of some tables alone, the most different ones. None where a table's own are not bounded.

        The tables are taken one by one. A row of those that are taken has, of the next one, at most one row where a key of it is
        fixed by them; of a public table at most as many as one value of its fixed columns has there; of a protected one at
        most as many as the unit has. The bound is the least product over all orders (Dijkstra's algorithm).

        Args:
            wanted: the aliases of these tables; all by default.
            read: counts public rows.
        """
        ends = set(range(len(self.items))) if wanted is None else {self._places[alias] for alias in wanted}
        number = count()
        waiting: list[tuple[int, int, frozenset[int], Most]] = [(1, next(number), frozenset(), Most())]
        done: set[frozenset[int]] = set()
        while waiting:
            _, _, settled, found = heapq.heappop(waiting)
            if ends <= settled:
                return found
            if settled in done:
                continue
            done.add(settled)
            steps = {
                place: more for place in self._next(settled) if (more := self._more(place, settled, read)) is not None
            }
            least = sorted(steps.items(), key=lambda step: step[1].rows)
            # What multiplies nothing is taken at once: it only fixes more columns. Of many tables only one order is tried.
            alone = len(self.items) > _TRIED or any(more.rows == 1 for more in steps.values())
            for place, more in least[: 1 if alone else None]:
                product = found.times(more)
                heapq.heappush(waiting, (product.rows, next(number), settled | {place}, product))
        return None

    @property
    def _places(self) -> Mapping[str, int]:
        return {item.alias: place for place, item in enumerate(self.items)}

    def _next(self, settled: frozenset[int]) -> list[int]:
        """The tables that may be taken: those of outer joins after all that stand before them."""
        return [
            place
            for place, item in enumerate(self.items)
            if place not in settled and (not item.join or settled >= set(range(place)))
        ]

    def _more(self, place: int, settled: frozenset[int], read: Count) -> Most | None:
        item = self.items[place]
        before = [self.items[i] for i in sorted(settled)]
        if self.one_row(item, before, declared=True) is not None:
            return Most()
        if item.relation.owned:
            return item.relation.most
        rows = max(1, read(self._counted(item, before)))
        return Most(rows=rows, of=((item.relation.called, rows),) if rows > 1 else (), public=rows > 1)

    def _counted(self, item: Item, settled: Sequence[Item]) -> exp.Select:
        """SELECT of the most rows of a public table that agree in the columns that the settled tables fix."""
        conditions = item.on if item.join else self.conditions
        own = [one.node for one in conditions if one.scope is None and _of(one.node, item.alias)]
        inner = exp.select(exp.alias_(exp.Count(this=exp.Star()), "n")).from_(self.source(item))
        for node in own:
            inner = inner.where(self.condition(node), copy=False)
        for at, type_ in ((at, item.relation.types[at]) for at in sorted(self._fixed(item, settled))):
            column: exp.Expr = atom(item.alias, at)
            if type_ == "VARCHAR":  # which a collation may equate
                column = exp.Anonymous(this="strip_accents", expressions=[exp.Lower(this=column)])
            inner = inner.group_by(column, copy=False)
        most = exp.Coalesce(this=exp.Max(this=exp.column("n")), expressions=[exp.Literal.number(0)])
        return exp.select(most).from_(inner.subquery("counted"))

    def _fixed(self, item: Item, settled: Iterable[Item]) -> dict[str, Atom | None]:
        """The columns of a table that have one value beside a row of the settled ones, with the column that they are equal to."""
        equal = self.equal(item.on if item.join else ())
        known = [(one.alias, at) for one in settled for at in one.relation.types]
        found: dict[str, Atom | None] = {}
        for at in item.relation.types:
            own = (item.alias, at)
            other = next((one for one in known if equal.equal(own, one)), None)
            if other is not None or equal.constant(own):
                found[at] = other
        return found


def _of(node: exp.Expr, alias: str) -> bool:
    """Whether a resolved condition reads columns of one table alone."""
    columns = list(node.find_all(exp.Column))
    return bool(columns) and all(one.table == alias for one in columns)
