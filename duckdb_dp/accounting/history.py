"""What a dataset's charges come to under another accounting than its own, by the ledger's events alone."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from duckdb_dp.accounting.base import ACCOUNTINGS, Accounting, find_accounting
from duckdb_dp.accounting.convert import shown

DELTA = 1e-9
"""At which epsilons are compared where a dataset has no delta."""

SMALL = 1e-3
"""By how much smaller selections are taken for than one that costs as much as all of them: the limit, to 1e-6 of it."""


STEPS: Mapping[str, Callable[[Accounting, Mapping[str, Any]], float]] = {
    "gaussian": lambda accounting, event: accounting.gaussian_cost(event["mu"] ** 2),
    "threshold": lambda accounting, event: accounting.gaussian_cost(event["mu"] ** 2),
    "laplace": lambda accounting, event: accounting.laplace_cost(event["epsilon"]),
    "pure": lambda accounting, event: accounting.pure_cost(event["epsilon"]),
}
"""What an event of one step costs, by its kind; 'pure' is that of Laplace noise in earlier versions."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One charge, as the ledger has it.

    Attributes:
        function, mechanism: what was asked, and what answered it.
        event: canonical JSON of the event.
        cost: what was charged, in the unit of the dataset's accounting.
    """

    function: str
    mechanism: str
    event: str
    cost: float


Share = Callable[[str, str], float]
"""(function, mechanism) -> the share of an adaptive mechanism's cost that its selections are planned to take."""


def compared(charges: Sequence[Charge], own: Accounting, delta: float | None, selecting: Share) -> str | None:
    """A line: the epsilon of all charges under each accounting that they have a cost under, and which is least.

    Under the dataset's own accounting it is what was charged; under another, what the same noise and the same choices would
    have cost. None without charges, or where the dataset is under pure DP.

    Privacy: post-processing of public events; spends nothing.
    """
    if own.pure or not charges:
        return None
    delta = delta or DELTA
    sums = {
        other: math.fsum(charge.cost if other is own else cost_under(other, charge, selecting) for charge in charges)
        for other in ACCOUNTINGS.values()
        if not other.pure
    }
    found = {other: shown(other.epsilon(total, delta)) for other, total in sums.items()}
    best = min(found, key=lambda other: (found[other], other is not own))
    largest = max(found.values())
    figures = ", ".join(f"{epsilon:.4g} under '{other}'" for other, epsilon in found.items())
    many = f"{len(charges)} charges have" if len(charges) > 1 else "1 charge has"
    # Small charges are epsilon 0 at a large delta, under each.
    less = (
        f"'{best}' is the tighter by {100 * (1 - found[best] / largest):.2g} %"
        if found[best] < largest
        else "no difference"
    )
    return f"so far {many} come to epsilon {figures} at delta {delta:g}: {less}"


def cost_under(other: Accounting, charge: Charge, selecting: Share) -> float:
    """What the same noise and the same choices cost under another accounting, in its unit."""
    event: dict[str, Any] = json.loads(charge.event)
    if event["kind"] in STEPS:
        return STEPS[event["kind"]](other, event)
    own = find_accounting(event["accounting"])
    chosen = event["total"] * selecting(charge.function, charge.mechanism)
    beta = own.beta(event["total"] - chosen)
    assert beta is not None, "adaptive mechanisms have no cost under pure DP"
    return other.gaussian_cost(beta) + _selections(other, own, chosen)


def _selections(other: Accounting, own: Accounting, cost: float) -> float:
    """Selections that cost so much together: one of them, or many small ones, whichever costs more under the other."""
    if not cost:
        return 0.0
    whole = own.selection_epsilon(cost)
    return cost * max(other.selection_cost(e) / own.selection_cost(e) for e in (whole, SMALL * whole))
