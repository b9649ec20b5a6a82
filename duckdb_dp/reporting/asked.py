"""What a request asked, in words."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from duckdb_dp.accounting.records import units
from duckdb_dp.counting.encode import literal
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, brief, few
from duckdb_dp.grouped_sums import GroupedSums, Sum
from duckdb_dp.reporting.readable import is_clipping
from duckdb_dp.request import Request
from duckdb_dp.sql import dp_quantiles, quantile_rows
from duckdb_dp.sql.layout import describe

LISTED = 8
"""Values of an attribute that are written out."""

CUT = "bounds were chosen by a part of the budget, and clipped_at says which: what is beyond is cut off, and no interval covers that"

PICKED = (
    "rows are picked by noisy answers (HAVING, WHERE, QUALIFY, or ORDER BY with LIMIT): those whose noise is high, or low, are picked more "
    "often, so the intervals of these rows hold the truth less often than 95 %"
)

Row = Mapping[str, Any]
"""A row of dp_releases(), dp_ledger() or dp_budget()."""


def title(request: Request, index: int) -> str:
    """One query set in a few words: 'age x sex'."""
    question = request.questions[index]
    if request.function == "dp_quantiles":
        return dp_quantiles.describe(question)
    if request.function == "dp_marginals":
        return " × ".join(question.clique) or "total"
    return describe(question)


def by(names: Iterable[str]) -> str:
    """'by age, sex'; nothing of no names."""
    return f"by {', '.join(names)}" if names else ""


def conditions(request: Request, number: int) -> str:
    """The conditions of a SELECT of dp_sql, by its number: 'where age is [25, 35) or [35, 45)'."""
    for part in request.direct:
        if part.number == number:
            return f"where {brief(part.where)}" if part.where else ""
    attributes = {attribute.name: attribute for attribute in request.counted}
    for question in request.questions:
        if question.select is None or question.select.number != number:
            continue
        if question.joint:
            return f"under conditions on {' and '.join(question.clique)}"
        summed = [
            (attributes[name], kind[0])
            for name, kind in zip(question.clique, question.kinds, strict=True)
            if not isinstance(kind, str) and name in question.select.summed
        ]
        found = [_condition(attribute, row) for attribute, row in summed]
        return (" or " if question.disjunction else " and ").join(filter(None, found))
    return ""


def middles(request: Request) -> list[str]:
    """The attributes of which sums or averages take the middles of bins that hold several values."""
    summed = {
        question.select.query.attribute
        for question in request.questions
        if question.select is not None and question.select.query.function != "count"
    }
    return [
        attribute.name
        for attribute in request.attributes
        if attribute.name in summed and attribute.kind == "bins" and any(low < high for low, high in attribute.held)
    ]


def clamped(request: Request) -> list[str]:
    """The numbers that were added up row by row, with the bounds that they were clamped to."""
    sums = [
        one
        for part in request.direct
        for one in part.sums
        if not (one.counts or one.norm) and one.cells is None and _is_cut(part, one)
    ]
    return list(dict.fromkeys(f"{brief(one.value)} to {one.low:g} … {one.high:g}" for one in sums))


def chosen(request: Request) -> list[str]:
    """The numbers whose bounds were chosen by a part of the budget."""
    return list(dict.fromkeys(brief(one.value) for part in request.direct for one in part.sums if one.chosen))


def clipped(request: Request) -> bool:
    """Whether what one unit adds was cut to a norm, or to a number of rows that was chosen."""
    return request.auto_rows


def bounded(request: Request) -> str | None:
    """Which rows of a unit count in answers whose intervals do not cover the others; None where all of them do, or a bound was chosen."""
    if (request.synthetic and not request.growing) or request.auto_rows:
        return None
    own = request.unit is not None and (request.source is None or not request.source.single)
    parts = [
        own if part.source is None else bool(part.source.owner) and not part.source.single for part in request.direct
    ]
    if not any(parts) and not (own and (request.questions or not request.direct)):
        return None
    counted = {request.rows_of(part) for part, one in zip(request.direct, parts, strict=True) if one}
    least, most = min(counted, default=request.max_rows), max(counted, default=request.max_rows)
    number = f"{most:,}" if least == most else f"{least:,} to {most:,}, by the SELECT,"
    rows = f"{number} row{'s' if most > 1 else ''}"
    return f"of each unit at most {rows} count (max_rows): further ones are left out, and no interval covers that"


def left_out(request: Request, several: bool, columns: Iterable[str], unowned: str | None) -> list[str]:
    """What answers leave out, and their intervals do not cover; with an answer of any kind it is the same lines.

    Args:
        request: what was asked.
        several: whether a unit may have more rows than count.
        columns: of the table.
        unowned: which rows belong to no unit, such as 'patient is NULL'; None where each has one.
    """
    nobodys = (
        f"rows whose {unowned} are in no answer, as no unit has them"
        if unowned and (request.growing or not request.synthetic)
        else None
    )
    lines = [nobodys, bounded(request) if several else None, cut(request), outside(request), grouped(request)]
    lines += [CUT if request.auto_rows or chosen(request) else None, PICKED if picked(request) else None]
    lines += [*not_found(request), *map(_unquoted, quantile_rows.notes(request)), undeclared(request, columns)]
    return [line for line in lines if line is not None]


def picked(request: Request) -> bool:
    """Whether which rows there are was decided by sums with noise."""
    keys = [part.having for part in request.direct]
    keys += [pieces for part in request.direct if part.limit is not None for pieces, _ in part.order]
    return any(isinstance(piece, int) for pieces in keys for piece in pieces)


def unsaid(lines: Iterable[str], names: Iterable[str]) -> list[str]:
    """The lines of ``left_out`` that the columns of a result do not say better: which bounds were chosen."""
    said = any(is_clipping(name) for name in names)
    return [line for line in dict.fromkeys(lines) if not (said and line == CUT)]


def cut(request: Request) -> str | None:
    """Which numbers were clamped to bounds that were declared or written; None where none were. What chosen ones cut, the answers say."""
    sums = [
        one
        for part in request.direct
        for one in part.sums
        if not (one.counts or one.norm or one.chosen) and one.cells is None and '"' in one.value and _is_cut(part, one)
    ]
    found = dict.fromkeys(f"{brief(_unquoted(one.value))} beyond {one.low:g} to {one.high:g}" for one in sums)
    return f"values of {few(found, ' or of ')} count as these bounds: no interval covers that" if found else None


def _is_cut(part: GroupedSums, one: Sum) -> bool:
    """Whether values beyond the bounds of a sum may be among those that are added: not where its conditions leave them out."""
    from sqlglot import parse_one  # for import time

    from duckdb_dp.domain.expression_bounds import bounds

    value, *conditions = (parse_one(text, dialect="duckdb") for text in (one.value, part.where, one.where) if text)
    try:
        known = bounds(value, {}, conditions)
    except DPError:
        return True
    return known is None or known[0] < one.low or known[1] > one.high


def grouped(request: Request) -> str | None:
    """Which values leave a row out of all groups of dp_sql; None where each row has a group."""
    named = _groups(request)
    left = [one for one in request.attributes if one.name in named and one.with_rest().hidden]
    return f"rows whose {_unquoted(_lost(left, ''))} are in no group" if left else None


def _groups(request: Request) -> set[str]:
    """The attributes that SELECTs of dp_sql group by; none of other requests."""
    if request.function != "dp_sql":
        return set()
    labels = {label.attribute for part in request.direct for label in part.labels}
    selects = [one.select for one in request.questions if one.select]
    return labels | {column.attribute for one in selects for column in one.columns if not column.function}


def _lost(attributes: Iterable[Attribute], before: str) -> str:
    """Which values of attributes have no cell: 'value of a is not declared or of b is NULL or not declared'."""
    names: dict[str, list[str]] = {}
    for one in attributes:
        hidden = one.with_rest().hidden
        said = ["NULL"] * ("null" in hidden) + ["not declared"] * any(what != "null" for what in hidden)
        names.setdefault(" or ".join(said), []).append(one.name)
    return ", or whose ".join(f"{before}{few(found, ' or ')} is {what}" for what, found in names.items())


def not_found(request: Request) -> list[str]:
    """Which groups stand for all other values: NULL among numbers, dates and times that were found, else 'other'."""
    others = {one.name: one for one in request.attributes if one.other and one.name in _groups(request)}
    labels = [label for part in request.direct for label in part.labels if label.attribute in others and label.name]
    null = {label.attribute: label.name for label in labels if label.type != "VARCHAR"}
    names = {name: name for name in others} | {label.attribute: label.name for label in labels}
    texts = [names[name] for name, one in others.items() if name not in null and not one.nulls]
    lines = {"NULL in {} stands for all values that were not found, and NULL": [*null.values()]}
    lines["'other' in {} stands for all other values, and NULL"] = texts
    return [line.format(few(dict.fromkeys(found), " or ")) for line, found in lines.items() if found]


def _unquoted(text: str) -> str:
    """SQL with plain names as they are written by hand."""
    return re.sub(r'"([a-z_][a-z0-9_]*)"', r"\1", text)


def outside(request: Request) -> str | None:
    """Which values leave a row out of answers that do not group by them; None where none do."""
    if request.synthetic or len(request.questions) < 2:
        return None
    left = [
        one
        for one in request.attributes
        if one.name not in request.rest
        and one.with_rest().hidden
        and any(one.name in clique for clique in request.cliques)
        and not all(one.name in clique for clique in request.cliques)
    ]
    return f"rows whose {_lost(left, 'value of ')} are in none of these answers" if left else None


def undeclared(request: Request, columns: Iterable[str]) -> str | None:
    """Which columns of a table are not in its synthetic rows; None where all are, and of other requests."""
    known = {attribute.name for attribute in request.attributes} | {
        name for unit in units(request.unit) for name in unit
    }
    left = [name for name in columns if name not in known]
    if request.function != "dp_synthesize" or not left:
        return None
    return f"not in the rows, as the request does not name them or nobody has declared them: {few(left)}"


def has_quantiles(request: Request) -> bool:
    """Whether a quantile was asked beside sums."""
    return any(one.kind == "quantile" for part in request.direct for one in part.sums)


def read_as(postprocess: str | None) -> str:
    """The argument of a call that reads counts in one way: 'pgm' has a word of its own."""
    if postprocess == "pgm":
        return "reconstruct := 'pgm'"
    return f"postprocess := {literal(postprocess or 'unbiased')}"


def cells(attribute: Attribute) -> str:
    """The declared domain of an attribute in words."""
    if attribute.kind == "integers":
        low, high = attribute.points
        found = f"whole numbers {low} to {high}"
    elif attribute.kind == "bins":
        edges = ", ".join(map(_text, attribute.points[: LISTED + 1]))
        more = len(attribute.points) - LISTED - 1
        found = (
            f"bins with the edges {edges}" if more <= 0 else f"bins with the edges {edges}, … {attribute.points[-1]}"
        )
    else:
        listed = ", ".join(map(_text, attribute.points[:LISTED]))
        more = len(attribute.points) - LISTED
        found = listed if more <= 0 else f"{listed} and {more:,} more"
    extra = ["everything else as “other”"] * attribute.other + ["missing values as NULL"] * attribute.nulls
    return "; ".join([found, *extra])


_BEYOND = {"below": "lower", "above": "higher", "unlisted": "not declared", "null": "NULL"}
"""What cells that are not shown hold."""


def _condition(attribute: Attribute, row: tuple[float, ...]) -> str:
    if not set(row) <= {0.0, 1.0}:
        return ""  # what is summed, and not a condition
    if all(row):
        return ""
    labels = attribute.labels()  # after which come cells that are not shown
    chosen = [str(label) for label, weight in zip(labels, row[: len(labels)], strict=True) if weight]
    runs = attribute.kind != "values" and len(chosen) > 2 and "1" * len(chosen) in "".join(str(int(x)) for x in row)
    told = f"{chosen[0]} to {chosen[-1]}" if runs else ", ".join(chosen[:LISTED]) + ", …" * (len(chosen) > LISTED)
    beyond = [_BEYOND[what] for what, weight in zip(attribute.hidden, row[len(labels) :], strict=True) if weight]
    return f"where {attribute.name} is {' or '.join([told, *beyond])}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
