"""Aggregates that one row can change without a bound, and what to ask in their place."""

from collections.abc import Callable

from sqlglot import exp

from duckdb_dp.errors import DPError, brief, meant
from duckdb_dp.sql.no_numbers import INTERVAL, ZONED, ordered
from duckdb_dp.sql.no_numbers import instead as instead_of

_ENDS: dict[type[exp.Expr], str] = {exp.Max: "0.99", exp.Min: "0.01"}
"""The quantile to ask instead of an aggregate that one row can change without a bound."""


_ADVICE = {
    "mode approx_top_k": "ask count(*) with GROUP BY the column, ORDER BY it and take the largest",
    "histogram map": "ask count(*) with GROUP BY the column, or its bins",
    "entropy": "ask count(*) with GROUP BY the column, and work it out above the counts",
    "any_value first last arbitrary list array_agg string_agg group_concat listagg": "it shows values of single rows; "
    "name the column in GROUP BY too, or ask count(*) with GROUP BY it",
    "arg_max arg_min argmax argmin max_by min_by arg_max_null arg_min_null arg_max_nulls_last arg_min_nulls_last": ""
    "ask a quantile of what is compared, or count(*) with GROUP BY",
    "bool_and logical_and every": "ask avg(CASE WHEN condition THEN 1 ELSE 0 END), which is 1 where all rows have it",
    "bool_or logical_or": "ask count_if(condition), which is 0 where no row has it",
    "corr covar_pop covar_samp regr_slope regr_intercept regr_r2 regr_count regr_avgx regr_avgy regr_sxx regr_syy regr_sxy": ""
    "ask its sums: avg(x), avg(y), avg(x * y), avg(x * x), avg(y * y), and work it out above them",
    "product geomean geometric_mean": "ask sum(ln(x)) or avg(ln(x)), and take exp of it above",
    "skewness kurtosis kurtosis_pop": "ask avg(x), avg(x * x), avg(x * x * x) and so on, and work it out above them",
    "mad sem reservoir_quantile": "ask quantile_cont(x, 0.25) and quantile_cont(x, 0.75), or stddev(x)",
    "bit_and bit_or bit_xor bitstring_agg": "ask count(*) with GROUP BY the bits that matter",
}
"""What to ask instead of aggregates that one row can change without a bound, by their names."""


def check_end(node: exp.Expr, type_of: Callable[[exp.Expr], str]) -> None:
    """Refuse max and min, with what to ask of values of that type.

    Args:
        node: an aggregate.
        type_of: the types of what aggregates take.

    Raises:
        DPError: it is one of them.
    """
    inner = node.this if isinstance(node, exp.Filter) else node
    if type(inner) not in _ENDS or not isinstance(inner.this, exp.Expr) or isinstance(inner.this, exp.Distinct):
        return
    type_, text, share = type_of(inner.this), brief(inner.this.sql("duckdb")), _ENDS[type(inner)]
    taken = {INTERVAL: f"epoch({text})", ZONED: f"{text} AT TIME ZONE 'UTC'"}.get(type_, text)
    asked = f"ask a quantile: quantile_cont({taken}, {share})"
    advice = asked if ordered(type_) or taken != text else instead_of(text, type_)
    if type_ == "VARCHAR":
        place = "last" if isinstance(inner, exp.Max) else "first"
        advice = (
            f"ask count(*) with GROUP BY {text}, whose values are declared or listed by WHERE {text} IN ('a', 'b'), and take the {place} "
            f"one whose count is above its error; where it holds numbers: quantile_cont(TRY_CAST({text} AS DOUBLE), {share})"
        )
    raise DPError(f"one row can change {brief(inner.sql('duckdb'))} without a bound; {advice}.")


def instead(node: exp.Expr) -> str:
    """What to ask instead of such an aggregate."""
    name = node.sql_name().lower() if isinstance(node, exp.AggFunc) else node.name.lower()
    return next((advice for names, advice in _ADVICE.items() if name in names.split()), "ask count, sum, avg or median")


def unknown_aggregate(name: str) -> str:
    """What to say of a function that is no aggregate that is known."""
    advice = next((advice for names, advice in _ADVICE.items() if name.lower() in names.split()), "")
    return advice or f"no such aggregate is known{meant(_MEANT, name)}"


_MEANT = tuple(
    "count sum avg median stddev stddev_pop variance var_pop quantile_cont quantile_disc count_if round sqrt greatest least".split()  # noqa: SIM905
)
"""Functions that may be meant by others like them."""
