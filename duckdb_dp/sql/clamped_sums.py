"""The aggregates of the direct route of dp_sql as clamped sums: which sums each needs, and the expression over them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp, parse_one

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.row_expressions import bounds
from duckdb_dp.errors import DPError, brief
from duckdb_dp.grouped_sums import Sum

_VARIANCES: dict[type[exp.Expr], tuple[bool, bool]] = {
    exp.Variance: (True, False),
    exp.VariancePop: (False, False),
    exp.Stddev: (True, True),
    exp.StddevSamp: (True, True),
    exp.StddevPop: (False, True),
}
"""Whether it is of a sample, n - 1, and whether its root is taken."""

_NAMES: dict[str, type[exp.Expr]] = {"mean": exp.Avg, "var_samp": exp.Variance, "stddev_samp": exp.StddevSamp}
"""Aggregates that the parser has no node for."""

_QUANTILE = "ask dp_quantiles(table, column, [0.5])"
_INSTEAD: dict[type[exp.Expr], str] = {
    exp.Max: "ask a high quantile: dp_quantiles(table, column, [0.99])",
    exp.Min: "ask a low quantile: dp_quantiles(table, column, [0.01])",
    exp.Median: _QUANTILE,
    exp.PercentileCont: _QUANTILE,
    exp.PercentileDisc: _QUANTILE,
    exp.Quantile: _QUANTILE,
    exp.Mode: "ask count(*) with GROUP BY the column, and take the largest",
}
"""What to ask instead of an aggregate that one row can change without a bound."""


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate, with its FILTER."""
    return isinstance(node, exp.AggFunc | exp.Filter) or (
        isinstance(node, exp.Anonymous) and node.name.lower() in _NAMES
    )


def has_aggregates(node: exp.Expr) -> bool:
    """Whether there is one in an expression."""
    return any(is_aggregate(inner) for inner in node.walk())


def sums_numbers(select: exp.Select) -> bool:
    """Whether a SELECT has other aggregates than count."""
    return any(is_aggregate(node) and not isinstance(node, exp.Count | exp.Filter) for node in select.walk())


def column_name(node: exp.Expr) -> str:
    """The name of a result column without an alias: that of its function."""
    inner = node.this if isinstance(node, exp.Filter) else node
    if isinstance(inner, exp.Count | exp.Sum | exp.Avg):
        return type(inner).__name__.lower()
    if isinstance(inner, exp.Anonymous):
        return inner.name.lower()
    return inner.sql_name().lower() if isinstance(inner, exp.AggFunc) else inner.sql("duckdb")


class ClampedSums:
    """The sums of one SELECT.

    Args:
        row: checks an expression over the columns of a row.
        marker: (kind, number) -> what stands in an expression for a sum, 'a', or for whether it is clearly above 0, 'k'.
        unit: the columns that name the privacy unit, in lower case; none where every row is one.
        declared: the declarations.
    """

    def __init__(
        self,
        row: Callable[[exp.Expr], exp.Expr],
        marker: Callable[[str, int], exp.Expr],
        unit: Sequence[str],
        declared: Mapping[str, Attribute],
    ) -> None:
        self._row, self._marker = row, marker
        self._unit, self._declared = set(unit), declared
        self._places: dict[Sum, int] = {}

    @property
    def sums(self) -> tuple[Sum, ...]:
        """All of them, in the order of their numbers."""
        return tuple(self._places)

    def expression(self, node: exp.Expr) -> exp.Expr:
        """An aggregate as an expression over sums, which are noted.

        Raises:
            DPError: one row can change it without a bound, or nothing declares the bound.
        """
        where = ""
        if isinstance(node, exp.Filter):
            where = self._row(node.expression.this).sql("duckdb")
            node = node.this
        if isinstance(node, exp.Anonymous):
            node = _NAMES[node.name.lower()](this=node.expressions[0] if len(node.expressions) == 1 else None)
        if isinstance(node, exp.CountIf):
            return self._place(Sum(where=_both(where, self._row(node.this).sql("duckdb"))))
        if isinstance(node, exp.Count):
            return self._place(self._count(node, where))
        if type(node) not in (exp.Sum, exp.Avg, *_VARIANCES) or not isinstance(node.this, exp.Expr):
            instead = next((what for kind, what in _INSTEAD.items() if isinstance(node, kind)), "ask count, sum or avg")
            raise DPError(f"one row can change {brief(node.sql('duckdb'))} without a bound; {instead}.")
        if isinstance(node.this, exp.Distinct):
            raise DPError(f"{brief(node.sql('duckdb'))}: only count takes DISTINCT, of the unit.")
        return self._moments(node, self._row(node.this), where)

    def _place(self, one: Sum) -> exp.Expr:
        return self._marker("a", self._places.setdefault(one, len(self._places)))

    def _count(self, node: exp.Expr, where: str) -> Sum:
        inner = node.this
        if inner is None or isinstance(inner, exp.Star):
            return Sum(where=where)
        if not isinstance(inner, exp.Distinct):
            return Sum(where=_both(where, f"({self._row(inner).sql('duckdb')}) IS NOT NULL"))
        asked = [item.name.lower() if isinstance(item, exp.Column) else "" for item in inner.expressions]
        if not self._unit or set(asked) != self._unit:
            raise DPError(
                f"{brief(node.sql('duckdb'))}: only units are counted once each; ask count(*) and GROUP BY the column, and count "
                "the groups that are clearly above 0."
            )
        return Sum(where=where, distinct=True)

    def _moments(self, node: exp.Expr, value: exp.Expr, where: str) -> exp.Expr:
        """sum, avg, variance and stddev from clamped sums of x - c, of its square, and of 1."""
        text = value.sql("duckdb")
        try:
            found = bounds(value, self._declared)
        except DPError as error:
            raise DPError(f"{brief(node.sql('duckdb'))}: {error}") from None
        if found is None:
            raise DPError(
                f"{brief(node.sql('duckdb'))}: nothing bounds {brief(text)}; write its bounds, such as "
                f"least(greatest({brief(text)}, 0), 100)."
            )
        low, high = found
        one = Sum(value=text, where=where, low=low, high=high)
        if isinstance(node, exp.Sum):
            return self._place(one)
        centre = low / 2 + high / 2
        total, count = self._place(replace(one, centre=centre)), self._place(replace(one, number=False))
        known = self._marker("k", self._places[replace(one, number=False)]).sql("duckdb")
        n = count.sql("duckdb")
        mean = f"{total.sql('duckdb')} / {n}"
        if isinstance(node, exp.Avg):
            found_text = f"CAST({centre!r} AS DOUBLE) + {mean}"
        else:
            sample, root = _VARIANCES[type(node)]
            squares = self._place(replace(one, centre=centre, square=True)).sql("duckdb")
            found_text = f"greatest({squares} / {n} - ({mean}) * ({mean}), 0)"
            found_text += f" * {n} / greatest({n} - 1, 1)" if sample else ""
            found_text = f"sqrt({found_text})" if root else found_text
        return parse_one(f"CASE WHEN {known} THEN {found_text} END", dialect="duckdb")


def _both(first: str, second: str) -> str:
    return f"({first}) AND ({second})" if first else second
