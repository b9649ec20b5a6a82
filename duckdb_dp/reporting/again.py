"""The SQL that asks a request again, or reads its stored answers."""

import re
from collections.abc import Iterable
from decimal import ROUND_FLOOR, Context
from typing import Any

from duckdb_dp.budget import Budget
from duckdb_dp.counting.encode import literal, quote
from duckdb_dp.errors import DPError
from duckdb_dp.reporting.asked import Row, read_as
from duckdb_dp.request import Question, Request
from duckdb_dp.sql import dp_quantiles
from duckdb_dp.sql.dp_marginals import parse_postprocess

LONGEST = 4_000
"""Characters of SQL that are shown; a longer request is shown by its name alone."""


def reading(request: Request | None, release: Row, postprocess: str | None) -> str:
    """SQL that reads the stored answers again, at no cost."""
    name = literal(release["name"]) if release["name"] else str(release["release"])
    return f"FROM dp_release({', '.join([name, *_unusual(request, postprocess)])});"


def repeating(request: Request, release: Row, postprocess: str | None) -> str | None:
    """SQL of the request itself, to the last digit of its budget; None where only a longer text would do.

    dp_sql keeps what its SELECTs count and not their text.
    """
    dataset = ".".join(_name(part) for part in (request.catalog, request.schema, request.table))
    if request.function == "dp_marginals":
        asked = _marginals(request.cliques)
    elif request.function == "dp_queries":
        asked = _queries(request.questions)
    elif request.function == "dp_quantiles":
        asked = _quantiles(request)
    else:
        return None
    arguments = [literal(dataset), asked, *_named(request, release), *_unusual(request, postprocess)]
    text = f"FROM {request.function}({', '.join(arguments)});"
    return text if len(text) <= LONGEST else None


def _unusual(request: Request | None, postprocess: str | None) -> list[str]:
    """``read_as``, where a call would not read so by itself."""
    if request is None or request.synthetic or parse_postprocess({}, request) == postprocess:
        return []
    return [read_as(postprocess)]


def _marginals(cliques: Iterable[tuple[str, ...]]) -> str:
    lists = [f"[{', '.join(map(literal, clique))}]" for clique in cliques]
    return lists[0] if len(lists) == 1 else f"[{', '.join(lists)}]"


def _queries(questions: Iterable[Question]) -> str:
    entries = [_entry(question) for question in questions]
    return entries[0] if len(entries) == 1 else f"[{', '.join(entries)}]"


def _quantiles(request: Request) -> str:
    (question,) = request.questions
    attribute = dp_quantiles.measured(question)
    groups = [literal(name) for name in question.clique if name != attribute]
    by = f", by := [{', '.join(groups)}]" if groups else ""
    return f"{literal(attribute)}, [{', '.join(map(repr, request.selected or dp_quantiles.QUARTILES))}]{by}"


def _entry(question: Question) -> str:
    names = ["+".join(question.clique)] if question.joint else question.clique
    fields = []
    for name, kind in zip(names, question.kinds, strict=True):
        asked = literal(kind) if isinstance(kind, str) else f"[{', '.join(map(literal, question.texts(name)))}]"
        fields.append(f"{literal(name)}: {asked}")
    if question.weight != 1:
        fields.append(f"'weight': {question.weight:.17g}")
    return f"{{{', '.join(fields)}}}"


def _named(request: Request, release: Row) -> list[str]:
    found = [_budget(request, release)]
    if request.mechanism != "auto":
        found.append(f"mechanism := {literal(request.mechanism)}")
    if request.objective != "total":
        found.append(f"objective := {literal(request.objective)}")
    weights = [question.weight for question in request.questions]
    if request.function == "dp_marginals" and set(weights) != {1.0}:
        found.append(f"weights := [{', '.join(f'{weight:.17g}' for weight in weights)}]")
    for name, value in request.options:
        if name == "quantiles":  # the argument before
            continue
        found.append(f"{name} := {_value(value)}")
    if release["name"]:
        found.append(f"release := {literal(release['name'])}")
    return found


def _budget(request: Request, release: Row) -> str:
    """The shortest budget that costs exactly what was charged."""
    epsilon, delta = release["epsilon"], release["delta"]
    rho = request.accounting.rho(request.cost)
    for digits in range(1, 18):
        if epsilon is not None and delta is not None:
            typed = float(f"{epsilon:.{digits}g}")
            if _costs(request, Budget(epsilon=typed, delta=delta)):
                return f"epsilon := {typed:.{digits}g}, delta := {_plain(delta)}"
        if not request.accounting.pure:
            for word, number in (("rho", rho), ("mu", (2 * rho) ** 0.5)):
                typed = float(f"{number:.{digits}g}")
                if _costs(request, Budget(**{word: typed})):
                    return f"{word} := {typed:.{digits}g}"
    return f"rho := {rho!r}"


def _plain(value: float) -> str:
    """A number to its last digit, 1e-9 and not 1e-09."""
    return re.sub(r"e([+-])0", r"e\1", repr(value))


def _costs(request: Request, budget: Budget) -> bool:
    """Whether a call with that budget is the same request: a cost that is solved for is rounded down to 12 digits."""
    try:
        exact = request.accounting.cost(budget)
    except DPError:
        return False
    floored = float(Context(prec=12, rounding=ROUND_FLOOR).create_decimal(exact))
    return request.cost == (exact if budget.epsilon is None else floored)


def _name(part: str) -> str:
    return part if part.isidentifier() and part.isascii() and part == part.lower() else quote(part)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return f"{value:.17g}" if isinstance(value, float) else literal(value)
