"""The aggregates of the direct route of dp_sql as clamped sums: which sums each needs, and the expression over them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sqlglot import exp, parse_one

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.expression_bounds import Bounds, between, bounds
from duckdb_dp.errors import DPError, brief
from duckdb_dp.grouped_sums import Sum, candidates
from duckdb_dp.outputs import Output
from duckdb_dp.sql import two_sums
from duckdb_dp.sql.distinct_units import one_or_null
from duckdb_dp.sql.lineage import own_functions
from duckdb_dp.sql.other_aggregates import instead
from duckdb_dp.sql.quantile_sums import is_quantile
from duckdb_dp.sql.value_bounds import value_bounds

_VARIANCES: dict[type[exp.Expr], tuple[bool, bool]] = {
    exp.Variance: (True, False),
    exp.VariancePop: (False, False),
    exp.Stddev: (True, True),
    exp.StddevSamp: (True, True),
    exp.StddevPop: (False, True),
}
"""Whether it is of a sample, n - 1, and whether its root is taken."""

_NAMES: dict[str, type[exp.Expr]] = {
    "mean": exp.Avg, "favg": exp.Avg, "var_samp": exp.Variance, "stddev_samp": exp.StddevSamp, "fsum": exp.Sum, "kahan_sum": exp.Sum,
    "sumkahan": exp.Sum,
}  # fmt: skip
"""Aggregates that the parser has no node for."""

FAR = 2.0**19
"""How many times the distance of the bounds their middle may be from 0, to be subtracted after the sum."""


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate, with its FILTER."""
    if not isinstance(node, exp.Anonymous):
        return isinstance(node, exp.AggFunc | exp.Filter)
    kinds = own_functions().get(node.name.lower(), frozenset())
    return "aggregate" in kinds and "scalar" not in kinds


def has_aggregates(node: exp.Expr) -> bool:
    """Whether there is one in an expression."""
    return any(is_aggregate(inner) for inner in node.walk())


def sums_numbers(select: exp.Select) -> bool:
    """Whether a SELECT has other aggregates than count."""
    return any(is_aggregate(node) and not isinstance(node, exp.Count | exp.Filter) for node in select.walk())


def column_name(node: exp.Expr) -> str:
    """The name of a result column without an alias: that of its function."""
    inner: exp.Expr = node.this if isinstance(node, exp.Filter) else node
    if isinstance(inner, exp.AggFunc) and _spread(node):  # 'stddev' is the name of an error
        return "_".join([inner.sql_name().lower(), *dict.fromkeys(c.name for c in inner.find_all(exp.Column))])
    if isinstance(inner, exp.Count | exp.Sum | exp.Avg):
        return type(inner).__name__.lower()
    if isinstance(inner, exp.Anonymous):
        return inner.name.lower()
    if isinstance(
        inner, exp.PercentileCont | exp.PercentileDisc
    ):  # what DuckDB calls it where it is no function of WITHIN GROUP
        return "quantile_cont" if isinstance(inner, exp.PercentileCont) else "quantile_disc"
    return inner.sql_name().lower() if isinstance(inner, exp.AggFunc) else inner.sql("duckdb")


def _spread(node: exp.Expr) -> bool:
    """Whether it is a variance or a standard deviation."""
    return type(node.this if isinstance(node, exp.Filter) else node) in _VARIANCES


def told_apart(outputs: list[Output], unnamed: Sequence[exp.Expr]) -> list[Output]:
    """The outputs, of which those without an alias that would be named alike have their columns in their names: count_fee."""
    names = [output.name.lower() for output in outputs]
    texts: dict[str, list[str]] = {}
    for node in unnamed:
        columns = [column.name for column in node.find_all(exp.Column)]
        columns += [literal.name for literal in node.find_all(exp.Literal) if any(map(is_quantile, node.walk()))]
        name = column_name(node)
        columns = [] if _spread(node) else columns  # which are in its name
        texts.setdefault(name.lower(), []).append("_".join([name, *dict.fromkeys(columns)]))
    found = [
        replace(output, name=texts[name].pop(0)) if names.count(name) > 1 and texts.get(name) else output
        for output, name in zip(outputs, names, strict=True)
    ]
    seen: dict[str, int] = {}
    for place, (before, output) in enumerate(zip(outputs, found, strict=True)):
        seen[output.name.lower()] = seen.get(output.name.lower(), 0) + 1
        if output is not before and seen[output.name.lower()] > 1:
            found[place] = replace(output, name=f"{output.name}_{seen[output.name.lower()]}")
    return found


@dataclass(frozen=True, slots=True)
class _Asked:
    """An aggregate without its FILTER: its node, the condition, and the expression that it takes."""

    node: exp.Expr
    where: str
    value: exp.Expr | None = None

    @property
    def key(self) -> tuple[str, str]:
        return "" if self.value is None else self.value.sql("duckdb"), self.where


class ClampedSums:
    """The sums of one SELECT, as few as its aggregates need.

    avg(x) is c + S / N with S the sum of x - c, c the middle of x's bounds, and N the rows where x is known: then the
    noise of S does not include that of N, which would be most of it for numbers far from 0. Where S and N are there, sum(x) is
    S + c N, and count(*) is N plus the rows where x is not known, which cost nothing beside N. Where the request says the norm of what a
    unit adds, c is 0: that norm is meant of x, and would cut off nearly all of x - c where x is mostly far from the middle of its bounds.
    Where the norm is chosen, an average has both c = 0 and the middle, weighed by their noise. Under norms sum(x) and count(*) are those
    of x and of the rows themselves, see ``ratios``.

    Args:
        row: checks an expression over the columns of a row.
        condition: checks a condition on them, and gives it one form.
        marker: (kind, number) -> what stands in an expression for a sum, 'a', for whether it is clearly above 0, 'k', or for the standard
            deviation of its noise, 's'.
        unit: the columns that name the privacy unit, in lower case; none where every row is one.
        declared: the declarations.
        quantile: (aggregate, its value, the text of its condition, all conditions) -> the quantile.
        never: SQL of columns of numbers that are never NULL nor NaN, so that count(x) is count(*).
        told: SQL of the columns of which conditions say so.
        norms: 'typed' or 'chosen' where what a unit adds is bounded by its norm; '' where its rows are bounded.
        held: conditions that hold where their columns are not NULL, as public rows say: they bound values, and leave out no row.
    """

    def __init__(
        self,
        row: Callable[[exp.Expr], exp.Expr],
        condition: Callable[[exp.Expr], exp.Expr],
        marker: Callable[[str, int], exp.Expr],
        unit: Sequence[str],
        declared: Mapping[str, Attribute],
        quantile: Callable[[exp.Expr, exp.Expr, str, Sequence[exp.Expr]], Sum],
        never: Collection[str],
        told: Callable[[Sequence[exp.Expr]], Collection[str]],
        norms: str,
        held: Sequence[exp.Expr] = (),
    ) -> None:
        self._row, self._marker, self._quantile, self._never = row, marker, quantile, frozenset(never)
        self._condition, self._told, self._norms = condition, told, norms
        self._unit, self._declared = set(unit), declared
        self._places: dict[Sum, int] = {}
        self._ratios: dict[tuple[str, str], _Asked] = {}
        self._conditions: list[exp.Expr] = []
        self._held = [*map(row, held)]

    @property
    def sums(self) -> tuple[Sum, ...]:
        """All of them, in the order of their numbers."""
        return tuple(self._places)

    def prepare(self, nodes: Iterable[exp.Expr], condition: exp.Expr | None) -> None:
        """Note all aggregates of the SELECT, before any becomes an expression, and its WHERE.

        Raises:
            DPError: one row can change one without a bound.
        """
        self._conditions = [] if condition is None else [condition]
        self._never |= {*self._told(self._conditions)}
        for asked in map(self._asked, nodes):
            if type(asked.node) in (exp.Avg, *_VARIANCES):
                self._ratios.setdefault(asked.key, asked)

    def spread(self, node: exp.Expr) -> str:
        """Whether an aggregate is a 'variance' or a 'stddev'; '' for others."""
        if not is_aggregate(node) or type(kind := self._asked(node).node) not in _VARIANCES:
            return ""
        return "stddev" if _VARIANCES[type(kind)][1] else "variance"

    def centre(self, node: exp.Expr) -> float | None:
        """c of avg = c + S / N; None for other expressions, and where there are two."""
        if not is_aggregate(node) or not isinstance((asked := self._asked(node)).node, exp.Avg):
            return None
        centres = self._centres(self._sum(asked))
        return centres[0] if len(centres) == 1 else None

    def ends(self, node: exp.Expr) -> Bounds | None:
        """Between which numbers an expression of averages and constants lies; None of others, and where nothing says it."""
        known: dict[str, Bounds] = {}

        def named(one: exp.Expr) -> exp.Expr:
            if not is_aggregate(one):
                return one
            mark = self._marker("a", len(known))
            if (found := self._of_average(self._asked(one))) is None:
                return self._marker("s", 0)
            known[mark.name] = found
            return mark

        plain = node.copy().transform(named)
        with suppress(DPError):  # of what has no bounds
            return between(plain, known, {}) if known else None
        return None

    def _of_average(self, asked: _Asked) -> Bounds | None:
        """Between which numbers an average lies, as all that it is of do.

        They are clamped to their bounds, and those of conditions hold anyway. Where what a unit adds is bounded by its norm, numbers
        beyond declared bounds count as they are.
        """
        if not isinstance(asked.node, exp.Avg) or (one := self._sum(asked)).chosen:
            return None
        if not self._norms:
            return one.low, one.high
        assert asked.value is not None
        own = [parse_one(asked.where, dialect="duckdb")] if asked.where else []
        try:
            return bounds(asked.value, {}, [*self._conditions, *self._held, *own])
        except DPError:
            return None

    def expression(self, node: exp.Expr, *, raw: bool = False) -> exp.Expr:
        """An aggregate as an expression over sums, which are noted.

        Args:
            node: the aggregate.
            raw: of a variance or a stddev, the variance as it comes, which noise may make negative; of an average, S / N.

        Raises:
            DPError: one row can change it without a bound, or nothing declares the bound.
        """
        asked = self._asked(node)
        if isinstance(asked.node, exp.Count):
            return self._count(asked)
        if is_quantile(asked.node):
            assert asked.value is not None
            own = [parse_one(asked.where, dialect="duckdb")] if asked.where else []
            conditions = [*self._conditions, *self._held, *own]
            return self._place(self._quantile(asked.node, asked.value, asked.where, conditions))
        if asked.key in self._ratios:
            return self._moments(asked, raw)
        return self._place(self._sum(asked))

    def _asked(self, node: exp.Expr) -> _Asked:
        where = ""
        if isinstance(node, exp.Filter):
            where = self._condition(node.expression.this).sql("duckdb")
            node = node.this
        name = node.sql_name() if isinstance(node, exp.AggFunc) else node.name
        if name.lower() in ("grouping", "grouping_id"):
            raise DPError(
                f"{brief(node.sql('duckdb'))} is not answered; ask the grouping sets as a list, ['SELECT ... GROUP BY a, b', "
                "'SELECT ... GROUP BY a'], whose column query says which of them a row is of."
            )
        if isinstance(node, exp.Anonymous) and node.name.lower() not in _NAMES:
            raise DPError(f"one row can change {brief(node.sql('duckdb'))} without a bound; {instead(node)}.")
        if isinstance(node, exp.Anonymous):
            node = _NAMES[node.name.lower()](this=node.expressions[0] if len(node.expressions) == 1 else None)
        if isinstance(node, exp.CountIf):
            return _Asked(exp.Count(this=exp.Star()), _both(where, self._condition(node.this).sql("duckdb")))
        inner = node.this
        if isinstance(node, exp.Count) and (inner is None or isinstance(inner, exp.Star | exp.Distinct)):
            return _Asked(node, where)
        text = brief(node.sql("duckdb").replace("LISTAGG(", "string_agg("))  # as DuckDB calls it
        known = type(node) in (exp.Count, exp.Sum, exp.Avg, *_VARIANCES) or is_quantile(node)
        if not known or not isinstance(inner, exp.Expr):
            raise DPError(f"one row can change {text} without a bound; {instead(node)}.")
        if isinstance(inner, exp.Distinct):
            shown = brief(", ".join(one.sql("duckdb") for one in inner.expressions))
            raise DPError(
                f"{text}: how often a value occurs depends on everybody, so only count takes DISTINCT; ask count(DISTINCT {shown}), or "
                f"{text.partition('(')[0].lower()}({shown}) of all rows."
            )
        return _Asked(node, where, self._row(inner))

    def _place(self, one: Sum) -> exp.Expr:
        return self._marker("a", self._places.setdefault(one, len(self._places)))

    def _count(self, asked: _Asked) -> exp.Expr:
        where, inner = asked.where, asked.node.this
        if isinstance(inner, exp.Distinct):
            columns = [item.name.lower() if isinstance(item, exp.Column) else "" for item in inner.expressions]
            if not self._unit or set(columns) != self._unit:
                if len(inner.expressions) != 1:
                    listed = brief(", ".join(item.sql("duckdb") for item in inner.expressions))
                    raise DPError(
                        f"count(DISTINCT {listed}): count(DISTINCT x) takes the unit, or one expression; of pairs count a text of both: "
                        "a || '/' || b."
                    )
                value = self._row(inner.expressions[0])
                text, only = value.sql("duckdb"), one_or_null(value)
                if only and len(self._unit) == 1 and {column.name.lower() for column in only} == self._unit:
                    # The unit or NULL, which does not count.
                    return self._place(Sum(where=_both(where, f"({text}) IS NOT NULL"), distinct=True))
                return self._place(Sum(value=text, where=where, kind="values"))
            return self._place(Sum(where=where, distinct=True))
        if asked.key in self._ratios:
            return self._place(self._known(self._sum(self._ratios[asked.key])))
        if asked.value is not None and asked.value.sql("duckdb") in self._never:
            return self._place(Sum(where=where))
        if asked.value is not None:
            return self._place(Sum(where=_both(where, f"({asked.value.sql('duckdb')}) IS NOT NULL")))
        ratios = [self._sum(ratio) for ratio in self._ratios.values() if ratio.where == where]
        if self._norms or not ratios or any(self._known(ratio) == Sum(where=where) for ratio in ratios):
            return self._place(Sum(where=where))
        both = [self._place(_rows_of(ratios[0], kind)) for kind in ("known", "missing")]
        return exp.Add(this=both[0], expression=both[1])

    def _sum(self, asked: _Asked) -> Sum:
        """The sum of the clamped values themselves; where nothing bounds them, of bounds that are chosen."""
        assert asked.value is not None
        text, own = asked.value.sql("duckdb"), [parse_one(asked.where, dialect="duckdb")] if asked.where else []
        average, conditions = not isinstance(asked.node, exp.Sum), [*self._conditions, *own]
        try:
            found = value_bounds(asked.value, conditions, self._held, self._declared, average=average)
        except DPError as error:
            raise DPError(f"{brief(asked.node.sql('duckdb'))}: {error}") from None
        if found is None:
            return Sum(value=text, where=asked.where, low=0.0, high=0.0, cells=candidates())
        return Sum(value=text, where=asked.where, low=found[0], high=found[1])

    def _known(self, one: Sum) -> Sum:
        """The rows with a number: all of them where it is never NULL, as declared or by what a condition says."""
        own = [parse_one(one.where, dialect="duckdb")] if one.where else []
        always = one.value in self._never or one.value in self._told(own)
        return Sum(where=one.where) if always else _rows_of(one, "known")

    def _centres(self, one: Sum) -> list[float]:
        """The c that averages have; of two, they are weighed."""
        middle = one.low / 2 + one.high / 2
        return {"": [middle], "typed": [0.0], "chosen": list(dict.fromkeys((0.0, middle)))}[self._norms]

    def _moments(self, asked: _Asked, raw: bool) -> exp.Expr:
        """sum, avg, variance and stddev from clamped sums of x - c, of its square, and of 1."""
        one = self._sum(asked)
        centres = self._centres(one)
        if isinstance(asked.node, exp.Sum):
            if one.chosen or self._norms:
                return self._place(one)
            total, n = (self._place(each).sql("duckdb") for each in (self._less(one, centres[0]), self._known(one)))
            return parse_one(f"CAST({centres[0]!r} AS DOUBLE) * {n} + {total}", dialect="duckdb")
        found = [self._about(asked, one, centre, raw) for centre in centres]
        text = self._of_two(asked, one, centres[1], found) if len(found) > 1 else found[0]
        known = self._marker("k", self._places[self._known(one)]).sql("duckdb")
        return parse_one(f"CASE WHEN {known} THEN {text} END", dialect="duckdb")

    def _of_two(self, asked: _Asked, one: Sum, centre: float, found: Sequence[str]) -> str:
        """What is shown of the sums of x and of x - c: of variances and standard deviations what has less noise, and their average."""
        all_ = (one, self._less(one, centre), self._known(one))
        s, t, n = (self._marker("s", self._places[each]).sql("duckdb") for each in all_)
        if type(asked.node) in _VARIANCES:
            return f"CASE WHEN coalesce({s} <= {t}, {s} IS NOT NULL) THEN {found[0]} ELSE {found[1]} END"
        first, moved, rows = (self._place(each).sql("duckdb") for each in all_)
        both = two_sums.average((first, moved, rows), (s, t, n), centre)
        return f"coalesce({both}, {found[0]}, {found[1]})"  # one may have no bounds

    def _less(self, one: Sum, centre: float) -> Sum:
        """The sum of x - c; far from 0 that of an expression, as numbers that are bounded by norm are cut where c is subtracted later."""
        value, far = f"({one.value}) - CAST({centre!r} AS DOUBLE)", abs(centre) > FAR * (one.high - one.low)
        apart = replace(one, value=value, low=one.low - centre, high=one.high - centre)
        return apart if self._norms and far else replace(one, centre=centre)

    def _about(self, asked: _Asked, one: Sum, centre: float, raw: bool) -> str:
        """An average, a variance or a standard deviation from the sums about one c, which are noted."""
        moved = self._less(one, centre)
        total, n = (self._place(each).sql("duckdb") for each in (moved, self._known(one)))
        mean = f"{total} / {n}"
        if isinstance(asked.node, exp.Avg):
            return mean if raw else f"CAST({centre!r} AS DOUBLE) + {mean}"
        sample, root = _VARIANCES[type(asked.node)]
        squares = self._place(replace(moved, square=True)).sql("duckdb")
        text = f"({squares} / {n} - ({mean}) * ({mean}))" + (f" * {n} / greatest({n} - 1, 1)" if sample else "")
        return text if raw else f"sqrt(greatest({text}, 0))" if root else f"greatest({text}, 0)"


def _rows_of(one: Sum, kind: str) -> Sum:
    """The rows with a number, or those without one."""
    return replace(one, kind=kind, cells=None)


def _both(first: str, second: str) -> str:
    return f"({first}) AND ({second})" if first else second
