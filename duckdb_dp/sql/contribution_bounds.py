"""Which unit's links are bounded, and by how many: ends of a link table, single rows, or rows that refer to their own table."""

from collections.abc import Container, Mapping, Sequence

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import literal
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.request import units
from duckdb_dp.sql import catalog, lineage, owners
from duckdb_dp.sql.dp_public import call_for
from duckdb_dp.sql.links import ROW_NUMBER, Side
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Reference, Table

CHILDREN = 10
"""Rows that refer to one row of their own table and are kept, unless max_degree says how many."""


def itself(dataset: Dataset, reference: Reference) -> bool:
    """Whether a dataset's reference is to the dataset itself."""
    own = (dataset.catalog, dataset.schema, dataset.name)
    return [part.lower() for part in reference.parent] == [part.lower() for part in own]


def may_refer_to_itself(dataset: Dataset, table: Table, declared: Container[str], reference: Reference) -> bool:
    """Whether such a reference can be synthesised: the table protects single rows, and its rows have keys of their own."""
    single = dataset.unit is None and table.distinct(reference.key) and not set(reference.columns) & set(reference.key)
    return itself(dataset, reference) and single and not any(column in declared for column in reference.key)


def rows(children: int) -> int:
    """How many links one row of a table that refers to itself can change.

    They are its own link, the links of its counted children, and the link of the row that is counted in its place.
    """
    return children + 2


def check_itself(dataset: Dataset, table: Table | None, sides: tuple[Side, Side]) -> None:
    """Refuse a reference of a table to itself if one row might change more links than ``rows`` allows.

    Raises:
        DPError: it is linked together with another one, the table protects units, or rows may share a key.
    """
    left, right = sides
    own = [side for side in sides if not side.child and itself(dataset, side.reference)]
    if not own:
        return
    columns = _listed(own[0].reference.columns)
    if not left.child:
        raise DPError(
            f"{columns} of '{dataset.name}' refers to the table itself, and must be linked separately: synthetic := "
            f"{{'{dataset.name}': 'my_rows', '{own[0].role}': 'my_rows'}}."
        )
    if dataset.unit is not None:
        raise DPError(
            f"'{dataset.name}' protects {dataset.unit}, and {columns} refers to the table itself, so single rows "
            "must be protected; protect it without unit."
        )
    if shared := _folded(right.reference.columns) & _folded(right.reference.key):
        raise DPError(
            f"{columns} of '{dataset.name}' refers to the table itself by {few(sorted(shared))}, a part of the row's own key; "
            "give the rows a key of one column, and refer to that."
        )
    if dataset.schema == SCHEMA:
        raise DPError(
            f"{columns} of '{dataset.name}' refers to the table itself, and it is not known that its keys are unique in "
            f"{dataset.catalog}; copy it to DuckDB, with a PRIMARY KEY."
        )
    if table is None or not table.distinct(right.reference.key):
        raise DPError(
            f"{columns} refers to {_listed(right.reference.key)} of '{dataset.name}', which several rows may share; make it "
            "a PRIMARY KEY or UNIQUE."
        )


def own_parent(session: Session, known: Mapping[Name, Table], dataset: Dataset, side: Side) -> bool:
    """Whether a row of a parent is the unit that a dataset protects, with its links: then its bound covers the row too.

    That holds if the parent protects the same unit, or single rows with different keys. Otherwise removing one row may give
    the links of others another parent.
    """
    if side.child or itself(dataset, side.reference):
        return True
    if _folded(side.reference.columns) not in [_folded(unit) for unit in units(dataset.unit)]:
        return False
    parent = session.ledger.dataset(*side.reference.parent)
    if parent is None:
        return True
    if parent.unit is not None:
        columns, key = ([part.lower() for part in parts] for parts in (side.reference.columns, side.reference.key))
        pairs = {*zip(columns, key, strict=True)}
        # Column by column: crossed, the unit of a link would be another one than that of its parent.
        return any(
            {*zip(map(str.lower, own), map(str.lower, theirs), strict=False)} == pairs
            for own in units(dataset.unit)
            for theirs in units(parent.unit)
        )
    table = catalog.find(known, side.reference.parent)
    return table is None or table.distinct(side.reference.key) or parent.schema == SCHEMA


def check_parents(session: Session, known: Mapping[Name, Table], dataset: Dataset, sides: tuple[Side, Side]) -> None:
    """Refuse to read the rows of protected parents that the links do not protect, unless they were declared public there.

    Raises:
        DPError: there are such parents.
    """
    open_ = [
        side.reference.parent
        for side in sides
        if not own_parent(session, known, dataset, side)
        and not session.ledger.public.holds(side.reference.parent, dataset)
    ]
    if open_:
        of_unit = [side for side in sides if _folded(side.reference.columns) in map(_folded, units(dataset.unit))]
        shared = [side for side in of_unit if not own_parent(session, known, dataset, side)]
        names = few((repr(parent[2]) for parent in open_), " and ")
        unique = "".join(
            f"; or, where each row of '{side.reference.parent[2]}' is one {', '.join(side.reference.columns)}, make "
            f"({', '.join(side.reference.key)}) its PRIMARY KEY"
            for side in shared
        )
        calls = "; ".join(call_for(dataset, parent) for parent in open_)
        raise DPError(
            f"links of '{dataset.name}' read rows of {names}, which they neither protect nor charge; the curator can "
            f"declare these rows public in these links: {calls}{unique}"
        )


def check_apart(session: Session, known: Mapping[Name, Table], dataset: Dataset, sides: tuple[Side, Side]) -> None:
    """Refuse parents that may be read from the protected rows: one of them might change a parent, and others' links with it.

    The parent that is the unit's own is exempt. A table that refers to itself has a bound of its own, and tables of other
    engines are checked in ``counting.engines``.

    Raises:
        DPError: the dataset and a parent read the same table, or it is not known what a parent reads.
    """
    if dataset.schema == SCHEMA:
        return
    protected = [_folded(unit) for unit in units(dataset.unit)]
    own, texts = (dataset.catalog, dataset.schema, dataset.name), lineage.texts(session)
    for side in sides:
        theirs = len(protected) == 1 and _folded(side.reference.columns) in protected
        if side.child or theirs or itself(dataset, side.reference):
            continue
        parent = side.reference.parent
        if catalog.find(known, parent) is None:
            raise DPError(
                f"'{parent[2]}' cannot be seen from another connection, so it is not known which rows it reads; commit it, and do "
                "not make it a TEMP table."
            )
        views = [lineage.is_view(texts, name) for name in (own, parent)]
        if any(views) and lineage.overlap(lineage.sources(texts, own), lineage.sources(texts, parent)):
            raise DPError(
                f"'{parent[2]}' may be read from the rows that '{dataset.name}' protects, so that one of them could change "
                f"others' links; if the rows of '{parent[2]}' are public or protected by themselves, make a table of them and "
                "refer to that."
            )


def check_owner(session: Session, dataset: Dataset) -> None:
    """Refuse links of a table whose rows are known to be somebody's by a join alone, other than those to the parents that tell it.

    A row of another table may have links of many units' rows, and no bound is known on how many of them a unit changes.

    Raises:
        DPError: it is such a table.
    """
    if owners.by_join(session, dataset):
        raise DPError(
            f"'{dataset.name}' has no column that names the unit, so the only links that can be drawn are those to the table that says "
            f"whose its rows are; its rows alone are: dp_synthesize({dataset.argument}, ...)"
        )


def check_protection(dataset: Dataset, sides: tuple[Side, Side], asked: str | None) -> None:
    """Refuse links whose protected unit is not one of their ends; in a child table each row has one link.

    Raises:
        DPError: the table protects something else, or not what ``protect`` asked for.
    """
    found = []
    for unit in units(dataset.unit):
        ends = [side for side in sides if _folded(side.reference.columns) == _folded(unit)]
        if not ends:
            named = [side.reference.columns for side in sides if side.reference.columns != (ROW_NUMBER,)]
            names = few(map(_listed, named), " or ")
            raise DPError(
                f"'{dataset.name}' protects {', '.join(unit)}, which is not an end of these links; protect {names} in a view "
                f"of it: CALL dp_protect('my_view', unit := {names}, max_rows := 10, ...)"
            )
        found.append(ends[0])
    if not found and not sides[0].child:
        left, right = (_listed(side.reference.columns) for side in sides)
        raise DPError(
            f"'{dataset.name}' protects single rows, but links need a unit that they belong to. Protect a view of "
            f"it: CALL dp_protect('my_view', unit := {left}, max_rows := 10, ...), or unit := {right}, or unit := "
            f"[{left}, {right}] for both."
        )
    if asked is None:
        return
    if len(found) == 2:
        given = {"both"}
    else:
        (one,) = found or [sides[0]]
        given = {one.role.lower(), one.reference.parent[2].lower()}
    if asked not in given:
        names = " and ".join(side.role for side in found) or f"rows of {dataset.name}"
        listed = [_listed(side.reference.columns) for side in sides if asked in ("both", side.role.lower())]
        wanted = f"[{', '.join(listed)}]" if len(listed) > 1 else "".join(listed) or "..."
        raise DPError(
            f"protect is {as_sql(asked)}, and '{dataset.name}' protects {names}, for good; to protect others declare a view of "
            f"it: CALL dp_protect('my_view', unit := {wanted}, max_rows := 10, ...)"
        )


def _listed(columns: Sequence[str]) -> str:
    return literal(columns[0]) if len(columns) == 1 else f"[{', '.join(map(literal, columns))}]"


def _folded(columns: Sequence[str]) -> set[str]:
    return {column.lower() for column in columns}
