"""Sums that are bounded by norm, in the engine that holds the rows: as ``sql/clipped_counts`` has DuckDB take them.

What a unit adds to each group is worked out of its own rows alone, and without rounding that depends on their order: numbers are added
up as whole numbers, in parts so small that no number of rows overflows 64 bits, and become float64 afterwards. The norm is a sum of whole
numbers again. So another engine may take another candidate for a norm at the very edge of two, and nobody's part is larger than
what is paid for.
"""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.counting.engines.expressions import Expression, by_bytes, is_null
from duckdb_dp.counting.sums import MOST
from duckdb_dp.grouped_sums import BITS, FRACTION, PER_OCTAVE, WHOLE, GroupedSums, Sum
from duckdb_dp.plan.clipping import Clip
from duckdb_dp.request import Request
from duckdb_dp.sql.clipped_counts import SHRINK
from duckdb_dp.sql.engines.sums import Blocks, Table, block, columns_of, numbered, placed, unit_of

HIGH, LOW = 31, 30
"""Binary digits of a number below its high part, and behind the point: so 2^32 rows of a unit add up to less than 2^63 in each part."""

LEAST = 1e-300
"""Below all that a unit adds, as bounds go from 1e-100 on; no denormal number, which some engines take for 0."""

_SUM = Sequence[tuple[Expression, float]]


@final
class Clipped:
    """What is read of one grouping set whose sums are bounded by norm.

    Args:
        request: whose part it is.
        part: the grouping set; its other sums are left alone.
        first: the number of its first sum.
        clips: the bounds of its sums.
        engine: where the rows are, for messages.

    Attributes:
        chosen: the names of its bounds that are chosen.
        choices: of these the numbers of their candidates, when they are known.
    """

    def __init__(self, request: Request, part: GroupedSums, first: int, clips: Sequence[Clip], engine: str) -> None:
        self._request, self.part, self._first, self._clips, self._engine = request, part, first, clips, engine
        self.chosen = [clip.name for clip in clips if clip.chosen]
        self.choices: Mapping[str, int] = {}
        self._pure = request.accounting.pure
        self._unit = {f"u{i}": name for i, name in enumerate(unit_of(request, part))}

    number = 1
    """How many blocks there are: all sums have the same groups."""

    def owners(self, table: Table, first: int) -> list[Table]:
        """Tables of (b, k, n0): of each choice, in their order, how many units have their norm in each cell.

        Args:
            table: the rows.
            first: the number of the first block.
        """
        rows = self._with_norms(self._added_up(table))
        found = []
        for place, name in enumerate(self.chosen):
            b = next(b for b, clip in enumerate(self._clips) if clip.name == name)
            units = rows.filter(rows["once"] == 0)
            units = units.select(j=cell(units[f"n{b}"], self._clips[b]))
            counted = units.group_by("j").aggregate(n=units.count())
            found.append(block(first + place, counted["j"], [counted["n"]]))
        return found

    def owner_blocks(self, found: Mapping[int, Sequence[NDArray[np.int64]]]) -> Blocks:
        """The answers of ``owners`` by name, by the number of their block."""
        none = [np.zeros(0, dtype=np.int64)] * 2
        clips = [clip for clip in self._clips if clip.name in self.chosen]
        read = [found.get(place, none)[:2] for place in range(len(clips))]
        return {(f"#{clip.sums[0]}", "owners"): (k, n) for clip, (k, n) in zip(clips, read, strict=True)}

    def tables(self, table: Table, first: int) -> list[Table]:
        """A table of (b, k, n0, n1, ...): the number of the block, a group, and the sums of what is cut, in steps.

        Args:
            table: the rows.
            first: the number of the block.
        """
        import ibis

        rows = self._with_norms(self._added_up(table))
        steps: dict[str, Expression] = {}
        for b, clip in enumerate(self._clips):
            weight = self._ratio(rows, b)
            for other, each in enumerate(self._clips):
                if each.name in clip.together and not math.isnan(each.bound(self.choices.get(each.name, 0))):
                    weight = ibis.least(weight, self._ratio(rows, other))
            factor = weight * (2**BITS * SHRINK / self._tau(b))
            steps |= {f"s{index}": _trunc(rows[f"d{index - self._first}"] * factor) for index in clip.sums}
        scaled = rows.select(k=rows["k"], **steps)
        sums = scaled.group_by("k").aggregate(**{name: scaled[name].sum() for name in steps})
        return [block(first, sums["k"], [sums[name] for name in steps])]

    def blocks(self, found: Mapping[int, Sequence[NDArray[np.int64]]]) -> Blocks:
        """The answers of ``tables`` by name, from (k, n0, n1, ...) by the number of their block."""
        names = [(f"#{index}",) for clip in self._clips for index in clip.sums]
        places, *columns = found.get(0, [np.zeros(0, dtype=np.int64)] * (1 + len(names)))
        return {name: (places, np.clip(column, -MOST, MOST)) for name, column in zip(names, columns, strict=False)}

    def _tau(self, b: int) -> float:
        clip = self._clips[b]
        return float(clip.candidates[0] * 2.0 ** (self.choices.get(clip.name, 0) / PER_OCTAVE))

    def _ratio(self, rows: Table, b: int) -> Expression:
        """A unit's own weight for one bound."""
        import ibis

        norm, one = rows[f"n{b}"], ibis.literal(1.0)
        return ibis.ifelse(norm > self._tau(b), ibis.literal(self._tau(b)) / ibis.ifelse(norm > 0, norm, one), one)

    def _added_up(self, table: Table) -> Table:
        """What each unit adds to each group: its columns, the group k, and d0, d1, ... by the number of the sum."""
        rows = columns_of(self.part, table, self._engine)
        normed = {i: one for i, one in enumerate(self.part.sums) if one.norm}
        parts = {i: _parts(rows, one) for i, one in normed.items()}
        adding = {f"s{i}_{j}": part for i, each in parts.items() for j, (part, _) in enumerate(each)}
        found = numbered(self.part, placed(self.part, self._request, table, self._engine, self._unit, adding))
        keys = {name: found[name] for name in self._unit}
        keys |= {f"b{i}": by_bytes(key) for i, key in enumerate(keys.values()) if key.type().is_string()}
        sums = found.group_by(k=found["k"], **keys).aggregate(**{name: found[name].sum() for name in adding})
        numbers = {
            f"d{i}": _whole_sum(
                one, [(sums[f"s{i}_{j}"].cast("float64"), weight) for j, (_, weight) in enumerate(parts[i])]
            )
            for i, one in normed.items()
        }
        return sums.select("k", *keys, **numbers)

    def _with_norms(self, rows: Table) -> Table:
        """The same with each unit's norms n0, n1, ..., and ``once``, which is 0 in one of its rows."""
        import ibis

        keys = [name for name in rows.columns if name[0] in "ub"]
        unit = ibis.window(group_by=keys)
        found = rows
        for b, clip in enumerate(self._clips):
            names = [f"d{index - self._first}" for index in clip.sums]
            parts = [found[name].abs() for name in names]
            found = found.mutate(m=ibis.greatest(reduce(ibis.greatest, parts).max().over(unit), ibis.literal(LEAST)))
            shares = [found[name].abs() / found["m"] for name in names]
            steps = [(share if self._pure else share * share) * 2.0**FRACTION for share in shares]
            found = found.mutate(t=reduce(lambda a, b: a + b, steps).ceil().cast("int64"))
            total = found["t"].sum().over(ibis.window(group_by=keys)).cast("float64") * 2.0**-FRACTION
            found = found.mutate(**{f"n{b}": found["m"] * (total if self._pure else total.sqrt())}).drop("m", "t")
        return found.mutate(once=ibis.row_number().over(ibis.window(group_by=keys, order_by="k")))


def cell(n: Expression, clip: Clip) -> Expression:
    """The number of the first candidate that is not below a norm; one more than the last where it is beyond all."""
    import ibis

    if not clip.chosen:
        return ibis.ifelse(n <= float(clip.candidates[0]), ibis.literal(0, "int64"), ibis.literal(1, "int64"))
    place = (PER_OCTAVE * (ibis.greatest(n, ibis.literal(1e-300)).log2() - clip.lowest) - 1e-9).ceil()
    return ibis.greatest(ibis.least(place, ibis.literal(float(clip.size))), ibis.literal(0.0)).cast("int64")


def _trunc(x: Expression) -> Expression:
    """A float64 without what stands behind its point."""
    return (x.sign() * x.abs().floor()).cast("int64")


def _parts(rows: Any, one: Sum) -> list[tuple[Expression, float]]:
    """What a row adds, as whole numbers of weights of which a sum is made: of a count one, of a number the parts of its digits."""
    import ibis

    yes, none = ibis.literal(1, "int64"), ibis.literal(0, "int64")
    kept = rows.holds(one.where) if one.where else ibis.literal(True)
    if not one.value:
        return [(ibis.ifelse(kept, yes, none), 1.0)]
    value = rows.value(one.value)
    x = ibis.ifelse(value.ibis, 1.0, 0.0) if value.type == "BOOLEAN" else value.real
    known = kept & ~is_null(value.ibis) & ~ibis.coalesce(x.isnan(), ibis.literal(False))
    if one.kind in ("known", "missing"):
        counted = known if one.kind == "known" else kept & ~known
        return [(ibis.ifelse(ibis.coalesce(counted, ibis.literal(False)), yes, none), 1.0)]
    known = ibis.coalesce(known, ibis.literal(False))
    x = ibis.ifelse(known, x, ibis.literal(0.0))
    x = (x - one.centre) * (x - one.centre) if one.square else x - one.centre
    scaled = ibis.greatest(ibis.least(x * 2.0**one.scale, ibis.literal(2.0**WHOLE)), ibis.literal(-(2.0**WHOLE)))
    scaled = ibis.ifelse(known, scaled, ibis.literal(0.0))
    # Multiples of powers of 2, which a float64 is divided into without rounding.
    high = (scaled / 2.0**HIGH).floor()
    rest = scaled - high * 2.0**HIGH
    middle = rest.floor()
    low = ((rest - middle) * 2.0**LOW).floor()
    unit = 2.0**-one.scale
    return [(high.cast("int64"), unit * 2.0**HIGH), (middle.cast("int64"), unit), (low.cast("int64"), unit * 2.0**-LOW)]


def _whole_sum(one: Sum, parts: _SUM) -> Expression:
    """The sum that parts make, as a float64; of a count of units in a group 1 where there is a row."""
    import ibis

    total = reduce(lambda a, b: a + b, (part * weight for part, weight in parts))
    return ibis.ifelse(total > 0, ibis.literal(1.0), ibis.literal(0.0)) if one.distinct else total
