"""The default method for links ('auto'): it measures residuals, small ones first, as well as the budget allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.private import Candidate, PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.fit import Tilt, Wanted, together
from duckdb_dp.synthesis.links.follow_matches import follow_matches
from duckdb_dp.synthesis.links.learner import FINE, Learner, measure_total, start
from duckdb_dp.synthesis.links.matches import Compared

TOTAL, AGAIN, EXPLORE, PROBES, LOW, HIGH = 0.05, 0.08, 0.12, 0.10, 0.20, 0.25
"""Shares of the budget: the total; again, where it is vague; all one-way residuals alike; probes; then steps that go to
residuals of up to 2, and of any number of attributes. The rest is a last step's, which knows of all that was learnt."""

MATCHES = 0.03
"""Share for whether ends match, where there are attributes that may; it is taken from the last step."""

VAGUE = 0.01**2
"""Relative variance above which the total is measured again: all residuals are seen against it."""

PROBED = 3  # cross-table pairs that are chosen by the exponential mechanism and measured first
CHOOSING = 0.4  # share of a probe that pays for the choice


NOTHING = Wanted({}, {}, {})
"""Where nothing was measured."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Links as estimated.

    Attributes:
        links: expected links per block, shape (K, L).
        tilt: the logarithm of their ratio to independent links, which also applies to other row types.
        total: the noisy number of original links.
        spent: rho by step.
        alone: what was measured of the left side alone, and of the right one; the published methods have none.
        unmeasured: the pairs across the sides of which nothing was measured; the published methods do not say.
    """

    links: Array
    tilt: Tilt
    total: float
    spent: dict[str, float]
    alone: tuple[Wanted, Wanted] = (NOTHING, NOTHING)
    unmeasured: Sequence[Clique] = ()


def learn_links(
    blocks: Blocks,
    queryable: PrivateQueryable,
    *,
    rho: float,
    k: int = 3,
    one_parent: bool = False,
    known: tuple[Array, float] | None = None,
    per_unit: int = 0,
    matches: Sequence[Compared] = (),
    track: Track = silent,
) -> Learned:
    """Measure and fit links.

    First the total is measured; then every one-way residual, which shows how uneven links are; then how many links match; then a few
    pairs across the sides that the exponential mechanism selects, which show how strong the dependence is; then residuals by
    water-filling with the estimated dispersions. The fit shrinks residuals without structure to zero.

    Args:
        blocks: the blocks to fit on; their row types are public.
        queryable: exact counts of links.
        rho: what may be spent.
        k: how many attributes the workloads have whose error is minimised.
        one_parent: whether each left row has one link exactly.
        known: the links that are expected by block before anything is measured here, and the relative variance of their sum; None
            for independent ones, whose number is measured.
        per_unit: what the links of a unit weigh together at most, in what is measured and in ``known``, of which the left side is
            the unit's; 0: as many as they are.
        matches: attributes of both sides that links may match in, and dates that may be so far apart.
        track: shows progress.

    Source: [RS25] Alg. 4, with the choices of `docs/mechanisms/links.md`.

    Privacy: spends rho at most.
    """
    if known is None:
        total, total_relative_variance, spent = measure_total(queryable, (TOTAL * rho, AGAIN * rho), VAGUE)
        base = blocks.independent(total)
    else:
        base, total_relative_variance = known
        total, spent = float(base.sum()), 0.0
    learner = start(
        blocks,
        queryable,
        base=base,
        total=total,
        total_relative_variance=total_relative_variance,
        k=k,
        one_parent=one_parent,
        per_unit=per_unit,
    )
    if known is None:
        learner.spent["total"] = spent
    steps: dict[str, Callable[[], None]] = {
        "one-way": lambda: explore(learner, EXPLORE * rho),
        "probes": lambda: probe(learner, PROBES * rho),
        "low": lambda: learner.fill("rounds", LOW * rho, learner.upto(2)),
        "high": lambda: learner.fill("rounds", HIGH * rho, learner.upto(k)),
        "rest": lambda: learner.fill("rounds", rho - sum(learner.spent.values()), learner.upto(k)),
    }
    matched: Tilt = {}
    for order, (name, step) in zip(track((1, 2, 2, k, k), "learning links"), steps.items(), strict=True):
        step()
        learner.learn(order)
        if name == "one-way" and matches:
            matched = follow_matches(learner, matches, MATCHES * rho)
    links, tilt = learner.fitted(k, FINE)
    tilt = together(tilt, matched)
    return Learned(
        links=links,
        tilt=tilt,
        total=total,
        spent=learner.spent,
        alone=learner.alone(k),
        unmeasured=[pair for pair in learner.unmeasured() if pair not in matched],
    )


def explore(learner: Learner, rho: float) -> None:
    """Measure one-way residuals so that a dispersion is equally visible in each: rho ~ cells sensitivity / sqrt(coordinates).

    Privacy: spends rho.
    """
    ones = [learner.residuals[clique] for clique in learner.upto(1)]
    needs = np.array([a.sensitivity * a.cells / np.sqrt(a.coordinates) for a in ones])
    shares: dict[Clique, float] = {a.clique: rho * float(n / needs.sum()) for a, n in zip(ones, needs, strict=True)}
    learner.measure("one-way", shares)


def probe(learner: Learner, rho: float) -> None:
    """Choose a few pairs across the sides by the exponential mechanism, and measure them.

    Without these measurements the dispersion would be the prior's, and strong dependence would not be found.

    Privacy: spends rho.
    """
    pairs = [residual.clique for residual in learner.group(2, True)]
    if len(pairs) <= PROBED or learner.per_unit:
        learner.measure("probes", dict.fromkeys(pairs, rho / max(len(pairs), 1)))
        return
    links, _ = learner.fitted(1)
    ordered = {learner.queryable.domain.clique(pair): pair for pair in pairs}
    for turn in range(PROBED):
        candidates = [
            Candidate(clique=clique) for clique, pair in ordered.items() if not learner.residuals[pair].precision
        ]
        chosen = learner.queryable.select(
            candidates,
            lambda clique: learner.blocks.marginal(links, clique),
            CHOOSING * rho / PROBED,
            changed=None if turn == 0 else (),
        )
        learner.spent["probes"] = learner.spent.get("probes", 0.0) + CHOOSING * rho / PROBED
        learner.measure("probes", {ordered[candidates[chosen].clique]: (1 - CHOOSING) * rho / PROBED})
