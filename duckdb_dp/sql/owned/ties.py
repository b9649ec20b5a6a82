"""Whose rows may be joined: which columns are equal in all rows, and which of them say that two rows have one owner."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import final

from sqlglot import exp

from duckdb_dp.sql.family import Family, Member
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
}
"""Whole numbers that DuckDB compares as such: UHUGEINT and signed ones it compares as doubles."""

_EXACT = _WHOLE | {
    "UHUGEINT",
    "VARCHAR",
    "UUID",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_S",
    "TIMESTAMP_MS",
    "TIMESTAMP_NS",
    "TIME",
    "BLOB",
    "BOOLEAN",
}
"""Types whose values are equal only where they are the same: unlike doubles, of which 0 and -0 are equal."""


PLAIN = _EXACT - {"VARCHAR"}
"""Those of them that no collation compares."""


def same(first: str, second: str) -> bool:
    """Whether equality of columns of two types is equality of values, so that it passes on from one to the next."""
    exact = first in _EXACT or first.startswith(("DECIMAL", "ENUM("))
    return (first == second and exact) or {first, second} <= _WHOLE


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


Key = tuple[Name, tuple[str, ...]]
"""A table, and the columns of its key."""


def tied(first: Item, second: Item, equal: Equalities, wanted: Key | None = None) -> list[tuple[Atom, Atom]] | None:
    """Pairs of equal columns, one of each item, that make up a key whose owner both rows have; None where there are none.

    Args:
        first, second: the items.
        equal: which columns are equal.
        wanted: the key that will do; all by default.
    """
    ours, theirs = keys_of(first.relation.fields), keys_of(second.relation.fields)
    for key, row in ours:
        for other, behind in theirs:
            if key != other or wanted not in (None, key):
                continue
            pairs = [
                _pair(first, one, second, two, equal)
                for one, two in zip(ours[key, row], theirs[key, behind], strict=True)
            ]
            if all(pair is not None for pair in pairs):
                return [pair for pair in pairs if pair is not None]
    return None


def _pair(
    first: Item, ones: Sequence[str], second: Item, twos: Sequence[str], equal: Equalities
) -> tuple[Atom, Atom] | None:
    for one in ones:
        for two in twos:
            if equal.equal((first.alias, one), (second.alias, two)):
                return (first.alias, one), (second.alias, two)
    return None


def keys_of(fields: Iterable[Field]) -> dict[tuple[Key, str], list[list[str]]]:
    """(key, row) of each row whose whole key some columns hold -> for each component of the key the columns that hold it."""
    found: dict[tuple[Key, str], list[list[str]]] = {}
    for field in fields:
        for tag in field.tags:
            held = found.setdefault(((tag.table, tag.key), tag.row), [[] for _ in tag.key])
            held[tag.place].append(field.at)
    return {which: found[which] for which in sorted(found) if all(found[which])}


def key_tags(table: Name, columns: Iterable[str]) -> dict[str, Tag]:
    """The tags of the columns of a key."""
    names = tuple(sorted(columns))
    return {name: Tag(table=table, key=names, place=place) for place, name in enumerate(names)}


def unit_tags(family: Family) -> list[Tag]:
    """The tags of the columns of the unit's key, in their order."""
    tags = key_tags(family.unit_table, family.unit)
    return [tags[name] for name in family.unit]


def same_unit(
    column: exp.Column, owner: Sequence[exp.Expr], tags: Sequence[Tag], field: Callable[[exp.Expr], Field | None]
) -> exp.Column:
    """The owner's column in place of another one that holds the unit's key too.

    Args:
        column: the other one, which no outer join may leave out.
        owner: expressions for the owner.
        tags: those of the unit's key, as ``unit_tags`` gives them.
        field: what is known of a column.
    """
    found = field(column)
    if found is None:
        return column
    for tag, own in zip(tags, owner, strict=True):
        if tag in found.tags and isinstance(own, exp.Column) and (known := field(own)) is not None:
            return own if known.type == found.type else column
    return column


def borrowed(member: Member) -> Key:
    """The key that a member without its owner's columns refers to."""
    reference = member.references[0]
    return reference.parent, tuple(sorted(reference.parent_columns))


def of_row(field: Field, alias: str, unit: Key) -> Field:
    """A column of an item: components of keys are those of the item's own rows, or of rows behind them."""

    def named(tags: frozenset[Tag]) -> frozenset[Tag]:
        return frozenset(
            replace(tag, row=f"{alias} {tag.row}") if len(tag.key) > 1 and (tag.table, tag.key) != unit else tag
            for tag in tags
        )

    if not any(len(tag.key) > 1 for tag in field.tags | field.maybe):
        return field
    return replace(field, tags=named(field.tags), maybe=named(field.maybe))


def of_either(first: frozenset[Tag], second: frozenset[Tag]) -> frozenset[Tag]:
    """What a column of UNION says: what both sides say, of a row of either."""
    return frozenset(
        replace(one, row=f"({one.row}|{two.row})") if one.row or two.row else one
        for one in first
        for two in second
        if replace(one, row="") == replace(two, row="")
    )


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
    return bool(keys_of(fields))


def unit_alone(family: Family, fields: Sequence[Field]) -> bool:
    """Whether columns are the unit's own key, or parts of it: then the rows of each unit agree in them."""
    wanted = tuple(sorted(family.unit))
    return bool(fields) and all(
        any((tag.table, tag.key) == (family.unit_table, wanted) for tag in field.tags) for field in fields
    )
