"""dp_sql, GROUP BY of expressions over columns whose cells do not decide them: each becomes a column of the rows, with values of its own.

Of many the text says all values: conditions, CASE with literals, parts of dates such as hour(ts). Those of others are found.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from sqlglot import exp, parse_one

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import units
from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.domain.expression_bounds import conjuncts
from duckdb_dp.domain.row_expressions import checked
from duckdb_dp.domain.types import Scalar, Truth
from duckdb_dp.errors import DPError, identifier
from duckdb_dp.grouped_sums import Source
from duckdb_dp.sql import catalog, declared_groups, zones
from duckdb_dp.sql.above.kinds import ctes, group_keys
from duckdb_dp.sql.clamped_sums import has_aggregates
from duckdb_dp.sql.kept_values import kept, never_null
from duckdb_dp.sql.opaque import with_opaque_columns
from duckdb_dp.sql.same_conditions import form
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.typed import type_of
from duckdb_dp.sql.worked_out import part_of_time, worked_out
from duckdb_dp.synthesis.database import Table

_STRICT = (
    exp.Paren, exp.Neg, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.And, exp.Or, exp.Not, exp.Year,
    exp.Month, exp.Quarter, exp.Week, exp.Day, exp.DayOfWeek, exp.DayOfMonth, exp.DayOfYear, exp.Extract, exp.Dayname, exp.Monthname,
    exp.Hour, exp.Minute, exp.Second,
)  # fmt: skip
"""What is NULL of nothing but NULL. Others, such as casts, divisions and nullif, may be NULL of other values too."""

_NEVER = (exp.Literal, exp.Boolean, exp.Identifier, exp.Var, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ)
"""What is never NULL, whatever stands in it."""

_NAMES: dict[type[exp.Expr], list[Scalar]] = {
    exp.Dayname: ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    exp.Monthname: [
        "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
    ],
}  # fmt: skip


def undeclared(
    dataset: Dataset, table: Table, declared: Mapping[str, Attribute], selects: Sequence[exp.Select]
) -> tuple[dict[str, str], dict[str, tuple[str, Attribute | None]]]:
    """What SELECTs of the dataset's own table group by without a declaration: columns with their types, and expressions.

    Raises:
        DPError: an expression is not allowed; or a SELECT groups by the unit.
    """
    folded = {name.lower() for name in declared}
    unit = {name.lower() for names in units(dataset.unit) for name in names}
    known = {name.lower(): name for name in table.columns}
    plain: dict[str, str] = {}
    more: dict[str, tuple[str, Attribute | None]] = {}
    for select in selects:
        source = select.args.get("from_") or select.args.get("from")
        if source is None or not isinstance(source.this, exp.Table) or select.args.get("joins") or ctes(select):
            continue
        keys = {key.name.lower() for key in group_keys(select) if isinstance(key, exp.Column)}
        if unit and unit <= keys and not unit <= folded:
            named = " and ".join(identifier(known.get(name, name)) for name in sorted(unit))
            raise DPError(
                f"GROUP BY {named} makes each unit a group of its own, and what one person adds is never shown; group by other columns, or "
                "ask a quantile of a count of rows for each unit."
            )
        for name in [key for key in keys if key in known and key not in folded]:
            plain[known[name]] = table.columns[known[name]]
        if dataset.member is None:
            found = computed(select, table.columns, declared)
            more |= {text: (type_, values) for text, (_, type_, values) in found.items()}
    return {name: plain[name] for name in table.columns if name in plain}, more


def unknown(session: Session, dataset: Dataset, selects: Sequence[exp.Select]) -> bool:
    """Whether SELECTs of one of several tables group by expressions whose values neither declarations nor their text say.

    Raises:
        DPError: an expression is not allowed, or does not fit the types of its columns.
    """
    if dataset.member is None or (table := catalog.of(session, dataset)) is None:
        return False
    declared = session.declared(dataset)
    found = (computed(select, table.columns, declared) for select in selects)
    return any(values is None for one in found for _, _, values in one.values())


def by_row(select: exp.Select, columns: Mapping[str, str], declared: Mapping[str, Attribute]) -> bool:
    """Whether a SELECT groups by an expression that is worked out row by row, though declared cells may decide it."""
    try:
        return bool(computed(select, columns, declared))
    except DPError:
        return False  # which its own route says


def computed(
    select: exp.Select, columns: Mapping[str, str], declared: Mapping[str, Attribute]
) -> dict[str, tuple[exp.Expr, str, Attribute | None]]:
    """Text -> (expression, type, all its values where the text says them) of the keys that declared cells do not decide.

    Raises:
        DPError: an expression is not allowed, or does not fit the types of its columns.
    """
    names = {name.lower(): name for name in columns}
    found: dict[str, tuple[exp.Expr, str, Attribute | None]] = {}
    for key in group_keys(select):
        read = {column.name.lower() for column in key.find_all(exp.Column)}
        if isinstance(key, exp.Column) or not read or not read <= set(names):
            continue
        node = checked(key, names)
        zones.check(node, lambda column: columns[column.name])
        text = node.sql("duckdb")
        type_ = type_of({names[name]: columns[names[name]] for name in read}, text)
        known = {names[name]: declared[names[name]] for name in read if names[name] in declared}
        decided = len(known) == len(read) and all(one.kind != "bins" and not one.other for one in known.values())
        values = stated(node, text, type_, lambda one: type_of(columns, one.sql("duckdb")))
        held = _conditions(select, names)
        if values is None:
            if len(known) == len(read):
                by_text = {exp.column(name, quoted=True).sql("duckdb"): a for name, a in known.items()}
                values = declared_groups.beyond(node, text, type_, by_text, held)
            values = values or worked_out(node, text, type_, held, lambda one: type_of(columns, one.sql("duckdb")))
        if values is not None or not decided:
            never = never_null(node, held) if values is not None and values.nulls else set()
            nullable = [declared.get(one.name) for one in node.find_all(exp.Column) if one.sql("duckdb") not in never]
            found[text] = node, type_, kept(node, without_null(node, values, nullable), held)
    return found


def of_type(name: str, type_: str) -> Attribute | None:
    """All values of a BOOLEAN or an ENUM, and NULL; None of other types."""
    dtype = types.find(type_)
    if dtype is None or not (dtype.members is not None or isinstance(dtype, Truth)):
        return None
    try:
        return declare(name=name, type=type_, nulls=True)
    except DPError:
        return None


def without_null(node: exp.Expr, values: Attribute | None, read: Sequence[Attribute | None]) -> Attribute | None:
    """The values of an expression, without NULL where it is never NULL, or of NULL alone and no column of it is declared to have it.

    Args:
        node: the expression.
        values: its values.
        read: the declarations of the columns that it reads and that conditions do not keep from being NULL; None of one that has none.
    """
    known = all(one is not None and not one.nulls and not one.other for one in read)
    return values if values is None or _maybe_null(node, known) else replace(values, nulls=False)


def _maybe_null(node: exp.Expr, known: bool) -> bool:
    """Whether an expression may be NULL, where columns are NULL only if not ``known``. What a CASE takes from a column may always be."""
    if isinstance(node, _NEVER):
        return False
    if isinstance(node, exp.Column):
        return not known
    if isinstance(node, exp.Coalesce):
        return all(_maybe_null(one, known) for one in [node.this, *node.expressions])
    if isinstance(node, exp.Case | exp.If):
        ends = (
            [branch.args["true"] for branch in node.args["ifs"]] if isinstance(node, exp.Case) else [node.args["true"]]
        )
        ends.append(node.args.get("default") or node.args.get("false") or exp.null())
        return any(_maybe_null(end, known=False) for end in ends)
    return not isinstance(node, _STRICT) or any(_maybe_null(one, known) for one in node.iter_expressions())


def stated(node: exp.Expr, name: str, type_: str, type_of: Callable[[exp.Expr], str]) -> Attribute | None:
    """All values of an expression that its text says, and NULL; None where it does not.

    Args:
        node: the expression.
        name: what its column is called.
        type_: its type.
        type_of: the types of expressions that it takes.
    """
    node, low_high, nulls = node.unnest(), None, True
    values: list[Scalar] | None = None
    if type_ == "BOOLEAN":
        return declare(name=name, type=type_, nulls=True)
    if isinstance(node, exp.Case | exp.If):
        branches = (
            [branch.args["true"] for branch in node.args["ifs"]] if isinstance(node, exp.Case) else [node.args["true"]]
        )
        ends = [*branches, node.args.get("default") or node.args.get("false")]
        values = _literals(ends)
        nulls = any(end is None or isinstance(end.unnest(), exp.Null) for end in ends)
    elif type(node) in _NAMES:
        values = _NAMES[type(node)]
    else:
        low_high = part_of_time(node, type_of)
    try:
        if low_high is not None and (found := types.find(type_)) is not None and found.numeric:
            return declare(name=name, type=type_, low=low_high[0], high=low_high[1], nulls=True)
        return None if not values else declare(name=name, type=type_, values=values, nulls=nulls)
    except DPError:
        return None


def _conditions(select: exp.Select, names: Mapping[str, str]) -> list[exp.Expr]:
    """What all rows of a SELECT satisfy, as ``checked`` writes it."""
    found, where = [], select.args.get("where")
    for one in conjuncts(where.this) if where is not None else ():
        with suppress(DPError):  # which its own route says
            found.append(checked(one, names))
    return found


def _literals(nodes: Sequence[exp.Expr | None]) -> list[Scalar] | None:
    """The values of literals, each once, without NULL; None where one is something else."""
    found: dict[Scalar, None] = {}
    for node in nodes:
        inner = node.unnest() if node is not None else None
        if isinstance(inner, exp.Literal):
            text = str(inner.this)
            found[text if inner.is_string else int(text) if text.isdigit() else float(text)] = None
        elif inner is not None and not isinstance(inner, exp.Null):
            return None
    return list(found)


def rewritten(select: exp.Select, columns: Mapping[str, str], names: Sequence[str]) -> exp.Select:
    """The SELECT with columns in place of the expressions of these texts."""
    spelled = {name.lower(): name for name in columns}

    def text(node: exp.Expr) -> str:
        try:
            return checked(node, spelled).sql("duckdb")
        except DPError:
            return ""

    def replaced(node: exp.Expr) -> exp.Expr:
        own = "" if isinstance(node, exp.Column | exp.Identifier | exp.Select) else text(node)
        return exp.column(exp.to_identifier(own, quoted=True)) if own in names else node

    found = select.copy()
    for item in found.expressions:
        if not item.alias and text(item) in names:
            item.replace(exp.alias_(item.copy(), item.sql("duckdb"), quoted=True))
    for word in ("expressions", "group", "order", "having"):
        value = found.args.get(word)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, exp.Expr):
                one.replace(one.transform(replaced))
    return found


def source(table: Table, unit: Sequence[str], found: Mapping[str, str]) -> Source:
    """The rows with the columns that are computed, by text and type; one that fails is NULL."""
    more = ""
    for text, type_ in found.items():
        hidden = with_opaque_columns(parse_one(text, dialect="duckdb"), lambda column: table.columns[column.name])
        more += f", TRY(CAST(({hidden.sql('duckdb')}) AS {type_})) AS {quote(text)}"
    return Source(sql=f"SELECT *{more} FROM {full_name(*table.name)}", owner=tuple(unit))


def ranked(select: exp.Select) -> bool:
    """Whether a SELECT asks for the groups of which an aggregate is largest or smallest: ORDER BY it, with a LIMIT."""
    order = select.args.get("order")
    if order is None or select.args.get("limit") is None or form() < 4:
        return False
    first = order.expressions[0].this
    place = int(first.name) if first.name.isdigit() else 0
    aliases = {item.alias.lower(): item.unalias() for item in select.expressions if item.alias}
    if 0 < place <= len(select.expressions):
        return has_aggregates(select.expressions[place - 1])
    return has_aggregates(aliases.get(first.name.lower(), first))
