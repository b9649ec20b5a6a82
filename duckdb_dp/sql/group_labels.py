"""The groups of a SELECT: the keys of its GROUP BY, worked out on the cells of declared attributes, which are public."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, final

import duckdb
import numpy as np
from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.predicate import cells_that_may
from duckdb_dp.errors import DPError, NoGroups, brief, few, first_line, identifier
from duckdb_dp.grouped_sums import Label
from duckdb_dp.sql.same_conditions import form
from duckdb_dp.sql.typed import alone

MAX_CELLS = 65_536
"""Most cells that an expression is worked out on, and of which some are left out by a condition."""


class UndecidedKey(DPError):  # noqa: N818  what it says of an expression
    """A key that declared cells do not decide: a condition may list its values."""


@final
@dataclass(slots=True)
class Keys:
    """The expressions that a SELECT groups by.

    Attributes:
        texts: their SQL.
        cliques: the attributes that each reads.
        plain: whether each is a column as it is.
    """

    texts: list[str] = field(default_factory=list)
    cliques: list[tuple[str, ...]] = field(default_factory=list)
    plain: list[bool] = field(default_factory=list)
    _bare: list[str] = field(default_factory=list)

    def add(self, node: exp.Expr, clique: tuple[str, ...]) -> int:
        """The number of a checked expression, which is added where it is new."""
        text = node.sql("duckdb")
        if text not in self.texts:
            self.texts.append(text)
            self._bare.append(node.unnest().sql("duckdb"))
            self.cliques.append(clique)
            self.plain.append(isinstance(node, exp.Column))
        return self.texts.index(text)

    def find(self, node: exp.Expr) -> int | None:
        """The number of a checked expression, in whatever parentheses; None where it is not grouped by."""
        text = node.sql("duckdb")
        if text in self.texts:
            return self.texts.index(text)
        bare = node.unnest().sql("duckdb")  # which requests of earlier versions show as an expression of the group
        return self._bare.index(bare) if form() >= 6 and bare in self._bare else None


_OF_TEXTS = (exp.Paren, exp.Coalesce, exp.Case, exp.If, exp.And, exp.Or, exp.Not, exp.DPipe, exp.Concat, exp.Is)
"""What may be asked of the texts that bins are shown as."""


def is_text(attribute: Attribute) -> bool:
    """Whether groups of a column are shown as texts, whatever its type: bins, and values beside 'other'."""
    return attribute.kind == "bins" or (attribute.other and attribute.type != "VARCHAR")


def _takes_text(node: exp.Expr | None) -> bool:
    """Whether it makes a text of a column, or compares it with texts."""
    if isinstance(node, exp.Cast):
        return node.to.is_type("VARCHAR", "TEXT")
    literals = [] if node is None else [*node.find_all(exp.Literal)]
    return isinstance(node, exp.Predicate) and bool(literals) and all(one.is_string for one in literals)


def check_texts(node: exp.Expr, texts: Callable[[exp.Expr], bool], is_aggregate: Callable[[exp.Expr], bool]) -> None:
    """Refuse work on a column whose groups are texts, such as bins, of which no value is known: month(day) of months is no month.

    Args:
        node: what is shown, compared or sorted by.
        texts: whether a column is grouped by as it is, and its groups are texts.
        is_aggregate: whether what is inside belongs to an aggregate.

    Raises:
        DPError: it needs a value.
    """
    for column in node.walk(prune=is_aggregate):
        if column is node or not isinstance(column, exp.Column) or not texts(column):
            continue
        around = column.parent
        while isinstance(around, _OF_TEXTS) and around is not node:
            around = around.parent
        if not (isinstance(around, _OF_TEXTS) or _takes_text(around)):
            name, asked = identifier(column.name), brief(node.sql("duckdb"))
            raise DPError(
                f"{asked}: {name} is grouped by as it is declared, in bins or with 'other', and these are shown as texts, not values; "
                f"select {name} alone, or GROUP BY {asked}, whose groups are worked out for each row."
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """clique, size, groups and labels of ``GroupedSums`` for one grouping set."""

    clique: tuple[str, ...]
    size: int
    groups: tuple[int, ...] | None
    labels: tuple[Label, ...]


def grouped(
    keys: Sequence[int],
    known: Keys,
    shown: Sequence[tuple[str, int]],
    declared: Mapping[str, Attribute],
    conditions: Mapping[str, Sequence[exp.Expr]],
    found: Collection[str] = (),
) -> Groups:
    """The groups of one grouping set.

    Args:
        keys: the keys that it groups by.
        known: all keys of the SELECT.
        shown: (name, key) of the label columns; those of other keys are left out.
        declared: the declarations.
        conditions: conditions of the SELECT on one attribute alone: groups that satisfy none of them are left out.
        found: attributes that are placeholders; their labels name them, until the values are known.

    Raises:
        DPError: an expression has no single value on a cell, or there are too many cells.
    """
    used = {name for key in keys for name in known.cliques[key]}
    clique = tuple(name for name in declared if name in used)
    sizes = [declared[name].size for name in clique]
    columns = [(name, key) for name, key in shown if key in keys] + [
        ("", key) for key in keys if key not in {key for _, key in shown}
    ]
    masks = {name: _allowed(declared[name], conditions.get(name, ())) for name in clique}
    kinds = {name: _type(declared[name], name in found) for name in clique}
    plain = all(known.plain[key] for key in keys)
    if plain and (all(mask.all() for mask in masks.values()) or math.prod(sizes) > MAX_CELLS):
        labels = tuple(
            Label(name=name, type=kinds[known.cliques[key][0]], attribute=known.cliques[key][0], key=key)
            for name, key in columns
        )
        return Groups(clique=clique, size=math.prod(sizes), groups=None, labels=labels)
    if math.prod(sizes) > MAX_CELLS:
        raise DPError(
            f"GROUP BY {few(known.texts[key] for key in keys)}: expressions are worked out on up to {MAX_CELLS:,} cells, and "
            f"{few(clique)} have {math.prod(sizes):,}; declare coarser ones, or bound a whole "
            "number that it is worked out of: WHERE b - a BETWEEN 0 AND 60."
        )
    result = _worked_out([*keys], known, columns, [declared[name] for name in clique], masks, kinds)
    named = {key: known.cliques[key][0] for key in keys if known.plain[key] and known.cliques[key][0] in found}
    return replace(result, labels=tuple(replace(one, attribute=named.get(one.key, "")) for one in result.labels))


def _type(attribute: Attribute, found: bool) -> str:
    """The type of a column of labels: where numbers, dates or times are found, their own, in which the group of all others is NULL."""
    return attribute.type if found and not attribute.dtype.textual else attribute.column_type


def _allowed(attribute: Attribute, conditions: Sequence[exp.Expr]) -> np.ndarray:
    mask = np.ones(attribute.size, dtype=bool)
    for condition in conditions:
        mask &= _may(condition, attribute)
    return mask


def _may(condition: exp.Expr, attribute: Attribute) -> np.ndarray:
    """Which cells may hold a value that satisfies a condition: of listed values DuckDB says it where the cells' own rules do not."""
    try:
        return cells_that_may(condition, attribute)
    except DPError:
        mask = np.ones(attribute.size, dtype=bool)
    listed = [place for place in range(attribute.shown) if not (attribute.other and place == attribute.base)]
    if attribute.kind != "bins" and 0 < len(listed) <= MAX_CELLS:
        with suppress(DPError):
            found, _ = _evaluated(condition.sql("duckdb"), [(attribute, np.array(listed))])
            mask[listed] = [value == "true" for value in found]
            if attribute.dtype.continuous:  # a cell of 0 holds -0.0 too, of which a condition may be another
                mask[[place for place, point in enumerate(attribute.points) if point == 0]] = True
    return mask


def _worked_out(
    keys: list[int],
    known: Keys,
    columns: Sequence[tuple[str, int]],
    attributes: Sequence[Attribute],
    masks: Mapping[str, np.ndarray],
    types: Mapping[str, str],
) -> Groups:
    """Groups as the distinct values of the keys on all cells, in the order of their first cell."""
    sizes = tuple(attribute.size for attribute in attributes)
    places = {a.name: index.reshape(-1) for a, index in zip(attributes, np.indices(sizes), strict=True)}
    kept = np.ones(math.prod(sizes), dtype=bool)
    for attribute in attributes:
        kept &= masks[attribute.name][places[attribute.name]]
        if any(attribute.name in known.cliques[key] and not known.plain[key] for key in keys):
            _check_single(attribute)
    cells = np.flatnonzero(kept)
    if not len(cells):
        names = few(dict.fromkeys(name for name, _ in columns if name)) or "what is grouped by"
        raise NoGroups(
            f"no value of {names} that is declared or public satisfies the conditions: there is no group; leave out GROUP BY for one "
            "number of those rows, or declare the values that you ask for."
        )
    by_name = {attribute.name: attribute for attribute in attributes}
    values: dict[int, list[Any]] = {}
    kinds: dict[int, str] = {}
    for key in keys:
        if known.plain[key]:
            attribute = by_name[known.cliques[key][0]]
            labels = attribute.labels()
            values[key] = [labels[place] for place in places[attribute.name][cells]]
            kinds[key] = types[attribute.name]
        else:
            read = [(by_name[name], places[name][cells]) for name in known.cliques[key]]
            values[key], kinds[key] = _evaluated(known.texts[key], read)
    rows = list(zip(*(values[key] for key in keys), strict=True))
    numbers: dict[tuple[Any, ...], int] = {}
    found = [numbers.setdefault(row, len(numbers)) for row in rows]
    groups = np.full(len(kept), -1)
    groups[cells] = found
    return Groups(
        clique=tuple(attribute.name for attribute in attributes),
        size=len(numbers),
        groups=tuple(groups.tolist()),
        labels=tuple(
            Label(name=name, type=kinds[key], values=tuple(row[keys.index(key)] for row in numbers), key=key)
            for name, key in columns
        ),
    )


def _check_single(attribute: Attribute) -> None:
    """Refuse an attribute of which a cell may hold several values.

    Raises:
        UndecidedKey: it is declared in bins, or with 'other'.
    """
    name = identifier(attribute.name)
    if attribute.kind == "bins":
        kind = attribute.type.partition("_")[0]
        parts = f"; date_trunc('month', {name}), CAST({name} AS DATE), month({name}) and the like are answered"
        known = parts if kind in ("DATE", "TIMESTAMP") else ""
        raise UndecidedKey(
            f"{name} is declared in bins, and an expression of it may have more values than are listed; declare it by values, or by low "
            f"and high with one value a cell{known}; GROUP BY {name} itself; or ask count(*) FILTER (WHERE ...)."
        )
    if attribute.other:
        raise UndecidedKey(
            f"{name} is declared with other := true, and an expression of it is not known for the other values; GROUP BY {name} "
            "itself, or ask count(*) FILTER (WHERE ...)."
        )


def _evaluated(text: str, read: Sequence[tuple[Attribute, np.ndarray]]) -> tuple[list[str | None], str]:
    """(values as text, their type) of an expression on cells."""
    lists, values = [], []
    for attribute, places in read:
        labels = attribute.labels()
        values.append([None if labels[place] is None else str(labels[place]) for place in places])
        lists.append(f"TRY_CAST(unnest(?::VARCHAR[]) AS {attribute.type}) AS {identifier(attribute.name)}")
    with alone() as connection:
        try:
            asked = f"TRY({text})"
            rows = connection.execute(
                f"SELECT CAST({asked} AS VARCHAR), typeof({asked}) FROM (SELECT {', '.join(lists)})", values
            ).fetchall()
        except duckdb.Error as error:
            raise DPError(f"{brief(text)}: {first_line(error)}") from None
    type_ = next((kind for _, kind in rows if kind != '"NULL"'), "VARCHAR")
    zeros = {"-0.0": "0.0", "-nan": "nan"} if type_ in ("FLOAT", "DOUBLE") else {}  # which are equal, and one group
    return [value if value is None else zeros.get(value, value) for value, _ in rows], type_
