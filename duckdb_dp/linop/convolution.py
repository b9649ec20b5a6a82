"""Products with a matrix of entries near_|i-j| + far_(i+j) by Fourier transforms, as exact as sums of products can be.

Both vectors are multiples of one power of two, and are cut into limbs: whole numbers of some bits. What is multiplied is cut
into limbs of as many bits. The product of two limbs is a vector of whole numbers, which Fourier transforms find up to an error
below 1/4, and so exactly after rounding. What is left is the sum of these vectors, to which its rounding errors are added.

The error. Transforms of length M = 2^p in doubles are within e = p eta of the exact ones, relatively in L2, eta = mu +
gamma_4 (sqrt 2 + mu) < 8 u where the roots of unity are within mu < u (Higham, Accuracy and Stability of Numerical Algorithms,
theorem 24.2, for factors of 2; larger ones round less). ``ETA`` is twice that, for transforms of real vectors. With a the kernel
and x what is multiplied, A their transforms, S = max |A|: what is lost in A, X and their product changes an entry by at most
(2 e + 4 u) |a| |x| (Cauchy and Schwarz, and Parseval), and what is lost on the way back by at most e |a * x| <= e S |x|. The
number of bits of a limb is chosen so that the sum of both, over all limbs of the kernel, is below 1/4: a limb of n numbers is no
longer than sqrt(n) times its largest.

Source: the limbs are the usual way to multiply large whole numbers by Fourier transforms.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.linop.base import UNIT, Array

LARGEST = 16
"""Most bits of a limb."""

ETA = 16 * UNIT
"""Relative error of one level of a Fourier transform."""

DIGITS = 62
"""Bits of what is multiplied, below its largest number, that count."""

Images = tuple[NDArray[np.complex128], NDArray[np.complex128]]
"""Transforms of ``near`` and of ``far``."""

LEAF = 512
"""Cells of a block whose sums are written out."""

WIDE = 48
"""Bits of what kernels are made of: of sums of two, and of sums of two of these, all are doubles."""


def rounded(vector: Array) -> Array:
    """The nearest multiples of a power of two, the same for all, with at most ``WIDE`` bits."""
    unit = 2.0 ** (math.frexp(float(np.abs(vector).max()))[1] - WIDE)
    return np.asarray(np.rint(vector / unit) * unit, dtype=np.float64)


@final
@dataclass(frozen=True, eq=False)
class Convolution:
    """The matrix of entries near_|i-j| + far_(i+j), shape (n, n).

    Attributes:
        near: shape (n,).
        far: shape (2 n - 1,).
    """

    near: Array
    far: Array

    @property
    def size(self) -> int:
        """Length of the transforms."""
        return 1 << (2 * len(self.near) - 1).bit_length()

    @cached_property
    def unit(self) -> float:
        """A power of two: for ``times``, all numbers are multiples of it, below 2^52 of it."""
        largest = max(float(np.abs(self.near).max()), float(np.abs(self.far).max()))
        return 2.0 ** (math.frexp(largest)[1] - 52)

    @cached_property
    def row_sum(self) -> float:
        """At least the sum of the sizes of any row's entries."""
        return float(2 * np.abs(self.near).sum() + np.abs(self.far).sum()) * (1 + 1e-9)

    def row(self, index: int) -> Array:
        """One row, exactly."""
        n = len(self.near)
        return np.asarray(self.near[np.abs(np.arange(n) - index)] + self.far[index : index + n], dtype=np.float64)

    def times(self, cells: Array) -> Array:
        """The product along the first axis of an array (n, ...).

        It is within 3 UNIT of the sums of |near| and |far| times |cells|, plus 2^-60 ``row_sum`` times the largest cell.
        """
        table = cells.reshape(len(self.near), -1)
        return np.stack([self._product(column) for column in table.T], axis=1).reshape(cells.shape)

    def sizes(self, cells: Array) -> Array:
        """At least the sums of |near| and |far| times cells >= 0, as for ``times``."""
        absolute = Convolution(np.abs(self.near), np.abs(self.far))
        largest = cells.max(axis=0, initial=0.0)
        return np.asarray(np.maximum(absolute.roughly(cells), 0.0) + 2.0**-8 * self.row_sum * largest, dtype=np.float64)

    def roughly(self, cells: Array) -> Array:
        """The product in plain doubles: errors are relative to the largest answers."""
        table = cells.reshape(len(self.near), -1)
        near, far = self._images(self.near, self.far)
        found = np.fft.irfft(
            near[:, None] * np.fft.rfft(table, self.size, axis=0)
            + far[:, None] * np.fft.rfft(table[::-1], self.size, axis=0),
            self.size,
            axis=0,
        )
        return np.asarray(found[: len(table)], dtype=np.float64).reshape(cells.shape)

    def before(self, weights: Array) -> Array:
        """sum_(i < j) (near_(j-i) + far_(i+j)) w_i for every j, in O(n log^2 n).

        Halves of halves: i in the left half of some block and j in its right half meet in two convolutions, both by Fourier
        transforms; the smallest blocks are written out.
        """
        n, size = len(weights), LEAF
        while size < n:
            size *= 2
        near, far, given = _padded(self.near, size), _padded(self.far, 2 * size), _padded(weights, size)
        cell, found = np.arange(LEAF), np.zeros(size)
        by_difference = near[np.abs(np.subtract.outer(cell, cell))]
        for start in range(0, n, LEAF):
            rows = np.tril(by_difference + far[2 * start + np.add.outer(cell, cell)], -1)
            found[start : start + LEAF] = rows @ given[start : start + LEAF]
        s = LEAF
        while s < size:
            left = given.reshape(-1, 2 * s)[:, :s]
            between = far.reshape(-1, 4 * s)[:, s : 3 * s]  # i + j - 2 start - s = 0 .. 2 s - 1
            straight = np.fft.irfft(np.fft.rfft(near[: 2 * s]) * np.fft.rfft(left, 2 * s), 2 * s)
            turned = np.fft.irfft(np.fft.rfft(between) * np.fft.rfft(left[:, ::-1], 2 * s), 2 * s)
            found.reshape(-1, 2 * s)[:, s:] += straight[:, s:] + turned[:, s - 1 : 2 * s - 1]
            s *= 2
        return found[:n]

    def _images(self, near: Array, far: Array) -> Images:
        """Transforms of both vectors, so placed that entry (i, j) meets cell j in answer i."""
        n, size = len(near), self.size
        around = np.zeros((2, size))
        around[0, :n], around[0, size - n + 1 :] = near, near[:0:-1]
        around[1, :n], around[1, size - n + 1 :] = far[n - 1 :], far[: n - 1]  # i + j = n - 1 + (i - (n - 1 - j))
        found = np.fft.rfft(around)
        return found[0], found[1]

    @cached_property
    def _limbs(self) -> tuple[int, list[Images]]:
        """Bits of a limb, and the transforms of the kernel's limbs, the lowest first."""
        levels = self.size.bit_length()  # one more than there are
        for bits in range(LARGEST, 1, -1):
            limbs, alone, back = [], 0.0, 0.0
            for near, far in _cut(np.rint(self.near / self.unit), np.rint(self.far / self.unit), bits):
                limbs.append(self._images(near, far))
                alone += math.sqrt(2 * float(near @ near)) + math.sqrt(float(far @ far))
                back += sum(float(np.abs(image).max()) for image in limbs[-1])
            factor = math.sqrt(len(self.near)) * 2.0 ** (
                bits - 1
            )  # at least the length of a limb of what is multiplied
            if ((2 * levels * ETA + 4 * UNIT) * alone + levels * ETA * back) * factor * 1.01 < 0.25:
                return bits, limbs
        raise AssertionError("limbs of two bits are exact up to any length that fits into memory")

    def _product(self, cells: Array) -> Array:
        bits, limbs = self._limbs
        top = float(np.abs(cells).max(initial=0.0))
        if top == 0.0 or not limbs:
            return np.zeros(len(cells))
        exponent = math.frexp(top)[1] + 1
        rest = np.ldexp(cells, -exponent)  # at most 1/2, so that a limb is at most 2^(bits - 1)
        count = -(-DIGITS // bits)
        sums = np.zeros((count + len(limbs) - 1, self.size // 2 + 1), dtype=np.complex128)
        for place in reversed(range(count)):  # the first limb of the cells is the highest
            rest = np.ldexp(rest, bits)
            limb = np.rint(rest)
            rest -= limb
            straight, turned = np.fft.rfft(limb, self.size), np.fft.rfft(limb[::-1], self.size)
            for level, (near, far) in enumerate(limbs):
                sums[place + level] += near * straight + far * turned
        found, lost = np.zeros(len(cells)), np.zeros(len(cells))
        for place, image in enumerate(sums):  # Knuth's sum of two, with its error
            term = (
                np.ldexp(np.rint(np.fft.irfft(image, self.size)[: len(cells)]), exponent + bits * (place - count))
                * self.unit
            )
            total = found + term
            seen = total - found
            lost += (found - (total - seen)) + (term - seen)
            found = total
        return np.asarray(found + lost, dtype=np.float64)


def _padded(vector: Array, length: int) -> Array:
    return np.concatenate([vector, np.zeros(length - len(vector))])


def _cut(near: Array, far: Array, bits: int) -> Iterator[tuple[Array, Array]]:
    """Limbs of whole numbers, the lowest first, of at most 2^(bits - 1)."""
    while near.any() or far.any():
        high = [np.rint(np.ldexp(vector, -bits)) for vector in (near, far)]
        yield near - np.ldexp(high[0], bits), far - np.ldexp(high[1], bits)
        near, far = high
