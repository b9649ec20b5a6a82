"""How many rows of one unit a FROM has at most: the product of its tables' bounds, along keys that do not multiply."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol, Self, TypeVar, final

from sqlglot import exp

from duckdb_dp.errors import identifier
from duckdb_dp.sql.owned.numbered_rows import kept
from duckdb_dp.sql.owned.relations import Condition, Item, Most, atom
from duckdb_dp.sql.owned.ties import Atom, Equalities

_TRIED = 10
"""Of how many tables all orders are tried; of more the bound is a larger one, of orders that take the least at each step."""

Count = Callable[[exp.Select], int]
"""The number that a SELECT of public tables returns."""


class Product(Protocol):
    """What is known of the rows of some tables that are joined."""

    @property
    def rows(self) -> int:
        """How many there are, in some measure."""

    def times(self, other: Self) -> Self:
        """That of a join in which each row of one has the other's rows."""


P = TypeVar("P", bound=Product)


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
    _equal: dict[str, Equalities] = field(default_factory=dict)

    def one_row(self, item: Item, settled: Iterable[Item]) -> list[tuple[Atom, Atom]] | None:
        """Pairs of equal columns by which a row of the settled tables has one row of a table at most; None where it may have more.

        Columns that are equal to a constant are in no pair.
        """
        fixed = self.fixed(item, settled)
        for key in item.relation.keys:
            if key <= set(fixed):
                return [((item.alias, at), other) for at in sorted(key) if (other := fixed[at]) is not None]
        return None

    def most(self, wanted: Iterable[str] | None, read: Count, missing: Sequence[Item] = ()) -> Most | None:
        """The most rows that one unit has; of some tables alone, the most different ones. None where a table's own are not bounded.

        A row of the tables that are taken has, of the next one, at most one row where a key of it is fixed by them; of a public table
        at most as many as one value of its fixed columns has there; of a protected one at most as many as the unit has.

        Args:
            wanted: the aliases of these tables; all by default.
            read: counts public rows.
            missing: tables of LEFT JOINs that have no row there, whose columns are NULL.
        """
        ends = set(range(len(self.items))) if wanted is None else {self._places[alias] for alias in wanted}

        def more(place: int, settled: frozenset[int], _: Most) -> Most | None:
            item = self.items[place]
            if item.relation.owned:
                most = item.relation.most
                return None if most is None else most.first(self._first(item))
            rows = max(1, read(self.counted(item, [*missing, *self._at(settled)])))
            return Most(rows=rows, of=((item.relation.called, rows),) if rows > 1 else (), public=rows > 1)

        def believed(place: int, key: frozenset[str]) -> Most:
            relation = self.items[place].relation
            if relation.most is not None and relation.most.rows == 1:
                return Most()  # as it has one row of a unit at most anyway
            columns = ", ".join(identifier(field.name) for field in relation.fields if field.at in key)
            return Most(of=((f"{relation.called} (by {columns}, as declared)", 1),))

        return self.least(ends, Most(), more, missing, believed=believed)

    def least(
        self,
        ends: set[int],
        start: P,
        more: Callable[[int, frozenset[int], P], P | None],
        outside: Sequence[Item] = (),
        *,
        believed: Callable[[int, frozenset[str]], P] | None = None,
    ) -> P | None:
        """The least product over all orders in which tables may be taken one by one (Dijkstra's algorithm); None where there is none.

        What has one row beside the tables that are taken is taken at once: it only fixes more columns.

        Args:
            ends: the places of the tables that have to be taken.
            start: of no table.
            more: the factor of a table that may have several rows, by the tables that are taken and their product.
            outside: tables that are there before all.
            believed: the factor of a table that has one row by a key that is only declared, for a product that is enforced; without it
                only those of these keys count that lead to the unit.
        """
        number = count()
        waiting: list[tuple[int, bool, int, frozenset[int], P]] = [
            (start.rows, False, next(number), frozenset(), start)
        ]
        done: set[tuple[frozenset[int], bool]] = set()
        while waiting:
            _, asks, _, settled, found = heapq.heappop(waiting)
            if ends <= settled:
                return found
            if (settled, asks) in done:
                continue
            done.add((settled, asks))
            places = self._next(settled)
            if not asks:
                # What has to be counted waits for all orders of as many rows in which nothing has to be.
                one, key = self._alone(places, [*outside, *self._at(settled)], declared=believed is not None)
                after = settled if one is None else settled | {one}
                product = found.times(believed(one, key)) if believed is not None and one is not None and key else found
                heapq.heappush(waiting, (found.rows, one is None, next(number), after, product))
                continue
            factors = ((place, more(place, settled, found)) for place in places)
            steps = [(place, found.times(factor)) for place, factor in factors if factor is not None]
            steps.sort(key=lambda step: step[1].rows)
            # Of many tables one order from each is tried.
            for place, product in steps[: 1 if settled and len(self.items) > _TRIED else None]:
                heapq.heappush(waiting, (product.rows, False, next(number), settled | {place}, product))
        return None

    def _alone(
        self, places: Sequence[int], before: Sequence[Item], *, declared: bool
    ) -> tuple[int | None, frozenset[str]]:
        """The place of a table that has one row beside those before it, and the key where that is only declared; None where none has."""
        fixed = {place: set(self.fixed(self.items[place], before)) for place in places if before}
        for place, columns in fixed.items():
            if any(key <= columns for key in self.items[place].relation.keys):
                return place, frozenset()
        for place, columns in fixed.items():
            relation = self.items[place].relation
            for key in relation.expected if declared else relation.declared:
                if key <= columns:
                    return place, key
        return None, frozenset()

    def _first(self, item: Item) -> int | None:
        """How many of the rows of each unit conditions on their number keep."""
        numbers = {(item.alias, field.at) for field in item.relation.fields if field.numbers}
        conditions = [one.node for one in (item.on if item.join else self.conditions) if one.scope is None]
        return kept(conditions, lambda column: (column.table, column.name) in numbers) if numbers else None

    def _at(self, places: Iterable[int]) -> list[Item]:
        return [self.items[place] for place in sorted(places)]

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

    def counted(self, item: Item, settled: Sequence[Item]) -> exp.Select:
        """SELECT of the most rows of a public table that agree in the columns that the settled tables fix."""
        inner = self.own_rows(item, exp.alias_(exp.Count(this=exp.Star()), "n"))
        inner = inner.group_by(*self.fixed_values(item, settled), copy=False)
        most = exp.Coalesce(this=exp.Max(this=exp.column("n")), expressions=[exp.Literal.number(0)])
        return exp.select(most).from_(inner.subquery("counted"))

    def own_rows(self, item: Item, *columns: exp.Expr) -> exp.Select:
        """SELECT of a table's rows that the conditions on it alone keep."""
        conditions = item.on if item.join else self.conditions
        found = exp.select(*columns).from_(self.source(item))
        for one in conditions:
            if one.scope is None and _of(one.node, item.alias):
                found = found.where(self.condition(one.node), copy=False)
        return found

    def fixed_values(self, item: Item, settled: Iterable[Item]) -> list[exp.Expr]:
        """The columns of a table that the settled ones fix; texts without what a collation may leave out."""
        found: list[exp.Expr] = []
        for at in sorted(self.fixed(item, settled)):
            column: exp.Expr = atom(item.alias, at)
            if item.relation.types[at] == "VARCHAR":
                column = exp.Anonymous(this="strip_accents", expressions=[exp.Lower(this=column)])
            found.append(column)
        return found

    def equal_beside(self, item: Item) -> Equalities:
        """Which columns are equal where a row has one of a table beside it."""
        known = self._equal.get(item.alias)
        if known is None:
            known = self._equal[item.alias] = self.equal(item.on if item.join else ())
        return known

    def fixed(self, item: Item, settled: Iterable[Item]) -> dict[str, Atom | None]:
        """The columns of a table that have one value beside a row of the settled ones, with the column that they are equal to."""
        equal = self.equal_beside(item)
        known: dict[Atom, Atom] = {}
        for one in settled:
            for at in one.relation.types:
                known.setdefault(equal.of((one.alias, at)), (one.alias, at))
        found: dict[str, Atom | None] = {}
        for at in item.relation.types:
            other = known.get(equal.of((item.alias, at)))
            if other is not None or equal.constant((item.alias, at)):
                found[at] = other
        return found


def _of(node: exp.Expr, alias: str) -> bool:
    """Whether a resolved condition reads columns of one table alone."""
    columns = list(node.find_all(exp.Column))
    return bool(columns) and all(one.table == alias for one in columns)
