"""dp_sql, the direct route: SELECTs whose aggregates are clamped sums over the rows themselves, group by group."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import duckdb
from sqlglot import exp, parse_one

from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.predicate import cells_where
from duckdb_dp.domain.row_expressions import bounds, checked
from duckdb_dp.errors import DPError, brief, few, first_line, identifier, quoted
from duckdb_dp.grouped_sums import GroupedSums, Label, Output, Piece, Sum
from duckdb_dp.sql.group_labels import Keys, grouped

_ABOVE = {
    "joins": "a join; protect a view of the join instead",
    "distinct": "DISTINCT; GROUP BY gives each group once",
    "windows": "a window; work on the result",
    "qualify": "QUALIFY; work on the result",
    "with": "a WITH clause, which is not read; name the protected table in FROM, or protect a view instead",
    "sample": "a sample; noise already protects the rows",
    "offset": "OFFSET; cut the result",
}
_UNDERSTOOD = {"expressions", "from_", "from", "where", "group", "having", "order", "limit"}

_VARIANCES = {
    exp.Variance: (True, False), exp.VariancePop: (False, False), exp.Stddev: (True, True), exp.StddevSamp: (True, True),
    exp.StddevPop: (False, True),
}  # fmt: skip
"""Whether it is of a sample, n - 1, and whether its root is taken."""

_NAMES = {"mean": exp.Avg, "var_samp": exp.Variance, "stddev_samp": exp.StddevSamp}

_INSTEAD = {
    exp.Max: "ask a high quantile: dp_quantiles(table, column, [0.99])",
    exp.Min: "ask a low quantile: dp_quantiles(table, column, [0.01])",
    exp.Median: "ask dp_quantiles(table, column, [0.5])",
    exp.PercentileCont: "ask dp_quantiles(table, column, [0.5])",
    exp.PercentileDisc: "ask dp_quantiles(table, column, [0.5])",
    exp.Quantile: "ask dp_quantiles(table, column, [0.5])",
    exp.Mode: "count(*) with GROUP BY the column, and take the largest",
}
"""What to ask instead of an aggregate that one row can change without bound."""


def parts(
    select: exp.Select, number: int, columns: Mapping[str, str], unit: Sequence[str], declared: Mapping[str, Attribute]
) -> list[GroupedSums]:
    """The grouping sets of a SELECT, each with its sums.

    Args:
        select: what was asked.
        number: of it in the call.
        columns: name -> type of the table's columns.
        unit: the columns that name the privacy unit; none where every row is one.
        declared: the declarations.

    Raises:
        DPError: it cannot be answered; the message says what would work.
    """
    return _Compiler(select, number, columns, unit, declared).parts()


class _Compiler:
    """One SELECT."""

    def __init__(
        self,
        select: exp.Select,
        number: int,
        columns: Mapping[str, str],
        unit: Sequence[str],
        declared: Mapping[str, Attribute],
    ) -> None:
        self._select, self._number = select, number
        self._text = select.sql("duckdb")
        self._types = columns
        self._unit = {name.lower() for name in unit}
        self._names = {name.lower(): name for name in columns}
        self._declared = declared
        self._sums: dict[Sum, int] = {}
        self._mark = "@"
        while self._mark in self._text:
            self._mark += "@"
        for word, what in _ABOVE.items():
            if select.args.get(word) or select.args.get(f"{word}_"):
                self._refuse(f"has {what}")
        if extra := {word for word, value in select.args.items() if value} - _UNDERSTOOD:
            self._refuse(f"has {extra.pop().upper()}; write SELECT ... FROM table WHERE ... GROUP BY ... alone")
        self._aliases = {item.alias.lower(): item.unalias() for item in select.expressions if item.alias}
        self._keys = Keys()

    def _refuse(self, why: str) -> NoReturn:
        raise DPError(f"{brief(self._text)} {why}.")

    def parts(self) -> list[GroupedSums]:
        where = self._select.args.get("where")
        condition = None if where is None else self._row(where.this)
        sets = self._grouping_sets()
        labels: list[tuple[str, int]] = []
        outputs: list[Output] = []
        for item in self._select.expressions:
            inner = item.unalias()
            key = self._key_of(inner)
            if key is not None:
                labels.append((item.alias_or_name or inner.sql("duckdb"), key))
            else:
                outputs.append(Output(name=item.alias or _named(inner), pieces=self._pieces(inner)))
        if not any(isinstance(piece, int) for output in outputs for piece in output.pieces):
            self._refuse("counts nothing; select count(*), sum(column) or avg(column)")
        having = self._select.args.get("having")
        limit = self._select.args.get("limit")
        common = {
            "number": self._number,
            "having": () if having is None else self._pieces(having.this),
            "order": self._order(outputs, dict(labels)),
            "limit": None if limit is None else self._limit(limit),
            "where": "" if condition is None else condition.sql("duckdb"),
        }
        self._check_names([name for name, _ in labels], outputs)
        typed = self._bind(condition, outputs, labels)
        used = self._used(condition)
        return [
            GroupedSums(
                **common,
                columns=used,
                sums=tuple(self._sums),
                outputs=typed,
                **grouped(keys, self._keys, labels, self._declared, self._restricted(condition)),
            )
            for keys in sets
        ]

    # Rows

    def _row(self, node: exp.Expr) -> exp.Expr:
        """An expression over the columns of a row."""
        for inner in node.find_all(exp.AggFunc, exp.Subquery, exp.Select, exp.Window):
            self._refuse(f"uses {brief(inner.sql('duckdb'))} where the values of one row are asked for")
        return checked(node, self._names)

    def _restricted(self, condition: exp.Expr | None) -> dict[str, list[exp.Expr]]:
        """The conditions on one declared attribute each, by its name."""
        found: dict[str, list[exp.Expr]] = {}
        for part in [] if condition is None else _conjuncts(condition):
            names = {column.name for column in part.find_all(exp.Column)}
            if len(names) == 1 and (name := names.pop()) in self._declared:
                try:
                    cells_where(part, [self._declared[name]])
                except DPError:
                    continue
                found.setdefault(name, []).append(part)
        return found

    # Groups

    def _grouping_sets(self) -> tuple[tuple[int, ...], ...]:
        group = self._select.args.get("group")
        if group is None:
            return ((),)
        if group.args.get("all"):
            plain = [item.unalias() for item in self._select.expressions if not _aggregates(item)]
            return (tuple(dict.fromkeys(self._add_key(item) for item in plain)),)
        nested = [item for word in ("cube", "rollup", "grouping_sets") for item in group.args.get(word) or []]
        factors = [self._sets(item) for item in [*group.expressions, *nested]]
        found = [tuple(dict.fromkeys(itertools.chain(*chosen))) for chosen in itertools.product(*factors)]
        return tuple(dict.fromkeys(found))

    def _sets(self, node: exp.Expr) -> list[tuple[int, ...]]:
        """The grouping sets that one item of GROUP BY stands for."""
        if isinstance(node, exp.Cube | exp.Rollup):
            items = [self._members(item) for item in node.expressions]
            if isinstance(node, exp.Rollup):
                return [tuple(itertools.chain(*items[:size])) for size in range(len(items), -1, -1)]
            chosen = (found for size in range(len(items), -1, -1) for found in itertools.combinations(items, size))
            return [tuple(itertools.chain(*found)) for found in chosen]
        if isinstance(node, exp.GroupingSets):
            return [found for item in node.expressions for found in self._sets(item)]
        return [self._members(node)]

    def _members(self, node: exp.Expr) -> tuple[int, ...]:
        if isinstance(node, exp.Tuple):
            return tuple(key for item in node.expressions for key in self._members(item))
        if isinstance(node, exp.Paren):
            return self._members(node.this)
        if isinstance(node, exp.Literal) and not node.is_string:
            place = str(node.this)
            if not place.isdigit() or not 1 <= int(place) <= len(self._select.expressions):
                self._refuse(f"groups by {place}, but {len(self._select.expressions)} columns are selected; group by columns")
            node = self._select.expressions[int(place) - 1].unalias()
        elif isinstance(node, exp.Column) and node.name.lower() not in self._names:
            node = self._aliases.get(node.name.lower(), node)
        return (self._add_key(node),)

    def _add_key(self, node: exp.Expr) -> int:
        found = self._row(node)
        names = {column.name for column in found.find_all(exp.Column)}
        for name in names:
            if name not in self._declared:
                raise DPError(
                    f"GROUP BY {brief(node.sql('duckdb'))}: the values of {identifier(name)} are not declared, and the groups "
                    "must be public; declare them by dp_attribute, or find them by dp_discover."
                )
        if not names:
            self._refuse(f"groups by {brief(node.sql('duckdb'))}, which is the same for all rows; leave it out")
        return self._keys.add(found, tuple(name for name in self._declared if name in names))

    def _key_of(self, node: exp.Expr) -> int | None:
        """The group key that an expression is, if any."""
        if _aggregates(node):
            return None
        try:
            found = checked(node, self._names)
        except DPError:
            return None
        return self._keys.find(found)

    # Results

    def _pieces(self, node: exp.Expr) -> tuple[Piece, ...]:
        """An expression over aggregates and group keys."""
        marked = checked(self._marked(node), {f"{self._mark}{kind}{i}": f"{self._mark}{kind}{i}" for kind in "akg" for i in range(len(self._sums) + len(self._keys.texts))})
        found: list[Piece] = []
        pattern = rf'"{re.escape(self._mark)}([akg])(\d+)"'
        text = marked.sql("duckdb")
        last = 0
        for match in re.finditer(pattern, text):
            if match.start() > last:
                found.append(text[last : match.start()])
            kind, index = match.group(1), int(match.group(2))
            found.append(index if kind == "a" else ("known", index) if kind == "k" else ("group", index))
            last = match.end()
        if last < len(text):
            found.append(text[last:])
        return tuple(found)

    def _marked(self, node: exp.Expr) -> exp.Expr:
        """The expression with marks in place of aggregates and group keys."""
        key = self._key_of(node)
        if key is not None:
            return self._marker("g", key)
        if _is_aggregate(node):
            return exp.paren(self._aggregate(node))
        if isinstance(node, exp.Column):
            alias = self._aliases.get(node.name.lower())
            if alias is not None and node.name.lower() not in self._names:
                return exp.paren(self._marked(alias))
            self._refuse(
                f"uses {identifier(node.name)} beside aggregates without grouping by it; add GROUP BY {identifier(node.name)}"
            )
        found = node.copy()
        for name, value in list(found.args.items()):
            if isinstance(value, exp.Expr) and not isinstance(value, exp.DataType | exp.Var):
                found.set(name, self._marked(value))
            elif isinstance(value, list):
                found.set(name, [self._marked(item) for item in value])
        return found

    def _marker(self, kind: str, index: int) -> exp.Expr:
        return exp.column(exp.to_identifier(f"{self._mark}{kind}{index}", quoted=True))

    def _sum(self, one: Sum) -> int:
        return self._sums.setdefault(one, len(self._sums))

    def _aggregate(self, node: exp.Expr) -> exp.Expr:
        where = ""
        if isinstance(node, exp.Filter):
            where = self._row(node.expression.this).sql("duckdb")
            node = node.this
        if isinstance(node, exp.Anonymous):
            node = _NAMES[node.name.lower()](this=node.expressions[0] if len(node.expressions) == 1 else None)
        inner = node.this
        if isinstance(node, exp.CountIf):
            condition = self._row(inner).sql("duckdb")
            both = f"({where}) AND ({condition})" if where else condition
            return self._marker("a", self._sum(Sum(where=both)))
        if isinstance(node, exp.Count):
            return self._marker("a", self._sum(self._count(node, inner, where)))
        if type(node) not in (exp.Sum, exp.Avg, *_VARIANCES) or not isinstance(inner, exp.Expr):
            instead = next((what for kind, what in _INSTEAD.items() if isinstance(node, kind)), "ask count, sum or avg")
            self._refuse(f"asks {brief(node.sql('duckdb'))}, which one row can change without a bound; {instead}")
        if isinstance(inner, exp.Distinct):
            self._refuse(f"asks {brief(node.sql('duckdb'))}; only count takes DISTINCT, of the unit")
        return self._moments(node, self._row(inner), where)

    def _count(self, node: exp.Expr, inner: exp.Expr | None, where: str) -> Sum:
        if inner is None or isinstance(inner, exp.Star):
            return Sum(where=where)
        if isinstance(inner, exp.Distinct):
            asked = [item.name.lower() for item in inner.expressions if isinstance(item, exp.Column)]
            if not self._unit or set(asked) != self._unit or len(asked) < len(inner.expressions):
                self._refuse(
                    f"asks {brief(node.sql('duckdb'))}, and only units are counted once each; ask count(*) and GROUP BY the column, "
                    "and count the groups that are clearly above 0"
                )
            return Sum(where=where, distinct=True)
        known = f"({self._row(inner).sql('duckdb')}) IS NOT NULL"
        return Sum(where=f"({where}) AND {known}" if where else known)

    def _moments(self, node: exp.Expr, value: exp.Expr, where: str) -> exp.Expr:
        """sum, avg, variance and stddev from clamped sums of x - c, of its square, and of 1."""
        try:
            found = bounds(value, self._declared)
        except DPError as error:
            raise DPError(f"{brief(node.sql('duckdb'))}: {error}") from None
        if found is None:
            raise DPError(
                f"{brief(node.sql('duckdb'))}: nothing bounds {brief(value.sql('duckdb'))}; write its bounds, such as "
                f"least(greatest({brief(value.sql('duckdb'))}, 0), 100)."
            )
        low, high = found
        one = Sum(value=value.sql("duckdb"), where=where, low=low, high=high)
        if isinstance(node, exp.Sum):
            return self._marker("a", self._sum(one))
        centre = low / 2 + high / 2
        total = self._sum(replace(one, centre=centre))
        count = self._sum(replace(one, number=False))
        mean = f'"{self._mark}a{total}" / "{self._mark}a{count}"'
        known = f'"{self._mark}k{count}"'
        if isinstance(node, exp.Avg):
            return parse_one(f"CASE WHEN {known} THEN CAST({centre!r} AS DOUBLE) + {mean} END", dialect="duckdb")
        sample, root = _VARIANCES[type(node)]
        squares = self._sum(replace(one, centre=centre, square=True))
        n = f'"{self._mark}a{count}"'
        spread = f'greatest("{self._mark}a{squares}" / {n} - ({mean}) * ({mean}), 0)'
        if sample:
            spread = f"{spread} * {n} / greatest({n} - 1, 1)"
        return parse_one(f"CASE WHEN {known} THEN {f'sqrt({spread})' if root else spread} END", dialect="duckdb")

    def _order(self, outputs: list[Output], labels: dict[str, int]) -> tuple[tuple[tuple[Piece, ...], str], ...]:
        order = self._select.args.get("order")
        found: list[tuple[tuple[Piece, ...], str]] = []
        for item in [] if order is None else order.expressions:
            if not isinstance(item, exp.Ordered):
                self._refuse(f"sorts by {brief(item.sql('duckdb'))}; sort the result")
            node = item.this
            if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
                place = int(node.this)
                if not 1 <= place <= len(self._select.expressions):
                    self._refuse(f"sorts by {place}, but {len(self._select.expressions)} columns are selected")
                node = self._select.expressions[place - 1].unalias()
            after = (" DESC" if item.args.get("desc") else "") + (
                " NULLS FIRST" if item.args.get("nulls_first") else " NULLS LAST"
            )
            found.append((self._pieces(node), after))
        return tuple(found)

    def _limit(self, limit: exp.Expr) -> int:
        count = limit.expression
        if not isinstance(count, exp.Literal) or not str(count.this).isdigit():
            self._refuse("has a LIMIT that is no whole number; cut the result")
        return int(count.this)

    def _check_names(self, labels: list[str], outputs: list[Output]) -> None:
        names = [name.lower() for name in [*labels, *(output.name for output in outputs)]]
        errors = {"stddev", "ci_low", "ci_high"}
        if len(outputs) > 1:
            errors |= {f"{output.name.lower()}_{error}" for output in outputs for error in errors}
        if len(set(names)) < len(names) or errors & set(names):
            self._refuse("names two result columns alike, or one stddev, ci_low or ci_high; give them other aliases")

    # Types

    def _used(self, condition: exp.Expr | None) -> tuple[tuple[str, str], ...]:
        """(name, type) of the columns that the expressions read."""
        texts = [one.value for one in self._sums] + [one.where for one in self._sums]
        nodes = [parse_one(text, dialect="duckdb") for text in texts if text]
        names = {column.name for node in [*nodes, *([condition] if condition else [])] for column in node.find_all(exp.Column)}
        return tuple((name, type_) for name, type_ in self._types.items() if name in names)

    def _bind(
        self, condition: exp.Expr | None, outputs: list[Output], labels: list[tuple[str, int]]
    ) -> tuple[Output, ...]:
        """The outputs, with whether each is a number, after DuckDB has looked at the types of everything on an empty table.

        Raises:
            DPError: an expression does not fit the types of its columns.
        """
        for name, type_ in self._used(condition):
            types.column_type(type_, identifier(name))
        used = ", ".join(f"NULL::{type_} AS {identifier(name)}" for name, type_ in self._types.items() if types.find(type_) is not None)
        with duckdb.connect() as connection:
            def kind(text: str, rows: str) -> str:
                try:
                    return str(connection.execute(f"DESCRIBE SELECT {text} FROM ({rows})").fetchall()[0][1])
                except duckdb.Error as error:
                    raise DPError(f"{brief(self._text)}: {first_line(error)}") from None

            rows = f"SELECT {used}"
            if condition is not None:
                kind(f"CAST(({condition.sql('duckdb')}) AS BOOLEAN)", rows)
            for one in self._sums:
                if one.value:
                    found = kind(one.value, rows)
                    if not (found == "BOOLEAN" or types.find(found) is not None and types.column_type(found).numeric):
                        raise DPError(f"{brief(one.value)} is {found}, and only numbers have a sum or an average.")
                if one.where:
                    kind(f"CAST(({one.where}) AS BOOLEAN)", rows)
            keys = [f"({text}) AS g{i}" for i, text in enumerate(self._keys.texts)]
            sums = [f"NULL::DOUBLE AS a{i}" for i in range(len(self._sums))]
            above = f"SELECT {', '.join([*keys, *sums, 'NULL::BOOLEAN AS k'])} FROM ({rows})"
            typed = []
            for output in outputs:
                text = "".join(
                    piece if isinstance(piece, str) else f"a{piece}" if isinstance(piece, int) else "k" if piece[0] == "known" else f"g{piece[1]}"
                    for piece in output.pieces
                )
                found = kind(text, above)
                numeric = types.find(found) is not None and types.column_type(found).numeric
                typed.append(replace(output, numeric=numeric and any(isinstance(p, int) for p in output.pieces)))
        return tuple(typed)


def sums_numbers(select: exp.Select) -> bool:
    """Whether a SELECT has other aggregates than count."""
    return any(_is_aggregate(node) and not isinstance(node, exp.Count | exp.Filter) for node in select.walk())


def _conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    inner = condition.unnest()
    return [*_conjuncts(inner.this), *_conjuncts(inner.expression)] if isinstance(inner, exp.And) else [inner]


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc | exp.Filter) or (isinstance(node, exp.Anonymous) and node.name.lower() in _NAMES)


def _aggregates(node: exp.Expr) -> bool:
    return any(_is_aggregate(inner) for inner in node.walk())


def _named(node: exp.Expr) -> str:
    """The name of a result column without an alias: that of its function."""
    inner = node.this if isinstance(node, exp.Filter) else node
    if isinstance(inner, exp.Count | exp.Sum | exp.Avg):
        return type(inner).__name__.lower()
    return inner.name.lower() if isinstance(inner, exp.Anonymous) else inner.sql_name().lower() if isinstance(inner, exp.AggFunc) else inner.sql("duckdb")
