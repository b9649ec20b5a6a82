"""How many links the rows of a side have: modelled, and drawn so that row types get their links and degrees their shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from duckdb_dp.counting.units import classes
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.reconstruct.nonneg import simplex
from duckdb_dp.synthesis.links.last_degrees import calmed
from duckdb_dp.synthesis.links.linked_rows import shrunk
from duckdb_dp.synthesis.links.measured_degrees import Measured, means, numbers
from duckdb_dp.synthesis.links.negative_binomials import HALVINGS, clipped
from duckdb_dp.synthesis.links.per_unit import NoisyTable
from duckdb_dp.synthesis.links.room import within_room
from duckdb_dp.synthesis.links.sides import Side

ROUNDS = 12
"""Rounds of scaling to the tables of each attribute."""

CHILDLESS, SCALES = 0.05, np.exp(0.7 * np.linspace(-3, 2, 26))
"""How likely it is that rows of a value have no links, before anything is seen; and if they have, their number over what is expected, whose
logarithm has a standard deviation of 0.7."""

OTHERWISE, SIZES = 0.001, np.geomspace(0.03, 1, 6)
"""How likely it is that rows of a value are in other classes of degrees than those of all values, and how many of them, over all."""

SURE = 1.0
"""Standard deviations of its noise by which the energy of differences between values is lowered, before these are believed."""

STEEP = 5.0
"""Largest size of the logarithm of a tilt: degrees that next to no row has may be far from the mean, and a value would have those alone."""

GOLDEN = (5**0.5 - 1) / 2
LEAST = 1e-9

THIN = 4
"""Rows of a type for each of its degrees, at most, of which the number of links is drawn: fewer rows cannot have the degrees and
a given number of links too."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """The distribution of degrees of the rows of each type, up to a tilt that gives each type its links.

    Attributes:
        shares: of each degree 0 to d among all rows.
        factors: attribute -> for each degree and value, how the share differs from that; they multiply.
    """

    shares: Array
    factors: Mapping[str, Array] = field(default_factory=dict)

    def of(self, side: Side) -> Array:
        """Shares of degrees of each row type, shape (types, d + 1)."""
        codes = {name: side.types[:, side.attributes.index(name)] for name in self.factors}
        even = np.ones((len(self.shares), len(side.types)))
        return _multiplied(self.shares, [even, *(factor[:, codes[name]] for name, factor in self.factors.items())])


def model(measured: Measured, side: Side, domain: Domain, links: int) -> Degrees:
    """The distribution of degrees for synthetic rows, from the measured one.

    The histogram is shrunk towards a clipped negative binomial of the same mean, and tables by value towards independence, of rows of
    each class of degree that are as many as the histogram says.

    Args:
        measured: of the private side.
        side: the synthetic one.
        domain: of the attributes.
        links: how many there will be.

    Privacy: post-processing.
    """
    first = classes(side.max_degree or 1)
    most, number = int(side.max_degree or 1), len(side.rows)
    linked = min(measured.linked / measured.rows, 1.0)
    share = shrunk(linked, measured.linked_variance / measured.rows**2, links, number)
    prior = clipped(links / number, 1 - share, most)
    held = np.searchsorted(first, np.arange(1, most + 1), side="right") - 1
    expected: Array = np.bincount(held, prior[1:]).astype(np.float64)
    found = numbers(measured.classed, share * measured.rows, expected * measured.rows) / measured.rows
    found *= min(1.0, 1 / max(found.sum(), LEAST))
    # A class that the prior has nothing of has what was measured of it all the same, spread evenly.
    within = np.where(
        expected[held] > LEAST, prior[1:] / np.maximum(expected, LEAST)[held], 1 / np.bincount(held)[held]
    )
    each = calmed(found[held] * within, prior[1:], held, measured.classed, measured.rows, links / number)
    found = np.bincount(held, each, minlength=len(first)).astype(np.float64)
    within = np.where(found[held] > 0, each / np.maximum(found, 1e-300)[held], within)
    shares = np.append(max(0.0, 1 - each.sum()), each)
    of_types = {name: one.group[side.types[:, side.attributes.index(name)]] for name, one in measured.values.items()}
    tables = {
        name: _by_value(
            one.noisy,
            found,
            means(most),
            shares[0],
            held,
            within,
            np.bincount(of_types[name][side.rows], minlength=one.noisy.table.shape[1]),
            measured,
        )
        for name, one in measured.values.items()
    }
    factors = _factors(shares, tables, of_types, side.sizes / number)
    return Degrees(shares=shares, factors={name: factors[name][:, one.group] for name, one in measured.values.items()})


def _by_value(
    table: NoisyTable,
    found: Array,
    means: Array,
    none: float,
    held: Integers,
    within: Array,
    rows: Integers,
    measured: Measured,
) -> Array:
    """Shares of all rows by degree and value, shape (d + 1, values), of as many rows of each value as there are."""
    alone = rows / rows.sum()
    shares = _leaning(table, found, means, alone, measured.rows)
    # The nearest table in L2 whose classes have the rows that are known of them: it has as much less noise.
    beside = table.table.mean(axis=1) - found * measured.rows / len(alone)
    noisy = NoisyTable(table.table - beside[:, None], table.variance * (1 - 1 / len(alone)))
    joint = noisy.shrunk(shares * measured.rows) / measured.rows
    joint = np.stack([simplex(row, whole) for row, whole in zip(joint, found.tolist(), strict=True)])
    joint *= 1 - _childless(table, np.multiply.outer(found, alone) * measured.rows, alone * measured.rows)
    joint *= (found / np.maximum(joint.sum(axis=1), 1e-300))[:, None]
    joint *= (np.minimum(1.0, alone / np.maximum(joint.sum(axis=0), LEAST)))[None, :]
    left = np.maximum(alone - joint.sum(axis=0), 0)
    left *= none / max(left.sum(), LEAST) if none else 0.0
    return np.concatenate([left[None, :], joint[held] * within[:, None]])


def _childless(table: NoisyTable, expected: Array, rows: Array) -> Array:
    """How likely it is that rows of a value have no links at all: the noise in a table would give them some.

    The rows of a value are a times those that are expected, for all classes: a is 0 with probability CHILDLESS, or lognormal. With
    probability OTHERWISE they are in classes of their own, N(0, s^2) rows in each, where s is one of SIZES of what it is with all rows of
    the value in one class: so rows of which all have a number of links that is rare among others, or of which few have any, have theirs.
    """
    size = np.maximum((expected**2).sum(axis=0), LEAST)
    found, noise = (expected * table.table).sum(axis=0) / size, table.variance / size
    logs = -0.5 * (found[:, None] - np.append(0.0, SCALES)[None, :]) ** 2 / noise[:, None]
    apart = np.maximum(np.multiply.outer(rows**2 / len(table.table), SIZES**2), LEAST)
    signal = apart / (apart + table.variance)
    energy = (table.table**2).sum(axis=0) / table.variance
    beside = 0.5 * (energy[:, None] * signal + len(table.table) * np.log1p(-signal)) + logs[:, :1]
    before = np.exp(-0.5 * (np.log(SCALES) / 0.7) ** 2)
    priors = np.concatenate(
        [
            [CHILDLESS],
            (1 - CHILDLESS - OTHERWISE) * before / before.sum(),
            np.full(len(SIZES), OTHERWISE / len(SIZES)),
        ]
    )
    logs = np.concatenate([logs, beside], axis=1) + np.log(priors)
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(likely[:, 0] / likely.sum(axis=1))


def _leaning(table: NoisyTable, found: Array, means: Array, alone: Array, rows: float) -> Array:
    """Shares by class of degree and value, in which rows of some values have more links than others, and nothing else differs.

    Formula: p_w(c) ~ p(c) exp(l_w m_c) for classes c of mean degree m_c, 0 among them, scaled to the rows of each class and value. l_w is
    the projection of the noisy table on its derivative rows_w p(c) (m_c - m), shrunk towards that of all values as their spread above
    the noise says; that spread is at most one over the standard deviation of degrees, which moves their mean by as much.
    """
    shares, degree = np.append(max(0.0, 1 - found.sum()), found), np.append(0.0, means)
    shares = shares / shares.sum()
    place = degree - shares @ degree
    slope = (shares * place)[1:]
    rows_of, size = np.maximum(alone * rows, 1.0), float(slope @ slope)
    if size <= LEAST:
        return np.multiply.outer(found, alone)
    leaning = slope @ (table.table / rows_of - found[:, None]) / size
    noise = table.variance / (size * rows_of**2)
    middle = float((leaning / noise).sum() / (1 / noise).sum())
    free = max(len(leaning) - 1, 1)
    excess = float(((leaning - middle) ** 2 / noise).sum()) - free - SURE * np.sqrt(2 * free)
    spread = max(0.0, excess / float((1 / noise).sum()))
    spread = min(spread, 1 / max(float(shares @ place**2), LEAST))
    power = np.multiply.outer(place, (leaning - middle) * spread / (spread + noise))
    joint = shares[:, None] * np.exp(np.clip(power, -STEEP, STEEP))
    for _ in range(ROUNDS):
        joint *= alone / np.maximum(joint.sum(axis=0), LEAST)
        joint *= (shares / np.maximum(joint.sum(axis=1), 1e-300))[:, None]
    return np.asarray(joint[1:])


def _factors(
    shares: Array, tables: Mapping[str, Array], groups: Mapping[str, Integers], weights: Array
) -> dict[str, Array]:
    """Factors by which the degrees of row types have the tables of each attribute, by iterative scaling.

    Args:
        shares: of each degree among all rows.
        tables: shares of all rows by degree and group of values.
        groups: the group of each row type.
        weights: the share of each row type.
    """
    factors = {name: np.ones_like(table) for name, table in tables.items()}
    for _ in range(ROUNDS if tables else 0):
        for name, table in tables.items():
            rows = _multiplied(shares, [factors[other][:, groups[other]] for other in tables]) * weights[:, None]
            now = np.stack([np.bincount(groups[name], column, table.shape[1]) for column in rows.T])
            factors[name] = factors[name] * np.clip(np.maximum(table, LEAST) / np.maximum(now, LEAST), 1e-3, 1e3)
    return factors


def _multiplied(shares: Array, factors: Sequence[Array]) -> Array:
    """Shares of degrees of each row type, shape (types, d + 1), by factors of the shape (d + 1, types)."""
    table = np.tile(np.maximum(shares, LEAST), (factors[0].shape[1], 1))
    for factor in factors:
        table *= factor.T
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def drawn(table: Array, sizes: Integers, links: Integers, rng: np.random.Generator) -> Integers:
    """A degree for each row, those of a type together and in the order of types, that add up to the links of each type.

    The shares of degrees of all rows together stay those of the table as far as the links allow: they are tilted,
    p_t(k) ~ g(k) exp(lambda_t k) table_t(k), with lambda from the links of each type and g from the shares.

    Args:
        table: shares of degrees of each type, shape (types, d + 1).
        sizes: rows of each type.
        links: of each type, at most d for each row.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    counts = _counted(table, sizes, links, rng)
    balance(counts, links, rng)
    return in_order(counts)


def in_order(counts: Integers) -> Integers:
    """The degree of each row, those of a type together, of how many rows of each type have each."""
    return np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.reshape(-1))


def thin(sizes: Integers, most: int) -> np.ndarray:
    """Which types have too few rows for the shares of degrees 0 to ``most``."""
    return np.asarray(sizes <= THIN * (most + 1))


def spread(table: Array, sizes: Integers, links: Array, rng: np.random.Generator) -> Integers:
    """How many rows of each type have each degree, where types may be thin; all together have the links that are expected.

    A thin type has the links that its rows draw, with the number that is expected as their mean: if each row is a type of its own,
    all would have the mean otherwise.

    Args:
        table: shares of degrees of each type, shape (types, d + 1).
        sizes: rows of each type.
        links: expected, of each type.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    degrees = np.arange(table.shape[1])
    links = within_room(links, sizes * degrees[-1])
    counts = _counted(table, sizes, links, rng)
    free, ends = thin(sizes, len(degrees) - 1), np.rint(np.cumsum(links)).astype(np.int64)
    goal = np.minimum(np.where(free, counts @ degrees, np.diff(ends, prepend=0)), sizes * degrees[-1])
    missing = int(ends[-1] - goal.sum())
    while missing:
        room = sizes * degrees[-1] - goal if missing > 0 else goal
        kinds = np.flatnonzero((room > 0) & free) if ((room > 0) & free).any() else np.flatnonzero(room > 0)
        # Links that are missing go to types by what is expected of them: one that should have none gets none.
        weights = links[kinds] if missing > 0 else np.ones(len(kinds))
        chosen = kinds[np.argsort(rng.exponential(size=len(kinds)) / np.maximum(weights, 1e-300))[: abs(missing)]]
        goal[chosen] += np.sign(missing)
        missing -= len(chosen) * int(np.sign(missing))
    balance(counts, goal, rng)
    return counts


def _counted(table: Array, sizes: Integers, links: Array | Integers, rng: np.random.Generator) -> Integers:
    """How many rows of each type have each degree, with about so many links of each type."""
    wanted = (sizes @ table) / max(int(sizes.sum()), 1)
    now = _tilted(table, sizes, links)
    for _ in range(ROUNDS // 3):
        shares = (sizes @ now) / max(int(sizes.sum()), 1)
        table = table * np.clip(wanted / np.maximum(shares, LEAST), 0.1, 10)[None, :]
        now = _tilted(table, sizes, links)
    ends = np.cumsum(now, axis=1)
    kinds = np.repeat(np.arange(len(sizes)), sizes)
    # Evenly spread numbers: shares of degrees of any run of rows, and so of all rows and of each type, are nearly exact.
    even = (rng.random() + GOLDEN * np.arange(len(kinds))) % 1
    degrees = np.minimum((even[:, None] >= ends[kinds]).sum(axis=1), table.shape[1] - 1)
    counts = np.zeros(table.shape, dtype=np.int64)
    np.add.at(counts, (kinds, degrees), 1)
    return counts


def _tilted(table: Array, sizes: Integers, links: Array | Integers) -> Array:
    """The shares times exp(lambda k), lambda such that each type has its links on average."""
    k = np.arange(table.shape[1], dtype=np.float64)
    mean = np.clip(links / np.maximum(sizes, 1), 1e-9, k[-1] - 1e-9)
    low, high = np.full(len(table), -40.0), np.full(len(table), 40.0)
    logs = np.log(np.maximum(table, 1e-300))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        power = logs + middle[:, None] * k
        now = np.exp(power - power.max(axis=1, keepdims=True))
        now /= now.sum(axis=1, keepdims=True)
        less = now @ k < mean
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray(now)


def balance(counts: Integers, links: Integers, rng: np.random.Generator) -> None:
    """Change degrees by one, in place, until each type has its links: two types at a time, so that shares of degrees stay."""
    k = np.arange(counts.shape[1])
    missing = links - counts @ k
    more, less = (
        np.repeat(np.arange(len(links)), np.maximum(missing, 0)),
        np.repeat(np.arange(len(links)), np.maximum(-missing, 0)),
    )
    more, less = rng.permutation(more), rng.permutation(less)
    both = min(len(more), len(less))
    for one, other in zip(more[:both].tolist(), less[:both].tolist(), strict=True):
        room = np.minimum(counts[one, :-1], counts[other, 1:])
        if room.any():
            at = int(np.searchsorted(np.cumsum(room), rng.integers(int(room.sum())), side="right"))
            _move(counts, one, at, 1)
            _move(counts, other, at + 1, -1)
        else:
            _step(counts, one, 1, rng)
            _step(counts, other, -1, rng)
    for kinds, step in ((more[both:], 1), (less[both:], -1)):
        for one in kinds.tolist():
            _step(counts, one, step, rng)


def _step(counts: Integers, kind: int, step: int, rng: np.random.Generator) -> None:
    """One row of a type, any that can, gets a link more or less."""
    room = counts[kind].copy()
    room[-1 if step > 0 else 0] = 0
    at = int(np.searchsorted(np.cumsum(room), rng.integers(int(room.sum())), side="right"))
    _move(counts, kind, at, step)


def _move(counts: Integers, kind: int, at: int, step: int) -> None:
    counts[kind, at] -= 1
    counts[kind, at + step] += 1


def arranged(
    rows: Sequence[Integers], degrees: Integers, rng: np.random.Generator, *, shuffled: bool = True
) -> Integers:
    """A row for every link: the rows of each type, in random order if so, each as often as its degree; links of a type mixed."""
    found, at = [], 0
    for members in rows:
        held = degrees[at : at + len(members)]
        at += len(members)
        found.append(rng.permutation(np.repeat(rng.permutation(members) if shuffled else members, held)))
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
