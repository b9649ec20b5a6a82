"""Joins that make many rows of one: limited, as the time that they take, and their memory, would tell of that row.

A row may be joined with all rows that its unit has in one other table, as any pair of tables is; of further tables with
some of the rows that agree with it in all that the join fixes: as many as are declared to count of a unit, and FURTHER at most, in an
order by hash. With public tables and UNION ALL as many rows are made of one row as these have for it. All of it together is at most LIMIT.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from duckdb_dp.domain import patterns, text_lengths
from duckdb_dp.errors import DPError
from duckdb_dp.sql.owned.equal_values import apart, bytes_of
from duckdb_dp.sql.owned.relations import FURTHER, Fan, Item, Joined, Relation, atom
from duckdb_dp.sql.owned.rows import Joining
from duckdb_dp.sql.owned.ties import borrowed, tied

if TYPE_CHECKING:
    from duckdb_dp.sql.owned.compiler import Compiler  # for types: it joins

LIMIT = 100_000
"""Rows that all joins of a statement make of one row, but for one join with all rows of the same unit."""


def limit(compiler: "Compiler", joined: Joined, joining: Joining, *, around: bool = False) -> None:
    """Note how many rows a FROM makes of one row, and cut tables that would make more.

    Args:
        compiler: counts rows of public tables.
        joined: the FROM, with the owners of its items.
        joining: how it is joined.
        around: whether public rows are known to be read for each row around them.

    Raises:
        DPError: there are too many.
    """
    outside = _outside(joined)
    own = {item.alias for item in joined.items}
    if not any(item.relation.owned for item in (*outside, *joined.items)):
        return
    if not any(item.relation.owned for item in joined.items) and not around and not _pairwise(joined, own):
        return

    def factor(place: int, settled: frozenset[int], found: Fan) -> Fan | None:
        item = joined.items[place]
        before = [*outside, *(joined.items[i] for i in sorted(settled))]
        if not item.relation.owned and not any(one.relation.owned for one in before):
            return None
        if not item.relation.owned:
            rows = compiler.tables.counted(joining.counted(item, before))
            return Fan(copies=max(1, rows), of=((item.relation.called, rows),) if rows > 1 else ())
        if not any(one.relation.owned for one in before):
            return item.relation.fan
        if item.relation.single:
            return Fan()
        if not _knows_owner(item, before, joining):
            return None
        if not found.squared and not item.relation.fan.squared:
            return replace(item.relation.fan, squared=True)
        rows = _most(item)
        return Fan(
            copies=rows, of=((item.relation.called, rows),), cut=((item.alias, frozenset(one.alias for one in before)),)
        )

    start = Fan() if joined.outer is None else joined.outer.fan
    fan = joining.least(set(range(len(joined.items))), start, factor, outside)
    assert fan is not None
    check(fan)
    compiler.copies = max(compiler.copies, fan.copies)
    cut = dict(fan.cut)
    for item in joined.items:
        if item.alias in cut:
            before = [one for one in (*outside, *joined.items) if one.alias in cut[item.alias]]
            compiler.further[item.relation.called] = _most(item)
            item.relation = _cut(compiler, item, before, joining)
    joined.fan = replace(fan, cut=())


def check(fan: Fan) -> None:
    """Refuse joins that make too many rows of one.

    Raises:
        DPError: they do.
    """
    if fan.copies > LIMIT:
        raise DPError(
            f"the joins make {fan.copies:,} rows of one row ({fan}), and at most {LIMIT:,} are made, as the time that they take would "
            "tell of that row; join public tables by their keys or keep fewer of their rows, and use EXISTS, or GROUP BY the unit "
            "before the join."
        )


def check_single(compiler: "Compiler", joined: Joined) -> None:
    """Refuse to give a row several rows where every row is a unit.

    Raises:
        DPError: a join may.
    """
    family = compiler.tables.family
    if not family.unit and not joined.single:
        raise DPError(
            f"the join may give a row of '{family.dataset.name}' several rows, and every row is a unit of its own; join tables by "
            "their PRIMARY KEY, or by a subquery with GROUP BY, or protect the table with a unit."
        )


def check_work(select: exp.Expr, rows: int) -> None:
    """Refuse texts and regular expressions that are much work in all rows that joins make of one.

    Raises:
        DPError: there are such.
    """
    patterns.check(select, rows)
    text_lengths.check(select, rows)


def _outside(joined: Joined) -> list[Item]:
    """The items of the SELECTs around one."""
    found: list[Item] = []
    around = joined.outer
    while around is not None:
        found += around.items
        around = around.outer
    return found


def _pairwise(joined: Joined, own: set[str]) -> bool:
    """Whether public rows are compared with each row around them: they are looked up where equal columns alone tie one table to it."""
    outer = [
        one.node
        for one in joined.conditions
        if any(column.table and column.table not in own for column in one.node.find_all(exp.Column))
    ]
    plain = all(
        isinstance(node, exp.EQ) and all(isinstance(s.unnest(), exp.Column) for s in (node.this, node.expression))
        for node in outer
    )
    return bool(outer) and not (plain and len(joined.items) == 1)


def _most(item: Item) -> int:
    """How many rows a further join takes of a table: those that may count of a unit, where that is declared."""
    most = item.relation.most
    return FURTHER if most is None else min(FURTHER, most.rows)


def _knows_owner(item: Item, before: list[Item], joining: Joining) -> bool:
    """Whether a table has the columns of its owner, or is tied to one before it whose owner is its own."""
    member = item.relation.member
    equal = joining.equal_beside(item)
    return member is None or any(tied(item, one, equal, borrowed(member)) for one in before if one.relation.owned)


def _cut(compiler: "Compiler", item: Item, before: list[Item], joining: Joining) -> Relation:
    """The rows that a further join takes of a table, of each unit by itself: no row of another unit changes which these are."""
    relation = item.relation
    types = relation.types | dict(
        zip(relation.owner, compiler.tables.unit_types, strict=True) if relation.owner else ()
    )
    owner = relation.owner or joining.fixed(item, before)
    ends = [*joining.fixed_values(item, before), *(_bytes(atom(item.alias, at), types[at]) for at in owner)]
    ends = list({end.sql("duckdb"): end for end in ends}.values())
    columns = {at: atom(item.alias, at) for at in types}
    # Equal values have one hash, though they may be told apart, as 0 and -0: which one is first must not depend on where rows lie.
    told = [one if apart(types[at]) else bytes_of(one) for at, one in columns.items()]
    order = [exp.Anonymous(this="hash", expressions=list(columns.values())), *told]
    rank = exp.Window(
        this=exp.RowNumber(),
        partition_by=ends,
        order=exp.Order(expressions=[exp.Ordered(this=one.copy(), nulls_first=True) for one in order]),
    )
    query = joining.own_rows(item, *(exp.alias_(atom(item.alias, at), at, quoted=True) for at in types))
    query.set("qualify", exp.Qualify(this=exp.LTE(this=rank, expression=exp.Literal.number(_most(item)))))
    return replace(relation, query=compiler.in_form(query))


def _bytes(column: exp.Expr, type_: str) -> exp.Expr:
    """A column without its collation, under which two units may be one."""
    return exp.Anonymous(this="encode", expressions=[column]) if type_ == "VARCHAR" else column
