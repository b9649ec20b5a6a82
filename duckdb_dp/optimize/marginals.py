"""Weights of measured marginals: how much of the budget each candidate marginal gets.

With precision u_a >= 0 for the cells of marginal a, the residual of tau is known with precision

    p_tau = sum over a containing tau of u_a / n_{a - tau},

and the workload's total squared error is sum_tau E_tau / p_tau, E_tau its energy on that residual. The budget is
sum u_a for Gaussian noise: convex, so that one search with a certificate is enough. For Laplace noise it is sum theta_a
with u = theta^2 (up to a constant), which is not convex: a few searches.

Source: [HDMM18] section 8; the certificate is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[np.float64]

STEPS = 500
"""Most steps of a search."""

SMALL = 1e-7
"""Shares of the budget below this are not spent, where the rest can do without."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares:
    """How the budget is split over the candidates.

    Attributes:
        shares: of the privacy cost, sum 1: u for Gaussian noise, theta for Laplace noise.
        error: sum_tau E_tau / p_tau at privacy cost 1, with u = theta^2 for Laplace noise.
        bound: no split of Gaussian noise over these candidates has a smaller error; 0 for Laplace noise.
    """

    shares: Array
    error: float
    bound: float


def split(coverage: "csr_array", energies: Array, order: int, starts: Sequence[Array]) -> Shares:
    """The best split found.

    Args:
        coverage: P, shape (residuals, candidates): 1 / n_{a - tau} where a contains tau.
        energies: E, positive, shape (residuals,).
        order: 2 for Gaussian noise, 1 for Laplace noise.
        starts: shares to start from, each of shape (candidates,); scaled to sum 1.

    Privacy: post-processing of public queries.
    """
    transposed = coverage.T.tocsr()
    best: Shares | None = None
    for start in starts:
        theta = _search(coverage, transposed, energies, order, np.maximum(start, 0.0))
        for shares in (_shares(theta, order), _pruned(coverage, _shares(theta, order))):
            error = _error(coverage, energies, shares, order)
            if best is None or error < best.error:
                best = Shares(shares=shares, error=error, bound=0.0)
    assert best is not None
    if order == 1:
        return best
    slope = transposed @ (energies / (coverage @ best.shares) ** 2)
    # Convex and homogeneous: at least 2 f c - c^2 max slope for every c, and the best c is f / max slope.
    return Shares(shares=best.shares, error=best.error, bound=best.error**2 / float(slope.max()))


def _search(coverage: "csr_array", transposed: "csr_array", energies: Array, order: int, start: Array) -> Array:
    """Theta after L-BFGS-B on log(|theta|^2 error), which does not change with theta's scale."""
    from scipy.optimize import Bounds, minimize  # 0.1 s: only who plans pays for it

    def value_and_slope(theta: Array) -> tuple[float, Array]:
        known = coverage @ (theta * theta)
        error = float((energies / known).sum())
        slope = -2 * theta * (transposed @ (energies / known**2)) / error
        if order == 1:
            total = float(theta.sum())
            return 2 * np.log(total) + np.log(error), slope + 2 / total
        total = float(theta @ theta)
        return np.log(total) + np.log(error), slope + 2 * theta / total

    theta = start / start.sum() if order == 1 else np.sqrt(start / start.sum())
    options: dict[str, Any] = {"maxiter": STEPS, "maxfun": 2 * STEPS, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9}
    # In units of the mean start, so that a first step along the gradient has a sensible length.
    unit = float(theta[theta > 0].mean())
    found = minimize(
        lambda x: (lambda pair: (pair[0], pair[1] * unit))(value_and_slope(x * unit)),
        theta / unit,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(1e-12, np.inf),
        options=options,
    )
    return np.asarray(found.x, dtype=np.float64) * unit


def _shares(theta: Array, order: int) -> Array:
    shares = theta**order
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def _pruned(coverage: "csr_array", shares: Array) -> Array:
    """Without the candidates that get next to nothing, unless a residual would be left without any."""
    kept = np.where(shares > SMALL, shares, 0.0)
    if not (coverage @ kept > 0).all():
        return shares
    return np.asarray(kept / kept.sum(), dtype=np.float64)


def _error(coverage: "csr_array", energies: Array, shares: Array, order: int) -> float:
    return float((energies / (coverage @ (shares ** (3 - order)))).sum())
