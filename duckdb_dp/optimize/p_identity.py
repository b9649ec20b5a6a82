"""Strategies for Laplace noise: p-Identity matrices (the n cells and p weighted sums of them), found by L-BFGS.

    A(Theta) = [I; Theta] D,   D = diag(1 + 1^T Theta)^-1,   Theta >= 0 of shape (p, n)

has L1 sensitivity 1 whatever Theta is, and full rank, so that tr(G (A^T A)^-1) is minimised without constraints but
Theta >= 0. By Woodbury's identity, with E = D^-1 and K = (I + Theta Theta^T)^-1 of shape (p, p),

    (A^T A)^-1 = E (I - Theta^T K Theta) E,   error = tr(E G E) - tr(K Theta E G E Theta^T),

so that error and gradient take O(p n^2) operations.

The problem is not convex: the best of a few searches from random starts.

Source: [HDMM18] Definitions 13 and 14, Theorem 17.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.linop.threads import one_thread
from duckdb_dp.optimize.layers import SHARES, hats

Array = NDArray[np.float64]

STEPS = 300
"""Most steps of a search where there are several."""

LEAST = 100
"""Steps that the largest problems get too."""

WORK = 2e11
"""Multiplications, roughly, that a search may take: seconds. It limits restarts first, then steps."""

SCALES = (1.0, 0.3, 3.0)
"""Sizes of the random starts: which one finds the better optimum differs from workload to workload."""

TREES = (0.1, 0.3)
"""Sizes of the tree of intervals that searches start from besides the random starts; 'width-32' on 256 cells ends 0.6 %
lower in RMSE from there. Where only one search is affordable, the best start is taken, whatever it is."""

HEAT = 60
"""Steps after which searches on many cells are compared."""

BEHIND = 1.15
"""Searches are given up whose error is then this much above the least. In RMSE that is 7 %: of prefixes, ranges, circular
ranges and 'width-32' on 140 to 384 cells none that is given up would have ended as the best."""

REFINED = 100
"""Steps of a search from a strategy on coarser cells."""

FEW = 128
"""Cells up to which every search is cheap enough to end."""

LARGEST = 1e4
"""Largest entry of Theta: beyond, the error is a difference of numbers too large for it."""

SMALL = 1e-9
"""Weights below this, of a column sum of 1, are left out."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PIdentity:
    """A p-Identity strategy.

    Attributes:
        theta: Theta, shape (p, n); rows of zeros are left out.
        error: tr(G (A^T A)^-1), the total squared error of unit-variance noise at L1 sensitivity 1.
        steps: evaluations of the error.
        gain: the share of the error at the start that the search has gained, where there was one start.

    Privacy: public; built from queries.
    """

    theta: Array
    error: float
    steps: int
    gain: float = 0.0

    @property
    def matrix(self) -> Array:
        """A(Theta), shape (n + p, n), of column sums 1 up to rounding."""
        p, n = self.theta.shape
        scale = 1 / (1 + self.theta.sum(axis=0))
        found = np.zeros((n + p, n))
        found[np.arange(n), np.arange(n)] = scale
        np.multiply(self.theta, scale, out=found[n:])
        return found


def optimise(
    gram: Array, p: int, rng: np.random.Generator, *, restarts: int = 8, starts: Sequence[Array] = ()
) -> PIdentity:
    """The best p-Identity strategy found for a Gram matrix (n, n).

    Args:
        gram: G, positive definite or not, with no zero on its diagonal.
        p: number of sums besides the cells.
        rng: of the random starts.
        restarts: how many random starts, fewer where ``WORK`` would be exceeded.
        starts: further starts, shapes (p, n).

    Privacy: post-processing of public queries.
    """
    n = len(gram)
    scale = float(np.trace(gram)) / n
    problem = _Problem(gram / scale, p)
    # One search costs about 6 p n (n + p) multiplications a step. Where only one is affordable it may take longer:
    # after 60 steps prefixes on 1024 cells are at an error of 12.5, after 300 at 9.59, after 450 at 9.58.
    affordable = WORK / (6.0 * p * n * (n + p))
    restarts = max(1, min(restarts, int(affordable / STEPS))) if restarts else 0
    steps = int(min(STEPS if restarts > 1 else 1.5 * STEPS, max(LEAST, affordable)))
    points = [np.asarray(start, dtype=np.float64) for start in starts]
    points += [rng.random((p, n)) * SCALES[i % len(SCALES)] for i in range(restarts)]
    if restarts > 1 or steps < STEPS:
        points += [tree(n, p) * scale for scale in TREES]
    if steps < STEPS:
        # Prefixes on 1024 cells after 100 steps: 9.92 from a tree. On 4096: 14.1, and 63.8 from a random start.
        points = [min(points, key=problem.error)]
    with one_thread(with_scipy=True):
        found = _searched(problem, points, steps)
    return _trimmed(problem, min(found, key=problem.error), scale)


def refine(gram: Array, coarse: Array) -> PIdentity:
    """The p-Identity strategy found from one on coarser cells (``layers``), where the order of the cells means something.

    Args:
        gram: G, shape (n, n).
        coarse: a strategy of L1 sensitivity 1 on fewer cells, shape (p, k): p sums besides the cells.

    Privacy: post-processing of public queries.
    """
    n = len(gram)
    scale = float(np.trace(gram)) / n
    sums = coarse @ hats(n, coarse.shape[1])
    problem = _Problem(gram / scale, len(sums))
    start = min((share / (1 - share) * sums for share in SHARES), key=problem.error)
    with one_thread(with_scipy=True):
        found = _trimmed(problem, problem.search(start, REFINED), scale)
    return replace(found, gain=1 - found.error / scale / problem.error(start))


def _trimmed(problem: "_Problem", theta: Array, scale: float) -> PIdentity:
    """Without weights and rows that are next to nothing."""
    theta = np.where(theta > SMALL * (1 + theta.sum(axis=0)), theta, 0.0)
    theta = theta[theta.any(axis=1)]
    error = problem.error(theta) if len(theta) else float(np.trace(problem.gram))
    return PIdentity(theta=theta, error=error * scale, steps=problem.steps)


def _searched(problem: "_Problem", points: list[Array], steps: int) -> list[Array]:
    """Where the searches end; on many cells the hopeless ones are given up."""
    if len(points) == 1 or points[0].shape[1] <= FEW:
        return [problem.search(point, steps) for point in points]
    warm = [problem.search(point, HEAT) for point in points]
    errors = [problem.error(point) for point in warm]
    return [
        problem.search(point, steps - HEAT)
        for point, error in zip(warm, errors, strict=True)
        if error <= BEHIND * min(errors)
    ]


def tree(n: int, p: int) -> Array:
    """Sums over intervals of 2 n/p, 4 n/p, ..., n cells: about p of them, shape (p, n)."""
    rows: list[Array] = []
    cells = np.arange(n)
    width = math.ceil(2 * n / p)
    while len(rows) < p:
        rows += [((cells >= first) & (cells < first + width)).astype(np.float64) for first in range(0, n, width)]
        width = min(2 * width, n)
    return np.array(rows[:p])


def uniform(n: int, trace: float, total: float) -> float:
    """The best theta of [I; theta 1^T] / (1 + theta) for a Gram matrix b I + c 11^T of given trace and sum.

    error(theta) = (1 + theta)^2 (trace - theta^2 total / (1 + n theta^2)).
    """
    from scipy.optimize import minimize_scalar  # 0.1 s: only who plans pays for it

    def error(log: float) -> float:
        theta = math.exp(log)
        return float((1 + theta) ** 2 * (trace - theta**2 * total / (1 + n * theta**2)))

    grid = np.linspace(-12, 12, 97)
    best = float(grid[int(np.argmin([error(log) for log in grid.tolist()]))])
    refined = minimize_scalar(error, bounds=(best - 0.25, best + 0.25), method="bounded", options={"xatol": 1e-9})
    theta = math.exp(float(refined.x))
    return theta if error(math.log(theta)) < trace else 0.0


@final
class _Problem:
    """The error as a function of Theta, scaled to a Gram matrix of trace n."""

    def __init__(self, gram: Array, p: int) -> None:
        self.gram, self.p, self.steps = gram, p, 0
        self.diagonal = np.diag(gram).copy()

    def search(self, start: Array, steps: int) -> Array:
        """Theta after L-BFGS-B from a start."""
        from scipy.optimize import Bounds, minimize  # 0.1 s: only who plans pays for it

        found = minimize(
            self._value_and_slope,
            start.reshape(-1),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(0.0, LARGEST),
            options={"maxiter": steps, "maxfun": 2 * steps, "maxcor": 10, "ftol": 1e-10, "gtol": 1e-9},
        )
        theta: Array = np.asarray(found.x, dtype=np.float64).reshape(start.shape)
        return theta

    def error(self, theta: Array) -> float:
        """The error alone, for any number of rows.

        With Theta = U diag(s) V^T, Theta^T K Theta = V diag(s^2 / (1 + s^2)) V^T: where Theta is large, inverting
        I + Theta Theta^T would leave no digit of it, and even a negative error.
        """
        e = 1 + theta.sum(axis=0)
        _, s, v = np.linalg.svd(theta, full_matrices=False)
        rows = v * e
        return float((e * e) @ self.diagonal - (s**2 / (1 + s**2)) @ ((rows @ self.gram) * rows).sum(axis=1))

    def _terms(self, theta: Array) -> tuple[float, Array, Array, Array]:
        e: Array = 1 + theta.sum(axis=0)
        r = ((theta * e) @ self.gram) * e
        kernel = np.asarray(np.linalg.inv(np.eye(len(theta)) + theta @ theta.T), dtype=np.float64)
        k_s = kernel @ (r @ theta.T)
        both: Array = np.concatenate([kernel @ r, k_s], axis=1)
        return float((e * e) @ self.diagonal - np.trace(k_s)), e, kernel, both

    def _value_and_slope(self, flat: Array) -> tuple[float, Array]:
        self.steps += 1
        theta = flat.reshape(self.p, -1)
        error, e, kernel, both = self._terms(theta)
        n = theta.shape[1]
        k_r, k_s = both[:, :n], both[:, n:]
        slope = 2 * (k_s @ (kernel @ theta) - k_r)
        slope += 2 * (e * self.diagonal - (theta * k_r).sum(axis=0) / e)
        return error, slope.reshape(-1)
