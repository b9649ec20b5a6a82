"""Made-up answers to a call: the statement around it is tried on them before anything is charged."""

from collections.abc import Mapping, Sequence
from typing import Any, final

from duckdb_dp.counting.encode import array, quote
from duckdb_dp.request import Request
from duckdb_dp.sql import answer_size
from duckdb_dp.sql.above.answers import ALL_ROWS, ROWS, columns

NUMBERS = frozenset(
    f"{sign}{name}" for sign in ("", "u") for name in ("tinyint", "smallint", "integer", "bigint", "hugeint")
) | {"float", "double", "decimal"}
"""What DuckDB's Python package calls the types of numbers."""

Labels = Mapping[str, Sequence[str | None]]
"""Columns in small letters -> public values of theirs, as texts."""


@final
class MadeUp:
    """Rows of the labels that are declared, and of numbers that noise could give.

    Args:
        requests: what a call asks.
        arguments: those of the call, by their names.
    """

    def __init__(self, requests: Sequence[Request], arguments: Mapping[str, Any]) -> None:
        self._requests, self._arguments = requests, arguments

    def sql(self, types: Mapping[str, Any], *, parts: bool) -> str:
        """SELECT of the rows.

        Args:
            types: of the columns that a call's SQL returns, as DuckDB's Python package has them.
            parts: whether each of them holds the rows of one SELECT, as structs.

        Privacy: reads declarations only.
        """
        if not parts:
            known = self._labels(1)
            texts = [f"{_value(type_, known.get(name.lower(), ()))} AS {quote(name)}" for name, type_ in types.items()]
            labels = [known[name.lower()] for name in types if name.lower() in known]
            return f"SELECT {', '.join(texts)} FROM range({_rows(labels, self._most())}) AS r(i)"
        texts, longest = [], 1
        for number, (part, type_) in enumerate(types.items(), 1):
            known = self._labels(number)
            most = max((answer_size.rows_of(each, number, ALL_ROWS) for each in self._requests), default=0)
            rows = _rows([*known.values()], most)
            fields = (f"{quote(name)} := {_value(of, known.get(name.lower(), ()))}" for name, of in type_.children)
            texts.append(f"CASE WHEN i < {rows} THEN struct_pack({', '.join(fields)}) END AS {quote(part)}")
            longest = max(longest, rows)
        return f"SELECT {', '.join(texts)} FROM range({longest}) AS r(i)"

    def _labels(self, number: int) -> Labels:
        """The labels of a SELECT of that number, or of a call that asks of attributes."""
        found: dict[str, Sequence[str | None]] = {}
        for request in self._requests:
            if request.direct or any(each.select is not None for each in request.questions):
                of_select = columns(request, number) if _asks(request, number) else []
                found |= {one.name.lower(): one.values for one in of_select if one.values}
            else:
                found |= {
                    one.name.lower(): [None if each is None else str(each) for each in one.labels()[:ALL_ROWS]]
                    for one in request.attributes
                }
        return found

    def _most(self) -> int:
        """The most rows of the answer; 0 where that is not known."""
        known = [answer_size.of_request(each, self._arguments) for each in self._requests]
        return 0 if None in known else max((each or 0 for each in known), default=0)


def _asks(request: Request, number: int) -> bool:
    numbers = {part.number for part in request.direct}
    return number in numbers | {each.select.number for each in request.questions if each.select is not None}


def _rows(labels: Sequence[Sequence[object]], most: int) -> int:
    """One row where nothing tells rows apart, which a scalar subquery may read; else all labels, and no more rows than there will be."""
    wanted = max(ROWS, *map(len, labels)) if labels else 1
    return min(wanted if labels or not most else ROWS, most or wanted)


def _value(type_: Any, values: Sequence[str | None]) -> str:
    """SQL of a value of row i; NULL where nobody knows one, as of texts that are not declared."""
    label = f"TRY_CAST(({array('VARCHAR', values)})[i % {len(values)} + 1] AS {type_})" if values else f"NULL::{type_}"
    return f"coalesce({label}, TRY_CAST(100.5 - i % {ROWS} AS {type_}))" if type_.id in NUMBERS else label
