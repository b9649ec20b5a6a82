"""precision := 50 in place of a budget: the least one at which each count and sum of a call has at most that standard deviation."""

import math
import re
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING

import numpy as np

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.answers import direct_plan, plan, price
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.noise.kinds import NOISES
from duckdb_dp.plan.choose import FITTED
from duckdb_dp.request import SELECT, Request
from duckdb_dp.sql.arguments import Arguments
from duckdb_dp.sum_names import sum_name

if TYPE_CHECKING:
    from duckdb_dp.plan.direct import DirectPlan

WORDS = ("precision", "target_stddev")
"""The argument, and its older name in dp_explain."""

_NUMBER = r"(\d[\d,_]*(?:\.\d+)?)"

DIGITS = 9
"""Of the budget, which is rounded up: another build of a solver must not change what the call is."""


def asked(arguments: Arguments) -> str | None:
    """The argument that says a precision; None where none does."""
    return next((word for word in WORDS if arguments.get(word) is not None), None)


def wanted(arguments: Arguments, word: str) -> float:
    """The standard deviation that a call asks for: 50, or '5% of 1000' of an answer of that size.

    Raises:
        DPError: there is a budget too, or it is none.
    """
    target = arguments[word]
    if any(arguments.get(one) is not None for one in ("epsilon", "rho", "mu")):
        raise DPError(f"give a budget or {word}, not both: {word} asks which budget is needed.")
    if isinstance(target, str):
        return _relative(target, word)
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target < math.inf:
        raise DPError(
            f"{word} is {as_sql(target)}; it is a positive number, the largest standard deviation: {word} := 50, or "
            f"{word} := '5% of 1000' of an answer of 1000."
        )
    return float(target)


def _relative(text: str, word: str) -> float:
    """A share of an answer of a size that is typed, as the answers themselves are not known before."""
    found = re.fullmatch(rf"\s*{_NUMBER}\s*%\s*of\s*{_NUMBER}\s*", text, re.IGNORECASE)
    share, size = (float(each.replace(",", "").replace("_", "")) for each in found.groups()) if found else (0.0, 0.0)
    if "%" not in text:
        raise DPError(
            f"{word} is {as_sql(text)}; it is a positive number, or a share of a size: {word} := '5% of 1000'."
        )
    if not 0 < share * size < math.inf:
        raise DPError(
            f"{word} is {as_sql(text)}; the answers are not known before, so say of which size it is a share: {word} := '5% of 1000' is "
            "a standard deviation of 50."
        )
    return share / 100 * size


def scaled(arguments: Arguments, accounting: Accounting, stddev: Callable[[Arguments], float]) -> Arguments:
    """The arguments of a call whose noise has one standard deviation, with the budget that its precision needs, if it has one.

    Args:
        arguments: of the call.
        accounting: of its dataset.
        stddev: of a call with a budget, inversely proportional to ``accounting.argument``.

    Raises:
        DPError: there is a budget too, or the precision is none.

    Privacy: costs nothing; depends on declarations and the call only.
    """
    word = asked(arguments)
    if word is None:
        return arguments
    target = wanted(arguments, word)
    if arguments.get("delta") is not None:
        raise DPError(f"{word} takes no delta, which would be a second budget; leave it out.")
    ratio = stddev({**arguments, word: None, accounting.argument: 1.0, "delta": None}) / target
    return {**arguments, word: None, "delta": None, accounting.argument: _rounded(ratio)}


def refuse(arguments: Arguments, why: str) -> Arguments:
    """The arguments of a call whose errors depend on the data, without the place of a precision.

    Raises:
        DPError: it has one.
    """
    if asked(arguments) is not None:
        raise DPError(f"precision has no meaning here: {why}; type a budget, such as epsilon := 1.")
    return {name: value for name, value in arguments.items() if name not in WORDS}


def _rounded(cost: float) -> float:
    return float(Context(prec=DIGITS, rounding=ROUND_CEILING).create_decimal(cost))


def budgeted(arguments: Arguments, accounting: Accounting, request_of: Callable[[Arguments], Request]) -> Arguments:
    """The arguments of a call with the budget that its precision needs; as they are where none is given.

    With Gaussian noise sigma falls as 1 / mu, and with Laplace noise as 1 / epsilon: one plan at mu = 1, or epsilon = 1, tells.

    Args:
        arguments: of the call.
        accounting: of its dataset.
        request_of: what a call with these arguments asks.

    Raises:
        DPError: there is a budget too, the precision is no number, or the error depends on the data.

    Privacy: costs nothing; depends on declarations and the call only.
    """
    word = asked(arguments)
    if word is None:
        return arguments
    target = wanted(arguments, word)
    request = request_of({**arguments, accounting.argument: 1.0, "delta": None})
    ratio = max(_stddevs(request, word)) / target
    noise = (direct_plan(request) if request.direct else plan(request)).noise
    if NOISES[noise].pure and not accounting.pure:
        typed = accounting.typed(accounting.laplace_cost(ratio * price(request).epsilon * request.max_rows))
    else:
        typed = {accounting.argument: ratio}
    return {**arguments, "delta": None, **{name: _rounded(cost) for name, cost in typed.items()}}


def _stddevs(request: Request, word: str) -> Iterator[float]:
    """The standard deviation of each count, sum and rank that is answered.

    Raises:
        DPError: one depends on the data.
    """
    if request.adaptive:
        raise DPError(f"{word}: the error of mechanism '{request.mechanism}' depends on the data; use 'auto'.")
    if request.mechanism == SELECT:
        raise DPError(
            f"{word}: selected quantiles have no standard deviation; mechanism := 'hdmm' reads them off counts that have."
        )
    if request.objective == FITTED:
        raise DPError(
            f"{word}: with objective 'fitted' errors do not fall as the noise; use 'total' or 'max', or a budget."
        )
    direct = direct_plan(request) if request.direct else None
    counts = plan(request) if direct is None else direct.planned
    if counts is not None:
        yield from (float(np.max(counts.stddev(index))) for index in range(len(request.questions)))
    if direct is not None:
        answered = _answered(direct)
        if not answered and counts is None:
            raise DPError(
                f"{word}: the error of an average or another expression depends on how many rows there are, which is not known before; "
                "select count(*) too, whose error it then says, or type a budget, such as epsilon := 1."
            )
        for weights in answered:
            known = {index: direct.known_stddev(index) for index in weights}
            if (unknown := next((index for index, stddev in known.items() if stddev is None), None)) is not None:
                raise DPError(f"{word}: {_unknown(direct, unknown)}")
            yield math.sqrt(math.fsum((weights[index] * (stddev or 0.0)) ** 2 for index, stddev in known.items()))


def _answered(planned: "DirectPlan") -> list[dict[int, float]]:
    """The sums that make up each answer that is linear in them, by their numbers, with their factors; and each count and quantile alone.

    A sum inside an average, a variance or another expression has no error of its own that is seen.
    """
    from duckdb_dp.sql import linear  # for import time: it brings sqlglot

    found: list[dict[int, float]] = []
    first = 0
    for part in planned.parts:
        linear_ones = filter(None, map(linear.weights, part.outputs))
        found += [{first + index: factor for index, factor in weights.items()} for weights in linear_ones]
        # Of counts inside expressions too, where anything is an answer itself.
        counts = [{first + i: 1.0} for i, one in enumerate(part.sums) if one.counts or one.kind == "quantile"]
        alone = any(one.kind == "quantile" for one in part.sums)
        found += counts if found or alone else []
        first += len(part.sums)
    return found


def _unknown(planned: "DirectPlan", index: int) -> str:
    clip = planned.clip_of(sum_name(index))
    if clip is not None and clip.chosen:
        return (
            "the error of an answer whose bound on a unit is chosen depends on the data; add max_rows := 5, say, or clip := 5, or type "
            "a budget."
        )
    if planned.select:
        return "selected quantiles have no standard deviation; leave out mechanism := 'select'."
    return (
        "the error of a sum whose bounds are chosen depends on the data; declare the bounds, or write them: "
        "sum(x) FILTER (WHERE x BETWEEN 0 AND 100)."
    )
