"""CALL dp_public: declares which tables hold public rows, everywhere or in the links of one table."""

from collections.abc import Sequence

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.errors import DPError, as_sql, few, quoted_name
from duckdb_dp.sql import catalog, missing_tables, provenance
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset, full_name_of, name_parts
from duckdb_dp.sql.dp_link import references_of
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Reference

COLUMNS = {"table": "VARCHAR", "public": "VARCHAR"}


def rows(session: Session, arguments: Arguments, place: Place, _seen: str) -> Rows:
    """Rows of CALL dp_public: one per table, now declared.

    Raises:
        DPError: a table does not exist or is protected, or a view reads something that is protected or not known.

    Privacy: states what is public; spends nothing.
    """
    asked = arguments.get("tables")
    names = asked if isinstance(asked, list) else [asked]
    if not names:
        raise DPError("no table was named; write CALL dp_public('towns').")
    links = None if arguments.get("links") is None else _links(session, arguments["links"], place)
    if links is None:
        found = [_table(session, name, place) for name in names]
        for name in found:
            missing_tables.check_not_protected(session, name)
            provenance.check_public(session, name)
    else:
        found = [_parent(session, links, name) for name in names]
    session.ledger.public.declare(found, links)
    where = "everywhere" if links is None else f"where links of '{links.name}' refer to it"
    return [{"table": ".".join(name), "public": where} for name in found]


def _links(session: Session, asked: object, place: Place) -> Dataset:
    """The dataset of that name, here or attached."""
    name = full_name_of(session.ledger, asked, place) if isinstance(asked, str) else asked
    return find_dataset(session.ledger, name, *place)


def _table(session: Session, asked: object, place: Place) -> Name:
    """The committed table or view of that name."""
    options = [option for option in catalog.options(session, asked, place) if option[0] != "temp"]
    known = catalog.committed(session, [option[:2] for option in options])
    tables = [table for option in options if (table := catalog.find(known, option)) is not None]
    if not tables:
        raise DPError(
            f"there is no table or view {as_sql(asked)} that other connections see; create it, commit it, and do not make it a TEMP one."
        )
    return tables[0].name


def _parent(session: Session, links: Dataset, asked: object) -> Name:
    """The table of that name which a dataset refers to."""
    references, _ = references_of(session, links, catalog.of(session, links))
    parts = tuple(part.lower() for part in name_parts(asked))
    for reference in references:
        if tuple(part.lower() for part in reference.parent)[-len(parts) :] == parts:
            return reference.parent
    raise DPError(f"'{links.name}' does not refer to {as_sql(asked)}; it refers to {_listed(references)}.")


def _listed(references: Sequence[Reference]) -> str:
    return few(repr(reference.parent[2]) for reference in references)


def call_for(dataset: Dataset, parent: Name) -> str:
    """The CALL that says that a parent's rows are public where a dataset's links refer to them."""
    return f"CALL dp_public({quoted_name(parent[2])}, links := {dataset.argument})"


FUNCTION = register(Function(name="dp_public", rows=rows, columns=COLUMNS, curator=True))
