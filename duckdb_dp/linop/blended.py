"""A strategy on coarse cells, laid smoothly over fine ones, and what it leaves of them: for wide windows on many cells.

Cells i, i + w, i + 2 w, ... are a chain; those of the first n mod w places have one cell more than the others. Windows of w cells are
known by the first of them, y_0, and by the differences d of neighbours in a chain: each is the one before it and such a difference.
So is the strategy:

    B = [A J; K_1 C_1 S_1; K_2 C_2 S_2].

J shares every cell out among coarse ones near its place, alike in the whole chain, and A measures y_0 and differences of coarse cells.
S scales every place, C makes combinations of the differences of each chain, and K is circulant along the places.

The estimate. K C S alone leave d with covariance H^-1 = (C C^T)^-1 (x) S^-1 (K^T K)^-1 S^-1, C in the basis of differences, and A alone
leaves (y_0, P d), P d the smoothed differences, with covariance W. By both P d is known twice, u = (by A) - (by K C S) apart, of
covariance Z = P H^-1 P^T + W_dd, so that the best estimate adds H^-1 P^T Z^-1 u to d, and -W_0d Z^-1 u to y_0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.linop.base import Array, Explicit
from duckdb_dp.linop.circulant import Circulant
from duckdb_dp.linop.compose import Dense


@final
@dataclass(frozen=True, eq=False)
class Chains:
    """K C S on the chains of neighbouring places.

    Attributes:
        first: the first of the places.
        mix: C, shape (q - 1, q) for chains of q > 1 cells; every row sums to 0.
        ring: K, on as many cells as there are places.
        scale: S, positive.
    """

    first: int
    mix: Array
    ring: Circulant
    scale: Array

    @property
    def links(self) -> int:
        """Differences of a chain."""
        return len(self.mix)

    @property
    def rows(self) -> int:
        """Number of answers."""
        return len(self.ring.kernel) * self.links

    def cells(self, width: int) -> NDArray[np.intp]:
        """The cells, shape (q, places)."""
        return np.arange(self.links + 1)[:, None] * width + np.arange(self.first, self.first + self.ring.n)

    @cached_property
    def unmixed(self) -> Array:
        """C^-1 in the basis of differences."""
        return np.asarray(np.diff(np.linalg.pinv(self.mix), axis=0), dtype=np.float64)

    @cached_property
    def covariance(self) -> Array:
        """(C C^T)^-1 in the basis of differences."""
        return np.asarray(self.unmixed @ self.unmixed.T, dtype=np.float64)

    def times(self, table: Array, mix: Array, ring: Callable[[Array], Array]) -> Array:
        """K C S of a table (q, places, columns), by C or |C|, and by K or |K|."""
        mixed = np.tensordot(mix, table * self.scale[:, None], axes=1)
        return ring(np.moveaxis(mixed, 1, 0)).reshape(self.rows, -1)

    def back(self, answers: Array, mix: Array, ring: Callable[[Array], Array], scale: Array) -> Array:
        """S C^T K^T of answers (rows, columns), or with inverses in their places: shape (len(mix), places, columns)."""
        found = ring(answers.reshape(len(self.ring.kernel), self.links, -1))
        return np.asarray(np.tensordot(mix, np.moveaxis(found, 1, 0), axes=1) * scale[:, None], dtype=np.float64)

    def inverse(self, columns: Array) -> Array:
        """S^-1 (K^T K)^-1 S^-1 times columns."""
        return np.asarray(self.ring.solve(columns / self.scale[:, None]) / self.scale[:, None], dtype=np.float64)

    def prefixes(self) -> tuple[Array, Array]:
        """p^T S^-1 (K^T K)^-1 S^-1 p and p^T S^-1 (K^T K)^-1 S^-1 1 for the sums p of the first 0, 1, ... places.

        By rows of (K^T K)^-1: each is the one above it, moved by one, and x_i x_j - y_i y_j (``Circulant``).
        """
        (_, x), (_, y) = self.ring.corners
        scale, row, added = 1 / self.scale, np.zeros(self.ring.n + 1), np.zeros(self.ring.n + 1)
        for i in range(self.ring.n):
            row[1 : i + 2] = row[: i + 1] + x[i] * x[: i + 1] - y[i] * y[: i + 1]
            added[i + 1] = scale[i] * (2 * (row[1 : i + 1] @ scale[:i]) + row[i + 1] * scale[i])
        return np.cumsum(added), np.concatenate([[0.0], np.cumsum(self.inverse(np.ones((self.ring.n, 1))))])


@final
@dataclass(frozen=True, eq=False)
class _Inside:
    """What is known of (y_0, d) before and after A.

    Attributes:
        seen: (y_0, P d) from A's answers, as a matrix.
        smooth: J of each of the chains' places.
        gains: S^-1 (K^T K)^-1 S^-1 J of each.
        covariance: W.
        root: of Z, lower.
    """

    seen: Array
    smooth: tuple[Array, ...]
    gains: tuple[Array, ...]
    covariance: Array
    root: Array


@final
@dataclass(frozen=True, eq=False)
class Blended(Explicit):
    """B = [A J; K C S of some chains].

    Attributes:
        top: A, of full row rank, with a row for each window of coarse cells, of which the rows are combinations.
        n: number of cells.
        shares: J, shape (w, 3): what the cells at a place have in each of three coarse ones of the same w cells; of sum 1.
        coarse: these coarse ones, counted from 0 in every w cells, shape (w, 3); those of different ``chains`` differ.
        chains: of all places whose chains have several cells.
    """

    top: Array
    n: int
    shares: Array
    coarse: Array
    chains: tuple[Chains, ...]
    cancels: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.top) + sum(one.rows for one in self.chains), self.n

    @property
    def width(self) -> int:
        """w."""
        return len(self.shares)

    @cached_property
    def basis(self) -> Array:
        """J^T on w cells, shape (w, coarse ones)."""
        found = np.zeros((self.width, int(self.coarse.max()) + 1))
        np.add.at(found, (np.arange(self.width)[:, None], self.coarse.astype(np.intp)), self.shares)
        return found

    @property
    def steps(self) -> int:
        # A count becomes a double, and sums follow on sums; terms that are 0 round nothing.
        smoothed = int(np.count_nonzero(self.basis, axis=0).max() + self.top.shape[1])
        return 4 + max([smoothed, *(one.ring.steps + one.links for one in self.chains)])

    def columns(self, order: int) -> Array:
        found = np.asarray((np.abs(self._laid(self.top.T)) ** order).sum(axis=1), dtype=np.float64)
        for one in self.chains:
            mixed = (np.abs(one.mix) ** order).sum(axis=0)[:, None] * one.scale**order
            found[one.cells(self.width)] += mixed * (np.abs(one.ring.kernel) ** order).sum()
        return found

    def row(self, index: int) -> list[Fraction]:
        if index < len(self.top):
            return self._row(index)
        index -= len(self.top)
        found = [Fraction(0)] * self.n
        for one in self.chains:
            if index < one.rows:
                place, mixed = divmod(index, one.links)
                row = [a * Fraction(b) for a, b in zip(one.ring.row(place), one.scale.tolist(), strict=True)]
                for share, cells in zip(one.mix[mixed].tolist(), one.cells(self.width), strict=True):
                    found[cells[0] : cells[-1] + 1] = [Fraction(share) * value for value in row]
                break
            index -= one.rows
        return found

    def matvec(self, cells: Array) -> Array:
        table = cells.reshape(self.n, -1)
        parts = [one.times(table[one.cells(self.width)], one.mix, one.ring.matvec) for one in self.chains]
        return np.concatenate([self.top @ self._smoothed(table), *parts]).reshape(-1, *cells.shape[1:])

    def magnitude(self, cells: Array) -> Array:
        table = cells.reshape(self.n, -1)
        parts = [one.times(table[one.cells(self.width)], np.abs(one.mix), one.ring.magnitude) for one in self.chains]
        return np.concatenate([np.abs(self.top) @ self._smoothed(table), *parts]).reshape(-1, *cells.shape[1:])

    def rmatvec(self, answers: Array) -> Array:
        top, *parts = self._split(answers)
        found = self._laid(self.top.T @ top)
        for one, part in zip(self.chains, parts, strict=True):
            found[one.cells(self.width)] += one.back(part, one.mix.T, one.ring.rmatvec, one.scale)
        return found.reshape(self.n, *answers.shape[1:])

    def estimate(self, noisy: Array) -> Array:
        from scipy.linalg import cho_solve  # 0.1 s: only who needs it pays for it

        top, *parts = self._split(noisy)
        inside, columns = self._inside, top.shape[1]
        seen = inside.seen @ top
        known = [
            one.back(part, one.unmixed, one.ring.estimate, 1 / one.scale)
            for one, part in zip(self.chains, parts, strict=True)
        ]
        smoothed = [np.matmul(smooth.T, d).reshape(-1, columns) for smooth, d in zip(inside.smooth, known, strict=True)]
        apart = cho_solve((inside.root, True), seen[1:] - np.concatenate([np.zeros((0, columns)), *smoothed]))
        first, start = seen[0] - inside.covariance[0, 1:] @ apart, 0
        for one, d, gain in zip(self.chains, known, inside.gains, strict=True):
            size = one.links * gain.shape[1]
            own = apart[start : start + size].reshape(one.links, gain.shape[1], columns)
            d += np.matmul(gain, np.tensordot(one.covariance, own, axes=1))
            start += size
        return self._shortest(first, known).reshape(self.n, *noisy.shape[1:])

    def windows(self, width: int) -> Array:
        """w (B^T B)^+ w^T of every window of the width that this is for, shape (n - width + 1,)."""
        assert width == self.width
        return self._windows

    @cached_property
    def _windows(self) -> Array:
        """Window k w + x is y_0 and all differences of links before k, and of link k those of the places before x."""
        from scipy.linalg import solve_triangular  # 0.1 s: only who needs it pays for it

        width, count = self.width, self.n - self.width + 1
        turns, inside, start = -(-count // width), self._inside, 0
        own = np.full((turns, width), inside.covariance[0, 0])
        crossed = np.zeros((turns, width, len(inside.root)))  # with P d
        for one, gain in zip(self.chains, inside.gains, strict=True):
            linked = np.zeros((max(turns, one.links), one.links))
            linked[: one.links] = one.covariance
            before = np.cumsum(linked, axis=0) - linked
            squares, whole = one.prefixes()
            sums = np.concatenate([np.zeros((1, gain.shape[1])), np.cumsum(gain, axis=0)])
            place = np.clip(np.arange(width) - one.first, 0, one.ring.n)
            columns = slice(start, start + one.links * gain.shape[1])
            for k in range(turns):
                own[k] += before[k, :k].sum() * squares[-1]
                if k < one.links:
                    own[k] += 2 * before[k, k] * whole[place] + linked[k, k] * squares[place]
                crossed[k, :, columns] = np.kron(before[k], sums[-1]) + np.kron(linked[k], sums[place])
            start = columns.stop
        rest = inside.covariance[0, 1:] - crossed.reshape(turns * width, -1)[:count]
        less = np.square(solve_triangular(inside.root, rest.T, lower=True, check_finite=False)).sum(axis=0)
        return np.asarray(own.reshape(-1)[:count] - less, dtype=np.float64)

    @cached_property
    def _inside(self) -> _Inside:
        from scipy.linalg import cholesky  # 0.1 s: only who needs it pays for it

        held, pieces = Dense(self.top).inverse, self.basis.shape[1]
        seen, own, start = [held[:pieces].sum(axis=0, keepdims=True)], [], 1
        smooth, gains = [], []
        for one in self.chains:
            places = slice(one.first, one.first + one.ring.n)
            used = np.flatnonzero(self.basis[places].any(axis=0))
            at = np.arange(one.links + 1)[:, None] * pieces + used
            seen.append((held[at[1:]] - held[at[:-1]]).reshape(-1, len(self.top)))
            smooth.append(np.ascontiguousarray(self.basis[places][:, used]))
            gains.append(one.inverse(smooth[-1]))
            own.append(np.kron(one.covariance, smooth[-1].T @ gains[-1]))
        found = np.concatenate(seen)
        covariance = found @ found.T
        apart = covariance[1:, 1:].copy()
        for block in own:
            stop = start + len(block)
            apart[start - 1 : stop - 1, start - 1 : stop - 1] += block
            start = stop
        return _Inside(found, tuple(smooth), tuple(gains), covariance, cholesky(apart, lower=True, check_finite=False))

    def _row(self, index: int) -> list[Fraction]:
        top, pieces = [Fraction(value) for value in self.top[index].tolist()], self.basis.shape[1]
        shared = [
            [(k, Fraction(share)) for k, share in zip(places, shares, strict=True)]
            for places, shares in zip(self.coarse.astype(int).tolist(), self.shares.tolist(), strict=True)
        ]
        return [
            sum((top[turn * pieces + k] * share for k, share in shared[place]), Fraction(0))
            for turn, place in (divmod(cell, self.width) for cell in range(self.n))
        ]

    def _smoothed(self, table: Array) -> Array:
        """J times columns of cells."""
        turns = -(-self.n // self.width)
        whole = np.zeros((turns * self.width, table.shape[1]))
        whole[: self.n] = table
        found = np.matmul(self.basis.T, whole.reshape(turns, self.width, -1))
        return np.asarray(found.reshape(-1, table.shape[1])[: self.top.shape[1]], dtype=np.float64)

    def _laid(self, columns: Array) -> Array:
        """J^T times columns of coarse cells."""
        turns, pieces = -(-self.n // self.width), self.basis.shape[1]
        whole = np.zeros((turns * pieces, columns.shape[1]))
        whole[: len(columns)] = columns
        found = np.matmul(self.basis, whole.reshape(turns, pieces, -1))
        return np.asarray(found.reshape(turns * self.width, -1)[: self.n], dtype=np.float64)

    def _split(self, answers: Array) -> list[Array]:
        """Answers of A, and those of each of the chains."""
        ends = np.cumsum([len(self.top), *(one.rows for one in self.chains)])
        return np.split(answers.reshape(len(answers), -1), ends[:-1])

    def _shortest(self, first: Array, differences: list[Array]) -> Array:
        """The shortest cells with that y_0 and these differences: chains have the least sum of squares, and share what is left of y_0."""
        found = np.zeros((self.n, len(first)))
        parts = np.ones(self.width)
        for one, d in zip(self.chains, differences, strict=True):
            chained = np.concatenate([np.zeros((1, *d.shape[1:])), np.cumsum(d, axis=0)])
            found[one.cells(self.width)] = chained - chained.mean(axis=0)
            parts[one.first : one.first + one.ring.n] = 1 / (one.links + 1)
        left = first - found[: self.width].sum(axis=0)
        found += (parts / parts.sum())[np.arange(self.n) % self.width][:, None] * left
        return found
