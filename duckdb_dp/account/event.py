"""Privacy events: what a mechanism costs, whatever the data are."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Protocol, final

from duckdb_dp.account.convert import check_accounting, cost_epsilon
from duckdb_dp.errors import DPError


class Event(Protocol):
    """What the ledger needs to know of a mechanism's data-independent privacy cost."""

    @property
    def mu(self) -> float:
        """The Gaussian DP parameter."""

    @property
    def rho(self) -> float:
        """The zCDP parameter."""

    def cost(self, accounting: str) -> float:
        """The cost in the unit that `accounting` adds up."""

    def epsilon(self, delta: float, accounting: str) -> float:
        """The epsilon at `delta` that the cost implies."""

    def to_json(self) -> str:
        """Canonical JSON: equal events, equal text."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvent:
    """A Gaussian matrix mechanism B x + N(0, Sigma), for neighbours that differ by one in one cell of x.

    mu^2 = max_i [B^T Sigma^-1 B]_ii, the privacy cost beta; rho = mu^2 / 2. Neighbours that differ by k rows multiply
    mu by k before it comes here. Mechanisms whose joint cost is below the sum of the parts are one event.
    Source: [QS26] Sec. 2; [DRS19] Thm. 1; [BS16] Prop. 1.6.

    Args:
        mu: the Gaussian DP parameter.
        detail: what a reader of the ledger may want to know, as (name, value) pairs.

    Privacy: states a bound; spends nothing.
    """

    mu: float
    detail: tuple[tuple[str, str | int | float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", float(self.mu))  # 1 and 1.0 are one event, also as text
        if not (0 < self.mu < math.inf and 0 < self.rho < math.inf):
            raise DPError(
                f"GaussianEvent: mu {self.mu} is not positive and finite: mu = sqrt(2 rho), such as 1, works."
            )

    @property
    def rho(self) -> float:
        """The zCDP parameter mu^2 / 2."""
        return self.mu * self.mu / 2

    def cost(self, accounting: str) -> float:
        """The cost in the unit that `accounting` adds up: mu^2 for 'gdp', rho for 'zcdp'."""
        check_accounting(accounting)
        return self.mu * self.mu if accounting == "gdp" else self.rho

    def epsilon(self, delta: float, accounting: str) -> float:
        """The epsilon at `delta` that the cost implies, exact under 'gdp' and by the tight conversion under 'zcdp'."""
        return cost_epsilon(self.cost(accounting), delta, accounting)

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, `{"detail":{...},"kind":"gaussian","mu":...}`."""
        fields = {"kind": "gaussian", "mu": self.mu, "detail": dict(self.detail)}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
