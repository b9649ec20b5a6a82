"""How a budget is divided among residuals for the least sum of L1 errors, given how far each estimate may be from the truth."""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.plan.crp import waterfill
from duckdb_dp.reconstruct.stacks import shapes, stacks

LEAST = 1e-9
"""Distances, and precisions, below which nothing is told apart."""

CASES = 64
"""Distances that an estimate may have from the truth, of which each has a chance."""

WORTH = 0.1
"""A pair or triple that could be measured with less than this share of the precision that its estimate has is not measured:
theta of so little would be told from noise in no estimate. On ten tables whose pairs drown in noise a fifth gave the same error, and
more on tables of bits, of which many together still say something."""

STEPS, PRUNINGS = 10, 2
"""Of the fixed point of weights and precisions; and how often what is not worth measuring is left out and the rest planned anew."""


def effective(table: Array, least: float = 1.0) -> float:
    """n_eff = (sum sqrt m)^2 / sum m - 1: how many cells an L1 error spreads over, the size of the table where it is even.

    Where each cell errs in proportion to the root of its count, the L1 error is d sqrt(2/pi) (n_eff + 1) for a mean square
    error d^2 per effective cell. At least ``least``.
    """
    total = float(table.sum())
    return max(float(np.sqrt(table).sum()) ** 2 / total - 1, least) if total > 0 else least


def effective_all(tables: Mapping[Clique, Array]) -> dict[Clique, float]:
    """``effective`` of many tables."""
    found = dict.fromkeys(tables, 0.0)
    for stack in stacks(shapes(tables)):
        cells = stack.stacked(tables).reshape(len(stack.cliques), -1)
        totals, roots = cells.sum(axis=1), np.sqrt(cells).sum(axis=1)
        spread = np.divide(roots**2, totals, out=np.ones(len(cells)), where=totals > 0)
        found |= zip(stack.cliques, np.maximum(spread - 1, 1.0).tolist(), strict=True)
    return found


def uneven(cells: float, share: float) -> float:
    """How many of n_eff cells have errors, if the estimate is so far from the truth: all, or fewer where it is nearly all wrong.

    A distance of 2 t N says that some cells have t more of the rows in truth than in the estimate, which has at most 1 - t of them there.
    So sum (mu - M)^2 / M >= N t / (1 - t). Of errors that are even over n cells and add up to 2 t N it would be 2 pi t^2 N n_eff / n:
    so n is at most 2 pi t (1 - t) n_eff. At least 2 pi sqrt(n_eff) are left, as of two attributes that are equal.

    Args:
        cells: n_eff.
        share: the distance over the number of rows, 2 t.
    """
    t = share / 2
    return cells if t < 1 / 2 else min(cells, 2 * math.pi * max(t * (1 - t) * cells, math.sqrt(cells + 1)))


def prior_precision(distance: float, cells: float, erring: float) -> float:
    """1 / d^2 of the estimate itself, if it is so far from the truth in L1: d^2 = (pi/2) distance^2 / (n_eff n), n of the cells erring."""
    return 1 / (math.pi / 2 * max(distance, LEAST) ** 2 / (cells * erring))


def squared_distance(cells: float, variance: float) -> float:
    """The square of the L1 error d sqrt(2/pi) n_eff of a mean square error d^2 per effective cell."""
    return 2 / math.pi * cells**2 * variance


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """A residual that may be measured.

    Attributes:
        cells: n_eff of its table, or how many of these err.
        cost: of one unit of precision: prod (n_i - 1) / n_i.
        measured: the precision with which it has been measured; part of what is known.
        known: the precision of what is known of it, as it may be, shape (CASES,).
        chances: of each of these, shape (CASES,).
    """

    cells: float
    cost: float
    measured: float
    known: Array
    chances: Array = field(default_factory=lambda: np.full(CASES, 1 / CASES))


def certain(cells: float, cost: float, measured: float, known: float = 0.0) -> Residual:
    """Of which so much is known, or nothing but its measurements."""
    return Residual(cells=cells, cost=cost, measured=measured, known=np.full(CASES, max(measured, known, LEAST)))


def scored(cells: float, cost: float, measured: float, distances: Array, chances: Array, explained: float) -> Residual:
    """Whose estimate is at one of these distances from the truth, but for what errors of smaller marginals explain.

    Args:
        cells, cost, measured: as of ``Residual``.
        distances: positive, rising, shape (CASES,).
        chances: of each of these, shape (CASES,).
        explained: L1 errors of smaller marginals, the sum of their squares.
    """
    own = np.sqrt(np.maximum(distances**2 - explained, distances[0] ** 2))
    # The estimate is no worse than what was measured of it.
    known = np.maximum(2 / math.pi * (cells / own) ** 2, measured)
    return Residual(cells=cells, cost=cost, measured=measured, known=known, chances=chances)


def allocate(
    residuals: Mapping[Clique, Residual],
    marginals: Mapping[Clique, float],
    left: float,
    now: float,
    later: Collection[Clique] = (),
) -> dict[Clique, float]:
    """The precisions to add in this round, in proportion: what all that is left would best buy, as far as it is bought now.

    The plan for all that is left minimises ``expected_error``. Of that the total and singles, which all pairs need, are measured
    now, and with what this round has beyond them pairs and triples, all in proportion. A pair or triple that even all that is left
    would measure too little (``WORTH``) is left out.

    Args:
        residuals: what may be measured; singles and the total among them.
        marginals: what is asked -> weight.
        left: 2 rho / k^2 of this round and all after it, for units of k rows.
        now: that of this round, at most ``left``.
        later: what is planned for and not measured now; its part of ``now`` is not spent.

    Privacy: costs nothing; depends on noisy values only.
    """
    if not residuals:
        return {}
    table = _Table.of(residuals, marginals)
    large = np.array([len(clique) > 1 for clique in residuals])
    needed = WORTH * (table.chances / np.sqrt(table.known)).sum(axis=1) ** -2 - table.measured
    kept = np.ones(len(residuals), dtype=bool)
    added = table.optimum(left, kept)
    for _ in range(PRUNINGS):
        poor = kept & large & (added < needed)
        if not poor.any():
            break
        kept &= ~poor
        added = table.optimum(left, kept)
    small, rest = (float(table.costs[part] @ added[part]) for part in (~large, large))
    share = max(now - small, 0.0) / rest if rest > 0 else 0.0
    added = np.where(large, added * min(share, 1.0), added)
    return {clique: float(x) for clique, x in zip(residuals, added, strict=True) if x > 0 and clique not in later}


def expected_error(
    residuals: Mapping[Clique, Residual], marginals: Mapping[Clique, float], added: Mapping[Clique, float]
) -> float:
    """sum over asked marginals of w sqrt(sum over their residuals of e^2), e = n_eff E 1 / sqrt(D + known), with D added to each.

    Errors of residuals are independent, so that their squares add up.
    """
    table = _Table.of(residuals, marginals)
    errors = table.errors(np.array([added.get(clique, 0.0) for clique in residuals]))
    return float(table.importance @ table.together(errors))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Residuals as arrays, shape (r,) or (r, CASES), and which marginals have them: pairs of their numbers."""

    cells: Array
    costs: Array
    measured: Array
    known: Array
    chances: Array
    importance: Array
    inside: NDArray[np.int64]
    part: NDArray[np.int64]

    @classmethod
    def of(cls, residuals: Mapping[Clique, Residual], marginals: Mapping[Clique, float]) -> "_Table":
        every = list(residuals.values())
        inside, part = _incidence(list(residuals), list(marginals))
        return cls(
            cells=np.array([one.cells for one in every]),
            costs=np.array([one.cost for one in every]),
            measured=np.array([one.measured for one in every]),
            known=np.stack([one.known for one in every]),
            chances=np.stack([one.chances for one in every]),
            importance=np.array(list(marginals.values())),
            inside=inside,
            part=part,
        )

    def errors(self, added: Array) -> Array:
        """e of each residual, shape (r,)."""
        means: Array = (self.chances / np.sqrt(self.known + added[:, None])).sum(axis=1)
        return self.cells * means

    def together(self, errors: Array) -> Array:
        """The root of the sum of squares in each marginal, shape (marginals,)."""
        return np.asarray(np.sqrt(np.bincount(self.inside, errors[self.part] ** 2, minlength=len(self.importance))))

    def optimum(self, budget: float, kept: NDArray[np.bool_]) -> Array:
        """The D >= 0 of least expected error at cost sum c D = budget, nearly; shape (r,).

        With w = e sum over its marginals of their weights / E the condition is w n_eff E (D + known)^(-3/2) = level c where D > 0,
        and (D + K)^(-3/2) for one K instead of the expectation: ``waterfill`` has the exact answer for fixed w and K, which
        depend on D: a fixed point.
        """
        added = np.zeros(len(self.cells))
        for step in range(STEPS):
            roots = 1 / np.sqrt(self.known + added[:, None])
            means = (self.chances * roots).sum(axis=1)
            slopes = (self.chances * roots * roots * roots).sum(axis=1)
            one = np.maximum(slopes ** (-2 / 3) - added, 0.0)
            errors = self.cells * means
            each = self.importance / np.maximum(self.together(errors), LEAST)
            weights = errors * np.bincount(self.part, each[self.inside], minlength=len(errors))
            steep = np.where(kept, (weights * self.cells / self.costs) ** (2 / 3), 0.0)
            found = waterfill(self.costs * steep**2, self.costs, one, budget)
            added = (added + found) / 2 if step else found
        return added * (budget / float(self.costs @ added))


def _incidence(cliques: Sequence[Clique], marginals: Sequence[Clique]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(number of a marginal, number of a residual inside it), for all there are."""
    place = {clique: number for number, clique in enumerate(cliques)}
    most = max(map(len, cliques))
    found = [
        (number, place[tau])
        for number, clique in enumerate(marginals)
        for size in range(min(most, len(clique)) + 1)
        for tau in itertools.combinations(clique, size)
        if tau in place
    ]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
