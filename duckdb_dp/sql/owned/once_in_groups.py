"""Whether a unit has at most one row in each group, as DISTINCT, UNION and GROUP BY inside say: then count(*) counts units."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.grouped_sums import GroupedSums, Sum
from duckdb_dp.sql.owned.compiler import Compiler
from duckdb_dp.sql.owned.relations import Joined, atom
from duckdb_dp.sql.same_conditions import form


def holds(
    compiler: Compiler,
    joined: Joined,
    select: exp.Select,
    outputs: Mapping[str, tuple[str, exp.Expr]],
    declared: Mapping[str, Attribute],
    same_unit: Callable[[exp.Column], exp.Column],
) -> bool:
    """Whether a key of the one relation of FROM is made of the owner and of columns whose groups hold one value each.

    Args:
        compiler, joined: the relation that is aggregated.
        select: the SELECT over it.
        outputs: SQL of what its columns are -> their names, and that.
        declared: the declarations of these.
        same_unit: the owner's column in place of another one that is the same.
    """
    if form() < 9 or compiler.as_written or len(joined.items) != 1:
        return False
    group, (item,) = select.args.get("group"), joined.items
    if group is not None and any(group.args.get(word) for word in ("cube", "rollup", "grouping_sets", "all")):
        return False
    keys = [] if group is None else [one for one in group.expressions if isinstance(one, exp.Column)]
    named = {key.name for key in keys if key.name in declared and _one_value(declared[key.name])}
    owner = {one.sql("duckdb") for one in joined.owner or ()}

    def is_named(at: str) -> bool:
        column = atom(item.alias, at)
        text = column.sql("duckdb")
        return same_unit(column).sql("duckdb") in owner or (text in outputs and outputs[text][0] in named)

    return any(all(map(is_named, key)) for key in item.relation.keys)


def _one_value(attribute: Attribute) -> bool:
    """Whether all rows of a group have one value."""
    return attribute.kind != "bins" and not attribute.other


def counted(part: GroupedSums) -> GroupedSums:
    """The numbers of rows as numbers of units, where nothing else is asked that is of the same rows."""

    def is_plain(one: Sum) -> bool:
        return not one.value and one.kind == "sum" and not one.distinct and not one.weighed

    if not all(map(is_plain, part.sums)):
        return part
    return replace(part, sums=tuple(replace(one, distinct=True) for one in part.sums))
