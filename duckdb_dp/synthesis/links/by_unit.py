"""Links of units: how many each row type of the unit's side has, and what these go to, measured as shares, then with larger weights."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from duckdb_dp.counting.units import capped_of, classes
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.synthesis.links.adaptive_links import Learned, learn_links
from duckdb_dp.synthesis.links.blocks import Blocks, scaled_to
from duckdb_dp.synthesis.links.by_number import lifted
from duckdb_dp.synthesis.links.degrees import Degrees
from duckdb_dp.synthesis.links.fit import Tilt, across, fit, tilted, together
from duckdb_dp.synthesis.links.matches import Compared
from duckdb_dp.synthesis.links.per_unit import measure_tables
from duckdb_dp.synthesis.links.sides import Side, coordinates
from duckdb_dp.synthesis.links.within import Structure

OF_LINKS, OF_TOTAL, BELIEVED, WORTH, SLACK = 0.05, 0.05, 0.2, 0.75, 0.005
"""Share for links that weigh more than as shares, share of this for what all of them weigh, and what part of the largest
difference between two weightings is expected; what part of the error of shares has to be left for that to be worth its cost, at most; and
an error that does not matter."""


CERTAIN = 1e-4
"""Ridge of what is fitted nearly as it is, over the links. Attributes of which one determines another, such as a city its region,
contradict each other a little, as each was measured alone: with a much smaller ridge the fit does not end near either."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ByUnit:
    """Where one side is the unit, and the k links of each unit weigh 1/k each in what is fitted.

    Attributes:
        end: which side that is, 0 or 1.
        degrees: how many links its rows have.
        total: how many units have links, in the original.
        variance: of the noise of that.
        lifts: the logarithm of the ratio of links to what shares predict of them, by values of the other side.
        heavier: the same as learnt from links of larger weights, where these were measured.
    """

    end: int
    degrees: Degrees
    total: float
    variance: float
    lifts: Tilt = field(default_factory=dict)
    heavier: Learned | None = None

    def base(self, blocks: Blocks) -> Array:
        """Units that have links by row type, each spread evenly over the rows of the other side, shape (K, L).

        Args:
            blocks: with the unit's side on the left.

        Privacy: post-processing.
        """
        linked = blocks.left.sizes * np.maximum(1 - self.degrees.of(blocks.left)[:, 0], 1e-9)
        found = np.multiply.outer(linked * (self.total / linked.sum()), blocks.right.sizes / len(blocks.right.rows))
        return np.asarray(found, dtype=np.float64)

    def expected(
        self,
        domain: Domain,
        sides: Sequence[Side],
        tilt: Tilt,
        number: float,
        most: int | None = None,
        columns: tuple[Array, Array | None] | None = None,
    ) -> Array:
        """Links of each block of both sides: those that each row type of the unit's side has, divided as its units' shares are.

        Args:
            domain: of the attributes.
            sides: the left and the right one.
            tilt: of the shares.
            number: links of all together, or their weight.
            most: what links of a unit weigh together at most; None: as many as they are.
            columns: of rows of which a sample was fitted, how many units' shares each row type of the other side has, and, where heavier
                links were measured, how many links, both up to a factor; None where the rows themselves were.

        Privacy: post-processing.
        """
        blocks = Blocks(domain, sides[self.end], sides[1 - self.end])
        base, heavier = self.base(blocks), {} if self.heavier is None else self.heavier.tilt
        if columns is None:
            shares = tilted(blocks, base, tilt, one_parent=True)
        else:
            heavier = across(blocks, heavier)
            shares = _with_columns(tilted(blocks, base, across(blocks, tilt), one_parent=True), columns[0])
        table = self.degrees.of(blocks.left)
        k = np.arange(table.shape[1])
        links = blocks.left.sizes * (table @ (k if most is None else np.minimum(k, most)))
        links *= number / max(float(links.sum()), 1e-300)
        found = shares * (links / np.maximum(shares.sum(axis=1), 1e-300))[:, None]
        found = tilted(blocks, found, together(self.lifts, heavier), one_parent=True)
        if columns is not None and columns[1] is not None:
            found = _with_columns(found, columns[1])
        return np.asarray(found if self.end == 0 else found.T, dtype=np.float64)


def _with_columns(blocks: Array, columns: Array) -> Array:
    """The blocks scaled to have columns in proportion to these, and rows as they are."""
    rows = blocks.sum(axis=1)
    return scaled_to(blocks, rows, columns * (rows.sum() / max(float(columns.sum()), 1e-300)))


def learn_by_unit(
    by_unit: ByUnit,
    queryable: PrivateQueryable,
    sides: Sequence[Side],
    structure: Structure | None,
    rho: float,
    matches: Sequence[Compared] = (),
    track: Track = silent,
) -> tuple[Learned, ByUnit]:
    """What links of units go to: their shares, and then how links differ from what these predict; with the unit's side on the left.

    A unit of one link and one of many weigh the same in shares, and what the many links go to may be something else: a film that
    everybody has seen once has half of the links of who has two, and a fiftieth of those of who has fifty. So links are measured
    again with larger weights, those of one unit as many as they are, up to c. They are fitted around what shares predict.

    Args:
        by_unit: what is known of the units.
        queryable: what measures.
        sides: both sides, the left one first.
        structure: values by the number of links, where they were measured.
        rho: what may be spent.
        matches: attributes of both sides that links may match in, and dates that may be so far apart.
        track: shows progress.

    Privacy: spends rho at most.
    """
    blocks = Blocks(queryable.domain, sides[by_unit.end], sides[1 - by_unit.end])
    error = by_unit.variance / by_unit.total**2
    most = heaviest(by_unit, queryable, blocks.right.attributes, OF_LINKS * rho)
    extra = OF_LINKS * rho if most > 1 else 0.0
    known = by_unit.base(blocks), error
    learned = learn_links(
        blocks,
        queryable,
        rho=rho - extra,
        one_parent=True,
        known=known,
        per_unit=1,
        matches=matches,
        track=track,
    )
    if structure is not None:
        by_unit = replace(by_unit, lifts=by_number(by_unit, blocks, learned.tilt, structure))
    if not extra:
        return learned, by_unit
    (weight,) = measure_tables(queryable, [(capped_of((), most), (1,), OF_TOTAL * extra)])
    total = max(float(weight.table[0]) * most, 1.0)
    expected = by_unit.expected(queryable.domain, sides, learned.tilt, total, most)
    known = expected if by_unit.end == 0 else expected.T, weight.variance * most**2 / total**2
    heavier = learn_links(blocks, queryable, rho=(1 - OF_TOTAL) * extra, one_parent=True, known=known, per_unit=most)
    spent = learned.spent | {"heavier": OF_TOTAL * extra + sum(heavier.spent.values())}
    return replace(learned, spent=spent), replace(by_unit, heavier=heavier)


def by_number(by_unit: ByUnit, blocks: Blocks, tilt: Tilt, structure: Structure) -> Tilt:
    """How the links' values differ from what shares predict of them, by what units with few links and with many go to.

    Args:
        by_unit: what is known of the units.
        blocks: with the unit's side on the left.
        tilt: of the shares.
        structure: values by the number of links, as measured.

    Privacy: post-processing.
    """
    names = [name for name in blocks.right.attributes if name in structure.values]
    if not names or len(structure.first) < 2:
        return {}
    shares = tilted(blocks, by_unit.base(blocks), tilt, one_parent=True)
    degrees, k = by_unit.degrees.of(blocks.left)[:, 1:], np.arange(1, by_unit.degrees.shares.size)
    degrees /= np.maximum(degrees.sum(axis=1), 1e-300)[:, None]
    parts = np.add.reduceat(degrees, structure.first - 1, axis=1)
    rows, around = shares.sum(axis=1), shares * (degrees @ k)[:, None]
    means = np.add.reduceat(rows @ degrees * k, structure.first - 1) / np.maximum(rows @ parts, 1e-300)
    values = [blocks.indicator((name,), right=True) for name in names]
    expected = [parts.T @ (shares @ value) for value in values]
    found = lifted([structure.values[name] for name in names], expected, means)
    wanted, ridges = dict[Clique, Array](), dict[Clique, float]()
    for name, value, before, after in zip(names, values, expected, found, strict=True):
        target = around.sum(axis=0) @ value * (means @ after) / np.maximum(means @ before, 1e-300)
        wanted[(name,)] = coordinates(target[None] * (around.sum() / target.sum()))
        ridges[(name,)] = CERTAIN * float(around.sum())
    return fit(blocks, around, wanted, ridges, one_parent=True)[1]


def heaviest(by_unit: ByUnit, queryable: PrivateQueryable, partners: Clique, rho: float) -> int:
    """c, what a unit's links weigh together at most when they are measured again; 1: not at all, shares say as much.

    Formula: least BELIEVED b(c) + noise(c), with b the mean of |k / mean k - w / mean w| over the units' numbers of links k and
    their weights w = min(k, c): the L1 distance that their distributions can have. noise(c), 0 for c = 1, is the L1 norm of
    noise in an attribute of the partners, on average, over the weight of all.

    Privacy: post-processing.
    """
    shares = by_unit.degrees.shares[1:] / max(float(by_unit.degrees.shares[1:].sum()), 1e-300)
    sizes = [queryable.domain.sizes[name] for name in partners]
    tried, found = [1], [BELIEVED * _apart(shares, 1)]
    for c in (*classes(queryable.rows).tolist()[1:], queryable.rows) if sizes else ():
        weight = by_unit.total * float(shares @ np.minimum(np.arange(1, len(shares) + 1), c))
        noise = c * float(np.mean(sizes)) * math.sqrt(len(sizes) / (math.pi * rho)) / max(weight, 1.0)
        tried.append(c)
        found.append(BELIEVED * _apart(shares, c) + noise)
    if found[0] <= SLACK or min(found) > WORTH * found[0]:
        return 1
    # Degrees are not known exactly either: of weights that are about as good the largest is nearest to links.
    return max(c for c, error in zip(tried, found, strict=True) if error <= min(found) + SLACK)


def _apart(shares: Array, most: int) -> float:
    """The mean of |k / mean k - w / mean w| of numbers k of these shares from 1, and w = min(k, most)."""
    k = np.arange(1, len(shares) + 1)
    w = np.minimum(k, most)
    return float(shares @ np.abs(k / max(float(shares @ k), 1e-300) - w / max(float(shares @ w), 1e-300)))
