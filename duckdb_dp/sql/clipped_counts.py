"""The SQL of sums whose contributions are bounded by norm: those of each owner to each group, and their norms."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

from duckdb_dp.counting.encode import code_type, literal, quote, union_all
from duckdb_dp.counting.sums import CHOOSE, MOST, SIGNS
from duckdb_dp.domain.domain import canonical
from duckdb_dp.grouped_sums import BITS, FRACTION, PER_OCTAVE, WHOLE, GroupedSums, Lookup, Source, Sum
from duckdb_dp.plan.clipping import NONE, Clip
from duckdb_dp.request import Request
from duckdb_dp.sql import exact_types, render
from duckdb_dp.sql.row_source import holds, owner, placed, position, told_apart

SHRINK = 1 - 2.0**-40
"""Contributions are scaled to this much less than the bound, which is more than doubles get wrong about a norm."""

FINE, FINER, FOUND = 3, 24, 40
"""Octaves below the smallest bound of numbers, and below what other steps of norms fill or a declared bound, in which these are added up;
and binary digits of how many groups an owner has at most, where they are found."""


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
    decimals, become doubles then, and their norm is the root of a sum of whole numbers again, in public steps: so it depends on no order.

    First come the norms, and how many owners have theirs in which cell. When the bounds tau are known, contributions d are cut, rounded
    towards 0 and added up, in steps of tau / 2^BITS: of an owner 2^BITS w d / tau, with its weight w, see ``Clip``.

    Where there is one group, and owners have no weights in several sums, one reading says all: of each cell the sum of contributions, in
    steps of the cell's own bound, and how many more of them are above 0 than below. See ``ExactSums.cut``.

    Args:
        request: whose part it is.
        part: the grouping set; its other sums are left alone.
        place: of it in the request.
        first: the number of its first sum.
        clips: the bounds of its sums.
        pure: whether norms are L1.
        types: of the owner's columns, where they are known.
        found: the columns whose values the statement itself finds.
        places: the names of all bounds on norms, in the order of their choices.
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
        places: Sequence[str] = (),
    ) -> None:
        self._request, self._part, self._place, self._first = request, part, place, first
        self._places = places
        self._found, finds = found, any(name in part.clique for name in found)
        self._clips, self._pure = [self._wide(clip) for clip in clips] if finds else clips, pure
        self._finds = finds
        self._sums = [(i, one) for i, one in enumerate(part.sums) if one.norm]
        self._unit, self._types = owner(request, part), types
        aliases = [f"_dp_unit{i}" for i in range(len(self._unit))]
        bytes_ = [] if types else render.unit_bytes(aliases)
        self._named = [*(f"coalesce({text}, ''::BLOB) AS _dp_bytes{i}" for i, text in enumerate(bytes_)), *aliases]
        self._owner = ", ".join([*(f"_dp_bytes{i}" for i in range(len(bytes_))), *aliases])
        if types:
            self._unit = [told_apart(column, type_) for column, type_ in zip(self._unit, types, strict=True)]
        self._group = ["_dp_g"] if part.size > 1 or finds else []
        # In groups, a key has hardly fewer sums than rows.
        self._late = part.source.lookup if types and part.source is not None and not self._group else None
        self._wheres = list(dict.fromkeys(one.where for _, one in self._sums if one.where))
        self._values = list(dict.fromkeys((one.value, one.norm) for _, one in self._sums if one.value))
        self._added: dict[str, str] = {}
        self._d: dict[int, str] = {}
        self._n: dict[int, str] = {}
        self._j: dict[int, str] = {}

    @property
    def at_once(self) -> bool:
        """Whether one reading says all, before any bound is chosen."""
        return not self._group and all(
            clip.chosen and len(clip.sums) == 1 and not clip.together for clip in self._clips
        )

    def norms(self) -> list[str]:
        """CTEs of the contributions, and of the norms and their cells."""
        n, clips = self._place, self._clips
        self._d, contributions = _once({i: self._contribution(one) for i, one in self._sums}, "d")
        contributed = self._contributed(contributions)
        if not self._group:
            self._n, norms = _once({b: self._alone(clip) for b, clip in enumerate(clips)}, "n")
            cells = self._in_cells()
            return [
                f"norms{n} AS MATERIALIZED (SELECT {', '.join(['*', *cells])} FROM "
                f"(SELECT {', '.join(['*', *norms])} FROM ({contributed})))"
            ]
        m, peaks = _once({b: f"max({self._largest(clip)})" for b, clip in enumerate(clips)}, "m")
        bands = [(b, power) for b, clip in enumerate(clips) for power in self._steps(clip)]
        s, shares = _once({i: self._shares(clips[b], power) for i, (b, power) in enumerate(bands)}, "s")
        found = {b: {power: s[i] for i, (of, power) in enumerate(bands) if of == b} for b in range(len(clips))}
        self._n, norms = _once({b: self._norm(found[b], m[b], clip) for b, clip in enumerate(clips)}, "n")
        cells = self._in_cells()
        added = ", ".join([self._owner, "count(*) AS k", *peaks, *shares])
        return [
            f"contributed{n} AS MATERIALIZED ({contributed})",
            f"norms{n} AS MATERIALIZED (SELECT {', '.join(['*', *cells])} FROM (SELECT {', '.join([self._owner, *norms])} FROM "
            f"(SELECT {added} FROM contributed{n} GROUP BY {self._owner})))",
        ]

    def _in_cells(self) -> list[str]:
        """Columns of the cells that norms are in."""
        chosen = {b: clip for b, clip in enumerate(self._clips) if clip.chosen}
        self._j, cells = _once({b: cell(self._n[b], c, code_type(c.size + 1)) for b, c in chosen.items()}, "j")
        return cells

    def owners(self) -> list[tuple[Blocks, str]]:
        """(what columns are, SELECT of k and these): of each choice how many owners have their norm in each cell."""
        found: dict[str, Blocks] = {}
        for b, column in self._j.items():
            found.setdefault(column, {})[(f"#{self._clips[b].sums[0]}", "owners")] = "n"
        rows = "SELECT {column}::BIGINT AS k, count(*) AS n FROM norms{place} GROUP BY k"
        return [(names, rows.format(column=column, place=self._place)) for column, names in found.items()]

    def ctes(self) -> list[str]:
        """A CTE of the sums of what is cut, by group."""
        n, clips = self._place, self._clips
        of_sums = {index - self._first: b for b, clip in enumerate(clips) for index in clip.sums}
        taus = [f"{text} AS {name}{b}" for b, clip in enumerate(clips) for name, text in self._bound(clip).items()]
        bounds = f"(SELECT {', '.join(taus)}{' FROM chosen' if any(clip.chosen for clip in clips) else ''})"
        factors = ", ".join(f"{self._factor(b)} AS f{b}" for b in range(len(clips)))
        cuts = self._cuts(f"norms{n}, {bounds}")
        cut = [f"CAST(trunc({self._d[i]} * f{b}) AS INTEGER) AS x{i}" for i, b in of_sums.items()]
        sums = [f"{clamped_sum(f'x{i}')} AS x{i}" for i in of_sums]
        if not self._group:
            rows = f"SELECT {', '.join(cut)} FROM (SELECT *, {factors} FROM {cuts})"
            return [f"totals{n} AS MATERIALIZED (SELECT {', '.join(['0::BIGINT AS k', *sums])} FROM ({rows}))"]
        owners = f"SELECT {self._owner}, {factors} FROM {cuts}"
        rows = f"SELECT {', '.join([*self._group, *cut])} FROM contributed{n} JOIN ({owners}) USING ({self._owner})"
        group = f"{self._group[0]}::BIGINT AS k"
        return [f"totals{n} AS MATERIALIZED (SELECT {', '.join([group, *sums])} FROM ({rows}) GROUP BY k)"]

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

    def cells(self) -> list[tuple[Blocks, str]]:
        """(what columns are, SELECT of k and these), where all is read at once: how many owners are in each cell, and what they add."""
        found: list[tuple[Blocks, str]] = []
        for b, clip in enumerate(self._clips):
            d, n, j = self._d[clip.sums[0] - self._first], self._n[b], self._j[b]
            tau, steps = f"pow(2.0, {clip.lowest} + {j} / {PER_OCTAVE}.0)", f"{2**BITS * SHRINK!r}::DOUBLE"
            step = f"CASE WHEN {n} > 0 THEN CAST(trunc({d} * ({steps} / greatest({tau}, {n}))) AS INTEGER) ELSE 0 END"
            columns = f"{j}::BIGINT AS k, count(*) AS n, {clamped_sum(step)} AS x, {clamped_sum(f'sign({d})')} AS g"
            name = f"#{clip.sums[0]}"
            blocks: Blocks = {(name, "owners"): "n", (name,): "x", (name, *SIGNS): "g"}
            found.append((blocks, f"SELECT {columns} FROM norms{self._place} GROUP BY k"))
        return found

    def blocks(self) -> list[tuple[Blocks, str]]:
        """(what columns are, SELECT of k and these): each sum by group."""
        names: Blocks = {(f"#{index}",): f"x{index - self._first}" for clip in self._clips for index in clip.sums}
        return [(names, f"SELECT * FROM totals{self._place}")]

    def _bound(self, clip: Clip) -> dict[str, str]:
        """SQL of a bound, and of whether there is one."""
        if not clip.chosen:
            return {"t": f"{float(clip.candidates[0])!r}::DOUBLE", "w": "true"}
        choice = f"chosen[{3 * self._places.index(clip.name) + 1}]"
        return {
            "t": f"pow(2.0, {clip.lowest} + {choice} / {PER_OCTAVE}.0)",
            "w": f"{choice} >= {NONE * PER_OCTAVE if clip.numbers else 0}",
        }

    def _cuts(self, rows: str) -> str:
        """The owners with the bounds; of those that weigh an owner together, what their own sums are multiplied by (r), and others (q)."""
        parts = [f"{self._cut_to(b)} AS r{b}" for b in sorted(self._shared)]
        if not parts:
            return rows
        both = [f"CASE WHEN w{b} THEN r{b} ELSE 1 END AS q{b}" for b in sorted(self._shared)]
        return f"(SELECT *, {', '.join(both)} FROM (SELECT *, {', '.join(parts)} FROM {rows}))"

    @property
    def _shared(self) -> set[int]:
        """The numbers of these bounds."""
        places = {clip.name: b for b, clip in enumerate(self._clips)}
        pairs = [(b, places[name]) for b, clip in enumerate(self._clips) for name in clip.together if name in places]
        return {b for pair in pairs for b in pair}

    def _cut_to(self, b: int) -> str:
        """What contributions are multiplied by, which are cut to a bound."""
        return f"CASE WHEN {self._n[b]} > 0 THEN t{b} / {self._n[b]} ELSE 1 END"

    def _factor(self, b: int) -> str:
        """What contributions are multiplied by: an owner's weight, in steps. What has no bound weighs nothing else."""
        others = [f"q{other}" for other, clip in enumerate(self._clips) if clip.name in self._clips[b].together]
        weights = [f"r{b}" if b in self._shared else self._cut_to(b), *others]
        return f"{2**BITS * SHRINK!r}::DOUBLE / t{b} * least(1, {', '.join(weights)})"

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
        # One condition on all of them: DuckDB works out one on a single column again in the scan. And around them, as it reads no alias
        # of a long list beside it.
        inside = position(rows.sizes, [f"_dp_g{i}" for i in range(len(codes))])
        return (
            f"SELECT * FROM (SELECT {', '.join([*codes, *columns])} FROM {rows.rows}) WHERE {inside} IS NOT NULL",
            rows.sizes,
        )

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
        return [f"abs({self._d[index - self._first]})" for index in clip.sums]

    def _largest(self, clip: Clip) -> str:
        parts = self._parts(clip)
        return parts[0] if len(parts) == 1 else f"greatest({', '.join(parts)})"

    def _digits(self, clip: Clip) -> int:
        """Binary digits of what an owner adds to one group, in steps, of which the sum of all groups is no more than a HUGEINT holds."""
        groups = FOUND if self._finds else (self._part.size * len(clip.sums)).bit_length()
        return (126 - groups) // (1 if self._pure else 2)

    def _steps(self, clip: Clip) -> list[int]:
        """In which steps norms are added up, as powers of 2: the first ones that no part of a norm fills.

        Of narrow types there is one, as hardly an owner fills it; of others as many as reach over all candidates.
        """
        one = self._part.sums[clip.sums[0] - self._first]
        first = clip.lowest + (NONE - FINE) * clip.numbers if clip.chosen else math.frexp(clip.candidates[0])[1] - FINER
        narrow = one.counts or (not one.square and exact_types.narrow(one.norm))
        last = clip.lowest + clip.size // PER_OCTAVE if clip.chosen else first + FRACTION
        digits = self._digits(clip)
        return [first, *([] if narrow else range(first + digits - FINER, last - FINER, digits - FINER))]

    def _shares(self, clip: Clip, power: int) -> str:
        """The sum of an owner's squares in all groups, or of what it adds, in such steps."""
        step, exponent = math.ldexp(1.0, -power), 1 if self._pure else 2
        most = 2.0 ** (self._digits(clip) * exponent)
        parts = [" * ".join([f"({part} * {step!r})"] * exponent) for part in self._parts(clip)]
        return f"sum({' + '.join(f'CAST(least(ceil({part}), {most!r}) AS HUGEINT)' for part in parts)})"

    def _norm(self, bands: Mapping[int, str], m: str, clip: Clip) -> str:
        """The norm of an owner's contributions to all groups, or a little more.

        It is added up in whole steps. Where all are filled, it is at most that of as many groups as the owner has, with the largest each.
        """
        most = 2.0 ** (self._digits(clip) * (1 if self._pure else 2))
        root, times = ("", f"k * {len(clip.sums)}") if self._pure else ("sqrt", f"sqrt(k * {len(clip.sums)})")
        whens = [
            f"WHEN {s} < {most!r} THEN {root}({s}::DOUBLE) * {math.ldexp(1.0, power)!r}::DOUBLE"
            for power, s in bands.items()
        ]
        return f"CASE {' '.join(whens)} ELSE {m} * {times} END"

    def _alone(self, clip: Clip) -> str:
        """The same where there is one group."""
        parts = self._parts(clip)
        if len(parts) == 1:
            return parts[0]
        return " + ".join(parts) if self._pure else f"sqrt({' + '.join(f'{part} * {part}' for part in parts)})"


def clamped_sum(text: str) -> str:
    """A sum as a BIGINT, which it is clamped to: no number of rows or owners raises an error."""
    return f"CAST(greatest(least(coalesce(sum({text}), 0), {MOST}), -{MOST}) AS BIGINT)"


def _once(texts: Mapping[int, str], name: str) -> tuple[dict[int, str], list[str]]:
    """The column of each expression, and the columns: those that are alike have one, as DuckDB works out each that is written."""
    names: dict[str, str] = {}
    found = {number: names.setdefault(text, f"{name}{number}") for number, text in texts.items()}
    return found, [f"{text} AS {column}" for text, column in names.items()]


def choosing(call: str, owners: Sequence[str]) -> list[str]:
    """CTEs that end in ``chosen(chosen)`` and ``choices(cells)``: the bounds on norms, which are charged and chosen before sums are cut."""
    asking = f"SELECT {literal(canonical(list(CHOOSE)))} AS block, list_value()::STRUCT(k BIGINT, n BIGINT)[] AS cells"
    cells = "list(struct_pack(k := k, n := n))"
    return [
        f"owners AS ({union_all([*owners, asking])})",
        render.checked("choice", f"SELECT {call} AS text FROM owners"),
        "chosen AS MATERIALIZED (SELECT string_split(choice, ',')::BIGINT[] AS chosen FROM choice)",
        f"choices AS (SELECT {cells} AS cells FROM (SELECT unnest(chosen) AS n, unnest(range(len(chosen))) AS k FROM chosen))",
    ]


def _number(text: str, norm: str, types: Mapping[str, str]) -> str:
    """A number of a row as the type that it is added up as; NULL where it fails or is none."""
    if any(text in (name, quote(name)) and type_ == norm != "DOUBLE" for name, type_ in types.items()):
        return text
    if norm != "DOUBLE":
        return f"TRY(CAST(({text}) AS {norm}))"
    x = f"TRY(CAST(({text}) AS DOUBLE))"
    return f"CASE WHEN NOT isnan({x}) THEN {x} END"
