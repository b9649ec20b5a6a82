"""The default way to learn links: measure what the budget can pay for, small marginals first."""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import numpy as np

from duckdb_dp.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.linop.residual import Centring
from duckdb_dp.private import Candidate, Door
from duckdb_dp.progress import Track, silent
from duckdb_dp.relational.allocate import allocate, incidence
from duckdb_dp.relational.blocks import Blocks
from duckdb_dp.relational.evidence import Arm, arms, learn
from duckdb_dp.relational.fit import Datum, fit

if TYPE_CHECKING:
    from torch import Tensor

TOTAL, AGAIN, EXPLORE, PROBES, STEPS = 0.05, 0.08, 0.12, 0.1, (0.2, 0.25)
"""Shares of the budget: the total; again, where it is vague; all one-way residuals alike; probes; then steps that go to
residuals of up to 2, and up to 3 attributes. The rest is the last step's, so that it knows of all that was learnt."""

VAGUE = 0.01**2
"""Relative variance above which the total is measured again: all residuals are seen against it."""

ROUGH, FINE = 3e-5, 1e-6
"""Tolerances of fits, in KL per link: for learning dispersions, and of the result."""

PROBED = 3  # cross-table pairs that are chosen by the exponential mechanism and measured first
CHOOSING = 0.4  # share of a probe that pays for the choice


@final
@dataclass(slots=True, kw_only=True)
class Learner:
    """The state of the recipe: residuals with what is known of them, and the current fit."""

    blocks: Blocks
    door: Door
    each: bool
    total: float
    doubt: float
    arms: dict[Clique, Arm]
    within: "np.ndarray"
    base: "Tensor"
    spent: dict[str, float] = field(default_factory=dict)

    def group(self, order: int, cross: bool) -> list[Arm]:
        """Residuals of one order, across the tables or within one."""
        return [arm for arm in self.arms.values() if len(arm.clique) == order and self._crosses(arm) == cross]

    def _crosses(self, arm: Arm) -> bool:
        return all(self.blocks.split(arm.clique))

    def spend(self, step: str, rho: float, allowed: Collection[Clique]) -> None:
        """Water-fill rho over the allowed residuals and measure them."""
        if not allowed:
            return
        shares = allocate(self.arms, self.within, allowed=allowed, rho=rho, total=self.total, degree=self.door.rows)
        for clique, share in shares.items():
            self.arms[clique].measure(self.door, share)
        self.spent[step] = self.spent.get(step, 0.0) + rho

    def fitted(self, order: int, tolerance: float = ROUGH) -> "Tensor":
        """The fit to all residuals of up to some order."""
        data = [
            Datum(clique=a.clique, values=self._shaped(a), ridge=1 / (a.precision * a.dispersion))
            for a in self.arms.values()
            if a.precision and len(a.clique) <= order
        ]
        return fit(self.blocks, self.base, data, each=self.each, tolerance=tolerance)

    def _shaped(self, arm: Arm) -> Array:
        left = len(self.blocks.split(arm.clique)[0])
        rows = int(np.prod([n - 1 for n in arm.sizes[:left]], dtype=np.int64))
        return np.asarray(arm.mean).reshape(rows, -1)

    def learn(self, order: int) -> "Tensor":
        """Dispersions up to some order, each about the fit of the smaller ones; returns the fit below ``order``."""
        below = self.base
        for k in range(1, order + 1):
            below = self.fitted(k - 1) if k > 1 else self.base
            for group, scale in self._kinds(k):
                seen = [self.blocks.marginal(below, a.clique) if a.precision else None for a in group]
                learn(group, seen, self.arms, scale, self.doubt)
        return below

    def _kinds(self, order: int) -> list[tuple[list[Arm], float]]:
        if order > 1:
            return [(self.group(order, True), 1.0), (self.group(order, False), 1.0)]
        ones = self.group(1, False)
        sides = [[a for a in ones if self.blocks.split(a.clique)[side]] for side in (0, 1)]
        return [(side, float(self.door.rows)) for side in sides]


def workloads(left: Sequence[str], right: Sequence[str], k: int) -> list[Clique]:
    """All sets of k attributes that have some of each side; of as many as there are, if they are fewer."""
    k = min(k, len(left) + len(right))
    return [
        a + b
        for i in range(1, k)
        for a in itertools.combinations(left, i)
        for b in itertools.combinations(right, k - i)
    ]


def learn_links(
    blocks: Blocks, door: Door, *, rho: float, k: int = 3, each: bool = False, track: Track = silent
) -> tuple["Tensor", float, dict[str, float]]:
    """Measure and fit: (links per block, their noisy total, rho spent per step).

    Privacy: spends rho.
    """
    learner = start(blocks, door, rho=rho, k=k, each=each)
    orders = {size: [c for c in learner.arms if len(c) <= size] for size in (1, 2, 3)}
    explore(learner, EXPLORE * rho, orders[1])
    learner.learn(1)
    probe(learner, PROBES * rho)
    learner.learn(2)
    for order, share in zip((2, 3), STEPS, strict=True):
        learner.spend("rounds", share * rho, orders[order])
        learner.learn(order)
    learner.spend("rounds", rho - sum(learner.spent.values()), orders[3])
    learner.learn(3)
    return learner.fitted(3, FINE), learner.total, learner.spent


def start(blocks: Blocks, door: Door, *, rho: float, k: int, each: bool) -> Learner:
    """Measure the total, and lay out what may be measured."""
    noisy, variance = door.measure((), Centring(()), TOTAL * rho)
    total, spent = max(float(noisy[0]), 1.0), TOTAL * rho
    if variance > VAGUE * total**2:
        second, other = door.measure((), Centring(()), AGAIN * rho)
        total = max(float((noisy[0] / variance + second[0] / other) / (1 / variance + 1 / other)), 1.0)
        variance, spent = 1 / (1 / variance + 1 / other), spent + AGAIN * rho
    wanted = workloads(blocks.left.attributes, blocks.right.attributes, k)
    found = arms(blocks.domain, wanted)
    for arm in found.values():
        if len(arm.clique) == 1:
            arm.dispersion = arm.hope = float(door.rows)
    return Learner(
        blocks=blocks,
        door=door,
        each=each,
        total=total,
        doubt=variance / total**2,
        arms=found,
        within=incidence(wanted, found),
        base=blocks.independent(total),
        spent={"total": spent},
    )


def explore(learner: Learner, rho: float, cliques: Sequence[Clique]) -> None:
    """Measure residuals so that a dispersion shows in each alike: rho in proportion to noise over sqrt(coordinates)."""
    arms_ = [learner.arms[clique] for clique in cliques]
    needs = np.array([a.sensitivity * a.cells / np.sqrt(a.coordinates) for a in arms_])
    for arm, share in zip(arms_, rho * needs / needs.sum(), strict=True):
        arm.measure(learner.door, float(share))
    learner.spent["one-way, alike"] = rho


def probe(learner: Learner, rho: float) -> None:
    """Choose a few pairs across the tables by the exponential mechanism, and measure them.

    Unprobed, strong links would look like weak ones: without a measurement their dispersion is the prior's.
    """
    pairs = learner.group(2, True)
    links = learner.fitted(1)
    if not pairs:
        return
    if len(pairs) <= PROBED:
        for arm in pairs:
            arm.measure(learner.door, rho / len(pairs))
    else:
        domain = learner.door.domain
        cliques = {domain.clique(arm.clique): arm for arm in pairs}
        for turn in range(PROBED):
            candidates = [Candidate(clique=c) for c, arm in cliques.items() if not arm.precision]
            chosen = learner.door.select(
                candidates,
                lambda c: learner.blocks.marginal(links, c),
                CHOOSING * rho / PROBED,
                changed=None if turn == 0 else (),
            )
            cliques[candidates[chosen].clique].measure(learner.door, (1 - CHOOSING) * rho / PROBED)
    learner.spent["probes"] = rho
