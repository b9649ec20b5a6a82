"""Columns that DuckDB compares under a collation, as of COLLATE NOCASE: groups and cells are told apart by the bytes of their texts."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import duckdb

from duckdb_dp.counting.encode import quote
from duckdb_dp.errors import DPError, brief, identifier
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.sql import catalog, own_names
from duckdb_dp.sql.above.kinds import group_keys
from duckdb_dp.sql.session import Session

if TYPE_CHECKING:
    from sqlglot import exp

_E = "\N{LATIN SMALL LETTER E WITH ACUTE}"
_ALIKE = (("'a'", "< 'B'"), ("'a'", "= 'A'"), (f"'{_E}'", "= 'e'"), ("'e\N{COMBINING ACUTE ACCENT}'", f"= '{_E}'"))
"""Texts, and what holds of them under some collation and not by their bytes."""


def collated(session: Session, relation: str, columns: Collection[str]) -> set[str]:
    """Those of some text columns of a relation, as it stands in FROM, that are not compared by their bytes.

    Privacy: reads the catalog alone; of the relation no row.
    """
    with session.looking() as cursor:
        if cursor is None or not columns or not _any(session):
            return set()
        read = {name: f"(SELECT {quote(name)} FROM {relation} WHERE false)" for name in columns}
        tests = [
            " OR ".join(f"coalesce({one}, {text}) {test}" for text, test in _ALIKE).join("()") for one in read.values()
        ]
        try:
            (found,) = cursor.execute(f"SELECT {', '.join(tests)}").fetchall()
        except duckdb.Error:
            return set()  # a table of another engine, or one that is gone, of which more is said elsewhere
    return {name for name, differs in zip(read, found, strict=True) if differs}


def in_use(session: Session) -> bool:
    """Whether there may be a column with a collation.

    Privacy: reads the catalog alone.
    """
    with session.looking() as cursor:
        return cursor is None or _any(session)


def _any(session: Session) -> bool:
    """Whether there is a column with a collation."""
    return any("COLLATE" in (text or "").upper() for *_, text in catalog.definitions(session))


def check_binds(session: Session, sql: str) -> None:
    """Refuse SQL that compares columns of two collations, as DuckDB does.

    Raises:
        DPError: it does.

    Privacy: DuckDB only binds it; no row is read.
    """
    with session.looking() as cursor:
        if cursor is None or not _any(session):
            return
        try:
            cursor.execute(f"DESCRIBE {own_names.bound(sql)}").fetchall()
        except duckdb.Error as error:
            if "different collation" in str(error):
                raise DPError(
                    "texts of two collations are compared, which DuckDB does not do; have both columns under one: ALTER TABLE ... ALTER "
                    "... TYPE VARCHAR COLLATE NOCASE."
                ) from None


def compared(
    session: Session, relation: str, columns: Mapping[str, str], selects: Sequence["exp.Select"]
) -> tuple[set[int], set[str]]:
    """The numbers of the SELECTs of one table whose conditions its cells do not decide as DuckDB does, and the columns they compare.

    Raises:
        DPError: a SELECT groups by a column that is compared under a collation.
    """
    from sqlglot import exp  # for import time

    used = {column.name.lower() for select in selects for column in select.find_all(exp.Column)}
    texts = [name for name, type_ in columns.items() if type_ == "VARCHAR" and name.lower() in used]
    found = collated(session, relation, texts)
    for select in selects if found else ():
        for key in group_keys(select):
            for column in key.find_all(exp.Column):
                _check(column.name, {name.lower() for name in found})
    read = {
        number
        for number, select in enumerate(selects, 1)
        if found
        & {name for name in found for column in select.find_all(exp.Column) if column.name.lower() == name.lower()}
    }
    return read, found


def check_groups(session: Session, parts: Sequence[GroupedSums], types: Mapping[str, str]) -> None:
    """Refuse to group the rows of joined tables by a column that is compared under a collation.

    Raises:
        DPError: there is one.
    """
    for relation in dict.fromkeys(part.source.sql for part in parts if part.source is not None):
        names = {
            name for part in parts if part.source is not None and part.source.sql == relation for name in part.clique
        }
        texts = sorted(name for name in names if types.get(name, "") == "VARCHAR")
        for name in collated(session, f"({relation})", texts):
            _check(name, {name.lower()})


def refusal(columns: Collection[str], mechanism: str) -> DPError:
    """Of conditions that only rows decide, by a mechanism that only cells have."""
    name = brief(identifier(min(columns)))
    return DPError(
        f"mechanism '{mechanism}' reads cells, which are told apart by their bytes, and {name} is compared under a collation; leave the "
        "mechanism out."
    )


def _check(name: str, found: Collection[str]) -> None:
    if name.lower() in found:
        shown = identifier(name)
        raise DPError(
            f"groups by {brief(shown)}, which is compared under a collation: DuckDB takes several texts for one group, and dp_sql tells "
            f"groups apart by their bytes; count in conditions, WHERE {shown} = 'a', or have the column without the collation: ALTER "
            f"TABLE ... ALTER {shown} TYPE VARCHAR USING lower({shown})."
        )
