"""The SQL of the direct route: the answers, their errors and their labels, from noisy sums and quantiles."""

import itertools
import math
import re
from collections.abc import Sequence
from functools import partial

from duckdb_dp.counting.encode import array, literal, quote, union_all
from duckdb_dp.domain.types import Whole
from duckdb_dp.grouped_sums import GroupedSums, Label, Sum, sum_name
from duckdb_dp.outputs import LEAST, Output, Piece, Product
from duckdb_dp.plan.direct import DirectPlan
from duckdb_dp.request import Request
from duckdb_dp.sql import found_cells
from duckdb_dp.sql.cell_values import ends_of, outer_end
from duckdb_dp.sql.cell_values import value as cell_value
from duckdb_dp.sql.layout import bins_type
from duckdb_dp.sql.steps import Steps

_END = re.compile('"@([lh])([0-9]+)"')
"""An end of the interval of a factor."""

_SHIFTED = re.compile(r"x|\(CAST\([-+.e\d]+ AS DOUBLE\) \+ x\)")
"""What is shown of an expression x: itself, or a constant more."""

_COLUMN = re.compile("[a-z][0-9]+")
"""A column of the noisy sums, or of what is worked out of them, which cannot fail any more."""

_OVERFLOWS = re.compile(r"(?i)\b(power|pow|exp)\(|\*|\^")
"""What may make an infinity of numbers, which says nothing of them: NULL does."""


def select(request: Request, plan: DirectPlan, handle: str, *, private: bool, found: Sequence[str] = ()) -> str:
    """SELECT with the columns of the SELECTs, each answer's error, and which SELECT it answers if several."""
    return f"WITH {handle} {answers(request, plan, private=private, found=found)}"


def answers(
    request: Request, plan: DirectPlan, *, private: bool, only: int | None = None, found: Sequence[str] = ()
) -> str:
    """The same of a CTE ``handle``; or the answers to the SELECT of that number alone, each error named by its answer.

    Args:
        request, plan, private: as ever.
        only: the number of a SELECT.
        found: columns whose values the statement itself finds, in CTEs of ``found_groups``; the request has placeholders.
    """
    asked = [list(group) for _, group in itertools.groupby(enumerate(request.direct), lambda part: part[1].number)]
    asked = [group for group in asked if only in (None, group[0][1].number)]
    firsts = [group[0][1] for group in asked]
    noisy = [[output.name for output in part.outputs if output.noisy] for part in firsts]
    alone = only is None and all(len(names) == 1 for names in noisy)
    single = (noisy[0][0] if len({names[0] for names in noisy}) == 1 else "answer") if alone else None
    spelled: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for group in asked:
        for label in [label for _, part in group for label in part.labels]:
            if label.name:
                name = spelled.setdefault(label.name.lower(), label.name)
                kinds[name] = label.type if kinds.get(name, label.type) == label.type else "VARCHAR"

    def column(output: Output) -> str:
        return single if single is not None and output.noisy else spelled.setdefault(output.name.lower(), output.name)

    names = list(dict.fromkeys(column(output) for part in firsts for output in part.outputs))
    plain = {column(output) for part in firsts for output in part.outputs if not output.noisy}
    bounds = {
        (part.number, column(output)): bounds_of(request, plan, part, output)
        for part in firsts
        for output in part.outputs
    }
    clipped = {name for (_, name), found in bounds.items() if found}
    marked = "" if private else ", false AS private"
    selects = []
    for group, part in zip(asked, firsts, strict=True):
        shown = [f"{part.number} AS query"] if len(asked) > 1 else []
        by_name = {spelled[label.name.lower()]: label.key for _, one in group for label in one.labels if label.name}
        for name, type_ in kinds.items():
            shown.append(f"CAST({f'g{by_name[name]}' if name in by_name else 'NULL'} AS {type_}) AS {quote(name)}")
        answers = {column(output): output for output in part.outputs}
        steps = Steps()
        for name in names:
            if name in plain and name not in answers:
                shown.append(f"NULL AS {quote(name)}")
            else:
                prefix = "" if alone else f"{name}_"
                shown += _answer(name, answers.get(name), part, plan, prefix, steps)
                if name in clipped:
                    found_bounds = bounds.get((part.number, name), [])
                    some = (
                        [f"coalesce({text}, list_value(NULL))" for text in found_bounds]
                        if found_bounds[1:]
                        else found_bounds
                    )
                    cut = " || ".join(some) or "NULL::DOUBLE[]"
                    shown.append(f"{cut} AS {quote(prefix + 'clipped_at')}")
        relation = union_all([_relation(request, plan, place, one, group, found) for place, one in group])
        relation = steps.around(relation)
        having = f" WHERE TRY(CAST(({_text(part.having, plan)}) AS BOOLEAN))" if part.having else ""
        order = ", ".join([*(_ordered(request, part, plan, *one) for one in part.order), "part ASC", "i ASC"])
        if len(asked) == 1:
            limit = "" if part.limit is None else f" LIMIT {part.limit}"
            return f"SELECT {', '.join(shown)}{marked} FROM ({relation}){having} ORDER BY {order}{limit}"
        # Not ORDER BY: inside UNION ALL, DuckDB 1.4 loses rows by it.
        ranked = f"SELECT *, row_number() OVER (ORDER BY {order}) AS _dp_place FROM ({relation}){having}"
        limit = "" if part.limit is None else f" WHERE _dp_place <= {part.limit}"
        selects.append(f"SELECT {', '.join(shown)}{marked}, _dp_place FROM ({ranked}){limit}")
    return f"SELECT * EXCLUDE (_dp_place) FROM ({union_all(selects)}) ORDER BY query, _dp_place"


def _ordered(request: Request, part: GroupedSums, plan: DirectPlan, pieces: Sequence[Piece], after: str) -> str:
    """An item of ORDER BY: numbers and dates beside 'other' by what they are, and not as the texts that are shown; 'other' last."""
    text = _text(pieces, plan)
    after = after.removesuffix(
        " NULLS LAST"
    )  # which is what the setting default_null_order says, unless it was changed
    names = {f"g{label.key}": label.attribute for label in part.labels}
    found = next((one for one in request.attributes if one.name == names.get(text)), None)
    if found is not None and found.kind == "bins":  # in their order, 'other' last, and not in that of the texts
        return f"TRY_CAST({text} AS {bins_type(found) or 'VARCHAR'}){after}"
    if found is None or not found.other or found.dtype.textual:
        return f"TRY({text}){after}"
    return f"TRY_CAST({text} AS {found.type}){after.partition(' NULLS')[0]} NULLS LAST"


def _relation(
    request: Request,
    plan: DirectPlan,
    place: int,
    part: GroupedSums,
    group: Sequence[tuple[int, GroupedSums]],
    found: Sequence[str],
) -> str:
    """SELECT part, i, g<key>, a<sum>, s<sum>: labels and noisy sums of one grouping set, row by row."""
    first = sum(len(before.sums) for before in request.direct[:place])
    types = {label.key: label.type for _, one in group for label in one.labels}
    labels = {label.key: label for label in part.labels}
    later = [name for name in found if name in part.clique]
    label_of = partial(found_cells.label, request, part, found) if later else partial(_label, request, part)
    groups = found_cells.groups(request, part, found) if later else str(part.size)
    columns = [
        f"{label_of(labels[key]) if key in labels else f'CAST(NULL AS {type_})'} AS g{key}"
        for key, type_ in sorted(types.items())
    ]
    for key in sorted({piece[1] for piece in part.having if isinstance(piece, tuple) and piece[0] == "other"}):
        other = _is_other(request, label_of(labels[key]), labels[key], found) if key in labels else "true"
        columns.append(f"{other} AS o{key}")
    shown = [plan.shown(first + i) for i in range(len(part.sums))]
    clipped = [i for i, one in enumerate(part.sums) if shown[i] and not one.chosen and one.kind != "quantile"]
    read = [
        text for i, one in enumerate(part.sums) if i not in clipped for text in _read(i, first + i, one, bool(later))
    ]
    if clipped:  # all of them at once: a function costs more than what it returns
        read.append(f"unnest(_dp_cut(handle, '{' '.join(str(first + i) for i in clipped)}')) AS cut")
    cut = [_cut(plan, part.number, i) for i in range(len(part.sums))]
    given = [
        text
        for i, one in enumerate(part.sums)
        for text in (
            [f"cut[{3 * clipped.index(i) + place}] AS {name}{i}" for place, name in enumerate("asb", 1)]
            if i in clipped
            else _given(i, first + i, one, plan, bool(later), cut[i])
        )
    ]
    return (
        f"SELECT {place} AS part, {', '.join(['i', *columns, *given])} "
        f"FROM (SELECT unnest(range(n)) AS i, {', '.join(read)} "
        f"FROM (SELECT handle, {groups} + 0 * length(handle) AS n FROM handle))"
    )


def _read(i: int, index: int, one: Sum, later: bool) -> list[str]:
    """What is read of a sum, a value for each group: itself, and where they are not known yet its stddev and its bounds."""
    if one.kind == "quantile":
        return [f"unnest(_dp_quantiles(handle, '{index}')) AS f{i}"]
    found = [f"unnest(_dp_cells(handle, {index})) AS a{i}"]
    if later and not one.chosen:
        found.append(f"unnest(_dp_stddevs(handle, {index})) AS s{i}")
    if one.chosen:
        found += [f"unnest(_dp_stddevs(handle, {index})) AS s{i}", f"unnest(_dp_quantiles(handle, '{index}')) AS b{i}"]
    return found


def _cut(plan: DirectPlan, number: int, i: int) -> bool:
    """Whether any grouping set of a SELECT says where its i-th sum was cut: all of them have the column then."""
    firsts = itertools.accumulate((len(part.sums) for part in plan.parts), initial=0)
    return any(part.number == number and plan.shown(first + i) for part, first in zip(plan.parts, firsts, strict=False))


def _given(i: int, index: int, one: Sum, plan: DirectPlan, later: bool, cut: bool) -> list[str]:
    """Of a sum a<i> and s<i>, its stddev; of a quantile l<i> and h<i> too, the ends of its interval; and where it was cut b<i>."""
    if one.chosen:  # NULL where no bounds were found; and of what is mostly beyond them nobody knows how far it is
        found = [f"CASE WHEN b{i}[3] = 0 THEN {name}{i} END AS {name}{i}" for name in "as"]
        return [*found, f"CASE WHEN b{i}[1] IS NOT NULL THEN b{i}[1:2] END AS b{i}"]
    none = [f"NULL::DOUBLE AS b{i}"] if cut else []
    if one.kind != "quantile":
        return [f"a{i}", f"s{i}" if later else f"{plan.stddev(index)!r}::DOUBLE AS s{i}", *none]
    cells = one.cells
    assert cells is not None
    cell, low, high = (f"CAST(f{i}[{place}] AS BIGINT)" for place in (1, 3, 4))
    answer = cell_value(cells, cell, f"f{i}[2]")
    ends = [outer_end(cells, low, 0), outer_end(cells, high, 1)]
    if cells.kind == "bins" and isinstance(cells.dtype, Whole):
        held = [array(cells.dtype.edge_type, [int(pair[side]) for pair in cells.held]) for side in (0, 1)]
        answer, ends = f"floor({answer})", [f"({held[0]})[{low} + 1]", f"({held[1]})[{high} + 1]"]
    # Numbers are DOUBLE until they are shown: no noisy number is beyond what an expression holds.
    a, lower, upper = (f"TRY_CAST({text} AS {one.number})" for text in (answer, *ends))
    far = f"nullif(greatest({upper} - {a}, {a} - {lower}), CAST('inf' AS DOUBLE))"
    within = f"CASE WHEN {low} IS NOT NULL AND {high} IS NOT NULL THEN {far} / {plan.quantile!r} END"
    half = within if one.numeric else "NULL::DOUBLE"
    known = zip("aslh", (a, half, lower, upper), (cell, cell, low, high), strict=True)
    found = [f"CASE WHEN {there} IS NOT NULL THEN {text} END AS {name}{i}" for name, text, there in known]
    return [*found, *([f"f{i}[5] AS b{i}"] if plan.shown(index) else none)]


def _as_shown(text: str, one: Sum) -> str:
    """A quantile in its own type; what lies beyond what the type holds is its end."""
    if one.type == one.number:
        return text
    least, most = ends_of(one.type)
    return (
        f"coalesce(TRY_CAST({text} AS {one.type}), CASE WHEN {text} < 0 THEN {least} WHEN {text} > 0 THEN {most} END)"
    )


def _label(request: Request, part: GroupedSums, label: Label) -> str:
    if not label.attribute:
        values = array("VARCHAR", [None if value is None else str(value) for value in label.values])
        return f"TRY_CAST(({values})[i + 1] AS {label.type})"
    attributes = {attribute.name: attribute for attribute in request.attributes}
    clique = [name for name in attributes if name in part.clique]  # in the order in which rows were placed
    stride = math.prod(attributes[name].size for name in clique[clique.index(label.attribute) + 1 :])
    attribute = attributes[label.attribute]
    place = f"[i // {stride} % {attribute.size} + 1]"
    if label.type != attribute.column_type:  # of what was found: 'other' is none of its values
        return f"TRY_CAST(({array('VARCHAR', attribute.labels())}){place} AS {label.type})"
    return f"({array(label.type, attribute.labels())}){place}"


def _is_other(request: Request, text: str, label: Label, found: Sequence[str]) -> str:
    """SQL of whether a label stands for all values that are not found."""
    if label.type != "VARCHAR":
        return f"({text}) IS NULL"
    if label.attribute in found:
        return f"({text}) = ({found_cells.other_label(found, label.attribute)})"
    called = sorted({attribute.other_label for attribute in request.attributes if attribute.other})
    return f"({text}) IN ({', '.join(map(literal, called))})"


def bounds_of(request: Request, plan: DirectPlan, part: GroupedSums, output: Output) -> list[str]:
    """SQL of a list of bounds for each number in an expression that was cut: [low, high] of values, else [norm]."""
    first = sum(len(before.sums) for before in request.direct[: request.direct.index(part)])
    found: dict[object, str] = {}
    for piece in output.pieces:
        if isinstance(piece, int) and part.sums[piece].chosen:
            found.setdefault(part.sums[piece].histogram, f"b{piece}")
        elif isinstance(piece, int) and _cut(plan, part.number, piece):
            clip = plan.clip_of(sum_name(first + piece))
            found.setdefault(clip, f"CASE WHEN b{piece} IS NOT NULL THEN list_value(b{piece}) END")
    return list(found.values())


def _answer(
    name: str, output: Output | None, part: GroupedSums, plan: DirectPlan, prefix: str, steps: Steps
) -> list[str]:
    """The columns of an answer, its stddev and its interval; of an expression without sums the answer alone.

    The stddev is sqrt(sum_j ((f(a + s_j e_j) - f(a - s_j e_j)) / 2)^2): to first order that of a function f of sums a with
    independent noise of stddev s_j, and the noise's own where f is linear. The interval of a quantile is its own.

    What several columns take, and the parts of long ones, become ``steps``.
    """
    value = stddev = low = high = "NULL" if output is None else "NULL::DOUBLE"
    if output is not None:
        inner = _text(output.pieces, plan)
        if output.guards:
            away = [
                f"abs({_text(guard, plan)}) > {2 * plan.quantile!r} * ({_stddev(guard, plan, steps)})"
                for guard in output.guards
            ]
            inner = f"CASE WHEN {' AND '.join(away)} THEN {inner} END"
        overflows = _OVERFLOWS.search(" ".join((inner, *output.outer))) is not None
        if output.noisy and not _COLUMN.fullmatch(inner):
            inner = steps.of(inner)
        quantile = part.quantile(output)

        def around(text: str, function: tuple[str, ...]) -> str:
            """The function around an expression; TRY as noise may make it fail."""
            plain = quantile is not None and output.outer == ("", "")
            found = _as_shown(text, part.sums[quantile]) if plain and quantile is not None else text.join(function)
            return found if _COLUMN.fullmatch(found) else f"TRY({found})"

        def end_of(text: str) -> str:
            """The same of an end of an interval, which is moved to where the function is one; NULL where that is nowhere."""
            if not output.ends:
                return around(text, output.outer)
            return f"CASE WHEN {value} IS NOT NULL THEN TRY(nullif({text.join(output.ends)}, {LEAST})) END"

        value = around(inner if _COLUMN.fullmatch(inner) else f"({inner})", output.outer)
        if not output.noisy:
            return [f"{value} AS {quote(name)}"]
        if output.numeric:
            spread = _stddev(output.pieces, plan, steps)
            if not _COLUMN.fullmatch(spread):
                spread = steps.of(spread)
            stddev = f"CASE WHEN {inner} IS NOT NULL THEN {spread} END"
        if quantile is not None:
            # Of an end that is not known greatest, least and coalesce would make one that is.
            low, high = (f"CASE WHEN {end}{quantile} IS NOT NULL THEN {end_of(f'{end}{quantile}')} END" for end in "lh")
        elif output.numeric:
            plain = [f"({inner} {sign} {plan.quantile!r}::DOUBLE * {spread})" for sign in "-+"]
            product = output.product
            ends = [end_of(end) for end in (plain if product is None else _of_product(product, plan, steps))]
            # Otherwise an end is NULL where one of these is.
            if product is not None or output.ends or not _SHIFTED.fullmatch("x".join(output.outer)):
                ends = [f"CASE WHEN {inner} IS NOT NULL AND {spread} IS NOT NULL THEN {end} END" for end in ends]
            low, high = ends
        if output.numeric and quantile is None and overflows:
            found = [text if _COLUMN.fullmatch(text) else steps.of(text) for text in (value, stddev, low, high)]
            value, stddev, low, high = (f"CASE WHEN isfinite({text}::DOUBLE) THEN {text} END" for text in found)
        if (output.curved or output.product is not None) and output.numeric:
            stddev = f"({high} - {low}) / {2 * plan.quantile!r}"
            stddev, low, high = (
                f"nullif({text}, CAST('NaN' AS DOUBLE))" for text in (stddev, low, high)
            )  # of what overflows
        if output.numeric and any("abs(" in text for text in output.outer):
            # A variance that noise makes negative is 0, and so would both ends be: [0, 0] says that it is known, and it is not.
            low, high = f"nullif({low}, {high})", f"nullif({high}, {low})"
    shown = {"": value, "stddev": stddev, "ci_low": low, "ci_high": high}
    return [f"{steps.shorter(text)} AS {quote(prefix + error if error else name)}" for error, text in shown.items()]


def _of_product(product: Product, plan: DirectPlan, steps: Steps) -> list[str]:
    """The ends of the interval of an expression with products."""

    def end(match: re.Match[str]) -> str:
        factor = product.factors[int(match.group(2))]
        half = f"{plan.quantile!r}::DOUBLE * ({_stddev(factor, plan, steps)})"
        return f"(({_text(factor, plan)}) {'-' if match.group(1) == 'l' else '+'} {half})"

    return [f"({re.sub(_END, end, text)})" for text in (product.low, product.high)]


def _stddev(pieces: Sequence[Piece], plan: DirectPlan, steps: Steps) -> str:
    if len(pieces) == 1 and isinstance(pieces[0], int):
        return f"s{pieces[0]}"
    halves = [
        steps.of(f"(({_text(pieces, plan, (j, '+'))}) - ({_text(pieces, plan, (j, '-'))}))::DOUBLE / 2")
        for j in sorted({piece for piece in pieces if isinstance(piece, int)})
    ]
    return f"sqrt({' + '.join(f'{half} * {half}' for half in halves)})"


def _text(pieces: Sequence[Piece], plan: DirectPlan, moved: tuple[int, str] | None = None) -> str:
    """An expression in SQL, with one sum moved by its stddev."""

    def one(piece: Piece) -> str:
        if isinstance(piece, str):
            return piece
        if isinstance(piece, int):
            return f"(a{piece} {moved[1]} s{piece})" if moved and moved[0] == piece else f"a{piece}"
        kind, index = piece
        if kind in ("group", "other", "stddev"):
            return f"{kind[0]}{index}"
        return f"(a{index} > {2 * plan.quantile!r} * s{index})"

    return "".join(map(one, pieces))
