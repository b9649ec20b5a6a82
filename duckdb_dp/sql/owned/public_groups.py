"""Groups that are public without a declaration: values of public tables."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from sqlglot import exp, parse_one

from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.domain.types import ColumnType, Scalar, column_type
from duckdb_dp.errors import DPError, NoGroups, identifier
from duckdb_dp.sql.declarations import declared_point
from duckdb_dp.sql.exact_types import WHOLE
from duckdb_dp.sql.group_labels import MAX_CELLS
from duckdb_dp.sql.older_forms import TOGETHER
from duckdb_dp.sql.owned import condition_values, public_parts
from duckdb_dp.sql.owned.compiler import Compiler, key_alias
from duckdb_dp.sql.owned.relations import Item, Joined, atom
from duckdb_dp.sql.same_conditions import form

MOST = 100_000
"""Most groups from a public table."""


def values(
    compiler: Compiler, joined: Joined, value: exp.Expr, name: str, read: Callable[[str], list[tuple[Any, ...]]]
) -> Attribute:
    """The values of a column of a public table, or of an expression of it, where the public tables and conditions around it allow them.

    Args:
        compiler, joined: where it is read.
        value: a resolved column, or an expression of columns of one public table that stands in FROM.
        name: what it is called.
        read: the rows of a SELECT of public tables.

    Raises:
        DPError: there are none, or too many, or no group can be made of them.
    """
    column = next(value.find_all(exp.Column))
    alias = column.args["table"].name
    field = compiler.field(column)
    assert field is not None
    item = compiler.item(alias)
    shown = value if value is column else compiler.emitted(value)
    if item.relation.owned:  # a subquery, which reads the column from a public table as it is
        assert field.table is not None
        alone = compiler.put(compiler.tables.public(field.table))
        part, shown = Joined(items=[alone]), atom(alone.alias, field.column)
    else:
        part = public_parts.part(compiler, joined, item)
    type_ = field.type if value is column else compiler.totals.type(value)
    dtype = column_type(type_, f"GROUP BY {identifier(name)}: it")

    def different(part: Joined) -> list[tuple[Any, ...]]:
        select = compiler.select(part).select(exp.alias_(shown.copy(), "v"), copy=False)
        return read(
            f"SELECT v, CAST(v AS VARCHAR) AS t FROM (SELECT DISTINCT v FROM ({select.sql('duckdb')}) AS d) AS e"
        )

    rows = different(part)
    if (rows or item.join) and not any(
        row[0] is not None for row in rows
    ):  # NULL is the only group, and none is declared of it alone
        rows = different(Joined(items=[Item(alias=alias, relation=item.relation)]))
    if len(rows) > MOST:
        raise DPError(
            f"GROUP BY {identifier(name)}: the public table has more than {MOST:,} values of it; group by another column, or by "
            "something worked out of it, such as its first letters or a rounded number."
        )
    # Dates and times of years that Python has not are texts.
    found = sorted((row for row in rows if row[0] is not None), key=lambda row: (isinstance(row[0], str), row[0]))
    if not found:
        of = "the public tables have" if field.table is None else f"the public table {identifier(field.table[2])} has"
        raise NoGroups(
            f"GROUP BY {identifier(name)}: {of} no value of it that satisfies the conditions, so there is no group; leave out GROUP BY for "
            "one number of these rows."
        )
    points = [_point(dtype, plain, text) for plain, text in found]
    if None in points:
        raise DPError(
            f"GROUP BY {identifier(name)}: the public table has {found[points.index(None)][1]}, which is no group's value; group by "
            f"something worked out of it, such as CAST({identifier(name)} AS VARCHAR)."
        )
    nulls = bool(item.join) or len(found) < len(rows) or (item.relation.owned and field.nullable)
    return declare(name=name, type=type_, values=[one for one in points if one is not None], nulls=nulls)


def whole(
    compiler: Compiler, joined: Joined, value: exp.Expr, name: str, read: Callable[[str], list[tuple[Any, ...]]]
) -> Attribute | None:
    """The values of an expression of one public table whose columns have values of which no groups can be made, or too many.

    None where it is no such expression: then its columns' own values say its groups.

    Args:
        compiler, joined, value, name, read: as of ``values``.

    Raises:
        DPError: of the expression there are too many values too, or no group can be made of them.
    """
    columns = [*value.find_all(exp.Column)]
    aliases = {column.args["table"].name for column in columns}
    if isinstance(value, exp.Column) or len(aliases) != 1 or compiler.item(aliases.pop()).relation.owned:
        return None
    try:
        for column in columns:
            values(compiler, joined, column, column.name, read)
    except DPError:
        return values(compiler, joined, value, name, read)
    return None


def told(
    compiler: Compiler,
    value: exp.Expr,
    name: str,
    attribute: Callable[[exp.Expr, str], Attribute | None],
    conditions: Sequence[exp.Expr],
) -> Attribute | None:
    """The values of an expression, where the statement lists those of the columns that it reads, as literals; None where it does not.

    Args:
        compiler: knows the columns.
        value: what is grouped by.
        name: what it is called.
        attribute: the declaration of a column, under another name.
        conditions: what all rows satisfy.
    """

    def listed(column: exp.Expr, as_name: str) -> Attribute | None:
        field = compiler.field(column)
        if field is None or (found := attribute(column, as_name) or field.told) is None:
            return None
        left = field.left or bool(compiler.item(key_alias(column)).join)
        return replace(found, name=as_name or found.name, nulls=found.nulls or left)

    if compiler.as_written:
        return None
    if isinstance(value, exp.Column):
        return listed(value, name)
    return condition_values.beyond(value, compiler.totals.type, listed, name, conditions)


def _point(dtype: ColumnType, value: Any, text: str) -> Scalar | None:
    """A value as it is declared; None where no declaration can hold it."""
    # Python has no infinite dates, and no nanoseconds.
    known = text if "infinity" in text or dtype.name == "TIMESTAMP_NS" else str(value)
    plain: Scalar = value if isinstance(value, bool | int | float | str) else known
    return plain if dtype.fits(plain) else declared_point(dtype, text)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Columns of public tables that are grouped by together: the groups are the rows that these tables have of them.

    They are one column of texts, of which each column is a part.

    Attributes:
        columns: the columns, as SQL, with their types.
        attribute: the texts.
    """

    columns: Mapping[str, str]
    attribute: Attribute

    @property
    def value(self) -> exp.Expr:
        """The text of a row."""
        parts = ", ".join(f"coalesce(CAST({column} AS VARCHAR), chr({ord(_NULL)}))" for column in self.columns)
        return parse_one(f"concat_ws(chr({ord(_APART)}), {parts})", dialect="duckdb")

    def part(self, column: str, text: exp.Expr) -> exp.Expr:
        """One of the columns, of a text."""
        place = list(self.columns).index(column) + 1
        found = f"nullif(split_part({text.sql('duckdb')}, chr({ord(_APART)}), {place}), chr({ord(_NULL)}))"
        return parse_one(f"CAST({found} AS {self.columns[column]})", dialect="duckdb")


_APART, _NULL = "\x1f", "\x1e"
"""What stands between the columns of a text, and for NULL."""

_EXACT = WHOLE | {"HUGEINT", "VARCHAR", "DATE", "TIMESTAMP", "TIME", "BOOLEAN"}
"""Types of which the text says the value, and in requests of earlier versions alone."""

_ALSO = {"DOUBLE", "FLOAT", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"}
"""Further ones, beside decimals. Of two texts of equal numbers, 0.0 and -0.0, the groups are one."""


def together(
    compiler: Compiler, joined: Joined, columns: Sequence[exp.Expr], read: Callable[[str], list[tuple[Any, ...]]]
) -> list[Together]:
    """Columns of public tables that conditions tie to one another, by what ties them; not those of which all combinations are there.

    Args:
        compiler, joined: where they are read.
        columns: resolved ones that are grouped by, each a column of a public table as it is.
        read: the rows of a SELECT of public tables.
    """
    hard = {one.sql("duckdb") for one in columns if form() >= 7 and _is_hard(compiler, joined, one, read)}
    nulls = {one.sql("duckdb") for one in columns if _is_null(compiler, joined, one)}
    hard |= nulls
    found, cells = list[Together | None](), 1
    for one in (each for each in columns if compiler.item(key_alias(each)).join):
        part = _part(compiler, joined, one)
        found.append(_together(compiler, part, [one], read, all_=True, left=True))
        cells *= 1 if found[-1] is None else found[-1].attribute.size
    columns = [each for each in columns if not compiler.item(key_alias(each)).join]
    left = [*columns] if len(columns) > 1 or hard else []
    while left:
        part = _part(compiler, joined, left[0])
        aliases = {item.alias for item in part.items}
        own = [one for one in left if one.args["table"].name in aliases]
        if nulls & {one.sql("duckdb") for one in own}:
            own = [one for one in own if _is_exact(compiler.totals.type(one))]
        some = any(one.sql("duckdb") in hard for one in own)
        found.append(_together(compiler, part, own, read, all_=some) if len(own) > 1 or some else None)
        cells *= _different(compiler, part, own, read) if found[-1] is None else found[-1].attribute.size
        left = [one for one in left if one not in own]
        if len(found) == 1 and form() < 6:  # in requests of earlier versions those of one alone
            break
    if cells > MAX_CELLS:  # on so many parts of a text are not worked out
        found = found[:1]
    return [one for one in found if one is not None]


def _different(
    compiler: Compiler, part: Joined, columns: Sequence[exp.Expr], read: Callable[[str], list[tuple[Any, ...]]]
) -> int:
    """How many combinations some columns have, each with all others."""
    select = compiler.select(part)
    for i, column in enumerate(columns):
        select = select.select(exp.alias_(column.copy(), f"v{i}"), copy=False)
    counts = ", ".join(f"count(DISTINCT v{i}) + 1" for i in range(len(columns)))
    return math.prod(read(f"SELECT {counts} FROM ({select.sql('duckdb')}) AS d")[0])


def _is_hard(
    compiler: Compiler, joined: Joined, column: exp.Expr, read: Callable[[str], list[tuple[Any, ...]]]
) -> bool:
    """Whether a column has values that no declaration holds: NaN, infinite ones, long decimals."""
    type_ = compiler.totals.type(column)
    if not _is_exact(type_) or type_ in WHOLE | {"HUGEINT", "VARCHAR", "TIME", "BOOLEAN"}:
        return False
    try:
        values(compiler, joined, column, column.name, read)
    except NoGroups:
        return False
    except DPError:
        return True
    return False


def is_hard_left(
    compiler: Compiler, joined: Joined, column: exp.Expr, read: Callable[[str], list[tuple[Any, ...]]]
) -> bool:
    """The same of a column that an outer join may leave out, or is always NULL; of requests of earlier versions none was answered."""
    if form() < 8 or compiler.as_written:
        return False
    return _is_hard(compiler, joined, column, read) or _is_null(compiler, joined, column)


def _part(compiler: Compiler, joined: Joined, column: exp.Expr) -> Joined:
    return public_parts.part(compiler, joined, compiler.item(key_alias(column)))


def _is_null(compiler: Compiler, joined: Joined, column: exp.Expr) -> bool:
    """Whether a column is NULL in all rows, so that NULL is its only group; where no outer join may leave it out, if there are any."""
    if form() < 8 or compiler.as_written or not _is_exact(compiler.totals.type(column)):
        return False
    item, field = compiler.item(key_alias(column)), compiler.field(column)
    if not item.join and field is not None and not field.nullable:
        return False
    part = Joined(items=[replace(item, join="", on=[])]) if item.join else _part(compiler, joined, column)
    select = compiler.select(part).select(exp.alias_(column.copy(), "v"), copy=False)
    counts = exp.select("count(v) = 0" if item.join else "count(*) > 0 AND count(v) = 0")
    return bool(compiler.tables.counted(counts.from_(select.subquery("d"))))


def _is_exact(type_: str) -> bool:
    return type_ in _EXACT or (form() >= 7 and (type_ in _ALSO or type_.startswith("DECIMAL(")))


def _together(
    compiler: Compiler,
    part: Joined,
    columns: Sequence[exp.Expr],
    read: Callable[[str], list[tuple[Any, ...]]],
    *,
    all_: bool,
    left: bool = False,
) -> Together | None:
    """Those of one part of FROM; None where all combinations of their values are there and not ``all_`` is wanted, or too many.

    With ``left`` an outer join may leave them out.
    """
    types = {one.sql("duckdb"): compiler.totals.type(one) for one in columns}
    if not all(map(_is_exact, types.values())) or (len(types) < 2 and not all_):
        return None
    select = compiler.select(part)
    for i, text in enumerate(types):
        select = select.select(exp.alias_(parse_one(text, dialect="duckdb"), f"v{i}"), copy=False)
    texts = ", ".join(f"coalesce(CAST(v{i} AS VARCHAR), chr({ord(_NULL)}))" for i in range(len(types)))
    rows = read(f"SELECT DISTINCT concat_ws(chr({ord(_APART)}), {texts}) AS t FROM ({select.sql('duckdb')}) AS d")
    found = sorted({row[0] for row in rows} | ({_APART.join(_NULL * len(types))} if left else set()))
    each = [set(values) for values in zip(*(text.split(_APART) for text in found), strict=False)]
    whole = len(each) == len(types) and (len(found) < math.prod(map(len, each)) or all_)
    if not whole or len(found) > MAX_CELLS or any(text.count(_APART) != len(types) - 1 for text in found):
        return None
    return Together(columns=types, attribute=declare(name=TOGETHER, type="VARCHAR", values=found))
