"""Joins: who owns the rows of a FROM, and that no row is joined with another owner's."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, final

from sqlglot import exp

from duckdb_dp.errors import DPError, identifier
from duckdb_dp.sql.owned import outer_rows, ways
from duckdb_dp.sql.owned.fan_out import limit
from duckdb_dp.sql.owned.relations import Condition, Item, Joined, as_item, atom
from duckdb_dp.sql.owned.rows import Joining
from duckdb_dp.sql.owned.syntax import refuse
from duckdb_dp.sql.owned.ties import Atom, Equalities, borrowed, by_bytes, same, tied

if TYPE_CHECKING:
    from duckdb_dp.sql.owned.compiler import Compiler  # for types: it settles joins


@final
class Settling:
    """The owner of a FROM's rows.

    Rows of two owned tables may be joined where the conditions say that both have one owner: they equate the unit's key, or a
    key of a table that both refer to or are. A table without the owner's columns takes the owner of the row that it refers to,
    or looks it up. Of all other tables that have an owner its equality with the first one's is added to the conditions: so
    the rows of two owners are never joined, whatever the conditions say.

    Args:
        compiler: knows columns.
        joined: FROM and WHERE.
    """

    def __init__(self, compiler: "Compiler", joined: Joined) -> None:
        self._compiler, self._joined = compiler, joined
        self._outside: list[Item] = []
        around = joined.outer
        while around is not None:
            self._outside += [item for item in around.items if item.owner is not None]
            around = around.outer

    def settle(self) -> None:
        """Resolve the conditions, and find the owner.

        Raises:
            DPError: rows of several owners would be joined.
        """
        joined = self._joined
        later = self.resolve_plain()
        for item in joined.items:
            if self._resolved(item.on):
                refuse(item.on[0].node, "has a subquery in the ON of an outer join; join a subquery of FROM instead")
        inner = [item for item in joined.items if item.relation.owned and not item.join]
        if any(item.relation.owned and item.join == "FULL" for item in joined.items):
            raise DPError(
                "a FULL JOIN of protected rows keeps rows that belong to nobody; write a LEFT JOIN from the protected side, or two with "
                "UNION ALL."
            )
        equal = self._equal()
        known = list(self._outside)
        self._settle_inner(inner, known, equal)
        for item in self._optional():
            before = self._before(item)
            if not self._settle_left(item, before):
                self._refuse(item, before[0])
        if inner:
            joined.owner = inner[0].owner
        joined.single = self._single()
        limit(self._compiler, joined, self.joining)
        for condition in later:
            self._resolve(condition)

    def resolve_plain(self) -> list[Condition]:
        """Resolve the conditions of inner joins and of WHERE without subqueries; the others."""
        return self._resolved(self._joined.conditions)

    def _resolved(self, conditions: list[Condition]) -> list[Condition]:
        """Resolve the conditions without subqueries; the others."""
        later = []
        for condition in conditions:
            if condition.node.find(exp.Query):
                later.append(condition)
            else:
                self._resolve(condition)
        return later

    def _resolve(self, condition: Condition) -> None:
        if condition.scope is not None:
            condition.node = self._compiler.resolve(condition.node, condition.scope, condition=True).unnest()
            condition.scope = None

    def _equal(self, *more: Condition) -> Equalities:
        conditions = [one.node for one in (*self._joined.conditions, *more) if one.scope is None]
        return Equalities(conditions, self._compiler.field)

    def _settle_inner(self, inner: list[Item], known: list[Item], equal: Equalities) -> None:
        """Owners of the tables of inner joins, starting from what is known outside, or from the first table."""
        left = list(inner)
        for item in left:
            if item.relation.member is None:
                item.owner = tuple(atom(item.alias, name) for name in item.relation.owner)
        if left and not known:
            start = next((item for item in left if item.owner is not None), left[0])
            self._own(start)
            known.append(start)
            left.remove(start)
        while left:
            found = next((one for one in left if self._join(one, known, equal)), None)
            if found is not None:
                left.remove(found)
            else:  # a table of a LEFT JOIN may tell its owner
                found = next((one for one in self._optional() if self._settle_left(one, self._before(one))), None)
            if found is None:
                self._refuse(left[0], known[0])
            known.append(found)

    def _optional(self) -> list[Item]:
        """The tables of LEFT JOINs whose owner is not known yet."""
        return [one for one in self._joined.items if one.relation.owned and one.join == "LEFT" and one.owner is None]

    def _before(self, item: Item) -> list[Item]:
        """The tables before one whose owner is known."""
        items = self._joined.items
        return [one for one in items[: items.index(item)] if one.owner is not None]

    def _join(self, item: Item, known: list[Item], equal: Equalities) -> bool:
        """Give a table that is tied to a known one its owner."""
        member = item.relation.member
        if member is not None:
            for other in known:
                pairs = tied(item, other, equal, borrowed(member))
                if pairs is not None:
                    item.owner = other.owner
                    self._joined.conditions += self._bytes(pairs)
                    return True
        for other in known:
            pairs = tied(item, other, equal)
            if pairs is not None:
                self._own(item)
                self._joined.conditions += self._owners_equal(item, other, equal)
                return True
        return False

    def _settle_left(self, item: Item, known: list[Item]) -> bool:
        """Give a table that is joined by LEFT JOIN its owner: its ON has to say that it is that of the row it is joined to."""
        if not known:
            raise DPError(
                "a LEFT JOIN from public rows to protected ones, or the same as a RIGHT JOIN, keeps a row or not because of many units; "
                "by columns of public tables ask count(x), sum(x) or avg(x) of a column of the protected ones, and not count(*), or use "
                "an inner join, as groups without rows are returned anyway, or EXISTS."
            )
        equal = self._equal(*item.on)
        member = item.relation.member
        for other in known if member is not None else ():
            assert member is not None
            pairs = tied(item, other, equal, borrowed(member))
            if pairs is not None:
                item.owner = other.owner
                item.on += self._bytes(pairs)
                return True
        for other in known:
            if tied(item, other, equal) is not None:
                self._own(item)
                item.on += self._owners_equal(item, other, equal)
                return True
        return False

    def _own(self, item: Item) -> None:
        """Have a table look up its owner where it has not got one."""
        if item.owner is None:
            if item.relation.member is not None:
                item.relation = self._compiler.tables.with_owner(item.relation)
                self._compiler.note_owner(item)
            item.owner = tuple(atom(item.alias, name) for name in item.relation.owner)

    def _owners_equal(self, item: Item, other: Item, equal: Equalities) -> list[Condition]:
        found = []
        assert item.owner is not None
        assert other.owner is not None
        for one, two in zip(item.owner, other.owner, strict=True):
            pair = _atom(one), _atom(two)
            if not (equal.equal(*pair) and self._same(one, two)):
                found.append(Condition(node=exp.EQ(this=one.copy(), expression=two.copy())))
            found += self._bytes([pair])
        return found

    def _same(self, one: exp.Expr, two: exp.Expr) -> bool:
        first, second = self._compiler.field(one), self._compiler.field(two)
        return first is not None and second is not None and same(first.type, second.type)

    def _bytes(self, pairs: list[tuple[Atom, Atom]]) -> list[Condition]:
        def type_of(one: Atom) -> str:
            return self._compiler.type_of(atom(*one))

        return [Condition(node=node) for node in by_bytes(pairs, type_of)]

    def _single(self) -> bool:
        """Whether no owner has two rows: the first table's are single, and each other table adds one row at most."""
        items, joining = self._joined.items, self.joining
        inner = [item for item in items if item.relation.owned and not item.join]
        root = next((item for item in inner[: 1 if self._compiler.as_written else None] if item.relation.single), None)
        if root is None:
            return False
        settled = [root]
        left = [item for item in items if item is not root]
        while left:
            found = next((item for item in left if self._one_row(item, settled, joining)), None)
            if found is None:
                return False
            settled.append(found)
            left.remove(found)
        return True

    def _one_row(self, item: Item, settled: list[Item], joining: Joining) -> bool:
        if item.relation.owned and item.relation.single:
            return True
        pairs = joining.one_row(item, settled)
        if pairs is not None and not self._compiler.tables.family.unit:
            # No bound on rows comes later: two keys that a collation equates must not both be found.
            (item.on if item.join else self._joined.conditions).extend(self._bytes(pairs))
        return pairs is not None

    def determining(self, columns: Sequence[exp.Column]) -> set[str]:
        """Few items whose rows say the values of some columns: one that has an equal column stands for another one."""
        equal, own = self._equal(), {item.alias: item for item in self._joined.items}
        options: list[set[str]] = []
        for column in columns:
            if column.table not in own:
                continue
            named, found = _atom(column), {column.table}
            if (
                not self._compiler.as_written and self._compiler.type_of(column) != "VARCHAR"
            ):  # which a collation may equate
                found |= {
                    a for a, item in own.items() if any(equal.equal(named, (a, at)) for at in item.relation.types)
                }
            options.append(found)
        chosen = set[str]()
        for found in sorted(options, key=len):
            if not found & chosen:
                chosen.add(min(sorted(found), key=lambda alias: _rows(own[alias])))
        return chosen

    @property
    def joining(self) -> Joining:
        """How the rows are joined, now that the conditions are resolved."""
        compiler, joined = self._compiler, self._joined
        written = Joining(
            items=joined.items,
            conditions=joined.conditions,
            equal=lambda more: self._equal(*more),
            source=as_item,
            condition=compiler.condition,
        )
        return outer_rows.with_inner(written)

    def _refuse(self, item: Item, other: Item) -> NoReturn:
        family = self._compiler.tables.family
        unit = ", ".join(family.unit)
        what, beside = (one.called for one in (item, other))
        first = (
            "ask it first: CREATE TABLE known AS FROM dp_sql('...'), CALL dp_public('known'), "
            "and compare with (SELECT max(x) FROM known)."
        )
        if not family.unit and self._joined.outer is not None:
            raise DPError(
                f"a subquery of {what} would read rows of other units, as every row of '{family.dataset.name}' is one; {first}"
            )
        if not family.unit:
            raise DPError(
                f"{what} is joined with {beside}, and every row of '{family.dataset.name}' is a unit of its own: a row may be joined with "
                "public tables alone; protect the table with a unit to join its rows with each other."
            )
        if self._joined.outer is not None:
            self._refuse_inexact(item, other)
            tie = ways.between(family, item, other) or f"the unit's key ({unit})"
            tie += f", with an alias for each of the two, such as FROM {what} AS a" if what == beside else ""
            raise DPError(
                f"a subquery of {what} has no condition that says that its rows have the owner of the row around it, so it would read "
                f"those of other units; tie it by {tie}, or {first}"
            )
        self._refuse_inexact(item, other)
        raise DPError(
            f"{what} is joined with {beside} without a condition that says that both rows have one owner, so rows of several units would "
            f"be mixed; {ways.what_helps(family, item, other, unit)}."
        )

    def _refuse_inexact(self, item: Item, other: Item) -> None:
        """Refuse a condition on keys whose equality does not say that they are the same."""
        for condition in (*self._joined.conditions, *item.on):
            sides = (condition.node.this, condition.node.expression) if isinstance(condition.node, exp.EQ) else ()
            fields = [self._compiler.field(side.unnest()) for side in sides]
            found = [field for field in fields if field is not None and field.tags]
            aliases = {column.table for side in sides for column in side.find_all(exp.Column)}
            if len(found) == 2 and aliases == {item.alias, other.alias} and not same(found[0].type, found[1].type):
                types = " and ".join(dict.fromkeys(one.type for one in found))
                raise DPError(
                    f"keys of {types} may be equal without being the same, as 0.0 and -0.0 are, so a join by "
                    f"{identifier(found[0].name)} = {identifier(found[1].name)} does not say whose the rows are; give both columns one "
                    "type of whole numbers, texts, DECIMAL, UUID or dates: ALTER TABLE ... ALTER ... TYPE BIGINT."
                )


def _atom(node: exp.Expr) -> Atom:
    return node.args["table"].name, node.name


def _rows(item: Item) -> float:
    return math.inf if item.relation.most is None else item.relation.most.rows
