"""Links of units: how many each row type of the unit's side has, and what these go to, measured as shares of the unit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.degrees import Degrees
from duckdb_dp.synthesis.links.fit import Tilt, tilted
from duckdb_dp.synthesis.links.sides import Side


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ByUnit:
    """Where one side is the unit, and the k links of each unit weigh 1/k each in what is fitted.

    Attributes:
        end: which side that is, 0 or 1.
        degrees: how many links its rows have.
        total: how many units have links, in the original.
        variance: of the noise of that.
    """

    end: int
    degrees: Degrees
    total: float
    variance: float

    def base(self, blocks: Blocks) -> Array:
        """Units that have links by row type, each spread evenly over the rows of the other side, shape (K, L).

        Args:
            blocks: with the unit's side on the left.

        Privacy: post-processing.
        """
        linked = blocks.left.sizes * np.maximum(1 - self.degrees.of(blocks.left)[:, 0], 1e-9)
        found = np.multiply.outer(linked * (self.total / linked.sum()), blocks.right.sizes / len(blocks.right.rows))
        return np.asarray(found, dtype=np.float64)

    def expected(self, domain: Domain, sides: Sequence[Side], tilt: Tilt, number: float) -> Array:
        """Links of each block of both sides: those that each row type of the unit's side has, divided as its units' shares are.

        Args:
            domain: of the attributes.
            sides: the left and the right one.
            tilt: of the shares.
            number: links of all together.

        Privacy: post-processing.
        """
        blocks = Blocks(domain, sides[self.end], sides[1 - self.end])
        shares = tilted(blocks, self.base(blocks), tilt, one_parent=True)
        table = self.degrees.of(blocks.left)
        links = blocks.left.sizes * (table @ np.arange(table.shape[1]))
        links *= number / max(float(links.sum()), 1e-300)
        found = shares * (links / np.maximum(shares.sum(axis=1), 1e-300))[:, None]
        return np.asarray(found if self.end == 0 else found.T, dtype=np.float64)
