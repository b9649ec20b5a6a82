"""Conditions on columns that are equal to a key of a public table by which a SELECT groups, as conditions on that key."""

from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from duckdb_dp.sql.owned.compiler import Compiler
from duckdb_dp.sql.owned.ties import Equalities, key
from duckdb_dp.sql.same_conditions import form


def on_keys(
    compiler: Compiler, conditions: Sequence[exp.Expr], read: Iterable[exp.Expr], of: Callable[[exp.Expr], exp.Expr]
) -> list[exp.Expr]:
    """Those that some conditions are of one public column that is read anyway: they say which of its values have no rows.

    Args:
        compiler: knows the columns.
        conditions: resolved ones that all rows satisfy.
        read: what is read of a row.
        of: an expression with the keys of public tables in place of columns that refer to them.
    """
    if form() < 6:
        return []
    public = [one for one in read if isinstance(one, exp.Column) and compiler.is_public(one)]
    equal = Equalities(conditions, compiler.field)

    def one(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.args.get("table") is None or node in public:
            return node
        if (
            compiler.tables.collated and compiler.type_of(node) == "VARCHAR"
        ):  # it may be equal to other texts than the key is
            return node
        moved = of(node)
        if moved in public:
            return moved
        return next((each.copy() for each in public if equal.equal(key(each), key(node))), node)

    found = []
    for condition in conditions:
        columns = {*condition.find_all(exp.Column)}
        if condition.find(exp.Query) or len(columns) != 1 or columns <= {*public}:
            continue
        moved = condition.copy().transform(one)
        if {*moved.find_all(exp.Column)} <= {*public}:
            found.append(moved)
    return found
