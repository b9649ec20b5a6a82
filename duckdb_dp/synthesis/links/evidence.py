"""The estimate of each residual of the links: its measurements, and its dispersion around the expected counts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain, subsets
from duckdb_dp.linop import Array
from duckdb_dp.linop.residual import Centring
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.links.sides import coordinates, helmert, residual_cells, spread

_GRID = np.exp(np.linspace(math.log(1e-3), math.log(1e6), 181))
TAIL = 1.5
LARGEST = 600
"""Coordinates of a residual from which its dispersion is learnt: that takes their cube. Of more, neighbouring values are taken together."""

MEASURED, VALUES = 2**14, 2**11
"""Coordinates of the largest residuals of one attribute, or of one of each side, and values of an attribute of these; of others it is
``LARGEST`` coordinates."""


@final
@dataclass(slots=True, kw_only=True)
class ResidualEstimate:
    """The estimate of one residual.

    Attributes:
        clique: its attributes, those of the left side first.
        sizes: their sizes.
        mean: the precision-weighted mean of all measurements, in orthonormal coordinates (n_1 - 1, n_2 - 1, ...).
        precision: of each coordinate of ``mean``; 0: never measured.
        dispersion: t, the variance of a cell around the count that smaller residuals predict, divided by that count; a
            cautious estimate of it.
        optimistic_dispersion: a larger, optimistic estimate of t.
        fine_dispersion: of a residual of more than ``LARGEST`` coordinates, t of what sums over neighbouring values do not see; None of
            others, and before it is known.
    """

    clique: Clique
    sizes: tuple[int, ...]
    dispersion: float
    optimistic_dispersion: float
    mean: Array | float = 0.0
    precision: float = 0.0
    fine_dispersion: float | None = None

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
        self.mean = (self.mean * self.precision + coordinates(table[None])[0] / noisy.variance) / total
        self.precision = total


def residual_estimates(
    domain: Domain, cliques: Iterable[Clique], many: Callable[[Clique], bool] = bool
) -> dict[Clique, ResidualEstimate]:
    """All residuals of some marginals, each once, without those of attributes of one value, and those that are too large.

    Args:
        domain: of the attributes.
        cliques: of the marginals.
        many: whether a pair may have more than ``LARGEST`` coordinates.
    """
    residuals: dict[Clique, ResidualEstimate] = {}
    for clique in cliques:
        for subset in subsets(clique)[1:]:
            shape = domain.shape(subset)
            simple = max(shape) <= VALUES and (len(subset) == 1 or (len(subset) == 2 and many(subset)))
            most = MEASURED if simple else LARGEST
            if subset not in residuals and min(shape) > 1 and math.prod(n - 1 for n in shape) <= most:
                residuals[subset] = ResidualEstimate(
                    clique=subset, sizes=shape, dispersion=1.0, optimistic_dispersion=1.0
                )
    return dict(sorted(residuals.items(), key=lambda item: len(item[0])))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """How a measured residual differs from the expected one, for every overdispersion t of ``_GRID``, shape (grid,).

    Under the prior measured minus expected coordinates g are N(0, V), V = t P + Q, with P their covariance for t = 1 and Q that of
    noise; an error of the total moves them in proportion to the expected coordinates e.

    Attributes:
        volume: log det V - log det Q.
        energy: g V^-1 g.
        known: e V^-1 e.
        shared: e V^-1 g.
    """

    volume: Array
    energy: Array
    known: Array
    shared: Array


def surprise(residual: ResidualEstimate, expected: Array, smaller: Sequence[ResidualEstimate]) -> Surprise:
    """Compare a measured residual with the residual of the expected marginal.

    Of more than ``LARGEST`` coordinates what is compared are the residuals of sums over neighbouring values: a dependence that is smooth
    shows in these as well.
    Smaller residuals have errors too, and the error of a one-way marginal affects each of its pairs, so it is added to the
    noise. The coordinates are whitened and rotated so that noise has variance 1 and the prior is tridiagonal: then what is asked
    follows by elimination, for every t at once, and takes no eigenvectors, which would be most of the work.

    Args:
        residual: measured at least once.
        expected: expected counts of its clique, shape ``residual.sizes``.
        smaller: the residuals of its subsets.
    """
    from scipy.linalg import lapack, solve_triangular  # for import time

    bases = _bases(residual.sizes)
    inside = [helmert(n).T @ basis for n, basis in zip(residual.sizes, bases, strict=True)]
    level = coordinates(expected[None], bases).reshape(-1)
    mean = np.reshape(residual.mean, [n - 1 for n in residual.sizes])
    gap = coordinates(mean[None], inside).reshape(-1) - level
    noise = np.full((1, 1), 1 / residual.precision)
    for basis in bases:
        noise = np.kron(noise, basis.T @ basis)
    for part in smaller:
        if part.coordinates > LARGEST:
            continue  # the error of many values is little in each
        leak = _leak(residual, part, expected, bases)
        noise += part.uncertainty(expected_of(part, residual, expected)) * (leak @ leak.T)
    root = np.linalg.cholesky(noise)
    prior, failed = lapack.dsygst(spread(expected, bases), root, lower=1)
    assert not failed
    seen = solve_triangular(root, np.stack([gap, level], 1), lower=True)
    return _by_elimination(*_tridiagonal(prior, seen))


def fine(residual: ResidualEstimate, expected: Array) -> float:
    """The dispersion of what sums over neighbouring values do not see, by its energy above that of noise, two standard deviations less."""
    gap = np.reshape(residual.mean, [n - 1 for n in residual.sizes]) - coordinates(expected[None])[0]
    seen = coordinates(gap[None], coarse(residual.sizes))
    free = residual.coordinates - seen.size
    energy = float((gap**2).sum() - (seen**2).sum()) * residual.precision
    above = max(energy - free - 2 * math.sqrt(2 * free), 0.0) / residual.precision
    return float(np.clip(above / (free * max(float(expected.mean()), 1e-300)), _GRID[0], _GRID[-1]))


def _tridiagonal(prior: Array, seen: Array) -> tuple[Array, Array, Array]:
    """(diagonal, off-diagonal, ``seen``) in a basis in which a symmetric matrix, given by its lower half, is tridiagonal."""
    from scipy.linalg import lapack  # for import time

    if len(prior) == 1:
        return prior[0], np.zeros(0), seen
    size, _ = lapack.dsytrd_lwork(len(prior), lower=1)
    turns, diagonal, beside, scales, failed = lapack.dsytrd(prior, lower=1, lwork=int(size))
    assert not failed
    turned, _, failed = lapack.dormqr("L", "T", turns[1:, :-1], scales, seen[1:], lwork=64 * seen.shape[1])
    assert not failed
    return diagonal, beside, np.concatenate([seen[:1], turned])


def _by_elimination(diagonal: Array, beside: Array, seen: Array) -> Surprise:
    """What is asked of I + t T, with T tridiagonal: its factors L D L^T, row by row for all t."""
    pivots, left = np.empty((len(diagonal), len(_GRID))), np.empty((len(diagonal), 2, len(_GRID)))
    pivots[0], left[0] = 1 + diagonal[0] * _GRID, seen[0][:, None]
    off = beside[:, None] * _GRID
    on = 1 + diagonal[:, None] * _GRID
    for i, (a, b) in enumerate(zip(on[1:], off, strict=True), 1):
        factor = b / pivots[i - 1]
        pivots[i] = np.maximum(a - factor * b, 1.0)  # no eigenvalue of T is negative, but by rounding
        left[i] = seen[i][:, None] - factor * left[i - 1]
    gap, level = left[:, 0], left[:, 1]
    return Surprise(
        volume=np.log(pivots).sum(0),
        energy=(gap**2 / pivots).sum(0),
        known=(level**2 / pivots).sum(0),
        shared=(level * gap / pivots).sum(0),
    )


def expected_of(part: ResidualEstimate, residual: ResidualEstimate, expected: Array) -> Array:
    """The expected counts of some of a clique's attributes."""
    axes = tuple(i for i, name in enumerate(residual.clique) if name not in part.clique)
    return np.asarray(expected.sum(axes))


def _bases(sizes: Sequence[int]) -> list[Array]:
    """The bases of the coordinates that are compared: all, or where these are too many those that sums over groups of neighbours see."""
    if math.prod(n - 1 for n in sizes) <= LARGEST:
        return [helmert(n) for n in sizes]
    return [helmert(n) @ basis for n, basis in zip(sizes, coarse(sizes), strict=True)]


def coarse(sizes: Sequence[int]) -> list[Array]:
    """For each attribute an orthonormal basis of what sums over groups of neighbouring values see, in its coordinates.

    Shape (n - 1, groups - 1) each. They tell the groups apart, as far as those have different sums.
    """
    most = max(2, int(LARGEST ** (1 / len(sizes)) / 2) + 1)
    found = []
    for n in sizes:
        number = min(n, most)
        if number == n:
            found.append(np.eye(n - 1))
            continue
        sums = np.eye(number)[np.arange(n) * number // n]
        found.append(np.linalg.qr(helmert(n).T @ (sums @ helmert(number)))[0])
    return found


def _leak(residual: ResidualEstimate, part: ResidualEstimate, expected: Array, bases: Sequence[Array]) -> Array:
    """What an error in each coordinate of ``part`` adds to the coordinates of ``residual``, given how the rest is spread."""
    within = expected_of(part, residual, expected)
    shape = tuple(n if name in part.clique else 1 for name, n in zip(residual.clique, residual.sizes, strict=True))
    share = expected / np.maximum(within, 1e-300).reshape(shape)
    directions = residual_cells(np.eye(part.coordinates).reshape(-1, *(n - 1 for n in part.sizes)))
    return coordinates(directions.reshape(-1, *shape) * share, bases).reshape(part.coordinates, -1).T


def dispersion(compared: Sequence[Surprise], scale: float, total_relative_variance: float) -> tuple[float, float]:
    """The overdispersion t of residuals from how they differ from what was expected: (cautious, optimistic).

    The cautious one is the posterior geometric mean of t, for shrinking; the optimistic one the squared posterior mean of
    sqrt(t), for deciding what to measure. The prior is p(log t) ~ (sqrt(t / scale) / (1 + t / scale))^TAIL; with TAIL 1
    it would be half-Cauchy for sqrt(t). So t is about ``scale`` without data, and as the tail is heavy, strong dependence is
    recognised. The posterior is summed over a grid of log t.

    Args:
        compared: measured residuals that share one t.
        scale: the prior's median; 1 is the dispersion of links that are Poisson.
        total_relative_variance: relative variance of the total, which all expectations share.
    """
    weights = TAIL * (0.5 * np.log(_GRID / scale) - np.log1p(_GRID / scale))
    known, shared = np.zeros_like(_GRID), np.zeros_like(_GRID)
    for one in compared:
        weights -= 0.5 * (one.volume + one.energy)
        known += one.known
        shared += one.shared
    # A common error of the total adds total_relative_variance * level level^T to the covariance.
    weights += 0.5 * (
        total_relative_variance * shared**2 / (1 + total_relative_variance * known)
        - np.log1p(total_relative_variance * known)
    )
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    return float(np.exp(weights @ np.log(_GRID))), float((weights @ np.sqrt(_GRID)) ** 2)


def learn_dispersions(
    group: Sequence[ResidualEstimate],
    expected: Sequence[Array | None],
    residuals: Mapping[Clique, ResidualEstimate],
    scale: float,
    total_relative_variance: float,
) -> None:
    """Set the dispersions of residuals of one kind.

    The dispersion of the kind is estimated from all measured ones. Each measured residual then gets one of its own, with a
    prior whose median is that of the kind; the others get that of the kind.

    Args:
        group: the residuals.
        expected: expected counts of those that were measured, None for the others.
        residuals: all residuals.
        scale: the prior's median for the kind.
        total_relative_variance: relative variance of the total.
    """
    seen = {}
    for residual, counts in zip(group, expected, strict=True):
        if counts is not None:
            smaller = [residuals[s] for s in subsets(residual.clique)[1:-1] if s in residuals]
            seen[residual.clique] = surprise(residual, counts, smaller)
            if residual.coordinates > LARGEST:
                residual.fine_dispersion = fine(residual, counts)
    kind, optimistic_dispersion = (
        dispersion(list(seen.values()), scale, total_relative_variance) if seen else (scale, scale)
    )
    for residual in group:
        residual.dispersion, residual.optimistic_dispersion = (
            dispersion([seen[residual.clique]], kind, total_relative_variance)
            if residual.clique in seen
            else (kind, optimistic_dispersion)
        )
