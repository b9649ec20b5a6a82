"""Weighted marginals of one domain as an operator, and the algebra of their Gram matrices.

A subset a of the d attributes is a number below 2^d whose most significant bit is the first attribute: position a of an
array of shape (2,) * d in row-major order. G(v) = sum_a v(a) H(a), H(a) the Kronecker product of I where a has the
attribute and 11^T where it has not. All of them commute: they share their eigenspaces, the residuals, and so products,
inverses and pseudo-inverses are products and inverses of 2^d eigenvalues, in O(d 2^d) operations.

Source: [HDMM18] section 7.
"""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np

from duckdb_dp.linop.base import UP, Array, Explicit, Integers
from duckdb_dp.linop.compose import Kron, Stack, Weighted
from duckdb_dp.linop.intervals import Identity, Total


def characteristic(sizes: tuple[int, ...]) -> Array:
    """c(a) = product of the sizes of the attributes outside a, shape (2^d,). [HDMM18] Definition 21."""
    found = np.ones(1)
    for n in sizes:
        found = np.multiply.outer(found, np.array([float(n), 1.0])).reshape(-1)
    return found


def multiplicity(sizes: tuple[int, ...]) -> Array:
    """Dimension of every residual space, prod_{i in a} (n_i - 1), shape (2^d,)."""
    found = np.ones(1)
    for n in sizes:
        found = np.multiply.outer(found, np.array([1.0, n - 1.0])).reshape(-1)
    return found


def eigenvalues(sizes: tuple[int, ...], weights: Array) -> Array:
    """kappa = Y w: the eigenvalue of G(w) on each residual, kappa(a) = sum_{b >= a} w(b) c(b). [HDMM18] Theorem 9."""
    return _supersets(weights * characteristic(sizes), 1.0)


def from_eigenvalues(sizes: tuple[int, ...], kappa: Array) -> Array:
    """w = Y^-1 kappa, the inverse of ``eigenvalues``."""
    return _supersets(kappa, -1.0) / characteristic(sizes)


def multiply(sizes: tuple[int, ...], u: Array, v: Array) -> Array:
    """w with G(u) G(v) = G(w). [HDMM18] Theorem 7."""
    return from_eigenvalues(sizes, eigenvalues(sizes, u) * eigenvalues(sizes, v))


def invert(sizes: tuple[int, ...], weights: Array) -> Array:
    """v with G(v) the pseudo-inverse of G(w), the inverse where there is one. [HDMM18] Theorem 8."""
    kappa = eigenvalues(sizes, weights)
    kept = kappa > 1e-12 * kappa.max(initial=0.0)
    return from_eigenvalues(sizes, np.where(kept, 1 / np.where(kept, kappa, 1.0), 0.0))


def gram_product(sizes: tuple[int, ...], weights: Array, cells: Array) -> Array:
    """G(w) x for x (cells, ...), one marginal after the other and no matrix."""
    last = cells.shape[1:]
    table = cells.reshape(*sizes, *last)
    return _gram_product(weights.reshape((2,) * len(sizes)), table, 0).reshape(-1, *last)


@final
@dataclass(frozen=True, eq=False)
class Marginals(Explicit):
    """M(theta): every marginal a of a table, times its weight theta(a) >= 0; marginals of weight 0 are left out.

    L1 sensitivity sum theta, L2 sensitivity |theta|; B^T B = G(theta^2).

    Attributes:
        sizes: sizes of the attributes.
        weights: theta, shape (2^d,).

    Source: [HDMM18] Definition 20, Proposition 7.
    """

    sizes: tuple[int, ...]
    weights: Array

    @cached_property
    def stack(self) -> Stack:
        """The same as a union of Kronecker products."""
        chosen = []
        for kept, weight in zip(itertools.product((0, 1), repeat=len(self.sizes)), self.weights.tolist(), strict=True):
            if weight > 0:
                factors = (Identity(n) if one else Total(n) for n, one in zip(self.sizes, kept, strict=True))
                chosen.append(Weighted(weight, Kron(tuple(factors))))
        return Stack(tuple(chosen))

    @property
    def shape(self) -> tuple[int, int]:
        return self.stack.shape[0], math.prod(self.sizes)

    @property
    def steps(self) -> int:
        return self.stack.steps

    @property
    def squared_sensitivity(self) -> float:
        return float((self.weights**2).sum()) * UP

    @property
    def sensitivity(self) -> float:
        return float(self.weights.sum()) * UP

    def columns(self, order: int) -> Array:
        return np.full(self.shape[1], float((self.weights**order).sum()))

    def row(self, index: int) -> list[Fraction]:
        return self.stack.row(index)

    def exact(self, counts: Integers, index: int) -> Fraction:
        return self.stack.exact(counts, index)

    def matvec(self, cells: Array) -> Array:
        return self.stack.matvec(cells)

    def rmatvec(self, answers: Array) -> Array:
        return self.stack.rmatvec(answers)

    def gram(self) -> Array:
        return gram_product(self.sizes, self.weights**2, np.eye(self.shape[1]))

    def estimate(self, noisy: Array) -> Array:
        return gram_product(self.sizes, invert(self.sizes, self.weights**2), self.rmatvec(noisy))


def _supersets(values: Array, sign: float) -> Array:
    """Sum over all supersets (sign 1), or its inverse (sign -1)."""
    found = values.copy()
    half = 1
    while half < len(values):
        pairs = found.reshape(-1, 2, half)
        pairs[:, 0] += sign * pairs[:, 1]
        half *= 2
    return found


def _gram_product(weights: Array, table: Array, axis: int) -> Array:
    """sum_a w(a) H(a) x over the attributes from ``axis`` on."""
    if weights.ndim == 0:
        return weights * table
    found = _gram_product(weights[1], table, axis + 1) if weights[1].any() else np.zeros_like(table)
    if weights[0].any():
        found = found + _gram_product(weights[0], table.sum(axis=axis, keepdims=True), axis + 1)
    return np.asarray(found, dtype=np.float64)
