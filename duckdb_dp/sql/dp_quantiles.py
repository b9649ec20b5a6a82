"""dp_quantiles: medians and other quantiles of a declared attribute, by groups, with intervals."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import array, literal, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.public_cells import in_order
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.selection import better
from duckdb_dp.request import SELECT, Question, Request
from duckdb_dp.sql import precision, routes
from duckdb_dp.sql.arguments import Arguments, Place, find_attribute, no_postprocess
from duckdb_dp.sql.cell_values import end, value
from duckdb_dp.sql.question_kinds import Declared, Kind, named_dataset
from duckdb_dp.sql.questions import register_kind
from duckdb_dp.sql.session import Session

QUARTILES = [0.25, 0.5, 0.75]
"""What dp_release returns where nothing else is asked."""

MOST = 1_000
"""Most quantiles of one call."""

ROWS = 10_000_000
"""Most rows of one call."""

OWN = ("quantile", "value")
"""Result columns, beside those that are reserved for all functions."""


def recognises(arguments: Arguments) -> bool:
    """Whether dp_explain is asked about quantiles."""
    return arguments.get("quantiles") is not None


def domain(declared: Declared, dataset: Dataset, arguments: Arguments) -> Declared:
    """The declarations, with the cells of the attribute in the order of its values, and beside them those of all other values.

    Rows with NULL have no place in the order; they are left out, as SQL's own median leaves them out. In tables of other engines, and
    in releases of earlier versions, rows with values that nobody has declared are left out too.
    """
    name, line = arguments["attribute"], dataset.schema != SCHEMA and not arguments.get(routes.OLDER)
    return {
        each: in_order(attribute, line=line) if isinstance(name, str) and each.lower() == name.lower() else attribute
        for each, attribute in declared.items()
    }


def dataset(session: Session, arguments: Arguments, place: Place) -> Dataset:
    """The dataset that is named, once it is known that the quantiles are some: nothing declared decides that.

    Raises:
        DPError: they are none, or the dataset is not protected.
    """
    if arguments.get("quantiles") is not None:
        parse_quantiles(arguments["quantiles"])
    return named_dataset(session, arguments, place)


def questions(asked: Any, dataset: Dataset, declared: Declared, arguments: Arguments) -> tuple[Question, ...]:
    """All prefix counts of the attribute in each group. Which quantiles are asked is no part of it: all follow from these.

    Raises:
        DPError: the attribute has no order, the groups are no declared attributes, or the quantiles are none.
    """
    attribute = find_attribute(dataset, declared, asked)
    if not attribute.dtype.ordered:
        ordered = [repr(each.name) for each in declared.values() if each.dtype.ordered]
        hint = f"this table has declared {few(ordered)}" if ordered else "declare one with dp_attribute"
        raise DPError(
            f"'{attribute.name}' is {attribute.type}, which has no order; quantiles are of numbers, dates and times: {hint}."
        )
    parse_quantiles(arguments.get("quantiles"))
    groups = parse_groups(dataset, declared, arguments.get("by"))
    if attribute.name in groups:
        raise DPError(f"'{attribute.name}' is in by and its quantiles are asked too; group by another attribute.")
    clique = tuple(name for name in declared if name == attribute.name or name in groups)
    return (Question(clique=clique, kinds=tuple(_kind(name, attribute.name) for name in clique)),)


def chosen(request: Request, arguments: Arguments) -> Request:
    """The request with mechanism 'select' where 'auto' selects; the quantiles that are selected are a part of it."""
    quantiles, (question,) = parse_quantiles(arguments.get("quantiles")), request.questions
    cells = request.domain.sizes[measured(question)]
    if request.mechanism == "auto" and (precision.asked(arguments) or not better(cells, len(quantiles))):
        return request
    if request.mechanism not in ("auto", SELECT):
        return request
    return replace(request, mechanism=SELECT, options=(*request.options, ("quantiles", tuple(sorted(quantiles)))))


def _kind(name: str, attribute: str) -> str:
    return "prefix" if name == attribute else "identity"


def parse_quantiles(asked: Any) -> list[float]:
    """0.5, or [0.25, 0.5, 0.75], as numbers from 0 to 1.

    Raises:
        DPError: there is none, too many, one twice, or something else.
    """
    found: list[Any] = asked if isinstance(asked, list) else [asked]
    if not found or any(isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1 for q in found):
        raise DPError(f"quantiles is {as_sql(asked)}; give numbers from 0 to 1, e.g. [0.25, 0.5, 0.75].")
    if len(set(found)) < len(found):
        twice = next(q for place, q in enumerate(found) if q in found[:place])
        raise DPError(f"quantiles names {as_sql(twice)} twice; name it once.")
    if len(found) > MOST:
        raise DPError(f"quantiles has {len(found):,} numbers and the limit is {MOST:,}; ask for fewer at a time.")
    return [float(q) for q in found]


def parse_groups(dataset: Dataset, declared: Declared, by: object) -> list[str]:
    """The attributes of ``by``, as asked: none, one name, or a list of names.

    Raises:
        DPError: something else, a name twice, or one that is a result column.
    """
    names = [] if by is None else by if isinstance(by, list) else [by]
    found = [find_attribute(dataset, declared, name).name for name in names]
    if len(set(found)) < len(found):
        raise DPError(f"by is {as_sql(by)}, which names an attribute twice; name it once.")
    for name in found:
        if name.lower() in OWN:
            raise DPError(
                f"'{name}' in by is also a result column; rename it in a view: CREATE VIEW v AS SELECT {quote(name)} AS "
                f"my_{name.lower()} ..."
            )
    return found


def rows(request: Request, planned: Plan | None, handle: str, arguments: Arguments, private: bool) -> str:
    """SELECT with a row per group and quantile: the groups in the order of their cells, the quantiles as asked."""
    no_postprocess(arguments, FUNCTION.name)
    asked = _asked(request, arguments.get("quantiles"))
    if request.selected is not None and not {*asked} <= {*request.selected}:
        raise DPError(
            f"this release selected the quantiles {as_sql(list(request.selected))} alone; ask others by a call of dp_quantiles, "
            "with mechanism := 'hdmm' for one release of all."
        )
    attributes = {attribute.name: attribute for attribute in request.attributes}
    (question,) = request.questions
    attribute = attributes[measured(question)]
    groups = [attributes[name] for name in question.clique if name != attribute.name]
    number = number_of(request, asked)
    if number > ROWS:
        raise DPError(
            f"{number:,} quantiles were asked and the limit is {ROWS:,}; ask for fewer, or by fewer attributes."
        )
    columns = [
        *_labels(groups, len(asked), arguments.get("by")),
        f"({array('DOUBLE', asked)})[i % {len(asked)} + 1] AS quantile",
        f"{value(attribute, 'cell', 'share')} AS value",
        f"{end(attribute, 'low', 0)} AS ci_low",
        f"{end(attribute, 'high', 1)} AS ci_high",
        *([] if private else ["false AS private"]),
    ]
    read = f"unnest(_dp_quantiles(handle, {literal(json.dumps(asked))})) AS f"
    cells = "CAST(f[1] AS BIGINT) AS cell, f[2] AS share, CAST(f[3] AS BIGINT) AS low, CAST(f[4] AS BIGINT) AS high"
    return (
        f"WITH {handle} SELECT {', '.join(columns)} FROM (SELECT i, {cells} FROM (SELECT unnest(range(n)) AS i, {read} "
        # A constant range would be folded into a literal while the statement is planned.
        f"FROM (SELECT handle, {number} + 0 * length(handle) AS n FROM handle)))"
    )


def _asked(request: Request, given: object) -> list[float]:
    """The quantiles that a call asks of a release."""
    usual = QUARTILES if request.selected is None else list(request.selected)
    return usual if given is None else parse_quantiles(given)


def number_of(request: Request, given: object) -> int:
    """How many rows the answer to a call has: its groups times its quantiles."""
    (question,) = request.questions
    groups = [request.domain.sizes[name] for name in question.clique if name != measured(question)]
    return math.prod(groups) * len(_asked(request, given))


def measured(question: Question) -> str:
    """The attribute whose quantiles a question asks."""
    return question.clique[question.kinds.index("prefix")]


def _labels(groups: Sequence[Attribute], quantiles: int, by: object) -> list[str]:
    """The columns of the groups, in the order of ``by``, or else in the domain's."""
    found: dict[str, str] = {}
    stride = quantiles
    for group in reversed(groups):
        labels = array(group.column_type, group.labels())
        found[group.name] = f"({labels})[i // {stride} % {group.size} + 1] AS {quote(group.name)}"
        stride *= group.size
    spelled = {name.lower(): name for name in found}
    names = [spelled[name.lower()] for name in (by if isinstance(by, list) else [by] if isinstance(by, str) else ())]
    return [found[name] for name in names or [group.name for group in groups]]


def describe(question: Question) -> str:
    """What is asked in a few words: 'age quantiles by sex'."""
    attribute = measured(question)
    groups = [name for name in question.clique if name != attribute]
    return f"{attribute} quantiles" + (f" by {', '.join(groups)}" if groups else "")


FUNCTION = register_kind(
    Kind(
        name="dp_quantiles",
        argument="attribute",
        recognises=recognises,
        questions=questions,
        rows=rows,
        describe=describe,
        dataset=dataset,
        domain=domain,
        chosen=chosen,
        own=(SELECT,),
    )
)
