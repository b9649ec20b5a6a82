"""Arguments of dp_ calls that are written as something else than constants: the session's sandbox computes them."""

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.gateway import statement
from duckdb_dp.gateway.values import UNREADABLE

_QUOTES = (
    "the quotes of an argument do not match; inside '...' write each quote twice, as in 'SELECT count(*) AS n FROM t WHERE sex = ''f''', "
    "or put the SELECT between $$ and $$."
)


def value_of(function: str, text: str, computed: Callable[[str], pa.Table]) -> Any:
    """The value of an argument.

    Args:
        function: whose it is.
        text: its SQL.
        computed: what such SQL is, as a table of one column.

    Raises:
        DPError: it is no one value that an argument takes.
    """
    found = statement.constant(text)
    if found is not None:
        return found[0]
    try:
        table = computed(text)
    except DPError as error:
        if text.startswith('"') and re.search(r"\s", text):
            raise DPError(
                f"{function}: {as_sql(text)} is in double quotes, which hold names; write a text in single quotes: '...'."
            ) from None
        if text.startswith("'") and "syntax error" in str(error):
            raise DPError(f"{function}: {_QUOTES}") from None
        raise DPError(f"{function}: the argument {as_sql(text)} is no constant: {error}") from None
    if table.num_rows != 1 or table.num_columns != 1:
        raise DPError(f"{function}: the argument {as_sql(text)} is not one value.")
    try:
        return table.column(0)[0].as_py()
    except UNREADABLE:
        raise DPError(
            f"{function}: the argument {as_sql(text)} is a value that no argument takes, such as 'infinity'."
        ) from None
