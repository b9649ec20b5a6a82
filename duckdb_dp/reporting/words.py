"""What a charge means, in plain words and in numbers that a reader can verify."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duckdb_dp.accounting.base import Accounting, find_accounting
from duckdb_dp.request import units

Row = Mapping[str, Any]

DELTA = 1e-9
"""Where to show epsilon when nobody chose a delta."""

MECHANISMS = {
    "gaussian": "Independent Gaussian noise on every marginal that was asked.",
    "laplace": "Independent Laplace noise on every marginal that was asked: pure differential privacy.",
    "residual": "ResidualPlanner: correlated Gaussian noise, the least total error that any unbiased linear Gaussian "
    "mechanism can have on marginals at this cost. Answers that share attributes agree with each other.",
    "residual_plus": "ResidualPlanner+: Gaussian noise on the residuals of marginals, with one strategy per attribute.",
    "querysmasher": "QuerySmasher: Gaussian noise on the best strategy for every residual, found by optimisation with "
    "a proved bound.",
    "wff": "Weighted Fourier Factorization: Gaussian noise on Fourier strategies, known in closed form.",
    "hdmm": "HDMM: Gaussian noise, or Laplace noise for a pure epsilon, on strategies found by optimisation for all "
    "questions together.",
    "aim": "AIM with GReM: an adaptive mechanism, which chooses privately what to measure next.",
    "neyman": "An adaptive mechanism, which divides its budget among pairs of attributes by noisy scores of them all.",
    "pairs": "An adaptive mechanism of an earlier version, which chose privately which pairs of attributes to measure.",
}
"""One sentence for each mechanism that answers queries."""

SYNTHESES = {
    "dp_synthesize": {
        "forest": "Noisy counts of all attributes and of pairs of them that were chosen privately; rows were drawn along a "
        "forest of pairs and moved until all of them fit.",
        "mst": "MST: noisy counts of all attributes and of the pairs of a spanning tree that was chosen privately; rows were "
        "drawn from the graphical model of Private-PGM.",
        "aim": "AIM: marginals that were chosen privately, round by round; rows were drawn from the graphical model of "
        "Private-PGM.",
    },
    "dp_links": {
        "auto": "Noisy counts of how attributes of linked rows go together; links were drawn that fit them.",
        "paper": "The published loop: what the links fit worst was chosen privately and measured, round by round.",
        "sliced": "The published loop on slices of the tables: what the links fit worst was chosen privately and measured.",
    },
    "dp_quality": {"distance": "Gaussian noise on the mean distance between the marginals of two tables."},
    "dp_running": {
        "toeplitz": "Gaussian noise on weighted sums over the steps of time, one for each step once it is over, from which the totals "
        "follow.",
    },
    "dp_discover": {
        "gaussian": "Gaussian noise on how many units hold each value; only values whose noisy number is above a threshold "
        "are shown.",
        "histogram": "Gaussian noise on how many rows there are in each of the cells 0, ±{1, 2, 5} × 10^k, or of years, over the whole "
        "range of the type; from the first to the last one that is clearly not empty.",
        "prefix": "As for bounds, with a fifth of the budget, and then Gaussian noise on how many rows there are up to each of many "
        "values between them.",
    },
}
"""Function -> one sentence for each of its methods: some have the name of another function's mechanism."""

SYNTHETIC = {
    "dp_synthesize": "Synthetic rows",
    "dp_links": "Links between the rows of two synthetic tables",
    "dp_quality": "How far a synthetic table is from the private one: 0 is equal, 2 is as far as can be",
    "dp_discover": "What a column holds that nobody has declared",
    "dp_running": "Running totals, one for each step of time",
}
"""What was asked of functions that answer no queries."""

PROCESSED = {
    "nonnegative": "No count is below 0, and every table sums to the noisy total.",
    "fitted": "No count is below 0, and larger tables lean on smaller ones as far as their own noise is large.",
    "pgm": "They are those of the graphical model that fits all noisy measurements best (Private-PGM).",
}
"""One sentence for each way of reading that is not unbiased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """How much a set of releases can tell about one unit.

    Attributes:
        what: which releases.
        cost: in the unit that adds up, as text.
        epsilon, delta: as (epsilon, delta)-DP; None without a delta.
        guess: largest chance of a right guess whether one unit is in the table, before which it was 1/2.
    """

    what: str
    cost: str
    epsilon: float | None
    delta: float | None
    guess: float


def guess(*, accounting: Accounting, cost: float, epsilon: float | None, delta: float | None) -> float:
    """Largest chance to tell two neighbouring tables apart, each of them as likely as the other before.

    (1 + TV) / 2 with TV the total variation distance: what the accounting says of it, and at most
    1 - 2 (1 - delta) / (1 + e^epsilon) for (epsilon, delta)-DP.

    Source: [DRS19] Sec. 2; [KOV15].

    Privacy: states a bound; spends nothing.
    """
    found = [1.0, accounting.guess(cost)]
    if epsilon is not None:
        # e^epsilon overflows above 709.
        odds = math.exp(-min(epsilon, 700.0))
        found.append(1 - (1 - (delta or 0.0)) * odds / (1 + odds))
    return min(found)


def protections(charge: Row, budget: Row) -> list[Protection]:
    """This release, all releases of the table so far, and all that its budget allows.

    Where no delta was declared, epsilon is told at ``DELTA``.
    """
    accounting, delta = find_accounting(budget["accounting"]), budget["delta"]
    lines = (
        ("This release", charge["cost"], charge["epsilon"], charge["delta"]),
        ("All releases of this table so far", budget["spent"], budget["epsilon_spent"], delta),
        ("All releases that its budget allows", budget["total"], budget["epsilon_total"], delta),
    )
    found = []
    for what, cost, epsilon, at in lines:
        if epsilon is None and cost > 0:
            epsilon, at = accounting.epsilon(cost, DELTA), DELTA
        bet = guess(accounting=accounting, cost=cost, epsilon=epsilon, delta=at)
        found.append(
            Protection(what=what, cost=f"{accounting.symbol} = {number(cost)}", epsilon=epsilon, delta=at, guess=bet)
        )
    return found


def mechanism(charge: Row) -> str:
    """One sentence on the mechanism of a charge; none for one that this version does not know."""
    return SYNTHESES.get(charge["function"], MECHANISMS).get(charge["mechanism"], "")


def protected(charge: Row, max_rows: int) -> tuple[str, str]:
    """(who is protected, what that means): a noun and a sentence."""
    table = charge["dataset"]
    if charge["unit"] is None:
        return "one row", (
            f"Every row of {table} is protected by itself: what is released would have come out almost the same if any "
            "one row had been left out, or added."
        )
    if " with all its rows of " in charge.get("neighbours", ""):
        who = charge["neighbours"].removeprefix("add or remove one ")
        unit, _, tables = who.partition(" with all its rows of ")
        return f"one {unit}", (
            f"Every {unit} is protected with all its rows of {tables}, which share one budget: what is released would have come out "
            "almost the same if any one of them had been left out with all these rows, or added."
        )
    if charge.get("neighbours", "").endswith(" with all its rows"):
        (one,) = (", ".join(columns) for columns in units(charge["unit"]))
        return f"one {one}", (
            f"Every {one} in {table} is protected with all its rows: what is released would have come out almost the same if any one "
            f"{one} had been left out, or added. What a {one} adds to an answer beyond a bound was cut off; the bound was declared, or "
            "chosen by a part of the budget."
        )
    rows = "its one row" if max_rows == 1 else f"all of its up to {max_rows:,} rows"
    found = [", ".join(columns) for columns in units(charge["unit"])]
    unit = " or ".join(found)
    bound = (
        f"Of a {unit} with more rows than {max_rows:,} the others were left out before anything was counted."
        if len(found) == 1
        else f"That none has more rows than {max_rows:,} was promised, and checked before anything was charged."
    )
    return (
        f"one {unit}",
        f"Every {unit} in {table} is protected with {rows}: what is released would have come out almost the same if any "
        f"one {unit} had been left out, or added. {bound}",
    )


def number(value: float | None) -> str:
    """Six significant digits, as a person writes them."""
    if value is None:
        return "–"
    return f"{value:.6g}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−", 1 if value < 0 else 0)


def count(value: float, half: float | None) -> str:
    """An answer with as many decimals as its error bar gives sense to."""
    if half is None or not math.isfinite(half) or half <= 0:
        places = 0 if abs(value) >= 1000 or value == round(value) else 2
    else:
        places = min(6, max(0, 1 - math.floor(math.log10(half))))
    found = f"{value:,.{places}f}"
    if float(found.replace(",", "")) == 0:
        found = found.removeprefix("-")
    return found.replace("-", "−")


def percent(value: float) -> str:
    """A probability that bounds something: rounded up, and never to certainty."""
    if value > 0.9999:
        return "over 99.99 %" if value < 1 else "100 %"
    steps = 10 if value < 0.99 else 100
    return f"{math.ceil(100 * value * steps - 1e-9) / steps:g} %"


def date(moment: object) -> str:
    """A time of the ledger to the minute, which is UTC."""
    return str(moment)[:16].replace("T", " ") + " UTC" if moment else "not yet"
