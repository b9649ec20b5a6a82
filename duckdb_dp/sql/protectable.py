"""Whether a view can be protected: whether the rows of one unit can change those of another, as far as its text shows."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import duckdb

from duckdb_dp.errors import DPError
from duckdb_dp.sql.lineage import (
    Node,
    Texts,
    Unreadable,
    arguments,
    constant,
    inner,
    own_functions,
    parsed,
    reads,
    text_of,
)
from duckdb_dp.synthesis.database import Name

RANDOM = frozenset({
    "random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval", "currval", "setseed",
})  # fmt: skip
"""Functions whose value is no function of the row."""

WHOLE = frozenset({"stats", "getvariable", "histogram", "histogram_values"})
"""Functions that look at more than a row."""

PLACES = frozenset({"rowid", "file_row_number"})
"""Columns that say where a row stands."""

CATALOGS = ("duckdb_", "pragma_", "sqlite_master", "histogram")
"""Beginnings of table functions that show catalogs or statistics."""

SETS = ("SET_OPERATION_NODE", "RECURSIVE_CTE_NODE")

Unit = Sequence[set[str]]
"""For each column that names the unit, all names that it has on its way through a view."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The result of examining a view that is to be protected.

    Attributes:
        never: reasons why one unit's rows may change another's; none if the view can be protected.
        notes: why one unit may have more influence than declared, with what to write instead.
    """

    never: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def examine(known: Texts, name: Name, unit: Sequence[str], is_public: Callable[[str], bool]) -> Examined:
    """Look through a view, and through the views and macros that it is made of.

    Args:
        known: tables, views and macros.
        name: the view; a table has no notes.
        unit: columns that name the unit; none where each row is one.
        is_public: whether the last part of a table's name can only mean public rows.
    """
    text = text_of(known, name)
    if text is None:
        return Examined()
    try:
        found = list(trees_of(known, text))
    except Unreadable:
        return Examined(notes=(f"the text of '{name[2]}' cannot be read, nor what one person changes in it",))
    trees, of_macros = [tree for tree, _ in found], [of_macro for _, of_macro in found]
    selects = [node for tree in trees for node in _of_type(tree, "SELECT_NODE")]
    names = [_aliases(selects, column.lower()) for column in unit]

    def private(node: Any) -> bool:
        """Whether a piece reads rows that were not declared public."""
        try:
            return not all(map(is_public, reads(node, known)))
        except Unreadable:
            return True

    never, notes = list[str](), list[str]()
    for tree, of_macro in zip(trees, of_macros, strict=True):
        never += _hidden(tree)
        for node in walk(tree):
            if node.get("type") in SETS and private(node):
                never += _cut(node, names)
                notes += _sets(node, names)
            if node.get("type") == "SELECT_NODE" and (of_macro or private({"from_table": node.get("from_table")})):
                never += [*_cut(node, names), *_never(node, names)]
                notes += _several(node, names, private)
    return Examined(never=tuple(dict.fromkeys(never)), notes=tuple(dict.fromkeys(notes)))


def trees_of(known: Texts, text: str) -> Iterator[tuple[Node, bool]]:
    """The parsed text, and those of all views and macros that it names and of queries as text; whether it is a macro's.

    A macro's expression reads its arguments, which its own text does not show. Of a name that several schemas have, all are meant.
    """
    left, seen = [(text, False)], set[tuple[str, bool]]()
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        found, of_macro = one
        tree = parsed(found)
        yield tree, of_macro
        for part in walk(tree):
            for key in ("table_name", "function_name"):
                named = str(part.get(key, "")).lower()
                left += [(inside, key == "function_name") for _, inside in known.get(named, ()) if inside]
            if name_of(part) == "query" and (query := constant(next(iter(arguments(part)), None))) is not None:
                left.append((query, False))


def _hidden(tree: Node) -> Iterator[str]:
    """Functions that show other rows, or positions of rows, without a group or a window."""
    for part in walk(tree):
        if part.get("type") == "SHOW_REF":
            yield "SUMMARIZE, which shows statistics of all rows"
        if name_of(part) in WHOLE:
            yield f"{name_of(part)}(...), which shows statistics of all rows, or what is no row"
        if part.get("class") == "COLUMN_REF" and str(part["column_names"][-1]).lower() in PLACES:
            yield f"{part['column_names'][-1]}, which says where a row stands among others"
        if part.get("type") == "TABLE_FUNCTION" and part["function"]["function_name"].lower().startswith(CATALOGS):
            yield f"{part['function']['function_name']}(...), which shows catalogs or statistics"
        if name_of(part) in ("query", "query_table") and constant(next(iter(arguments(part)), None)) is None:
            yield f"{name_of(part)}(...) of an expression, which cannot be read"


def _cut(node: Node, unit: Unit) -> Iterator[str]:
    """Clauses of a query that take another row if one is removed, such as LIMIT."""
    modifiers = {modifier["type"]: modifier for modifier in node.get("modifiers") or ()}
    if any(name.startswith("LIMIT") for name in modifiers):
        yield "LIMIT or a sample, which takes another row where one is gone"
    distinct = modifiers.get("DISTINCT_MODIFIER", {}).get("distinct_on_targets")
    if distinct and not _by_unit([_plain(target) for target in distinct], unit):
        yield "DISTINCT ON, which takes another row where one is gone"


def _sets(node: Node, unit: Unit) -> Iterator[str]:
    """Why a set operation or a recursion may change other people's rows."""
    if node["type"] == "RECURSIVE_CTE_NODE":
        yield "a recursive query, in which one person's rows may lead to others'"
    elif str(node.get("setop_type", "")).startswith(("EXCEPT", "INTERSECT")):
        yield f"{node['setop_type']}, by which a row may go or stay for another person's"
    elif not unit:
        yield "a UNION, in which one person may have several rows"


def walk(node: Any) -> Iterator[Node]:
    """All pieces of a parsed text."""
    if isinstance(node, dict):
        yield node
    for part in inner(node):
        yield from walk(part)


def _of_type(node: Any, kind: str) -> Iterator[Node]:
    return (part for part in walk(node) if part.get("type") == kind)


def _expressions(select: Node) -> Iterator[Node]:
    """The expressions of one SELECT; of a query inside one nothing but itself."""
    left: list[Any] = [part for key, part in select.items() if key not in ("from_table", "cte_map")]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            if node.get("class") == "SUBQUERY":
                continue
        left += inner(node)


def _never(select: Node, unit: Unit) -> Iterator[str]:
    """Why in one SELECT a unit's rows may change another's."""
    if any(part.get("sample") for part in (select, *walk(select.get("from_table")))):
        yield "LIMIT or a sample, which takes another row where one is gone"
    if any(name_of(part) in RANDOM for part in _expressions(select)):
        yield "a random value or a sequence, which is no function of the rows"
    if any(join.get("ref_type") == "POSITIONAL" for join in _of_type(select.get("from_table"), "JOIN")):
        yield "a positional join, which moves all rows where one is gone"
    keys = _keys(select)
    if keys is not None and not _by_unit(keys, unit) and not _correlated(select, unit):
        yield "groups of several people's rows (GROUP BY, or an aggregate)"
    for window in (part for part in _expressions(select) if part.get("class") == "WINDOW"):
        if not _by_unit([_plain(partition) for partition in window.get("partitions") or ()], unit):
            yield "a window over several people's rows"
    if any(pivot.get("aggregates") for pivot in _of_type(select.get("from_table"), "PIVOT")) and not unit:
        yield "groups of several people's rows (PIVOT)"


def _several(select: Node, unit: Unit, private: Callable[[Any], bool]) -> Iterator[str]:
    """Why in one SELECT a unit may have more than one row, or share rows with other units."""
    for join in _of_type(select.get("from_table"), "JOIN"):
        if not unit:
            yield "a join, in which one person may have several rows"
        elif (
            not all(_joined_by(join, names) for names in unit)
            and private({"left": join["left"]})
            and private({"right": join["right"]})
        ):
            yield "a join that is not by the unit: a row may be of several of them"
    if any(part.get("class") == "SUBQUERY" and private(part) for part in _expressions(select)):
        yield "a subquery in an expression: whether a row is there may depend on others' rows"
    pivots = [pivot for pivot in _of_type(select.get("from_table"), "PIVOT") if pivot.get("unpivot_names")]
    if not unit and (pivots or any(name_of(part) == "unnest" for part in _expressions(select))):
        yield "unnest or UNPIVOT, by which one row becomes several"


def _joined_by(join: Node, names: set[str]) -> bool:
    """Whether both sides of a join are of one unit: it is USING, or an equality that every row of the result keeps."""
    if {name.lower() for name in join.get("using_columns") or ()} & names:
        return True
    left: list[Any] = [join.get("condition")]
    while left:
        node = left.pop()
        if isinstance(node, dict) and node.get("type") == "CONJUNCTION_AND":
            left += node.get("children") or ()
        if isinstance(node, dict) and node.get("type") == "COMPARE_EQUAL":
            sides = [node.get("left"), node.get("right")]
            if all(_plain(side) & names for side in sides):
                return True
    return False


def _keys(select: Node) -> list[set[str]] | None:
    """The columns of each expression that rows are grouped by; None where they are not grouped."""
    items = select.get("select_list") or []
    grouped = [item for item in items if _aggregates(item)]
    expressions = select.get("group_expressions") or []
    sets = select.get("group_sets") or []
    by_all = select.get("aggregate_handling") == "FORCE_AGGREGATES"
    if not (grouped or expressions or by_all or any(map(_aggregates, [select.get("having")]))):
        return None
    if len(sets) > 1:
        return []  # CUBE and the like: some of the groups are without the unit
    if by_all:
        return [_called(item) for item in items if item not in grouped]
    return [_called(_meant(expression, items)) for expression in expressions]


def _called(item: Any) -> set[str]:
    """The columns that an item names; of an expression with a name of its own, that name."""
    alias = str(item.get("alias", "")).lower() if isinstance(item, dict) else ""
    return {alias} if alias and item.get("class") != "COLUMN_REF" else _plain(item)


def _meant(expression: Node, items: Sequence[Node]) -> Any:
    """What a group expression stands for: GROUP BY 2 is the second column."""
    if expression.get("class") != "CONSTANT":
        return expression
    text = expression["literal"].get("text") if "literal" in expression else expression["value"].get("value")
    place = int(text) if str(text).isdigit() else 0
    return items[place - 1] if 1 <= place <= len(items) else expression


def _aggregates(item: Any) -> bool:
    found = [part for part in _expressions({"item": item}) if part.get("class") == "FUNCTION"]
    return any(name_of(part) in aggregates() for part in found)


@cache
def aggregates() -> frozenset[str]:
    """DuckDB's own functions of several rows, and its macros that call one."""
    found = {name for name, kinds in own_functions().items() if "aggregate" in kinds and "scalar" not in kinds}
    with duckdb.connect() as con:
        macros = con.execute(
            "SELECT lower(function_name), macro_definition FROM duckdb_functions() WHERE macro_definition IS NOT NULL"
        ).fetchall()
    calls = {name: set(re.findall(r"(\w+)\"?\(", text.lower())) for name, text in macros}
    while more := {name for name, called in calls.items() if called & found} - found:
        found |= more
    return frozenset(found)


def _by_unit(keys: Sequence[set[str]], unit: Unit) -> bool:
    """Whether each column of the unit is one of the keys."""
    return bool(unit) and all(any(len(key) == 1 and key & names for key in keys) for names in unit)


def _correlated(select: Node, unit: Unit) -> bool:
    """Whether the rows of a subquery are those of the unit outside: its unit equals that of a table outside."""
    within = {str(part.get("alias") or part.get("table_name", "")).lower() for part in walk(select.get("from_table"))}

    def outside(node: Any, names: set[str]) -> bool | None:
        if not isinstance(node, dict) or node.get("class") != "COLUMN_REF" or not columns_of(node) & names:
            return None
        return len(node["column_names"]) > 1 and str(node["column_names"][-2]).lower() not in within

    equal = list(_of_type(select.get("where_clause"), "COMPARE_EQUAL"))
    return bool(unit) and all(
        any({outside(part.get("left"), names), outside(part.get("right"), names)} == {True, False} for part in equal)
        for names in unit
    )


def name_of(part: Node) -> str:
    """The name of the function that a piece calls, in small letters; '' of others."""
    return str(part.get("function_name", "")).lower()


def columns_of(node: Any) -> set[str]:
    """Last parts of the columns that an expression names."""
    return {str(part["column_names"][-1]).lower() for part in walk(node) if part.get("class") == "COLUMN_REF"}


def _plain(node: Any) -> set[str]:
    """The last part of a column; nothing of an expression, which may be the same for several people."""
    return columns_of(node) if isinstance(node, dict) and node.get("class") == "COLUMN_REF" else set()


def _aliases(selects: Sequence[Node], column: str) -> set[str]:
    """All names that a column has on its way through SELECTs."""
    pairs = [
        (str(item["alias"]).lower(), str(item["column_names"][-1]).lower())
        for select in selects
        for item in select.get("select_list") or ()
        if item.get("class") == "COLUMN_REF" and item.get("alias")
    ]
    found = {column}
    while more := {column for alias, column in pairs if alias in found} - found:
        found |= more
    return found


def check(known: Texts, name: Name, unit: Sequence[str], is_public: Callable[[str], bool]) -> list[str]:
    """Notes on a view that shall be protected.

    Raises:
        DPError: one unit's rows may change another's in it.
    """
    found = examine(known, name, unit, is_public)
    if found.never:
        what = f"by {', '.join(map(repr, unit))}" if unit else "with one row as one person"
        raise DPError(
            f"'{name[2]}' cannot be protected {what}: it has {found.never[0]}. Protect the table that it reads, or a view that "
            "selects, filters and joins rows, and groups only by a column that is its unit := '...'"
        )
    remedy = "" if unit else "; name whose rows they are: unit := '...', max_rows := ..."
    return [f"the view has {note}{remedy}" for note in found.notes]
