"""The SQL of the direct route: sums over the rows of each group inside the user's statement, and the answers from them."""

import itertools
import math
from collections.abc import Sequence

from duckdb_dp.counting.encode import Coded, array, encode, full_name, inside, literal, quote, union_all
from duckdb_dp.domain.domain import Attribute, canonical
from duckdb_dp.grouped_sums import GroupedSums, Label, Output, Piece, Sum, sum_name
from duckdb_dp.plan.direct import DirectPlan
from duckdb_dp.request import Request
from duckdb_dp.sql import render
from duckdb_dp.sql.signing import signed

LARGEST = 2**62
"""Sums are clamped to this before they become BIGINTs, which changes no sensitivity."""


def run(request: Request, unit_key: str, *, name: str | None, fresh: bool) -> str:
    """CTEs that end in ``handle(handle)``: sums, charges and measures when the statement runs, and not before."""
    fresh_key = "current_query_id()::VARCHAR" if fresh else "NULL::VARCHAR"
    ctes, blocks, first = [], [], 0
    for place, part in enumerate(request.direct):
        ctes.append(f"sums{place} AS MATERIALIZED ({_sums(request, part, unit_key)})")
        for i in range(len(part.sums)):
            entries = f"list({{'k': k, 'n': n{i}}})"
            blocks.append(
                f"SELECT {literal(canonical(list(sum_name(first + i))))} AS block, {entries} AS cells FROM sums{place}"
            )
        first += len(part.sums)
    call = f"_dp_run({signed(request)}, {literal(name)}::VARCHAR, {fresh_key}, list(block), list(cells))"
    counted = f"{', '.join(ctes)}, blocks AS ({union_all(blocks)})"
    return f"{counted}, {render.checked('handle', f'SELECT {call} AS text FROM blocks')}"


def _sums(request: Request, part: GroupedSums, unit_key: str) -> str:
    """SELECT k, n0, n1, ...: the sums, in steps of their grids, of each cell of the clique that has rows.

    Of each unit at most ``max_rows`` rows count, of those that add anything. Which ones depends on that unit's rows alone:
    they are ordered by a keyed hash of what they add, and where hashes tie by that itself.
    """
    attributes = [attribute for attribute in request.attributes if attribute.name in part.clique]
    unit = [] if request.unit is None else render.unit_columns(request)
    aliases = [f"_dp_unit{i}" for i in range(len(unit))]
    cells, added = [f"_dp_k{i}" for i in range(len(attributes))], [f"_dp_v{i}" for i in range(len(part.sums))]
    coded = encode(attributes, f"({_rows(request, part, attributes, unit, aliases)})")
    codes = coded.codes
    if part.groups is not None:
        # The group itself: a unit counts once in each group, and not once in each of its cells.
        numbers = array("INTEGER", [None if group < 0 else group for group in part.groups])
        codes, cells = [f"({numbers})[{_position(attributes, codes)} + 1]"], cells[:1]
    named = [f"{code} AS {name}" for code, name in zip(codes, cells, strict=True)]
    values = [f"{_added(one, _numbers(part))} AS {name}" for one, name in zip(part.sums, added, strict=True)]
    known = " AND ".join([*(f"{cell} IS NOT NULL" for cell in cells), f"coalesce({', '.join(added)}) IS NOT NULL"])
    rows = (
        f"SELECT * FROM (SELECT {', '.join([*aliases, *named, *values])} FROM {_numbered(coded, part)}) WHERE {known}"
    )
    if unit:
        order = f"hash({', '.join([literal(unit_key), *aliases, *cells, *added])}), {', '.join([*cells, *added])}"
        units = ", ".join([*render.unit_bytes(aliases), *aliases])
        rows += f" QUALIFY row_number() OVER (PARTITION BY {units} ORDER BY {order}) <= {request.max_rows}"
        rows = _once(rows, part, units, cells, added)
    sums = [
        f"CAST(greatest(least(coalesce(sum({name}), 0), {LARGEST}), -{LARGEST}) AS BIGINT) AS n{i}"
        for i, name in enumerate(added)
    ]
    if not attributes:
        return f"SELECT 0::BIGINT AS k, {', '.join(sums)} FROM ({rows})"
    if part.groups is not None:
        return f"SELECT _dp_k0::BIGINT AS k, {', '.join(sums)} FROM ({rows}) GROUP BY _dp_k0"
    groups = f"SELECT {', '.join([*cells, *sums])} FROM ({rows}) GROUP BY {', '.join(cells)}"
    position = _position(attributes, cells)
    return f"SELECT {position} AS k, {', '.join(f'n{i}' for i in range(len(sums)))} FROM ({groups})"


def _position(attributes: Sequence[Attribute], cells: Sequence[str]) -> str:
    """A cell's place in row-major order."""
    position = f"{cells[0]}::BIGINT"
    for attribute, cell in zip(attributes[1:], cells[1:], strict=True):
        position = f"({position}) * {attribute.size} + {cell}"
    return position


def _rows(
    request: Request, part: GroupedSums, attributes: Sequence[Attribute], unit: Sequence[str], aliases: Sequence[str]
) -> str:
    """SELECT of the unit and the columns in use, of the rows that satisfy the condition and lie inside the groups' domain."""
    columns = dict(part.columns) | {attribute.name: attribute.type for attribute in attributes}
    named = [f"{column} AS {alias}" for column, alias in zip(unit, aliases, strict=True)]
    # The declared type, whatever became of the column since.
    casts = [f"TRY_CAST({quote(name)} AS {type_}) AS {quote(name)}" for name, type_ in columns.items()]
    table = full_name(request.catalog, request.schema, request.table)
    conditions = [f"{alias} IS NOT NULL" for alias in aliases] + [text for text in map(inside, attributes) if text]
    if part.where:
        conditions.append(_holds(part.where))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT * FROM (SELECT {', '.join([*named, *casts]) or '1 AS _dp_one'} FROM {table}){where}"


def _holds(condition: str) -> str:
    """SQL that is true where the condition is, and false where it is not, is NULL or fails."""
    return f"coalesce(TRY(CAST(({condition}) AS BOOLEAN)), false)"


def _numbered(coded: Coded, part: GroupedSums) -> str:
    """The coded rows with the numbers that are summed, each worked out once: NULL where it fails or is not a number."""
    texts = _numbers(part)
    if not texts:
        return coded.rows
    numbers = [f"TRY(CAST(({text}) AS DOUBLE)) AS _dp_x{i}" for i, text in enumerate(texts)]
    return f"(SELECT *, {', '.join(numbers)} FROM {coded.rows})"


def _numbers(part: GroupedSums) -> list[str]:
    return list(dict.fromkeys(one.value for one in part.sums if one.value))


def _added(one: Sum, numbers: Sequence[str]) -> str:
    """What a row adds, a whole number of steps of the grid; NULL where it adds nothing."""
    holds = [_holds(one.where)] if one.where else []
    if not one.value:
        return f"CASE WHEN {holds[0]} THEN 1 END" if holds else "1"
    x = f"_dp_x{numbers.index(one.value)}"
    if one.kind == "missing":
        return f"CASE WHEN {' AND '.join([*holds, f'coalesce(isnan({x}), true)'])} THEN 1 END"
    known = " AND ".join([*holds, f"{x} IS NOT NULL", f"NOT isnan({x})"])
    if one.kind == "known":
        return f"CASE WHEN {known} THEN 1 END"
    distance = f"(greatest(least({x}, {one.high!r}::DOUBLE), {one.low!r}::DOUBLE) - {one.centre!r}::DOUBLE)"
    steps = f"round({distance}{f' * {distance}' if one.square else ''} * {1 / one.grid!r}::DOUBLE)"
    return f"CASE WHEN {known} THEN CAST(greatest(least({steps}, {one.steps}), -{one.steps}) AS BIGINT) END"


def _once(rows: str, part: GroupedSums, units: str, cells: Sequence[str], added: Sequence[str]) -> str:
    """The rows, of which each unit counts once in each group where it is a unit that is counted."""
    if not any(one.distinct for one in part.sums):
        return rows
    columns = []
    for one, name in zip(part.sums, added, strict=True):
        if not one.distinct:
            columns.append(name)
            continue
        apart = ", ".join([units, *cells, f"{name} IS NULL"])
        columns.append(f"CASE WHEN row_number() OVER (PARTITION BY {apart}) = 1 THEN {name} END AS {name}")
    return f"SELECT {', '.join([*cells, *columns])} FROM ({rows})"


def select(request: Request, plan: DirectPlan, handle: str, *, private: bool) -> str:
    """SELECT with the columns of the SELECTs, each answer's error, and which SELECT it answers if several."""
    asked = [list(group) for _, group in itertools.groupby(enumerate(request.direct), lambda part: part[1].number)]
    firsts = [group[0][1] for group in asked]
    noisy = [[output.name for output in part.outputs if output.noisy] for part in firsts]
    alone = all(len(names) == 1 for names in noisy)
    single = (noisy[0][0] if len({names[0] for names in noisy}) == 1 else "answer") if alone else None
    spelled: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for part in request.direct:
        for label in part.labels:
            if label.name:
                name = spelled.setdefault(label.name.lower(), label.name)
                kinds[name] = label.type if kinds.get(name, label.type) == label.type else "VARCHAR"

    def column(output: Output) -> str:
        return single if single is not None and output.noisy else spelled.setdefault(output.name.lower(), output.name)

    names = list(dict.fromkeys(column(output) for part in firsts for output in part.outputs))
    plain = {column(output) for part in firsts for output in part.outputs if not output.noisy}
    marked = "" if private else ", false AS private"
    selects = []
    for group, part in zip(asked, firsts, strict=True):
        shown = [f"{part.number} AS query"] if len(asked) > 1 else []
        by_name = {spelled[label.name.lower()]: label.key for _, one in group for label in one.labels if label.name}
        for name, type_ in kinds.items():
            shown.append(f"CAST({f'g{by_name[name]}' if name in by_name else 'NULL'} AS {type_}) AS {quote(name)}")
        answers = {column(output): output for output in part.outputs}
        for name in names:
            if name in plain and name not in answers:
                shown.append(f"NULL AS {quote(name)}")
            else:
                shown += _answer(name, answers.get(name), plan, "" if alone else f"{name}_")
        relation = union_all([_relation(request, plan, place, one, group) for place, one in group])
        having = f" WHERE TRY(CAST(({_text(part.having, plan)}) AS BOOLEAN))" if part.having else ""
        order = ", ".join([*(f"TRY({_text(pieces, plan)}){after}" for pieces, after in part.order), "part", "i"])
        if len(asked) == 1:
            limit = "" if part.limit is None else f" LIMIT {part.limit}"
            return f"WITH {handle} SELECT {', '.join(shown)}{marked} FROM ({relation}){having} ORDER BY {order}{limit}"
        # Not ORDER BY: inside UNION ALL, DuckDB 1.4 loses rows by it.
        ranked = f"SELECT *, row_number() OVER (ORDER BY {order}) AS _dp_place FROM ({relation}){having}"
        limit = "" if part.limit is None else f" WHERE _dp_place <= {part.limit}"
        selects.append(f"SELECT {', '.join(shown)}{marked}, _dp_place FROM ({ranked}){limit}")
    return f"WITH {handle} SELECT * EXCLUDE (_dp_place) FROM ({union_all(selects)}) ORDER BY query, _dp_place"


def _relation(
    request: Request, plan: DirectPlan, place: int, part: GroupedSums, group: Sequence[tuple[int, GroupedSums]]
) -> str:
    """SELECT part, i, g<key>, a<sum>, s<sum>: labels and noisy sums of one grouping set, row by row."""
    first = sum(len(before.sums) for before in request.direct[:place])
    types = {label.key: label.type for _, one in group for label in one.labels}
    labels = {label.key: label for label in part.labels}
    columns = [
        f"{_label(request, part, labels[key]) if key in labels else f'CAST(NULL AS {type_})'} AS g{key}"
        for key, type_ in sorted(types.items())
    ]
    sums = [f"unnest(_dp_cells(handle, {first + i})) AS a{i}" for i in range(len(part.sums))]
    errors = [f"{plan.stddev(first + i)!r}::DOUBLE AS s{i}" for i in range(len(part.sums))]
    answered = [f"a{i}" for i in range(len(part.sums))]
    return (
        f"SELECT {place} AS part, {', '.join(['i', *columns, *answered, *errors])} "
        f"FROM (SELECT unnest(range(n)) AS i, {', '.join(sums)} "
        f"FROM (SELECT handle, {part.size} + 0 * length(handle) AS n FROM handle))"
    )


def _label(request: Request, part: GroupedSums, label: Label) -> str:
    if not label.attribute:
        values = array("VARCHAR", [None if value is None else str(value) for value in label.values])
        return f"TRY_CAST(({values})[i + 1] AS {label.type})"
    attributes = {attribute.name: attribute for attribute in request.attributes}
    axis = part.clique.index(label.attribute)
    stride = math.prod(attributes[name].size for name in part.clique[axis + 1 :])
    attribute = attributes[label.attribute]
    return f"({array(label.type, attribute.labels())})[i // {stride} % {attribute.size} + 1]"


def _answer(name: str, output: Output | None, plan: DirectPlan, prefix: str) -> list[str]:
    """The columns of an answer, its stddev and its interval; of an expression without sums the answer alone.

    The stddev is sqrt(sum_j ((f(a + s_j e_j) - f(a - s_j e_j)) / 2)^2): to first order that of a function f of sums a with
    independent noise of stddev s_j, and the noise's own where f is linear.
    """
    value = stddev = low = high = "NULL::DOUBLE"
    if output is not None:
        inner = _text(output.pieces, plan)
        if output.guards:
            away = [
                f"abs({_text(guard, plan)}) > {2 * plan.quantile!r} * ({_stddev(guard, plan)})"
                for guard in output.guards
            ]
            inner = f"CASE WHEN {' AND '.join(away)} THEN {inner} END"
        value = f"TRY({f'({inner})'.join(output.outer)})"  # noise may make it fail
        if not output.noisy:
            return [f"{value} AS {quote(name)}"]
        if output.numeric:
            stddev = f"CASE WHEN ({inner}) IS NOT NULL THEN {_stddev(output.pieces, plan)} END"
            half = f"{plan.quantile!r}::DOUBLE * ({stddev})"
            ends = [f"TRY({f'(({inner}) {sign} {half})'.join(output.outer)})" for sign in "-+"]
            low, high = (f"CASE WHEN ({inner}) IS NOT NULL THEN {end} END" for end in ends)
            if output.curved:
                stddev = f"({high} - {low}) / {2 * plan.quantile!r}"
    return [
        f"{value} AS {quote(name)}",
        f"{stddev} AS {quote(prefix + 'stddev')}",
        f"{low} AS {quote(prefix + 'ci_low')}",
        f"{high} AS {quote(prefix + 'ci_high')}",
    ]


def _stddev(pieces: Sequence[Piece], plan: DirectPlan) -> str:
    if len(pieces) == 1 and isinstance(pieces[0], int):
        return f"s{pieces[0]}"
    steps = [
        f"((({_text(pieces, plan, (j, '+'))}) - ({_text(pieces, plan, (j, '-'))}))::DOUBLE / 2)"
        for j in sorted({piece for piece in pieces if isinstance(piece, int)})
    ]
    return f"sqrt({' + '.join(f'{step} * {step}' for step in steps)})"


def _text(pieces: Sequence[Piece], plan: DirectPlan, moved: tuple[int, str] | None = None) -> str:
    """An expression in SQL, with one sum moved by its stddev."""

    def one(piece: Piece) -> str:
        if isinstance(piece, str):
            return piece
        if isinstance(piece, int):
            return f"(a{piece} {moved[1]} s{piece})" if moved and moved[0] == piece else f"a{piece}"
        kind, index = piece
        return f"g{index}" if kind == "group" else f"(a{index} > {2 * plan.quantile!r} * s{index})"

    return "".join(map(one, pieces))
