"""What the ledger returns: protected datasets and their releases, as public records."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from duckdb_dp.accounting.base import Accounting, find_accounting
from duckdb_dp.accounting.convert import shown
from duckdb_dp.errors import quoted_name

TOLERANCE = 1e-9
"""Float sums of costs that make up a budget exactly may end a little beside it. To allow for that never overspends:
a charge states its request's full cost c, while the noise is calibrated for a cost of c (1 - 2e-9)."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What makes a table one of several of a dataset: a row of the ledger's table `members`.

    `dataset` is the name of the dataset, and `unit` the columns that name its unit; `reference` is
    JSON of the foreign key that leads towards the unit, None where the
    table's own columns name it; `view` is the SELECT of a named relation, None of a table.
    """

    id: int
    dataset: str
    unit: str | None
    reference: str | None = None
    view: str | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A protected table, as declared: a row of the ledger's table `datasets`, as seen from one of its tables.

    The tables of one dataset have its `id` and share its budget. Of a dataset of several, `catalog`, `schema`, `name`, `unit` and
    `max_rows` are those of one `member`.

    `budget` is in the unit that `accounting` adds up; of `epsilon`, `rho` and `mu` one was typed;
    `delta` goes with epsilon, or is the one at which epsilons are shown. `unit` may name several columns and two units:
    see `units`. `discovery_delta` is the part of `delta` that thresholds may take: its own sum, None without any.
    With `auto_rows` each request chooses privately how much of a unit counts; what does not know how keeps `max_rows`, 1.
    With a `rule` its closed periods have that budget each, and it has none: see `periods`.
    """

    id: int
    time: str
    catalog: str
    schema: str
    name: str
    unit: str | None
    max_rows: int
    neighbours: str
    accounting: Accounting
    budget: float
    epsilon: float | None
    delta: float | None
    rho: float | None
    mu: float | None
    version: str
    discovery_delta: float | None = None
    auto_rows: bool = False
    member: Membership | None = None
    rule: str | None = None

    @property
    def owner(self) -> str:
        """Whose budget it is, in words: its own, or that of the dataset with all its tables."""
        shared = self.member is not None and self.member.dataset != self.name
        return f"'{self.name}', of the dataset '{self.member.dataset}'" if shared and self.member else f"'{self.name}'"

    @property
    def argument(self) -> str:
        """Its name as an argument in a statement that can be pasted where its catalog is in use."""
        plain = self.schema == "main" or self.schema.startswith("(")  # attached tables have no schema of their own
        return quoted_name(*([] if plain else [self.schema]), self.name)

    @property
    def leading(self) -> tuple[str, ...]:
        """Its columns that name the unit of a row, or that lead to it."""
        if self.member is not None and self.member.reference is not None:
            return tuple(json.loads(self.member.reference)["columns"])
        return tuple(column for columns in units(self.unit) for column in columns)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Dataset:
        """The dataset of a row of the ledger's table, which names its accounting."""
        return cls(**{**row, "accounting": find_accounting(row["accounting"]), "auto_rows": bool(row["auto_rows"])})

    @property
    def cost_delta(self) -> float | None:
        """The delta at which costs become epsilon: what `discovery_delta` leaves of `delta`; None when it has none."""
        return without_discovery(self.delta, self.discovery_delta)

    def epsilon_of(self, spent: float) -> float | None:
        """`spent` as epsilon at that delta; None when it has none."""
        return None if self.cost_delta is None else shown(self.accounting.epsilon(spent, self.cost_delta))

    def discovery_left(self, spent: float) -> float:
        """What remains of `discovery_delta` after `spent`; a remainder of rounding errors is 0."""
        total = self.discovery_delta or 0.0
        return total - spent if total - spent > TOLERANCE * total else 0.0

    def left(self, spent: float) -> float:
        """What remains of the budget after `spent`, in its unit; a remainder of rounding errors is 0."""
        rest = self.budget - spent
        return rest if rest > TOLERANCE * self.budget else 0.0

    def __str__(self) -> str:
        typed = ((name, getattr(self, name)) for name in ("epsilon", "delta", "rho", "mu", "discovery_delta"))
        budget = ", ".join(f"{name} {value:.12g}" for name, value in typed if value is not None)
        return f"'{self.name}' ({self.neighbours}; {budget}; accounting '{self.accounting}')"


def without_discovery(delta: float | None, discovery_delta: float | None) -> float | None:
    """What is left of a delta for the conversion of costs, rounded down."""
    if delta is None or discovery_delta is None:
        return delta
    return math.nextafter(delta - discovery_delta, 0.0)


def plain_unit(columns: Sequence[str]) -> str:
    """The text of a unit that these columns name, as ``units`` reads it."""
    return columns[0] if len(columns) == 1 and not columns[0].startswith("[[") else json.dumps([list(columns)])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A charge and what came of it. `released_at` is when its noise was stored, None until then; `choices` are what `charge` chose."""

    id: int
    dataset: int
    function: str
    request: str
    request_hash: str
    mechanism: str
    cost: float
    mu: float | None
    rho: float | None
    epsilon: float | None
    delta: float | None
    private: bool
    charged_at: str
    released_at: str | None
    choices: tuple[int, ...] = ()

    @property
    def state(self) -> str:
        """'charged' or 'stored'."""
        return "charged" if self.released_at is None else "stored"


def units(unit: str | None) -> tuple[tuple[str, ...], ...]:
    """The column sets that each name a protected unit: one for 'user_id', two for '[["user_id"],["movie_id"]]'."""
    if unit is None:
        return ()
    return tuple(map(tuple, json.loads(unit))) if unit.startswith("[[") else ((unit,),)
