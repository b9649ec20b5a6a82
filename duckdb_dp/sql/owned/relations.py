"""Relations as the compiler sees them: whose rows they hold, and what is known of their columns."""

from dataclasses import dataclass, field, replace
from typing import final

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, brief, identifier
from duckdb_dp.grouped_sums import Lookup
from duckdb_dp.sql.family import Member
from duckdb_dp.synthesis.database import Name


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """The value is one component of the key of a row of a table, and who owns that row owns this one.

    Attributes:
        table: the table.
        key: the columns of its key.
        place: which of them.
        row: of which row, where the key has more columns than this: components of two rows make up the key of a third one, whoever
            owns that; '' where one column is the whole key, and of the unit's key, which all rows of an owner share.
    """

    table: Name
    key: tuple[str, ...]
    place: int
    row: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Referred:
    """The key of a public table that a column refers to.

    Attributes:
        parent: the table.
        key: its column.
        enforced: whether a constraint says that the column has no other value, but NULL.
    """

    parent: Name
    key: str
    enforced: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column of a relation.

    Attributes:
        name: for users.
        at: in SQL.
        type: its SQL type.
        tags: what it says about the owner; none where it may be NULL beside a row that has an owner.
        maybe: what it says where it is not NULL.
        nullable: whether it may be NULL.
        attribute: its declaration, where it is a declared column as it is.
        table, column: the table that it comes from, as it is.
        public: whether that table is public.
        told: its values, where the statement itself lists them.
        numbers: whether it numbers the rows of each unit from 1, as row_number() does.
        left: whether an outer join may have left it out.
        refers: the keys of public tables that it refers to, as it is.
    """

    name: str
    at: str
    type: str
    tags: frozenset[Tag] = frozenset()
    maybe: frozenset[Tag] = frozenset()
    nullable: bool = True
    attribute: Attribute | None = None
    table: Name | None = None
    column: str = ""
    public: bool = False
    told: Attribute | None = None
    numbers: bool = False
    left: bool = False
    refers: tuple[Referred, ...] = ()

    @property
    def optional(self) -> "Field":
        """The same where an outer join may leave it out."""
        return replace(self, tags=frozenset(), maybe=self.tags | self.maybe, nullable=True, left=True)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Most:
    """The most rows that one unit has in a relation.

    Attributes:
        rows: how many.
        of: (table, rows) of those whose bounds make up the product.
        public: whether it depends on how many rows public tables have.
    """

    rows: int = 1
    of: tuple[tuple[str, int], ...] = ()
    public: bool = False

    def times(self, other: "Most") -> "Most":
        """That of a join in which each row of one has the other's rows."""
        return Most(rows=self.rows * other.rows, of=(*self.of, *other.of), public=self.public or other.public)

    def plus(self, other: "Most", table: str) -> "Most":
        """That of a LEFT JOIN, of the rows that have one of its table and of those that have none."""
        rows, public = self.rows + other.rows, self.public or other.public
        return Most(
            rows=rows, of=((f"LEFT JOIN {table} ({self}, or {str(other) or 1} without one)", rows),), public=public
        )

    def first(self, rows: int | None) -> "Most":
        """That of the first rows of each unit, so many; None for all."""
        if rows is None or rows >= self.rows:
            return self
        return Most(rows=rows, of=(("the first rows of each unit", rows),) if rows > 1 else ())

    def __str__(self) -> str:
        return " x ".join(f"{rows} of {name}" for name, rows in self.of)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fan:
    """How many rows joins make of one row that is read.

    Attributes:
        copies: how many, but for one join with all rows of the same unit.
        squared: whether there is one.
        of: (table, rows) of those that make more rows of one.
        cut: the aliases of the items of which a join takes some rows alone, with those that stand before them.
    """

    copies: int = 1
    squared: bool = False
    of: tuple[tuple[str, int], ...] = ()
    cut: tuple[tuple[str, frozenset[str]], ...] = ()

    @property
    def rows(self) -> int:
        """How many rows: a join with all rows of a unit counts as one of as many as a further one may take."""
        return self.copies * (FURTHER if self.squared else 1)

    def times(self, other: "Fan") -> "Fan":
        """That of a join in which each row of one has the other's rows."""
        return Fan(
            copies=self.copies * other.copies,
            squared=self.squared or other.squared,
            of=(*self.of, *other.of),
            cut=(*self.cut, *other.cut),
        )

    def __str__(self) -> str:
        return " x ".join(f"{rows:,} of {name}" for name, rows in self.of)


@final
@dataclass(frozen=True, slots=True)
class Written:
    """A query of WITH as it was written.

    Attributes:
        select: the query.
        columns: names that WITH gives its columns.
        ctes: the queries before it.
        relation: what it was compiled to, whose id stands for it.
    """

    select: exp.Select
    columns: list[str]
    ctes: "dict[str, Relation]"
    relation: "Relation"


FURTHER = 100
"""Rows that a join takes of those that agree in what it fixes, where all rows of the unit are joined already."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table or a compiled query.

    Attributes:
        query: its SQL: a table by its full name, or a query.
        fields: its columns.
        owned: whether its rows belong to units; otherwise they are public.
        owner: its columns that name a row's owner; () of a member that has to look it up, and where each row is a unit.
        member: of a base table that has to look up its owner, the member.
        single: whether no owner has two rows.
        keys: sets of columns that no two rows share.
        declared: sets of columns that are keys as references towards the unit declare, which nothing enforces.
        expected: these and all others that are declared; a bound on rows may follow, as it is enforced itself.
        most: how many rows one unit has at most, as declared; None of public rows, and where nothing is declared or asked.
        fan: how many rows its joins make of one.
        lookup: of a table that looks up its owner, its rows before that.
    """

    query: exp.Expr
    fields: tuple[Field, ...]
    owned: bool
    owner: tuple[str, ...] = ()
    member: Member | None = None
    single: bool = False
    keys: tuple[frozenset[str], ...] = ()
    declared: tuple[frozenset[str], ...] = ()
    expected: tuple[frozenset[str], ...] = ()
    most: Most | None = None
    fan: Fan = Fan()
    lookup: Lookup | None = None

    @property
    def types(self) -> dict[str, str]:
        """Its columns in SQL, with their types."""
        return {field.at: field.type for field in self.fields}

    @property
    def called(self) -> str:
        """What errors call it: the name of its table, where there is one."""
        tables = {field.table for field in self.fields if field.table is not None}
        return identifier(next(iter(tables))[2]) if len(tables) == 1 else "a subquery"


@final
@dataclass(slots=True, kw_only=True)
class Condition:
    """One of the conditions that AND joins.

    Attributes:
        node: as it was written, or as it is resolved.
        scope: where its columns are looked for; None of a resolved one.
    """

    node: exp.Expr
    scope: "Scope | None" = None


@final
@dataclass(slots=True, kw_only=True)
class Item:
    """A relation in the FROM of a statement that is emitted.

    Attributes:
        alias: under which it stands there, in no other FROM.
        relation: what stands there.
        join: '' of an inner one, 'LEFT' or 'FULL'.
        on: the conditions of a LEFT or FULL JOIN.
        left: whether that is read as an inner join, and was written as a LEFT JOIN.
        owner: expressions for the owner; None before it is known, and of public rows.
        words: its columns -> the table and the column by which the statement names them.
    """

    alias: str
    relation: Relation
    join: str = ""
    left: bool = False
    on: list[Condition] = field(default_factory=list)
    owner: tuple[exp.Expr, ...] | None = None
    words: dict[str, tuple[str, str]] = field(default_factory=dict, repr=False)

    @property
    def called(self) -> str:
        """What errors call it: as the statement does, where it has a name there."""
        names = {table for table, _ in self.words.values()}
        return identifier(names.pop()) if len(names) == 1 else self.relation.called


@final
@dataclass(slots=True, kw_only=True)
class Source:
    """A name of FROM as users see it, with its columns: expressions over the columns of items.

    Attributes:
        alias: its name in small letters.
        columns: (name, expression), in order.
        table: of a table its name, in small letters.
    """

    alias: str
    columns: list[tuple[str, exp.Expr]]
    table: tuple[str, ...] = ()


@final
@dataclass(slots=True, kw_only=True)
class Scope:
    """The names that a SELECT sees.

    Attributes:
        outer: of the SELECT around it.
        ctes: name in small letters -> what WITH defines.
        sources: of FROM.
        merged: columns of USING, which stand for both sides.
        aliases: of the SELECT's list, in small letters, as they were written.
        joined: what the SELECT is emitted from.
    """

    outer: "Scope | None"
    ctes: dict[str, Relation]
    sources: list[Source] = field(default_factory=list)
    merged: dict[str, exp.Expr] = field(default_factory=dict)
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    joined: "Joined"


@final
@dataclass(slots=True, kw_only=True)
class Joined:
    """The FROM and WHERE of an emitted SELECT.

    Attributes:
        outer: that of the SELECT around it, whose columns it may read.
        items: in the order of their joins.
        conditions: what all rows satisfy.
        owner: expressions for a row's owner; None of public rows.
        single: whether no owner has two rows.
        fan: how many rows the joins make of one.
    """

    outer: "Joined | None" = None
    items: list[Item] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    owner: tuple[exp.Expr, ...] | None = None
    single: bool = False
    fan: Fan = Fan()


def with_names(relation: Relation, given: list[str], what: str) -> Relation:
    """A relation whose first columns have the names that WITH gives them.

    Raises:
        DPError: there are more names than columns.
    """
    if len(given) > len(relation.fields):
        raise DPError(f"{brief(what)} names {len(given)} columns and has {len(relation.fields)}.")
    fields = [replace(f, name=given[i]) if i < len(given) else f for i, f in enumerate(relation.fields)]
    return replace(relation, fields=tuple(fields))


def as_item(item: Item) -> exp.Expr:
    """An item of FROM under its alias."""
    query = item.relation.query.copy()
    if isinstance(query, exp.Table):
        query.set("alias", exp.TableAlias(this=exp.to_identifier(item.alias, quoted=True)))
        return query
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(item.alias, quoted=True)))


def atom(alias: str, at: str) -> exp.Column:
    """A column of an item."""
    return exp.column(exp.to_identifier(at, quoted=True), table=exp.to_identifier(alias, quoted=True))
