"""dp_queries: from a list of {attribute: kind} entries to the questions of a request."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from duckdb_dp.domain.domain import Attribute, UnknownAttribute
from duckdb_dp.domain.predicate import attributes_of, cells_where, parse_condition
from duckdb_dp.domain.queries import KINDS, PAIR_KINDS
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.request import Question
from duckdb_dp.sql.arguments import outside_the_domain


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
    if isinstance(weight, bool) or ("weight" in given and _named(declared, "weight") is None):
        raise DPError(f"weight is {as_sql(given.get('weight', weight))}; it is a positive number, e.g. 'weight': 2.")
    if not given:
        raise DPError(
            f"the entry {as_sql(entry)} names no attribute; write {{'age': 'range'}}, or {{'age': 'total'}} for the number of "
            "all rows."
        )
    pairs = [key for key in given if "+" in key and _named(declared, key) is None]
    if pairs:
        if len(given) > 1:
            raise DPError(f"{as_sql(pairs[0])} stands in an entry with others; give it an entry of its own.")
        return _joint(declared, pairs[0], given[pairs[0]], float(weight))
    found: dict[str, tuple[Any, list[str]]] = {}
    for key, kind in given.items():
        attribute = _known(declared, key)
        found[attribute.name] = _kind(declared, attribute, kind)
    clique = tuple(name for name in declared if name in found)
    return Question(
        clique=clique,
        kinds=tuple(found[name][0] for name in clique),
        weight=float(weight),
        predicates=tuple((name, text) for name in clique for text in found[name][1]),
    )


def _kind(declared: Mapping[str, Attribute], attribute: Attribute, kind: object) -> tuple[Any, list[str]]:
    """(kind, texts of its conditions) for one attribute."""
    if isinstance(kind, str) and (kind in KINDS or re.fullmatch(r"width[- ]\d+|hierarchy[- ]\d+", kind)):
        return kind, []
    if isinstance(kind, str) and re.fullmatch(r"[\w -]+", kind) and attribute.type != "BOOLEAN":
        raise DPError(
            f"{as_sql(kind)} is no kind of query on '{attribute.name}'; use {', '.join(KINDS)}, or a list of SQL conditions."
        )
    return _conditions(declared, [kind] if isinstance(kind, str) else kind, [attribute])


def _joint(declared: Mapping[str, Attribute], key: str, kind: object, weight: float) -> Question:
    attributes = [_known(declared, name.strip()) for name in key.split("+")]
    ordered = [attribute for attribute in declared.values() if attribute in attributes]
    clique = tuple(attribute.name for attribute in ordered)
    if isinstance(kind, str) and kind in PAIR_KINDS:
        if len(ordered) != 2:
            raise DPError(f"{as_sql(kind)} is asked of two attributes, as 'a+b'; found {as_sql(key)}.")
        return Question(clique=clique, kinds=(kind,), joint=True, weight=weight)
    if isinstance(kind, str) and re.fullmatch(r"[\w -]+", kind) and _named(declared, kind) is None:
        raise DPError(
            f"{as_sql(kind)} is no kind of query on {as_sql(key)}; use {', '.join(PAIR_KINDS)} of two attributes, or a list of "
            "SQL conditions on them."
        )
    matrix, texts = _conditions(declared, [kind] if isinstance(kind, str) else kind, ordered)
    return Question(
        clique=clique, kinds=(matrix,), joint=True, weight=weight, predicates=tuple(("", text) for text in texts)
    )


def _conditions(
    declared: Mapping[str, Attribute], kind: object, attributes: Sequence[Attribute]
) -> tuple[tuple[tuple[float, ...], ...], list[str]]:
    names = few((repr(attribute.name) for attribute in attributes), " and ")
    if not isinstance(kind, list) or not kind or not all(isinstance(text, str) for text in kind):
        raise DPError(
            f"the queries on {names} are {as_sql(kind)}; write one of {', '.join(KINDS)}, or a list of SQL conditions."
        )
    known = {attribute.name: attribute for attribute in attributes}
    rows = []
    for text in kind:
        condition = parse_condition(text)
        try:
            attributes_of(condition, known)
        except UnknownAttribute as error:
            if _named(declared, error.name) is None:
                raise UnknownAttribute(error.name, declared) from None
            tied = "+".join([*known, error.name])
            raise DPError(
                f"{as_sql(text)}: conditions on {names} name {'that alone' if len(known) == 1 else 'those alone'}; for "
                f"'{error.name}' too write {{{as_sql(tied)}: [...]}}."
            ) from None
        mask = cells_where(condition, attributes)
        if not mask.any():
            raise DPError(f"{as_sql(text)}: no declared cell satisfies it. {outside_the_domain(known)}")
        rows.append(tuple(mask.reshape(-1).astype(float).tolist()))
    return tuple(rows), kind


def _named(declared: Mapping[str, Attribute], name: str) -> Attribute | None:
    return next((attribute for attribute in declared.values() if attribute.name.lower() == name.lower()), None)


def _known(declared: Mapping[str, Attribute], name: str) -> Attribute:
    found = _named(declared, name)
    if found is None:
        raise UnknownAttribute(name, declared)
    return found
