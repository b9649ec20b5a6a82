"""Counts links in their engine: joins of a link table with its parents, in one job.

It counts the same as ``sql/link_counts.py`` does in DuckDB's SQL, and tests compare the two.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duckdb_dp.counting.counts import Counts, words
from duckdb_dp.counting.engines.count import Cells, Table, bound, encoded
from duckdb_dp.counting.engines.expressions import Expression, by_bytes, is_null
from duckdb_dp.counting.engines.source import Source
from duckdb_dp.domain.domain import Attribute, Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.request import Request, units

Column = tuple[str, Attribute]
"""A column, and the attribute that says what it means, which may have another name."""

MOST, ROWS = -1, -2
"""In place of a block's number: how many links a unit has at most; how many rows the link table has."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A table that links refer to.

    Attributes:
        source: where its rows are.
        key: its columns that links refer to.
        columns: the columns of the link table that hold them.
        attributes: its declared columns.
        as_text: whether keys are compared as text, since their types differ.
        linked: pseudo-attribute of whether a row has a link, where that is counted.
        degree: pseudo-attribute of how many it has, where that is counted.
    """

    source: Source
    key: tuple[str, ...]
    columns: tuple[str, ...]
    attributes: tuple[Column, ...]
    as_text: bool
    linked: str | None = None
    degree: str | None = None

    def keys(self, table: Table, columns: Sequence[str]) -> list[Expression]:
        """Columns of a key, on either end of a reference, such that they can be compared: text by a digest of its bytes."""
        return [by_bytes(_text(table[name])) if self.as_text else table[name] for name in columns]


def _text(column: Expression) -> Expression:
    """A key as text: that of a whole number is the same in each type of numbers, 7 for 7.0 too."""
    text = column.cast("string")
    fractions = column.type().is_floating() or column.type().is_decimal()
    return text.re_replace("[.]0+$", "") if fractions else text


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What is counted of a link table.

    Attributes:
        request: the request.
        source: where the links are.
        parents: one or two tables that they refer to.
        attributes: the link table's own declared columns.
        cells: the attributes whose joint cells are counted over the links.
        distinct: whether a pair counts once, however often it occurs.
        linked: pseudo-attribute of whether a row of the link table itself has a parent, where that is counted.
    """

    request: Request
    source: Source
    parents: tuple[Parent, ...]
    attributes: tuple[Column, ...]
    cells: Clique
    distinct: bool
    linked: str | None = None

    @property
    def blocks(self) -> list[Clique]:
        """What the engine counts, in order: joint cells of the links, and of each table how its rows are linked."""
        tags = [tag for parent in self.parents for tag in (parent.linked, parent.degree)]
        return [self.cells, *((tag,) for tag in tags if tag is not None)]

    def check_now(self) -> None:
        """Compare what was declared with the tables as their engine has them now.

        Raises:
            DPError: they have changed, they are in several engines, or the engine does not answer; or a parent is read from
                the protected rows.
        """
        protected = [name for unit in units(self.request.unit) for name in unit]
        references = [name for parent in self.parents for name in parent.columns]
        self.source.check_now(_own(self.attributes), [*references, *protected])
        for parent in self.parents:
            if parent.source.backend is not self.source.backend:
                raise DPError(
                    f"'{self.source.name}' is in {self.source.engine} and '{parent.source.name}', which it refers to, in "
                    f"{parent.source.engine} on another connection; attach both from one Ibis connection."
                )
            parent.source.check_now(_own(parent.attributes), parent.key)
            self._check_apart(parent)

    def _check_apart(self, parent: Parent) -> None:
        """Refuse a parent that is read from the protected rows: one of them might change it, and so the links of others.

        Only the rows of the one protected parent are its unit's own.
        """
        own = [set(unit) for unit in units(self.request.unit)] == [set(parent.columns)]
        if not own and parent.source.shares(self.source):
            name = parent.source.name
            raise DPError(
                f"'{name}' may be read from the rows that '{self.source.name}' protects, so that one of them could change others' "
                f"links; if the rows of '{name}' are public or protected by themselves, make a table of them and attach that."
            )


def count_links(links: Links, unit_key: str) -> tuple[Counts, bool]:
    """Exact counts of linked rows, and whether no unit has more links than were promised.

    Blocks are the number of kept links, the joint cells of the parents and the link over them, and for each table how many
    of its rows have a kept link, or how many links they have.

    Args:
        links: what is counted.
        unit_key: the ledger's key of the hash that chooses which links of a unit are kept.

    Raises:
        DPError: the engine cannot count it, or failed.

    Privacy: exact counts; only ``private.py`` may read them.
    """
    links.check_now()
    found = links.source.fetch(lambda table: _together(links, table, unit_key))
    blocks, counts = found["block"].to_numpy(), found["n"].to_numpy()
    domain = links.request.domain
    counted = {block: _cells(found, blocks == i, domain, block) for i, block in enumerate(links.blocks)}
    linked = counts[blocks == 0].sum()
    counted[()] = np.zeros(1, np.int64), np.array([linked])
    if links.linked is not None:
        (rows,) = counts[blocks == ROWS]
        counted[(links.linked,)] = np.arange(2), np.array([rows - linked, linked])
    return Counts(domain, counted), bool((counts[blocks == MOST] <= links.request.max_rows).all())


def promise_holds(links: Links) -> bool:
    """Whether no unit has more links than were promised; true where links over the bound are left out.

    Raises:
        DPError: the engine cannot count it, or failed.

    Privacy: one bit about the rows, which a broken promise says.
    """
    import ibis

    if len(units(links.request.unit)) < 2:
        return True
    links.check_now()
    found = links.source.fetch(lambda table: ibis.union(*_most(links, table)))
    most = [number for (column,) in [found.columns] for number in column.to_pylist() if number is not None]
    return max(most, default=0) <= links.request.max_rows


def _own(columns: Sequence[Column]) -> list[Attribute]:
    """The attributes under their own columns' names."""
    return [replace(attribute, name=name) for name, attribute in columns]


def _cells(found: pa.Table, chosen: NDArray[np.bool_], domain: Domain, block: Clique) -> Cells:
    """The cells of one block, in the form of ``Counts``."""
    keys = [found[f"w{i}"].to_numpy()[chosen] for i in range(len(words(domain, block)))]
    counts = found["n"].to_numpy()[chosen].astype(np.int64)
    return np.stack(keys, axis=1).reshape(-1), np.repeat(counts, len(keys))


def _together(links: Links, table: Table, unit_key: str) -> Table:
    """All blocks in one statement: their number, the words w0, w1, ... of their keys, and n."""
    import ibis

    arrays = links.source.has("Array", "ArrayPosition", "Unnest")
    parents = [_parent(links, place, unit_key, arrays=arrays) for place in range(len(links.parents))]
    rows = _rows(links, table, arrays=arrays)
    joined = _joined(links, _kept(links, rows, unit_key), parents)
    names = _numbered("w", links)
    found = {links.cells: joined.group_by(names).aggregate(n=joined.count())}
    for place, parent in enumerate(parents):
        found |= _per_row(links, place, parent, joined)
    blocks = [_block(found[block], number, names) for number, block in enumerate(links.blocks)]
    if links.linked is not None:
        blocks.append(_block(rows.aggregate(n=rows.count()), ROWS, names))
    blocks += [_block(most, MOST, names) for most in _most(links, table)]
    return ibis.union(*blocks) if len(blocks) > 1 else blocks[0]


def _block(found: Table, number: int, names: Sequence[str]) -> Table:
    """One block's cells as all blocks have them."""
    import ibis

    words_ = {name: (found[name] if name in found.columns else ibis.literal(0)).cast("int64") for name in names}
    count = ibis.coalesce(found["n"].cast("int64"), ibis.literal(0, "int64"))
    return found.select(block=ibis.literal(number, "int32"), **words_, n=count)


def _numbered(letter: str, links: Links) -> list[str]:
    """Names of the words of a joint cell's key."""
    return [f"{letter}{i}" for i in range(len(words(links.request.domain, links.cells)))]


def _ends(links: Links, place: int, letter: str) -> list[str]:
    """Names of the columns of a key: e0_0, ... in the link table, k0_0, ... in the parent."""
    return [f"{letter}{place}_{i}" for i in range(len(links.parents[place].key))]


def _marks(links: Links) -> Iterator[list[str]]:
    """Names of the columns of each unit."""
    numbers = itertools.count()
    for columns in units(links.request.unit):
        yield [f"u{next(numbers)}" for _ in columns]


def _held(links: Links, table: Table) -> dict[str, Expression]:
    """The ends of each link and its units."""
    held: dict[str, Expression] = {}
    for place, parent in enumerate(links.parents):
        held |= zip(_ends(links, place, "e"), parent.keys(table, parent.columns), strict=True)
    for names, columns in zip(_marks(links), units(links.request.unit), strict=True):
        held |= {name: _unit(links, table, column) for name, column in zip(names, columns, strict=True)}
    return held


def _unit(links: Links, table: Table, column: str) -> Expression:
    """A column that names a unit, compared as the keys are that it is part of."""
    parent = next((parent for parent in links.parents if column in parent.columns), None)
    return table[column] if parent is None else parent.keys(table, [column])[0]


def _known(rows: Table, held: Sequence[str]) -> Table:
    """The rows without a NULL in some columns."""
    return rows.filter(*(~is_null(rows[name]) for name in held))


def _worded(links: Links, rows: Table, columns: Sequence[Column], held: Sequence[str], letter: str) -> Table:
    """From cell numbers c0, c1, ... to what they add to each word of a joint cell's key."""
    import ibis

    domain, added = links.request.domain, {}
    codes = {attribute.name: rows[f"c{i}"].cast("int64") for i, (_, attribute) in enumerate(columns)}
    for name, group in zip(_numbered(letter, links), words(domain, links.cells), strict=True):
        terms = [codes[a] * domain.cells(group[i + 1 :]) for i, a in enumerate(group) if a in codes]
        added[name] = reduce(add, terms) if terms else ibis.literal(0, "int64")
    return rows.select(*held, **added)


def _parent(links: Links, place: int, unit_key: str, *, arrays: bool) -> Table:
    """One row per key of a parent; of several with one key that of the least keyed hash of its own values."""
    parent = links.parents[place]
    table, names = parent.source.table, _ends(links, place, "k")
    keys = dict(zip(names, parent.keys(table, parent.key), strict=True))
    values = {f"a{i}": table[name] for i, (name, _) in enumerate(parent.attributes)}
    attributes = [attribute for _, attribute in parent.attributes]
    rows = encoded(table.select(**keys, **values), attributes, names, arrays=arrays)
    return bound(_worded(links, rows, parent.attributes, names, f"p{place}_"), names, 1, unit_key)


def _rows(links: Links, table: Table, *, arrays: bool) -> Table:
    """The links inside the domain: their ends, their units, and what they add to each word."""
    held = _held(links, table)
    values = {f"a{i}": table[name] for i, (name, _) in enumerate(links.attributes)}
    attributes = [attribute for _, attribute in links.attributes]
    rows = encoded(table.select(**held, **values), attributes, list(held), arrays=arrays)
    return _worded(links, rows, links.attributes, list(held), "w")


def _kept(links: Links, rows: Table, unit_key: str) -> Table:
    """The links that count: with all their keys, of equal pairs one where pairs are distinct, of a unit as many as may be."""
    names = [name for place in range(len(links.parents)) for name in _ends(links, place, "e")]
    protected = list(_marks(links))
    held = [*names, *itertools.chain(*protected)]
    kept = _known(rows, held)
    if links.distinct:
        kept = bound(kept, held, 1, unit_key)
    return bound(kept, protected[0], links.request.max_rows, unit_key) if len(protected) == 1 else kept


def _joined(links: Links, kept: Table, parents: Sequence[Table]) -> Table:
    """The kept links with all their parents: their ends, and the words of their joint cells."""
    joined = kept
    for place, parent in enumerate(parents):
        pairs = zip(_ends(links, place, "e"), _ends(links, place, "k"), strict=True)
        joined = joined.inner_join(parent, [joined[end] == parent[key] for end, key in pairs])
    letters = ["w", *(f"p{place}_" for place in range(len(parents)))]
    parts = zip(*(_numbered(letter, links) for letter in letters), strict=True)
    sums = {names[0]: reduce(add, [joined[name] for name in names]) for names in parts}
    ends = [name for place in range(len(parents)) for name in _ends(links, place, "e")]
    return joined.select(*ends, **sums)


def _per_row(links: Links, place: int, parent: Table, joined: Table) -> dict[Clique, Table]:
    """How many rows of a parent have a link, and how many links they have."""
    import ibis

    tags = links.parents[place]
    ends, keys = _ends(links, place, "e"), _ends(links, place, "k")
    linked = joined.group_by(ends).aggregate(n=joined.count())
    degrees = parent.left_join(linked, [parent[key] == linked[end] for end, key in zip(ends, keys, strict=True)])
    degree = ibis.coalesce(degrees["n"], ibis.literal(0, "int64"))
    found: dict[Clique, Table] = {}
    for tag in (tags.linked, tags.degree):
        if tag is not None:
            coded = degrees.select(w0=ibis.least(degree, links.request.domain.sizes[tag] - 1))
            found[(tag,)] = coded.group_by("w0").aggregate(n=coded.count())
    return found


def _most(links: Links, table: Table) -> list[Table]:
    """The most links of a unit, for each kind of units, where it is a promise; without, links over the bound are left out.

    Of all links with keys, whatever is declared of their attributes, as the promise of DuckDB's own links is.
    """
    protected = list(_marks(links))
    if len(protected) < 2:
        return []
    held = _held(links, table)
    rows = _known(table.select(**held), list(held))
    degrees = [rows.group_by(names).aggregate(n=rows.count()) for names in protected]
    return [found.aggregate(n=found["n"].max()) for found in degrees]
