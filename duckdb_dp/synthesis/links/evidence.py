"""What has been measured of each residual, and how large such residuals are in this database."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain, subsets
from duckdb_dp.linop import Array
from duckdb_dp.linop.residual import Centring
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.links.sides import helmert

_GRID = np.exp(np.linspace(math.log(1e-3), math.log(1e6), 181))
TAIL = 1.5
LARGEST = 600
"""Coordinates of the largest residuals: learning from one takes their cube."""


@final
@dataclass(slots=True, kw_only=True)
class ResidualEstimate:
    """One residual: what may be measured, and what was.

    Attributes:
        clique: its attributes, those of the left side first.
        sizes: their sizes.
        mean: the precision-weighted mean of all measurements, in orthonormal coordinates (n_1 - 1, n_2 - 1, ...).
        precision: of each coordinate of ``mean``; 0: never measured.
        dispersion: t, the variance of a cell about what smaller residuals say, over its expected count; cautious.
        optimistic_dispersion: the same, at its largest plausible value.
    """

    clique: Clique
    sizes: tuple[int, ...]
    dispersion: float
    optimistic_dispersion: float
    mean: Array | float = 0.0
    precision: float = 0.0

    @property
    def coordinates(self) -> int:
        """prod (n_i - 1)."""
        return math.prod(n - 1 for n in self.sizes)

    @property
    def cells(self) -> int:
        """prod n_i."""
        return math.prod(self.sizes)

    @property
    def sensitivity(self) -> float:
        """prod (n_i - 1) / n_i: squared, of one link."""
        return Centring(self.sizes).squared_sensitivity

    def uncertainty(self, expected: Array) -> float:
        """The posterior variance of a coordinate, given the expected counts of the clique."""
        prior = self.dispersion * float(expected.mean())
        return prior / (1 + prior * self.precision)

    def take(self, noisy: LinearMeasurement) -> None:
        """Average with one more measurement of the residual, its attributes in the domain's order.

        Privacy: post-processing.
        """
        sizes = dict(zip(self.clique, self.sizes, strict=True))
        table = noisy.answers.reshape([sizes[name] for name in noisy.clique])
        table = table.transpose([noisy.clique.index(name) for name in self.clique])
        total = self.precision + 1 / noisy.variance
        self.mean = (self.mean * self.precision + coordinates(table) / noisy.variance) / total
        self.precision = total


def coordinates(table: Array) -> Array:
    """A table's residual in the orthonormal coordinates of its attributes, shape (n_i - 1 for each)."""
    for axis, n in enumerate(table.shape):
        table = np.moveaxis(np.tensordot(helmert(n), table, axes=(0, axis)), 0, axis)
    return table


def arms(domain: Domain, cliques: Iterable[Clique]) -> dict[Clique, ResidualEstimate]:
    """All residuals of some marginals, each once, without those of attributes of one value."""
    found: dict[Clique, ResidualEstimate] = {}
    for clique in cliques:
        for subset in subsets(clique)[1:]:
            shape = domain.shape(subset)
            if subset not in found and min(shape) > 1 and math.prod(n - 1 for n in shape) <= LARGEST:
                found[subset] = ResidualEstimate(clique=subset, sizes=shape, dispersion=1.0, optimistic_dispersion=1.0)
    return dict(sorted(found.items(), key=lambda item: len(item[0])))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """How a measured residual differs from an expectation, in units of its noise.

    Attributes:
        gap: coordinates N(0, t spread + 1), independent but for what they share with others.
        spread: of the prior.
        level: what the coordinates are expected to be: all residuals are off along it if the total is.
    """

    gap: Array
    spread: Array
    level: Array


def surprise(arm: ResidualEstimate, expected: Array, smaller: Sequence[ResidualEstimate]) -> Surprise:
    """Compare a measured residual with the one of an expected marginal, in coordinates where its prior is diagonal.

    What is not known of smaller residuals blurs the expectation: an error of a one-way marginal shows in every pair.

    Args:
        arm: measured at least once.
        expected: expected counts of its clique, shape ``arm.sizes``.
        smaller: the residuals of its subsets.
    """
    gap = np.reshape(arm.mean - coordinates(expected), -1)
    basis = reduce(np.kron, [helmert(n) for n in arm.sizes])  # type: ignore[arg-type]
    noise, spread = np.eye(len(gap)) / arm.precision, basis.T @ (expected.reshape(-1, 1) * basis)
    for part in smaller:
        leak = _leak(arm, part, expected)
        noise += part.uncertainty(expected_of(part, arm, expected)) * (leak @ leak.T)
    root = np.linalg.cholesky(noise)
    spread = np.linalg.solve(root, np.linalg.solve(root, spread).T)
    values, turn = np.linalg.eigh((spread + spread.T) / 2)
    seen = turn.T @ np.linalg.solve(root, np.stack([gap, coordinates(expected).reshape(-1)], 1))
    return Surprise(gap=seen[:, 0], spread=np.maximum(values, 0), level=seen[:, 1])


def expected_of(part: ResidualEstimate, arm: ResidualEstimate, expected: Array) -> Array:
    """The expected counts of some of a clique's attributes."""
    axes = tuple(i for i, name in enumerate(arm.clique) if name not in part.clique)
    return np.asarray(expected.sum(axes))


def _leak(arm: ResidualEstimate, part: ResidualEstimate, expected: Array) -> Array:
    """What an error in each coordinate of ``part`` adds to the coordinates of ``arm``, given how the rest is spread."""
    within = expected_of(part, arm, expected)
    shape = tuple(n if name in part.clique else 1 for name, n in zip(arm.clique, arm.sizes, strict=True))
    share = expected / np.maximum(within, 1e-300).reshape(shape)
    directions = reduce(np.kron, [helmert(n) for n in part.sizes]).T  # type: ignore[arg-type]
    return np.array([coordinates(direction.reshape(shape) * share).reshape(-1) for direction in directions]).T


def dispersion(found: Sequence[Surprise], scale: float, total_relative_variance: float) -> tuple[float, float]:
    """The overdispersion t of residuals: its posterior geometric mean, and the squared posterior mean of its root.

    The prior of sqrt(t) is half-Cauchy, p(log t) ~ sqrt(t / scale) / (1 + t / scale): about ``scale`` unless the data
    say otherwise, and heavy-tailed, so that strong links show. Integrated on a grid of log t. The first is cautious,
    for shrinking; the second hopeful, for deciding what to measure.

    Args:
        found: comparisons that share one t.
        scale: the prior's median; 1 is the dispersion of links that are Poisson.
        total_relative_variance: relative variance of the total, which all expectations share.
    """
    weights = TAIL * (0.5 * np.log(_GRID / scale) - np.log1p(_GRID / scale))
    known, shared = np.zeros_like(_GRID), np.zeros_like(_GRID)
    for one in found:
        variance = _GRID[:, None] * one.spread + 1
        weights -= 0.5 * (np.log(variance) + one.gap**2 / variance).sum(1)
        known += (one.level**2 / variance).sum(1)
        shared += (one.level * one.gap / variance).sum(1)
    # A common error of the total adds total_relative_variance * level level^T to the covariance.
    weights += 0.5 * (
        total_relative_variance * shared**2 / (1 + total_relative_variance * known)
        - np.log1p(total_relative_variance * known)
    )
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    return float(np.exp(weights @ np.log(_GRID))), float((weights @ np.sqrt(_GRID)) ** 2)


def learn(
    group: Sequence[ResidualEstimate],
    expected: Sequence[Array | None],
    arms: Mapping[Clique, ResidualEstimate],
    scale: float,
    total_relative_variance: float,
) -> None:
    """Set the dispersions of residuals of one kind: of the kind from all, then of each from its own about the kind's.

    Args:
        group: the residuals.
        expected: expected counts of those that were measured, None for the others.
        arms: all residuals.
        scale: the prior's median for the kind.
        total_relative_variance: relative variance of the total.
    """
    seen = {}
    for arm, counts in zip(group, expected, strict=True):
        if counts is not None and arm.coordinates <= LARGEST:
            smaller = [arms[s] for s in subsets(arm.clique)[1:-1] if s in arms]
            seen[arm.clique] = surprise(arm, counts, smaller)
    kind, optimistic_dispersion = (
        dispersion(list(seen.values()), scale, total_relative_variance) if seen else (scale, scale)
    )
    for arm in group:
        own = arm.clique in seen
        arm.dispersion, arm.optimistic_dispersion = (
            dispersion([seen[arm.clique]], kind, total_relative_variance) if own else (kind, optimistic_dispersion)
        )
