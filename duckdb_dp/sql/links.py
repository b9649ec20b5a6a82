"""What a dp_links call links: the two sides, and the link with its request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

from duckdb_dp.counting.encode import full_name, quote, shuffled, with_differences
from duckdb_dp.domain.domain import Attribute, Clique
from duckdb_dp.request import Request
from duckdb_dp.sql.joined_columns import JoinedColumns, joined
from duckdb_dp.sql.provenance import PublicTable
from duckdb_dp.sql.synthetic_tables import CodedRows, Column, Key, key_text
from duckdb_dp.synthesis.database import Reference
from duckdb_dp.synthesis.links.columns import JOINED

LINKED, DEGREE, REPEATED = TAGS = "linked", "degree", "repeats a pair"
"""Names, after a role, of pseudo-attributes of its rows: whether they have a link, how many, and whether two of these are of one pair."""

KEY = "_dp_key "
"""What stands before the names of key columns of chosen rows, which no table of the user's has."""

ROW_NUMBER = "_dp_row_number"
"""A column that no table of the user's has, and that numbers rows until they have their parents."""

LARGEST_DEGREE = 100_000
"""Bounds up to which rows are counted by their number of links."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One end of the links.

    Attributes:
        reference: the foreign key to it; for a child table itself no columns of the original are read by it.
        attributes: its declared attributes, under its own columns' names, and after them joined ones.
        synthetic: the synthetic table's name, as it was asked for.
        key: the columns that identify the rows of the synthetic table.
        child: whether it is the table with the foreign key itself, each row of which has one parent.
        believed: whether rows of the synthetic table may have the same key.
        joined: columns of other tables that its rows, original and synthetic, have by references.
        known: the synthetic table as it was found.
    """

    reference: Reference
    attributes: tuple[Attribute, ...]
    synthetic: str
    key: Key
    child: bool = False
    believed: bool = False
    joined: tuple[JoinedColumns, ...] = ()
    known: PublicTable | None = None

    @property
    def sql(self) -> str:
        """The rows of the synthetic table, with joined columns."""
        assert self.known is not None, "tables are looked for before their rows are"
        return joined(self.known.sql, self.joined, synthetic=True)

    @property
    def held(self) -> list[str]:
        """The columns of the table itself that its attributes are read from."""
        own = len(self.attributes) - sum(len(one.attributes) for one in self.joined)
        found = [attribute.name for attribute in self.attributes[:own]]
        return [*dict.fromkeys([*found, *(column for one in self.joined for column in one.reference.columns)])]

    @property
    def linked(self) -> str:
        """SQL of its rows that can be linked: of parents those whose key is NULL in no part, and one of each key."""
        if self.child:
            return self.sql
        rows = f"FROM {self.sql} WHERE {' AND '.join(f'{quote(column)} IS NOT NULL' for column in self.key.columns)}"
        if self.believed:
            held = ", ".join(quote(name) for name in [*self.key.columns, *(a.name for a in self.attributes)])
            key = ", ".join(map(quote, self.key.columns))
            rows += f" QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {shuffled([held])}, {held}) = 1"
        return f"({rows})"

    @property
    def role(self) -> str:
        """The name of the reference."""
        return self.reference.role

    @property
    def width(self) -> int:
        """Columns of its key."""
        return len(self.reference.key)

    @property
    def renamed(self) -> tuple[Attribute, ...]:
        """Its attributes as the request calls them."""
        return tuple(replace(a, name=f"{self.role}.{a.name}") for a in self.attributes)

    @property
    def rows(self) -> CodedRows:
        """The synthetic rows."""
        return CodedRows.of(self.linked, self.columns, self.key)

    @property
    def columns(self) -> list[Column]:
        """Its columns with the attributes as the request calls them."""
        return list(zip((attribute.name for attribute in self.attributes), self.renamed, strict=True))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The rows of a child table and of its parents that are counted, where not all of them are.

    Attributes:
        cte: a CTE that both read.
        children, parents: SQL of the rows, with their key under the names of its columns after ``KEY``.
    """

    cte: str
    children: str
    parents: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The link that a dp_links or dp_quality call counts.

    Attributes:
        request: the request.
        sides: left and right.
        own: the link table's own attributes in use.
        distinct: whether a pair counts once, however often it occurs.
        as_text: whether keys are compared as text, because their types differ or are not known, so that no cast can fail.
        counted: the rows that are counted; None where those of the tables are.
    """

    request: Request
    sides: tuple[Side, Side]
    own: tuple[Attribute, ...]
    distinct: bool
    as_text: tuple[bool, bool]
    counted: Counted | None = None

    @property
    def table(self) -> str:
        """SQL of the rows with the foreign keys."""
        request, columns = self.request, self.sides[0].joined if self.child else ()
        whole_name = full_name(request.catalog, request.schema, request.table)
        return self.counted.children if self.counted else joined(whole_name, columns)

    @property
    def rows(self) -> str:
        """SQL of the rows with the foreign keys, and with the differences that are counted."""
        return with_differences(self.table, self.request.differences)

    def parent(self, place: int) -> str:
        """SQL of the rows that the foreign key on one end refers to."""
        side = self.sides[place]
        return self.counted.parents if self.counted else joined(full_name(*side.reference.parent), side.joined)

    @property
    def cells(self) -> Clique:
        """The attributes whose joint cells are counted over the links."""
        tags = {f"{side.role}.{tag}" for side in self.sides for tag in TAGS}
        return tuple(name for name in self.request.domain.attributes if name not in tags)

    def tagged(self, tag: str) -> Iterator[tuple[int, str]]:
        """(place, pseudo-attribute) of the sides whose rows are counted by whether they have a link, or by how many."""
        for place, side in enumerate(self.sides):
            if (name := f"{side.role}.{tag}") in self.request.domain.sizes:
                yield place, name

    def ends(self, place: int) -> list[str]:
        """What the columns of a foreign key are called among the kept links."""
        return [f"{'lr'[place]}{i}" for i in range(self.sides[place].width)]

    @property
    def child(self) -> bool:
        """Whether the left side is the table with the foreign key itself: one parent for each row."""
        return self.sides[0].child

    @property
    def children(self) -> int | None:
        """How many rows that refer to one row of their own table are kept; None where they refer to another table."""
        found: int | None = dict(self.request.options).get("children")
        return found

    @property
    def texts(self) -> bool:
        """Whether the key of a side is text, so that its synthetic rows must be read to know it."""
        return any(side.key.texts for side in self.sides)

    @property
    def parents(self) -> tuple[int, ...]:
        """The places of the sides that are tables of their own."""
        return (1,) if self.child else (0, 1)

    @property
    def per_row(self) -> list[Column]:
        """The columns of the table with the foreign keys that are counted, with their attributes; of differences as ``rows`` has them."""
        own = [(a.name, a) for a in (*self.own, *(one.attribute for one in self.request.differences))]
        return [*self.sides[0].columns, *own] if self.child else own

    def unit(self, column: str) -> str:
        """SQL of a column that names a unit, compared as the keys are that it is part of."""
        place = next((p for p in (0, 1) if column in self.sides[p].reference.columns), None)
        return quote(column) if place is None else self.keys(place, [column])[0]

    def keys(self, place: int, columns: Sequence[str]) -> list[str]:
        """SQL of the columns of a key, on either end of a foreign key, such that they can be compared: text by its bytes."""
        if self.counted:  # which are compared as they are, beside the attributes that the same columns may be
            return [quote(f"{KEY}{c}") for c in columns]
        return [f"encode({key_text(quote(c))})" if self.as_text[place] else quote(c) for c in columns]


def tag(side: Side, most: int | None) -> Attribute:
    """The pseudo-attribute of a side's rows: whether they have a link; how many, up to a number, where that is what to count."""
    if most is None or not 1 < most <= LARGEST_DEGREE:
        return Attribute(name=f"{side.role}.{LINKED}", type="BOOLEAN", kind="values", points=(False, True))
    return Attribute(name=f"{side.role}.{DEGREE}", type="INTEGER", kind="integers", points=(0, most))


def repeated(side: Side) -> Attribute:
    """The pseudo-attribute of a side's rows: whether two links of theirs are of one pair of rows."""
    return Attribute(name=f"{side.role}.{REPEATED}", type="BOOLEAN", kind="values", points=(False, True))


def from_request(request: Request) -> Link:
    """The link that a request stands for."""
    found = dict(request.options)
    sides, start = [], 0
    for place, (size, data, synthetic) in enumerate(
        zip(found["sizes"], found["references"], found["synthetic"], strict=True)
    ):
        reference = Reference.from_json(data)
        named = request.attributes[start : start + size]
        attributes = tuple(replace(a, name=a.name.removeprefix(f"{reference.role}.")) for a in named)
        child = bool(found["child"]) and place == 0
        sides.append(
            Side(
                reference=reference,
                attributes=attributes,
                synthetic=synthetic,
                key=Key(columns=reference.key),
                child=child,
                believed=bool(found.get("believed")),
                joined=JoinedColumns.from_json(found[JOINED][place], attributes) if JOINED in found else (),
            )
        )
        start += size
    tags = {f"{side.role}.{tag}" for side in sides for tag in TAGS}
    own = tuple(attribute for attribute in request.attributes[start:] if attribute.name not in tags)
    return Link(
        request=request, sides=(sides[0], sides[1]), own=own, distinct=found["distinct"], as_text=(False, False)
    )
