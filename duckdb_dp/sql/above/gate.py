"""The last look at what runs above answers: by an allow-list it reads answers and public tables, and nothing else."""

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql import lineage
from duckdb_dp.sql.session import Session

_FUNCTIONS = """
+ - * / // % ^ ** || & | ~ << >> ! ~~ !~~ ~~* !~~* ~~~ <-> = != <> < <= > >= abs add ceil ceiling floor round round_even
roundbankers trunc sign sqrt cbrt exp ln log log10 log2 pow power mod multiply divide subtract fdiv fmod greatest least
pi degrees radians sin cos tan asin acos atan atan2 sinh cosh tanh cot even factorial gamma lgamma gcd lcm isnan isinf
isfinite nextafter signbit xor concat concat_ws lower upper lcase ucase length len strlen char_length character_length
trim ltrim rtrim lpad rpad left right substring substr replace reverse repeat starts_with ends_with prefix suffix
contains strpos position instr split_part string_split str_split string_to_array regexp_matches regexp_full_match
regexp_extract regexp_replace like_escape ilike_escape not_like_escape not_ilike_escape format printf bar ascii chr
unicode ord translate strip_accents nfc_normalize array_to_string format_bytes to_base hex bin year month quarter week
day dayofmonth dayofweek dayofyear weekday isodow isoyear yearweek weekofyear decade century millennium era hour minute
second millisecond microsecond epoch epoch_ms epoch_us epoch_ns dayname monthname last_day date_part datepart date_trunc
datetrunc date_diff datediff date_sub datesub date_add age strftime strptime try_strptime make_date make_time
make_timestamp time_bucket to_years to_quarters to_months to_weeks to_days to_hours to_minutes to_seconds
to_milliseconds to_microseconds days_in_month julian timezone coalesce ifnull nullif if hash md5 typeof try alias row list_value
list_extract array_extract element_at struct_pack struct_extract unnest list_contains array_length list_sum list_avg
list_min list_max list_count list_sort list_aggregate encode decode list_reverse range generate_series count count_star count_if countif sum
fsum
flatten kahan_sum sumkahan product avg mean favg min max median mode mad quantile quantile_cont quantile_disc stddev stddev_samp
stddev_pop variance var_samp var_pop sem skewness kurtosis entropy corr covar_samp covar_pop regr_slope regr_intercept
regr_r2 regr_count regr_avgx regr_avgy regr_sxx regr_syy regr_sxy bool_and bool_or every any_value arbitrary first last
arg_max arg_min argmax argmin max_by min_by arg_max_null arg_min_null string_agg group_concat listagg list array_agg
histogram geomean geometric_mean weighted_avg wavg approx_count_distinct approx_quantile bit_and bit_or bit_xor
row_number rank dense_rank rank_dense percent_rank cume_dist ntile lag lead first_value last_value nth_value fill
grouping grouping_id union_value union_extract
"""
"""Functions of values alone, which give the same for the same values; those of lists are few."""


@cache
def _allowed() -> frozenset[str]:
    return frozenset(_FUNCTIONS.split())


_TABLES = {"unnest", "range", "generate_series"}

_CLASSES = {
    "CONSTANT", "COLUMN_REF", "FUNCTION", "WINDOW", "COMPARISON", "CONJUNCTION", "OPERATOR", "CASE", "CAST", "BETWEEN",
    "SUBQUERY", "STAR", "COLLATE", "LAMBDA", "LAMBDA_REF", "TYPE",
}  # fmt: skip

_NODES = {
    "SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "BASE_TABLE", "JOIN", "SUBQUERY", "EMPTY", "EXPRESSION_LIST",
    "TABLE_FUNCTION", "ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER",
}  # fmt: skip


def check(body: str, tables: Collection[str], session: Session) -> None:
    """Refuse what reads anything else than these tables, or whose functions are not DuckDB's own.

    Args:
        body: SQL of a statement in which each table has a name of ``tables``.
        tables: answers, public tables and CTEs, in small letters.
        session: whose catalog may have macros that stand in for functions.

    Raises:
        DPError: it does.
    """
    try:
        tree = lineage.parsed(body)
    except DPError:
        raise
    except Exception:
        raise DPError(
            "the statement is written in a way that is not read above answers; write it as a plain SELECT."
        ) from None
    used: set[str] = set()
    for node in nodes(tree):
        if "class" in node:
            check_expression(node, used)
        elif isinstance(kind := node.get("type"), str) and (kind.endswith(("_NODE", "_MODIFIER")) or _table(node)):
            _check_relation(node, kind, tables, used)
    check_macros(session, used)


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a statement as DuckDB parses it."""
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from nodes(value)


def _table(node: dict[str, Any]) -> bool:
    """Whether a node without a class is an item of FROM: these have an alias, or what they join."""
    kind = node.get("type", "")
    return kind in _NODES or kind in (
        "PIVOT",
        "SHOW_REF",
        "COLUMN_DATA",
        "BOUND_TABLE_REF",
        "DELIM_GET",
        "CTE",
        "TABLE_REF",
    )


def check_expression(node: dict[str, Any], used: set[str]) -> None:
    """Refuse syntax and functions that are not listed, and note the functions in use.

    Raises:
        DPError: it is not listed.
    """
    if node["class"] not in _CLASSES:
        raise DPError(f"{str(node['class']).lower()} is not understood above answers; write a plain expression.")
    name = str(node.get("function_name", "")).lower()
    if node["class"] in ("FUNCTION", "WINDOW") and name:
        # DuckDB 1.4 writes EXTRACT as main.date_part, [1, 2] as main.list_value, and AT TIME ZONE as main.timezone.
        own = not node.get("schema") or (node["schema"] == "main" and name in ("date_part", "list_value", "timezone"))
        if not own or node.get("catalog") or name not in _allowed():
            raise DPError(
                f"{as_sql(name)} is not among the functions that may work on answers: arithmetic, the usual functions of numbers, "
                "texts and dates, aggregates and windows."
            )
        used.add(name)


def _check_relation(node: dict[str, Any], kind: str, tables: Collection[str], used: set[str]) -> None:
    if kind not in _NODES or node.get("sample"):
        what = "a sample" if node.get("sample") else kind.lower().removesuffix("_node").replace("_", " ")
        raise DPError(f"{what} is not read above answers; write SELECT ... FROM ... JOIN ... WHERE ... GROUP BY ....")
    if kind == "BASE_TABLE":
        full = node.get("schema_name") or node.get("catalog_name") or node.get("at_clause")
        if full or str(node.get("table_name", "")).lower() not in tables:
            raise DPError(
                f"{as_sql(node.get('table_name'))} is no answer and no public table; above answers nothing else is read."
            )
    if kind == "TABLE_FUNCTION":
        name = str((node.get("function") or {}).get("function_name", "")).lower()
        if name not in _TABLES:
            raise DPError(f"{as_sql(name)} reads something else than answers; above them nothing else is read.")


def check_macros(session: Session, used: set[str]) -> None:
    """Refuse macros in place of DuckDB's functions, which could read anything.

    Raises:
        DPError: there is one.
    """
    with session.looking() as cursor:
        if cursor is None or not used:
            return
        # Compared here, as a macro might stand in for what the query would compare with.
        theirs = cursor.execute("SELECT function_name FROM duckdb_functions() WHERE NOT internal").fetchall()
    found = next((name for (name,) in theirs if name.lower() in used), None)
    if found is not None:
        raise DPError(
            f"there is a macro {as_sql(found)} in place of DuckDB's function; drop it, or give it another name."
        )
