"""Large strategies that are a function of how fast counts vary: circulant matrices on a ring, seen through its mirrors."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from duckdb_dp.linop.base import Array, Explicit
from duckdb_dp.linop.convolution import Convolution


def period(kind: str, n: int) -> int:
    """Cells of the ring of ``fold``."""
    return {"ring": n, "range": 2 * (n + 1)}.get(kind, 4 * n + 2)


def fold(kind: str, image: Array, n: int) -> tuple[Array, Array]:
    """(near, far) of the n x n matrix near_|i-j| + far_(i+j) that a circulant matrix is on functions of one symmetry.

    'range': odd about a zero beyond each end; 'prefix': odd about a zero after the last cell, even about the first edge;
    'suffix': the same from the other end; 'ring': any. The entry (p, q) of the circulant matrix is image_(p-q), and the
    eigenvalues of both are the Fourier transform of the image: so products, powers and inverses are those of the transform.

    Args:
        kind: one of these.
        image: symmetric, shape (``period``,).
        n: number of cells.
    """
    apart, added = np.arange(n), np.arange(2 * n - 1)
    if kind == "ring":
        return image[apart], np.zeros(2 * n - 1)
    around = period(kind, n)
    if kind == "range":
        return image[apart], -image[(added + 2) % around]
    near = image[apart] - image[2 * n + 1 + apart]
    far = image[added + 1] - image[(2 * n + 2 + added) % around]
    return near, far if kind == "prefix" else far[::-1].copy()


@final
@dataclass(frozen=True, eq=False)
class Waves(Explicit):
    """B = R diag(scale), R what ``fold`` makes of an image, with products and variances in O(n log^2 n).

    All entries of R are doubles; an entry of B is the exact product of two doubles.

    Attributes:
        kind: as in ``fold``.
        image: half of R's image, ``rounded``: the entries 0 .. period / 2.
        inverse: the same of R^-1, in any doubles.
        scale: positive, shape (n,).
    """

    kind: str
    image: Array
    inverse: Array
    scale: Array
    cancels: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.scale), len(self.scale)

    @property
    def steps(self) -> int:
        return 4  # a count becomes a double and is scaled, and the product is within three roundings

    @cached_property
    def forward(self) -> Convolution:
        """R."""
        return Convolution(*fold(self.kind, self._whole(self.image), len(self.scale)))

    @cached_property
    def backward(self) -> Convolution:
        """R^-1."""
        return Convolution(*fold(self.kind, self._whole(self.inverse), len(self.scale)))

    @cached_property
    def covariance(self) -> Convolution:
        """R^-2."""
        return self._square(self.inverse)

    def columns(self, order: int) -> Array:
        if order == 2:
            square = self._square(self.image)
            return np.asarray((square.near[0] + square.far[::2]) * self.scale**2, dtype=np.float64)
        if self.kind == "ring":
            return float(np.abs(self.forward.near).sum()) * self.scale
        # No entry is below 0 but by rounding, 1e-14 of the largest: 1e-12 of the sum, and ``sensitivity`` adds 1e-11.
        return self.forward.roughly(np.ones(len(self.scale))) * self.scale

    def row(self, index: int) -> list[Fraction]:
        entries = zip(self.forward.row(index).tolist(), self.scale.tolist(), strict=True)
        return [Fraction(value) * Fraction(scale) for value, scale in entries]

    def matvec(self, cells: Array) -> Array:
        return self.forward.times(self._scaled(cells, self.scale))

    def magnitude(self, cells: Array) -> Array:
        return self.forward.sizes(self._scaled(cells, self.scale))

    def rmatvec(self, answers: Array) -> Array:
        return self._scaled(self.forward.times(answers), self.scale)

    def estimate(self, noisy: Array) -> Array:
        return self._scaled(self.backward.roughly(noisy), 1 / self.scale)

    def squares(self, kind: str, width: int) -> Array:
        """q (B^T B)^-1 q^T of every query of a kind: 'prefix', 'suffix', and 'width' of the same scale everywhere."""
        near, far, weights = self.covariance.near, self.covariance.far, 1 / self.scale
        if kind == "width":
            weight = np.concatenate([[width], 2.0 * np.arange(width - 1, 0, -1)])
            return np.full(len(weights) - width + 1, float(weight @ near[:width]) * float(weights[0]) ** 2)
        if kind == "suffix":
            far, weights = far[::-1], weights[::-1]
        added = weights * (2 * Convolution(near, far).before(weights) + weights * (near[0] + far[::2]))
        return np.cumsum(added)[::-1] if kind == "suffix" else np.cumsum(added)

    def _whole(self, half: Array) -> Array:
        around = period(self.kind, len(self.scale))
        return np.concatenate([half, half[(around - 1) // 2 : 0 : -1]])

    def _square(self, half: Array) -> Convolution:
        """What ``fold`` makes of the square of a matrix, given half of its image."""
        values = np.fft.rfft(self._whole(half)).real
        return Convolution(
            *fold(self.kind, np.fft.irfft(values**2, period(self.kind, len(self.scale))), len(self.scale))
        )

    def _scaled(self, table: Array, scale: Array) -> Array:
        return np.asarray(table * scale.reshape(-1, *[1] * (table.ndim - 1)), dtype=np.float64)
