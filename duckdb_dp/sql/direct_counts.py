"""The SQL of the direct route that reads the table: sums over the rows of each group, and histograms of values."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

from duckdb_dp.answers import direct_plan
from duckdb_dp.counting.encode import Coded, encode, literal, shuffled, union_all
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.counting.sums import CHOICES
from duckdb_dp.domain.domain import canonical
from duckdb_dp.grouped_sums import BITS, OCTAVES, PER_OCTAVE, SMALLEST, GroupedSums, Sum, candidates, sum_name
from duckdb_dp.plan.clipping import Clip, by_norm
from duckdb_dp.request import Request
from duckdb_dp.sql import found_cells, found_groups, render
from duckdb_dp.sql.clipped_counts import Blocks, Clipped, cell, choosing, clamped_sum
from duckdb_dp.sql.counted_once import counted_once
from duckdb_dp.sql.found_groups import Found
from duckdb_dp.sql.row_source import Placed, holds, owner, owner_types, placed, position
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.signing import signed


def run(
    session: Session, request: Request, unit_key: str, *, name: str | None, fresh: bool, found: Found | None = None
) -> str:
    """CTEs that end in ``handle(handle)``: sums, charges and measures when the statement runs, and not before.

    Args:
        session: which sees the types of the unit's columns.
        request, unit_key, name, fresh: as ever.
        found: the columns whose values are to be found first, of which the request has placeholders.
    """
    if request.schema == SCHEMA:
        return render.run(request, unit_key, name=name, fresh=fresh)
    fresh_key = "current_query_id()::VARCHAR" if fresh else "NULL::VARCHAR"
    if found is not None:
        found_groups.affordable(session, found.requests, request)
    ctes: list[str] = [] if found is None else found_cells.ctes(found, request, unit_key)
    readings = list(_readings(session, request, unit_key, () if found is None else found.names))
    asked = f"{signed(request)}, {literal(name)}::VARCHAR, {fresh_key}, list(block), list(cells)"
    call = f"_dp_run({asked})" if found is None else f"_dp_run_filled({asked}, (SELECT found FROM found))"
    blocks, owners = list[str](), list[str]()
    clipped = [reading for reading in readings if isinstance(reading, Clipped)]
    at_once = all(one.at_once for one in clipped)
    for one in clipped:
        ctes += one.norms()
        read = [_block(columns, text) for columns, text in (one.cells() if at_once else one.owners())]
        blocks, owners = (blocks + read, owners) if at_once else (blocks, owners + read)
    if owners:
        ctes += choosing(call, owners)
        blocks.append(f"SELECT {literal(canonical(list(CHOICES)))} AS block, cells FROM choices")
    for reading in readings:
        if not (at_once and isinstance(reading, Clipped)):
            ctes += reading.ctes()
            blocks += [_block(columns, text) for columns, text in reading.blocks()]
    if request.questions:
        beside, planned = request.beside, direct_plan(request).planned
        assert planned is not None
        counting = render.counting(beside, unit_key, (*beside.cliques, *planned.beyond))
        ctes.append(f"planned AS MATERIALIZED (WITH {counting} SELECT block, cells FROM blocks)")
        blocks.append("SELECT block, cells FROM planned")
    counted = f"{', '.join(ctes)}, blocks AS ({union_all(blocks)})"
    return f"{counted}, {render.checked('handle', f'SELECT {call} AS text FROM blocks')}"


def _block(columns: Blocks, rows: str) -> str:
    """SELECT block, cells: of each block its name, and its cells k with their numbers."""
    names = [literal(canonical(list(name))) for name in columns]
    cells = [f"list(struct_pack(k := k, n := {column}))" for column in columns.values()]
    if len(names) > 1 and len(set(cells)) == 1:
        return f"SELECT unnest(list_value({', '.join(names)})) AS block, cells FROM (SELECT {cells[0]} AS cells FROM ({rows}))"
    if len(names) > 1:
        names, cells = ([f"unnest(list_value({', '.join(texts)}))"] for texts in (names, cells))
    return f"SELECT {names[0]} AS block, {cells[0]} AS cells FROM ({rows})"


def _readings(
    session: Session, request: Request, unit_key: str, found: Sequence[str]
) -> Iterator["Reading | Clipped | Ranked"]:
    """What is read of each grouping set: sums that are bounded by norm, and others."""
    clips, first = direct_plan(request).clips, 0
    places = [clip.name for clip in by_norm(clips)]
    for place, part in enumerate(request.direct):
        own = [clip for clip in clips if first <= clip.sums[0] < first + len(part.sums)]
        norms = [clip for clip in own if not clip.rows]
        if norms:
            types, pure = owner_types(session, request, part), request.accounting.pure
            yield Clipped(request, part, place, first, norms, pure=pure, types=types, found=found, places=places)
        numbers = [i for i, one in enumerate(part.sums) if not one.norm]
        if numbers:
            rest = replace(part, sums=tuple(part.sums[i] for i in numbers))
            names = [sum_name(first + i) for i in numbers]
            rows = [clip for clip in own if clip.rows]
            yield (
                Ranked(request, rest, unit_key, place, names, found, clip=rows[0])
                if rows
                else Reading(request, rest, unit_key, place, names, found)
            )
        first += len(part.sums)


class Reading:
    """What is read of one grouping set.

    Of each unit at most ``max_rows`` rows count, of those that add anything. Which ones depends on that unit's rows alone:
    they are ordered by a keyed hash of what they add, and where hashes tie by that itself.
    """

    def __init__(
        self,
        request: Request,
        part: GroupedSums,
        unit_key: str,
        place: int,
        names: Sequence[tuple[str, ...]],
        found: Sequence[str] = (),
    ) -> None:
        self._request, self._part, self._key, self._found = request, part, unit_key, found
        self._number, self._names = place, names
        self._attributes = [attribute for attribute in request.attributes if attribute.name in part.clique]
        self._cells: list[str] = []
        self._placed: Placed | None = None
        self._added = [f"_dp_v{i}" for i in range(len(part.sums))]
        self._units = ""
        self.histograms = list(dict.fromkeys(one.histogram for one in part.sums if one.histogram is not None))

    def ctes(self) -> list[str]:
        """CTEs of the rows that count, and of what they add to each group."""
        n, kept = self._number, "MATERIALIZED" if self.histograms else "NOT MATERIALIZED"
        return [f"rows{n} AS {kept} ({self.rows()})", f"sums{n} AS MATERIALIZED ({self.sums(f'rows{n}')})"]

    def blocks(self) -> list[tuple[Blocks, str]]:
        """(what columns are, SELECT of k and these) of all that is read."""
        found: list[tuple[Blocks, str]] = []
        for i, (one, name) in enumerate(zip(self._part.sums, self._names, strict=True)):
            if one.cells is None:
                found.append(({name: "n"}, f"SELECT k, n{i} AS n FROM sums{self._number}"))
            elif self.counted(i):
                found += [({(*name, *more): "n"}, text) for more, text in self.histogram(i, f"rows{self._number}")]
        return found

    def counted(self, index: int) -> bool:
        """Whether a sum is the first that needs its histogram, or one with bounds to be chosen."""
        one, before = self._part.sums[index], self._part.sums[:index]
        return one.chosen or all(one.histogram != other.histogram for other in before)

    def rows(self) -> str:
        """SELECT _dp_k<attribute>, _dp_v<sum>, _dp_x<sum>: of the rows that count."""
        request, part, added = self._request, self._part, self._added
        unit = owner(request, part)
        aliases = [f"_dp_unit{i}" for i in range(len(unit))]
        rows_in = self._placed = placed(request, part, unit, aliases, self._found)
        codes = rows_in.codes
        cells = self._cells = [f"_dp_k{i}" for i in range(len(codes))]
        valued = self._valued(_numbered(rows_in.rows, part))
        named = [f"{code} AS {name}" for code, name in zip(codes, cells, strict=True)]
        values = [f"{self._value(i, valued.codes)} AS {name}" for i, name in enumerate(added)]
        steps = [f"{text} AS _dp_s{i}" for i, one in enumerate(part.sums) if (text := self._steps(one))]
        places = {self.histograms.index(one.histogram) for one in part.sums if one.chosen and one.histogram}
        steps += [f"{valued.codes[place]} AS _dp_c{place}" for place in sorted(places)]
        anything = " OR ".join(f"{name} IS NOT NULL" for name in added)
        inside = " AND ".join([*(f"{cell} IS NOT NULL" for cell in cells), f"({anything})"])
        rows = (
            f"SELECT * FROM (SELECT {', '.join([*aliases, *named, *values, *steps])} FROM {valued.rows}) WHERE {inside}"
        )
        if unit:
            more = [step.rsplit(" AS ", 1)[1] for step in steps]
            ordered = [*cells, *added, *more]
            order = f"{shuffled([literal(self._key), *aliases, *ordered])}, {', '.join(ordered)}"
            units, self._units = (
                ", ".join(keys) for keys in (render.unit_keys(aliases), [*render.unit_bytes(aliases), *aliases])
            )
            rows = self._bounded(rows, f"row_number() OVER (PARTITION BY {units} ORDER BY {order})")
            rows = counted_once(rows, part, self._key, units, cells, added, [*aliases, *more])
        return rows

    def _bounded(self, rows: str, rank: str) -> str:
        """The rows that count, where each has a rank among its unit's."""
        return f"{rows} QUALIFY {rank} <= {self._request.rows_of(self._part)}"

    def sums(self, rows: str) -> str:
        """SELECT k, n<sum>: the sums, in steps of their grids, of each group that has rows."""
        plain = [(i, name) for i, name in enumerate(self._added) if self._part.sums[i].cells is None]
        sums = [f"{_total(self._part.sums[i], name)} AS n{i}" for i, name in plain]
        cells = self._cells
        if not cells:
            return f"SELECT {', '.join(['0::BIGINT AS k', *sums])} FROM {rows}"
        groups = f"SELECT {', '.join([*cells, *sums])} FROM {rows} GROUP BY {', '.join(cells)}"
        return f"SELECT {', '.join([f'{self._place} AS k', *(f'n{i}' for i, _ in plain)])} FROM ({groups})"

    def histogram(self, index: int, rows: str) -> list[tuple[tuple[str, ...], str]]:
        """(what follows the name of the sum, SELECT k, n): how many rows each cell of each group has, and their sum."""
        one, name = self._part.sums[index], self._added[index]
        assert one.cells is not None
        grouped = ", ".join([*self._cells, name])
        place = f"({self._place}) * {one.cells.size} + {name}"

        def cells(n: str) -> str:
            return f"SELECT {place} AS k, {n} AS n FROM {rows} WHERE {name} IS NOT NULL GROUP BY {grouped}"

        found = cells("count(*)")
        if not one.chosen:
            return [((), found)]
        found_sums = cells(clamped_sum(f"_dp_s{index}"))
        assert one.histogram is not None
        cell = f"_dp_c{self.histograms.index(one.histogram)}"
        if not self._units:
            ends = f"SELECT {cell}::BIGINT AS k FROM {rows}"
        else:
            # Of each unit its largest value where that is above 0, and its smallest where that is below.
            middle = OCTAVES * PER_OCTAVE
            both = f"[CASE WHEN max({cell}) > {middle} THEN max({cell}) END, CASE WHEN min({cell}) < {middle} THEN min({cell}) END]"
            ends = f"SELECT unnest({both})::BIGINT AS k FROM {rows} WHERE {cell} IS NOT NULL GROUP BY {self._units}"
        units = f"SELECT k, count(*) AS n FROM ({ends}) WHERE k IS NOT NULL GROUP BY k"
        return [((), found), (("sum",), found_sums), (("units",), units)]

    @property
    def _place(self) -> str:
        """A group's number."""
        if not self._cells:
            return "0::BIGINT"
        assert self._placed is not None
        return position(self._placed.sizes, self._cells)

    @property
    def _groups(self) -> str:
        """How many groups there are."""
        return found_cells.groups(self._request, self._part, self._found)

    def _valued(self, rows: str) -> Coded:
        """The rows with each value that has cells, and its cell: clamped where none are beyond these, as that changes no order."""
        columns, attributes = [], []
        for i, one in enumerate(self.histograms):
            assert one.cells is not None
            cells, text = one.cells, f"TRY(CAST(({one.value}) AS {one.cells.type}))"
            if cells.kind != "values":
                isnan = f" AND NOT isnan({text})" if cells.type in ("FLOAT", "DOUBLE") else ""
                held = text
                for function, point in (("least", cells.points[-1]), ("greatest", cells.points[0])):
                    if not cells.line and cells.dtype.fits(point, edge=False):  # otherwise no value lies beyond
                        held = f"{function}({held}, {cells.dtype.array([point])}[1])"
                text = f"CASE WHEN {text} IS NOT NULL{isnan} THEN {held} END"
            columns.append(f"{text} AS _dp_q{i}")
            if cells != candidates():
                attributes.append(replace(cells, name=f"_dp_q{i}"))
        valued = encode(
            attributes,
            f"(SELECT *, {', '.join(columns)} FROM {rows})" if columns else rows,
            first=len(self._attributes),
        )
        codes = iter(valued.codes)
        found = [
            _cell(f"_dp_q{i}") if one.cells == candidates() else next(codes) for i, one in enumerate(self.histograms)
        ]
        return Coded(valued.rows, found)

    def _value(self, index: int, codes: Sequence[str]) -> str:
        """What a row adds to a sum, or its cell."""
        one = self._part.sums[index]
        if one.histogram is None:
            return _added(one, _numbers(self._part))
        place = self.histograms.index(one.histogram)
        known = " AND ".join([*([holds(one.where)] if one.where else []), f"_dp_q{place} IS NOT NULL"])
        return f"CASE WHEN {known} THEN {codes[place]} END"

    def _steps(self, one: Sum) -> str:
        """The value in steps of its cell's grid, of a sum whose bounds are chosen."""
        if not one.chosen:
            return ""
        assert one.histogram is not None
        x, power = f"_dp_q{self.histograms.index(one.histogram)}", 2 if one.square else 1
        # Of cell j the larger edge is 2^(SMALLEST + (j + 1) / PER_OCTAVE), and the grid as in ``ExactSums.within``.
        edge = f"({SMALLEST} + ({_octaves(x)} + 1) / {PER_OCTAVE}.0)"
        held = f"greatest(least({x}, pow(2.0, {edge})), -pow(2.0, {edge}))"
        steps = f"round({' * '.join([held] * power)} * pow(2.0, {BITS} - {power} * (floor({edge}) + 1)))"
        return f"CASE WHEN {x} IS NOT NULL THEN CAST({steps} AS BIGINT) END"


@final
class Ranked(Reading):
    """The same where the number of rows of a unit that count is chosen: all rows are read, each with the first candidate for it."""

    def __init__(
        self,
        request: Request,
        part: GroupedSums,
        unit_key: str,
        place: int,
        names: Sequence[tuple[str, ...]],
        found: Sequence[str] = (),
        *,
        clip: Clip,
    ) -> None:
        super().__init__(request, part, unit_key, place, names, found)
        self._clip = clip

    def _bounded(self, rows: str, rank: str) -> str:
        return f"SELECT *, {cell('_dp_rank', self._clip)} AS _dp_j FROM (SELECT *, {rank} AS _dp_rank FROM ({rows}))"

    def ctes(self) -> list[str]:
        return [f"rows{self._number} AS MATERIALIZED ({self.rows()})"]

    def blocks(self) -> list[tuple[Blocks, str]]:
        rows, size = f"rows{self._number}", self._groups
        found: list[tuple[Blocks, str]] = []
        for i, (one, name) in enumerate(zip(self._part.sums, self._names, strict=True)):
            value = self._added[i]
            if one.cells is None:
                first = f"SELECT {self._place} AS g, {value}, min(_dp_j) AS j FROM {rows} WHERE {value} IS NOT NULL GROUP BY g, {value}"
                found.append(({name: "n"}, f"SELECT j * ({size}) + g AS k, count(*) AS n FROM ({first}) GROUP BY k"))
            elif self.counted(i):
                place = f"(_dp_j * ({size}) + {self._place}) * {one.cells.size} + {value}"
                found.append(
                    (
                        {name: "n"},
                        f"SELECT {place} AS k, count(*) AS n FROM {rows} WHERE {value} IS NOT NULL GROUP BY k",
                    )
                )
        owned = f"SELECT count(*) AS n FROM {rows} GROUP BY {self._units}"
        owners = f"SELECT {cell('n', self._clip)} AS k, count(*) AS n FROM ({owned}) GROUP BY k"
        return [*found, ({(*self._names[0], "owners"): "n"}, owners)]


def _total(one: Sum, name: str) -> str:
    """The sum of what rows add; or how many values they have, of which k rows of a unit add k at most."""
    if one.kind == "values":
        return f"count(DISTINCT {name})"
    return clamped_sum(name)


def _octaves(x: str) -> str:
    """The number j of the cell of |x| among the candidates of bounds, -1 for the one around 0."""
    last = OCTAVES * PER_OCTAVE - 1
    found = f"CAST(floor((log2(greatest(abs({x}), 1e-300)) - {SMALLEST}) * {PER_OCTAVE}) AS INTEGER)"
    return f"greatest(least({found}, {last}), -1)"


def _cell(x: str) -> str:
    """The number of the cell of x."""
    middle = OCTAVES * PER_OCTAVE
    return f"CAST({middle} + CASE WHEN {x} < 0 THEN -1 ELSE 1 END * ({_octaves(x)} + 1) AS UINTEGER)"


def _numbered(rows: str, part: GroupedSums) -> str:
    """The coded rows with the numbers that are summed, each worked out once: NULL where it fails or is not a number."""
    texts = _numbers(part)
    if not texts:
        return rows
    numbers = [f"TRY(CAST(({text}) AS DOUBLE)) AS _dp_x{i}" for i, text in enumerate(texts)]
    return f"(SELECT *, {', '.join(numbers)} FROM {rows})"


def _numbers(part: GroupedSums) -> list[str]:
    return list(
        dict.fromkeys(one.value for one in part.sums if one.value and one.cells is None and one.kind != "values")
    )


def _added(one: Sum, numbers: Sequence[str]) -> str:
    """What a row adds, a whole number of steps of the grid, or the value that is counted; NULL where it adds nothing."""
    kept = [holds(one.where)] if one.where else []
    if not one.value:
        return f"CASE WHEN {kept[0]} THEN 1 END" if kept else "1"
    if one.kind == "values":
        return f"CASE WHEN {kept[0]} THEN TRY({one.value}) END" if kept else f"TRY({one.value})"
    x = f"_dp_x{numbers.index(one.value)}"
    if one.kind == "missing":
        return f"CASE WHEN {' AND '.join([*kept, f'coalesce(isnan({x}), true)'])} THEN 1 END"
    known = " AND ".join([*kept, f"{x} IS NOT NULL", f"NOT isnan({x})"])
    if one.kind == "known":
        return f"CASE WHEN {known} THEN 1 END"
    distance = f"(greatest(least({x}, {one.high!r}::DOUBLE), {one.low!r}::DOUBLE) - {one.centre!r}::DOUBLE)"
    steps = f"round({distance}{f' * {distance}' if one.square else ''} * {1 / one.grid!r}::DOUBLE)"
    return f"CASE WHEN {known} THEN CAST(greatest(least({steps}, {one.steps}), -{one.steps}) AS BIGINT) END"
