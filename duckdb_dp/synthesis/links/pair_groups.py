"""Pairs of an attribute of the links and another one, in groups of neighbouring values where noise would drown single ones."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from duckdb_dp.domain.domain import Clique, Domain

CELLS, HELD = 2**20, 2**25
"""Most cells of one pair as it is measured, and of all of them together: 3 GiB."""

LOUDEST = 0.1
"""Squared L2 norm of the noise of a pair, in coordinates in which its dependence has its chi-squared over all that is counted, above which
single values are not measured: few depend so much."""

GROUPS = (64, 48, 32, 24, 20, 16, 12, 10, 8, 7, 6, 5, 4)
"""How many groups of neighbouring values the attributes of more values may be put into."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The pairs that are measured.

    Attributes:
        pairs: of an attribute of the links and another one.
        rho: what to spend for them and for the attributes alone.
        groups: attributes of more values are put into so many groups of neighbouring ones for their pairs.
        left_out: pairs that are not measured.
    """

    pairs: Sequence[Clique]
    rho: float
    groups: int
    left_out: Sequence[Clique]

    def told(self, domain: Domain) -> dict[str, Any]:
        """Which pairs of declared attributes are measured in groups of values, and in how many at most, and which are not measured."""

        def declared(pairs: Sequence[Clique]) -> list[Clique]:
            return [pair for pair in pairs if all(name in domain.sizes for name in pair)]

        grouped = [pair for pair in declared(self.pairs) if max(domain.shape(pair)) > self.groups]
        return {"groups": self.groups, "grouped": grouped, "left_out": declared(self.left_out)}


def candidates(domain: Domain, attributes: Sequence[str], others: Clique) -> list[Clique]:
    """All pairs of an attribute of the links and another one, small ones first."""
    found = (domain.clique((a, b)) for a in attributes for b in (*others, *(c for c in attributes if c > a)))
    return sorted((pair for pair in found if min(domain.shape(pair)) > 1), key=domain.cells)


def free(domain: Domain, pair: Clique) -> int:
    """Numbers of a pair that its attributes alone do not determine."""
    return math.prod(domain.sizes[name] - 1 for name in pair)


def finest(
    domain: Domain, pairs: Sequence[Clique], measurable: Callable[[Domain], Sequence[Clique]], fewest: int = GROUPS[-1]
) -> tuple[int, Sequence[Clique]]:
    """(the most groups in which all pairs are measurable, or the fewest that there may be; the pairs that are, in so many).

    Args:
        domain: of single values.
        pairs: of its attributes.
        measurable: which pairs noise does not drown where attributes have these sizes.
        fewest: groups.
    """
    largest, found = max(domain.sizes.values()), list[Clique]()
    for groups in (largest, *(number for number in GROUPS if fewest <= number < largest)):
        sizes = Domain({name: min(size, groups) for name, size in domain.sizes.items()})
        cells = [sizes.cells(pair) for pair in pairs]
        if max(cells, default=0) > CELLS or sum(cells) > HELD:
            continue
        found = list(measurable(sizes))
        if len(found) == len(pairs):
            break
    return groups, found
