"""dp_sql: from SELECTs that count to questions; a SELECT that cannot be answered exactly is an error."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.predicate import Mask, attributes_of, cells_where
from duckdb_dp.errors import DPError, as_written, brief, few, identifier
from duckdb_dp.request import Question
from duckdb_dp.select_parts import Groups, SelectColumn, SelectPart
from duckdb_dp.sql import qualifiers
from duckdb_dp.sql.aggregates import aggregate, bases, weights
from duckdb_dp.sql.arguments import outside_the_domain
from duckdb_dp.sql.grouping_sets import grouping_sets

_UNSUPPORTED = {
    "joins": "a join; protect a view of the join instead",
    "having": "HAVING; filter the result: SELECT ... FROM dp_sql(...) WHERE ...",
    "order": "ORDER BY; sort the result: FROM dp_sql(...) ORDER BY ...",
    "limit": "LIMIT; cut the result: FROM dp_sql(...) LIMIT ...",
    "offset": "OFFSET; cut the result",
    "distinct": "DISTINCT; GROUP BY gives each group once",
    "qualify": "QUALIFY; work on the result",
    "with": "a WITH clause, which is not read; name the protected table in FROM, or protect a view instead",
    "sample": "a sample; noise already protects the rows",
}


_UNDERSTOOD = {"expressions", "from_", "from", "where", "group"}
MAX_ENTRIES = 4_000_000
"""Most entries of a matrix of queries that a SELECT may need: it is part of the request's identity."""


@dataclass(frozen=True, slots=True)
class Select:
    """One parsed SELECT: what it reads, aggregates, filters and groups by."""

    text: str
    table: str
    columns: tuple[SelectColumn, ...]
    where: exp.Expr | None
    groupings: tuple[tuple[str, ...], ...]


def table_name(select: exp.Select) -> str:
    """The one table that a SELECT reads, as SQL text."""
    if select.args.get("with_") or select.args.get("with"):
        raise DPError(f"{brief(select.sql('duckdb'))} has {_UNSUPPORTED['with']}.")
    source = select.args.get("from_") or select.args.get("from")
    if (
        source is None
        or not isinstance(source.this, exp.Table)
        or source.this.args.get("joins")
        or select.args.get("joins")
    ):
        raise DPError(
            f"{brief(select.sql('duckdb'))} does not read one protected table; to query a join, protect a view of it."
        )
    extra = {word for word, value in source.this.args.items() if value} - {"this", "db", "catalog", "alias"}
    if extra or source.this.alias_column_names:
        raise DPError(
            f"{brief(select.sql('duckdb'))} reads {brief(source.this.sql('duckdb'))}; name the table alone, with an alias at most."
        )
    return ".".join(part.sql("duckdb") for part in source.this.parts)


def questions(select: exp.Select, number: int, declared: Mapping[str, Attribute]) -> list[Question]:
    """One question per grouping set and linear query of the SELECT with that number in its batch.

    Raises:
        DPError: it cannot be answered exactly from the declared domain; the message says what works instead.
    """
    qualifiers.check(select, [source.this for source in (select.args.get("from_"), select.args.get("from")) if source])
    parsed = _parse(select, declared)
    queries = dict.fromkeys(query for column in parsed.columns if column.function for query in bases(column))
    return [
        _question(
            parsed,
            grouping,
            weights(query, declared),
            declared,
            SelectPart(number=number, query=query, columns=parsed.columns),
        )
        for grouping in parsed.groupings
        for query in queries
    ]


def _parse(select: exp.Select, declared: Mapping[str, Attribute]) -> Select:
    text = select.sql("duckdb")
    for word, what in _UNSUPPORTED.items():
        if select.args.get(word) or select.args.get(f"{word}_"):
            raise DPError(f"{brief(text)} has {what}.")
    if extra := {word for word, value in select.args.items() if value} - _UNDERSTOOD:
        raise DPError(
            f"{brief(text)} has {extra.pop().upper()}; write SELECT ... FROM table WHERE ... GROUP BY ... alone."
        )
    columns: list[SelectColumn] = []
    for item in select.expressions:
        inner = item.unalias()
        if isinstance(inner, exp.Column):
            columns.append(SelectColumn(name=item.alias_or_name, attribute=_declared(inner, declared).name))
        elif isinstance(inner, exp.Count | exp.Sum | exp.Avg):
            columns.append(aggregate(inner, item.alias, declared))
        else:
            raise DPError(
                f"{brief(item.sql('duckdb'))} cannot be selected; select grouped columns and count(*), sum(column) or avg(column)."
            )
    aggregates = [column for column in columns if column.function]
    if not aggregates:
        raise DPError(f"{brief(as_written(text))} counts nothing; select count(*) too, or ask dp_discover for values.")
    names = [column.name.lower() for column in columns]
    errors = {"stddev", "ci_low", "ci_high"}
    if len(aggregates) > 1:
        errors |= {f"{item.name.lower()}_{error}" for item in aggregates for error in errors}
    if len(set(names)) < len(names) or errors & set(names):
        raise DPError(
            f"{brief(text)} names two result columns alike, or one stddev, ci_low or ci_high; give them other aliases."
        )
    groupings = _groupings(select, declared)
    grouped = {name for grouping in groupings for name in grouping}
    for column in columns:
        if not column.function and column.attribute not in grouped:
            raise DPError(
                f"{brief(text)} selects '{column.attribute}' without grouping by it; "
                f"add GROUP BY {identifier(column.attribute)}."
            )
    where = select.args.get("where")
    condition = where.this if where else None
    return Select(text, table_name(select), tuple(columns), condition, groupings)


def _groupings(select: exp.Select, declared: Mapping[str, Attribute]) -> tuple[tuple[str, ...], ...]:
    """The grouping sets of GROUP BY, with CUBE, ROLLUP and GROUPING SETS written out."""

    def names(node: exp.Expr) -> tuple[str, ...]:
        if isinstance(node, exp.Tuple):
            return tuple(name for item in node.expressions for name in names(item))
        if isinstance(node, exp.Paren):
            return names(node.this)
        if isinstance(node, exp.Literal) and not node.is_string:
            place = str(node.this)
            if not place.isdigit() or not 1 <= int(place) <= len(select.expressions):
                raise DPError(
                    f"GROUP BY {place}, but {len(select.expressions)} columns are selected; group by columns."
                )
            return names(select.expressions[int(place) - 1].unalias())
        if not isinstance(node, exp.Column):
            raise DPError(f"GROUP BY {brief(node.sql('duckdb'))} is no declared column; group by columns.")
        return (_declared(node, declared).name,)

    def key(item: exp.Expr) -> tuple[str, ...]:
        return names(item) if isinstance(item, exp.Column) else ()

    return grouping_sets(select, names, key)


def _question(
    select: Select,
    grouping: tuple[str, ...],
    value: "tuple[Attribute, np.ndarray] | None",
    declared: Mapping[str, Attribute],
    answered: SelectPart,
) -> Question:
    either = None if grouping or value else _disjunction(select, declared, answered)
    if either is not None:
        return either
    pieces = _components(select, declared)
    tied = [attributes for attributes, _ in pieces if len(attributes) > 1]
    if tied:
        return _joint_question(select, grouping, pieces, value, declared, answered)
    masks = {attributes[0].name: mask for attributes, mask in pieces}
    used = {*grouping, *masks, *([value[0].name] if value else [])}
    clique = tuple(name for name in declared if name in used)
    kinds: list[Any] = []
    groups, summed = [], []
    for name in clique:
        size = declared[name].size
        mask = masks.get(name, np.ones(size, dtype=bool))
        if not mask[: declared[name].shown if name in grouping else size].any():
            raise DPError(
                f"{brief(select.text)}: no declared cell of '{name}' satisfies its conditions. {outside_the_domain([name])}"
            )
        numbers = value[1] if value and value[0].name == name else np.ones(size)
        if name in grouping:
            shown = declared[name].shown
            cells = np.flatnonzero(mask[:shown])
            if mask[:shown].all() and (numbers[:shown] == 1).all():
                kinds.append("identity")
            elif len(cells) * size > MAX_ENTRIES:
                raise DPError(
                    f"{brief(select.text)}: '{name}' has {size:,} cells, too many for conditions and groups at once; declare bins."
                )
            else:
                kinds.append(_rows(np.eye(size)[cells] * numbers))
                groups.append(Groups(attributes=(name,), cells=tuple((int(cell),) for cell in cells)))
        else:
            kinds.append(_rows((mask * numbers)[None, :]))
            summed.append(name)
    answered = replace(answered, groups=tuple(groups), summed=tuple(summed))
    return Question(clique=clique, kinds=tuple(kinds), select=answered)


def _disjunction(select: Select, declared: Mapping[str, Attribute], answered: SelectPart) -> Question | None:
    """A count of the rows that satisfy any of several conditions on one attribute each; None for other counts.

    OR is true if any operand is true, even if others are NULL. So only the cells in which each operand is true matter.
    """
    if select.where is None:
        return None
    masks: dict[str, Mask] = {}
    for operand in _operands(select.where):
        attributes = attributes_of(operand, declared)
        if len(attributes) != 1:
            return None
        name, mask = attributes[0].name, cells_where(operand, attributes)
        masks[name] = masks[name] | mask if name in masks else mask
    clique = tuple(name for name in declared if name in masks)
    if len(clique) < 2:
        return None
    if not any(mask.any() for mask in masks.values()):
        raise _nothing(select, clique)
    return Question(
        clique=clique,
        kinds=tuple(_rows(masks[name][None, :]) for name in clique),
        disjunction=True,
        select=replace(answered, summed=clique),
    )


def _operands(condition: exp.Expr) -> list[exp.Expr]:
    """What a condition's ORs join, or the condition itself."""
    inner = condition.unnest()
    if not isinstance(inner, exp.Or):
        return [inner]
    return [*_operands(inner.this), *_operands(inner.expression)]


def _joint_question(
    select: Select,
    grouping: tuple[str, ...],
    pieces: "list[tuple[list[Attribute], Mask]]",
    value: "tuple[Attribute, np.ndarray] | None",
    declared: Mapping[str, Attribute],
    answered: SelectPart,
) -> Question:
    """Conditions that tie attributes together: queries on the joint cells of all that are used."""
    used = {*grouping, *(a.name for attributes, _ in pieces for a in attributes), *([value[0].name] if value else [])}
    clique = tuple(name for name in declared if name in used)
    sizes = [declared[name].size for name in clique]
    _check_entries(select, clique, 1, math.prod(sizes))
    table = np.ones(sizes)
    for attributes, mask in pieces:
        table = table * _spread(mask.astype(float), [a.name for a in attributes], clique)
    summed = tuple(axis for axis, name in enumerate(clique) if name not in grouping)
    _check_entries(select, clique, int(np.count_nonzero(table.any(axis=summed))), table.size)
    allowed = table != 0  # which groups are rows depends on the conditions, not on what is summed
    if value:
        table = table * _spread(value[1], [value[0].name], clique)
    rows, groups = [], []
    for cells in itertools.product(*(range(declared[name].shown) for name in grouping)):
        chosen = np.zeros(sizes)
        place = tuple(cells[grouping.index(name)] if name in grouping else slice(None) for name in clique)
        chosen[place] = table[place]
        if allowed[place].any():
            rows.append(tuple(chosen.reshape(-1).tolist()))
            groups.append(cells)
    if not rows:
        raise _nothing(select, clique)
    answered = replace(answered, groups=(Groups(attributes=grouping, cells=tuple(groups)),))
    return Question(clique=clique, kinds=(tuple(rows),), joint=True, select=answered)


def _nothing(select: Select, names: Iterable[str]) -> DPError:
    return DPError(f"{brief(select.text)}: no declared cell satisfies its conditions. {outside_the_domain(names)}")


def _check_entries(select: Select, clique: Sequence[str], groups: int, cells: int) -> None:
    if groups * cells > MAX_ENTRIES:
        raise DPError(
            f"{brief(select.text)}: conditions tie {few(clique)} together, which makes {groups:,} groups of {cells:,} "
            "cells; group by fewer columns, declare coarser bins, or ask in several SELECTs."
        )


def _components(select: Select, declared: Mapping[str, Attribute]) -> "list[tuple[list[Attribute], Mask]]":
    """The WHERE clause as an AND of conditions on disjoint attribute sets, each with the cells that satisfy it."""
    if select.where is None:
        return []
    groups: list[tuple[set[str], list[exp.Expr]]] = []
    for condition in select.where.flatten() if isinstance(select.where, exp.And) else [select.where]:
        names = {attribute.name for attribute in attributes_of(condition, declared)}
        conditions = [condition]
        for other in [group for group in groups if group[0] & names]:
            names |= other[0]
            conditions = other[1] + conditions
            groups.remove(other)
        groups.append((names, conditions))
    found = []
    for names, conditions in groups:
        attributes = [attribute for name, attribute in declared.items() if name in names]
        if not attributes:
            holds = cells_where(conditions[0], []).all()  # refuses what is not understood
            remedy = "leave it out" if holds else "no row satisfies it, so the answer is 0: leave the SELECT out"
            raise DPError(f"{brief(select.text)}: {brief(conditions[0].sql('duckdb'))} names no column; {remedy}.")
        mask = np.ones([attribute.size for attribute in attributes], dtype=bool)
        for condition in conditions:
            mask &= cells_where(condition, attributes)
        found.append((attributes, mask))
    return found


def _spread(table: np.ndarray, names: Sequence[str], clique: Sequence[str]) -> np.ndarray:
    """A table over some attributes as one that broadcasts over the clique's axes."""
    order = sorted(range(len(names)), key=lambda i: clique.index(names[i]))
    shape = [1] * len(clique)
    for i in order:
        shape[clique.index(names[i])] = table.shape[i]
    return np.transpose(table, order).reshape(shape)


def _rows(matrix: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


def _declared(column: exp.Column, declared: Mapping[str, Attribute]) -> Attribute:
    return attributes_of(column, declared)[0]
