"""Whether a view can be protected: what one unit's rows change in it, as far as its text tells."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from duckdb_dp.errors import DPError
from duckdb_dp.relational.schema import Name
from duckdb_dp.sql.lineage import Node, Texts, Unreadable, inner, own_functions, parsed, reads, text_of

RANDOM = frozenset({
    "random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval", "currval", "setseed",
})  # fmt: skip
"""Functions whose value is no function of the row."""

Unit = Sequence[set[str]]
"""For each column that names the unit, all names that it has on its way through a view."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What is to be said of a view that shall be protected.

    Attributes:
        never: what makes one unit's rows change others', or rows that nobody can count; none where it can be protected.
        notes: what may make one unit more than was said, in words that say what to write.
    """

    never: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def examine(known: Texts, name: Name, unit: Sequence[str], is_public: Callable[[str], bool]) -> Examined:
    """Look through a view, and through the views and macros that it is made of.

    Args:
        known: tables, views and macros.
        name: the view; of a table nothing is to be said.
        unit: columns that name the unit; none where each row is one.
        is_public: whether the last part of a table's name can only mean public rows.
    """
    text = text_of(known, name)
    if text is None:
        return Examined()
    try:
        trees = list(_trees(known, name[2].lower(), text))
    except Unreadable:
        return Examined(notes=(f"the text of '{name[2]}' cannot be read, nor what one person changes in it",))
    selects = [node for tree in trees for node in _of_type(tree, "SELECT_NODE")]
    names = [_aliases(selects, column.lower()) for column in unit]

    def private(node: Any) -> bool:
        """Whether a piece reads rows that nobody declared public."""
        try:
            return not all(map(is_public, reads(node, known)))
        except Unreadable:
            return True

    never, notes = list[str](), list[str]()
    for select in selects:
        if private({"from_table": select.get("from_table")}):
            never += _never(select, names)
            notes += _several(select, names, private)
    if any(True for tree in trees for _ in _of_type(tree, "SET_OPERATION_NODE")) and not unit:
        notes.append("a UNION, in which one person may have several rows")
    return Examined(never=tuple(dict.fromkeys(never)), notes=tuple(dict.fromkeys(notes)))


def _trees(known: Texts, name: str, text: str) -> Iterator[Node]:
    """The parsed text, and those of all views and macros that it names."""
    left, seen = [(name, text)], set[str]()
    while left:
        one, found = left.pop()
        if one in seen:
            continue
        seen.add(one)
        tree = parsed(found)
        yield tree
        for part in _walk(tree):
            for key in ("table_name", "function_name"):
                named = str(part.get(key, "")).lower()
                left += [(named, inside) for _, inside in known.get(named, ()) if inside]


def _walk(node: Any) -> Iterator[Node]:
    if isinstance(node, dict):
        yield node
    for part in inner(node):
        yield from _walk(part)


def _of_type(node: Any, kind: str) -> Iterator[Node]:
    return (part for part in _walk(node) if part.get("type") == kind)


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
    """What in one SELECT lets a unit's rows change others'."""
    modifiers = {modifier["type"]: modifier for modifier in select.get("modifiers") or ()}
    sampled = any(part.get("sample") for part in (select, *_walk(select.get("from_table"))))
    if sampled or any(name.startswith("LIMIT") for name in modifiers):
        yield "LIMIT or a sample, which takes another row where one is gone"
    if any(_name(part) in RANDOM for part in _expressions(select)):
        yield "a random value or a sequence, which is no function of the rows"
    if any(join.get("ref_type") == "POSITIONAL" for join in _of_type(select.get("from_table"), "JOIN")):
        yield "a positional join, which moves all rows where one is gone"
    keys = _keys(select)
    if keys is not None and not _by_unit(keys, unit) and not _correlated(select, unit):
        yield "groups of several people's rows (GROUP BY, or an aggregate)"
    distinct = modifiers.get("DISTINCT_MODIFIER", {}).get("distinct_on_targets")
    if distinct and not _by_unit([_columns(target) for target in distinct], unit):
        yield "DISTINCT ON, which takes another row where one is gone"
    for window in (part for part in _expressions(select) if part.get("class") == "WINDOW"):
        if not _by_unit([_columns(partition) for partition in window.get("partitions") or ()], unit):
            yield "a window over several people's rows"
    if any(pivot.get("aggregates") for pivot in _of_type(select.get("from_table"), "PIVOT")) and not unit:
        yield "groups of several people's rows (PIVOT)"


def _several(select: Node, unit: Unit, private: Callable[[Any], bool]) -> Iterator[str]:
    """What in one SELECT may give a unit more rows than one, or rows that are others' as well."""
    for join in _of_type(select.get("from_table"), "JOIN"):
        used = {name.lower() for name in join.get("using_columns") or ()} | _columns(join.get("condition"))
        if not unit:
            yield "a join, in which one person may have several rows"
        elif (
            not all(used & names for names in unit)
            and private({"left": join["left"]})
            and private({"right": join["right"]})
        ):
            yield "a join that is not by the unit: a row may be of several of them"
    if any(part.get("class") == "SUBQUERY" and private(part) for part in _expressions(select)):
        yield "a subquery in an expression: whether a row is there may depend on others' rows"
    if not unit and any(_name(part) == "unnest" for part in _expressions(select)):
        yield "unnest, by which one row becomes several"


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
    return {alias} if alias and item.get("class") != "COLUMN_REF" else _columns(item)


def _meant(expression: Node, items: Sequence[Node]) -> Any:
    """What a group expression stands for: GROUP BY 2 is the second column."""
    if expression.get("class") != "CONSTANT":
        return expression
    text = expression["literal"].get("text") if "literal" in expression else expression["value"].get("value")
    place = int(text) if str(text).isdigit() else 0
    return items[place - 1] if 1 <= place <= len(items) else expression


def _aggregates(item: Any) -> bool:
    kinds = own_functions()
    found = [part for part in _expressions({"item": item}) if part.get("class") == "FUNCTION"]
    return any(
        "aggregate" in kinds.get(_name(part), ()) and "scalar" not in kinds.get(_name(part), ()) for part in found
    )


def _by_unit(keys: Sequence[set[str]], unit: Unit) -> bool:
    """Whether each column of the unit is one of the keys."""
    return bool(unit) and all(any(len(key) == 1 and key & names for key in keys) for names in unit)


def _correlated(select: Node, unit: Unit) -> bool:
    """Whether the rows of a subquery are those of the unit outside: its unit equals that of a table outside."""
    within = {str(part.get("alias") or part.get("table_name", "")).lower() for part in _walk(select.get("from_table"))}

    def outside(node: Any, names: set[str]) -> bool | None:
        if not isinstance(node, dict) or node.get("class") != "COLUMN_REF" or not _columns(node) & names:
            return None
        return len(node["column_names"]) > 1 and str(node["column_names"][-2]).lower() not in within

    equal = list(_of_type(select.get("where_clause"), "COMPARE_EQUAL"))
    return bool(unit) and all(
        any({outside(part.get("left"), names), outside(part.get("right"), names)} == {True, False} for part in equal)
        for names in unit
    )


def _name(part: Node) -> str:
    return str(part.get("function_name", "")).lower()


def _columns(node: Any) -> set[str]:
    """Last parts of the columns that an expression names."""
    return {str(part["column_names"][-1]).lower() for part in _walk(node) if part.get("class") == "COLUMN_REF"}


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
        DPError: one unit's rows change others' in it.
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
