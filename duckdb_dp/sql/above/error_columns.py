"""The errors of answers that a statement passes on: each keeps its standard deviation and its interval up to the result.

A column that is the column of an answer, through subqueries, CTEs and UNION ALL, has that answer's errors. Of an expression over
such columns a bound follows to first order: sum_j |f(c + s_j e_j) - f(c - s_j e_j)| / 2 is at least the standard deviation of
f(c), whatever the correlations of the c_j. Intervals of products are those of ``products``. What was cut off before the noise
is in no interval, so an interval over several answers says the bounds of them all.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from sqlglot import exp

from duckdb_dp.sql.above.kinds import aggregated, outer, sources
from duckdb_dp.sql.products import ends, number, products, too_many

Errors = Mapping[str, Mapping[str, str]]
"""By the name of a column in small letters: what an error is called after the answer -> its column."""

_SMOOTH = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Literal, exp.Column, exp.Subquery, exp.Cast,
    exp.Nullif, exp.Pow,
)  # fmt: skip
"""Of what an error is worked out; of anything else none is known."""


@final
@dataclass(slots=True)
class Passed:
    """Adds the errors to the queries of a statement.

    Args:
        known: by table, its columns and the errors of each.
        quantile: half-width of an interval, in standard deviations.
    """

    known: Mapping[str, tuple[Sequence[str], Errors]]
    quantile: float
    _done: dict[int, tuple[exp.Expr, Errors]] = field(default_factory=dict)
    _ctes: dict[str, exp.Expr] = field(default_factory=dict)

    def add(self, query: exp.Query) -> Errors:
        """The errors of the columns of a statement's result, which are added at the end of its columns.

        A statement in which a star stands for columns that are not known here reads the answers without their errors, which nothing is
        to be worked out of.
        """
        for cte in query.find_all(exp.CTE):
            self._ctes[cte.alias.lower()] = cte.this
        for select in list(query.find_all(exp.Select)):
            if not self._spell_out(select):
                self._hide(query)
                return {}
        return self._of(query)

    def _hide(self, query: exp.Query) -> None:
        """Read the answers without their errors."""
        for table in list(query.find_all(exp.Table)):
            names, errors = self.known.get(table.name.lower(), ((), {}))
            if errors:
                plain = exp.select(*(exp.column(name, quoted=True) for name in names)).from_(exp.to_table(table.name))
                table.replace(plain.subquery(table.alias_or_name))

    def _spell_out(self, select: exp.Select) -> bool:
        """Write the columns of SELECT * by their names; whether that was possible."""
        items: list[exp.Expr] = []
        for item in select.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                found = self._stars(select, item)
                if found is None:
                    return False
                items += found
            elif item.find(exp.Columns):
                found = self._columns(select, item)
                if found is None:
                    return False
                items += found
            elif item.is_star:
                return False
            else:
                items.append(item)
        select.set("expressions", items)
        return True

    def _columns(self, select: exp.Select, item: exp.Expr) -> list[exp.Expr] | None:
        """What an expression of COLUMNS(*), or of COLUMNS('a pattern'), stands for; None where its columns are not known here."""
        asked = list(item.find_all(exp.Columns))
        of, plain = asked[0].this, not item.alias and not any(map(aggregated, outer(item)))
        if any(one.this != of or one.args.get("unpack") for one in asked) or not plain:
            return None
        star = of if isinstance(of, exp.Star) or of.is_star else exp.Star()
        found = self._stars(select, star) if star is of or (isinstance(of, exp.Literal) and of.is_string) else None
        if found is None or not all(isinstance(one, exp.Column) for one in found):
            return None
        shown = found if star is of else [one for one in found if re.search(of.name, one.name)]

        def each(column: exp.Expr) -> exp.Expr:
            return item.transform(lambda node: column.copy() if isinstance(node, exp.Columns) else node)

        return [exp.alias_(each(column), column.name, quoted=True) for column in shown]

    def _stars(self, select: exp.Select, star: exp.Expr) -> list[exp.Expr] | None:
        of = star.table.lower() if isinstance(star, exp.Column) else ""
        inner = star.this if isinstance(star, exp.Column) else star
        words = {name for name, value in inner.args.items() if value}
        if words - {"except_", "except", "replace", "rename"}:
            return None
        replaced = {one.alias.lower(): one for one in inner.args.get("replace") or []}
        renamed = {one.this.name.lower(): one.alias for one in inner.args.get("rename") or []}
        left_out = {name.name.lower() for name in inner.args.get("except_") or inner.args.get("except") or []}
        using: set[str] = set()
        for join in select.args.get("joins", ()):
            if join.args.get("method") or join.side in ("RIGHT", "FULL") or join.kind in ("SEMI", "ANTI"):
                return None
            using |= {name.name.lower() for name in join.args.get("using") or ()}
        found: list[exp.Expr] = []
        merged: set[str] = set()
        for source in sources(select):
            if of and source.alias_or_name.lower() != of:
                continue
            names = self._names(source)
            if names is None:
                return None
            for name in names:
                shared = name.lower() in using and not of
                if name.lower() in left_out or (shared and name.lower() in merged):
                    continue
                merged |= {name.lower()} if shared else set()
                table = (
                    None if shared or not source.alias_or_name else exp.to_identifier(source.alias_or_name, quoted=True)
                )
                column: exp.Expr = exp.column(exp.to_identifier(name, quoted=True), table=table)
                if name.lower() in renamed:
                    column = exp.alias_(column, renamed[name.lower()], quoted=True)
                found.append(replaced[name.lower()].copy() if name.lower() in replaced else column)
        return found

    def _names(self, source: exp.Expr) -> list[str] | None:
        """The columns of an item of FROM, without errors."""
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            if source.alias_column_names:
                return None
            if source.name.lower() in self.known:
                return list(self.known[source.name.lower()][0])
            return self._shown(self._ctes.get(source.name.lower()))
        if isinstance(source, exp.Subquery):
            return None if source.alias_column_names else self._shown(source.this)
        return None

    def _shown(self, query: exp.Expr | None) -> list[str] | None:
        if isinstance(query, exp.Subquery):
            return self._shown(query.this)
        if isinstance(query, exp.SetOperation):
            return None if query.args.get("by_name") else self._shown(query.this)
        if not isinstance(query, exp.Select) or not self._spell_out(query):
            return None
        names = [item.alias_or_name for item in query.expressions]
        return names if all(names) and len({name.lower() for name in names}) == len(names) else None

    def _of(self, query: exp.Expr) -> Errors:
        if id(query) not in self._done:
            found: Errors = {}
            if isinstance(query, exp.Subquery):
                found = self._of(query.this)
            elif isinstance(query, exp.SetOperation):
                found = self._united(query)
            elif isinstance(query, exp.Select):
                found = self._selected(query)
            self._done[id(query)] = query, found
        return self._done[id(query)][1]

    def _selected(self, query: exp.Select) -> Errors:
        named = [query.args.get(word) for word in ("group", "distinct")]
        items = list(query.expressions)
        if any(named) or any(aggregated(node) for item in items for node in outer(item)):
            return {}
        found = [(source, self._errors(source)) for source in sources(query)]
        taken = {item.alias_or_name.lower() for item in items}
        result: dict[str, dict[str, str]] = {}
        for item in items:
            name, inner = item.alias_or_name, item.unalias()
            columns = self._column(inner, found) if isinstance(inner, exp.Column) else None
            if columns is None and not isinstance(inner, exp.Column):
                columns = self._worked_out(inner, found)
            wanted = {error: f"{name}_{error}" for error in columns or {}}
            if not columns or not name or any(column.lower() in taken for column in wanted.values()):
                continue
            taken |= {column.lower() for column in wanted.values()}
            for error, node in columns.items():
                query.append("expressions", exp.alias_(node, wanted[error], quoted=True))
            result[name.lower()] = wanted
        return result

    def _errors(self, source: exp.Expr) -> Errors:
        if source.alias_column_names:
            return {}
        if isinstance(source, exp.Subquery):
            return self._of(source.this)
        if isinstance(source, exp.Table):
            if source.name.lower() in self.known:
                return self.known[source.name.lower()][1]
            cte = self._ctes.get(source.name.lower())
            return {} if cte is None else self._of(cte)
        return {}

    def _column(self, node: exp.Column, found: list[tuple[exp.Expr, Errors]]) -> dict[str, exp.Expr] | None:
        """The errors of a column of exactly one source."""
        holders = [
            (source, errors)
            for source, errors in found
            if node.name.lower() in errors and (not node.table or source.alias_or_name.lower() == node.table.lower())
        ]
        if len(holders) != 1:
            return None
        source, errors = holders[0]
        table = source.alias_or_name
        return {
            error: exp.column(
                exp.to_identifier(column, quoted=True), table=exp.to_identifier(table, quoted=True) if table else None
            )
            for error, column in errors[node.name.lower()].items()
        }

    def _worked_out(self, node: exp.Expr, found: list[tuple[exp.Expr, Errors]]) -> dict[str, exp.Expr] | None:
        """The errors of an expression, to first order; None where a part of it has none that is known."""
        if isinstance(node, exp.Round) and (found_inside := self._worked_out(node.this, found)) is not None:
            return {**found_inside, **{end: _rounded(node, found_inside[end]) for end in ("ci_low", "ci_high")}}
        parts = list(node.walk(prune=lambda part: isinstance(part, exp.Subquery)))
        parts = [part for part in parts if not isinstance(part, exp.Identifier | exp.DataType)]
        if not all(isinstance(part, _SMOOTH) for part in parts):
            return None
        if any(isinstance(part, exp.Cast) and part.to.this.name not in ("DOUBLE", "FLOAT") for part in parts):
            return None  # which may fail
        if any(isinstance(part, exp.Nullif) and number(part.expression) != 0 for part in parts):
            return None
        noisy: list[tuple[exp.Expr, exp.Expr]] = []
        clips: list[exp.Expr] = []
        covered: list[exp.Expr] = []  # by intervals of their own
        for part in parts:
            errors = self._part(part, found)
            if errors is None and isinstance(part, exp.Subquery):
                return None
            if errors is None or any(part == known for known, _ in noisy):
                continue
            noisy.append((part, errors["stddev"]))
            covered.append(exp.Not(this=exp.Is(this=errors["ci_low"].copy(), expression=exp.Null())))
            if (clip := errors.get("clipped_at")) is not None and clip not in clips:
                clips.append(clip)
        if not noisy:
            return None
        if too_many(node, lambda one: _any_of(one, noisy)):
            return None

        def ends_of(one: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
            wide = _both(exp.Mul, exp.Literal.number(repr(self.quantile)), _half(one, noisy))
            return _both(exp.Sub, one, wide), _both(exp.Add, one, wide)

        low, high = ends(node, lambda one: _any_of(one, noisy), ends_of)
        stddev = _half(node, noisy)
        if products(node, lambda one: _any_of(one, noisy)):
            stddev = _both(exp.Div, _both(exp.Sub, high, low), exp.Literal.number(repr(2 * self.quantile)))
        shown = exp.and_(*covered)
        return {
            "stddev": stddev,
            "ci_low": exp.case().when(shown, low),
            "ci_high": exp.case().when(shown, high),
            **({"clipped_at": clips[0] if len(clips) == 1 else _in_one_list(clips)} if clips else {}),
        }

    def _part(self, node: exp.Expr, found: list[tuple[exp.Expr, Errors]]) -> dict[str, exp.Expr] | None:
        """The errors of a column or of a scalar subquery, each the same subquery of the error in place of the answer."""
        if isinstance(node, exp.Column):
            return self._column(node, found)
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select) and len(node.this.expressions) == 1:
            inner = node.this.copy()
            errors = Passed(self.known, self.quantile, _ctes=self._ctes)._selected(inner)
            items = {item.alias_or_name: item for item in inner.expressions}
            columns = errors.get(inner.expressions[0].alias_or_name.lower(), {})
            subqueries: dict[str, exp.Expr] = {}
            for error, column in columns.items():
                one = inner.copy()
                one.set("expressions", [items[column].copy()])
                subqueries[error] = exp.Subquery(this=one)
            return subqueries or None
        return None

    def _united(self, query: exp.SetOperation) -> Errors:
        """UNION ALL: each side's errors, by the place of the column or by its name; NULL where one side has none."""
        if not isinstance(query, exp.Union) or query.args.get("distinct"):
            return {}
        sides = [_inner(query.this), _inner(query.expression)]
        shown = [self._shown(side) for side in sides]
        if None in shown:
            return {}
        first, second = ([] if names is None else [name.lower() for name in names] for names in shown)
        found = [self._of(side) for side in sides]
        if query.args.get("by_name"):
            return {name: {**found[1].get(name, {}), **found[0].get(name, {})} for name in {**found[0], **found[1]}}
        if len(first) != len(second):
            return {}
        result: dict[str, Mapping[str, str]] = {}
        pairs = [(a, b) for a, b in zip(first, second, strict=True) if a in found[0] or b in found[1]]
        for side, errors, place in ((sides[0], found[0], 0), (sides[1], found[1], 1)):
            if not isinstance(side, exp.Select):
                return {}
            own = {item.alias_or_name: item for item in side.expressions}
            kept = list(side.expressions[: len(first)])
            for a, b in pairs:
                name, columns = (a, b)[place], {**found[1].get(b, {}), **found[0].get(a, {})}
                for error in columns:
                    column = errors.get(name, {}).get(error)
                    null = exp.Null() if error == "clipped_at" else exp.cast(exp.Null(), "DOUBLE")
                    node = own[column] if column else exp.alias_(null, f"{a}_{error}", quoted=True)
                    kept.append(exp.alias_(node.unalias(), f"{a}_{error}", quoted=True))
            side.set("expressions", kept)
        for a, b in pairs:
            result[a] = {error: f"{a}_{error}" for error in {**found[1].get(b, {}), **found[0].get(a, {})}}
        return result


def _inner(query: exp.Expr) -> exp.Expr:
    return _inner(query.this) if isinstance(query, exp.Subquery) else query


Noisy = Sequence[tuple[exp.Expr, exp.Expr]]
"""Parts of an expression with noise, and the standard deviation of each."""


def _any_of(node: exp.Expr, noisy: Noisy) -> bool:
    return any(one == part for one in node.walk() for part, _ in noisy)


def _half(node: exp.Expr, noisy: Noisy) -> exp.Expr:
    """The standard deviation of an expression to first order, or more than that."""
    steps: list[exp.Expr] = []
    for part, stddev in noisy:
        if _any_of(node, [(part, stddev)]):
            up, down = (_moved(node, part, _both(kind, part, stddev)) for kind in (exp.Add, exp.Sub))
            steps.append(exp.Abs(this=_both(exp.Sub, up, down)))
    total = steps[0]
    for step in steps[1:]:
        total = exp.Add(this=total, expression=step)
    return exp.Div(this=exp.paren(total), expression=exp.Literal.number(2))


def _both(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return kind(this=exp.paren(left.copy()), expression=exp.paren(right.copy()))


def _in_one_list(clips: Sequence[exp.Expr]) -> exp.Expr:
    return exp.func("flatten", exp.Array(expressions=list(clips)), dialect="duckdb")


def _moved(node: exp.Expr, part: exp.Expr, instead: exp.Expr) -> exp.Expr:
    """The expression with one of its parts moved by its standard deviation."""
    return node.transform(lambda one: exp.paren(instead.copy()) if one == part else one) if node != part else instead


def _rounded(node: exp.Round, inner: exp.Expr) -> exp.Expr:
    found = node.copy()
    found.set("this", inner)
    return found
