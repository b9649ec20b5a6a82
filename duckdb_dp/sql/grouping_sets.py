"""The grouping sets of GROUP BY, and which groups of them are left out."""

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from sqlglot import exp

from duckdb_dp.domain.expression_bounds import conjuncts
from duckdb_dp.outputs import Piece
from duckdb_dp.sql.clamped_sums import has_aggregates

Pieces = tuple[Piece, ...]
Key = TypeVar("Key")


def grouping_sets(
    select: exp.Select, members: Callable[[exp.Expr], tuple[Key, ...]], key: Callable[[exp.Expr], tuple[Key, ...]]
) -> tuple[tuple[Key, ...], ...]:
    """The keys of each grouping set, by their numbers or names.

    Args:
        select: what was asked.
        members: the keys in an item of GROUP BY, which are noted where they are new.
        key: the same of an item that is selected.
    """
    group = select.args.get("group")
    if group is None:
        return ((),)
    if group.args.get("all"):
        plain = [item.unalias() for item in select.expressions if not has_aggregates(item)]
        return (tuple(dict.fromkeys(one for item in plain for one in key(item))),)

    def sets(node: exp.Expr) -> list[tuple[Key, ...]]:
        """Those that one item stands for."""
        if isinstance(node, exp.Cube | exp.Rollup):
            items = [members(item) for item in node.expressions]
            sizes = range(len(items), -1, -1)
            if isinstance(node, exp.Rollup):
                return [tuple(itertools.chain(*items[:size])) for size in sizes]
            chosen = (found for size in sizes for found in itertools.combinations(items, size))
            return [tuple(itertools.chain(*found)) for found in chosen]
        if isinstance(node, exp.GroupingSets):
            return [found for item in node.expressions for found in sets(item)]
        return [members(node)]

    nested = [item for word in ("cube", "rollup", "grouping_sets") for item in group.args.get(word) or []]
    factors = [sets(item) for item in [*group.expressions, *nested]]
    found = [tuple(dict.fromkeys(itertools.chain(*chosen))) for chosen in itertools.product(*factors)]
    return tuple(dict.fromkeys(found))


def of_found(
    condition: exp.Expr | None,
    found: Collection[str],
    key_of: Callable[[exp.Expr], int | None],
    pieces: Callable[[exp.Expr], Pieces],
) -> list[Pieces]:
    """What a condition says of keys whose values are found: no row of a value that it excludes is counted, so its group is left out.

    Args:
        condition: what all rows satisfy.
        found: the columns, or the texts of expressions, whose values are found.
        key_of: the number of the key that an expression is.
        pieces: an expression over keys.
    """

    def replaced(node: exp.Expr) -> exp.Expr:
        text = "" if isinstance(node, exp.Column | exp.Identifier) else node.sql("duckdb")
        return exp.column(exp.to_identifier(text, quoted=True)) if text in found else node

    kept: list[Pieces] = []
    for part in [] if condition is None else [one.copy().transform(replaced) for one in conjuncts(condition)]:
        names = sorted({column.name for column in part.find_all(exp.Column)})
        keys = [key_of(exp.column(exp.to_identifier(name, quoted=True))) for name in names if name in found]
        numbers = [key for key in keys if key is not None]
        if names and len(numbers) == len(names):
            others: list[Piece] = [piece for key in numbers for piece in (" OR ", ("other", key))]
            kept.append(("(", *pieces(part), ")", *others))
    return kept


def both(conditions: Sequence[Pieces]) -> Pieces:
    """Conditions on groups as one; () where there is none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else ()
    return tuple(piece for i, one in enumerate(conditions) for piece in (" AND (" if i else "(", *one, ")"))
