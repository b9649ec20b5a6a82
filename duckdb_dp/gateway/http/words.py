"""What a price is, in the words of its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa

from duckdb_dp.gateway.http.pictures import spread
from duckdb_dp.gateway.pricing import FREE, PAID, unit


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a statement would cost: a sentence for each call, and whether it may be asked."""

    sentences: list[str]
    share: float
    fits: bool
    waits: bool


def price(rows: Sequence[Mapping[str, Any]]) -> Price:
    """The words of the rows of ``Session.price``."""
    calls = _calls(rows)
    firsts = [group[0] for group in calls]
    return Price(
        sentences=[_sentence(group) for group in calls],
        share=sum(row["share_of_grant"] or 0.0 for row in firsts),
        fits=all(row["fits"] is not False for row in firsts),
        waits=any(row["waits"] for row in firsts),
    )


def expected(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """For a steward: the error of each call, and what it takes of the dataset's budget."""
    found = []
    for group in _calls(rows):
        said = _error(group).removeprefix("; ")
        parts = [said[:1].upper() + said[1:] or "Its error is not known before"]
        if group[0]["share_of_budget"] is not None:
            parts.append(f"{share(group[0]['share_of_budget'])} of the budget of {group[0]['dataset']}")
        found.append("; ".join(parts) + ".")
    return found


def in_full(prices: pa.Table) -> pa.Table:
    """The rows of a price without columns that say nothing; the calls of a statement, which is above them, by their numbers."""
    calls = [*dict.fromkeys(prices["call"].to_pylist())]
    numbers = pa.array([calls.index(each) + 1 for each in prices["call"].to_pylist()])
    found = prices.set_column(0, "call", numbers)
    telling = [name for name in found.column_names if found[name].null_count < found.num_rows]
    return found.select(telling if len(calls) > 1 else telling[1:])


def _calls(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        calls.setdefault(row["call"], []).append(row)
    return list(calls.values())


def _error(group: Sequence[Mapping[str, Any]]) -> str:
    """'; each answer ± 21'; nothing where nothing is known before. Errors in other units are said apart."""
    known = [row for row in group if row["half_width"] is not None]
    ranks = [row["half_width"] for row in known if row["error_in"]]
    halves = [row["half_width"] for row in known if not row["error_in"] and not row["part_of"]]
    parts = [row["half_width"] for row in known if row["part_of"] and str(row["answer"]).startswith("sum(")]
    said = [f"each {'answer' if len(halves) == len(known) else 'count or sum'} {spread(halves)}"] if halves else []
    places = next((row["error_in"] for row in known if row["error_in"]), "")
    said += [f"each quantile within {spread(ranks).replace('± ', '')} {places}, not in values"] if ranks else []
    over = "an average of n rows about"
    said += (
        [f"{over} {spread(parts)} / n" if len({*parts}) == 1 else f"{over} its sum's {spread(parts)}, over n"]
        if parts
        else []
    )
    if not said and group[0]["epsilon"] and any(row["answer"] for row in group):
        said.append("its error depends on the data, as on bounds that are chosen, and is not known before")
    return "".join(f"; {each}" for each in said)


def _sentence(group: Sequence[Mapping[str, Any]]) -> str:
    first = group[0]
    error = _error(group)
    if first["epsilon"] == 0:
        said = {FREE: "This costs nothing.", PAID: "You have paid this already: it costs nothing."}
        return said.get(first["note"], f"This {first['note']}.")
    left = "" if first["share_of_left"] is None else f", {share(first['share_of_left'])} of what is left"
    if first["share_of_grant"] is not None:
        note = f"; {first['note']}" if first["note"] and first["note"] != unit(first) else ""
        return f"This costs {share(first['share_of_grant'])} of your budget for {first['dataset']}{left}{error}{note}."
    return f"This costs epsilon {number(first['epsilon'])}{error}."


def share(value: float | None) -> str:
    """'4 %'; nothing of None."""
    if value is None:
        return ""
    found = 100 * value
    if 0 < found < 0.1:
        return "less than 0.1 %"
    return f"{found:.1f} %".replace(".0 %", " %") if found < 10 else f"{found:.0f} %"


def number(value: float | None) -> str:
    """In three digits; nothing of None."""
    return "" if value is None else f"{value:.3g}"
