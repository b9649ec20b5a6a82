"""The one exception that this package raises for users, and how its messages write values, names and lists."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import islice

SHOWN = 60
"""Characters of a value in a message."""

STATEMENT = 160
"""Characters of SQL in a message."""

LISTED = 5
"""Most names that a message lists."""


class DPError(ValueError):
    """What was asked, what was wrong, what would work: one line, and never a private value."""


def expect(function: str, name: str, value: object, kinds: type | tuple[type, ...], works: str) -> None:
    """Refuse what has a wrong type among a Python function's arguments; a truth value is no number.

    Raises:
        DPError: it has.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise DPError(f"{function}: {name} is {as_sql(value)}; give {works}.")


def as_sql(value: object, most: int = SHOWN) -> str:
    """An argument as SQL writes it, cut where it is long: NULL, true, 'it''s', [1, 2], {'a': 1}."""
    return brief(_sql(value, most), most)


def brief(text: str, most: int = STATEMENT) -> str:
    """SQL in one line, cut where it is long; without the aliases that columns have for us alone."""
    line = re.sub(r' AS "_dp_\w+"', "", " ".join(text.split()))
    return line if len(line) <= most else f"{line[:most]}..."


def first_line(error: BaseException) -> str:
    """What another library says: no further lines, no kind of error, no style, and of its classes the name alone."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    line = re.sub(r"^[A-Z][A-Za-z-]*(?: [A-Za-z-]+)* Error: ", "", line)
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", re.sub(r"\x1b\[[0-9;]*m", "", line))


def _sql(value: object, most: int) -> str:
    """The same, of more characters at times: what lies after those that are shown is not looked at."""
    match value:
        case None | bool():
            return {None: "NULL", True: "true", False: "false"}[value]
        case str():
            return quoted(value[: most + 1])
        case int():
            return str(value) if abs(value) < 10**most else f"a number of more than {most} digits"
        case float() | Decimal():
            return str(value)
        case Mapping():
            pairs = islice(value.items(), most)
            return "{" + ", ".join(f"{_sql(key, most)}: {_sql(each, most)}" for key, each in pairs) + "}"
        case list() | tuple() | set() | frozenset():
            return "[" + ", ".join(_sql(each, most) for each in islice(value, most)) + "]"
    return f"an object of Python's type {type(value).__name__}"


def few(names: Iterable[object], joint: str = ", ") -> str:
    """The first names of a list that may be long, and that there are others."""
    found = [str(name) for name in islice(names, LISTED + 1)]
    others = "and others" if joint == ", " else "others"
    return joint.join([*found[:LISTED], others] if len(found) > LISTED else found)


def nearest(names: Iterable[object], asked: object) -> str:
    """The first names of a list, those that are like what was asked before the others."""
    from difflib import get_close_matches  # for import time

    known = {str(name).lower(): str(name) for name in names}
    near = get_close_matches(asked.lower(), known, LISTED, 0.6) if isinstance(asked, str) else []
    return few(dict.fromkeys(known[name] for name in [*near, *known]))


def meant(names: Iterable[str], asked: str) -> str:
    """What follows a name that is none: '; x may be meant', or nothing where none is like it."""
    from difflib import get_close_matches  # for import time

    spelled = {name.lower(): name for name in names}
    near = get_close_matches(asked.lower(), spelled, n=1)
    return f"; {spelled[near[0]]} may be meant" if near else ""


def swapped(low: object, high: object) -> str:
    """What is said of a range whose ends are exchanged."""
    return f"low is above high; low := {as_sql(high)}, high := {as_sql(low)} may be meant"


def as_written(select: str) -> str:
    """A SELECT without the aliases that only repeat a column's name, which it was given where it is read."""
    return re.sub(r'\b(\w+) AS "\1"', r"\1", select)


def quoted(text: str) -> str:
    """A text as an argument in a statement that can be pasted."""
    return "'" + text.replace("'", "''") + "'"


def quoted_name(*parts: str) -> str:
    """A table's name, of one to three parts, as an argument that names it in a statement that can be pasted."""
    plain = (part if re.fullmatch(r'[^."\s][^."]*', part) else identifier(part) for part in parts)
    return quoted(".".join(plain))


def identifier(name: str) -> str:
    """A column's name in SQL, quoted: any name can be pasted so."""
    return '"' + name.replace('"', '""') + '"'


class UnknownColumn(DPError):  # noqa: N818  what it says of a name
    """A column that is not among those that are known.

    Args:
        name: as it was written.
        known: the names of the columns.
        near: what follows: the one that may be meant.
    """

    def __init__(self, name: str, known: Iterable[str], near: str = "") -> None:
        self.name, self.known, self.near = name, list(known), near
        super().__init__(f"there is no column {as_sql(name)}; the columns are: {few(self.known)}.{near}")


FILES = (".csv", ".parquet", ".json")
"""How names of files end that DuckDB reads as tables."""


class Undeclared(DPError):  # noqa: N818  what it says of a column
    """A column of a join that is grouped by, and whose values nothing says; the message is whole."""


class NoGroups(DPError):  # noqa: N818  what it says of the groups
    """No value of what is grouped by satisfies the conditions: no declaration of another kind changes that."""


def of_file(name: str) -> str:
    """What is said of a file that is named as a table; nothing of other names."""
    return (
        f"Of a file make a table first: CREATE TABLE my_table AS FROM {as_sql(name)}"
        if name.lower().endswith(FILES)
        else ""
    )
