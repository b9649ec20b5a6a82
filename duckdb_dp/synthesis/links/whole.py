"""Links of whole tables of which a sample of rows was fitted: each row has its number, and what goes to what is the sample's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.adaptive_links import Learned
from duckdb_dp.synthesis.links.blocks import Blocks, scaled_to
from duckdb_dp.synthesis.links.by_unit import ByUnit
from duckdb_dp.synthesis.links.fit import Wanted, across, fit, tilted
from duckdb_dp.synthesis.links.learner import FINE
from duckdb_dp.synthesis.links.sides import Side

CELLS = 10_000_000
"""Row types times residuals that are fitted together: of more, random parts are fitted one after another."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The links of two tables of which samples were fitted.

    What was measured of one side alone is fitted to all rows of that side, and only the tilt across the sides is taken from the sample.
    A tilt of one side has a number for each measured value, and they may be more than there are rows in the sample: where a few rows have
    most links, it fits the sample's rows and gives others any number of links, the more so the better it is measured.

    Attributes:
        learned: on the sample.
        by_unit: what is known of the units, where one side is the unit.
        held: how many links each row of the left and of the right side has, up to a factor of all; of a side that is no unit's they are as
            shares.
        more: the same of the side that is no unit's, as links, where links were measured with larger weights too.
    """

    learned: Learned
    by_unit: ByUnit | None
    held: Sequence[Array]
    more: Array | None = None

    @property
    def spread(self) -> Sequence[Array]:
        """The number of links of each row of both sides, up to a factor."""
        if self.more is None or self.by_unit is None:
            return self.held
        return (self.held[0], self.more) if self.by_unit.end == 0 else (self.more, self.held[1])

    def expected(
        self,
        domain: Domain,
        sides: Sequence[Side],
        rows: Sequence[Integers],
        number: float,
        *,
        one_parent: bool = False,
    ) -> Array:
        """Links of each block of some rows of both sides, with this sum.

        Args:
            domain: of the attributes.
            sides: these rows of the left and of the right side.
            rows: their positions in the whole sides.
            number: how many links they have.
            one_parent: whether each left row has one link.

        Privacy: post-processing.
        """
        held = [_of_types(side, of, at) for side, of, at in zip(sides, self.held, rows, strict=True)]
        if (by_unit := self.by_unit) is not None:
            other = 1 - by_unit.end
            more = None if self.more is None else _of_types(sides[other], self.more, rows[other])
            return by_unit.expected(domain, sides, self.learned.tilt, number, columns=(held[other], more))
        blocks = Blocks(domain, *sides)
        lefts, rights = (of * (number / max(float(of.sum()), 1e-300)) for of in held)
        base = np.multiply.outer(lefts, rights) / number
        tilt = across(blocks, self.learned.tilt)
        return scaled_to(tilted(blocks, base, tilt, one_parent=one_parent), lefts, rights)


def whole(
    domain: Domain, sides: Sequence[Side], learned: Learned, by_unit: ByUnit | None, rng: np.random.Generator
) -> Whole:
    """What was measured of each side alone, fitted to all of its rows.

    Args:
        domain: of the attributes.
        sides: the whole left and right side.
        learned: on a sample.
        by_unit: what is known of the units, where one side is the unit.
        rng: the source of randomness: which row types are fitted together.

    Privacy: post-processing.
    """
    even = [np.asarray(side.sizes * (learned.total / len(side.rows)), dtype=np.float64) for side in sides]
    if by_unit is None:
        found = [
            fitted(domain, side, base, wanted, rng)
            for side, base, wanted in zip(sides, even, learned.alone, strict=True)
        ]
        return Whole(learned=learned, by_unit=None, held=[_of_rows(*one) for one in zip(sides, found, strict=True)])
    unit, other = sides[by_unit.end], sides[1 - by_unit.end]
    shares = fitted(domain, other, even[1 - by_unit.end], learned.alone[1], rng)
    table = by_unit.degrees.of(unit)
    held = [(table @ np.arange(table.shape[1]))[unit.rows], _of_rows(other, shares)]
    more = None
    if by_unit.heavier is not None:
        around = tilted(Blocks(domain, NOBODY, other), shares[None], by_unit.lifts)[0]
        around = np.asarray(around * (by_unit.heavier.total / max(float(around.sum()), 1e-300)), dtype=np.float64)
        more = _of_rows(other, fitted(domain, other, around, by_unit.heavier.alone[1], rng))
    return Whole(learned=learned, by_unit=by_unit, held=held if by_unit.end == 0 else held[::-1], more=more)


def fitted(domain: Domain, side: Side, base: Array, wanted: Wanted, rng: np.random.Generator) -> Array:
    """Links of each row type of a side that fit what was measured of the side alone.

    Args:
        domain: of the attributes.
        side: the whole side.
        base: links of each type without what was measured, positive.
        wanted: what was measured.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    if not wanted.residuals:
        return base
    types, found = len(side.types), np.empty_like(base)
    count = -(-types * len(wanted.residuals) // CELLS)
    for mine in np.array_split(rng.permutation(types), min(count, types)) if count > 1 else [np.arange(types)]:
        some = Side(attributes=side.attributes, types=side.types[mine], rows=np.arange(len(mine)))
        share = float(base[mine].sum() / base.sum())
        part = wanted.scaled(share)
        links, _ = fit(
            Blocks(domain, NOBODY, some), base[mine][None], part.residuals, part.ridges, part.fine, tolerance=FINE
        )
        found[mine] = links[0]
    return found


NOBODY = Side(attributes=(), types=np.zeros((1, 0), dtype=np.int64), rows=np.zeros(1, dtype=np.int64))
"""One row without attributes: the other end of the links of one side alone."""


def _of_rows(side: Side, links: Array) -> Array:
    """The mean number of links of each row, of those of its type."""
    return np.asarray((links / np.maximum(side.sizes, 1))[side.rows])


def _of_types(part: Side, held: Array, rows: Integers) -> Array:
    """Links of each row type of some rows."""
    return np.asarray(np.bincount(part.rows, held[rows], len(part.types)), dtype=np.float64)
