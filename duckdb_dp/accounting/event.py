"""Privacy events: the cost of a mechanism, which does not depend on the data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, final

from duckdb_dp.accounting.base import GDP, ZCDP, Accounting
from duckdb_dp.errors import DPError


class Event(Protocol):
    """What the ledger needs to know of a mechanism's data-independent privacy cost."""

    @property
    def mu(self) -> float | None:
        """The Gaussian DP parameter, where it has one."""

    @property
    def rho(self) -> float | None:
        """The zCDP parameter, where it has one."""

    @property
    def delta(self) -> float:
        """The chance that a threshold reveals what it should hide, summed apart from the cost; 0 without a threshold."""

    def cost(self, accounting: Accounting) -> float:
        """The cost in the unit that `accounting` adds up."""

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
    delta: ClassVar[float] = 0.0

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

    def cost(self, accounting: Accounting) -> float:
        """The cost in the unit that `accounting` adds up; none where only pure DP will do."""
        return accounting.gaussian_cost(self.mu * self.mu)

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, `{"detail":{...},"kind":"gaussian","mu":...}`."""
        return _json(kind="gaussian", mu=self.mu, detail=dict(self.detail))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveEvent:
    """Steps that choose one another, as one filter: selections and Gaussian measurements whose costs add up to `total`.

    Args:
        total: what all steps together may cost, in the unit of `accounting`.
        accounting: the one that the steps' costs were taken in, not the pure one. Any other cannot bound their sum.
        detail: what a reader of the ledger may want to know, as (name, value) pairs.

    Source: [RRUV16]; [ST22] and [FZ21] for the filters.

    Privacy: states a bound; spends nothing.
    """

    total: float
    accounting: Accounting
    detail: tuple[tuple[str, str | int | float], ...] = ()
    delta: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", float(self.total))
        if not 0 < self.total < math.inf or self.accounting.pure:
            raise DPError(f"AdaptiveEvent: {self.total} under '{self.accounting}' is no budget: 1 under 'zcdp' works.")

    @property
    def mu(self) -> float | None:
        """The Gaussian DP parameter, where the accounting implies one: zCDP implies none."""
        return self.accounting.mu(self.total)

    @property
    def rho(self) -> float:
        """The zCDP parameter: mu-GDP implies mu^2 / 2."""
        return self.accounting.rho(self.total)

    def cost(self, accounting: Accounting) -> float:
        """The cost in its own accounting."""
        if accounting is not self.accounting:
            raise DPError(f"steps counted under '{self.accounting}' have no cost under '{accounting}'.")
        return self.total

    def to_json(self) -> str:
        """Canonical JSON."""
        return _json(kind="adaptive", total=self.total, accounting=self.accounting.name, detail=dict(self.detail))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceEvent:
    """Laplace noise of scale L1 sensitivity / epsilon on any number of answers.

    Ledgers of earlier versions have {"kind":"pure"} for it, charged as any pure epsilon-DP step.
    Source: [DMNS06]; `docs/privacy.md` for mu and rho.

    Privacy: states a bound; spends nothing.
    """

    epsilon: float
    detail: tuple[tuple[str, str | int | float], ...] = ()
    delta: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", float(self.epsilon))
        if not 0 < self.epsilon < math.inf:
            raise DPError(f"LaplaceEvent: epsilon {self.epsilon} is not positive and finite: 1 works.")

    @property
    def mu(self) -> float:
        """The Gaussian DP parameter -2 Phi^-1(e^(-epsilon/2) / 2)."""
        return math.sqrt(GDP.laplace_cost(self.epsilon))

    @property
    def rho(self) -> float:
        """The zCDP parameter epsilon + e^-epsilon - 1."""
        return ZCDP.laplace_cost(self.epsilon)

    def cost(self, accounting: Accounting) -> float:
        """The cost in the unit that `accounting` adds up."""
        return accounting.laplace_cost(self.epsilon)

    def to_json(self) -> str:
        """Canonical JSON."""
        return _json(kind="laplace", epsilon=self.epsilon, detail=dict(self.detail))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdEvent:
    """Gaussian noise on counts of unknown values, of which those above a threshold are released: mu-GDP but for delta.

    Args:
        mu: the Gaussian DP parameter of the counts.
        delta: the chance, at most, that a value is released that one unit alone holds.

    Source: `docs/privacy.md`, "Unknown values".

    Privacy: states a bound; spends nothing.
    """

    mu: float
    delta: float

    def __post_init__(self) -> None:
        if not (0 < self.mu < math.inf and 0 < self.delta < 1):
            raise DPError(f"ThresholdEvent: mu {self.mu} and delta {self.delta}: 1 and 1e-10 work.")

    @property
    def rho(self) -> float:
        """The zCDP parameter mu^2 / 2."""
        return self.mu * self.mu / 2

    def cost(self, accounting: Accounting) -> float:
        """That of the noise, in the unit that `accounting` adds up; the ledger adds up delta apart from it."""
        return accounting.gaussian_cost(self.mu * self.mu)

    def to_json(self) -> str:
        """Canonical JSON."""
        return _json(kind="threshold", mu=self.mu, delta=self.delta)


def _json(**fields: object) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
