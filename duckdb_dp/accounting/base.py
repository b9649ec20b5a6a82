"""The accountings: the cost of budgets and of each kind of step, and the epsilon that a sum of costs implies.

A dataset has one accounting for good. Each adds up the costs of steps that are chosen adaptively, so that a budget for the
sum is a valid filter. A new accounting is one class here and one entry in ``ACCOUNTINGS``.

Source: [RRUV16]; [ST22] and [FZ21] for the filters.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, final

from duckdb_dp.accounting import convert
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError, as_sql


class Accounting(ABC):
    """One way to add up privacy costs.

    A cost is in the accounting's own unit. Ledgers and requests store the ``name``; ``find_accounting`` reads it.

    Attributes:
        name: 'gdp', as users type it and ledgers store it.
        title: the kind of differential privacy, in words.
        unit: what adds up, such as 'mu^2'.
        symbol: the same in Greek letters.
        argument: the budget argument to which the noise's standard deviation is inversely proportional.
        pure: whether only steps with a pure epsilon have a cost, so that Gaussian noise has none.

    Privacy: states bounds; spends nothing.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str]
    symbol: ClassVar[str]
    argument: ClassVar[str] = "mu"
    pure: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name.upper()

    @abstractmethod
    def cost(self, budget: Budget) -> float:
        """What a budget takes from a dataset.

        Raises:
            DPError: it cannot be kept under this accounting, or has an epsilon without a delta.
        """

    @abstractmethod
    def typed(self, cost: float) -> dict[str, float]:
        """The argument of a call whose budget costs as much, such as {'mu': 0.5}: the reverse of ``cost``."""

    @abstractmethod
    def epsilon(self, cost: float, delta: float) -> float:
        """The epsilon at ``delta`` that a sum of costs implies, rounded up."""

    @abstractmethod
    def gaussian_cost(self, beta: float) -> float:
        """What Gaussian noise of privacy cost beta = max_i [B^T Sigma^-1 B]_ii costs, exactly: it is sqrt(beta)-GDP.

        Raises:
            DPError: Gaussian noise has no cost here.
        """

    @abstractmethod
    def beta(self, cost: float) -> float | None:
        """The privacy cost beta of Gaussian noise that costs ``cost``, the reverse of ``gaussian_cost``; None if pure."""

    @abstractmethod
    def pure_cost(self, epsilon: float) -> float:
        """What a pure epsilon-DP step costs, whatever it is; rounded up."""

    @abstractmethod
    def pure_epsilon(self, cost: float) -> float:
        """The largest epsilon of a pure step that costs at most ``cost``: the reverse of ``pure_cost``, rounded down."""

    def laplace_cost(self, epsilon: float) -> float:
        """What Laplace noise of scale L1 sensitivity / epsilon costs, in any number of answers; rounded up."""
        return self.pure_cost(epsilon)

    def laplace_epsilon(self, cost: float) -> float:
        """The largest epsilon of Laplace noise that costs at most ``cost``: the reverse, rounded down."""
        return self.pure_epsilon(cost)

    def selection_cost(self, epsilon: float) -> float:
        """What an exponential mechanism costs whose privacy loss has a range of epsilon; rounded up: as any pure step."""
        return self.pure_cost(epsilon)

    def selection_epsilon(self, cost: float) -> float:
        """The largest epsilon of such a selection that costs at most ``cost``: the reverse, rounded down."""
        return self.pure_epsilon(cost)

    @abstractmethod
    def mu(self, cost: float) -> float | None:
        """The Gaussian DP parameter that a sum of costs implies, whatever its steps are; None where it implies none."""

    @abstractmethod
    def rho(self, cost: float) -> float:
        """The zCDP parameter that a sum of costs implies, whatever its steps are."""

    def guess(self, cost: float) -> float:
        """A bound on the chance to tell two neighbouring tables apart that are as likely before: (1 + TV) / 2.

        TV is the total variation distance of what comes out.
        """
        return 1.0


class GaussianAccounting(Accounting):
    """An accounting of Gaussian noise: epsilon needs a delta above 0, and rho and mu stand for beta = mu^2 = 2 rho."""

    def cost(self, budget: Budget) -> float:
        if budget.delta == 0:
            raise DPError(
                f"{budget} is pure, and accounting '{self}' cannot promise delta 0: type delta := 1e-9, or protect "
                f"with accounting := '{PURE}'."
            )
        if budget.epsilon is None:
            return self.gaussian_cost(2 * budget.rho if budget.rho is not None else (budget.mu or 0.0) ** 2)
        if budget.delta is None:
            raise DPError(f"{budget} needs a delta here: type one, such as delta := 1e-9, or a budget as rho or mu.")
        return self.largest(budget.epsilon, budget.delta)

    @abstractmethod
    def largest(self, epsilon: float, delta: float) -> float:
        """The largest cost that implies (epsilon, delta)-DP, rounded down."""


@final
class _Gdp(GaussianAccounting):
    """Gaussian DP: mu^2 adds up, exactly for Gaussian noise.

    Source: [DRS19] Cor. 1 (epsilon, delta to mu) and Cor. 3 (sums); Prop. 3 with the worst case of [KOV15] for pure steps;
        [DDR20] for the range of selections; `docs/privacy.md` for what selections and Laplace noise cost.
    """

    name, title, unit, symbol = "gdp", "Gaussian DP", "mu^2", "μ²"

    def typed(self, cost: float) -> dict[str, float]:
        return {"mu": math.sqrt(cost)}

    def epsilon(self, cost: float, delta: float) -> float:
        return convert.gdp_epsilon(math.sqrt(cost), delta)

    def largest(self, epsilon: float, delta: float) -> float:
        return convert.gdp_mu(epsilon, delta) ** 2

    def gaussian_cost(self, beta: float) -> float:
        return beta

    def beta(self, cost: float) -> float:
        return cost

    def pure_cost(self, epsilon: float) -> float:
        return convert.gdp_of_pure(epsilon) ** 2

    def pure_epsilon(self, cost: float) -> float:
        return convert.pure_of_gdp(math.sqrt(cost))

    def laplace_cost(self, epsilon: float) -> float:
        return convert.gdp_of_laplace(epsilon) ** 2

    def laplace_epsilon(self, cost: float) -> float:
        return convert.laplace_of_gdp(math.sqrt(cost))

    def selection_cost(self, epsilon: float) -> float:
        """That of a pure step of epsilon / 2: of all pairs with a range of epsilon, log ratios of +- epsilon / 2 are worst."""
        return self.pure_cost(epsilon / 2)

    def selection_epsilon(self, cost: float) -> float:
        return 2 * self.pure_epsilon(cost)

    def mu(self, cost: float) -> float:
        return math.sqrt(cost)

    def rho(self, cost: float) -> float:
        return cost / 2

    def guess(self, cost: float) -> float:
        """Phi(mu / 2), exactly."""
        return math.erfc(-math.sqrt(cost / 8)) / 2


@final
class _Zcdp(GaussianAccounting):
    """Zero-concentrated DP: rho adds up; Gaussian noise that is mu-GDP is mu^2 / 2-zCDP and no less.

    Source: [BS16] Prop. 1.6 and Prop. 1.4 (pure steps); [CKS20] Cor. 13 (epsilon, delta); [CR21] Lemma 3.2 (selections);
        [HM26] (Laplace noise), proved in `docs/privacy.md`.
    """

    name, title, unit, symbol = "zcdp", "zero-concentrated DP", "rho", "ρ"

    def typed(self, cost: float) -> dict[str, float]:
        return {"rho": cost}

    def epsilon(self, cost: float, delta: float) -> float:
        return convert.zcdp_epsilon(cost, delta)

    def largest(self, epsilon: float, delta: float) -> float:
        return convert.zcdp_rho(epsilon, delta)

    def gaussian_cost(self, beta: float) -> float:
        return beta / 2

    def beta(self, cost: float) -> float:
        return 2 * cost

    def pure_cost(self, epsilon: float) -> float:
        return epsilon * epsilon / 2

    def pure_epsilon(self, cost: float) -> float:
        return convert.rounded_down(math.sqrt(2 * cost))

    def laplace_cost(self, epsilon: float) -> float:
        return convert.zcdp_of_laplace(epsilon)

    def laplace_epsilon(self, cost: float) -> float:
        return convert.laplace_of_zcdp(cost)

    def selection_cost(self, epsilon: float) -> float:
        return epsilon * epsilon / 8

    def selection_epsilon(self, cost: float) -> float:
        return convert.rounded_down(math.sqrt(8 * cost))

    def mu(self, cost: float) -> None:
        return None

    def rho(self, cost: float) -> float:
        return cost

    def guess(self, cost: float) -> float:
        """TV <= sqrt(rho / 2), Pinsker's bound."""
        return (1 + math.sqrt(cost / 2)) / 2


@final
class _Pure(Accounting):
    """Pure DP: epsilon adds up.

    Source: [DMNS06].
    """

    name, title, unit, symbol = "pure", "pure DP", "epsilon", "ε"
    argument, pure = "epsilon", True

    def cost(self, budget: Budget) -> float:
        if budget.epsilon is None or budget.delta:
            raise DPError(f"{budget} is no pure budget, and pure epsilons add up here: type epsilon := 1, delta := 0.")
        return budget.epsilon

    def typed(self, cost: float) -> dict[str, float]:
        return {"epsilon": cost}

    def epsilon(self, cost: float, delta: float) -> float:
        return cost

    def gaussian_cost(self, beta: float) -> float:
        raise DPError("Gaussian noise has no pure epsilon; use Laplace noise: mechanism := 'hdmm' or 'laplace'.")

    def beta(self, cost: float) -> None:
        return None

    def pure_cost(self, epsilon: float) -> float:
        return epsilon

    def pure_epsilon(self, cost: float) -> float:
        return cost

    def mu(self, cost: float) -> float:
        return math.sqrt(GDP.pure_cost(cost))

    def rho(self, cost: float) -> float:
        return ZCDP.pure_cost(cost)


GDP, ZCDP, PURE = _Gdp(), _Zcdp(), _Pure()

ACCOUNTINGS: dict[str, Accounting] = {accounting.name: accounting for accounting in (GDP, ZCDP, PURE)}
"""By name."""


def find_accounting(name: object) -> Accounting:
    """The accounting of a name that a user typed, or a ledger or a request stored.

    Raises:
        DPError: there is none.
    """
    if not isinstance(name, str) or name not in ACCOUNTINGS:
        known = ", ".join(f"'{one}' ({one.unit} adds up)" for one in ACCOUNTINGS.values())
        raise DPError(f"accounting {as_sql(name)} is not available: {known} are.")
    return ACCOUNTINGS[name]


def usual_accounting(budget: Budget) -> Accounting:
    """The accounting that suits a budget best: pure DP for delta 0, zCDP for rho, else Gaussian DP."""
    if budget.delta == 0:
        return PURE
    return GDP if budget.rho is None else ZCDP
