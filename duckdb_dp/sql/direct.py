"""dp_sql, the direct route: SELECTs whose aggregates are clamped sums over the rows themselves, group by group."""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NoReturn

from sqlglot import exp, parse_one

from duckdb_dp.domain.domain import Attribute, UnknownAttribute
from duckdb_dp.domain.expression_bounds import conjuncts
from duckdb_dp.domain.row_expressions import NAMED, checked
from duckdb_dp.errors import DPError, as_written, brief, identifier, meant
from duckdb_dp.grouped_sums import GroupedSums, Sum
from duckdb_dp.outputs import Output, Piece, within
from duckdb_dp.sql import direct_select, epochs, noisy_expressions, overflows, qualifiers, ratios, zones
from duckdb_dp.sql.clamped_sums import (
    ClampedSums,
    column_name,
    has_aggregates,
    is_aggregate,
    told_apart,
)
from duckdb_dp.sql.exact_types import by_norm, counted
from duckdb_dp.sql.group_labels import Keys, check_texts, grouped, is_text
from duckdb_dp.sql.grouping_sets import both, grouping_sets, of_found
from duckdb_dp.sql.never_null import no_columns, told
from duckdb_dp.sql.noisy_expressions import POSITIVE, ROOT, check_aliases, in_domain, product, spelled_out, unwrap
from duckdb_dp.sql.other_aggregates import check_end, unknown_aggregate
from duckdb_dp.sql.quantile_sums import Quantiles, usual
from duckdb_dp.sql.same_conditions import form, in_form, in_one_form
from duckdb_dp.sql.total_conditions import worked_out
from duckdb_dp.sql.typed import type_of, typed

_KINDS = {"k": "known", "g": "group", "s": "stddev"}


def parts(
    select: exp.Select,
    number: int,
    columns: Mapping[str, str],
    unit: Sequence[str],
    declared: Mapping[str, Attribute],
    *,
    pure: bool,
    found: Mapping[str, Attribute] | None = None,
    norms: str = "",
    never: Collection[str] = (),
    once: bool = True,
    held: Sequence[exp.Expr] = (),
) -> list[GroupedSums]:
    """The grouping sets of a SELECT, each with its sums.

    Args:
        select: what was asked.
        number: of it in the call.
        columns: name -> type of the table's columns.
        unit: the columns that name the privacy unit; none where every row is one.
        declared: the declarations.
        pure: whether only pure DP will do.
        found: columns to group by whose values are found first, with placeholders; they bound nothing.
        norms: 'typed' or 'chosen' where what a unit adds is bounded by its norm; '' where its rows are bounded.
        never: columns that are never NULL, as the table is declared.
        once: whether counts of rows that are the same as none is NULL are measured once, conditions of one meaning have one form, and
            norms may be of x and not of x less a middle; earlier versions did not.
        held: between which ends some columns lie where they are not NULL, as public rows say.

    Raises:
        DPError: it cannot be answered; the message says what would work.
    """
    by = partial(told, columns) if once else no_columns
    known = (counted(columns, never) if norms or once else (), by, norms if once and form() >= 3 else "", held)
    with nullcontext() if once else in_form(1):
        parts = _Compiler(select, number, columns, unit, declared, pure, found or {}, known).parts()
    return [ratios.apart(by_norm(columns, part)) for part in parts] if norms else parts


class _Compiler:
    """One SELECT."""

    def __init__(
        self,
        select: exp.Select,
        number: int,
        columns: Mapping[str, str],
        unit: Sequence[str],
        declared: Mapping[str, Attribute],
        pure: bool,
        found: Mapping[str, Attribute],
        known: tuple[Sequence[str], Callable[[Sequence[exp.Expr]], Collection[str]], str, Sequence[exp.Expr]],
    ) -> None:
        self._text = select.sql("duckdb")
        self._types, self._number = columns, number
        self._names = {name.lower(): name for name in columns}
        self._select = epochs.of_moments(
            usual(select), lambda one: columns.get(self._names.get(one.name.lower(), ""), "")
        )
        self._declared, self._found, self._groups = declared, found, {**declared, **found}
        self._mark = "@"
        while self._mark in self._text:
            self._mark += "@"
        direct_select.check(select, self._refuse)
        qualifiers.check(self._select, [(self._select.args.get("from_") or self._select.args["from"]).this])
        self._aliases = {item.alias.lower(): item.unalias() for item in select.expressions if item.alias}
        self._keys = Keys()
        self._unit, self._pure, self._known = [name.lower() for name in unit], pure, known

    def _refuse(self, why: str) -> NoReturn:
        raise DPError(f"{brief(as_written(self._text))} {why}.")

    def parts(self) -> list[GroupedSums]:
        """One for each grouping set."""
        for alias, node in self._aliases.items():
            if alias not in self._names and any(one.name.lower() == alias for one in node.find_all(exp.Column)):
                self._refuse(f"says {identifier(alias)} in what it calls {identifier(alias)}; use another alias")
        check_aliases(self._aliases)
        where, having, limit = (self._select.args.get(name) for name in ("where", "having", "limit"))
        condition = None if where is None else self._condition(where.this)
        for part in [] if condition is None else conjuncts(condition):
            if (
                isinstance(part, exp.Is)
                and isinstance(part.expression, exp.Null)
                and part.this.name.lower() in self._unit
            ):
                self._refuse(
                    f"asks for rows without {part.this.name}, which belong to nobody and are left out: their number is 0"
                )
        sets = grouping_sets(self._select, self._members, self._add_key)
        groups = max(math.prod(self._groups[name].size for name in self._clique(keys)) for keys in sets)
        quantiles = Quantiles(self._type_of, self._declared, groups, pure=self._pure)
        self._aggregates = ClampedSums(
            self._row, self._condition, self._marker, self._unit, self._declared, quantiles.sum, *self._known
        )
        nodes = [node for node in self._select.walk() if is_aggregate(node) and not isinstance(node.parent, exp.Filter)]
        for node in (node for node in nodes if not node.find_ancestor(exp.AggFunc)):
            check_end(node, lambda one: self._type_of(self._row(one).sql("duckdb")))
        self._aggregates.prepare(nodes, condition)
        labels: list[tuple[str, int]] = []
        outputs: list[Output] = []
        for item in self._select.expressions:
            inner = item.unalias()
            key = self._key_of(inner)
            if key is not None:
                labels.append((item.alias_or_name or inner.sql("duckdb"), key))
            else:
                outputs.append(self._output(item.alias or column_name(inner), inner))
        if not any(output.noisy for output in outputs):
            self._refuse("counts nothing; select count(*) too, or ask dp_discover for values")
        outputs = told_apart(outputs, [item.unalias() for item in self._select.expressions if not item.alias])
        self._check_names([name for name, _ in labels], outputs)
        asked = [] if having is None else [self._pieces(having.this)]
        kept = both(asked + of_found(condition, self._found, self._key_of, self._pieces))
        order = self._order()
        sums, text = self._aggregates.sums, "" if condition is None else condition.sql("duckdb")
        above = [pieces for pieces, _ in order]
        used = self._used(text, sums)
        overflows.check_sums(condition, sums, self._keys.texts, self._types, self._declared)
        shown = typed(self._types, text, sums, self._keys.texts, outputs, kept, above)
        restricted = self._restricted(condition, {name for keys in sets for name in self._clique(keys)})
        found = [(keys, grouped(keys, self._keys, labels, self._groups, restricted, self._found)) for keys in sets]
        return [
            GroupedSums(
                number=self._number,
                columns=used,
                where=text,
                clique=groups.clique,
                size=groups.size,
                groups=groups.groups,
                labels=groups.labels,
                sums=sums,
                outputs=shown,
                having=kept,
                order=order,
                limit=None if limit is None else self._limit(limit),
            )
            for _, groups in found
        ]

    def _type_of(self, text: str) -> str:
        self._read([text])
        return type_of(self._types, text)

    def _clique(self, keys: Sequence[int]) -> set[str]:
        return {name for key in keys for name in self._keys.cliques[key]}

    def _used(self, condition: str, sums: Sequence[Sum]) -> tuple[tuple[str, str], ...]:
        """(name, type) of the columns that the expressions read.

        Raises:
            DPError: the type of one is not supported, or its name is one that the SQL itself uses.
        """
        names = self._read([text for text in [condition, *(t for one in sums for t in (one.value, one.where))] if text])
        return tuple((name, type_) for name, type_ in self._types.items() if name in names)

    def _read(self, texts: Sequence[str]) -> set[str]:
        """The columns that expressions read; raises as ``_used``."""
        nodes = [parse_one(text, dialect="duckdb") for text in dict.fromkeys(texts)]
        names = {column.name for node in nodes for column in node.find_all(exp.Column)}
        for name in names:
            _check_plain(name)
        for node in nodes:
            zones.check(node, lambda column: self._types[column.name])
        return names

    # Rows

    def _row(self, node: exp.Expr) -> exp.Expr:
        """An expression over the columns of a row."""
        for inner in node.find_all(exp.AggFunc, exp.Subquery, exp.Select, exp.Window):
            self._refuse(f"uses {brief(inner.sql('duckdb'))} where the values of one row are asked for")
        return checked(node, self._names)

    def _condition(self, node: exp.Expr) -> exp.Expr:
        """A condition on a row."""
        return in_one_form(worked_out(self._row(node), self._types), lambda one: self._types.get(one.name))

    def _restricted(self, condition: exp.Expr | None, grouped: set[str]) -> dict[str, list[exp.Expr]]:
        """The conditions on one declared attribute each that is grouped by, by its name."""
        found: dict[str, list[exp.Expr]] = {}
        for part in [] if condition is None else conjuncts(condition):
            names = {column.name for column in part.find_all(exp.Column)}
            if len(names) == 1 and (name := names.pop()) in self._declared and name in grouped:
                found.setdefault(name, []).append(part)
        return found

    # Groups

    def _members(self, node: exp.Expr) -> tuple[int, ...]:
        if isinstance(node, exp.Tuple):
            return tuple(key for item in node.expressions for key in self._members(item))
        if isinstance(node, exp.Paren):
            return self._members(node.this)
        if isinstance(node, exp.Literal) and not node.is_string:
            place = str(node.this)
            if not place.isdigit() or not 1 <= int(place) <= len(self._select.expressions):
                self._refuse(
                    f"groups by {place}, but {len(self._select.expressions)} columns are selected; group by columns"
                )
            node = self._select.expressions[int(place) - 1].unalias()
        elif isinstance(node, exp.Column) and node.name.lower() not in self._names:
            node = self._aliases.get(node.name.lower(), node)
        return self._add_key(node)

    def _add_key(self, node: exp.Expr) -> tuple[int, ...]:
        """The number of a key; none of one that is the same for all rows."""
        found = self._row(node)
        names = {column.name for column in found.find_all(exp.Column)}
        for name in names:
            _check_plain(name)
            if name not in self._groups:
                raise UnknownAttribute(name, self._declared)  # the groups must be public
        if not names:
            return ()
        return (self._keys.add(found, tuple(name for name in self._groups if name in names)),)

    def _key_of(self, node: exp.Expr) -> int | None:
        """The group key that an expression is, if any."""
        if has_aggregates(node):
            return None
        try:
            found = checked(node, self._names)
        except DPError:
            return None
        return self._keys.find(found)

    # Results

    def _output(self, name: str, node: exp.Expr) -> Output:
        found = unwrap(spelled_out(node, self._aliases, lambda one: self._key_of(one) is not None))
        spread = self._aggregates.spread(found.inner)
        if spread:
            found = (found.of(ROOT, curved=True) if spread == "stddev" else found).of(POSITIVE)
        if found.smooth and (ends := self._aggregates.ends(found.inner)) is not None:
            found = found.of(within(*ends))
        centre = self._aggregates.centre(found.inner)
        if centre is not None:  # whose digits would drown the noise where it is large
            found = found.of((f"(CAST({centre!r} AS DOUBLE) + ", ")"))
        return Output(
            name=name,
            pieces=self._pieces(found.inner, raw=bool(spread) or centre is not None),
            numeric=found.smooth,
            outer=found.outer,
            ends=() if found.ends == found.outer else found.ends,
            curved=found.curved,
            guards=tuple(map(self._pieces, found.guards)),
            product=product(found, self._pieces),
        )

    def _pieces(self, node: exp.Expr, *, raw: bool = False) -> tuple[Piece, ...]:
        """An expression over aggregates and group keys."""
        check_texts(node, self._is_text, is_aggregate)
        marked = self._aggregates.expression(node, raw=True) if raw else self._marked(node)
        names = [column.name for column in marked.find_all(exp.Column)]
        try:
            text = checked(marked, {name.lower(): name for name in names}).sql("duckdb")
        except DPError:
            self._refuse(
                f"asks {brief(node.sql('duckdb'))}, which cannot be selected; select grouped columns, count(*), sum(column) or "
                "avg(column), and expressions of them"
            )
        found: list[Piece] = []
        last = 0
        for match in re.finditer(rf'"{re.escape(self._mark)}([akgs])(\d+)"', text):
            if match.start() > last:
                found.append(text[last : match.start()])
            kind, index = match.group(1), int(match.group(2))
            found.append(index if kind == "a" else (_KINDS[kind], index))
            last = match.end()
        if last < len(text):
            found.append(text[last:])
        return tuple(found)

    def _is_text(self, column: exp.Expr) -> bool:
        key = self._key_of(column)
        name = "" if key is None or not self._keys.plain[key] else self._keys.cliques[key][0]
        return bool(name) and name not in self._found and is_text(self._groups[name])

    def _marked(self, node: exp.Expr) -> exp.Expr:
        """The expression with marks in place of aggregates and group keys."""
        key = self._key_of(node)
        if key is not None:
            return self._marker("g", key)
        if is_aggregate(node):
            found = self._aggregates.expression(node)
            return found if isinstance(found, exp.Column) else exp.paren(found)
        if isinstance(node, exp.Anonymous) and node.name.lower() not in NAMED:
            self._refuse(f"asks {brief(node.sql('duckdb'))}, which cannot be selected: {unknown_aggregate(node.name)}")
        if isinstance(node, exp.Column):
            alias = self._aliases.get(node.name.lower())
            if alias is not None and (
                noisy_expressions.of_aggregates(alias, self._aliases) or self._key_of(alias) is not None
            ):
                return exp.paren(self._marked(alias))
            if node.name.lower() not in self._names:
                self._refuse(
                    f"uses {identifier(node.name)}, which is no column and no alias{meant([*self._names, *self._aliases], node.name)}"
                )
            self._refuse(
                f"uses {identifier(node.name)} beside aggregates without grouping by it; add GROUP BY {identifier(node.name)}"
            )
        found = node.copy()
        for name, value in list(found.args.items()):
            if isinstance(value, exp.Expr) and not isinstance(value, exp.DataType | exp.Var):
                found.set(name, self._marked(value))
            elif isinstance(value, list):
                found.set(name, [self._marked(item) for item in value])
        return in_domain(found)

    def _marker(self, kind: str, index: int) -> exp.Expr:
        return exp.column(exp.to_identifier(f"{self._mark}{kind}{index}", quoted=True))

    def _order(self) -> tuple[tuple[tuple[Piece, ...], str], ...]:
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
            elif isinstance(node, exp.Column):
                node = self._aliases.get(node.name.lower(), node)  # an alias comes before a column here
            after = (" DESC" if item.args.get("desc") else "") + (
                " NULLS FIRST" if item.args.get("nulls_first") else " NULLS LAST"
            )
            found.append((self._pieces(node), after))
        return tuple(found)

    def _limit(self, limit: exp.Expr) -> int:
        count = limit.expression
        extra = {name for name, value in limit.args.items() if value} - {"expression"}
        number = count.this if isinstance(count, exp.Literal) and not count.is_string else ""
        if extra or not re.fullmatch("[0-9]{1,18}", number):
            self._refuse("has a LIMIT that is no whole number; cut the result")
        return int(number)

    def _check_names(self, labels: list[str], outputs: list[Output]) -> None:
        names = [name.lower() for name in [*labels, *(output.name for output in outputs)]]
        errors = {"stddev", "ci_low", "ci_high", "clipped_at"}
        noisy = [output for output in outputs if output.noisy]
        if len(noisy) > 1:
            errors |= {f"{output.name.lower()}_{error}" for output in noisy for error in errors}
        if len(set(names)) < len(names) or errors & set(names):
            self._refuse(
                "names two result columns alike, or one stddev, ci_low, ci_high or clipped_at; give them other aliases"
            )


def _check_plain(name: str) -> None:
    if name.lower().startswith("_dp_"):
        raise DPError(f"columns whose names start with _dp_, such as {identifier(name)}, are not read; use a view.")
