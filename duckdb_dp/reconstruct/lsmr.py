"""Least squares estimates of joint cells from several measured marginals, using only products with the strategies."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, LinOp

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


def least_squares(
    domain: Domain,
    clique: Clique,
    strategies: Mapping[Clique, LinOp],
    noisy: Mapping[Clique, Array],
    variances: Mapping[Clique, float],
) -> Array:
    """The cells of a clique that fit all measurements best: min_x sum_m |B_m M_m x - y_m|^2 / s_m, of least norm.

    M_m sums the cells to the measured marginal. Memory: a few arrays of the clique's cells; no matrix.

    Args:
        domain: the domain.
        clique: attributes that hold those of every measurement.
        strategies: measured clique -> B_m.
        noisy: measured clique -> y_m, flat.
        variances: measured clique -> s_m.

    Returns:
        Array of shape ``(cells,)``.

    Source: [HDMM18] section 10; Fong and Saunders 2011 (LSMR).

    Privacy: post-processing.
    """
    from scipy.sparse.linalg import lsmr  # 0.1 s: only who needs it pays for it

    scales = {measured: variance**-0.5 for measured, variance in variances.items()}
    answers = np.concatenate([noisy[measured] * scales[measured] for measured in strategies])
    operator = _operator(domain, clique, strategies, scales)
    solved = lsmr(operator, answers, atol=1e-14, btol=1e-14, conlim=0, maxiter=max(1000, 4 * operator.shape[1]))
    return np.asarray(solved[0], dtype=np.float64)


def _operator(
    domain: Domain, clique: Clique, strategies: Mapping[Clique, LinOp], scales: Mapping[Clique, float]
) -> "LinearOperator":
    from scipy.sparse.linalg import LinearOperator

    shape = domain.shape(clique)
    ends = np.cumsum([strategy.shape[0] for strategy in strategies.values()])
    gone = {
        measured: tuple(axis for axis, name in enumerate(clique) if name not in measured) for measured in strategies
    }

    def forward(cells: Array) -> Array:
        table = cells.reshape(shape)
        return np.concatenate(
            [
                scales[measured] * strategy.matvec(table.sum(axis=gone[measured]).reshape(-1))
                for measured, strategy in strategies.items()
            ]
        )

    def backward(answers: Array) -> Array:
        cells = np.zeros(shape)
        for (measured, strategy), block in zip(strategies.items(), np.split(answers, ends[:-1]), strict=True):
            marginal = scales[measured] * strategy.rmatvec(block.reshape(-1))
            cells += np.expand_dims(marginal.reshape(domain.shape(measured)), gone[measured])
        return cells.reshape(-1)

    return LinearOperator(
        (int(ends[-1]), domain.cells(clique)), matvec=forward, rmatvec=backward, dtype=np.dtype(np.float64)
    )
