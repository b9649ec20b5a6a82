"""The tables that a call of dp_synthesize_database names, as it may: its schemas, its ``tables``, ``max_rows`` and ``shares``."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import units
from duckdb_dp.errors import DPError, as_sql, nearest
from duckdb_dp.sql import catalog
from duckdb_dp.sql.arguments import Arguments, Place, name_parts, whole_number
from duckdb_dp.sql.dp_link import references_of, with_rowid
from duckdb_dp.sql.row_bounds import MOST_ROWS
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Table

WEIGHTS = {"rows": 1.0, "links": 2.0, "parents": 1.0}
"""Parts of the budget: for a table's rows, for the links of a link table, for each parent of a table's rows."""


def schema(arguments: Arguments, name: str, place: Place) -> tuple[str, str]:
    """Catalog and schema that an argument names.

    Raises:
        DPError: it names none.
    """
    given = arguments.get(name)
    if not isinstance(given, str) or not given.strip():
        found = "missing" if given is None else as_sql(given)
        raise DPError(
            f"{name} is {found}; name a schema, e.g. dp_synthesize_database('main', target := 'syn', mu := 1)."
        )
    parts = name_parts(given)
    if len(parts) > 2:
        raise DPError(f"{name} is {as_sql(given)}; write 'schema' or 'catalog.schema'.")
    return (place[0], parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def check_target(known: Mapping[Name, Table], source: tuple[str, str], target: tuple[str, str]) -> None:
    """Refuse a target that has tables.

    Raises:
        DPError: it has, or is the source.
    """
    folded = tuple(part.lower() for part in target)
    taken = [name[2] for name in known if tuple(part.lower() for part in name[:2]) == folded]
    if taken or folded == tuple(part.lower() for part in source):
        names = ", ".join(map(repr, taken[:3])) or "the original tables"
        raise DPError(f"target '{target[1]}' has tables already ({names}); name a new schema, or drop that one.")


def datasets(session: Session, source: tuple[str, str], asked: object) -> list[Dataset]:
    """The protected tables of a schema, or those of them that are asked for.

    Raises:
        DPError: there are none, or one that is asked for is not protected.
    """
    wanted = tuple(part.lower() for part in source)
    found = [d for d in session.ledger.datasets() if (d.catalog.lower(), d.schema.lower()) == wanted]
    if not found:
        raise DPError(
            f"no table of '{source[1]}' is protected, so there is nothing to make. Protect them: CALL dp_protect(...)"
        )
    if asked is None:
        return found
    if not isinstance(asked, list) or not asked or not all(isinstance(name, str) for name in asked):
        example = as_sql(found[0].name)
        raise DPError(
            f"tables is {as_sql(asked)}; write a list of protected tables of '{source[1]}', e.g. tables := [{example}]."
        )
    names = {dataset.name.lower() for dataset in found}
    for name in asked:
        if name.lower() not in names:
            raise DPError(f"tables names {as_sql(name)}, {_what(session, source, name, found)}")
    return [dataset for dataset in found if dataset.name.lower() in {name.lower() for name in asked}]


def _what(session: Session, source: tuple[str, str], name: str, found: Sequence[Dataset]) -> str:
    """What a table that is not protected is instead, and what would work."""
    known = catalog.find(catalog.committed(session, [source]), (*source, name))
    if known is not None and session.ledger.public.holds(known.name):
        return "which is public: leave it out, as public tables that others refer to are copied as they are."
    if known is not None:
        return f"which is not protected; protect it first: CALL dp_protect({as_sql(known.name[2])}, ...)"
    return f"and '{source[1]}' has no such table; its protected tables are {_near((one.name for one in found), name)}."


def _near(names: Iterable[str], asked: str) -> str:
    return nearest(map(repr, names), repr(asked))


def bounded(found: Sequence[Dataset], asked: object) -> list[Dataset]:
    """The datasets with the number of rows of a unit that count: as declared, or as ``max_rows`` says where nothing was.

    Raises:
        DPError: it names another table, is no number, or more than is declared of the table that it names.
    """
    if isinstance(asked, dict):
        _check_names("max_rows", asked, found)
    return [_bounded(dataset, asked) for dataset in found]


def _bounded(dataset: Dataset, asked: object) -> Dataset:
    rows = _asked(dataset, asked)
    if isinstance(asked, dict) and rows is not None and _promised(dataset):
        raise DPError(
            f"max_rows is {rows} for '{dataset.name}', which promises at most {dataset.max_rows} links for both sides; leave it out: "
            "whether another bound holds would reveal how many links someone has."
        )
    if isinstance(asked, dict) and rows is not None and not dataset.auto_rows and rows > dataset.max_rows:
        raise DPError(
            f"max_rows is {rows} for '{dataset.name}', of which at most {dataset.max_rows} rows of a unit count, as dp_protect says; "
            f"1 to {dataset.max_rows} work."
        )
    return dataset if rows is None or not dataset.auto_rows else replace(dataset, max_rows=rows, auto_rows=False)


def _promised(dataset: Dataset) -> bool:
    """Whether a bound is promised of two kinds of units: then no other one is looked at, and one for all tables is of the others."""
    return len(units(dataset.unit)) > 1


def _asked(dataset: Dataset, asked: object) -> int | None:
    """How many rows of a unit ``max_rows`` asks for in a table."""
    if isinstance(asked, dict):
        asked = next((bound for name, bound in asked.items() if name.lower() == dataset.name.lower()), None)
    return None if asked is None else whole_number({"max_rows": asked}, "max_rows", MOST_ROWS)


def fewer(declared: Dataset, dataset: Dataset, asked: object) -> int | None:
    """How many rows of a unit count in a table where ``max_rows`` says that, or fewer than are declared; None where it does not.

    Args:
        declared: as it is declared.
        dataset: as ``bounded`` has it.
        asked: ``max_rows``.
    """
    if declared.auto_rows:
        return None if dataset.auto_rows else dataset.max_rows
    rows = None if _promised(declared) else _asked(dataset, asked)
    return rows if rows is not None and rows < dataset.max_rows else None


def _check_names(argument: str, asked: Iterable[object], found: Iterable[Dataset]) -> None:
    names = [dataset.name for dataset in found]
    for name in asked:
        if not isinstance(name, str) or name.lower() not in {one.lower() for one in names}:
            raise DPError(
                f"{argument} names {as_sql(name)}, which is none of the tables that are made: {_near(names, str(name))}."
            )


def table_of(session: Session, known: Mapping[Name, Table], dataset: Dataset) -> Table:
    """A protected table with the references that it has or that are declared.

    Raises:
        DPError: it cannot be seen.
    """
    name = (dataset.catalog, dataset.schema, dataset.name)
    found = catalog.find(known, name)
    if found is None:
        raise DPError(
            f"'{dataset.name}' is protected and cannot be seen from another connection: it was dropped, or is not "
            "committed yet. Leave it out with tables := [...]"
        )
    try:
        references, _ = references_of(session, dataset, found)
    except DPError:
        references = ()
    return replace(found, columns=with_rowid(session, dataset, found.columns), references=references)


def weights(steps: Sequence[tuple[Dataset, str]], asked: object) -> list[float]:
    """The part of the total of each step, of which the dataset and the kind are given; ``shares`` multiplies those of a table.

    Raises:
        DPError: it is no positive number for tables that are made.
    """
    found = {dataset.name.lower(): 1.0 for dataset, _ in steps}
    if asked is not None:
        if not isinstance(asked, dict) or not all(map(_positive, asked.values())):
            raise DPError(f"shares is {as_sql(asked)}; write a positive number for a table, as {{'users': 2}}.")
        _check_names("shares", asked, {dataset.name: dataset for dataset, _ in steps}.values())
        found |= {name.lower(): float(value) for name, value in asked.items()}
    return [found[dataset.name.lower()] * WEIGHTS[kind] for dataset, kind in steps]


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
