"""A dp_ call whose arguments are constants, and its SQL: all that the broker takes."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, final
from uuid import UUID

from duckdb_dp.counting.encode import literal, quote
from duckdb_dp.errors import DPError
from duckdb_dp.gateway.answered import FUNCTIONS
from duckdb_dp.sql.registry import functions

RESERVED = frozenset({"by", "columns", "distinct", "precision", "references", "values"})
"""Words that are no names unless they are quoted, of those that arguments may be called."""

QUESTIONS = ("attributes", "queries", "attribute", "sql")
"""What the functions that dp_explain knows call what they are asked."""

DEPTH, ELEMENTS = 16, 100_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call whose arguments are constants: name (None for one without) -> value, in order."""

    function: str
    arguments: tuple[tuple[str | None, Any], ...]

    @property
    def sql(self) -> str:
        """The call in SQL, from its constants."""
        texts = (
            written(value) if name is None else f"{_argument(name)} := {written(value)}"
            for name, value in self.arguments
        )
        return f"{self.function}({', '.join(texts)})"

    def named(self, parameters: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, Any]:
        """The arguments by their names, of which those of each function are given in their order."""
        names = [name for names in parameters[self.function] for name in names]
        return {name or names[place]: value for place, (name, value) in enumerate(self.arguments)}

    @property
    def charges(self) -> bool:
        """Whether it is a question, whose answer is charged where there is none yet."""
        function = functions().get(self.function)
        return function is not None and function.plan is not None and function.read is not None

    @property
    def fresh(self) -> bool:
        """Whether each run draws anew."""
        return any(name == "fresh" and value is True for name, value in self.arguments)

    @property
    def keeps(self) -> bool:
        """Whether a second call has the rows of the first: fresh := true draws anew."""
        return self.function in FUNCTIONS and all(name != "fresh" for name, _ in self.arguments)

    @property
    def paid(self) -> bool:
        """Whether its rows are paid once they are there: they are given whole."""
        return self.charges or self.function == "dp_release"


def _argument(name: str) -> str:
    """The name of an argument."""
    return name if re.fullmatch(r"[a-z_]+", name) and name not in RESERVED else quote(name)


def written(value: object) -> str:
    """A constant in SQL.

    Raises:
        DPError: it is of another type.
    """
    match value:
        case None | bool():
            return {None: "NULL", True: "true", False: "false"}[value]
        case str():
            return literal(value)
        case int() if abs(value) < 2**127:
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else f"'{value}'::DOUBLE"
        case Decimal():
            return f"{value:f}" if value.is_finite() else f"'{value}'::DOUBLE"
        case datetime() | date() | time() | UUID():
            return literal(str(value))
        case timedelta():
            return literal(f"{value.total_seconds()} seconds")
        case list() | tuple():
            return f"[{', '.join(map(written, value))}]"
        case dict() if value and all(isinstance(name, str) for name in value):
            return "{" + ", ".join(f"{literal(name)}: {written(each)}" for name, each in value.items()) + "}"
    if isinstance(value, int):
        raise DPError("an argument is a number of more than 38 digits; give a smaller one.")
    raise DPError(f"an argument is of the type {type(value).__name__}; give texts, numbers, lists or structs of these.")


def check_size(value: object) -> None:
    """Refuse what is nested too deep, or has too many elements."""
    level: list[object] = [value]
    count = 0
    for _ in range(DEPTH):
        inner = [each for one in level for each in (one.values() if isinstance(one, dict) else one)]  # type: ignore[attr-defined]
        count += len(inner)
        if count > ELEMENTS:
            raise DPError(f"the arguments have more than {ELEMENTS:,} elements; ask for less at once.")
        level = [each for each in inner if isinstance(each, list | tuple | dict)]
        if not level:
            return
    raise DPError(f"an argument is nested more than {DEPTH} deep.")
