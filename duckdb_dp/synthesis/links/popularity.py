"""How many links each row of a side has whose rows anybody may see: measured row by row, and what numbers synthetic rows get."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from duckdb_dp.counting.partners import WHOLE, partners_of
from duckdb_dp.linop import Array, Identity, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.negative_binomials import SPREADS
from duckdb_dp.synthesis.links.per_unit import PerUnit
from duckdb_dp.synthesis.links.sides import Side

LEAST = 1.0
"""How many standard deviations of its noise the spread of the rows' numbers of links must have, if it is as large as their mean."""

EACH, WIDER = 32, 24
"""Numbers of links up to which each is tried, and what part of itself a larger one is away from the next."""

WIDTHS = np.geomspace(0.05, 2.5, 24)
"""Standard deviations of the logarithm that are tried."""

USUAL, SPREAD, LESS = 1.1, 0.5, 2.0
"""What that often is, or the relative standard deviation of the means, with that of its logarithm; and by what factor, as a
logarithm, negative binomial numbers are less likely beforehand."""

UNSURE = 0.1
"""Standard deviation of the share of rows without links of a distribution that no weights have confirmed."""

STEPS, SMOOTH = 20, 0.3
"""Rounds of finding the distribution of numbers, and what part of it each makes smooth: more rounds fit the noise."""

BINS, FINE = 4_000, 0.2
"""Intervals of measured numbers, at most, and their width over the standard deviation of the noise."""

FITTED, SMALL, LOOKED = 20, 1e-3, 20_000_000
"""Rounds of scaling to the links of each pair of values, the least part of what is expected that a row has before, and up to how many rows
times squared attributes pairs are looked at."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Popularity:
    """What was measured of the rows of a side, one by one.

    Attributes:
        weights: of all links of each row, noisy, in the order of the rows' keys; none where they would be noise alone.
        variance: of the noise in each.
        original: whether the synthetic table has these very rows.
        linked: (the share of rows that have a link, its variance); None where it is not known.
    """

    weights: Array = field(default_factory=lambda: np.zeros(0))
    variance: float = np.inf
    original: bool = False
    linked: tuple[float, float] | None = None

    def part(self, rows: Integers) -> "Popularity":
        """The same of some synthetic rows, where these are the rows that were measured."""
        return replace(self, weights=self.weights[rows]) if self.original and len(self.weights) else self


def worth(rows: int, weight: float, rho: float, most: int) -> bool:
    """Whether the spread of rows' numbers of links shows above the noise, if it is as large as their mean.

    Formula: sqrt(P / 2) (W / P)^2 / v, with W the weight of all links over P rows and v the noise in one: the sum of the P squares
    of noise has a standard deviation of v sqrt(2 P).

    Args:
        rows: P.
        weight: W, of which one unit adds a vector of length 1.
        rho: what may be spent.
        most: rows of a unit, where each adds a vector of its own.
    """
    return rows > 0 and float(np.sqrt(rows / 2)) * (weight / rows) ** 2 * 2 * rho >= LEAST * most**2


def measure_popularity(
    queryable: PrivateQueryable, end: int, linked: tuple[float, float] | None, rho: float, *, units: bool
) -> Popularity:
    """The weight of the links of each row of a side.

    Args:
        queryable: counts of the links.
        end: the side.
        linked: the share of rows that have a link, and its variance, where it is known.
        rho: what to spend.
        units: whether the links of one unit have a length of 1 together, and not each of its rows.

    Privacy: spends rho.
    """
    partners = queryable.partners(end)
    assert partners is not None
    rows, original = partners
    query = PerUnit(Identity(rows), WHOLE, queryable.rows if units else 1)
    ((weights, variance),) = queryable.answer_all([(partners_of(end), query, rho)])
    return Popularity(weights=weights, variance=variance, original=original, linked=linked)


def numbers(known: Popularity, side: Side, expected: Array, partners: int, rng: np.random.Generator) -> Integers:
    """A number of links for each synthetic row, so many together as are expected of its row types.

    The numbers have the distribution that was found. Where the rows are those that were measured, the rows with the largest weights
    get the largest numbers; elsewhere the rows that have most by chance, each around what is expected of it, with the spread that is
    missing. Then they are scaled to the links of each value of each attribute.

    Args:
        known: what was measured.
        side: the synthetic rows.
        expected: links of each row type.
        partners: rows of the other side, each of which a row is linked to once at most.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    rows = len(side.rows)
    mean = np.asarray((expected / np.maximum(side.sizes, 1))[side.rows], dtype=np.float64)
    all_of = float(known.weights.sum()) if len(known.weights) else 1.0
    scale = max(all_of, 1e-9) / max(float(mean.mean()) * max(len(known.weights), 1), 1e-9)
    degrees, shares = distribution(known, float(mean.mean()), scale, partners)
    places = np.empty(rows)
    places[np.argsort(_score(known, mean, scale, degrees, shares, rng), kind="stable")] = (np.arange(rows) + 0.5) / rows
    found = _quantiles(degrees, shares, places)
    return _rounded(_raked(found, mean, _groups(side), partners), partners, rng)


def _quantiles(degrees: Array, shares: Array, places: Array) -> Array:
    """The numbers at some places of the distribution; one that stands for several is any of these."""
    ends = np.cumsum(shares) / shares.sum()
    held = np.minimum(np.searchsorted(ends, places, side="left"), len(degrees) - 1)
    inside = (places - (ends - shares)[held]) / np.maximum(shares[held], 1e-300)
    return np.asarray(degrees[held] + np.clip(inside, 0, 1) * (_widths(degrees)[held] - 1))


def distribution(known: Popularity, mean: float, scale: float, partners: int) -> tuple[Array, Array]:
    """(numbers of links, the share of rows that have each): what explains the measured weights best.

    It starts from the distribution of that mean that does so best among those of Poisson numbers whose means are lognormal, or gamma
    (then numbers are negative binomial); the share of rows that have a link counts too. Then
    each round gives each weight to the numbers that it may come from, and smooths the shares, but for that of 0 (the EMS algorithm
    of Silverman, Jones, Nychka and Wilson 1990); the last round smooths nothing.

    Args:
        known: what was measured.
        mean: links of a row.
        scale: the weight of a link.
        partners: the largest number.

    Privacy: post-processing.
    """
    if not len(known.weights):
        degrees = _grid(min(float(partners), 300 * mean + 60))
        shares = _start(np.ones((1, len(degrees))), np.ones(1), degrees, mean, known.linked)
        return degrees, _with_none(shares, known.linked, UNSURE**2)
    noise, seen = float(np.sqrt(known.variance)) / scale, known.weights / scale
    degrees = _grid(min(float(partners), max(float(seen.max()) + noise, 4 * mean, 1.0)))
    width = max(FINE * noise, (float(seen.max()) - float(seen.min())) / BINS)
    places, counts = np.unique(np.round(seen / width).astype(np.int64), return_counts=True)
    away = ((places[:, None] * width - degrees) / noise) ** 2 / 2
    likelihood = np.exp(away.min(axis=1, keepdims=True) - away)
    shares = _start(likelihood, counts, degrees, mean, known.linked)
    for step in range(STEPS):
        both = likelihood * shares
        shares = counts @ (both / np.maximum(both.sum(axis=1, keepdims=True), 1e-300)) / counts.sum()
        if step < STEPS - 1:
            shares = _smoothed(shares, degrees)
    # How many of the small numbers are 0 the weights do not say: then they are wrong in one direction, all of them.
    first = both[:, 0] / np.maximum(both.sum(axis=1), 1e-300)
    return degrees, _with_none(shares, known.linked, float(counts @ (first * (1 - first)) / counts.sum()) ** 2)


def _with_none(shares: Array, linked: tuple[float, float] | None, unsure: float) -> Array:
    """The shares with that of 0 between what it is, of some variance, and what the share of linked rows says."""
    if linked is None:
        return shares
    none = shares[0] + unsure / (unsure + linked[1]) * (1 - linked[0] - shares[0])
    none = min(max(none, 0.0), 1.0)
    return np.append(none, shares[1:] * ((1 - none) / max(1 - float(shares[0]), 1e-300)))


def _grid(most: float) -> Array:
    """Numbers from 0 to ``most``, of which large ones stand for some around them."""
    found = list(range(int(min(most, EACH)) + 1))
    while (after := found[-1] + max(1, found[-1] // WIDER)) <= most:
        found.append(after)
    return np.array(found, dtype=np.float64)


def _widths(degrees: Array) -> Array:
    """How many numbers each of them stands for."""
    return np.append(np.diff(degrees), 1.0)


def _start(
    likelihood: Array, counts: Array | Integers, degrees: Array, mean: float, linked: tuple[float, float] | None
) -> Array:
    """Shares of the numbers by the distribution of a family that is likeliest, given weights and the share of rows that have a link."""
    best, most = degrees * 0, -np.inf
    for below, prior in (*_lognormal(degrees + _widths(degrees), mean), *_binomial(degrees + _widths(degrees), mean)):
        shares = np.diff(below, prepend=0.0)
        shares /= shares.sum()
        found = float(counts @ np.log(np.maximum(likelihood @ shares, 1e-300))) + prior
        if linked is not None:
            found -= (1 - linked[0] - shares[0]) ** 2 / (2 * linked[1])
        if found > most:
            best, most = shares, found
    return best


def _lognormal(ends: Array, mean: float) -> Iterator[tuple[Array, float]]:
    """(Shares of numbers below these, the logarithm of how likely that is beforehand) of Poisson numbers with lognormal means."""
    from scipy.special import gammaincc  # for import time

    z = np.linspace(-4.5, 4.5, 200)
    weights = np.exp(-(z**2) / 2)
    for sigma in WIDTHS:
        rates = mean * np.exp(sigma * z - sigma**2 / 2)
        yield weights / weights.sum() @ gammaincc(ends, rates[:, None]), -((np.log(sigma / USUAL) / SPREAD) ** 2) / 2


def _binomial(ends: Array, mean: float) -> Iterator[tuple[Array, float]]:
    """The same of negative binomial numbers, of which more are 0."""
    from scipy.special import betainc  # for import time

    for r in SPREADS[::3]:
        yield betainc(r, ends, r / (r + mean)), -((np.log(1 / (np.sqrt(r) * USUAL)) / SPREAD) ** 2) / 2 - LESS


def _smoothed(shares: Array, degrees: Array) -> Array:
    widths = _widths(degrees)[1:]
    density = np.pad(shares[1:] / widths, 1, mode="edge")
    inner = (density[:-2] + 2 * density[1:-1] + density[2:]) / 4 * widths
    inner *= shares[1:].sum() / max(float(inner.sum()), 1e-300)
    return np.append(shares[0], (1 - SMOOTH) * shares[1:] + SMOOTH * inner)


def _score(
    known: Popularity, mean: Array, scale: float, degrees: Array, shares: Array, rng: np.random.Generator
) -> Array:
    """By what the rows are put in order: what is known of each, or what chance makes of what is expected."""
    chance = mean + mean.mean() * 1e-6 * rng.random(len(mean))
    if known.original and len(known.weights):
        noise, away = known.variance / scale**2, known.weights / scale - mean
        spread = max(0.0, float((away**2 - noise - mean).sum() / (mean**2).sum()))
        own = spread * mean**2 + mean
        return np.asarray(chance + own / (own + noise) * away)
    all_ = float(shares @ degrees**2) - float(shares @ degrees) ** 2
    spread = max(0.0, (all_ - float(mean.var()) - float(mean.mean())) / float((mean**2).mean()))
    factor = rng.gamma(1 / spread, spread, len(mean)) if spread > 1e-6 else 1.0
    return np.asarray(rng.poisson(mean * factor) + rng.random(len(mean)))


def _raked(found: Array, mean: Array, groups: Sequence[Integers], partners: int) -> Array:
    """The numbers, scaled to the links that are expected of each group of rows.

    Args:
        found: a number for each row.
        mean: what is expected of each.
        groups: for each row its number.
        partners: the largest number.
    """
    asked = [(codes, np.bincount(codes, mean)) for codes in groups]
    found = np.maximum(found, SMALL * mean)
    for _ in range(FITTED):
        for codes, wanted in asked:
            found = np.minimum(found * (wanted / np.maximum(np.bincount(codes, found), 1e-300))[codes], partners)
    return found


def _groups(side: Side) -> list[Integers]:
    """Rows by two attributes each, then by one, then all: by number, for as many as can be looked at."""
    codes = side.types.T
    pairs = list(itertools.combinations(codes, 2)) if len(codes) ** 2 * len(side.rows) <= LOOKED else []
    found = [np.unique(np.stack(pair), axis=1, return_inverse=True)[1].reshape(-1) for pair in pairs]
    return [
        one[side.rows] for one in [*found, *codes, codes[0] * 0 if len(codes) else np.zeros(len(side.types), np.int64)]
    ]


def _rounded(found: Array, partners: int, rng: np.random.Generator) -> Integers:
    """Whole numbers with the same sum, each next to its own."""
    order, whole = rng.permutation(len(found)), np.empty(len(found), dtype=np.int64)
    whole[order] = np.diff(np.rint(np.cumsum(found[order])), prepend=0.0).astype(np.int64)
    return np.minimum(whole, partners)


def settled(
    held: Integers, sizes: Integers, links: Integers, most: Integers, evened: float, rng: np.random.Generator
) -> Integers:
    """Numbers of links of rows, those of a type together, as near to the given ones as its links and its partners allow.

    Args:
        held: a number for each row.
        sizes: rows of each type.
        links: of each type.
        most: partners that a row of each type may have.
        evened: by what factor numbers are nearer to their mean.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    found, ends = held.copy(), np.append(0, np.cumsum(sizes))
    for kind in np.flatnonzero(sizes):
        mine = slice(ends[kind], ends[kind + 1])
        mean, number = links[kind] / sizes[kind], held[mine]
        if number.sum() == links[kind] and number.max() <= most[kind] and evened == 1:
            continue
        near = np.maximum(mean + (number - number.mean()) / evened, SMALL * mean)
        if links[kind]:
            near = _scaled_within(near, float(links[kind]), max(float(most[kind]), float(mean)))
        found[mine] = _rounded(near, int(links[kind]), rng)
    return found


def _scaled_within(shares: Array, total: float, most: float) -> Array:
    """Positive shares times one factor, each ``most`` at most, that add up to a total, which is at most so much for each."""
    order = np.sort(shares)[::-1]
    rest = np.cumsum(order[::-1])[::-1]
    factors = (
        np.maximum(total - most * np.arange(len(order)), 0.0) / rest
    )  # if so many of the largest ones are ``most``
    fits = order * factors <= most
    return np.asarray(np.minimum(shares * factors[int(np.argmax(fits)) if fits.any() else -1], most))
