"""Links of units: how many each row type of the unit's side has, and what these go to, measured as shares of the unit, then as links."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.synthesis.links.adaptive_links import TOTAL, Learned, learn_links
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.degrees import Degrees
from duckdb_dp.synthesis.links.fit import Tilt, tilted
from duckdb_dp.synthesis.links.learner import measure_total
from duckdb_dp.synthesis.links.sides import Side

OF_ALL, LOUD = 0.1, 0.2
"""Share for the links counted one by one, and how loud the noise of that may be: its L1 norm for one attribute, over what uneven
degrees could change of it at most."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ByUnit:
    """Where one side is the unit, and the k links of each unit weigh 1/k each in what is fitted.

    Attributes:
        end: which side that is, 0 or 1.
        degrees: how many links its rows have.
        total: how many units have links, in the original.
        variance: of the noise of that.
        tilt: the logarithm of the ratio of links to what shares predict of them.
    """

    end: int
    degrees: Degrees
    total: float
    variance: float
    tilt: Tilt = field(default_factory=dict)

    @property
    def links(self) -> float:
        """How many links the original units have together, as their degrees say."""
        shares = self.degrees.shares[1:]
        return self.total * float(shares @ np.arange(1, len(shares) + 1)) / max(float(shares.sum()), 1e-300)

    @property
    def uneven(self) -> float:
        """By what part of the links at most the distribution of links differs from that of shares: the mean of |k / mean - 1|."""
        shares = self.degrees.shares[1:] / max(float(self.degrees.shares[1:].sum()), 1e-300)
        k = np.arange(1, len(shares) + 1)
        return float(shares @ np.abs(k / max(float(shares @ k), 1e-300) - 1))

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
        found = tilted(blocks, found, self.tilt, one_parent=True)
        return np.asarray(found if self.end == 0 else found.T, dtype=np.float64)


def learn_by_unit(
    by_unit: ByUnit,
    queryable: PrivateQueryable,
    sides: Sequence[Side],
    rho: float,
    links: tuple[float, float] | None = None,
    track: Track = silent,
) -> tuple[Learned, ByUnit]:
    """What links of units go to: their shares, and then how links differ from what these predict; with the unit's side on the left.

    A unit of one link and one of many weigh the same in shares, and what the many links go to may be something else: a film that
    everybody has seen once has half of the links of who has two, and a fiftieth of those of who has fifty. So links are counted
    one by one too, where noise for all links of a unit allows. They are fitted around those that shares predict.

    Args:
        by_unit: what is known of the units.
        queryable: what measures.
        sides: both sides, the left one first.
        rho: what may be spent.
        links: how many the original units have together, as measured, and the relative variance of that; None: not measured yet.
        track: shows progress.

    Privacy: spends rho at most; a unit changes the counts of links by ``queryable.rows`` at most.
    """
    blocks = Blocks(queryable.domain, sides[by_unit.end], sides[1 - by_unit.end])
    units = by_unit.base(blocks), by_unit.variance / by_unit.total**2
    extra = OF_ALL * rho if _audible(by_unit, queryable, blocks, OF_ALL * rho) else 0.0
    learned = learn_links(blocks, queryable, rho=rho - extra, one_parent=True, known=units, per_unit=True, track=track)
    if not extra:
        return learned, by_unit
    total, variance, paid = (*links, 0.0) if links else measure_total(queryable, (TOTAL * extra, 0.0), 0.0)
    expected = by_unit.expected(queryable.domain, sides, learned.tilt, max(total, 1.0))
    known = expected if by_unit.end == 0 else expected.T, variance
    one_by_one = learn_links(blocks, queryable, rho=extra - paid, one_parent=True, known=known)
    spent = learned.spent | {"links": paid + sum(one_by_one.spent.values())}
    return replace(learned, spent=spent), replace(by_unit, tilt=one_by_one.tilt)


def _audible(by_unit: ByUnit, queryable: PrivateQueryable, blocks: Blocks, rho: float) -> bool:
    """Whether counts of links say more than shares do: of units that have one link each, or equally many, they do not."""
    sizes = [queryable.domain.sizes[name] for name in blocks.right.attributes]
    if queryable.rows < 2 or not sizes:
        return False
    noise = queryable.rows * float(np.mean(sizes)) * math.sqrt(len(sizes) / (math.pi * rho))
    return noise <= LOUD * by_unit.uneven * by_unit.links
