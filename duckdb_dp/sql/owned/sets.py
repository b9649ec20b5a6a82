"""Set operations inside a statement, DISTINCT and UNION, which may not make one of equal rows of two units; and LIMIT."""

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from duckdb_dp.errors import identifier
from duckdb_dp.sql.owned.equal_values import apart, shown
from duckdb_dp.sql.owned.fan_out import check as check_fan
from duckdb_dp.sql.owned.first_rows import FIRST, of_distinct_on
from duckdb_dp.sql.owned.literals import united
from duckdb_dp.sql.owned.relations import Fan, Field, Most, Referred, Relation, atom
from duckdb_dp.sql.owned.syntax import check, refuse
from duckdb_dp.sql.owned.ties import determines, of_either
from duckdb_dp.sql.owned.totals import kind

if TYPE_CHECKING:
    from duckdb_dp.sql.owned.compiler import Compiler  # for types: it reads queries, which have set operations


def distinct(relation: Relation, node: exp.Expr) -> Relation:
    """The distinct rows of a relation, which no two units share.

    Raises:
        DPError: two units may have equal rows.
    """
    if isinstance(node, exp.Select) and node.args["distinct"].args.get("on"):
        refuse(node.args["distinct"], f"is not read here; for the first row of each write {of_distinct_on(node)}")
    if relation.owned and not determines(relation.fields):
        refuse(
            node,
            "has DISTINCT, which makes one of equal rows of several units; keep the unit's key in it, or GROUP BY the unit",
        )
    fields = {field.at: field.type for field in relation.fields}
    if all(map(apart, fields.values())):
        query = relation.query.copy()
        query.set("distinct", exp.Distinct())
    else:
        rows = exp.Subquery(this=relation.query, alias=exp.TableAlias(this=exp.to_identifier("r")))
        query = exp.Select().from_(rows)
        for at, one in zip(fields, shown(fields), strict=True):
            query = query.select(exp.alias_(one, at, quoted=True), copy=False)
        query = query.select(*(exp.column(at, table="r") for at in relation.owner), copy=False)
        query = query.group_by(*(exp.column(at, table="r") for at in (*fields, *relation.owner)), copy=False)
    return replace(relation, query=query, keys=(*relation.keys, frozenset(field.at for field in relation.fields)))


def cut(relation: Relation, select: exp.Select) -> Relation:
    """The relation without its ORDER BY and LIMIT.

    Raises:
        DPError: it has one: which rows are first depends on all units.
    """
    if select.args.get("limit"):
        refuse(
            select,
            "has a LIMIT inside, which picks rows by those of all units; cut the result instead, or take the first ones of each unit: "
            f"{FIRST}",
        )
    if select.args.get("order"):
        refuse(select, "has an ORDER BY inside, where rows have no order; sort the result instead")
    return relation


def union(compiler: "Compiler", node: exp.Expr, ctes: dict[str, Relation]) -> Relation:
    """UNION ALL of protected rows, or of public ones; UNION where no two units can have equal rows.

    Raises:
        DPError: it compares rows of several units.
    """
    if not isinstance(node, exp.Union):
        refuse(node, "compares the rows of several units; write WHERE [NOT] EXISTS (SELECT 1 ...) with the unit's key")
    check(node)
    first, second = (compiler.query(side.unnest(), ctes) for side in (node.this, node.expression))
    if first.owned != second.owned:
        refuse(node, "puts public rows beside protected ones, and public rows belong to nobody; ask both by themselves")
    if len(first.fields) != len(second.fields):
        refuse(node, f"puts {len(second.fields)} columns below {len(first.fields)}")
    if first.owned and not compiler.tables.family.unit:
        refuse(node, "gives a row twice where every row is a unit; protect the table with a unit")
    fields, sides = [], [exp.Select(), exp.Select()]
    items = [compiler.put(relation) for relation in (first, second)]
    for item in items:
        if item.relation.member is not None:
            item.relation = compiler.tables.with_owner(item.relation)
    for place, (one, two) in enumerate(zip(first.fields, second.fields, strict=True)):
        at = f"c{place}"
        if one.type != two.type and not {kind(one.type), kind(two.type)} <= {"whole"}:
            refuse(node, f"puts {two.type} below {one.type} in {identifier(one.name)}; write a CAST")
        for side, item, field in zip(sides, items, (one, two), strict=True):
            side.select(exp.alias_(atom(item.alias, field.at), at, quoted=True), copy=False)
        alike = one.attribute if one.attribute == two.attribute else None
        tags, maybe = of_either(one.tags, two.tags), of_either(one.tags | one.maybe, two.tags | two.maybe)
        null = one.nullable or two.nullable
        same = replace(one, at=at, tags=tags, maybe=maybe, nullable=null, attribute=alike, numbers=False)
        same = replace(same, left=one.left or two.left, refers=_both(one, two))
        fields.append(
            same if (one.table, one.column) == (two.table, two.column) else replace(same, table=None, column="")
        )
    owner = tuple(f"o{i}" for i in range(len(items[0].relation.owner)))
    for side, item in zip(sides, items, strict=True):
        named = [atom(item.alias, own) for own in item.relation.owner]
        side.select(*compiler.tables.owned_by(named, owner) if owner else (), copy=False)
        side.from_(
            exp.Subquery(
                this=_query(item.relation), alias=exp.TableAlias(this=exp.to_identifier(item.alias, quoted=True))
            ),
            copy=False,
        )
    both = exp.union(sides[0], sides[1], distinct=False, copy=False)
    typed = compiler.columns_of(both)
    sides_told = [(one.told, two.told) for one, two in zip(first.fields, second.fields, strict=True)]
    fields = [
        replace(field, type=type_, told=united(told, type_))
        for field, (_, type_), told in zip(fields, typed, sides_told, strict=False)
    ]
    query = exp.select("*").from_(exp.Subquery(this=both))
    most = None
    if first.most is not None and second.most is not None:
        rows = first.most.rows + second.most.rows
        most = Most(rows=rows, of=(("UNION ALL", rows),), public=first.most.public or second.most.public)
    copies = first.fan.copies + second.fan.copies
    fan = Fan(copies=copies, squared=first.fan.squared or second.fan.squared, of=(("UNION ALL", copies),))
    check_fan(fan)
    relation = Relation(query=query, fields=tuple(fields), owned=first.owned, owner=owner, most=most, fan=fan)
    return distinct(relation, node) if node.args.get("distinct") else relation


def _both(one: Field, two: Field) -> tuple[Referred, ...]:
    """The keys of public tables to which both of two columns refer."""
    enforced = {(to.parent, to.key): to.enforced for to in two.refers}
    known = [to for to in one.refers if (to.parent, to.key) in enforced]
    return tuple(replace(to, enforced=to.enforced and enforced[to.parent, to.key]) for to in known)


def _query(relation: Relation) -> exp.Expr:
    query = relation.query.copy()
    return exp.select("*").from_(query) if isinstance(query, exp.Table) else query
