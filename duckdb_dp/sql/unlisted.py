"""Conditions of joined tables that compare a column with what is none of its declared values: they count what nobody has declared."""

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, brief, identifier
from duckdb_dp.sql.arguments import Place
from duckdb_dp.sql.session import Session


def notes(session: Session, dataset: Dataset, selects: Sequence[exp.Select], place: Place) -> dict[int, str]:
    """What is to be said of each SELECT, by its number; of those that compare nothing so there is nothing.

    Privacy: costs nothing; reads declarations alone.
    """
    from duckdb_dp.sql.owned import asked  # for import time

    if not asked.joined(session, selects, place):
        return {}
    found = {}
    for number, select in enumerate(selects, 1):
        try:
            top = asked.Asked(session, dataset, place, bounded=False).top(select)
        except DPError:  # which is said where it is asked
            continue
        if told := [*top.unlisted, *map(str, top.held)]:
            found[number] = "; ".join(told)
    return found


def told(conditions: Sequence[exp.Expr], attribute: Callable[[exp.Expr], Attribute | None]) -> tuple[str, ...]:
    """What is to be said of some conditions.

    Args:
        conditions: resolved ones.
        attribute: the declaration of a column.
    """
    found: dict[str, None] = {}
    for column, literal in (pair for condition in conditions for pair in _compared(condition)):
        known = attribute(column)
        if known is not None and not known.other and not _declared(literal, known):
            found[f"{brief(literal.sql('duckdb'))} is no declared value of {identifier(known.name)}"] = None
    return tuple(found)


def _compared(condition: exp.Expr) -> Iterator[tuple[exp.Column, exp.Literal]]:
    """The columns that it compares with literals by =, IN and <>."""
    for node in condition.find_all(exp.EQ, exp.NEQ, exp.In):
        others = node.expressions if isinstance(node, exp.In) else [node.expression]
        sides = [one.unnest() for one in (node.this, *others)]
        columns = [side for side in sides if isinstance(side, exp.Column)]
        literals = [side for side in sides if isinstance(side, exp.Literal)]
        if len(columns) == 1 and len(literals) == len(sides) - 1:
            yield from ((columns[0], literal) for literal in literals)


def _declared(literal: exp.Literal, attribute: Attribute) -> bool:
    """Whether a literal is among the declared values, or it is not known."""
    points = attribute.points
    texts = attribute.type == "VARCHAR" or attribute.type.startswith("ENUM")
    if literal.is_string:
        return not (texts and attribute.kind == "values") or literal.name in points
    numbers = [point for point in points if isinstance(point, int | float) and not isinstance(point, bool)]
    if len(numbers) < len(points) or not numbers:
        return True
    value = float(literal.name)
    return value in numbers if attribute.kind == "values" else numbers[0] <= value <= numbers[-1]
