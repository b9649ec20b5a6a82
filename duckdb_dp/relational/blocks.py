"""Links as one number per block, a row type of the left table times a row type of the right one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

import numpy as np

from duckdb_dp.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.relational.sides import Side, codes, columns

if TYPE_CHECKING:
    from torch import Tensor


ALONE = 1_000_000
"""Blocks below which one thread is as fast as several, and 7 times as fast where other programs want the cores too."""


@contextmanager
def threads(left: Side, right: Side) -> Iterator[None]:
    """As many torch threads as the blocks of two sides are worth; afterwards as many as before."""
    import torch

    before = torch.get_num_threads()
    if len(left.types) * len(right.types) < ALONE:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@final
class Blocks:
    """The blocks of two sides, with the linear maps between links per block and counts of links.

    Rows of one type are exchangeable and every objective here is convex, so that an optimal matrix of links is constant
    on blocks: K x L numbers stand for n1 x n2.

    Args:
        domain: has the attributes of both sides.
        left: K row types.
        right: L row types.
        device: where torch works; None: a GPU where there is one.
    """

    def __init__(self, domain: Domain, left: Side, right: Side, device: str | None = None) -> None:
        import torch

        self.domain, self.left, self.right = domain, left, right
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._columns: dict[Clique, Tensor] = {}
        self._cells: dict[Clique, Tensor] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """(K, L)."""
        return len(self.left.types), len(self.right.types)

    def tensor(self, values: Array) -> "Tensor":
        """The same numbers for torch, in float64."""
        import torch

        return torch.as_tensor(np.ascontiguousarray(values, dtype=np.float64), device=self.device)

    def split(self, clique: Clique) -> tuple[Clique, Clique]:
        """The attributes of a clique on each side."""
        mine, other = set(self.left.attributes), set(self.right.attributes)
        return tuple(a for a in clique if a in mine), tuple(a for a in clique if a in other)

    def pairs(self) -> "Tensor":
        """Pairs of rows in each block, n_k n_l, shape (K, L)."""
        return self.tensor(self.left.sizes.astype(np.float64))[:, None] * self.tensor(
            self.right.sizes.astype(np.float64)
        )

    def independent(self, total: float) -> "Tensor":
        """Links that do not look at attributes: ``total`` spread evenly over all pairs of rows."""
        return self.pairs() * (total / (len(self.left.rows) * len(self.right.rows)))

    def columns(self, subset: Clique) -> "Tensor":
        """Residual coordinates of the types of the side that ``subset`` is of (the left one for ())."""
        if subset not in self._columns:
            self._columns[subset] = self.tensor(columns(self._side(subset), self.domain, subset))
        return self._columns[subset]

    def indicator(self, subset: Clique, *, right: bool = False) -> "Tensor":
        """Which cell of a marginal of one side each of its row types is in: 0 or 1, shape (types, cells)."""
        import torch

        side = self.right if right else self.left
        place = self._cell(subset, side)
        table = torch.zeros((len(side.types), self.domain.cells(subset)), dtype=torch.float64, device=self.device)
        return table.scatter_(1, place[:, None], 1.0)

    def marginal(self, links: "Tensor", clique: Clique) -> Array:
        """Expected counts of links per cell of a clique, shape ``domain.shape(clique)``."""
        import torch

        left, right = self.split(clique)
        rows = torch.zeros((self.domain.cells(left), links.shape[1]), dtype=links.dtype, device=links.device)
        rows.index_add_(0, self._cell(left, self.left), links)
        cells = torch.zeros((self.domain.cells(right), len(rows)), dtype=links.dtype, device=links.device)
        cells.index_add_(0, self._cell(right, self.right), rows.T)
        table = cells.T.cpu().numpy().reshape(self.domain.shape(left + right))
        return np.ascontiguousarray(table.transpose([(left + right).index(name) for name in clique]))

    def _side(self, subset: Clique) -> Side:
        return self.right if subset and subset[0] in self.right.attributes else self.left

    def _cell(self, subset: Clique, side: Side) -> "Tensor":
        import torch

        key = (*subset, "left" if side is self.left else "right")
        if key not in self._cells:
            self._cells[key] = torch.as_tensor(codes(side, self.domain, subset), device=self.device)
        return self._cells[key]
