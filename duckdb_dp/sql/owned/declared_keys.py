"""Declared columns that refer to a public table which the statement joins: which of its keys their declarations leave."""

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.sql.owned.compiler import Compiler, key_alias
from duckdb_dp.sql.owned.relations import Field, Joined
from duckdb_dp.sql.owned.tables import Read
from duckdb_dp.sql.same_conditions import form


def possible(compiler: Compiler, joined: Joined) -> bool:
    """Whether a FROM may join a public table by a declared column that refers to it."""
    if form() < 8 or compiler.as_written or any(item.join == "FULL" for item in joined.items):
        return False
    fields = (field for item in joined.items if item.relation.owned for field in item.relation.fields)
    return any(not item.relation.owned for item in joined.items) and any(
        field.attribute is not None and field.refers for field in fields
    )


def kept(compiler: Compiler, field: Field, key: exp.Column, read: Read) -> list[exp.Expr] | None:
    """What says of the key, which a declared column is equal to, that it is a declared value: nothing where all public keys are.

    None where the groups of the column are other ones than its values, or no key is declared.

    Args:
        compiler: knows the columns.
        field: the column.
        key: that of the public table.
        read: the rows of a SELECT of public tables.
    """
    own, attribute = compiler.field(key), field.attribute
    if own is None or attribute is None or own.type != field.type or attribute.kind == "bins" or attribute.other:
        return None
    if compiler.tables.collated and field.type == "VARCHAR":  # the key may be another text
        return None
    listed = _listed(key, attribute)
    part = Joined(items=[compiler.item(key_alias(key))])
    shown = compiler.select(part).select(exp.alias_(key.copy(), "k"), exp.alias_(listed.copy(), "declared"), copy=False)
    ((several, declared),) = read(
        f"SELECT count(k), count(*) FILTER (k IS NOT NULL AND declared) FROM ({shown.sql('duckdb')}) AS d"
    )
    if not declared:
        return None
    return [listed] if declared < several else []


def _listed(key: exp.Column, attribute: Attribute) -> exp.Expr:
    """Whether a key is a declared value."""

    def literal(value: object) -> exp.Expr:
        if isinstance(value, int) and not isinstance(value, bool):
            return exp.Literal.number(value)
        text = exp.Literal.string(str(value))
        plain = attribute.type == "VARCHAR" or attribute.type.startswith("ENUM(")
        return text if plain else exp.cast(text, attribute.type, dialect="duckdb")

    if attribute.kind == "integers":
        low, high = attribute.points
        return exp.Between(this=key.copy(), low=literal(low), high=literal(high))
    values = [one for one in attribute.labels() if one is not None]
    return exp.In(this=key.copy(), expressions=[literal(one) for one in values])
