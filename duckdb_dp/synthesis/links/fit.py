"""The links of maximum entropy that fit noisy residuals, weighted by their noise."""

import functools
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.sides import coordinates, helmert, residual_cells, spread

Fine = Mapping[Clique, tuple[Sequence[Array], float]]
"""Of large cliques: orthonormal bases of the part of the coordinates that has the clique's own ridge, and the ridge of the rest."""

Tilt = Mapping[Clique, Array]
"""Coefficients theta per clique, shape (prod of n_i - 1 over the left attributes, the same over the right ones)."""


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """What links are fitted to: the measured residuals, their ridges, and what large ones have besides, as in ``fit``."""

    residuals: Tilt
    ridges: Mapping[Clique, float]
    fine: Fine

    def of(self, cliques: Collection[Clique]) -> "Wanted":
        """The part that is of some residuals."""
        return Wanted(
            {clique: residual for clique, residual in self.residuals.items() if clique in cliques},
            {clique: ridge for clique, ridge in self.ridges.items() if clique in cliques},
            {clique: one for clique, one in self.fine.items() if clique in cliques},
        )

    def scaled(self, share: float) -> "Wanted":
        """The same for a part of the links: each of several equal parts then is what all together are."""
        return Wanted(
            {clique: residual * share for clique, residual in self.residuals.items()},
            {clique: ridge * share for clique, ridge in self.ridges.items()},
            {clique: (bases, rest * share) for clique, (bases, rest) in self.fine.items()},
        )


_METRIC = (0, 10, 30, 70, 150, 310)  # steps at which the metric is taken anew
_MEMORY = 30  # steps that L-BFGS remembers
_LARGE = 64  # rows of matrices above which one after another is faster than all together
_WHOLE = 1000  # coordinates of a clique whose part of the Hessian is inverted as a whole
_SMALLEST = 1e-10  # step of a line search that is taken whatever it finds: rounding is all that is left


@final
class _OneSide:
    """Cliques of one side alone: together they add one number to each of its row types.

    As columns of coordinates they would be by far the largest part of the fit: two attributes of 20 values have 361.

    Args:
        blocks: the blocks.
        places: of each clique, where its coefficients are in theta.
        right: which side.
    """

    def __init__(self, blocks: Blocks, places: Mapping[Clique, Integers], right: bool) -> None:
        alike: dict[tuple[int, ...], list[Clique]] = {}
        for clique in places:
            alike.setdefault(blocks.domain.shape(clique), []).append(clique)
        self.parts = [(shape, np.stack([places[c] for c in found])) for shape, found in alike.items()]
        self.sums = blocks.sums([clique for found in alike.values() for clique in found], right=right)
        self.back = self.sums.T.tocsr()

    def tilt(self, theta: Array) -> Array:
        """What the coefficients add to the logarithm of each row type, shape (types,)."""
        cells = [
            residual_cells(theta[at].reshape(len(at), *[n - 1 for n in shape])).reshape(-1) for shape, at in self.parts
        ]
        return np.asarray(self.back @ np.concatenate(cells))

    def answer(self, held: Array, answers: Array) -> None:
        """Put the residuals of the links that each row type holds where their coefficients are."""
        cells, first = np.asarray(self.sums @ held), 0
        for shape, at in self.parts:
            last = first + len(at) * math.prod(shape)
            answers[at] = coordinates(cells[first:last].reshape(len(at), *shape)).reshape(at.shape)
            first = last


@final
@dataclass(frozen=True, slots=True)
class _Coarse:
    """The part of a large clique's coefficients that has a ridge of its own.

    Attributes:
        places: of the clique's coefficients.
        bases: of that part, attribute by attribute.
        more: its ridge less that of the rest.
    """

    places: Integers
    bases: Sequence[Array]
    more: float

    def seen(self, vector: Array) -> Array:
        """Its coordinates in that part, of a vector over all coefficients."""
        table = vector[self.places].reshape([len(basis) for basis in self.bases])
        return np.asarray(coordinates(table[None], self.bases)[0])

    def back(self, part: Array) -> Array:
        """The clique's coefficients that have these coordinates, and no others."""
        return np.asarray(coordinates(part[None], [basis.T for basis in self.bases]).reshape(-1))


@final
class _Dual:
    """The dual of the fit, as a function of the coefficients theta of the measured residuals."""

    def __init__(
        self,
        blocks: Blocks,
        base: Array,
        residuals: Tilt,
        ridges: Mapping[Clique, float],
        one_parent: bool,
        fine: Fine | None = None,
    ) -> None:
        self.blocks, self.one_parent, self.total = blocks, one_parent, float(base.sum())
        with np.errstate(divide="ignore"):  # a type without rows has no links, whatever the tilt
            self.logs, self.weights = np.log(base), base.sum(1)
        ends = np.cumsum([0, *(residual.size for residual in residuals.values())])
        places = {clique: np.arange(a, b) for clique, (a, b) in zip(residuals, itertools.pairwise(ends), strict=True)}
        split = {clique: blocks.split(clique) for clique in residuals}
        across = {clique: both for clique, both in split.items() if all(both)}
        self.left, at_left = _stack(blocks, [left for left, _ in across.values()], blocks.shape[0])
        self.right, at_right = _stack(blocks, [right for _, right in across.values()], blocks.shape[1])
        self.shape = (self.left.shape[1], self.right.shape[1])
        index = [
            (at_left[left][:, None] * self.shape[1] + at_right[right][None, :]).reshape(-1)
            for left, right in across.values()
        ]
        self.across = np.concatenate([np.zeros(0, np.int64), *(places[clique] for clique in across)])
        self.index = np.concatenate([np.zeros(0, np.int64), *index])
        own = [{c: places[c] for c, both in split.items() if not both[1 - side]} for side in (0, 1)]
        self.own = [_OneSide(blocks, found, bool(side)) if found else None for side, found in enumerate(own)]
        self.cliques = {clique: (residual.size, residual.shape) for clique, residual in residuals.items()}
        self.values = np.concatenate([residual.reshape(-1) for residual in residuals.values()])
        ridge = {**ridges, **{clique: rest for clique, (_, rest) in (fine or {}).items()}}
        self.ridge = np.repeat([ridge[clique] for clique in residuals], np.diff(ends))
        self.coarse = {
            clique: _Coarse(places[clique], bases, ridges[clique] - rest)
            for clique, (bases, rest) in (fine or {}).items()
        }

    def links(self, theta: Array) -> tuple[Array, float]:
        """(links per block, the log partition function's part of the dual)."""
        field = np.zeros(self.shape[0] * self.shape[1])
        field[self.index] = theta[self.across]
        power: Array = np.linalg.multi_dot([self.left, field.reshape(self.shape), self.right.T])
        power += self.logs
        for side, own in enumerate(self.own):
            if own is not None:
                power += own.tilt(theta) if side else own.tilt(theta)[:, None]
        if self.one_parent:
            tops = power.max(1)
            power -= tops[:, None]
            links: Array = np.exp(power, out=power)
            mass = links.sum(1)
            links *= (self.weights / mass)[:, None]
            return links, float(self.weights @ (np.log(mass) + tops))
        top = float(power.max())
        power -= top
        links = np.exp(power, out=power)
        whole = float(links.sum())
        links *= self.total / whole
        return links, self.total * (math.log(whole) + top)

    def answers(self, links: Array) -> Array:
        """The measured residuals of links."""
        answers = np.empty(len(self.values))
        answers[self.across] = np.linalg.multi_dot([self.left.T, links, self.right]).reshape(-1)[self.index]
        for side, own in enumerate(self.own):
            if own is not None:
                own.answer(links.sum(1 - side), answers)
        return answers

    def value(self, theta: Array) -> tuple[float, Array, Array]:
        """(value, gradient, links)."""
        links, partition = self.links(theta)
        slope = self.ridge * theta
        for one in self.coarse.values():
            slope[one.places] += one.more * one.back(one.seen(theta))
        fit = partition - float(theta @ self.values) + 0.5 * float(theta @ slope)
        return fit, self.answers(links) - self.values + slope, links


@final
class _Metric:
    """An approximate inverse of the dual's Hessian: exact within each clique, without what cliques share.

    Of large cliques it is the inverse of the diagonal, and that of their coarse part.
    Attributes of uneven values make the coordinates of one clique depend on one another strongly: a diagonal misses that,
    and takes two to three times the steps.
    """

    def __init__(self, dual: _Dual, links: Array) -> None:
        groups: dict[int, list[tuple[int, Array]]] = {}
        self._diagonals, self._coarse = list[tuple[slice, Array]](), list[tuple[_Coarse, Array]]()
        at = 0
        tables = dual.blocks.marginals(links, (sum(dual.blocks.split(clique), ()) for clique in dual.cliques))
        for (clique, (size, _)), table in zip(dual.cliques.items(), tables, strict=True):
            if size > _WHOLE:
                squares = coordinates(table[None], [helmert(n) ** 2 for n in table.shape]).reshape(-1)
                part = slice(at, at + size)
                self._diagonals.append((part, 1 / (squares + dual.ridge[part] + 1e-12 * squares.sum())))
                at += size
                if (one := dual.coarse.get(clique)) is not None:
                    hessian = spread(table, [helmert(len(b) + 1) @ b for b in one.bases])
                    hessian[np.diag_indices(len(hessian))] += one.more + dual.ridge[part][0] + 1e-12 * np.trace(hessian)
                    self._coarse.append((one, _inverses([hessian])[0]))
                continue
            hessian = spread(table)
            if (one := dual.coarse.get(clique)) is not None:
                inside = functools.reduce(np.kron, one.bases)  # type: ignore[arg-type]
                hessian += one.more * (inside @ inside.T)
            hessian[np.diag_indices(size)] += dual.ridge[at : at + size] + 1e-12 * np.trace(hessian)
            groups.setdefault(size, []).append((at, hessian))
            at += size
        self._groups = []
        for size, members in groups.items():
            places = np.array([at for at, _ in members])
            self._groups.append((places[:, None] + np.arange(size), _inverses([hessian for _, hessian in members])))

    def __call__(self, gradient: Array) -> Array:
        scaled = gradient.copy()
        for index, inverse in self._groups:
            scaled[index] = (inverse @ gradient[index][:, :, None])[:, :, 0]
        for part, inverse in self._diagonals:
            scaled[part] *= inverse
        for one, inverse in self._coarse:
            seen = one.seen(gradient)
            scaled[one.places] += one.back((inverse @ seen.reshape(-1)).reshape(seen.shape))
        return scaled


def _inverses(matrices: Sequence[Array]) -> Array:
    """The inverses of positive definite matrices of one size; of large ones by their Cholesky factors, in half the time."""
    if len(matrices[0]) <= _LARGE:
        return np.linalg.inv(np.stack(matrices))
    from scipy.linalg import lapack  # for import time

    found = np.empty((len(matrices), *matrices[0].shape))
    for inverse, matrix in zip(found, matrices, strict=True):
        root, failed = lapack.dpotrf(matrix, lower=1)
        lower, failed_too = lapack.dpotri(root, lower=1, overwrite_c=1)
        assert not failed
        assert not failed_too
        np.copyto(inverse, np.tril(lower))
        inverse += np.tril(lower, -1).T
    return found


def _stack(blocks: Blocks, subsets: Sequence[Clique], types: int) -> tuple[Array, dict[Clique, Integers]]:
    """The columns of all subsets of one side in one matrix, and the position of each subset."""
    parts, columns_of, at = [np.zeros((types, 0))], {}, 0
    for subset in dict.fromkeys(subsets):
        part = blocks.columns(subset)
        columns_of[subset] = np.arange(at, at + part.shape[1])
        parts.append(part)
        at += part.shape[1]
    return np.concatenate(parts, 1), columns_of


def together(one: Tilt, other: Tilt) -> Tilt:
    """The tilt that does what both do."""
    return {**one, **{clique: one[clique] + more if clique in one else more for clique, more in other.items()}}


def across(blocks: Blocks, tilt: Tilt) -> Tilt:
    """The part of a tilt that is of attributes of both sides."""
    return {clique: part for clique, part in tilt.items() if all(blocks.split(clique))}


def tilted(blocks: Blocks, base: Array, tilt: Tilt, *, one_parent: bool = False) -> Array:
    """The links base * exp(tilt), with the sum, or with ``one_parent`` the sum of each row, that the base has.

    A tilt that was fitted on some row types can be applied to others.

    Privacy: post-processing.
    """
    if not tilt:
        return base
    dual = _Dual(blocks, base, tilt, dict.fromkeys(tilt, 1.0), one_parent)
    return dual.links(dual.values)[0]


def fit(
    blocks: Blocks,
    base: Array,
    residuals: Tilt,
    ridges: Mapping[Clique, float],
    fine: Fine | None = None,
    *,
    one_parent: bool = False,
    start: Tilt | None = None,
    tolerance: float = 1e-6,
    steps: int = 400,
) -> tuple[Array, Tilt]:
    r"""The links M that minimise KL(M || base) + sum over residuals of ||R M - z||^2 / (2 ridge).

    They are base * exp(sum of theta), with one coefficient per coordinate of a measured residual. To first order each
    residual is shrunk as if its cells had prior variance t mu_0 about the base: t / (t mu_0 + s) of noise s stays out.
    Solved in the dual by L-BFGS, in the metric of its Hessian within each clique, which is taken anew a few times.

    Args:
        blocks: the blocks.
        base: links of the prior, shape (K, L), positive; their sum, or with ``one_parent`` the sum of each row, is kept.
        residuals: z, the measured residual of each clique in orthonormal coordinates, of the shape of its tilt.
        ridges: noise variance over overdispersion of each, s / t: how much it takes to move the fit.
        fine: of large cliques, what has that ridge, and the ridge of the rest.
        one_parent: whether each left row has one link exactly.
        start: a tilt to start from; cliques that it lacks start at 0.
        tolerance: of KL, per link: half the square of the relative L1 error that is left.
        steps: evaluations at most.

    Returns:
        Links per block, shape (K, L), and the tilt: theta of every clique.

    Source: [RS25] section 3 with the objective of `docs/mechanisms/links.md`.

    Privacy: post-processing.
    """
    if not residuals:
        return base, {}
    dual = _Dual(blocks, base, residuals, ridges, one_parent, fine)
    known = start or {}
    first = [np.reshape(known.get(clique, np.zeros_like(z)), -1) for clique, z in residuals.items()]
    theta, links = _descend(dual, np.concatenate(first), tolerance, steps)
    parts = np.split(theta, np.cumsum([size for size, _ in dual.cliques.values()])[:-1])
    return links, {c: part.reshape(shape) for (c, (_, shape)), part in zip(dual.cliques.items(), parts, strict=True)}


def _descend(dual: _Dual, theta: Array, tolerance: float, steps: int) -> tuple[Array, Array]:
    """Minimise the dual by L-BFGS with backtracking: (theta, links)."""
    value, gradient, links = dual.value(theta)
    memory: list[tuple[Array, Array]] = []
    for step in range(steps):
        if step in _METRIC:
            metric = _Metric(dual, links)
        if 0.5 * float(gradient @ metric(gradient)) <= tolerance * dual.total:
            break
        ahead = _direction(gradient, metric, memory)
        size, slope = 1.0, float(gradient @ ahead)
        while True:
            lower, new, links = dual.value(theta + size * ahead)
            if lower <= value + 1e-4 * size * slope + 1e-13 * abs(value) or size < _SMALLEST:
                break
            size /= 2
        moved, turned = size * ahead, new - gradient
        theta, value, gradient = theta + moved, lower, new
        if float(moved @ turned) > 0:
            memory = [*memory[1 - _MEMORY :], (moved, turned)]
    return theta, links


def _direction(gradient: Array, metric: _Metric, memory: Sequence[tuple[Array, Array]]) -> Array:
    """L-BFGS's two loops: minus an approximate inverse Hessian, which starts as the metric, times the gradient."""
    ahead, scales = -gradient, []
    for moved, turned in reversed(memory):
        scale = (moved @ ahead) / (moved @ turned)
        ahead = ahead - scale * turned
        scales.append(scale)
    ahead = metric(ahead)
    for (moved, turned), scale in zip(memory, reversed(scales), strict=True):
        ahead = ahead + (scale - (turned @ ahead) / (moved @ turned)) * moved
    return ahead
