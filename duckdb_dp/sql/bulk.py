"""What dp_attributes is given for many columns at once, each as the words that ``declare`` takes; no data.

A *shape* is what stands for one column in a STRUCT, a MAP or a file:

    [0, 18, 65]                      numbers, dates and times: edges of bins; consecutive whole numbers, of any numeric type: the values
    ['f', 'm', NULL]                 labels: the values; NULL among them gives NULL a cell
    {'low': 0, 'high': 9, 'nulls': true}   the words of dp_attribute; 'auto' as a step or for nulls is worked out here
    true                             what the schema says, and of a column that refers to a public table that table's keys
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from duckdb_dp.counting.encode import quote
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.domain.types import ColumnType, Scalar, Whole
from duckdb_dp.errors import DPError, as_sql, brief, quoted
from duckdb_dp.sql.catalog import Catalog, find_column
from duckdb_dp.sql.declarations import even_step

WORDS = ("values", "bins", "low", "high", "step", "other", "nulls", "decimals", "at_least")
"""What dp_attribute takes."""

DOMAIN = ("values", "bins", "low", "high")

Keys = Callable[[str], Sequence[Scalar]]
"""The keys of a public table to which a column refers; () of other columns."""

AUTO = "auto"
"""Of a step: one that makes few cells. Of nulls: a cell for NULL where the column may be NULL."""

ONE_EACH = 128
"""So many whole numbers or days, at most, are a cell each where the step is ``AUTO``."""

EXAMPLE = "{'age': [0, 18, 65], 'sex': ['f', 'm'], 'income': {'low': 0, 'high': 100, 'step': 10}}"


def declared(table: str, columns: Catalog, given: object, keys: Keys) -> dict[str, Attribute]:
    """The attributes that a STRUCT, a MAP or a file describes, by their columns' names.

    Args:
        table: its name, for messages.
        columns: of the table.
        given: column -> shape.
        keys: of public tables.

    Raises:
        DPError: one of them cannot be declared so; the message names its column.

    Privacy: reads names and types of columns, and public rows.
    """
    if not isinstance(given, Mapping) or not given:
        raise DPError(
            f"the domain is {as_sql(given)}; give columns with their domains, e.g. {EXAMPLE}, or a file's name."
        )
    found: dict[str, Attribute] = {}
    for name, shape in given.items():
        column = find_column(columns, table, name)
        if column["column"] in found:
            raise DPError(f"{as_sql(name)} is named twice; name it once.")
        words = _words(column, shape, keys)
        if "at_least" in words:
            words["at_least"] = lower(columns, table, column, words["at_least"])
        found[column["column"]] = declare(name=column["column"], type=column["type"], **words)
    return found


def lower(columns: Catalog, table: str, column: Mapping[str, Any], asked: object) -> str:
    """The column of which no row has a larger value, as ``at_least`` names it.

    Raises:
        DPError: there is no such column, or its values are not compared with those of this one.
    """
    other = find_column(columns, table, asked)
    one, low = (types.column_type(each["type"], f"attribute '{each['column']}'") for each in (column, other))
    if other["column"] == column["column"] or not one.in_one_unit(low):
        raise DPError(
            f"attribute '{column['column']}' of type {one.name} is at_least {as_sql(other['column'])} of type {low.name}; name another "
            "column whose values are in the same unit, such as a DATE for a DATE."
        )
    return str(other["column"])


def _words(column: Mapping[str, Any], shape: object, keys: Keys) -> dict[str, Any]:
    """The arguments of ``declare`` that a shape stands for."""
    what = f"attribute '{column['column']}'"
    dtype = types.column_type(column["type"], what)
    if isinstance(shape, list):
        shape = _of_list(dtype, shape)
    elif shape is True:
        shape = {"nulls": AUTO}
    if not isinstance(shape, Mapping) or not shape:
        back = f" To take a declaration back: CALL dp_attribute(..., {quoted(column['column'])}, remove := true)"
        raise DPError(
            f"{what} is given {as_sql(shape)}; give a list, or words such as {{'low': 0, 'high': 100, 'step': 10}}."
            + (back if shape is None else "")
        )
    if unknown := [word for word in shape if word not in WORDS]:
        raise DPError(f"{what} has the word {as_sql(unknown[0])}; there are {', '.join(WORDS)}.")
    words = {word: value for word, value in shape.items() if value is not None}
    for word in {"values", "bins"} & words.keys():
        points, missing = _points(what, word, words[word])
        words |= {word: points, "nulls": words.get("nulls", missing)}
    if words.get("nulls") == AUTO:
        words["nulls"] = bool(column["nullable"])
    for word in {"other", "nulls"} & words.keys():
        if not isinstance(words[word], bool):
            raise DPError(f"{what} has {word} {as_sql(words[word])}; it is true or false.")
    if words.get("step") == AUTO:
        words["step"] = step(dtype, words.get("low"), words.get("high"))
    if not words.keys() & set(DOMAIN):
        # As dp_attribute, which is told no more than these.
        found = keys(column["column"]) if dtype.members is None and words.keys() <= {"other", "nulls"} else ()
        words |= {"values": [*found]} if found else from_schema(column) or {}
    return words


def _of_list(dtype: ColumnType, points: list[Any]) -> dict[str, Any]:
    """What a bare list holds: the values of labels, and numbers that are whole and consecutive; otherwise edges of bins."""
    if not dtype.ordered:
        return {"values": points}
    known = [point for point in points if point is not None]
    if not dtype.numeric or not known or not {*map(type, known)} <= {int, float} or not math.isfinite(known[0]):
        return {"bins": points}
    # 1.0 is 1: the lists of a MAP have one type, so that a fraction in one of them makes fractions of all.
    whole = [*range(int(known[0]), int(known[0]) + len(known))]
    return {"values": [*whole, *[None] * (len(points) - len(known))]} if known == whole else {"bins": points}


def _points(what: str, word: str, points: object) -> tuple[list[Any], bool]:
    """(values or edges, whether NULL is among them)."""
    if not isinstance(points, list):
        raise DPError(f"{what} has {word} {as_sql(points)}; write a list, e.g. {word}: [1, 2, 3].")
    found = [point for point in points if point is not None]
    if odd := [point for point in found if not isinstance(point, str | int | float)]:
        raise DPError(f"{what} has {as_sql(odd[0])} among its {word}; list numbers, texts, dates, or true and false.")
    return found, len(found) < len(points)


def step(dtype: ColumnType, low: Any, high: Any) -> Any:
    """A step between bounds that makes few cells; None where the type's own does, or where ``declare`` refuses the bounds."""
    ends = [dtype.canonical(end) for end in (low, high)]
    if not dtype.ordered or not all(dtype.fits(end, edge=True) for end in ends):
        return None
    first, last = dtype.amounts(ends)
    if first >= last or ((dtype.name == "DATE" or isinstance(dtype, Whole)) and last - first < ONE_EACH):
        return None
    found = even_step(dtype, *ends)[0]
    # Of a FLOAT or DOUBLE 1 may mean whole numbers too, and 'auto' means bins.
    return 2 if found == 1 and dtype.name in ("FLOAT", "DOUBLE") else found


def from_schema(column: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments of ``declare`` that a column's type or CHECK constraints give: public knowledge."""
    dtype = types.find(column["type"])
    if dtype is not None and dtype.members is not None:
        return {}
    name = rf'(?:{re.escape(quote(column["column"]))}|(?<![\w".]){re.escape(column["column"])}(?![\w"]))'
    number = r"\(?(-?\d+)\)?(?![\w.]|\s*[*/%+-])"
    one = r"-?\d+" if isinstance(dtype, Whole) else "'(?:[^']|'')*'" if isinstance(dtype, types.Text) else "(?!)"
    for check in column["checks"] or []:
        low = high = None
        if match := re.fullmatch(rf"CHECK\(\({name} IN \(({one}(?:, {one})*)\)\)\)", check):
            texts = re.findall(one, match[1])
            listed = map(int, texts) if isinstance(dtype, Whole) else (text[1:-1].replace("''", "'") for text in texts)
            if found := [value for value in dict.fromkeys(listed) if dtype is not None and dtype.fits(value)]:
                return {"values": found}
        if re.search(r"\b(OR|NOT|CASE)\b", check, re.IGNORECASE):
            continue  # not a range, or not one that every row keeps to
        if match := re.search(rf"{name}\s+BETWEEN\s+{number}\s+AND\s+{number}", check, re.IGNORECASE):
            low, high = int(match[1]), int(match[2])
        elif (above := re.search(rf"{name}\s*>=\s*{number}", check)) and (
            below := re.search(rf"{name}\s*<=\s*{number}", check)
        ):
            low, high = int(above[1]), int(below[1])
        if low is not None and high is not None and isinstance(dtype, Whole):
            return {"low": low, "high": high, "step": 1}
    return None


def shown(found: Attribute) -> str:
    """The first cells of a domain in one short line."""
    labels = ["NULL" if label is None else types.as_text(label) for label in found.labels()]
    return brief(", ".join([*labels[:6], "..."] if len(labels) > 7 else labels), 60)
