"""Whose rows may be joined: which columns are equal in all rows, and which of them say that two rows have one owner."""

from collections.abc import Callable, Iterable, Sequence
from typing import final

from sqlglot import exp

from duckdb_dp.sql.family import Member
from duckdb_dp.sql.owned.relations import Field, Item, Tag, atom
from duckdb_dp.synthesis.database import Name

Atom = tuple[str, str]
"""The alias of an item, and a column of it."""

_WHOLE = {
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
}
_EXACT = _WHOLE | {
    "VARCHAR",
    "UUID",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_S",
    "TIMESTAMP_MS",
    "TIMESTAMP_NS",
    "BLOB",
    "BOOLEAN",
}
"""Types whose values are equal only where they are the same: unlike doubles, of which 0 and -0 are equal."""


PLAIN = _EXACT - {"VARCHAR"}
"""Those of them that no collation compares."""


def same(first: str, second: str) -> bool:
    """Whether equality of columns of two types is equality of values, so that it passes on from one to the next."""
    return (first == second and (first in _EXACT or first.startswith("DECIMAL"))) or {first, second} <= _WHOLE


def _one_value(type_: str, constant: exp.Expr) -> bool:
    """Whether one value alone of a type is equal to a constant: not of texts, which a collation may equate."""
    inner = constant.this if isinstance(constant, exp.Neg | exp.Cast) else constant
    if not isinstance(inner, exp.Literal) or type_ not in PLAIN:
        return False
    if isinstance(constant, exp.Cast):
        return constant.to.sql("duckdb").upper() in {type_, "DATE"}
    return inner.is_int if type_ in _WHOLE else inner.is_string


@final
class Equalities:
    """Which columns are equal wherever some conditions hold: classes of a union-find.

    Args:
        conditions: resolved ones.
        field: the column of an item; None of what is no column of any.
    """

    def __init__(self, conditions: Iterable[exp.Expr], field: Callable[[exp.Expr], Field | None]) -> None:
        self._parents: dict[Atom, Atom] = {}
        self.fixed: set[Atom] = set()
        for condition in conditions:
            if not isinstance(condition, exp.EQ):
                continue
            left, right = condition.this.unnest(), condition.expression.unnest()
            one, two = field(left), field(right)
            if one is not None and two is not None:
                roots = self.of(key(left)), self.of(key(right))
                if same(one.type, two.type) and roots[0] != roots[1]:
                    self._parents[roots[0]] = roots[1]
            elif one is not None and _one_value(one.type, right):
                self.fixed.add(key(left))
            elif two is not None and _one_value(two.type, left):
                self.fixed.add(key(right))

    def of(self, one: Atom) -> Atom:
        """What stands for the columns that are equal to one."""
        while one in self._parents:
            one = self._parents[one]
        return one

    def equal(self, one: Atom, two: Atom) -> bool:
        """Whether two columns are equal in all rows."""
        return self.of(one) == self.of(two)

    def constant(self, one: Atom) -> bool:
        """Whether a column has one value in all rows."""
        return any(self.of(one) == self.of(other) for other in self.fixed)


def key(node: exp.Expr) -> Atom:
    """The alias and the name of a column."""
    return node.args["table"].name, node.name


def tied(
    first: Item, second: Item, equal: Equalities, wanted: Iterable[tuple[Tag, ...]] | None = None
) -> list[tuple[Atom, Atom]] | None:
    """Pairs of equal columns, one of each item, that make up a key whose owner both rows have; None where there are none.

    Args:
        first, second: the items.
        equal: which columns are equal.
        wanted: the keys that will do; all by default.
    """
    for tags in dict.fromkeys(wanted or _keys(first)):
        pairs = [_pair(first, second, tag, equal) for tag in tags]
        if pairs and all(pair is not None for pair in pairs):
            return [pair for pair in pairs if pair is not None]
    return None


def _pair(first: Item, second: Item, tag: Tag, equal: Equalities) -> tuple[Atom, Atom] | None:
    for one in first.relation.fields:
        for two in second.relation.fields:
            if tag in one.tags and tag in two.tags and equal.equal((first.alias, one.at), (second.alias, two.at)):
                return (first.alias, one.at), (second.alias, two.at)
    return None


def _keys(item: Item) -> list[tuple[Tag, ...]]:
    """The keys of which an item has all components."""
    held = {tag for field in item.relation.fields for tag in field.tags}
    whole = {(tag.table, tag.key) for tag in held}
    found = [tuple(Tag(table=table, key=key, place=place) for place in range(len(key))) for table, key in sorted(whole)]
    return [tags for tags in found if set(tags) <= held]


def key_tags(table: Name, columns: Iterable[str]) -> dict[str, Tag]:
    """The tags of the columns of a key."""
    names = tuple(sorted(columns))
    return {name: Tag(table=table, key=names, place=place) for place, name in enumerate(names)}


def borrowed(member: Member) -> list[tuple[Tag, ...]]:
    """The key that a member without its owner's columns refers to."""
    reference = member.references[0]
    return [tuple(key_tags(reference.parent, reference.parent_columns).values())]


def by_bytes(pairs: Iterable[tuple[Atom, Atom]], type_of: Callable[[Atom], str]) -> list[exp.Expr]:
    """Conditions that texts are the same and not only alike under a collation."""
    found: list[exp.Expr] = []
    for one, two in pairs:
        if type_of(one) == "VARCHAR":
            # Not by exp.func, which wants a character set.
            first, second = (exp.Anonymous(this="encode", expressions=[atom(*side)]) for side in (one, two))
            found.append(exp.EQ(this=first, expression=second))
    return found


def determines(fields: Sequence[Field]) -> bool:
    """Whether columns make up a key whose owner is that of the row: then no two owners agree in them."""
    held = {tag for field in fields for tag in field.tags}
    keys = {(tag.table, tag.key) for tag in held}
    return any({Tag(table=table, key=key, place=i) for i in range(len(key))} <= held for table, key in keys)
