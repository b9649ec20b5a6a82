"""What links of one unit have in common: measured in tables of units, then kept by dealing the links anew within row types."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.counting.units import pairs_of, values_of
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.by_number import starts, uneven
from duckdb_dp.synthesis.links.measured_degrees import Measured, means
from duckdb_dp.synthesis.links.per_unit import NoisyTable, measure_tables
from duckdb_dp.synthesis.links.redeal import Dealt, Targets, redeal
from duckdb_dp.synthesis.links.sides import Side

PAIRS = 0.7
"""Share of what is spent on ``measure_structure`` that goes to pairs of links; the rest is for values by the number of links."""

UNEVEN = 0.2
"""How far the links of all units can be from their shares, as an L1 distance, for tables without those of pairs to be worth their cost."""

WIDEST, TOGETHER = 64, 400
"""Values of the largest attribute that is looked at, and of all of them together."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """Tables of units as measured.

    Attributes:
        pairs: for two names, in order, the values of two links of one unit.
        values: for each name, of what a unit is linked to or of the links, values by class of the number of links.
        first: the least number of links of each class.
    """

    pairs: dict[tuple[str, str], NoisyTable]
    values: dict[str, NoisyTable]
    first: Integers


def looked_at(domain: Domain, names: Sequence[str], widest: int = WIDEST) -> tuple[str, ...]:
    """The attributes whose tables are measured: small ones first, as many as there is room for."""
    chosen, room = [], TOGETHER
    for name in sorted(names, key=lambda name: (domain.sizes[name], name)):
        room -= domain.sizes[name]
        if room >= 0 and 1 < domain.sizes[name] <= widest:
            chosen.append(name)
    return tuple(name for name in names if name in chosen)


def measure_structure(
    queryable: PrivateQueryable,
    partners: Sequence[str],
    own: Sequence[str],
    rho: float,
    units: Measured,
    loudest: float,
    spared: Sequence[str],
) -> Structure | None:
    """The tables of units over attributes of their links; None, at no cost, where there is nothing that they say.

    Where noise would drown the tables of pairs, the spared attributes are left out of them, those of most values first. Where it drowns
    what is left too, values by the number of links are measured alone, of the partners, and only if units differ much in that number:
    what all links together go to follows from them.

    Args:
        queryable: what measures.
        partners: attributes of what a unit is linked to.
        own: attributes of the links.
        rho: what to spend.
        units: how many links they have, as measured.
        loudest: the largest L1 norm of the noise in a table of pairs, over the units, that is worth its cost.
        spared: attributes that may be left out of the tables of pairs, with which the others are measured alone.

    Privacy: spends rho at most; each table has sensitivity 1 for a unit.
    """
    domain, most = queryable.domain, queryable.rows
    alike = looked_at(domain, (*partners, *own)) if most > 1 else ()
    while _loudness(domain, alike, PAIRS * rho) > loudest * units.linked:
        left = sorted(set(alike) & set(spared), key=lambda name: (domain.sizes[name], name))
        alike = tuple(name for name in alike if name != left[-1]) if left else ()
    together = list(itertools.combinations_with_replacement(alike, 2))
    differ = looked_at(domain, partners, TOGETHER) if uneven(units.units, means(most)) > UNEVEN else ()
    names = tuple(dict.fromkeys((*alike, *differ)))
    each = (1 - PAIRS) * rho / max(len(names), 1) * (1 - 1e-9)
    first = starts(units.units, most, math.sqrt(0.5 / each))
    if not together and (not names or len(first) == 1):
        return None
    asked = [
        (pairs_of(a, b), (domain.sizes[a], domain.sizes[b]), PAIRS * rho / len(together) * (1 - 1e-9))
        for a, b in together
    ]
    asked += [(values_of(first.tolist(), name), (len(first), domain.sizes[name]), each) for name in names]
    found = iter(measure_tables(queryable, asked))
    return Structure(
        pairs={pair: next(found) for pair in together}, values={name: next(found) for name in names}, first=first
    )


def _loudness(domain: Domain, alike: Sequence[str], rho: float) -> float:
    """The L1 norm of the noise in the tables of all pairs of these attributes, on average."""
    together = [domain.sizes[a] * domain.sizes[b] for a, b in itertools.combinations_with_replacement(alike, 2)]
    return sum(together) * math.sqrt(1 / (math.pi * rho * len(together))) if together else 0.0


def keep_structure(
    structure: Structure,
    owners: Integers,
    side: Side,
    codes: dict[str, Integers],
    partners: Integers | None,
    *,
    scale: float,
    apart: tuple[Integers, Integers] | None,
    rng: np.random.Generator,
) -> Integers:
    """For each link, which link's contents it has: what it refers to besides its owner, and its attributes.

    Links are swapped between owners of one row type, so that all counts of row types and attributes stay as they are.
    Measured tables are shrunk towards those of the links as they were dealt, so that noise alone changes nothing.

    Args:
        structure: as measured.
        owners: the row of the unit's side that each link has.
        side: the unit's side.
        codes: of each attribute of the contents, for each link.
        partners: the other row of each link, which no owner may have twice; None where it may.
        scale: synthetic units for each private one.
        apart: for both ends in one table, the position in it of each row of the unit's side and of the other one.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    sizes = {name: size for name, noisy in structure.values.items() if (size := noisy.table.shape[1]) <= WIDEST}
    if not sizes or len(owners) < 2:
        return np.arange(len(owners))
    dealt = Dealt.of(owners, side, {name: codes[name] for name in sizes}, sizes, partners, structure.first, apart)
    return redeal(dealt, _targets(structure, dealt, scale), rng)


def _targets(structure: Structure, dealt: Dealt, scale: float) -> Targets:
    """What the tables should be, and what a squared error in each cell counts."""
    pairs, values = dealt.pairs(), dealt.values()
    aims = Targets(
        pairs=pairs.copy(), values=values.copy(), of_pairs=np.zeros_like(pairs), of_values=np.zeros_like(values)
    )
    for (a, b), noisy in structure.pairs.items():
        here = dealt.spans[a], dealt.spans[b]
        table, variance = noisy.table * scale, noisy.variance * scale**2
        if a == b:
            table = (table + table.T) / 2
        free = table.size if a != b else (table.size + len(table)) / 2
        aim = NoisyTable(table, variance * (1.0 if a != b else free / table.size)).around(pairs[here])
        for place, part in ((here, aim), (here[::-1], aim.T)):
            aims.pairs[place] = part
            aims.of_pairs[place] = 1 / variance
    for name, columns in dealt.spans.items():
        noisy = structure.values[name]
        table, variance = noisy.table * scale, noisy.variance * scale**2
        aims.values[:, columns] = NoisyTable(table, variance).around(values[:, columns])
        aims.of_values[:, columns] = 1 / variance
    return aims
