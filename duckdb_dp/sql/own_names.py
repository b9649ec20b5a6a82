"""DuckDB's own functions in emitted statements, whatever macros there are: calls by full names, and a look at operators while it binds.

DuckDB prefers a macro of anybody's, also a TEMP one or one that is not committed, to its own function of that name. A call
by its full name, as ``system.main.sum(x)``, never finds one, as nothing can be created in ``system``; DuckDB 2 goes on to look
elsewhere for a name that ``system`` lacks, so that only names are listed here which it has. An operator, and syntax that stands
for a call, has no full name, so the statement asks DuckDB for each while it is bound, where it will be bound: with an argument of
a name that no macro has, which only DuckDB's own functions pass, or refuse by its type.
"""

import json
import re
import string
from uuid import uuid4

import duckdb

from duckdb_dp.counting.encode import literal, quote

ROWS = """
abs add ceil ceiling floor round round_even
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
to_milliseconds to_microseconds days_in_month julian timezone nullif hash md5 typeof alias row list_value
list_extract array_extract element_at struct_pack struct_extract unnest list_contains array_length list_sum list_avg
list_min list_max list_count list_sort list_aggregate encode decode list_reverse range generate_series count count_star count_if countif sum
fsum
flatten kahan_sum sumkahan product avg mean favg min max median mode mad quantile quantile_cont quantile_disc stddev stddev_samp
stddev_pop variance var_samp var_pop sem skewness kurtosis entropy corr covar_samp covar_pop regr_slope regr_intercept
regr_r2 regr_count regr_avgx regr_avgy regr_sxx regr_syy regr_sxy bool_and bool_or any_value arbitrary first last
arg_max arg_min argmax argmin max_by min_by arg_max_null arg_min_null string_agg group_concat listagg list array_agg
histogram geomean geometric_mean weighted_avg wavg approx_count_distinct approx_quantile bit_and bit_or bit_xor
row_number rank dense_rank rank_dense percent_rank cume_dist ntile lag lead first_value last_value nth_value fill
union_value union_extract
"""
"""Functions of rows, of groups and of windows, without those that are no calls to DuckDB's binder, as COALESCE and TRY."""

_OTHERS = """
error enum_code octet_length list_position list_filter list_transform to_json from_json version current_query_id
duckdb_tables duckdb_views duckdb_columns duckdb_constraints duckdb_databases duckdb_functions duckdb_types
"""
"""What the SQL of this package calls besides."""

CALLED = frozenset([*ROWS.split(), *_OTHERS.split()])
"""What is written in full."""

_INSIDE = {
    "array_to_string": "len list_aggr", "date_add": "+", "days_in_month": "day last_day", "fdiv": "/ floor", "fmod": "- * / floor",
    "geomean": "exp avg ln", "list_avg": "list_aggr", "list_count": "list_aggr", "list_max": "list_aggr", "list_min": "list_aggr",
    "list_reverse": "- list_value", "list_sum": "list_aggr", "round_even": "+ * / % abs power round", "split_part": "string_split",
    "weighted_avg": "* / sum",
}  # fmt: skip
"""Macros of DuckDB's own, and the functions that they look for by their names; NULLIF, which is one too, looks for none. SPLIT_PART
looks for IF, which in DuckDB 2 is a macro, and cannot be told from another."""

_SAME = {"geometric_mean": "geomean", "roundbankers": "round_even", "wavg": "weighted_avg"}
"""Macros that stand for one of these, under which it is called."""

_OPERATORS = frozenset(
    ["+", "-", "*", "/", "//", "%", "^", "**", "||", "&", "|", "~", "<<", ">>", "<->", "!", "@", "^@", "&&", "->>"]
)
_COMPARISONS = frozenset(["=", "==", "<>", "!=", "<", "<=", ">", ">="])

_SYNTAX = {
    "LIKE": ("~~", "!~~"),
    "ILIKE": ("~~*", "!~~*"),
    "ESCAPE": ("like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape"),
    "GLOB": ("~~~",),
    "SIMILAR": ("regexp_full_match",),
    "IN": ("contains",),
    "EXTRACT": ("date_part",),
    "ZONE": ("timezone",),
    "OVERLAY": ("overlay",),
    "MAP": ("map",),
    "ARRAY": ("array_agg", "list_value"),
    "FOR": ("list_apply", "list_filter"),
    "IF": ("if",),
}
"""Words of syntax -> the functions that DuckDB's parser makes of it."""

_MOMENTS = {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"}
"""The same of what becomes a function where there is no such column."""

_UNITS = (
    "microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade", "century", "millennium",
)  # fmt: skip
_PLURALS = {"century": "centuries", "millennium": "millennia"}

_APART = re.compile(r"""('[^']*'|"[^"]*"|/\*.*?\*/|--[^\n]*)""", re.DOTALL)
"""Texts, names in quotes and comments; of one with its quote inside, two."""
_ESCAPED = re.compile(r"""(\b[eE]'(?:[^'\\]|''|\\.)*'|'[^']*'|"[^"]*"|/\*.*?\*/|--[^\n]*)""", re.DOTALL)
"""The same with texts whose quote may stand behind a backslash."""
_SYMBOLS = re.compile(r"[-+*/%^|&~<>!@=]+")
_LIST = re.compile(r"\[(?:(?<![\w)\]\0]\[)|[^\[\]]*:)")
"""A list, or a part of one, and no element of one."""
_QUERY = re.compile(r"(?i)\s*(?:SELECT|WITH|FROM)\b")
_LISTED = frozenset(["IN", "USING", "OVER", "VALUES"])
"""Words before a list in parentheses that is no row."""
_NO_CALLS = frozenset([
    "ALL", "AND", "ANY", "AS", "BETWEEN", "BY", "CASE", "DISTINCT", "ELSE", "END", "ESCAPE", "EXCEPT", "FROM", "HAVING", "ILIKE",
    "INTERSECT", "IS", "LIKE", "LIMIT", "NOT", "ON", "OR", "ORDER", "QUALIFY", "SELECT", "SET", "SOME", "THEN", "TO", "UNION",
    "WHEN", "WHERE",
])  # fmt: skip
"""Words before a parenthesis that are no function's name; of another one it is no row that follows at once."""
_LETTERS = f"{string.ascii_letters}{string.digits}_"

_HEAD = "FROM system.main.query(system.main._dp_own("
_BOUND = re.compile(rf"{re.escape(_HEAD)}'((?:[^']+|'')*)'")

_OWN = ("No function matches the given name", "Could not choose a best candidate function")
"""How DuckDB's errors about an argument of an unknown name begin where the function is its own. DuckDB 1 may give none."""


def bound(sql: str) -> str:
    """The statement with DuckDB's own functions: an error while it is bound, if a macro stands in for an operator.

    Args:
        sql: a SELECT that this package has written; its calls have no space before the parenthesis.
    """
    statement, names = in_full(sql)
    argument = quote(f"_dp_{uuid4().hex}")
    asked = (literal(f"SELECT {name}({argument} := NULL)") for name in names)
    answers = ", ".join(f"system.main.json_serialize_plan({one})::VARCHAR" for one in asked)
    lists = f"system.main.list_value({', '.join(map(literal, names))}), system.main.list_value({answers})"
    return f"{_HEAD}{literal(statement)}, {lists}))" if names else statement


def unbound(sql: str) -> str:
    """The statement inside of what ``bound`` wrote, with its calls in full."""
    found = _BOUND.match(sql)
    return sql if found is None else found[1].replace("''", "'")


def own(sql: str, names: list[str], answers: list[str]) -> str:
    """A statement, if DuckDB's answers say that no macro stands in for these names; or one that says which does.

    Args:
        sql: the statement.
        names: of functions.
        answers: what ``json_serialize_plan`` says of a call of each, as in ``bound``.
    """
    for name, answer in zip(names, answers, strict=True):
        said = str(json.loads(answer).get("error_message", ""))
        if said and not said.startswith(_OWN):
            name = name.rpartition(".")[2].strip('"')
            error = (
                f"duckdb_dp: there is a macro '{name}' in place of DuckDB's function; drop it, or give it another name."
            )
            return f"FROM system.main.query(system.main.error({literal(error)}))"
    return sql


def in_full(sql: str) -> tuple[str, list[str]]:
    """A statement with its calls by full names; and the functions that its operators and other syntax stand for, and perhaps more."""
    parts = (_ESCAPED if re.search(r"'(?<=\b[eE]')", sql) else _APART).split(sql)
    bare = "\0".join(parts[::2])
    pieces = bare.split("(")
    parts[::2] = "(".join([*map(_called, pieces[:-1]), pieces[-1]]).split("\0")
    for i in range(1, len(parts), 2):
        if parts[i].startswith('"') and parts[i + 1].startswith("(") and not parts[i - 1].endswith("."):
            parts[i] = _full(parts[i][1:-1].replace('""', '"'), parts[i])
    statement = "".join(parts)
    inside = (names.split() for macro, names in _INSIDE.items() if f'system.main."{macro}"' in statement)
    return statement, sorted(_looked_up(bare).union(*(map(quote, names) for names in inside)))


def _called(before: str) -> str:
    """What stands before a parenthesis, with the name at its end in full."""
    rest = before.rstrip(_LETTERS)
    if len(rest) == len(before) or rest[-1:] == "." or rest[-1:].isalnum():
        return before
    return rest + _full(before[len(rest) :], before[len(rest) :])


def _full(name: str, written: str) -> str:
    own = name.lower() in CALLED or name.startswith("_dp_") or not name.isidentifier()
    return f"system.main.{quote(_SAME.get(name.lower(), name.lower()))}" if own else written


def _looked_up(bare: str) -> set[str]:
    """The functions that the syntax in a text stands for, which has no texts and no names in quotes."""
    runs = {*_SYMBOLS.findall(bare)} - _COMPARISONS
    found = [*runs & _OPERATORS, *(each for run in runs - _OPERATORS for each in _OPERATORS if each in run)]
    upper = bare.upper()
    syntax = [name for word, names in _SYNTAX.items() if _has(upper, word) for name in names]
    syntax += ["row"] if _has_row(bare) else []
    syntax += ["struct_pack"] if "{" in bare else []
    syntax += ["list_value"] if _LIST.search(bare) else []
    found += [moment.lower() for moment in _MOMENTS if _has(upper, moment)]
    if _has(upper, "INTERVAL"):
        found += ["trunc", *(f"to_{_PLURALS.get(unit, f'{unit}s')}" for unit in _UNITS if unit.upper() in upper)]
    # DuckDB 1 looks for what some syntax stands for in schemas main alone.
    schemas = ("", "main.") if duckdb.__version__.startswith("1.") else ("",)
    return {*map(quote, found), *(f"{schema}{quote(name)}" for name in syntax for schema in schemas)}


def _has_row(bare: str) -> bool:
    """Whether there may be a list in parentheses that are no call's, no subquery's and no word's such as IN: a row, as (a, b) is."""
    inside, before = [False], None  # of each parenthesis that is open whether its commas are a row's
    for piece in bare.split("("):
        if before is not None:
            inside.append(not _is_call(before) and _QUERY.match(piece) is None)
        for place, part in enumerate(piece.split(")")):
            if place and len(inside) > 1:
                inside.pop()
            if inside[-1] and "," in part:
                return True
        before = piece
    return False


def _is_call(before: str) -> bool:
    """Whether a parenthesis behind this is that of a call, or of a word whose list is no row."""
    near = before.rstrip()
    word = near[len(near.rstrip(_LETTERS)) :].upper()
    if word in _LISTED:
        return True
    return len(near) == len(before) and (near.endswith("\0") if not word else word not in _NO_CALLS)


def _has(upper: str, word: str) -> bool:
    return word in upper and re.search(rf"{word}(?<=\b{word})\b", upper) is not None
