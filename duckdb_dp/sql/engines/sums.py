"""The sums of the direct route in the engine that holds the rows: the same sums as ``sql/direct_counts`` has DuckDB take.

One statement of the engine brings back whole numbers: of each group its sums in steps of their grids, and of a quantile the rows in
each of its cells. All of a row is clamped before it is added, and a sum is added up in two halves, so that no number of rows
overflows 64 bits.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.counting.engines.count import bound, encoded
from duckdb_dp.counting.engines.expressions import Expression, by_bytes, cell_of, is_null
from duckdb_dp.counting.engines.source import Source
from duckdb_dp.counting.sums import MOST
from duckdb_dp.domain.domain import Clique
from duckdb_dp.errors import DPError, brief
from duckdb_dp.grouped_sums import GroupedSums, Sum
from duckdb_dp.request import Request, units
from duckdb_dp.sql.engines.rows import Rows

Table = Any
"""An Ibis table."""

HALF = 15
"""Binary digits of the lower half of what a row adds, of at most 2^30 steps: 2^47 rows of either half fit 64 bits."""

MOST_CELLS = 10_000
"""Cells of declared attributes whose groups are looked up for units that count once in each."""

Blocks = dict[Clique, tuple[NDArray[np.integer], NDArray[np.integer]]]


@final
class Reading:
    """What is read of one grouping set whose units are bounded by rows.

    Args:
        request: whose part it is.
        part: the grouping set, with the sums that are read.
        names: of these.
        unit_key: the ledger's key of the hash that chooses which rows of a unit count.
        engine: where the rows are, for messages.
    """

    def __init__(
        self, request: Request, part: GroupedSums, names: Sequence[Clique], unit_key: str, engine: str
    ) -> None:
        self._request, self.part, self._key, self._engine = request, part, unit_key, engine
        self._names = names
        self._unit = {f"u{i}": name for i, name in enumerate(unit_of(request, part))}
        self._plain = [i for i, one in enumerate(part.sums) if one.cells is None and not _apart(one)]
        self._others = [
            i
            for i, one in enumerate(part.sums)
            if _apart(one) or (one.cells is not None and one.histogram not in {o.histogram for o in part.sums[:i]})
        ]

    @property
    def number(self) -> int:
        """How many blocks there are, of which the first one is empty where there are no plain sums."""
        return 1 + len(self._others)

    def tables(self, table: Table, first: int) -> list[Table]:
        """Tables of (b, k, n0, n1, ...): a block's number, a group or cell, and sums, in halves where they have them.

        Args:
            table: the rows.
            first: the number of the first block.
        """
        rows = self._rows(table)
        found = [self._group(rows, first)] if self._plain else []
        return found + [self._other(rows, i, first + number) for number, i in enumerate(self._others, 1)]

    def blocks(self, found: Mapping[int, Sequence[NDArray[np.int64]]]) -> Blocks:
        """The answers of ``tables`` by ``sum_name``, from (k, n0, n1, ...) by the number of their block."""
        blocks: Blocks = {}
        none = [np.zeros(0, dtype=np.int64)] * (2 + 2 * len(self._plain))
        places, *columns = found.get(0, none)
        for i, (high, low) in zip(self._plain, zip(columns[::2], columns[1::2], strict=False), strict=False):
            blocks[self._names[i]] = self._grouped(places, high, low)
        for number, i in enumerate(self._others, 1):
            places, numbers, *_ = found.get(number, none)
            one = self.part.sums[i]
            zero = np.zeros_like(numbers)
            if _apart(one):
                blocks[self._names[i]] = (places, numbers)
            else:
                cells = 1 if one.cells is None else one.cells.size
                blocks[self._names[i]] = self._grouped(places, zero, numbers, cells)
        return blocks

    def _grouped(
        self, places: NDArray[Any], high: NDArray[Any], low: NDArray[Any], cells: int = 1
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sums by the number of their group, from those of the cells of the groups' attributes."""
        totals: dict[int, int] = {}
        for place, h, rest in zip(places.tolist(), high.tolist(), low.tolist(), strict=True):
            cell, value = divmod(place, cells)
            group = cell if self.part.groups is None else self.part.groups[cell]
            key = group * cells + value
            totals[key] = totals.get(key, 0) + (h << HALF) + rest
        held = [max(-MOST, min(MOST, total)) for total in totals.values()]
        return np.array(list(totals), dtype=np.int64), np.array(held, dtype=np.int64)

    def _rows(self, table: Table) -> Table:
        """The rows that count: the unit, the cell k of the group's attributes, and what they add to each sum, s0, s1, ..."""
        rows = columns_of(self.part, table, self._engine)
        adding = {f"s{i}": added(rows, one) for i, one in enumerate(self.part.sums)}
        found = placed(self.part, self._request, table, self._engine, self._unit, adding)
        found = adding_anything(found, adding)
        return bound(found, list(self._unit), self._request.rows_of(self.part), self._key) if self._unit else found

    def _group(self, rows: Table, number: int) -> Table:
        sums: dict[str, Expression] = {}
        for i in self._plain:
            value, one = rows[f"s{i}"], self.part.sums[i]
            high, low = (value * 0, value) if one.counts else halves(value)
            sums |= {f"h{i}": high.sum(), f"l{i}": low.sum()}
        found = rows.group_by("k").aggregate(**sums)
        return block(number, found["k"], [found[name] for name in sums])

    def _other(self, rows: Table, index: int, number: int) -> Table:
        """A sum in which each unit counts once in a group; a number of distinct values; or the cells of a quantile."""
        one, name = self.part.sums[index], f"s{index}"
        rows = rows.filter(rows[name].notnull())
        if one.kind == "values":
            rows = numbered(self.part, rows)
            found = rows.group_by("k").aggregate(n=rows[name].nunique())
        elif one.cells is not None:
            rows = rows.mutate(k=rows["k"] * one.cells.size + rows[name])
            found = rows.group_by("k").aggregate(n=rows.count())
        else:
            rows = numbered(self.part, rows)
            aliases = list(self._unit)
            apart = {
                f"b{i}": by_bytes(rows[alias]) for i, alias in enumerate(aliases) if rows[alias].type().is_string()
            }
            rows = rows.mutate(**apart) if apart else rows
            rows = rows.group_by(["k", *aliases, *apart]).aggregate(n=rows.count())
            found = rows.group_by("k").aggregate(n=rows.count())
        return block(number, found["k"], [found["n"]])


def placed(
    part: GroupedSums,
    request: Request,
    table: Table,
    engine: str,
    unit: Mapping[str, str],
    adding: Mapping[str, Expression],
) -> Table:
    """The rows of a grouping set: the unit, what they add, and k, the cell of the attributes that decide the group.

    Args:
        part: the grouping set.
        request: whose part it is.
        table: all rows.
        engine: where they are, for messages.
        unit: name there -> column of the unit.
        adding: what they add, by name.
    """
    import ibis

    attributes = [attribute for attribute in request.attributes if attribute.name in part.clique]
    rows = columns_of(part, table, engine)
    held = {alias: table[name] for alias, name in unit.items()}
    values = {f"a{i}": table[attribute.name] for i, attribute in enumerate(attributes)}
    where = {"w": rows.holds(part.where)} if part.where else {}
    found = table.select(**held, **adding, **values, **where)
    found = found.filter(found["w"]) if where else found
    known = [~is_null(found[alias]) for alias in held]
    found = found.filter(*known) if known else found
    found = encoded(found, attributes, [*held, *adding], arrays=False) if values else found
    place = reduce(
        lambda k, i: k * attributes[i].size + found[f"c{i}"].cast("int64"), range(len(values)), ibis.literal(0, "int64")
    )
    found = found.select(*held, *adding, k=place)
    if part.groups is None:
        return found
    inside = [cell for cell, group in enumerate(part.groups) if group >= 0]
    return found.filter(found["k"].isin(inside)) if len(inside) < len(part.groups) else found


def adding_anything(rows: Table, adding: Mapping[str, Any]) -> Table:
    """The rows that add something to some sum."""
    return rows.filter(reduce(lambda a, b: a | b, [rows[name].notnull() for name in adding]))


def numbered(part: GroupedSums, rows: Table) -> Table:
    """The same rows with the number of the group, which several cells may have, as k."""
    import ibis

    if part.groups is None:
        return rows
    return rows.mutate(k=ibis.literal(list(part.groups), "array<int64>")[rows["k"].cast("int32")])


def columns_of(part: GroupedSums, table: Table, engine: str) -> Rows:
    """The columns that a grouping set's expressions read."""
    return Rows(engine, {name: (table[name], type_) for name, type_ in part.columns})


def check_part(part: GroupedSums, source: Source) -> None:
    """Refuse a grouping set whose sums the engine may take in another way than DuckDB; nothing is read.

    Raises:
        DPError: it does.
    """
    if any(source.columns.get(name) != type_ for name, type_ in part.columns):
        raise source.replaced()
    rows = columns_of(part, source.table, source.engine)
    if part.where:
        rows.holds(part.where)
    for one in part.sums:
        if one.value:
            rows.value(one.value)
        if one.chosen:
            raise DPError(
                f"{brief(str(one))} has no bounds, and in {source.engine} they are not chosen: declare the column, or write FILTER "
                "(WHERE x BETWEEN 0 AND 100); or leave it to max_rows := 'auto', which bounds what each unit adds."
            )
        added(rows, one)
        if (one.norm or _apart(one)) and part.groups is not None and len(part.groups) > MOST_CELLS:
            raise DPError(
                f"{brief(str(one))} is counted in groups of {len(part.groups):,} cells, and in {source.engine} of {MOST_CELLS:,} at most; "
                "group by fewer columns, or by coarser bins."
            )


def added(rows: Rows, one: Sum) -> Expression:
    """What a row adds, a whole number of steps of the grid, the value that is counted, or its cell; NULL where it adds nothing."""
    import ibis

    yes, none = ibis.literal(1, "int64"), ibis.null("int64")
    kept = rows.holds(one.where) if one.where else ibis.literal(True)
    if not one.value:
        return ibis.ifelse(kept, yes, none)
    value = rows.value(one.value)
    if one.cells is not None:
        if not value.given:
            raise DPError(
                f"{brief(one.value)} is worked out of several values, and quantiles in {rows.engine} are of columns; declare the "
                "column and ask its quantile."
            )
        found, known = cell_of(one.cells, value.ibis)
        return ibis.ifelse(kept & known, found.cast("int64"), none)
    if one.kind == "values":
        text = value.type == "VARCHAR"
        found = by_bytes(value.ibis) if text else value.ibis
        return ibis.ifelse(kept, found, ibis.null(found.type()))
    x = ibis.ifelse(value.ibis, 1.0, 0.0) if value.type == "BOOLEAN" else value.real
    known = ~is_null(value.ibis) & ~ibis.coalesce(x.isnan(), ibis.literal(False))
    if one.kind == "missing":
        return ibis.ifelse(kept & ~known, yes, none)
    if one.kind == "known":
        return ibis.ifelse(kept & known, yes, none)
    # A number even where it is not known, for engines that work out what they do not need.
    x = ibis.ifelse(known, x, ibis.literal(0.0))
    distance = ibis.greatest(ibis.least(x, ibis.literal(one.high)), ibis.literal(one.low)) - one.centre
    steps = (distance * distance if one.square else distance) * (1 / one.grid)
    most = ibis.literal(one.steps, "int64")
    steps = ibis.greatest(ibis.least(whole(steps), most), -most)
    return ibis.ifelse(kept & known, steps, none)


def unit_of(request: Request, part: GroupedSums) -> tuple[str, ...]:
    """The columns that name the unit of a grouping set's rows; none where each row is one."""
    if part.source is not None:
        return part.source.owner
    found = units(request.unit)
    return found[0] if found else ()


def _apart(one: Sum) -> bool:
    return one.cells is None and (one.distinct or one.kind == "values")


def whole(x: Expression) -> Expression:
    """A float64 below 2^62 as the nearest whole number, halves away from 0."""
    return x.round().cast("int64")


def halves(value: Expression) -> tuple[Expression, Expression]:
    """(h, l) of a whole number h 2^HALF + l below 2^53: sums of both overflow later."""
    high = (value.cast("float64") / float(1 << HALF)).floor().cast("int64")
    return high, value - high * (1 << HALF)


def block(number: int, place: Expression, numbers: Sequence[Expression]) -> Table:
    """SELECT b, k, n0, n1, ...: one kind of answers."""
    import ibis

    table = place.op().rel.to_expr()
    columns = {f"n{i}": ibis.coalesce(one.cast("int64"), ibis.literal(0, "int64")) for i, one in enumerate(numbers)}
    return table.select(b=ibis.literal(number, "int64"), k=place.cast("int64"), **columns)


def together(tables: Sequence[Table]) -> Table:
    """All of them as one table, with as many numbers as any has."""
    import ibis

    width = max(len(table.columns) for table in tables)
    names = [f"n{i}" for i in range(width - 2)]
    filled = [
        table.mutate(**{name: ibis.literal(0, "int64") for name in names if name not in table.columns}).select(
            "b", "k", *names
        )
        for table in tables
    ]
    return filled[0] if len(filled) == 1 else ibis.union(*filled)
