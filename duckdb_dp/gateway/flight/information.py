"""What Flight SQL clients may know of the server and of its types: GetSqlInfo and GetXdbcTypeInfo, which JDBC and ODBC build upon."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from duckdb_dp.version import __version__

INFORMATION: dict[int, Any] = {
    0: "duckdb_dp",  # name, version, version of Arrow
    1: __version__,
    2: pa.__version__,
    3: True,  # read only; SQL; no Substrait; no transactions; statements can be cancelled
    4: True,
    5: False,
    8: 0,
    9: True,
    100: 0,  # prepared statements and transactions do not time out
    101: 0,
    500: False,  # no catalogues, schemas or tables are made
    501: False,
    502: False,
    503: 1,  # names in small and large letters are the same, quoted or not
    504: '"',
    505: 1,
    506: False,  # datasets cannot be selected from: dp_ functions answer
    507: 3,  # NULLs come last
    508: ["QUALIFY", "PIVOT", "UNPIVOT", "ASOF", "SUMMARIZE"],
    509: ["abs", "ceil", "exp", "floor", "ln", "log10", "mod", "pi", "pow", "power", "round", "sign", "sqrt"],
    510: ["concat", "length", "lower", "ltrim", "replace", "rtrim", "substring", "trim", "upper"],
    511: ["coalesce", "ifnull", "nullif"],
    512: ["date_diff", "date_part", "date_trunc", "day", "month", "quarter", "year"],
    513: "\\",
    514: "",
    515: True,  # column aliases; NULL || 'a' is NULL
    516: True,
    518: True,  # tables have aliases, of any name
    519: False,
    520: True,  # ORDER BY takes expressions, and columns that are not selected
    521: True,
    522: 3,  # GROUP BY of any columns
    523: True,  # LIKE ... ESCAPE
    524: True,
    525: 3,  # minimum and core grammar
    526: 1,  # entry level of SQL-92
    527: False,
    528: 2,  # outer joins
    529: "schema",
    530: "function",
    531: "catalog",
    532: True,
    562: 0,  # no transactions
    572: False,
    573: False,
    574: False,
    576: False,
}
"""Numbers of FlightSql.proto's enum SqlInfo -> values."""

BITMASKS = frozenset({8, 100, 101, 503, 505, 507, 522, 525, 526, 528, 562})
"""Which of them are 32-bit numbers."""

_PAIRS = pa.map_(pa.int32(), pa.list_(pa.int32()))
_KINDS = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", pa.list_(pa.string())),
    ("int32_to_int32_list_map", _PAIRS),
)
COLUMNS = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field("value", pa.dense_union([pa.field(name, type_) for name, type_ in _KINDS])),
    ]
)


def information(asked: Sequence[int] = ()) -> pa.Table:
    """What is known, of all or of the numbers that are asked for."""
    chosen = [number for number in INFORMATION if not asked or number in asked]
    values: list[list[Any]] = [[] for _ in _KINDS]
    kinds, offsets = [], []
    for number in chosen:
        value = INFORMATION[number]
        kind = 3 if number in BITMASKS else {str: 0, bool: 1, list: 4}[type(value)]
        kinds.append(kind)
        offsets.append(len(values[kind]))
        values[kind].append(value)
    children = [pa.array(each, type_) for each, (_, type_) in zip(values, _KINDS, strict=True)]
    names = [name for name, _ in _KINDS]
    union = pa.UnionArray.from_dense(pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, names)
    return pa.table([pa.array(chosen, pa.uint32()), union], schema=COLUMNS)


TYPES = (
    # name, number in JDBC and ODBC, size, quote, unsigned, digits after the point, radix
    ("UUID", -1, 36, "'", None, None, None),
    ("BIT", -7, 1, None, None, None, None),
    ("BOOLEAN", -7, 1, None, None, None, None),
    ("TINYINT", -6, 3, None, False, 0, 10),
    ("BIGINT", -5, 19, None, False, 0, 10),
    ("BLOB", -3, None, "'", None, None, None),
    ("DECIMAL", 3, 38, None, False, 38, 10),
    ("HUGEINT", 3, 38, None, False, 0, 10),
    ("INTEGER", 4, 10, None, False, 0, 10),
    ("SMALLINT", 5, 5, None, False, 0, 10),
    ("FLOAT", 7, 24, None, False, None, 2),
    ("DOUBLE", 8, 53, None, False, None, 2),
    ("VARCHAR", 12, None, "'", None, None, None),
    ("DATE", 91, 10, "'", None, None, None),
    ("TIME", 92, 15, "'", None, None, None),
    ("TIMESTAMP", 93, 26, "'", None, None, None),
)
"""DuckDB's types, as clients of JDBC and ODBC want to know them."""

_SUBCODES = {91: 1, 92: 2, 93: 3}
_DATETIME = 9


def types(data_type: int | None = None) -> pa.Table:
    """The types, or those of one number of JDBC and ODBC, by number and name."""
    chosen = sorted((each for each in TYPES if data_type in (None, each[1])), key=lambda each: (each[1], each[0]))
    return pa.Table.from_pylist([_type(*each) for each in chosen], types_schema())


def _type(
    name: str,
    number: int,
    size: int | None,
    quote: str | None,
    unsigned: bool | None,
    scale: int | None,
    radix: int | None,
) -> dict[str, Any]:
    return {
        "type_name": name,
        "data_type": number,
        "column_size": size,
        "literal_prefix": quote,
        "literal_suffix": quote,
        "create_params": ["precision", "scale"] if name == "DECIMAL" else None,
        "nullable": 1,
        "case_sensitive": name == "VARCHAR",
        "searchable": 3,
        "unsigned_attribute": unsigned,
        "fixed_prec_scale": False,
        "auto_increment": None if unsigned is None else False,
        "local_type_name": name,
        "minimum_scale": None if scale is None else 0,
        "maximum_scale": scale,
        "sql_data_type": _DATETIME if number in _SUBCODES else number,
        "datetime_subcode": _SUBCODES.get(number),
        "num_prec_radix": radix,
        "interval_precision": None,
    }  # fmt: skip


@cache
def types_schema() -> pa.Schema:
    """The columns of ``types``."""
    text, number, flag = pa.string(), pa.int32(), pa.bool_()
    listed = pa.list_(pa.field("item", text, nullable=False))
    kinds = {"literal_prefix": text, "literal_suffix": text, "create_params": listed, "unsigned_attribute": flag}
    kinds |= {
        "auto_increment": flag,
        "local_type_name": text,
        "type_name": text,
        "case_sensitive": flag,
        "fixed_prec_scale": flag,
    }
    always = {"type_name", "data_type", "nullable", "case_sensitive", "searchable", "fixed_prec_scale", "sql_data_type"}
    names = _type("", 0, None, None, None, None, None)
    return pa.schema([pa.field(name, kinds.get(name, number), nullable=name not in always) for name in names])
