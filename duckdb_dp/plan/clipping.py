"""How much of one owner counts: a bound on the norm of its contributions, or on its rows, chosen privately or declared."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.grouped_sums import PER_OCTAVE
from duckdb_dp.linop import Array, Integers

NONE, FORMER_NONE = 8, 4
"""Octaves below the smallest bound of numbers, and in releases that do not store how many there were.

With too few owners to tell a bound the weights draw the smallest candidates: then there is none, and no answer. An octave has a quarter of
the probability of the one below. So one such choice in 4^NONE is a bound that is far too small: of 4 octaves one in 256.
"""

OF_CHOICE = 0.3
"""Part of a sum's cost that chooses its bound."""

ROWS = 20
"""An owner has at most 2^ROWS rows, where a number of rows is chosen; further ones are left out."""

SCORE_ERROR = 2.0**-10
"""Bound on the rounding of a score: of a number of owners below 2^40, and of a public weight."""

BEYOND = 5.0
"""Half-lives, in e-folds of the probability, between a bound that as many owners exceed as shall be cut and one that none does.

Measured on TPC-H's contributions (benchmarks/accuracy/r2t.py): at 4 a bound far too large comes now and then and ruins the mean,
at 8 the answers lose up to a fifth."""


LEAST = 2.0**-30
"""The smallest epsilon of a selection: with a smaller one, which tells nothing, scores would be too large for doubles to tell apart."""

STEEP = 8
"""The second selection asks where this many times as many owners are beyond, with an epsilon this many times smaller: so both err
alike, and the second costs little."""

SLOWEST = 1.25
"""The slowest fall of the number of owners that is believed: a slower one is a fluke more often than a tail."""

OVER = 0.5
"""The owners beyond a bound, as a multiple of how many are where the squared error is least. It hardly changes the error at 0.5, and
more intervals hold what is not left out: 61 % of benchmarks/accuracy/contributions.py, where the first selection alone has 38 %."""

CUT = 0.5
"""By how much of the rows that are left out a quantile's rank moves at most: where all of them are on one side of it."""

STEADY = 2.0
"""alpha - 1 of the number of rows of owners, where it is not known."""

PART = 8
"""Of how many owners one is beyond a bound on rows at most, or as few as can be told from none. With a quarter beyond, and values that grow
with an owner's number of rows as a power of 0.3, half of the intervals of medians hold that of all rows; with an eighth nine in ten do."""


@final
@dataclass(frozen=True, kw_only=True)
class Clip:
    """The candidates for one bound, and what its choice may cost.

    A bound tau_j = 2^(lowest + j / 4) is right if few owners are beyond it and more than few beyond the next smaller one. With a_j
    owners beyond tau_j and a wanted number T of them, candidate j is drawn by the exponential mechanism with the score

        s_j = -max(a_j - T, T - a_(j-1), 0),   T = 2 BEYOND / epsilon,

    which one owner moves by at most 1, as it moves each a_j by at most 1. It is weighted by tau_j^-2, a public factor: so a
    bound that is far too large, which would ruin the mean of all answers, is as much less likely.

    T owners beyond are more than suit the noise, as fewer cannot be told from none. So a second selection finds the candidate
    tau' <= tau beyond which STEEP T owners are, and the bound goes on from there as their number falls: a(x) ~ x^-alpha with
    alpha = log STEEP / log(tau / tau'). With B = a tau / (alpha - 1) left out beyond tau, and noise of sd s tau, the squared error
    is least where a = s sqrt(alpha - 1); where ``OVER`` times that is less than T, the bound is (T / a)^(1 / alpha) times as
    large, and tau / tau' times at most.

    A quantile stands the loss of rows better than a sum, and its noise, s rows of one group for each row of an owner, grows with the
    bound. Its squared error is that of the rank, in rows: (s tau)^2 + (CUT B)^2, least where a = s sqrt(alpha - 1) / CUT in each
    group, with alpha - 1 = ``STEADY``. So T is that of all groups together, but at most a part of the number n of owners and at least
    the one above: T = max(2 BEYOND / epsilon, min(groups s sqrt(STEADY) / CUT, n / PART)). One owner more raises a_j by 0 or 1, and T
    by 0 to 1 / PART: so it still moves s_j by at most 1.

    Where a sum is divided by another, as in an average, both have one weight w of each owner: the least of min(1, tau / n) over its norms
    n and their bounds tau. So no value is left out above the line that is counted below it. An owner's part w d of a sum has a norm up
    to w n <= tau, as before.

    Attributes:
        sums: the numbers of the sums that are bounded together; the name is that of the first one.
        lowest: the octave of the smallest candidate.
        size: how many there are.
        epsilon: of the exponential mechanism; 0 where nothing is chosen.
        steep: of the second one; 0 where there is none.
        noise: standard deviation of the sum of all groups, as a multiple of the bound, were the groups' noise added up.
        declared: the bound where it was declared.
        numbers: whether the smallest candidates, of ``NONE`` octaves, stand for none.
        rows: whether it is a number of rows, rounded down, and not a norm.
        lost: how many owners beyond suit the noise of quantiles; 0 where no quantile is measured.
        together: the names of the other bounds that weigh an owner here too.

    Privacy: choosing spends what a selection of epsilon and one of steep cost.
    """

    sums: tuple[int, ...]
    lowest: int
    size: int
    epsilon: float
    steep: float = 0.0
    noise: float = 0.0
    declared: float | None = None
    numbers: bool = False
    rows: bool = False
    lost: float = 0.0
    together: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the choice is called where it is stored."""
        return f"clip {self.sums[0]}"

    @property
    def chosen(self) -> bool:
        """Whether a part of the budget chooses it."""
        return self.declared is None and self.size > 1

    @property
    def candidates(self) -> Array:
        """All bounds, increasing."""
        if self.declared is not None:
            return np.array([self.declared])
        return np.exp2(self.lowest + np.arange(self.size) / PER_OCTAVE)

    def bound(self, choice: int, lowest: int | None = None, none: int = NONE) -> float:
        """The bound of that number, among candidates from 2^lowest if that was another one; NaN where it stands for none.

        Args:
            choice: the number.
            lowest, none: the octave of the smallest candidate, and how many octaves stand for none, where it was drawn.
        """
        if self.declared is not None:
            return self.declared
        if self.numbers and self.chosen and choice < none * PER_OCTAVE:
            return math.nan
        found = float(np.exp2((self.lowest if lowest is None else lowest) + choice / PER_OCTAVE))
        return float(math.floor(found)) if self.rows else found

    def rows_of(self, choice: int) -> float:
        """How many rows of an owner count: 1 for a norm, as its sums are in steps of that."""
        return self.bound(choice) if self.rows else 1.0

    def scores(self, owners: Integers) -> Array:
        """The scores, with their public weights.

        Args:
            owners: how many have their norm, or their rows, in each cell: up to candidate j and beyond the one before; the last
                cell is beyond all of them.

        Privacy: private.
        """
        wanted = max(2 * BEYOND / self.epsilon, min(self.lost, float(owners.sum()) / PART))
        fit = _fit(owners, wanted)
        return np.asarray(fit - 4 / self.epsilon * np.log(self.candidates / self.candidates[0]), dtype=np.float64)

    def goes_on(self, choice: int) -> bool:
        """Whether a second selection may move the first one's bound."""
        return self.steep >= LEAST and choice > self._least

    def steep_scores(self, owners: Integers, choice: int) -> Array:
        """Those of the second selection, among the candidates up to the first one's choice, the larger ones a little favoured.

        Privacy: private.
        """
        fit = _fit(owners, 2 * BEYOND / self.steep)[: choice + 1]
        near = np.log(self.candidates[: choice + 1] / self.candidates[0]) / self.steep
        return np.asarray(fit + near, dtype=np.float64)

    def moved(self, choice: int, steep: int) -> int:
        """The candidate where the number of owners beyond suits the noise, if it goes on falling as between two candidates.

        Privacy: post-processing.
        """
        if not self._least < steep < choice:
            return choice
        ratio = float(self.candidates[choice] / self.candidates[steep])
        alpha, wanted = math.log(STEEP) / math.log(ratio), 2 * BEYOND / self.epsilon
        suits = OVER * self.noise * math.sqrt(max(alpha - 1, 0.0))
        if alpha < SLOWEST or suits >= wanted:
            return choice
        octaves = min(math.log2(wanted / suits) / alpha, math.log2(ratio))
        # From the candidate before, as the number of owners reaches T somewhere between the two.
        return min(max(choice, math.floor(choice - 1 + octaves * PER_OCTAVE + 1e-9)), self.size - 1)

    @property
    def _least(self) -> int:
        """The last candidate that tells nothing of how the number of owners falls."""
        return NONE * PER_OCTAVE if self.numbers else 0


def by_norm(clips: Iterable[Clip]) -> list[Clip]:
    """The bounds on norms, in the order in which a statement has their choices, and 0 of what is not chosen.

    How many groups are found may decide whether one is: so those that are not have places too.
    """
    return [clip for clip in clips if not clip.rows]


def lost(groups: int, noise: float) -> float:
    """How many owners beyond a bound on rows suit the noise of quantiles, of so many rows for each row of an owner; see ``Clip``."""
    return groups * noise * math.sqrt(STEADY) / CUT


def _fit(owners: Integers, wanted: float) -> Array:
    """How well each candidate fits a wanted number of owners beyond it: 0 at best; one owner moves it by 1 at most.

    Privacy: private.
    """
    beyond = owners[::-1].cumsum()[::-1][1:].astype(np.float64)
    before = np.concatenate([[np.inf], beyond[:-1]])
    return np.asarray(-np.maximum(np.maximum(beyond - wanted, wanted - before), 0.0), dtype=np.float64)
