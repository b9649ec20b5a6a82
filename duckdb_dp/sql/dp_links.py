"""dp_links: from its arguments to a request and the tables that it links."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.counting.encode import decode, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain import types as column_types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, few, quoted_name
from duckdb_dp.request import Request, units
from duckdb_dp.sql import (
    answer_size,
    catalog,
    chosen_parents,
    contribution_bounds,
    dp_synthesize,
    drawn_references,
    joined_columns,
    key_types,
    link_counts,
    linked_ends,
    precision,
    provenance,
    public_domains,
    public_views,
    synthetic_tables,
)
from duckdb_dp.sql.arguments import (
    Arguments,
    Place,
    check_bounded,
    find_dataset,
    flag,
    no_postprocess,
    parse_budget,
    release_name,
    stable_cost,
    whole_number,
    word,
)
from duckdb_dp.sql.dp_link import declared_key, no_key, references_of
from duckdb_dp.sql.joined_columns import JoinedColumns
from duckdb_dp.sql.links import TAGS, Link, Side, from_request, repeated, tag
from duckdb_dp.sql.ordered_columns import check_orders, with_orders
from duckdb_dp.sql.registry import Function, register
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.synthetic_tables import Key
from duckdb_dp.synthesis.database import Name, Reference, Table
from duckdb_dp.synthesis.functions import check
from duckdb_dp.synthesis.links.columns import DEFAULT, JOINED, unit_side

MAX_LINKS = 1_000_000_000

ALSO = "also_of"
"""No argument of users': full names of tables -> their attributes that nobody declared, as they are those of keys of public tables."""
BELIEVED = "believed"
"""No argument of users': whether rows of a parent may have the same key, of which one counts then, as among the private ones."""
BY_REFERENCE = "by_reference"
"""No argument of users': full names of tables -> what their rows have by references to public tables, and to the unit's own rows."""
NUMBERED = "numbered"
"""No argument of users': full names of tables -> the declared columns that are no attributes in the call, but numbers."""
HELD = "held"
"""No argument of users': full names of parents -> the declared columns that hold numbers of other synthetic rows, and are no attributes."""
PUBLIC_KEYS = "public_keys"
"""No argument of users': whether keys of small public tables are attributes of their rows, as the synthetic ones are copies."""
OWN_KEY = "own_key"
"""No argument of users': the columns that identify the rows of the child table."""


def plan(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL of the links: reads the stored release if there is one, else counts, charges and draws."""
    arguments = precision.refuse(
        arguments, "how far synthetic links are from the table depends on it, and dp_quality measures that"
    )
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    link = located(session, link_of(session, dataset, arguments, place), [place])
    name, fresh = release_name(arguments), flag(arguments, "fresh")
    stored = None if fresh else session.stored(link.request, name)
    if stored is not None:
        return _read(session, stored, link)
    check_orders(link.request)
    answer_size.check(session, FUNCTION.name, arguments.get("rows"))
    counting = link_counts.counting(link, session.unit_key())
    handle = synthetic_tables.run(
        link.request, counting, [side.rows for side in link.sides], refusals(session, link), name=name, fresh=fresh
    )
    return _rows(session, link, handle, None)


def read(session: Session, stored: Release, arguments: Arguments, place: Place) -> str:
    """SQL for the rows of a stored dp_links, by its name or number."""
    no_postprocess(arguments, FUNCTION.name)
    link = from_request(Request.from_json(stored.request))
    return _read(session, stored, located(session, link, [place, (link.request.catalog, link.request.schema)]))


def _read(session: Session, stored: Release, link: Link) -> str:
    """The SQL of stored links, which are positions in the synthetic tables; so these must not have changed."""
    detail = session.detail(stored)
    link = key_types.with_texts(link, detail["texts"])
    rows = [side.rows for side in link.sides]
    handle = synthetic_tables.unchanged(stored, detail, rows, refusals(session, link), needed=link.texts)
    return _rows(session, link, handle, stored)


def located(session: Session, link: Link, places: Sequence[tuple[str, str]]) -> Link:
    """The link with its synthetic tables as the catalog has them.

    Raises:
        DPError: a synthetic table does not exist, is not known to be public, or lacks a column.
    """
    left, right = (replace(side, known=provenance.find(session, side.synthetic, places)) for side in link.sides)
    for side in (left, right):
        linked_ends.check_synthetic(side)
    return replace(link, sides=(left, right))


def refusals(session: Session, link: Link) -> list[tuple[str, str]]:
    """Conditions under which the synthetic tables of a link are refused, because their rows are not known."""
    needed = (_columns(session, link, side) for side in link.sides)
    found = (
        None if side.known is None else side.known.refusal(link.request.function, columns)
        for side, columns in zip(link.sides, needed, strict=True)
    )
    joined = joined_columns.refusals(
        session, link.request.function, [one for side in link.sides for one in side.joined]
    )
    return [refusal for refusal in (*found, *joined) if refusal is not None]


def _columns(session: Session, link: Link, side: Side) -> list[str]:
    """The columns of a synthetic table that may be returned: its key, declared columns, and foreign keys of earlier links."""
    named = [*side.key.columns, *side.held]
    if not side.child or side.known is None:
        return named
    request = link.request
    dataset = find_dataset(session.ledger.asked_by(None), quote(request.table), request.catalog, request.schema)
    references, _ = references_of(session, dataset, catalog.of(session, dataset))
    current = {column.lower() for column in link.sides[1].reference.columns}
    earlier = {column.lower() for reference in references for column in reference.columns} - current
    wanted = {column.lower() for column in named} | earlier
    return [column for column in side.known.table.columns if column.lower() in wanted]


def _rows(session: Session, link: Link, handle: str, stored: Release | None) -> str:
    request, private = link.request, session.bits.private if stored is None else stored.private
    place = (request.catalog, request.schema)
    table = catalog.find(catalog.committed(session, [place]), (*place, request.table))
    types = {} if table is None else table.columns
    if request.schema == SCHEMA:  # keys of types that DuckDB lacks are as in the synthetic tables
        types = {column: type_ for column, type_ in types.items() if column_types.find(type_) is not None}
    ends = [column for place in link.parents for column in link.sides[place].reference.columns]
    if link.child:
        found = {column.lower() for column in ends}
        columns = [column for column in _columns(session, link, link.sides[0]) if column.lower() not in found]
        select = link_counts.child_rows(link, types, columns, private=private)
        return provenance.handed_out(session, stored, handle, select, [*columns, *ends])
    rounded = dp_synthesize.rounded(session, stored)
    own = [f"{decode(a, f'c{i}', rounded=rounded)} AS {quote(a.name)}" for i, a in enumerate(link.own)]
    taken = {c.lower() for side in link.sides for c in side.reference.columns} | {a.name.lower() for a in link.own}
    dataset = find_dataset(session.ledger.asked_by(None), quote(request.table), *place)
    named = () if table is None else table.key or declared_key(session, dataset)
    own_key = {c: types[c] for c in named if c in types and c.lower() not in taken}
    key = {column: type_ for column, type_ in own_key.items() if dp_synthesize.numbered(type_)}
    numbers, fits = dp_synthesize.numbered_key(request.table, key)
    select = link_counts.rows(link, types, own, numbers, fits, among=named, private=private)
    return provenance.handed_out(session, stored, handle, select, [*key, *ends, *(a.name for a in link.own)])


# Arguments


def link_of(session: Session, dataset: Dataset, arguments: Arguments, place: Place, cost: float | None = None) -> Link:
    """The link of a dp_links call, at a given cost or that of the budget typed; its synthetic tables need not exist yet.

    Where links are stored that know less of other tables, as earlier versions measured them, it is that link: they are paid for.

    Raises:
        DPError: it cannot be linked; the message says why.
    """
    found = _link_of(session, dataset, arguments, place, cost)
    if flag(arguments, "fresh") or session.stored(found.request, release_name(arguments)) is not None:
        return found
    public = {BY_REFERENCE: joined_columns.public(arguments.get(BY_REFERENCE) or {})}
    for known in ({HELD: None}, {HELD: None, **public}, {HELD: None, PUBLIC_KEYS: False, BY_REFERENCE: None}):
        earlier = _link_of(session, dataset, {**arguments, **known}, place, cost)
        same = earlier.request.hash == found.request.hash
        if not same and session.stored(earlier.request, release_name(arguments)) is not None:
            return earlier
    return found


def _link_of(session: Session, dataset: Dataset, arguments: Arguments, place: Place, cost: float | None) -> Link:
    if dataset.auto_rows and (degree := whole_number(arguments, "max_degree", MAX_LINKS)) is not None:
        dataset = replace(dataset, max_rows=degree, auto_rows=False)
    check_bounded(dataset, "a call about links", takes="max_degree")
    table = catalog.of(session, dataset)
    references, distinct = references_of(session, dataset, table)
    tables = linked_ends.named(arguments.get("synthetic"))
    child, chosen = linked_ends.choose(dataset, references, tables)
    owned, one_parent = dataset, child is not None and chosen_parents.of_one(session, dataset, chosen[0][0])
    if one_parent:
        chosen_parents.check_protect(owned, arguments)
        dataset = chosen_parents.of_parents(dataset, table, chosen[0][0])
        if table is not None and table.distinct(chosen[0][0].columns):
            arguments = {**arguments, "max_degree": None}  # a parent has one child
    else:
        contribution_bounds.check_owner(session, dataset)
    numbered: Mapping[Name, Sequence[str]] = arguments.get(NUMBERED) or {}
    also: Mapping[Name, Sequence[Attribute]] = arguments.get(ALSO) or {}
    further: Mapping[Name, tuple[JoinedColumns, ...]] = arguments.get(BY_REFERENCE) or {}
    name = (dataset.catalog, dataset.schema, dataset.name)
    not_own = numbered.get(name, ())
    every = dp_synthesize.attributes_of(session, dataset, {dp_synthesize.ALSO: also.get(name, ())})
    declared = {name: a for name, a in every.items() if name not in not_own}
    taken = {c for reference, _ in chosen for c in reference.columns} | {c for u in units(dataset.unit) for c in u}
    own = tuple(attribute for name, attribute in declared.items() if name not in taken)
    sides = [
        _with_joined(
            session,
            _side(session, one, synthetic, arguments),
            joined_columns.of_parent(further.get(one.parent, ()), inherited=one_parent)
            if not contribution_bounds.itself(dataset, one)
            else (),
        )
        for one, synthetic in chosen
    ]
    if child is not None:
        same = contribution_bounds.itself(dataset, sides[0].reference)  # then both sides have one key, and one order
        unique = (
            sides[0].reference.key
            if same
            else tuple(arguments.get(OWN_KEY) or drawn_references.child_key(session, dataset, table, child))
        )
        key = tuple(column for column in unique if column not in declared)
        # If a key contains references, its other columns identify synthetic rows, whose parents are not all known yet.
        referring = {column for reference in references for column in reference.columns}
        if not same and not referring.issuperset(key):
            key = tuple(column for column in key if column not in referring)
        if not key or (same and key != unique):
            raise no_key(dataset, sides[0].reference)
        itself = Reference(columns=key, parent=name, key=key, role=dataset.name)
        if same:  # its rows have their references in no column yet
            sides[0] = replace(sides[0], attributes=own)
        made = Side(reference=itself, attributes=own, synthetic=child, key=Key(columns=key), child=True)
        read = () if same else joined_columns.of_child(further.get(name, ()), {a.name for a in own})
        sides.insert(0, _with_joined(session, made, read))
        own = ()
    left, right = sides
    if left.role.lower() == right.role.lower():
        raise DPError(
            f"both ends of '{dataset.name}' are called '{left.role}'; refer to one of them by a view of another name."
        )
    for side in sides:
        linked_ends.check_engine(dataset, side)
    known = catalog.committed(session, [side.reference.parent[:2] for side in sides])
    session.check_columns(dataset, own)
    contribution_bounds.check_itself(dataset, table, (left, right))
    contribution_bounds.check_apart(session, known, dataset, (left, right))
    once = left.child and table is not None and table.distinct(right.reference.columns)
    if cost is None:
        arguments = precision.refuse(
            arguments, "how far synthetic links are from the table depends on it, and dp_quality measures that"
        )
        cost = stable_cost(parse_budget(arguments, dataset), dataset.accounting)
    tagged = _tagged(dataset, table, (left, right))
    request = _request(dataset, (left, right), own, tagged, distinct, once, arguments, cost)
    request = with_orders(request, table, own)
    if one_parent:
        request = replace(request, options=tuple(sorted([*request.options, ("one_parent", True)])))
    contribution_bounds.check_protection(dataset, (left, right), word(arguments, "protect", "") or None)
    check(request)
    texts = [key_types.are_texts(catalog.find(known, side.reference.parent), side) for side in sides]
    link = from_request(request)
    if one_parent:
        link = replace(link, counted=chosen_parents.counted(session, owned, link, session.unit_key()))
    else:
        contribution_bounds.check_parents(session, known, dataset, (left, right))
        link = key_types.compared(link, table, known)
    return key_types.with_texts(link, texts)


def _side(session: Session, reference: Reference, synthetic: str, arguments: Arguments) -> Side:
    """The side of a reference, with the attributes of its table: declared ones that are no numbers, and those that nobody declared."""
    catalog_, schema, table = name = reference.parent
    key = Key(columns=reference.key)
    numbered = [*(arguments.get(NUMBERED) or {}).get(name, reference.key), *(arguments.get(HELD) or {}).get(name, ())]
    keyed = bool(arguments.get(PUBLIC_KEYS)) and word(arguments, "method", DEFAULT) == DEFAULT
    try:
        parent = find_dataset(session.ledger.asked_by(None), ".".join(map(quote, reference.parent)), catalog_, schema)
    except DPError:
        known = catalog.find(catalog.committed(session, [(catalog_, schema)]), reference.parent)
        if known is not None and session.ledger.public.holds(reference.parent):
            found = public_domains.attributes(session, known, reference.key)
            public_views.check_read(session, known, [*reference.key, *(attribute.name for attribute in found)])
            found = (*found, *(public_domains.small_key(session, known, reference.key) if keyed else ()))
            return Side(reference=reference, attributes=found, synthetic=synthetic, key=key)
        raise DPError(
            f"'{table}', which the links refer to, has no declared attributes. If anybody may see its rows: CALL "
            f"dp_public({quoted_name(table)}). Otherwise protect it and declare them: CALL dp_protect({quoted_name(table)}, ...), CALL "
            f"dp_attribute({quoted_name(table)}, ...); dp_links charges it nothing."
        ) from None
    declared = [a for name, a in session.declared(parent).items() if name not in numbered]
    attributes = (*declared, *(arguments.get(ALSO) or {}).get(name, ()))
    session.check_columns(parent, attributes)
    return Side(reference=reference, attributes=attributes, synthetic=synthetic, key=key)


def _with_joined(session: Session, side: Side, columns: Sequence[JoinedColumns]) -> Side:
    """The side with columns that its rows have by references."""
    joined_columns.check_read(session, columns)
    more = (attribute for one in columns for attribute in one.attributes)
    return replace(side, attributes=(*side.attributes, *more), joined=tuple(columns))


def _tagged(dataset: Dataset, table: Table | None, sides: tuple[Side, Side]) -> list[Side]:
    """The sides for which the number of rows with a link is counted.

    For a child table only if rows may have no parent and the table protects single rows: rows without a unit are left out.
    """
    left, right = sides
    if not left.child:
        return [left, right]
    certain = table is not None and set(right.reference.columns) <= table.required
    return [right] if certain or dataset.unit is not None else [left, right]


def _request(
    dataset: Dataset,
    sides: tuple[Side, Side],
    own: tuple[Attribute, ...],
    tagged: Sequence[Side],
    distinct: bool | None,
    once: bool,
    arguments: Arguments,
    cost: float,
) -> Request:
    left, right = sides
    for attribute in (*left.renamed, *right.renamed, *own):
        if attribute.name.endswith(tuple(f".{tag}" for tag in TAGS)):
            raise DPError(
                f"'{attribute.name}': {few(map(repr, TAGS))} say how many links a row has; give the column another name in a view, and "
                "protect that."
            )
    options: dict[str, Any] = {
        "child": left.child,
        "distinct": bool(distinct) and not left.child,
        **({"once": True} if once else {}),
        **({"believed": True} if arguments.get(BELIEVED) else {}),
        "references": [side.reference.to_json() for side in sides],
        "sizes": [len(side.attributes) for side in sides],
        "synthetic": [side.synthetic for side in sides],
        **({JOINED: [[one.to_json() for one in side.joined] for side in sides]} if left.joined or right.joined else {}),
        **{name: value for name in ("rows", "rounds") if (value := whole_number(arguments, name, MAX_LINKS))},
    }
    degree = whole_number(arguments, "max_degree", MAX_LINKS)
    kept = degree or dataset.max_rows
    if left.child and contribution_bounds.itself(dataset, right.reference):
        options["children"] = 1 if once else degree or contribution_bounds.CHILDREN
        kept = contribution_bounds.rows(options["children"])
    if degree not in (None, dataset.max_rows) and len(units(dataset.unit)) > 1:
        raise DPError(
            f"max_degree is {degree}, and '{dataset.name}' promises at most {dataset.max_rows} links for both sides; leave "
            "it out: whether another bound holds would reveal how many links someone has."
        )
    tags = tuple(tag(side, kept if len(units(dataset.unit)) > 1 else None) for side in tagged)
    request = Request(
        function=FUNCTION.name,
        catalog=dataset.catalog,
        schema=dataset.schema,
        table=dataset.name,
        unit=dataset.unit,
        max_rows=kept,
        accounting=dataset.accounting,
        attributes=(*left.renamed, *right.renamed, *own, *tags),
        questions=(),
        cost=cost,
        mechanism=word(arguments, "method", DEFAULT),
        objective="",
        options=tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in sorted(options.items())),
    )
    if distinct is not None or left.child:
        return request
    if (unit := unit_side(request)) is not None:  # whether its pairs repeat is measured
        return replace(request, attributes=(*request.attributes, repeated(sides[unit])))
    return replace(request, options=tuple((name, name == "distinct" or value) for name, value in request.options))


FUNCTION = register(Function(name="dp_links", plan=plan, read=read, compares=True, public=True))
