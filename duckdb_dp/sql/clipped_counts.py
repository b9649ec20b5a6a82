"""The SQL of sums whose contributions are bounded by norm: those of each owner to each group, and their norms."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

from duckdb_dp.counting.encode import code_type, quote
from duckdb_dp.counting.sums import MOST
from duckdb_dp.grouped_sums import BITS, FRACTION, PER_OCTAVE, WHOLE, GroupedSums, Lookup, Source, Sum
from duckdb_dp.plan.clipping import Clip
from duckdb_dp.request import Request
from duckdb_dp.sql import found_cells, render
from duckdb_dp.sql.row_source import holds, owner, placed, position, told_apart

SHRINK = 1 - 2.0**-40
"""Contributions are scaled to this much less than the bound, which is more than doubles get wrong about a norm."""


TINY = 5e-324
"""The smallest DOUBLE above 0."""


def cell(x: str, clip: Clip, type_: str = "BIGINT") -> str:
    """The number of the first candidate that is not below x; one more than the last where x is beyond all of them."""
    if not clip.chosen:
        return f"CAST(CASE WHEN {x} <= {float(clip.candidates[0])!r} THEN 0 ELSE 1 END AS {type_})"
    found = f"ceil({PER_OCTAVE} * (log2(greatest({x}, 1e-300)) - {clip.lowest}) - 1e-9)"
    return f"CAST(greatest(least({found}, {clip.size}), 0) AS {type_})"


Blocks = dict[tuple[str, ...], str]
"""Names of blocks of what is counted -> the columns that have their numbers."""


@final
class Clipped:
    """What is read of one grouping set whose sums are bounded by norm.

    Everything about an owner is a function of its own rows alone: its contributions are added up exactly, as whole numbers or
    decimals, become doubles then, and their norm is a sum of whole numbers again, in steps of 2^-40 of the largest one's square.

    Args:
        request: whose part it is.
        part: the grouping set; its other sums are left alone.
        place: of it in the request.
        first: the number of its first sum.
        clips: the bounds of its sums.
        pure: whether norms are L1.
        types: of the owner's columns, where they are known.
        found: the columns whose values the statement itself finds.
    """

    def __init__(
        self,
        request: Request,
        part: GroupedSums,
        place: int,
        first: int,
        clips: Sequence[Clip],
        *,
        pure: bool,
        types: Sequence[str] = (),
        found: Sequence[str] = (),
    ) -> None:
        self._request, self._part, self._place, self._first = request, part, place, first
        self._found = [name for name in found if name in part.clique]
        self._clips, self._pure = [self._wide(clip) for clip in clips] if self._found else clips, pure
        self._sums = [(i, one) for i, one in enumerate(part.sums) if one.norm]
        self._unit, self._types = owner(request, part), types
        aliases = [f"_dp_unit{i}" for i in range(len(self._unit))]
        bytes_ = [] if types else render.unit_bytes(aliases)
        self._named = [*(f"coalesce({text}, ''::BLOB) AS _dp_bytes{i}" for i, text in enumerate(bytes_)), *aliases]
        self._owner = ", ".join([*(f"_dp_bytes{i}" for i in range(len(bytes_))), *aliases])
        if types:
            self._unit = [told_apart(column, type_) for column, type_ in zip(self._unit, types, strict=True)]
        self._group = ["_dp_g"] if part.size > 1 or self._found else []
        # In groups, a key has hardly fewer sums than rows.
        self._late = part.source.lookup if types and part.source is not None and not self._group else None
        self._size = found_cells.groups(request, part, self._found)
        self._wheres = list(dict.fromkeys(one.where for _, one in self._sums if one.where))
        self._values = list(dict.fromkeys((one.value, one.norm) for _, one in self._sums if one.value))
        self._added: dict[str, str] = {}

    def ctes(self) -> list[str]:
        """CTEs of the contributions, of the norms and their cells, and of the clipped contributions."""
        n, contributions = self._place, [f"{self._contribution(one)} AS d{i}" for i, one in self._sums]
        contributed = self._contributed(contributions)
        cells = ", ".join(
            ["*", *(f"{cell(f'n{b}', clip, code_type(clip.size + 1))} AS j{b}" for b, clip in enumerate(self._clips))]
        )
        factors = ", ".join(["*", *(text for b, clip in enumerate(self._clips) for text in _factors(b, clip))])
        if not self._group:
            norms = ", ".join(["*", *(f"{self._alone(clip)} AS n{b}" for b, clip in enumerate(self._clips))])
            steps = f"SELECT {factors} FROM (SELECT {cells} FROM (SELECT {norms} FROM ({contributed})))"
            return [f"clipped{n} AS MATERIALIZED (SELECT {self._clipped()} FROM ({steps}))", *self._totals()]
        # Of zeros alone the least number above 0, so that all can be divided by it.
        peaks = [f"greatest(max({self._largest(clip)}), {TINY!r}) AS m{b}" for b, clip in enumerate(self._clips)]
        norms = ", ".join([self._owner, *(f"{self._norm(b, clip)} AS n{b}" for b, clip in enumerate(self._clips))])
        largest = f"SELECT {self._owner}, {', '.join(peaks)} FROM contributed{n} GROUP BY {self._owner}"
        joined = f"contributed{n} JOIN ({largest}) USING ({self._owner})"
        return [
            f"contributed{n} AS MATERIALIZED ({contributed})",
            f"norms{n} AS MATERIALIZED (SELECT {factors} FROM (SELECT {cells} FROM "
            f"(SELECT {norms} FROM {joined} GROUP BY {self._owner})))",
            f"clipped{n} AS MATERIALIZED (SELECT {', '.join([*self._group, self._clipped()])} "
            f"FROM contributed{n} JOIN norms{n} USING ({self._owner}))",
            *self._totals(),
        ]

    def _contributed(self, contributions: Sequence[str]) -> str:
        """SELECT of what each owner adds to each group.

        Rows are added up by the narrow numbers of cells, and the group's one number is worked out of these after, of fewer rows.
        """
        if self._late is not None:
            return f"SELECT {', '.join([self._owner, *contributions])} FROM ({self._each_by_key(self._late)})"
        rows, sizes = self._rows()
        codes = [f"_dp_g{i}" for i in range(len(sizes))]
        group = [f"{position(sizes, codes)} AS {name}" for name in self._group]
        return f"SELECT {', '.join([self._owner, *group, *contributions])} FROM ({self._each(rows, [self._owner, *codes])})"

    def _each(self, rows: str, keys: Sequence[str]) -> str:
        """SELECT of keys and of what their rows add up to, in parts."""
        by, added = ", ".join(keys), ", ".join(f"{text} AS {name}" for text, name in self._added.items())
        return f"SELECT {by}, {added} FROM ({rows}) GROUP BY {by}"

    def _each_by_key(self, late: Lookup) -> str:
        """The same where the rows of each key are added up before they are joined with its owners: there are fewer of them.

        All parts are sums of whole numbers or decimals, and numbers of rows: to add them up in two steps changes no digit.
        """
        keys = [key for key, _ in late.keys]
        owners = [f"o{i}" for i in range(len(self._unit))]
        named = [
            f"{told_apart(name, type_)} AS _dp_unit{i}"
            for i, (name, type_) in enumerate(zip(owners, self._types, strict=True))
        ]
        on = " AND ".join(f"{key} = k{i}" for i, key in enumerate(keys))
        rows, _ = self._rows()
        found = f"SELECT {', '.join([*named, *self._added.values()])} FROM ({self._each(rows, keys)}) JOIN ({late.owners}) ON {on}"
        known = " AND ".join(f"_dp_unit{i} IS NOT NULL" for i in range(len(owners)))
        added = ", ".join(f"sum({name}) AS {name}" for name in self._added.values())
        return f"SELECT {self._owner}, {added} FROM (SELECT * FROM ({found}) WHERE {known}) GROUP BY {self._owner}"

    def _clipped(self) -> str:
        """The cell of each norm, and each contribution in steps of 2^-BITS of that cell's candidate, and of the norm itself."""
        found = []
        for b, clip in enumerate(self._clips):
            found.append(f"j{b}")
            for i in (index - self._first for index in clip.sums):
                found += [f"CAST(trunc(d{i} * f{name}{b}) AS INTEGER) AS {name}{i}" for name in "xu"]
        return ", ".join(found)

    def _totals(self) -> list[str]:
        """CTEs of both totals of each sum for each candidate and group: a bound's sums are added up in one pass.

        Where there is one group, which has a row of each owner, its rows are the owners.
        """
        found, n = [], self._place
        for b, clip in enumerate(self._clips):
            place = f"j{b}::BIGINT * ({self._size}) + {self._group[0]}" if self._group else f"j{b}::BIGINT"
            names = [f"{name}{index - self._first}" for index in clip.sums for name in "xu"]
            sums = [f"CAST(greatest(least(sum({name}), {MOST}), -{MOST}) AS BIGINT) AS {name}" for name in names]
            if clip.chosen and not self._group:
                sums.append("count(*) AS owners")
            texts = ", ".join([f"{place} AS k", *sums])
            found.append(f"totals{n}_{b} AS MATERIALIZED (SELECT {texts} FROM clipped{n} GROUP BY k)")
        return found

    def blocks(self) -> list[tuple[Blocks, str]]:
        """(what columns are, SELECT of k and these): of each sum its totals for each candidate and group, and of each choice its owners."""
        found: list[tuple[Blocks, str]] = []
        n = self._place
        for b, clip in enumerate(self._clips):
            each = ((index, more, name) for index in clip.sums for more, name in (((), "x"), (("unit",), "u")))
            columns: Blocks = {(f"#{index}", *more): f"{name}{index - self._first}" for index, more, name in each}
            owners = (f"#{clip.sums[0]}", "owners")
            if clip.chosen and not self._group:
                columns[owners] = "owners"
            found.append((columns, f"SELECT * FROM totals{n}_{b}"))
            if clip.chosen and self._group:
                found.append(({owners: "n"}, f"SELECT j{b}::BIGINT AS k, count(*) AS n FROM norms{n} GROUP BY k"))
        return found

    def _wide(self, clip: Clip) -> Clip:
        """A bound on a number of groups, with candidates for as many groups as may be found."""
        one = self._part.sums[clip.sums[0] - self._first]
        return replace(clip, size=FRACTION * PER_OCTAVE + 1) if one.distinct and clip.chosen else clip

    def _rows(self) -> tuple[str, list[str]]:
        """SELECT of the owner, the cells, each value and each condition, of the rows that count; and how many cells groups have."""
        aliases, named, part, unit = (
            [f"_dp_unit{i}" for i in range(len(self._unit))],
            self._named,
            self._part,
            self._unit,
        )
        if self._late is not None:
            aliases = named = [key for key, _ in self._late.keys]
            unit = [told_apart(key, type_) for key, type_ in self._late.keys]
            part = replace(part, source=Source(sql=self._late.rows, owner=tuple(aliases)))
        rows = placed(self._request, part, unit, aliases, self._found)
        types = dict(self._part.columns)
        values = [f"{_number(text, norm, types)} AS _dp_x{i}" for i, (text, norm) in enumerate(self._values)]
        wheres = [f"{holds(text)} AS _dp_w{i}" for i, text in enumerate(self._wheres)]
        columns = [*named, *values, *wheres]
        if not self._group:
            where = f" WHERE {' AND '.join(f'{code} IS NOT NULL' for code in rows.codes)}" if rows.codes else ""
            return f"SELECT {', '.join(columns)} FROM {rows.rows}{where}", []
        codes = [f"{code} AS _dp_g{i}" for i, code in enumerate(rows.codes)]
        inside = " AND ".join(f"_dp_g{i} IS NOT NULL" for i in range(len(codes)))
        # Around it, as DuckDB reads no alias of a long list beside it.
        return f"SELECT * FROM (SELECT {', '.join([*codes, *columns])} FROM {rows.rows}) WHERE {inside}", rows.sizes

    def _contribution(self, one: Sum) -> str:
        """What an owner adds to a group, as a DOUBLE, from sums over its rows there, which are noted."""
        kept = f" FILTER (WHERE _dp_w{self._wheres.index(one.where)})" if one.where else ""
        rows = f"count(*){kept}"
        if not one.value:
            n = self._note(rows)
            return f"CASE WHEN {n} > 0 THEN 1.0::DOUBLE ELSE 0.0 END" if one.distinct else f"{n}::DOUBLE"
        x = f"_dp_x{self._values.index((one.value, one.norm))}"
        known = f"count({x}){kept}"
        if one.kind == "known":
            return f"{self._note(known)}::DOUBLE"
        if one.kind == "missing":
            return f"({self._note(rows)} - {self._note(known)})::DOUBLE"
        if one.norm != "DOUBLE" and not one.square:
            total = f"coalesce({self._note(f'sum({x}){kept}')}, 0)::DOUBLE"
        else:
            distance = f"({x}::DOUBLE - {one.centre!r}::DOUBLE)" if one.square else x
            scaled = f"{distance} * {distance}" if one.square else distance
            held = f"greatest(least({scaled} * {math.ldexp(1.0, one.scale)!r}, {2.0**WHOLE!r}), {-(2.0**WHOLE)!r})"
            scaled = f"CASE WHEN {x} IS NOT NULL THEN {held} END"  # as least and greatest leave NULLs out
            whole = f"sum(CAST(round({scaled}) AS BIGINT)){kept}"
            rest = f"sum(CAST(round(({scaled} - round({scaled})) * {2.0**FRACTION!r}) AS BIGINT)){kept}"
            parts = [f"coalesce({self._note(text)}, 0)::DOUBLE" for text in (whole, rest)]
            total = f"({parts[0]} + {parts[1]} * {2.0**-FRACTION!r}) * {math.ldexp(1.0, -one.scale)!r}"
        if one.square or not one.centre:
            return total
        return f"({total} - {one.centre!r}::DOUBLE * {self._note(known)})"

    def _note(self, text: str) -> str:
        return self._added.setdefault(text, f"_dp_a{len(self._added)}")

    def _parts(self, clip: Clip) -> list[str]:
        return [f"abs(d{index - self._first})" for index in clip.sums]

    def _largest(self, clip: Clip) -> str:
        parts = self._parts(clip)
        return parts[0] if len(parts) == 1 else f"greatest({', '.join(parts)})"

    def _norm(self, b: int, clip: Clip) -> str:
        """The norm of an owner's contributions to all groups, or a little more."""
        power, steps = 1 if self._pure else 2, 2.0**FRACTION
        shares = " + ".join(
            f"ceil({' * '.join([f'({part} / m{b})'] * power)} * {steps!r})" for part in self._parts(clip)
        )
        total = f"sum(CAST({shares} AS BIGINT))::DOUBLE * {1 / steps!r}"
        return f"any_value(m{b}) * {total if self._pure else f'sqrt({total})'}"

    def _alone(self, clip: Clip) -> str:
        """The same where there is one group."""
        parts = self._parts(clip)
        if len(parts) == 1:
            return parts[0]
        return " + ".join(parts) if self._pure else f"sqrt({' + '.join(f'{part} * {part}' for part in parts)})"


def _factors(b: int, clip: Clip) -> list[str]:
    """What contributions are multiplied by: for the candidate of the norm's cell, and for the norm itself."""
    tau = f"pow(2.0, {clip.lowest} + j{b} / {PER_OCTAVE}.0)" if clip.declared is None else repr(clip.declared)
    most = f"{2**BITS * SHRINK!r}::DOUBLE"
    norms = (("x", f"greatest(n{b}, {tau})"), ("u", f"n{b}"))
    return [f"CASE WHEN n{b} > 0 THEN {most} / {norm} ELSE 0 END AS f{name}{b}" for name, norm in norms]


def _number(text: str, norm: str, types: Mapping[str, str]) -> str:
    """A number of a row as the type that it is added up as; NULL where it fails or is none."""
    if any(text in (name, quote(name)) and type_ == norm != "DOUBLE" for name, type_ in types.items()):
        return text
    if norm != "DOUBLE":
        return f"TRY(CAST(({text}) AS {norm}))"
    x = f"TRY(CAST(({text}) AS DOUBLE))"
    return f"CASE WHEN NOT isnan({x}) THEN {x} END"
