"""Attributes with their values or bins, and domains, which are the declared attributes of a table."""

import copy
import itertools
import json
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, final

from duckdb_dp.domain import types
from duckdb_dp.domain.types import LABELS, MAX_CELLS, NUMBERS, Amount, ColumnType, Kind, Scalar, as_text
from duckdb_dp.errors import DPError, as_sql, expect, few, identifier, quoted, swapped

Clique = tuple[str, ...]
"""The attributes of a marginal, in the domain's order; ``()`` is the total."""

_Item = TypeVar("_Item")

Hidden = Literal["below", "above", "unlisted", "null"]
"""What a cell that is not shown holds: values below or above all declared ones, values that are none of these, or NULL."""


def subsets(items: Sequence[_Item]) -> list[tuple[_Item, ...]]:
    """All subsets of the attributes of a clique, or of axes: small ones first, the empty set and the whole included."""
    return [found for size in range(len(items) + 1) for found in itertools.combinations(items, size)]


RESERVED = frozenset({"marginal", "count", "stddev", "ci_low", "ci_high", "private"})
"""Result columns of the SQL functions: an attribute of that name could not be told from them."""

_OTHER = "other"

DOMAINS = f"{NUMBERS} for numbers, dates and times, {LABELS} for labels"
"""How a domain is declared, for a column of any type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One column's declared domain.

    The cells are, in order: the declared ones, then 'other' (where declared), then NULL (where declared), and with ``rest`` those that
    ``hidden`` names, which are counted and never shown. With ``line`` they are in the order of values: what lies below, the declared
    ones, of listed values with what lies between two of them after the first, and what lies above.

    Attributes:
        name: the column.
        type: its DuckDB type, as the catalog spells it.
        kind: 'values' (each value a cell), 'bins' (half-open [a, b), the last one closed), 'integers' (low to high).
        points: the values; the bin edges, one more than there are bins; or (low, high).
        other: a last cell takes all that is outside, NULL too unless ``nulls``; else such rows are left out.
        nulls: NULL has a cell of its own.
        decimals: of bins of FLOAT and DOUBLE, the decimals of synthetic values; None for as many as the type has.
        at_least: the column of which every row's value is at most this one's, for synthetic values; None where nobody said so.
        rest: whether values outside have cells too, so that each row has one; no declaration says it.
        line: whether all values but NULL and NaN have cells in their order, for quantiles; no declaration says it.

    Raises:
        DPError: points that are not distinct or increasing or do not fit the type.
    """

    name: str
    type: str
    kind: Kind
    points: tuple[Scalar, ...]
    other: bool = False
    nulls: bool = False
    decimals: int | None = None
    rest: bool = False
    line: bool = False
    at_least: str | None = None

    def __post_init__(self) -> None:
        if self.name.lower() in RESERVED:
            self._fail(
                "is also a result column",
                f"Rename it in a view: CREATE VIEW v AS SELECT {identifier(self.name)} AS my_{self.name} ...",
            )
        dtype = types.column_type(self.type, f"attribute '{self.name}'")
        if not self.points and not (self.kind == "values" and self.other):
            self._fail("was declared without values", 'List at least one: "values" := [...]')
        if self.kind != "values" and not dtype.ordered:
            self._fail(f"has type {self.type}, which has no order to cut", types.without_order(dtype, self.name))
        if not self.points:  # of what was looked for nothing was found
            return
        if misfits := dtype.misfits(self.points, edges=self.kind == "bins"):
            self._fail(
                f"has type {self.type}, which {as_sql(misfits[0])} does not fit",
                "Use values of the column's type, or cast it in a view",
            )
        if self.kind == "values":
            if len(set(dtype.orders(self.points))) < len(self.points):
                self._fail("was declared with a value twice", "List each value once")
        else:
            order = dtype.orders(self.points)
            if self.kind == "bins" and (len(order) < 2 or any(map(operator.ge, order, order[1:]))):
                self._fail("needs at least two bin edges, each above the one before", "e.g. bins := [0, 18, 65, 120]")
            if self.kind == "integers" and order[0] > order[1]:
                self._fail("was declared with low above high", swapped(*self.points).partition("; ")[2])
        self._check_decimals()
        if self.size > MAX_CELLS:
            self._fail(
                f"was declared with {self.size:,} cells", f"At most {MAX_CELLS:,} work; use bins, or a larger step"
            )

    def _check_decimals(self) -> None:
        if self.decimals is None:
            return
        if type(self.decimals) is not int or not 0 <= self.decimals <= 15:
            self._fail(f"was declared with decimals {as_sql(self.decimals)}", "A whole number from 0 to 15 works")
        if self.kind != "bins" or not self.dtype.continuous:
            self._fail(
                f"has cells whose values are as exact as {self.type} is, so decimals say nothing",
                "They are for bins of FLOAT and DOUBLE; leave them out",
            )

    @property
    def dtype(self) -> ColumnType:
        """What its type can do."""
        return types.column_type(self.type)

    @property
    def size(self) -> int:
        """Number of cells."""
        if self.line:
            return 2 * self.base + 1 if self.kind == "values" else self.base + 2
        return self.shown + len(self.hidden)

    @property
    def shown(self) -> int:
        """Number of cells that have a label."""
        return self.base + self.other + self.nulls

    @property
    def hidden(self) -> tuple[Hidden, ...]:
        """What the cells after those with labels hold: values below and above the declared ones, or none of them, and NULL."""
        if not self.rest or self.other or self.line:
            return ()
        sides: tuple[Hidden, ...] = ("below", "above")
        if self.kind == "values":
            members = self.dtype.members
            sides = () if members is not None and len(members) == len(self.points) else ("unlisted",)
        return sides if self.nulls else (*sides, "null")

    def with_rest(self, rest: bool = True) -> "Attribute":
        """The same with a cell for each value that it has none for, or without; what was checked is not checked again."""
        found = copy.copy(self)
        object.__setattr__(found, "rest", rest)
        return found

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
        return self.dtype.held(self.points)

    def labels(self) -> list[Scalar | None]:
        """One label per cell that is shown, as the result column shows it; None is NULL."""
        found: list[Scalar | None]
        if self.kind == "bins":
            edges = [str(point) for point in self.points]
            found = [f"[{a}, {b})" for a, b in itertools.pairwise(edges)]
            found[-1] = f"[{edges[-2]}, {edges[-1]}]"
        elif self.kind == "integers":
            low, high = self.points
            found = list(range(int(low), int(high) + 1))
        else:
            found = list(self.points)
        if self.column_type == "VARCHAR" and self.kind != "bins":
            found = [as_text(label) for label in found if label is not None]
        return found + [self.other_label] * self.other + [None] * self.nulls

    def bounds(self) -> list[tuple[Scalar | None, Scalar | None]]:
        """(low, high) of each cell that is shown; (None, None) where a cell has none."""
        found: list[tuple[Scalar | None, Scalar | None]] = [(None, None)] * self.shown
        if self.kind == "bins":
            found[: self.base] = list(itertools.pairwise(self.points))
        elif self.kind == "integers":
            low, high = self.points
            found[: self.base] = [(value, value) for value in range(int(low), int(high) + 1)]
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
            **({} if self.decimals is None else {"decimals": self.decimals}),
            **({"line": True} if self.line else {}),
            **({} if self.at_least is None else {"at_least": self.at_least}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Attribute":
        """The inverse of ``to_json``: what was checked when it was declared is not checked again."""
        found = object.__new__(cls)
        undeclared = {"decimals": None, "rest": False, "line": False, "at_least": None}
        for name, value in {**undeclared, **data, "points": tuple(data["points"])}.items():
            object.__setattr__(found, name, value)
        return found

    @property
    def base(self) -> int:
        """Number of declared cells, without 'other' and NULL."""
        if self.kind == "integers":
            low, high = self.points
            return int(high) - int(low) + 1
        return len(self.points) - (self.kind == "bins")

    def _fail(self, what: str, remedy: str) -> None:
        raise DPError(f"attribute '{self.name}' {what}. {remedy}.")


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
    decimals: int | None = None,
    at_least: str | None = None,
) -> Attribute:
    """The attribute that a declaration describes: exactly one of values, bins, or low and high (with a step).

    ENUM and BOOLEAN columns need none of them. Whole numbers with a step of 1 are cells of their own; any other
    step makes bins from low to high, the last one closed at high.

    Raises:
        DPError: no domain or more than one, or one that does not fit the column's type.
    """
    dtype = types.column_type(type, f"attribute '{name}'")
    if name.lower().startswith("_dp_"):
        raise DPError(f"columns whose names start with _dp_, such as '{name}', are not read; rename it in a view.")

    said: dict[str, Any] = {"other": other, "nulls": nulls, "decimals": decimals, "at_least": at_least}

    def make(kind: Kind, points: Iterable[Scalar]) -> Attribute:
        return Attribute(name=name, type=type, kind=kind, points=tuple(points), **said)

    given = [
        word
        for word, found in (("values", values), ("bins", bins), ("low/high", low if high is None else high))
        if found is not None
    ]
    if len(given) > 1:
        raise DPError(f"attribute '{name}' was declared by {' and by '.join(given)}. Use one of them.")
    if values is not None:
        if not values:
            raise DPError(f"attribute '{name}' was declared without values. List at least one: \"values\" := [...].")
        return make("values", dtype.canonicals(values))
    if bins is not None:
        return _filled(make("bins", dtype.canonicals(bins)))
    if given:
        if not dtype.ordered:
            make("bins", [0, 1])  # refuses it, and says what helps
        if low is None or high is None:
            raise DPError(f"attribute '{name}' lacks {'low' if low is None else 'high'}; give low and high both.")
        return _filled(make(*dtype.stepped(f"attribute '{name}'", low, high, step)))
    if dtype.members is None:
        raise DPError(f"attribute '{name}' has type {type}, which does not list its values: give {dtype.declared_by}.")
    return make("values", dtype.members)


def _filled(found: Attribute) -> Attribute:
    """Refuse bins none of which any value of the column can be in.

    Raises:
        DPError: they are such.
    """
    ends = (found.points[0], found.points[-1])
    if found.kind == "bins" and operator.gt(*found.dtype.held(ends)[0]):
        raise DPError(
            f"attribute '{found.name}' has type {found.type}, which has no value from {found.points[0]} to "
            f"{found.points[-1]}. Use edges around values of the column."
        )
    return found


def canonical(data: Any) -> str:
    """JSON with sorted keys and no spaces: the same text for the same content."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


FINDS = (
    " Or list values in a condition, WHERE x IN ('a', 'b'); or reserve a discovery_delta in dp_protect, which finds values "
    "that many have."
)
"""What works without a declaration, where nothing finds values."""


@final
class UnknownAttribute(DPError):  # noqa: N818  what it says of a name
    """A column without a declared domain.

    Args:
        name: as it was written.
        declared: the names that have one.
        table: the table's name, and that name as an argument; None where it is not known.
        advice: a sentence on what would work without a declaration.
    """

    def __init__(
        self, name: str, declared: Iterable[str], table: tuple[str, str] | None = None, advice: str = ""
    ) -> None:
        self.name, self.declared, self.advice, self.table = name, list(declared), advice, table
        full, hint = as_sql(name), ""
        if table is not None:
            full = f"'{table[0]}'.{full}"
            hint = (
                f" Declare it: CALL dp_attribute({table[1]}, {quoted(name)}, ...) with {DOMAINS}; "
                f"CALL dp_attributes({table[1]}) declares what constraints list, and shows what each other column needs."
            )
        spelling = {one.lower(): one for one in self.declared}
        import difflib  # for import time: most names are declared

        close = difflib.get_close_matches(name.lower(), spelling, n=1)
        meant = f" Did you mean {as_sql(spelling[close[0]])}?" if close else ""
        super().__init__(
            f"{full} has no declared domain (declared so far: {few(self.declared) or 'none'}).{meant}{hint}{advice}"
        )


@dataclass(frozen=True, slots=True)
class Domain:
    """Named attributes and their sizes; a public fact, never derived from data.

    Args:
        sizes: attribute name -> number of values, in the order that cells and columns follow.

    Raises:
        DPError: a name that is not a string, or a size that is not a whole number of at least 1.
    """

    sizes: Mapping[str, int]

    def __post_init__(self) -> None:
        expect("Domain", "sizes", self.sizes, Mapping, "a size per attribute, e.g. Domain({'age': 10, 'sex': 2})")
        for name, size in self.sizes.items():
            if not isinstance(name, str) or not name:
                raise DPError(f"Domain: attribute names are non-empty strings, found {as_sql(name)}.")
            if isinstance(size, bool) or not hasattr(size, "__index__") or int(size) < 1:
                raise DPError(
                    f"Domain: attribute '{name}' has size {as_sql(size)}; a size is a whole number of at least 1."
                )
        object.__setattr__(self, "sizes", {name: int(size) for name, size in self.sizes.items()})

    def __hash__(self) -> int:
        return hash(tuple(self.sizes.items()))

    @property
    def attributes(self) -> Clique:
        """All attribute names, in order."""
        return tuple(self.sizes)

    def clique(self, attributes: Iterable[str]) -> Clique:
        """The named attributes in the domain's order.

        Raises:
            DPError: an attribute that the domain lacks or that is named twice.
        """
        expect("Domain", "an attribute set", attributes, Iterable, "names, e.g. ('age', 'sex')")
        names = (attributes,) if isinstance(attributes, str) else tuple(attributes)
        for name in names:
            if not isinstance(name, str) or name not in self.sizes:
                raise DPError(f"unknown attribute {as_sql(name)}; the domain has: {few(self.attributes)}.")
            if names.count(name) > 1:
                raise DPError(f"attribute '{name}' is named twice in {as_sql(names)}; name it once.")
        chosen = set(names)
        return tuple(name for name in self.sizes if name in chosen) if len(names) > 1 else names

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """Sizes of the clique's attributes: the shape of its marginal."""
        return tuple(self.sizes[name] for name in clique)

    def cells(self, clique: Clique) -> int:
        """Number of cells of the clique's marginal; 1 for the total."""
        return math.prod(self.sizes[name] for name in clique)
