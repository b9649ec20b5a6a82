"""The attributes of the links themselves, such as the stars of a rating, are drawn for synthetic links, as they were measured."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from duckdb_dp.linop import Array, Integers
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.nonneg import simplex
from duckdb_dp.synthesis.links.kept import kept_shares, outside

GOLDEN, ALIKE = (5**0.5 - 1) / 2, 16
"""Its multiples are spread most evenly between whole numbers. Links in a group over which they are spread, on average."""

SAMPLED, STEPS = 20_000, 150
"""Links on which a distribution is fitted, at most, and steps of its optimiser."""

RARE = 0.02
"""Links of a value at least: some values that noise has left none of them have a few."""

SCALED = 50
"""Rounds of scaling the values to their shares, at most."""

LEAST_KEPT = 1e-3
"""Of what is measured in one direction; with less its penalty would be all that the optimiser sees."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyPair:
    """How far links are from independent in an attribute y of theirs and another one x, as measured.

    Formula: table(u, w) = s(u) r(w) (n(u, w) - q(w) n(u)) + noise, with n links by value; only the part of it that is orthogonal
    to 1/s and 1/r says anything.

    Attributes:
        other: x.
        scales: s and r, positive.
        centre: q, about the shares of x.
        table: shape (values of y, values of x).
        variance: of the noise of each cell.
        group: of each value of x, where the table is one of groups of values; None where it is not.
    """

    other: str
    scales: tuple[Array, Array]
    centre: Array
    table: Array
    variance: float
    group: Integers | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyAttribute:
    """An attribute of the links as measured.

    Attributes:
        shares: of its values.
        pairs: with attributes of the sides and other ones of the links.
        group: of each value, where the pairs are of groups of values; None where they are not.
    """

    shares: Array
    pairs: Sequence[NoisyPair] = ()
    group: Integers | None = None


def draw(
    measured: Mapping[str, NoisyAttribute],
    total: float,
    ends: Mapping[str, Integers],
    weights: Array,
    rng: np.random.Generator,
) -> list[Integers]:
    """A code per link for each attribute, given all attributes of both ends and the attributes drawn before.

    Args:
        measured: each attribute of the links as measured.
        total: links of the original, or units that have any where they were measured, noisy.
        ends: for each attribute of both sides its code at every link, shape (links,).
        weights: what each link that was drawn weighs in such a total: 1, or 1/k where its unit has k.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    known, scale = dict(ends), float(weights.sum()) / total
    for name, one in measured.items():
        pairs = {p.other: _scaled(p, scale) for p in one.pairs if p.other in known and min(p.table.shape) > 1}
        seen = known | {p.other: p.group[known[p.other]] for p in pairs.values() if p.group is not None}
        shares = one.shares if one.group is None else summed(one.group, one.shares)
        codes = _drawn(_Model(shares, pairs, seen, weights, rng), seen, len(weights), rng)
        known[name] = codes if one.group is None else _inside(codes, one.group, one.shares, rng)
    return [known[name] for name in measured]


def distribution(measurement: LinearMeasurement, links: float) -> Array:
    """The distribution of an attribute alone, by its residual: the nearest one, as noise in values that no link has is no links.

    Privacy: post-processing.
    """
    found = simplex(measurement.answers + links / len(measurement.answers), links)
    counts = np.maximum(found, RARE)  # noise leaves no value out
    return np.asarray(counts / counts.sum())


def summed(group: Integers, shares: Array) -> Array:
    """The shares of groups."""
    return np.asarray(np.bincount(group, shares), dtype=np.float64)


def _inside(groups: Integers, group: Integers, shares: Array, rng: np.random.Generator) -> Integers:
    """A value for each link from its group, as the values of the group have shares; spread evenly over the links of a group."""
    codes = np.empty(len(groups), dtype=np.int64)
    for number in np.unique(groups):
        values, links = np.flatnonzero(group == number), np.flatnonzero(groups == number)
        held = np.maximum(shares[values], 1e-300)  # even where noise has left none of them
        ends = np.cumsum(held / held.sum())
        even = (rng.permutation(len(links)) + rng.random()) / len(links)
        codes[links] = values[np.minimum(np.searchsorted(ends, even, side="right"), len(values) - 1)]
    return codes


def _scaled(pair: NoisyPair, scale: float) -> NoisyPair:
    """The same of ``scale`` times as many links, with noise of variance 1."""
    unit = pair.variance**-0.5
    scales = pair.scales[0], pair.scales[1] * unit / scale
    return replace(pair, scales=scales, table=pair.table * unit, variance=1.0)


@final
class _Model:
    r"""The distribution of an attribute y of links given other attributes: log-linear in each.

    Formula: p_i(y) ~ q(y) exp(theta_0(y) + s(y) sum over attributes a and directions j of e_j(y) theta_aj r_a(x_ia)), with e_j
    orthonormal and orthogonal to 1/s; theta minimises sum_i w_i log Z_i - n <theta_0, q> - <theta, z> + sum of l_aj |theta_aj|^2 / 2,
    with w_i the weight of a link, and z_aj the measured pair in these coordinates. theta_0 keeps the distribution q of y over all
    links, of weight n. l_aj = I_a (1 / k_aj - 1), with I_a the information of a coordinate in n links and k_aj the share of z_aj that
    is no noise (``kept_shares``): so the links have every measured pair as far as its noise allows.

    Args:
        shares: q, the distribution of y.
        pairs: by the other attribute, with noise of variance 1.
        known: the codes of the other attributes for each link.
        weights: of the links.
        rng: the source of randomness, for a sample of links.
    """

    def __init__(
        self,
        shares: Array,
        pairs: Mapping[str, NoisyPair],
        known: Mapping[str, Integers],
        weights: Array,
        rng: np.random.Generator,
    ) -> None:
        self.logs, self.theta = np.log(shares), dict[str, Array]()
        if not pairs:
            return
        from scipy.optimize import minimize  # for import time
        from scipy.sparse import csr_array

        links, mass = len(weights), float(weights.sum())
        scale = next(iter(pairs.values())).scales[0]
        across = outside(scale)
        inside = {name: outside(pair.scales[1]) for name, pair in pairs.items()}
        gaps = []
        for name, pair in pairs.items():
            spare = np.bincount(known[name], weights, len(pair.centre)) - mass * pair.centre
            gap = pair.table - np.multiply.outer(scale * shares, pair.scales[1] * spare)
            gaps.append(across.T @ gap @ inside[name])
        turn, kept = kept_shares(gaps)
        directions = (scale[:, None] * (across @ turn)).T
        wanted = np.concatenate(
            [(turn.T @ across.T @ p.table @ b @ b.T).T for p, b in zip(pairs.values(), inside.values(), strict=True)]
        )
        sizes = [len(pair.centre) for pair in pairs.values()]
        known_by = [
            mass * float(scale**2 @ shares) * float(p.scales[1] ** 2 @ p.centre) / p.table.size for p in pairs.values()
        ]
        ridges = np.repeat(
            np.array(known_by)[:, None] * (1 / np.clip(kept, LEAST_KEPT, 1 - LEAST_KEPT) - 1), sizes, axis=0
        )
        sample = np.arange(links) if links <= SAMPLED else rng.choice(links, SAMPLED, replace=False)
        starts = np.cumsum([0, *sizes])
        columns = [known[name][sample] + start for name, start in zip(pairs, starts, strict=False)]
        cells = np.stack(columns, 1).reshape(-1)
        heights = np.concatenate([pair.scales[1] for pair in pairs.values()])
        centres = np.concatenate([pair.centre for pair in pairs.values()]) * heights
        at = np.arange(len(sample) + 1) * len(sizes)
        design = csr_array((heights[cells], cells, at), shape=(len(sample), len(heights)))
        each = weights[sample] * (mass / float(weights[sample].sum()))
        values = len(shares)

        # In units of one over the root of their information, about, all coordinates are alike: so steps are straight.
        known_of = mass * np.multiply.outer(centres * heights, directions**2 @ shares) + ridges
        units = np.concatenate([mass * shares, known_of.reshape(-1)]) ** -0.5

        def value(scaled: Array) -> tuple[float, Array]:
            free, theta = units[:values] * scaled[:values], (units * scaled)[values:].reshape(wanted.shape)
            power = (design @ theta - centres @ theta) @ directions + (self.logs + free)
            tops = power.max(axis=1, keepdims=True)
            p = np.exp(power - tops)
            whole = p.sum(axis=1, keepdims=True)
            p *= each[:, None] / whole
            seen = p @ directions.T
            slope = design.T @ seen - np.multiply.outer(centres, seen.sum(axis=0)) - wanted + ridges * theta
            loss = (
                float(each @ (np.log(whole) + tops)[:, 0]) - float((theta * wanted).sum()) - mass * float(free @ shares)
            )
            loss += 0.5 * float((ridges * theta**2).sum())
            return loss, units * np.concatenate([p.sum(axis=0) - mass * shares, slope.reshape(-1)])

        solved = minimize(
            value, np.zeros(values + wanted.size), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}
        )
        found = units * solved.x
        theta = found[values:].reshape(wanted.shape)
        power = (design @ theta - centres @ theta) @ directions
        free = _scaled_to(power + self.logs + found[:values], each, shares)
        self.logs = self.logs + found[:values] + free - centres @ theta @ directions
        powers = heights[:, None] * (theta @ directions)
        self.theta = {name: powers[a:b] for name, (a, b) in zip(pairs, itertools.pairwise(starts), strict=True)}


def _scaled_to(power: Array, weights: Array, shares: Array) -> Array:
    """What to add to the logarithm of each value, so that the values have their shares where the optimiser stopped before."""
    free = np.zeros(len(shares))
    for _ in range(SCALED):
        p = np.exp(power + free - (power + free).max(axis=1, keepdims=True))
        found = (weights / p.sum(axis=1)) @ p / float(weights.sum())
        free += np.log(shares / np.maximum(found, 1e-300))
        if np.abs(found - shares).max() < LEAST_KEPT * shares.min():
            break
    return free


def _drawn(model: _Model, known: Mapping[str, Integers], links: int, rng: np.random.Generator) -> Integers:
    """A value for each link from the model."""
    codes, evenly = np.empty(links, dtype=np.int64), _evenly(model, known, links, rng)
    for first in range(0, links, SAMPLED):
        part = slice(first, first + SAMPLED)
        power = np.tile(model.logs, (len(codes[part]), 1))
        for name, theta in model.theta.items():
            power += theta[known[name][part]]
        ends = np.cumsum(np.exp(power - power.max(axis=1, keepdims=True)), axis=1)
        draws = evenly[part] * ends[:, -1]
        codes[part] = np.minimum((draws[:, None] >= ends).sum(axis=1), ends.shape[1] - 1)
    return codes


def _evenly(model: _Model, known: Mapping[str, Integers], links: int, rng: np.random.Generator) -> Array:
    """A number in [0, 1) for each link, uniform, and evenly spread over links alike: by the golden ratio from a random one.

    So the values of links alike are near what is expected of them, nearer than those of independent draws. Alike are those with the same
    values of the attributes on which the model depends most, of as many as leave ALIKE links in a group on average. Their order in a
    group is random: two attributes of the links that are drawn so have nothing else in common.
    """
    strength = {name: float(np.abs(theta).sum()) for name, theta in model.theta.items()}
    groups, keys = 1, list[Array | Integers]([rng.random(links)])
    for name in sorted(known, key=lambda name: -strength.get(name, 0.0)):
        groups *= int(known[name].max(initial=0)) + 1
        if groups * ALIKE > links:
            break
        keys.insert(1, known[name])
    spread = np.empty(links)
    spread[np.lexsort(keys)] = (rng.random() + GOLDEN * np.arange(links)) % 1.0
    return spread
