"""Links as one number for each block, which is a row type of the left table times a row type of the right table."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, final

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.linop.threads import all_threads, one_thread
from duckdb_dp.synthesis.links.sides import Side, codes, columns

if TYPE_CHECKING:
    from scipy.sparse import csr_array


ALONE = 1_000_000
"""Blocks below which one thread is as fast as several, and several times as fast where other programs want the cores too."""


FITTED, NEAR = 50, 0.01
"""Rounds of scaling rows and columns of blocks in turn, at most, and how near columns come to what they should have, relative to it."""


def threads(left: Side, right: Side) -> AbstractContextManager[None]:
    """A context in which linear algebra uses as many threads as the number of blocks makes worthwhile."""
    return all_threads() if len(left.types) * len(right.types) >= ALONE else one_thread()


@final
class Blocks:
    """The blocks of two sides, with the linear maps between links per block and counts of links.

    Rows of one type are exchangeable and every objective here is convex, so that an optimal matrix of links is constant
    on blocks: K x L numbers stand for n1 x n2.

    Args:
        domain: has the attributes of both sides.
        left: K row types.
        right: L row types.
    """

    def __init__(self, domain: Domain, left: Side, right: Side) -> None:
        self.domain, self.left, self.right = domain, left, right
        self._columns: dict[Clique, Array] = {}
        self._sums: dict[Clique, csr_array] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """(K, L)."""
        return len(self.left.types), len(self.right.types)

    def split(self, clique: Clique) -> tuple[Clique, Clique]:
        """The attributes of a clique on each side."""
        mine, other = set(self.left.attributes), set(self.right.attributes)
        return tuple(a for a in clique if a in mine), tuple(a for a in clique if a in other)

    def pairs(self) -> Array:
        """Pairs of rows in each block, n_k n_l, shape (K, L)."""
        return np.multiply.outer(self.left.sizes.astype(np.float64), self.right.sizes.astype(np.float64))

    def independent(self, total: float) -> Array:
        """Links that are independent of attributes: ``total`` spread evenly over all pairs of rows."""
        return self.pairs() * (total / (len(self.left.rows) * len(self.right.rows)))

    def columns(self, subset: Clique) -> Array:
        """Residual coordinates of the types of the side that ``subset`` is of (the left one for ())."""
        if subset not in self._columns:
            self._columns[subset] = columns(self._side(subset), self.domain, subset)
        return self._columns[subset]

    def indicator(self, subset: Clique, *, right: bool = False) -> Array:
        """Which cell of a marginal of one side each of its row types is in: 0 or 1, shape (types, cells)."""
        cells: Array = self._sum(subset, self.right if right else self.left).T.toarray()
        return cells

    def marginal(self, links: Array, clique: Clique) -> Array:
        """Expected counts of links per cell of a clique, shape ``domain.shape(clique)``."""
        return next(self.marginals(links, [clique]))

    def marginals(self, links: Array, cliques: Iterable[Clique]) -> Iterator[Array]:
        """``marginal`` of each clique; rows of links are summed once for all that have the same attributes of the left side."""
        summed: dict[Clique, Array] = {}
        for clique in cliques:
            left, right = self.split(clique)
            if left not in summed:
                summed[left] = np.ascontiguousarray((self._sum(left, self.left) @ links).T)
            table = (self._sum(right, self.right) @ summed[left]).T.reshape(self.domain.shape(left + right))
            yield np.ascontiguousarray(table.transpose([(left + right).index(name) for name in clique]))

    def sums(self, subsets: Sequence[Clique], *, right: bool) -> "csr_array":
        """Sums numbers of the row types of a side by their cells in several of its marginals, shape (all cells, types)."""
        from scipy.sparse import csr_array, vstack

        side = self.right if right else self.left
        return csr_array(vstack([self._sum(subset, side) for subset in subsets]))

    def _side(self, subset: Clique) -> Side:
        return self.right if subset and subset[0] in self.right.attributes else self.left

    def _sum(self, subset: Clique, side: Side) -> "csr_array":
        """Sums numbers of row types by their cell in a marginal, shape (cells, types)."""
        from scipy.sparse import csr_array

        key = (*subset, "left" if side is self.left else "right")
        if key not in self._sums:
            types = len(side.types)
            entries = (np.ones(types), (codes(side, self.domain, subset), np.arange(types)))
            self._sums[key] = csr_array(entries, shape=(self.domain.cells(subset), types))
        return self._sums[key]


def scaled_to(shares: Array, rows: Array | Integers, columns: Array, most: Array | float = np.inf) -> Array:
    """Blocks scaled by rows and columns in turn until they add up to these, each at most what it can hold.

    Args:
        shares: of each block, shape (K, L).
        rows, columns: sums of each row and column, with one sum.
        most: what each block can hold.
    """
    for _ in range(FITTED):
        shares = np.minimum(shares * (rows / np.maximum(shares.sum(axis=1), 1e-300))[:, None], most)
        held = shares.sum(axis=0)
        if (np.abs(held - columns) <= NEAR * columns).all():
            break
        shares = np.minimum(shares * (columns / np.maximum(held, 1e-300)), most)
    return np.asarray(shares)
