"""The SQL of groups whose values the statement itself finds: it charges, and knows how many there are when they are found."""

import math
from collections.abc import Sequence

from duckdb_dp.counting.encode import array, literal, quote
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.grouped_sums import GroupedSums, Label
from duckdb_dp.request import Request
from duckdb_dp.sql import render, unknown_values
from duckdb_dp.sql.found_groups import Found, base
from duckdb_dp.sql.signing import signed

LABELS = "_dp_found"
"""CTEs of the values, with a number: _dp_v, their bytes, and _dp_p, their places. No column that is read is called so."""


def ctes(found: Found, request: Request, unit_key: str) -> list[str]:
    """CTEs ``_dp_found<i>`` of the values, which charge and find them when the statement runs, and ``found(found)``: their releases."""
    made = []
    for i, (asked, stored) in enumerate(zip(found.requests, found.stored, strict=True)):
        if stored is not None:
            made.append(f"found{i} AS MATERIALIZED (SELECT {literal(str(stored.id))} AS found{i})")
            continue
        made.append(f"held{i} AS MATERIALIZED ({unknown_values.held(asked, unit_key)})")
        lists = "SELECT coalesce(list(v ORDER BY v), []) AS v, coalesce(list(n ORDER BY v), []) AS n"
        # One after the other: else DuckDB chooses an order by what the tables hold, and the ledger would show it.
        after = f", found{i - 1}" if i else ""
        call = f"_dp_run_found({signed(asked)}, {signed(request)}, v, n)"
        made.append(render.checked(f"found{i}", f"SELECT {call} AS text FROM ({lists} FROM held{i}){after}"))
    handles = " || ',' || ".join(f"found{i}" for i in range(len(found.requests)))
    sources = ", ".join(f"found{i}" for i in range(len(found.requests)))
    made.append(f"found AS MATERIALIZED (SELECT {handles} AS found FROM {sources})")
    for i, (name, placeholder) in enumerate(found.placeholders.items()):
        values = f"_dp_found_values({signed(request)}, found, {literal(name)})"
        as_held = unknown_values.value_bytes(placeholder.type, "held")  # 0.5 is 0.50 where a column has two decimals
        made.append(
            f"{LABELS}{i} AS MATERIALIZED (SELECT {as_held} AS _dp_v, _dp_p "
            "FROM (SELECT unnest(held) AS held, unnest(range(len(held))) AS _dp_p "
            f"FROM (SELECT {values} AS held FROM found)))"
        )
    return made


def coded(names: Sequence[str], attributes: Sequence[Attribute]) -> tuple[list[str], list[str]]:
    """SQL of the cells of columns whose values are found, and of how many cells they have.

    The cell is the place of the value, or the last one: NULL of other values where these are no group, unless none is found.
    """
    codes, sizes = [], []
    for attribute in attributes:
        known = f"{LABELS}{names.index(attribute.name)}"
        value = unknown_values.value_bytes(attribute.type, quote(attribute.name))
        rest = f"SELECT count(*) FROM {known}"
        rest = rest if attribute.other else f"SELECT CASE WHEN ({rest}) = 0 THEN 0 END"
        codes.append(f"coalesce((SELECT _dp_p FROM {known} WHERE _dp_v = {value}), ({rest}))")
        sizes.append(_size(names, attribute))
    return codes, sizes


def groups(request: Request, part: GroupedSums, names: Sequence[str]) -> str:
    """SQL of how many groups there are."""
    later = [name for name in names if name in part.clique]
    if not later:
        return str(part.size)
    sizes = [_size(names, one) for one in request.attributes if one.name in later]
    return " * ".join([str(base(part, request, later).size), *sizes])


def label(request: Request, part: GroupedSums, names: Sequence[str], one: Label) -> str:
    """SQL of a label of the i-th group: the values of columns that were found vary fastest."""
    later = [name for name in names if name in part.clique]
    attributes = {attribute.name: attribute for attribute in request.attributes}
    if one.attribute in later:
        width = "".join(f" // {_size(names, attributes[name])}" for name in later[later.index(one.attribute) + 1 :])
        place = f"i{width} % {_size(names, attributes[one.attribute])}"
        known = f"{LABELS}{names.index(one.attribute)}"
        text = f"(SELECT decode(_dp_v) FROM {known} WHERE _dp_p = {place})"
        if one.type != "VARCHAR":
            return f"TRY_CAST({text} AS {one.type})"
        return f"coalesce({text}, {other_label(names, one.attribute)})"
    before = base(part, request, later)
    place = "i" + "".join(f" // {_size(names, attributes[name])}" for name in later)
    if before.groups is not None:
        values = array("VARCHAR", [None if value is None else str(value) for value in before.labels[one.key]])
        return f"TRY_CAST(({values})[{place} + 1] AS {one.type})"
    clique = [name for name in attributes if name in part.clique and name not in later]
    stride = math.prod(attributes[name].size for name in clique[clique.index(one.attribute) + 1 :])
    attribute = attributes[one.attribute]
    return f"({array(one.type, attribute.labels())})[{place} // {stride} % {attribute.size} + 1]"


def other_label(names: Sequence[str], name: str) -> str:
    """SQL of what the rest is called: 'other', and in brackets, as ``Attribute.other_label``, where the values have that too."""
    called = ["other", "(other)", "((other))"]
    values = f"(SELECT decode(_dp_v) FROM {LABELS}{names.index(name)} WHERE _dp_v IS NOT NULL)"
    cases = " ".join(f"WHEN {literal(each)} NOT IN {values} THEN {literal(each)}" for each in called)
    return f"CASE {cases} ELSE '(((other)))' END"


def _size(names: Sequence[str], attribute: Attribute) -> str:
    many = "count(*) + 1" if attribute.other else "greatest(count(*), 1)"
    return f"(SELECT {many} FROM {LABELS}{names.index(attribute.name)})"
