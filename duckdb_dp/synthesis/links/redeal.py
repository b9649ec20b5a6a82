"""Deals links anew: contents are swapped between units of one row type until tables of units are as near as they get."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.sides import Side

BATCHES, PATIENCE = 800, 60
"""Rounds of swaps, and rounds in a row that may gain next to nothing."""

SLOW = 1e-5
"""Of the error: a smaller gain is next to nothing."""

TRIED = 4_000
"""Swaps that are looked at in one round, at most; at least a tenth of the units."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What tables should be, with the weight of each cell's squared error.

    Attributes:
        pairs, of_pairs: of two links of one unit, over the values of all attributes one after another, shape (V, V).
        values, of_values: by class of the number of links, shape (classes, V).
    """

    pairs: Array
    values: Array
    of_pairs: Array
    of_values: Array


@final
@dataclass(slots=True, kw_only=True)
class Dealt:
    """Links by unit, as they are dealt.

    Attributes:
        spans: attribute -> its values' places among the V values of all attributes.
        cells: of each content, its places among the V values, shape (links, attributes).
        holds: which content each link has, shape (links,).
        first, number: each unit's first link, and how many it has; links of a unit stand one after another.
        classes: of each unit's number of links.
        depth: how many classes there are.
        kinds: the row type of each unit.
        partners: of each content, what it refers to; None where an owner may have any, and any twice.
        refused: for each unit, the partner that it may not have; -1 for none.
        order: the given link at each place.
    """

    spans: dict[str, slice]
    cells: Integers
    holds: Integers
    first: Integers
    number: Integers
    classes: Integers
    depth: int
    kinds: Integers
    partners: Integers | None
    refused: Integers
    order: Integers

    @classmethod
    def of(
        cls,
        owners: Integers,
        side: Side,
        codes: Mapping[str, Integers],
        sizes: Mapping[str, int],
        partners: Integers | None,
        least: Integers,
        apart: tuple[Integers, Integers] | None,
    ) -> "Dealt":
        """From links in any order; contents are numbered in the order of their owners. Classes are by the least number of each."""
        order = np.argsort(owners, kind="stable")
        units, first, number = np.unique(owners[order], return_index=True, return_counts=True)
        starts = np.cumsum([0, *(sizes[name] for name in codes)])
        spans = {name: slice(int(a), int(b)) for name, a, b in zip(codes, starts, starts[1:], strict=False)}
        refused = np.full(len(units), -1, dtype=np.int64)
        if apart is not None:
            places = np.full(int(max(map(np.max, apart))) + 1, -1, dtype=np.int64)
            places[apart[1]] = np.arange(len(apart[1]))
            refused = places[apart[0][units]]
        return cls(
            spans=spans,
            cells=np.stack([codes[name][order] + span.start for name, span in spans.items()], 1),
            holds=np.arange(len(order)),
            first=first,
            number=number,
            classes=np.searchsorted(least, number, side="right") - 1,
            depth=len(least),
            kinds=side.rows[units],
            partners=None if partners is None else partners[order],
            refused=refused,
            order=order,
        )

    @property
    def width(self) -> int:
        """V, values of all attributes together."""
        return max(int(span.stop) for span in self.spans.values())

    def held(self, units: Integers) -> Array:
        """How many contents of some units hold each value, shape (units, V)."""
        links = _ranges(self.first[units], self.number[units])
        rows = np.repeat(np.arange(len(units)), self.number[units])
        flat = (rows[:, None] * self.width + self.cells[self.holds[links]]).reshape(-1)
        return np.bincount(flat, minlength=len(units) * self.width).reshape(len(units), -1).astype(np.float64)

    def pairs(self) -> Array:
        """The table of pairs, shape (V, V)."""
        from scipy import sparse  # for import time

        weight = 1 / np.maximum(self.number * (self.number - 1), 1) * (self.number > 1)
        rows = np.repeat(np.arange(len(self.number)), self.number)
        cells, each = self.cells[self.holds], self.cells.shape[1]
        ones = np.ones(cells.size)
        values = sparse.csr_array((ones, (np.repeat(rows, each), cells.reshape(-1))), shape=(len(weight), self.width))
        links = sparse.csr_array(
            (ones, (np.repeat(np.arange(len(rows)), each), cells.reshape(-1))), shape=(len(rows), self.width)
        )
        together = values.T @ sparse.diags_array(weight) @ values - links.T @ sparse.diags_array(weight[rows]) @ links
        return np.asarray(together.todense())

    def values(self) -> Array:
        """The table of values by class of number, shape (classes, V)."""
        rows = np.repeat(np.arange(len(self.number)), self.number)
        table = np.zeros((self.depth, self.width))
        np.add.at(table, (self.classes[rows][:, None], self.cells[self.holds]), (1 / self.number[rows])[:, None])
        return table


def redeal(dealt: Dealt, targets: Targets, rng: np.random.Generator) -> Integers:
    """For each given link, which given link's contents it has after the swaps.

    A round tries one swap for each of some pairs of units of one row type, and keeps those that bring the tables nearer;
    where all of them together would go too far, as many of them as go half the way.

    Privacy: post-processing.
    """
    search = _Search(dealt, targets)
    if not search.left:
        return np.arange(len(dealt.holds))
    start, idle = search.error(), 0
    for _ in range(BATCHES):
        gain = search.round(rng)
        idle = 0 if gain > SLOW * start else idle + 1
        if idle > PATIENCE or search.left <= 0:
            break
    contents = np.empty(len(dealt.holds), dtype=np.int64)
    contents[dealt.order] = dealt.order[dealt.holds]
    return contents


@final
class _Search:
    """The tables as they are now, and how far from what they should be."""

    def __init__(self, dealt: Dealt, targets: Targets) -> None:
        self.dealt, self.targets = dealt, targets
        self.pairs, self.values = dealt.pairs(), dealt.values()
        self.order = np.argsort(dealt.kinds, kind="stable")
        kinds = dealt.kinds[self.order]
        self.low, self.high = (np.searchsorted(kinds, dealt.kinds, side=side) for side in ("left", "right"))
        self.open = np.flatnonzero(self.high - self.low > 1)
        pairs = np.maximum(dealt.number * (dealt.number - 1.0), 1.0)
        self.ends = np.concatenate([[0.0], np.cumsum(pairs[self.order])])
        self.likely = pairs[self.open] / pairs[self.open].sum()
        self.typical = float(targets.of_pairs.mean()), float(targets.of_values.mean())
        self.left = len(self.open)

    def error(self) -> float:
        """Half the sum of weighted squares."""
        aims = self.targets
        pairs, values = (
            aims.of_pairs * (self.pairs - aims.pairs) ** 2,
            aims.of_values * (self.values - aims.values) ** 2,
        )
        return 0.5 * float(pairs.sum() + values.sum())

    def round(self, rng: np.random.Generator) -> float:
        """One round of swaps; what the error fell by."""
        dealt, aims = self.dealt, self.targets
        one, other = self._partners(rng)
        if not len(one):
            return 0.0
        mine = dealt.first[one] + (rng.random(len(one)) * dealt.number[one]).astype(np.int64)
        theirs = dealt.first[other] + (rng.random(len(other)) * dealt.number[other]).astype(np.int64)
        held = dealt.held(one), dealt.held(other)
        moved = self._ones(dealt.holds[theirs]) - self._ones(dealt.holds[mine])
        rest = held[0] - self._ones(dealt.holds[mine]), held[1] - self._ones(dealt.holds[theirs])
        slope_pairs = aims.of_pairs * (self.pairs - aims.pairs)
        slope_values = aims.of_values * (self.values - aims.values)
        by_pair = [_pair_weight(dealt.number[units]) for units in (one, other)]
        by_value = [1 / dealt.number[units] for units in (one, other)]
        around = by_pair[0][:, None] * rest[0] - by_pair[1][:, None] * rest[1]
        change = 2 * np.einsum("bv,bv->b", moved, around @ slope_pairs)
        levels = slope_values[dealt.classes[one]] * by_value[0][:, None]
        levels -= slope_values[dealt.classes[other]] * by_value[1][:, None]
        change += np.einsum("bv,bv->b", moved, levels)
        size = np.einsum("bv,bv->b", moved, moved)
        change += self.typical[0] * (size * (around**2).sum(1) + np.einsum("bv,bv->b", moved, around) ** 2)
        apart = dealt.classes[one] != dealt.classes[other]
        change += 0.5 * self.typical[1] * size * apart * (by_value[0] ** 2 + by_value[1] ** 2)
        good = (change < 0) & self._allowed(one, mine, theirs) & self._allowed(other, theirs, mine)
        return self._take(np.flatnonzero(good), one, other, mine, theirs, moved, around, by_value)

    def _take(
        self,
        chosen: Integers,
        one: Integers,
        other: Integers,
        mine: Integers,
        theirs: Integers,
        moved: Array,
        around: Array,
        by_value: list[Array],
    ) -> float:
        """Keep as many of the chosen swaps as bring the tables nearer; what the error fell by."""
        dealt, aims, before = self.dealt, self.targets, self.error()
        while len(chosen):
            turned = moved[chosen].T @ around[chosen]
            values = np.zeros_like(self.values)
            np.add.at(values, dealt.classes[one[chosen]], moved[chosen] * by_value[0][chosen][:, None])
            np.add.at(values, dealt.classes[other[chosen]], -moved[chosen] * by_value[1][chosen][:, None])
            pairs = turned + turned.T
            slope = (aims.of_pairs * (self.pairs - aims.pairs) * pairs).sum()
            slope += (aims.of_values * (self.values - aims.values) * values).sum()
            curve = (aims.of_pairs * pairs**2).sum() + (aims.of_values * values**2).sum()
            if slope + curve <= 0 or len(chosen) == 1:
                break
            share = max(0.1, min(0.9, float(-slope / curve)))
            chosen = chosen[: max(1, int(share * len(chosen)))]
        if not len(chosen) or slope + 0.5 * curve >= 0:
            return 0.0
        holds = dealt.holds
        holds[mine[chosen]], holds[theirs[chosen]] = holds[theirs[chosen]], holds[mine[chosen]]
        self.pairs += pairs
        self.values += values
        return before - self.error()

    def _partners(self, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Pairs of units of one row type, no unit twice, each as likely as it has pairs of links.

        Swaps between units of few links change the tables most, and were all units as likely, those of many would stay as they were dealt.
        """
        most = min(len(self.open), max(TRIED, len(self.open) // 10))
        one = rng.choice(self.open, most, p=self.likely)
        low, high = self.ends[self.low[one]], self.ends[self.high[one]]
        places = np.searchsorted(self.ends, low + rng.random(most) * (high - low), side="right") - 1
        other = self.order[np.minimum(places, self.high[one] - 1)]
        both = np.stack([one, other], 1).reshape(-1)
        first = np.zeros(len(both), dtype=bool)
        first[np.unique(both, return_index=True)[1]] = True
        kept = first.reshape(-1, 2).all(axis=1)
        return one[kept], other[kept]

    def _ones(self, contents: Integers) -> Array:
        """The values that contents hold, shape (contents, V)."""
        found = np.zeros((len(contents), self.dealt.width))
        found[np.arange(len(contents))[:, None], self.dealt.cells[contents]] = 1.0
        return found

    def _allowed(self, units: Integers, leaving: Integers, coming: Integers) -> np.ndarray:
        """Whether each unit may have what the link that comes refers to, besides its other links."""
        dealt = self.dealt
        if dealt.partners is None:
            return np.ones(len(units), dtype=bool)
        partner = dealt.partners[dealt.holds[coming]]
        links = _ranges(dealt.first[units], dealt.number[units])
        rows = np.repeat(np.arange(len(units)), dealt.number[units])
        same = (dealt.partners[dealt.holds[links]] == partner[rows]) & (links != leaving[rows])
        taken = np.bincount(rows, same, len(units)) > 0
        return np.asarray(~taken & (partner != dealt.refused[units]))


def _pair_weight(number: Integers) -> Array:
    return np.where(number > 1, 1 / np.maximum(number * (number - 1.0), 1), 0.0)


def _ranges(first: Integers, number: Integers) -> Integers:
    """The whole numbers from each first, so many of them, one range after another."""
    ends = np.cumsum(number)
    return np.asarray(np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - (ends - number), number))
