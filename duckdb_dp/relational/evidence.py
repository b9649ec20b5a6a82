"""What has been measured of each residual, and how large such residuals are in this database."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import final

import numpy as np

from duckdb_dp.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.linop.residual import Centring
from duckdb_dp.private import Door
from duckdb_dp.relational.sides import helmert

_GRID = np.exp(np.linspace(math.log(1e-3), math.log(1e6), 181))
_DENSE = 256  # coordinates up to which a prior covariance is decomposed; above, its diagonal stands for it


@final
@dataclass(slots=True, kw_only=True)
class Arm:
    """One residual: what may be measured, and what was.

    Attributes:
        clique: its attributes, those of the left side first.
        sizes: their sizes.
        mean: the precision-weighted mean of all measurements, in orthonormal coordinates (n_1 - 1, n_2 - 1, ...).
        precision: of each coordinate of ``mean``; 0: never measured.
        dispersion: t, the variance of a cell about what smaller residuals say, over its expected count.
    """

    clique: Clique
    sizes: tuple[int, ...]
    dispersion: float
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

    def measure(self, door: Door, rho: float) -> None:
        """Measure the residual once more, and average.

        Privacy: spends rho.
        """
        clique = door.domain.clique(self.clique)
        answers, variance = door.measure(clique, Centring(door.domain.shape(clique)), rho)
        table = answers.reshape(door.domain.shape(clique)).transpose([clique.index(name) for name in self.clique])
        total = self.precision + 1 / variance
        self.mean = (self.mean * self.precision + coordinates(table) / variance) / total
        self.precision = total


def coordinates(table: Array) -> Array:
    """A table's residual in the orthonormal coordinates of its attributes, shape (n_i - 1 for each)."""
    for axis, n in enumerate(table.shape):
        table = np.moveaxis(np.tensordot(helmert(n), table, axes=(0, axis)), 0, axis)
    return table


def arms(domain: Domain, cliques: Iterable[Clique]) -> dict[Clique, Arm]:
    """All residuals of some marginals, each once, without those of attributes of one value."""
    found: dict[Clique, Arm] = {}
    for clique in cliques:
        for size in range(1, len(clique) + 1):
            for subset in itertools.combinations(clique, size):
                if subset not in found and min(domain.shape(subset)) > 1:
                    found[subset] = Arm(clique=subset, sizes=domain.shape(subset), dispersion=1.0)
    return dict(sorted(found.items(), key=lambda item: len(item[0])))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """How a measured residual differs from an expectation: independent coordinates N(0, t spread + noise)."""

    squares: Array
    spread: Array
    noise: float


def surprise(arm: Arm, expected: Array) -> Surprise:
    """Compare a measured residual with the one of an expected marginal, in coordinates where its prior is diagonal.

    Args:
        arm: measured at least once.
        expected: expected counts of its clique, shape ``arm.sizes``.
    """
    gap = np.reshape(arm.mean - coordinates(expected), -1)
    basis = reduce(np.kron, [helmert(n) for n in arm.sizes])
    if len(gap) <= _DENSE:
        spread, turn = np.linalg.eigh(basis.T @ (expected.reshape(-1, 1) * basis))
        gap = turn.T @ gap
    else:
        spread = (basis**2).T @ expected.reshape(-1)
    return Surprise(squares=gap**2, spread=np.maximum(spread, 0), noise=1 / arm.precision)


def dispersion(found: Sequence[Surprise], scale: float) -> float:
    """The overdispersion t of residuals: its posterior geometric mean.

    The prior of sqrt(t) is half-Cauchy, p(log t) ~ sqrt(t / scale) / (1 + t / scale): about ``scale`` unless the data
    say otherwise, and heavy-tailed, so that strong links show. Integrated on a grid of log t.

    Args:
        found: comparisons that share one t.
        scale: the prior's median; 1 is the dispersion of links that are Poisson.
    """
    prior = 0.5 * np.log(_GRID / scale) - np.log1p(_GRID / scale)
    likelihood = np.zeros_like(_GRID)
    for one in found:
        variance = _GRID[:, None] * one.spread + one.noise
        likelihood -= 0.5 * (np.log(variance) + one.squares / variance).sum(1)
    weights = prior + likelihood
    weights = np.exp(weights - weights.max())
    return float(np.exp((weights * np.log(_GRID)).sum() / weights.sum()))


def learn(group: Sequence[Arm], expected: Sequence[Array | None], scale: float) -> None:
    """Set the dispersions of residuals of one kind: of the kind from all, then of each from its own about the kind's.

    Args:
        group: the residuals.
        expected: expected counts of those that were measured, None for the others.
        scale: the prior's median for the kind.
    """
    seen = {arm.clique: surprise(arm, e) for arm, e in zip(group, expected, strict=True) if e is not None}
    kind = dispersion(list(seen.values()), scale) if seen else scale
    for arm in group:
        arm.dispersion = dispersion([seen[arm.clique]], kind) if arm.clique in seen else kind
