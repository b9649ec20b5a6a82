"""The Gaussian strategy of least total squared error, with a proved bound on how far from optimal it is.

Given G = S S^T, n x n, the sum of weight * q^T q over the queries q:

    minimise tr(G V^+)   over V = B^T B with diag(V) <= 1 and range(V) >= range(G).

diag(V) is the privacy cost of B x + N(0, I) per cell, so the minimum is the total squared error at privacy cost 1; at
cost beta it is divided by beta. For any lambda >= 0 with sum 1, and M = S^T diag(lambda) S,

    tr(M^{1/2})^2 <= minimum                                          (dual bound: no strategy can do better)
    V = S M^{-1/2} S^T / max(v), v = diag(S M^{-1/2} S^T), has error tr(M^{1/2}) max(v).

Both meet where v is constant wherever lambda > 0. The fixed point lambda <- lambda v / sum(lambda v) climbs to there;
so does lambda <- lambda v^2, twice as fast, which in x = sqrt(lambda) is a unit step along the gradient of
log tr(M^{1/2}). So L-BFGS in x starts at its natural scale and needs no line search to speak of. Steps, each one r x r
eigendecomposition per block, to a gap of 1e-3 as measured (dual against max(v), no scaling of columns):

    |                                | affine 50^2, | abs 100^2, | 60 random  | the same, weights | prefix |
    |                                | centred      | centred    | 0/1, n 200 | 1e-3 to 1e3       | 256    |
    | fixed point, lambda v          | 376          | 565        | 54         | 381               | 31     |
    | lambda v^2                     | 188          | 283        | 27         | 191               | 15     |
    | lambda v^3 (unstable from v^4) | 126          | 189        | 18         | 128               | 11     |
    | lambda v^2, Anderson           | 63           | 181        | 12         | never             | 7      |
    | lambda v^2, Nesterov, restarts | 33           | 37         | 39         | 46                | 7      |
    | L-BFGS in sqrt(lambda): here   | 30           | 43         | 12         | 23                | 7      |

An interior-point Newton method took 8 to 20 steps, each 15 to 100 times as dear: its Hessian is p x p, p cells.
"""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from duckdb_dp.errors import DPError
from duckdb_dp.linop.threads import one_thread
from duckdb_dp.optimize.cells import reduce_factor, reduce_gram

if TYPE_CHECKING:
    from duckdb_dp.optimize.cells import Array, Cells

_EPS = float(np.finfo(np.float64).eps)
_MEMORY = 10  # pairs that L-BFGS remembers; 5 and 20 need about as many steps
_FEW = 128  # cells up to which linear algebra has one thread anyway; a busy machine takes 1,024 cells 5 times as long by two
_MANY = 512  # cells from which a coarse start pays, unless a step is cheap: few queries on many cells
_SMOOTH = 0.05  # mean second difference of log(lambda / |s|); ranges have 1e-3 to 3e-3, unordered cells 0.4 and more
_STALLED = 1e-6  # a stride this short means that rounding, not the step, decides: no better proof is to be had


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Strategy:
    """A strategy B and the proof of how good it is.

    Attributes:
        matrix: B, shape `(m, n)`, m = rank(G); the largest squared column norm is 1, up to rounding. No rows where the
            workload is all zeros.
        primal: tr(G (B^T B)^+), the total squared error at privacy cost 1.
        dual: No strategy of this family has a total squared error below this.
        weights: The lambda that proves it: one per cell, >= 0, of sum 1, dual = tr((S^T diag(lambda) S)^{1/2})^2.
        steps: How many lambdas were tried.

    Privacy: public; measuring B x + N(0, I / beta) spends privacy cost beta (rho = beta / 2).
    """

    matrix: Array
    primal: float
    dual: float
    weights: Array
    steps: int

    @property
    def gap(self) -> float:
        """primal / dual - 1: the error is at most this much, relatively, above the least possible."""
        return self.primal / self.dual - 1.0 if self.primal > 0 else 0.0


def solve(
    gram: Array | None = None, factor: Array | None = None, *, tol: float = 1e-3, max_steps: int = 2000
) -> Strategy:
    """The Gaussian strategy with the least total squared error on a workload, to within a certified gap.

    min tr(G (B^T B)^+) subject to |b_i|^2 <= 1 for every column b_i of B.

    Source: [QS26] section 6.3 for the problem; the dual bound is our own.

    Privacy: post-processing of public queries; spends nothing.

    Args:
        gram: G, shape `(n, n)`; or
        factor: S with G = S S^T, shape `(n, r)`: column q is a query over the n cells times the root of its weight.
            More exact than its Gram matrix, and much cheaper where r is below n.
        tol: The gap to stop at, at least 1e-8.
        max_steps: The best strategy so far is returned after so many steps, whatever its `gap`.

    Raises:
        DPError: If not exactly one of `gram` and `factor` is given, or it is no finite matrix of the right shape, or
            `gram` is not symmetric positive semidefinite, or `tol` or `max_steps` is too small.
    """
    if not (tol >= 1e-8 and max_steps >= 1):
        raise DPError(
            f"tol {tol} and max_steps {max_steps}: double precision proves gaps from 1e-8 up, in 1 step or more."
        )
    given = _checked(gram, factor)
    scale = float(np.abs(given).max(initial=0.0))
    if scale == 0.0:
        n = len(given)
        return Strategy(matrix=np.zeros((0, n)), primal=0.0, dual=0.0, weights=np.full(n, 1.0 / max(n, 1)), steps=0)
    if not 1e-100 < scale < 1e100:
        raise DPError(f"The largest entry is {scale:g}: weights between 1e-100 and 1e100 keep squares inside a double.")
    with one_thread(with_scipy=True) if max(given.shape) > _FEW else nullcontext():
        cells = reduce_gram(given / scale) if gram is not None else reduce_factor(given / scale)
        point, steps = _search(cells.blocks, tol, max_steps)
        return _assemble(cells, point, steps, scale if gram is not None else scale * scale)


def _checked(gram: Array | None, factor: Array | None) -> Array:
    """The one of the two that is given, a finite matrix."""
    given = [np.asarray(matrix, dtype=np.float64) for matrix in (gram, factor) if matrix is not None]
    if len(given) != 1:
        raise DPError(f"A strategy is found for one workload: give gram or factor, not {len(given)} of the two.")
    if given[0].ndim != 2 or not np.isfinite(given[0]).all():
        raise DPError(f"A workload is a finite matrix; found shape {given[0].shape}, or entries that are not finite.")
    if gram is not None and given[0].shape[0] != given[0].shape[1]:
        raise DPError(f"A Gram matrix is square; found shape {given[0].shape}. Give factor=S for G = S S^T.")
    return given[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Point:
    """One lambda, with V = sum over blocks of T diag(1 / sigma) T^T before scaling, T = S U, M = U diag(sigma)^2 U^T.

    `cost` is what each cell's diagonal entry of V is divided by: v where that pays, else max(v) for all.
    """

    weights: Array
    bases: list[Array]
    sigmas: list[Array]
    trace: float
    v: Array
    cost: Array
    primal: float
    dual: float

    @property
    def gap(self) -> float:
        return self.primal / self.dual - 1.0


def _search(blocks: tuple[Array, ...], tol: float, max_steps: int) -> tuple[_Point, int]:
    """The best point on the way of L-BFGS down -log tr(M^{1/2}) in x = sqrt(lambda), and the steps taken."""
    # A floor under lambda costs at most tol / 1000 of the dual bound, keeps M invertible and every cell in play.
    floor = 1e-3 * tol / len(blocks[0])
    x = _start(blocks, tol)
    slope, direction = np.zeros_like(x), np.zeros_like(x)
    value, stride, step = np.inf, 1.0, 0
    history: deque[tuple[Array, Array]] = deque(maxlen=_MEMORY)
    best: _Point | None = None
    while (best is None or best.gap > tol) and step < max_steps and stride > _STALLED:
        step += 1
        trial = x + stride * direction
        weights = np.maximum(trial * trial / (trial @ trial), floor)
        point = _evaluate(blocks, weights / weights.sum())
        if best is None or point.gap < best.gap:
            best = point
        if -np.log(point.trace) > value + 1e-4 * stride * (slope @ direction) + 1e-13:  # too far, beyond rounding
            stride /= 2.0
            if stride < 0.2:
                history.clear()
                direction = -slope
            continue
        trial_slope = trial / (trial @ trial) * (1.0 - point.v / point.trace)
        move, turn = trial - x, trial_slope - slope
        if np.isfinite(value) and move @ turn > 1e-10 * (turn @ turn):
            history.append((move, turn))
        x, slope, value, stride = trial, trial_slope, -np.log(point.trace), 1.0
        direction = _quasi_newton(history, slope)
    assert best is not None
    return best, step


def _start(blocks: tuple[Array, ...], tol: float) -> Array:
    """The first sqrt(lambda), of norm 1: lambda ~ |s_i|, on many cells corrected by the optimum for every other one.

    The correction is made only where it is smooth in the order of the cells. It costs a third of a step, and saves
    prefix and ranges on 512 cells or more one or two of their two or three steps to a gap of 1e-3.
    """
    lengths = np.sqrt(np.sum([(block * block).sum(axis=1) for block in blocks], axis=0))
    x: Array = np.sqrt(lengths)
    if _MANY <= len(x) <= 2 * max(block.shape[1] for block in blocks):
        coarse = [np.asarray(np.linalg.qr(block[::2].T, "r")).T for block in blocks]
        point, _ = _search(tuple(coarse), tol / 3, max_steps=8)  # a third: the interpolation takes its share
        correction = np.log(point.weights / lengths[::2])
        if np.abs(np.diff(correction, 2)).mean() < _SMOOTH:
            x *= np.exp(np.interp(np.arange(len(x)), np.arange(0, len(x), 2), correction) / 2)
    x /= np.linalg.norm(x)
    return x


def _quasi_newton(history: deque[tuple[Array, Array]], slope: Array) -> Array:
    """-H slope, with H the inverse Hessian that L-BFGS builds from past moves and the turns of the slope on them.

    Source: Nocedal and Wright, Numerical Optimization, algorithm 7.4. Without a history H is the identity.
    """
    direction, shares = -slope, []
    for move, turn in reversed(history):
        shares.append((move @ direction) / (move @ turn))
        direction = direction - shares[-1] * turn
    if history:
        move, turn = history[-1]
        direction = direction * (move @ turn) / (turn @ turn)
    for (move, turn), share in zip(history, reversed(shares), strict=True):
        direction = direction + (share - (turn @ direction) / (move @ turn)) * move
    return direction if direction @ slope < 0 else -slope


def _evaluate(blocks: tuple[Array, ...], weights: Array) -> _Point:
    """Both sides of the certificate at one lambda."""
    spectra = [_spectrum(np.sqrt(weights)[:, None] * block) for block in blocks]
    bases = [block @ vectors for block, (_, _, vectors) in zip(blocks, spectra, strict=True)]
    sigmas = [sigma for sigma, _, _ in spectra]
    trace = float(sum(sigma.sum() for sigma in sigmas))
    v = np.sum([(basis * basis) @ (1.0 / sigma) for basis, sigma in zip(bases, sigmas, strict=True)], axis=0)
    cost, primal = np.full_like(v, v.max()), trace * float(v.max())
    if all(block.shape[1] == np.count_nonzero(block.any(axis=1)) for block in blocks):
        # Full rank: V scaled to unit diagonal entry by entry keeps its range, and its gap is of second order. Prefix on
        # 1024 cells: 1.6e-3 and 5.6e-4 after 2 and 3 steps, where division by max(v) has 0.18 and 0.09. (Queries whose
        # weights differ by millions are the exception, far from the optimum.)
        single = sum(
            float(np.square((basis * (weights * np.sqrt(v))[:, None]).T @ block).sum(axis=1) @ sigma**-3.0)
            for block, basis, sigma in zip(blocks, bases, sigmas, strict=True)
        )
        if single < primal:
            cost, primal = v, single
    dual = float(sum(proved.sum() for _, proved, _ in spectra)) ** 2
    return _Point(weights=weights, bases=bases, sigmas=sigmas, trace=trace, v=v, cost=cost, primal=primal, dual=dual)


def _spectrum(matrix: Array) -> tuple[Array, Array, Array]:
    """Singular values of a `(p, r)` matrix, what rounding leaves proved of them, and the right singular vectors.

    From the eigenvalues of the r x r Gram matrix; by an SVD, three times slower, where squaring would lose digits that
    matter (affine queries with weights from 1e-3 to 1e3 stall at a gap of 7e-3 without it).
    """
    squares, vectors = np.linalg.eigh(matrix.T @ matrix)
    rounding = len(squares) * _EPS
    if squares[0] > 1e-11 * squares[-1]:
        return np.sqrt(squares), np.sqrt(np.maximum(squares - rounding * squares[-1], 0.0)), vectors
    _, sigma, transposed = np.linalg.svd(np.linalg.qr(matrix, "r"))
    return np.maximum(sigma, _EPS * sigma[0]), np.maximum(sigma - rounding * sigma[0], 0.0), transposed.T


def _assemble(cells: Cells, point: _Point, steps: int, scale: float) -> Strategy:
    """B = diag(sigma)^{-1/2} T^T with its columns scaled to the privacy cost, and its error computed afresh from it."""
    from scipy.linalg import cho_factor, cho_solve  # 0.1 s: only who plans pays for it

    parts = [
        (basis / np.sqrt(sigma)).T / np.sqrt(point.cost) for basis, sigma in zip(point.bases, point.sigmas, strict=True)
    ]
    largest = np.sqrt(np.sum([(part * part).sum(axis=0) for part in parts], axis=0).max())
    parts = [part / largest for part in parts]
    primal = 0.0
    for part, block in zip(parts, cells.blocks, strict=True):  # tr(G V^+) = |(B B^T)^{-1} B S|^2, B of full row rank
        answers = cho_solve(cho_factor(part @ part.T), part @ block)
        primal += float(np.square(answers).sum())
    matrix = np.concatenate([cells.expand(b, part) for b, part in enumerate(parts)])
    matrix.setflags(write=False)
    members = np.bincount(cells.label[cells.label >= 0])
    weights = np.where(cells.label >= 0, (point.weights / members)[cells.label], 0.0)
    return Strategy(matrix=matrix, primal=primal * scale, dual=point.dual * scale, weights=weights, steps=steps)
