"""Declared attributes: which values a column of a private table may take. Public facts, never derived from data."""

import itertools
import json
import math
import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any, Literal

from duckdb_dp.domain import steps
from duckdb_dp.domain.steps import MIDNIGHT
from duckdb_dp.domain.units import BITS, PER_SECOND, Amount, Scalar, amount, held, is_moment, is_uuid, limits, single
from duckdb_dp.errors import DPError, as_sql, identifier

Kind = Literal["values", "bins", "integers"]

RESERVED = frozenset({"marginal", "count", "stddev", "ci_low", "ci_high", "private"})
"""Result columns of the SQL functions: an attribute of that name could not be told from them."""

_INTEGERS = {*BITS, *(f"U{name}" for name in BITS)}
_TEMPORAL = {"DATE", *PER_SECOND}
_OTHER, _MAX_VALUES = "other", 1_000_000

_NUMBERS, _LABELS = "low := ..., high := ..., step := ...", '"values" := [...]'
DOMAINS = f"{_NUMBERS} for numbers, {_LABELS} for labels"
"""How a domain is declared, for a column of any type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One column's declared domain.

    The cells are, in order: the declared ones, then 'other' (where declared), then NULL (where declared).

    Attributes:
        name: the column.
        type: its DuckDB type, as the catalog spells it.
        kind: 'values' (each value a cell), 'bins' (half-open [a, b), the last one closed), 'integers' (low to high).
        points: the values; the bin edges, one more than there are bins; or (low, high).
        other: a last cell takes all that is outside, NULL too unless ``nulls``; else such rows are left out.
        nulls: NULL has a cell of its own.

    Raises:
        DPError: points that are not distinct or increasing or do not fit the type.
    """

    name: str
    type: str
    kind: Kind
    points: tuple[Scalar, ...]
    other: bool = False
    nulls: bool = False

    def __post_init__(self) -> None:
        if self.name.lower() in RESERVED:
            self._fail(
                "is also a result column",
                f"Rename it in a view: CREATE VIEW v AS SELECT {identifier(self.name)} AS my_{self.name} ...",
            )
        if not self.points:
            self._fail("was declared without values", 'List at least one: "values" := [...]')
        if self.kind != "values" and self.family not in ("integer", "real", "temporal"):
            self._fail(f"has type {self.type}, which has no order to cut", self._without_order())
        for point in self.points:
            if not self._fits(point):
                self._fail(
                    f"has type {self.type}, which {as_sql(point)} does not fit",
                    "Use values of the column's type, or cast it in a view",
                )
        if self.kind == "values":
            if len(set(map(self.sort_key, self.points))) < len(self.points):
                self._fail("was declared with a value twice", "List each value once")
        else:
            order = [self.sort_key(point) for point in self.points]
            if self.kind == "bins" and (len(order) < 2 or any(a >= b for a, b in itertools.pairwise(order))):
                self._fail("needs at least two bin edges, each above the one before", "e.g. bins := [0, 18, 65, 120]")
            if self.kind == "integers" and order[0] > order[1]:
                self._fail("was declared with low above high", "e.g. low := 0, high := 100")
        if self.size > _MAX_VALUES:
            self._fail(
                f"was declared with {self.size:,} cells", f"At most {_MAX_VALUES:,} work; use bins, or a larger step"
            )

    @property
    def family(self) -> str:
        """The family of its type."""
        return family(self.type)

    @property
    def size(self) -> int:
        """Number of cells."""
        return self._base + self.other + self.nulls

    @property
    def column_type(self) -> str:
        """Type of the attribute's column in results: its own, or VARCHAR where 'other' and bins are labels."""
        return "VARCHAR" if self.kind == "bins" or self.other else self.type

    @property
    def other_label(self) -> str:
        """What the cell of all other values is called: 'other', or '(other)' where 'other' is a declared value."""
        label = _OTHER
        while label in self.points:
            label = f"({label})"
        return label

    @property
    def held(self) -> list[tuple[Amount, Amount]]:
        """Of bins: the lowest and the highest value of the column's type in each, in the type's own unit."""
        return held(self.type, self.points)

    def labels(self) -> list[Scalar | None]:
        """One label per cell, as the result column shows it; None is NULL."""
        found: list[Scalar | None]
        if self.kind == "bins":
            last = self._base - 1
            found = [
                f"[{a}, {b}{']' if i == last else ')'}" for i, (a, b) in enumerate(itertools.pairwise(self.points))
            ]
        elif self.kind == "integers":
            low, high = self.points
            found = list(range(int(low), int(high) + 1))
        else:
            found = list(self.points)
        if self.column_type == "VARCHAR":
            found = [as_text(label) for label in found if label is not None]
        return found + [self.other_label] * self.other + [None] * self.nulls

    def bounds(self) -> list[tuple[Scalar | None, Scalar | None]]:
        """(low, high) of each cell; (None, None) where a cell has none."""
        found: list[tuple[Scalar | None, Scalar | None]] = [(None, None)] * self.size
        if self.kind == "bins":
            found[: self._base] = list(itertools.pairwise(self.points))
        elif self.kind == "integers":
            low, high = self.points
            found[: self._base] = [(value, value) for value in range(int(low), int(high) + 1)]
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain data for the ledger and for requests."""
        return {
            "name": self.name,
            "type": self.type,
            "kind": self.kind,
            "points": list(self.points),
            "other": self.other,
            "nulls": self.nulls,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Attribute":
        """The inverse of ``to_json``."""
        return cls(**{**data, "points": tuple(data["points"])})

    @property
    def _base(self) -> int:
        if self.kind == "integers":
            low, high = self.points
            return int(high) - int(low) + 1
        return len(self.points) - (self.kind == "bins")

    def sort_key(self, point: Scalar) -> Any:
        """The point as something that orders like the column."""
        if self.type == "FLOAT":  # as the column holds it
            return single(float(point))
        if self.family != "temporal":
            return point
        return time.fromisoformat(str(point)) if self.type == "TIME" else datetime.fromisoformat(str(point))

    def _fits(self, point: Scalar) -> bool:
        if self.family == "boolean" or isinstance(point, bool):
            return self.family == "boolean" and isinstance(point, bool)
        if self.family == "integer":
            return isinstance(point, int) and self._holds(point)
        if self.family == "real":
            return isinstance(point, int | float) and _finite(point) and self._holds(point)
        if not isinstance(point, str):
            return False
        if self.family == "temporal":
            return is_moment(self.type, point)
        if self.type == "UUID":
            return is_uuid(point)
        members = enum_values(self.type)
        return self.family == "text" and "\0" not in point and (members is None or point in members)

    def _holds(self, point: int | float) -> bool:
        """Whether a value of the column can equal the number; bins may be cut beside and between such values.

        Then no comparison and no cast can fail, whatever a row holds: an error would show a private value.
        """
        if self.family == "integer":
            low, high = limits("HUGEINT" if self.kind == "bins" and self.type != "UHUGEINT" else self.type)
            return bool(low <= point <= high)
        if self.type == "FLOAT":
            return abs(point) < 2.0**128 - 2.0**103  # the next one rounds to infinity
        if self.type == "DOUBLE" or self.kind == "bins":
            return abs(point) < 2**1024
        low, high = limits(self.type)
        last_digits = amount(self.type, point)
        return low <= last_digits <= high and last_digits == int(last_digits)

    def _without_order(self) -> str:
        """What helps. No plain CAST of what a file made text: its error shows the value that failed."""
        if self.type != "VARCHAR":
            return f"Declare it by {_LABELS}, or cast it in a view"
        return (
            f"Declare it by {_LABELS}; or, where numbers or dates were read as text, read the file again with nullstr, its "
            f"word for a missing one, or take TRY_CAST({identifier(self.name)} AS DOUBLE), or AS DATE, in a view"
        )

    def _fail(self, what: str, remedy: str) -> None:
        raise DPError(f"attribute '{self.name}' {what}. {remedy}.")


def family(type_: str) -> str:
    """'text', 'boolean', 'integer', 'real', 'temporal', or 'unsupported', for a DuckDB type."""
    if type_ in _INTEGERS:
        return "integer"
    if type_ in ("FLOAT", "DOUBLE") or type_.startswith("DECIMAL("):
        return "real"
    if type_ in _TEMPORAL:
        return "temporal"
    if type_ == "BOOLEAN":
        return "boolean"
    return "text" if type_ in ("VARCHAR", "UUID") or type_.startswith("ENUM(") else "unsupported"


def domain_of(type_: str) -> str | None:
    """The arguments that declare a column of a type, to be completed; None where no domain can be declared.

    Proposed from the type, which is public, and never from the values.
    """
    by_family = {
        "integer": "low := ..., high := ...",
        "real": _NUMBERS,
        "temporal": "bins := [...]",
        "text": _LABELS,
        "boolean": "",
    }
    return by_family.get(family(type_))


def as_text(label: Scalar) -> str:
    """A label as text, truth values as DuckDB writes them."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def enum_values(type_: str) -> list[str] | None:
    """The members of an ENUM type as the catalog spells it; None for other types."""
    texts = re.findall(r"'((?:[^']|'')*)'", type_)
    return [text.replace("''", "'") for text in texts] if type_.startswith("ENUM(") else None


def declare(
    *,
    name: str,
    type: str,  # noqa: A002  the declaration's own word
    values: list[Scalar] | None = None,
    bins: list[Scalar] | None = None,
    low: Scalar | None = None,
    high: Scalar | None = None,
    step: Scalar | None = None,
    other: bool = False,
    nulls: bool = False,
) -> Attribute:
    """The attribute that a declaration describes: exactly one of values, bins, or low and high (with a step).

    ENUM and BOOLEAN columns need none of them. Whole numbers with a step of 1 are cells of their own; any other
    step makes bins from low to high, the last one closed at high.

    Raises:
        DPError: no domain or more than one, or one that does not fit the column's type.
    """

    def make(kind: Kind, points: list[Scalar]) -> Attribute:
        return Attribute(name=name, type=type, kind=kind, points=tuple(points), other=other, nulls=nulls)

    given = [
        word
        for word, found in (("values", values), ("bins", bins), ("low/high", low if high is None else high))
        if found is not None
    ]
    if family(type) == "unsupported":
        what = "TRY_CAST it to a number, a date or a text in a view"
        raise DPError(f"attribute '{name}' has type {type}, which has no domain; {what}.")
    if len(given) > 1:
        raise DPError(f"attribute '{name}' was declared by {' and by '.join(given)}. Use one of them.")
    if values is not None:
        return make("values", _as_column(type, values))
    if bins is not None:
        return _filled(make("bins", _as_column(type, bins)))
    if given:
        return _stepped(make, name, type, low, high, step)
    if type == "BOOLEAN":
        return make("values", [False, True])
    members = enum_values(type)
    if members is None:
        raise DPError(f"attribute '{name}' has type {type}, which does not list its values: give {domain_of(type)}.")
    return make("values", list(members))


def _as_column(type_: str, points: list[Scalar]) -> list[Scalar]:
    """Values as DuckDB writes those of the column: a UUID in small letters, a date without the time of a timestamp."""
    if type_ == "UUID":
        return [point.lower() if isinstance(point, str) else point for point in points]
    if type_ == "DATE":
        found = ((point, MIDNIGHT.fullmatch(point) if isinstance(point, str) else None) for point in points)
        return [point if match is None else match[1] for point, match in found]
    return points


def _filled(bins: Attribute) -> Attribute:
    """Refuse bins none of which any value of the column can be in.

    Raises:
        DPError: they are such.
    """
    if bins.held[0][0] > bins.held[-1][1]:
        raise DPError(
            f"attribute '{bins.name}' has type {bins.type}, which has no value from {bins.points[0]} to {bins.points[-1]}. "
            "Use edges around values of the column."
        )
    return bins


def _stepped(make: Any, name: str, type_: str, low: object, high: object, step: object) -> Attribute:
    if family(type_) not in ("integer", "real", "temporal"):
        make("bins", [0, 1])  # refuses it, and says what helps
    if low is None or high is None:
        raise DPError(f"attribute '{name}' lacks {'low' if low is None else 'high'}; give low and high both.")
    if family(type_) == "temporal":
        return _stepped_moments(make, name, type_, low, high, step)
    ends = [
        x for x in (low, high, 1 if step is None else step) if isinstance(x, int | float) and not isinstance(x, bool)
    ]
    if len(ends) < 3 or not all(map(_finite, ends)):
        raise DPError(
            f"attribute '{name}' needs numbers for low, high and step, found {as_sql(low)}, {as_sql(high)}, {as_sql(step)}."
        )
    first, last, by = ends
    whole = [int(x) if abs(x) < 10**15 and x == int(x) else x for x in (first, last)]
    if by == 1 and family(type_) == "integer":
        return make("integers", whole)  # type: ignore[no-any-return]
    if step is None:
        raise DPError(
            f"attribute '{name}' has type {type_}; give a step, e.g. low := {as_sql(low)}, high := {as_sql(high)}, step := 5."
        )
    if by <= 0 or last <= first or steps.exact(last) - steps.exact(first) > _MAX_VALUES * steps.exact(by):
        raise DPError(
            f"attribute '{name}' cannot go from {as_sql(low)} to {as_sql(high)} in steps of {as_sql(step)}; "
            "use low < high and a larger step > 0."
        )
    if by == 1 and all(isinstance(x, int) for x in whole):
        start, end = map(int, whole)
        if type_.endswith(",0)"):
            return make("values", [*range(start, end + 1)])  # type: ignore[no-any-return]
        if not type_.startswith("DECIMAL"):
            raise DPError(
                f"attribute '{name}' has type {type_}, where step := 1 may mean whole numbers or bins. Where it holds whole "
                f'numbers: "values" := range({start}, {end + 1}); else: bins := range({start}, {end + 1}).'
            )
    return _filled(make("bins", steps.numbers(first, last, by)))


def _stepped_moments(make: Any, name: str, type_: str, low: object, high: object, step: object) -> Attribute:
    """Days with a step of one day are cells of their own, as whole numbers are; else bins from low to high."""
    by = steps.Interval.read("1 day" if step is None and type_ == "DATE" else step)
    ends = _as_column(type_, [point for point in (low, high) if isinstance(point, str)])
    whole = type_ != "DATE" or by is None or not by.rest % timedelta(days=1)
    if by is None or not whole or len(ends) < 2 or not all(is_moment(type_, str(end)) for end in ends):
        example = "low := '2010-01-01', high := '2020-01-01', step := INTERVAL 1 MONTH"
        if type_ == "TIME":
            example = "low := '08:00:00', high := '18:00:00', step := INTERVAL 1 HOUR"
        raise DPError(
            f"attribute '{name}' has type {type_}, so low and high are such values and step is an interval above 0"
            f"{', of whole days' if type_ == 'DATE' else ''}, found {as_sql(low)}, {as_sql(high)}, {as_sql(step)}; e.g. {example}."
        )
    first, last = map(str, ends)
    length = steps.length(first, last)
    if length <= timedelta(0) or length // by.longest > _MAX_VALUES:
        raise DPError(
            f"attribute '{name}' cannot go from {as_sql(low)} to {as_sql(high)} in steps of {as_sql(step)}; "
            "use low < high and a larger step."
        )
    found = steps.moments(first, last, by)
    if type_ == "DATE" and by == steps.Interval(months=0, rest=timedelta(days=1)):
        return make("values", found)  # type: ignore[no-any-return]
    return make("bins", found)  # type: ignore[no-any-return]


def _finite(number: int | float) -> bool:
    return isinstance(number, int) or math.isfinite(number)


def canonical(data: Any) -> str:
    """JSON with sorted keys and no spaces: the same text for the same content."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
