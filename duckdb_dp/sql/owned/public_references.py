"""GROUP BY a column that refers to a public table: its groups are the keys there, as if the statement joined that table."""

from collections.abc import Collection, Mapping, Sequence
from typing import final

from sqlglot import exp

from duckdb_dp.sql.owned import declared_keys
from duckdb_dp.sql.owned.compiler import Compiler, key_alias
from duckdb_dp.sql.owned.joins import Settling
from duckdb_dp.sql.owned.public_rows import STRICT
from duckdb_dp.sql.owned.relations import Condition, Field, Item, Joined, Referred, Scope, atom
from duckdb_dp.sql.owned.tables import Read
from duckdb_dp.sql.owned.ties import Equalities, key


@final
class Keys:
    """Columns that a SELECT groups by, with the keys of public tables that stand for them.

    Rows whose reference is NULL, or leads nowhere, are in no group, as rows are whose value is not declared. Where an outer join may
    leave the column out, NULL is a group, as it is in SQL: of rows that it left out, and of those whose reference is NULL. So it is where
    groups have totals, as of ROLLUP, in which all rows are.

    Declared columns are such too where FROM joins the public table by them, as their rows have the values of its rows alone.

    Args:
        compiler: compiles the SELECT.
        select: it.
        wanted: the columns, as the SELECT without these keys resolves them.
        read: the rows of a SELECT of public tables.
    """

    def __init__(self, compiler: Compiler, select: exp.Select, wanted: Collection[str], read: Read) -> None:
        self._compiler, self._select, self._wanted, self._read = compiler, select, wanted, read
        self._keys: dict[str, exp.Column] = {}

    def join(self, scope: Scope, keys: Sequence[tuple[str, exp.Expr]]) -> list[Condition]:
        """Have the public tables joined with what FROM names; the conditions of that.

        Args:
            scope: of the SELECT.
            keys: (name, expression) of what it groups by, as it is written.
        """
        joined, found = scope.joined, list[Condition]()
        declared = declared_keys.possible(self._compiler, joined)
        if not (self._wanted or declared):
            return []
        totals = _has_totals(self._select)
        plain = [one for one in keys if not _has_query(one[1], scope)]
        values = [resolved(self._compiler, scope, *one) for one in plain]
        Settling(self._compiler, joined).resolve_plain()
        for column in dict.fromkeys(column for value in values for column in value.find_all(exp.Column)):
            field, text = self._compiler.field(column), column.sql("duckdb")
            if declared and field is not None and field.attribute is not None:
                found += self._declared(joined, column, field, cut=column in values and not totals)
            if (
                field is None
                or text not in self._wanted
                or not _alone(column, values, all_known=len(plain) == len(keys))
            ):
                continue
            left = self._left(column, field)
            to = next((one for one in field.refers if one.enforced or not (left or totals)), None)
            if to is None:
                continue
            item = None if left else self._beside(joined, column, to)
            if item is None:
                # Totals are of all rows: those without a key are a group, as those are that an outer join leaves out.
                left = left or (totals and field.nullable)
                item = self._compiler.put(self._compiler.tables.public(to.parent), "LEFT" if left else "")
                equal = Condition(node=exp.EQ(this=atom(item.alias, to.key), expression=column.copy()))
                (item.on if left else found).append(equal)
                _place(joined, item)
            self._keys[text] = atom(item.alias, to.key)
        return found

    def _declared(self, joined: Joined, column: exp.Column, field: Field, *, cut: bool) -> list[Condition]:
        """Note the key in place of a declared column; the conditions by which its values are the declared ones.

        With ``cut`` rows of other keys are in no group, so that conditions may leave them out.
        """
        for to in () if self._left(column, field) else field.refers:
            item = self._beside(joined, column, to)
            its_key = None if item is None else atom(item.alias, to.key)
            kept = None if its_key is None else declared_keys.kept(self._compiler, field, its_key, self._read)
            if its_key is not None and kept is not None and (cut or not kept):
                self._keys[column.sql("duckdb")] = its_key
                return [Condition(node=one) for one in kept]
        return []

    def of(self, node: exp.Expr) -> exp.Expr:
        """A resolved expression with the keys in place of the columns."""

        def one(inner: exp.Expr) -> exp.Expr:
            found = self._keys.get(inner.sql("duckdb")) if isinstance(inner, exp.Column) else None
            return inner if found is None else found.copy()

        return node.transform(one) if self._keys else node

    def _left(self, column: exp.Column, field: Field) -> bool:
        return field.left or bool(self._compiler.item(key_alias(column)).join)

    def _beside(self, joined: Joined, column: exp.Column, to: Referred) -> Item | None:
        """The public table that FROM joins by the reference, so that its key is the column."""
        conditions = [one.node for one in joined.conditions if one.scope is None]
        equal = Equalities(conditions, self._compiler.field)
        for item in joined.items:
            its_key = self._compiler.field(atom(item.alias, to.key))
            if item.join or item.relation.owned or its_key is None or its_key.table != to.parent:
                continue
            if equal.equal(key(atom(item.alias, to.key)), key(column)):
                return item
        return None


def resolved(compiler: Compiler, scope: Scope, shown: str, node: exp.Expr) -> exp.Expr:
    """What a SELECT groups by, of a name and an expression as they are written."""
    return compiler.resolve(node, scope, within="" if isinstance(node, exp.Column) else shown.lower()).unnest()


def of_columns(compiler: Compiler, values: Mapping[str, exp.Expr]) -> dict[str, str]:
    """Those of some columns, by their names, that refer to a public table, as ``Keys`` takes them."""
    fields = ((name, value, compiler.field(value)) for name, value in values.items())
    return {name: value.sql("duckdb") for name, value, field in fields if field is not None and field.refers}


def _has_totals(select: exp.Select) -> bool:
    """Whether some groups are of all values of a key, as those of ROLLUP are."""
    group = select.args.get("group")
    return group is not None and group.find(exp.Cube, exp.Rollup, exp.GroupingSets) is not None


def _has_query(node: exp.Expr, scope: Scope) -> bool:
    """Whether a subquery is in it, which is read when it is known whose rows are around it; also under an alias."""
    named = (scope.aliases.get(column.name.lower()) for column in node.find_all(exp.Column) if not column.table)
    return any(one.find(exp.Query) is not None for one in (node, *named) if one is not None)


def _alone(column: exp.Column, values: Sequence[exp.Expr], *, all_known: bool) -> bool:
    """Whether no group is of something where the column is NULL."""
    if column in values or not all_known:
        return column in values
    return all(
        isinstance(node, STRICT) for value in values if column in value.find_all(exp.Column) for node in value.walk()
    )


def _place(joined: Joined, item: Item) -> None:
    """Put an item of an inner join before those of outer ones, where it stands if the statement joins it, and others last."""
    outer = (place for place, one in enumerate(joined.items) if one.join)
    place = len(joined.items) if item.join else next(outer, len(joined.items))
    joined.items.insert(place or len(joined.items), item)
