"""dp_queries: from a list of {attribute: kind} entries to questions."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from duckdb_dp.domain.attribute import DOMAINS, Attribute
from duckdb_dp.domain.predicate import attributes_of, cells_where, parse_condition
from duckdb_dp.domain.queries import KINDS, PAIR_KINDS
from duckdb_dp.errors import DPError, as_sql, few, quoted
from duckdb_dp.request import Question


def parse_entries(declared: Mapping[str, Attribute], asked: object) -> list[Question]:
    """One question per entry.

    Args:
        declared: the dataset's attributes.
        asked: a list of structs {attribute: kind, ..., 'weight': number}. A kind is a name, or a list of SQL conditions;
            {'a+b': ...} asks on the joint cells of two attributes. NULL fields are ignored: DuckDB fills them in where
            the structs of a list have different fields.

    Raises:
        DPError: an unknown attribute or kind, an empty entry, or a condition that cannot be decided.
    """
    entries = [asked] if isinstance(asked, dict) else asked
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise DPError(f"the queries are {as_sql(asked)}; write a list such as [{{'age': 'range', 'sex': 'identity'}}].")
    return [_question(declared, entry) for entry in entries]


def _question(declared: Mapping[str, Attribute], entry: Mapping[str, Any]) -> Question:
    given = {key: kind for key, kind in entry.items() if kind is not None}
    weight = given.pop("weight", 1.0) if isinstance(given.get("weight"), int | float) else 1.0
    if isinstance(weight, bool):
        raise DPError(f"weight is {as_sql(weight)}; it is a positive number, e.g. 'weight': 2.")
    pairs = [key for key in given if "+" in key and _named(declared, key) is None]
    if pairs:
        if len(given) > 1:
            raise DPError(f"{as_sql(pairs[0])} stands in an entry with others; give it an entry of its own.")
        return _joint(declared, pairs[0], given[pairs[0]], float(weight))
    found: dict[str, tuple[Any, list[str]]] = {}
    for key, kind in given.items():
        attribute = _known(declared, key)
        found[attribute.name] = _kind(attribute, kind)
    clique = tuple(name for name in declared if name in found)
    return Question(
        clique=clique,
        kinds=tuple(found[name][0] for name in clique),
        weight=float(weight),
        predicates=tuple((name, text) for name in clique for text in found[name][1]),
    )


def _kind(attribute: Attribute, kind: object) -> tuple[Any, list[str]]:
    """(kind, texts of its conditions) for one attribute."""
    if isinstance(kind, str) and (kind in KINDS or re.fullmatch(r"width[- ]\d+|hierarchy[- ]\d+", kind)):
        return kind, []
    if isinstance(kind, str) and re.fullmatch(r"[\w -]+", kind) and attribute.type != "BOOLEAN":
        raise DPError(
            f"{as_sql(kind)} is no kind of query on '{attribute.name}'; use {', '.join(KINDS)}, or a list of SQL conditions."
        )
    return _conditions([kind] if isinstance(kind, str) else kind, [attribute])


def _joint(declared: Mapping[str, Attribute], key: str, kind: object, weight: float) -> Question:
    attributes = [_known(declared, name.strip()) for name in key.split("+")]
    ordered = [attribute for attribute in declared.values() if attribute in attributes]
    clique = tuple(attribute.name for attribute in ordered)
    if isinstance(kind, str) and kind in PAIR_KINDS:
        if len(ordered) != 2:
            raise DPError(f"{as_sql(kind)} is asked of two attributes, as 'a+b'; found {as_sql(key)}.")
        return Question(clique=clique, kinds=(kind,), joint=True, weight=weight)
    matrix, texts = _conditions([kind] if isinstance(kind, str) else kind, ordered)
    return Question(
        clique=clique, kinds=(matrix,), joint=True, weight=weight, predicates=tuple(("", text) for text in texts)
    )


def _conditions(kind: object, attributes: Sequence[Attribute]) -> tuple[tuple[tuple[float, ...], ...], list[str]]:
    names = few((repr(attribute.name) for attribute in attributes), " and ")
    if not isinstance(kind, list) or not kind or not all(isinstance(text, str) for text in kind):
        raise DPError(
            f"the queries on {names} are {as_sql(kind)}; write one of {', '.join(KINDS)}, or a list of SQL conditions."
        )
    known = {attribute.name: attribute for attribute in attributes}
    rows = []
    for text in kind:
        condition = parse_condition(text)
        attributes_of(condition, known)
        mask = cells_where(condition, attributes)
        if not mask.any():
            raise DPError(f"{as_sql(text)}: no declared cell satisfies it, so the answer is 0 without a query.")
        rows.append(tuple(mask.reshape(-1).astype(float).tolist()))
    return tuple(rows), kind


def _named(declared: Mapping[str, Attribute], name: str) -> Attribute | None:
    return next((attribute for attribute in declared.values() if attribute.name.lower() == name.lower()), None)


def _known(declared: Mapping[str, Attribute], name: str) -> Attribute:
    found = _named(declared, name)
    if found is None:
        raise DPError(
            f"'{name}' has no declared domain (declared so far: {few(declared) or 'none'}). "
            f"Declare it: CALL dp_attribute('my_table', {quoted(name)}, ...) with {DOMAINS}."
        )
    return found
