"""The attributes of the links themselves, such as the stars of a rating, are drawn for synthetic links, as they were measured."""

import itertools
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers, centre
from duckdb_dp.reconstruct.measurement import LinearMeasurement

CHANCE = 0.5
"""How many pairs of one attribute are used, on average, where all are noise alone."""

GOLDEN, ALIKE = (5**0.5 - 1) / 2, 16
"""Its multiples are spread most evenly between whole numbers. Links in a group over which they are spread, on average."""

SAMPLED, STEPS = 20_000, 150
"""Links on which a distribution is fitted, at most, and steps of its optimiser."""


def draw(
    domain: Domain,
    attributes: Sequence[str],
    measured: Sequence[LinearMeasurement],
    total: float,
    ends: Mapping[str, Integers],
    weights: Array,
    rng: np.random.Generator,
) -> list[Integers]:
    """A code per link for each attribute, given all attributes of both ends and the attributes drawn before.

    Args:
        domain: the domain.
        attributes: those of the links.
        measured: what ``measure_attributes`` returned.
        total: links of the original, or units that have any where they were measured, noisy.
        ends: for each attribute of both sides its code at every link, shape (links,).
        weights: what each link that was drawn weighs in such a total: 1, or 1/k where its unit has k.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    found = {measurement.clique: measurement for measurement in measured}
    known, scale = dict(ends), float(weights.sum()) / total
    for name in attributes:
        alone = found.get((name,))
        with_others = {
            other: _turned(found[pair], other, domain, scale)
            for other in known
            if (pair := domain.clique((name, other))) in found
        }
        shares = np.ones(1) if alone is None else distribution(alone, float(weights.sum()), scale)
        known[name] = _drawn(_Model(shares, with_others, known, weights, rng), known, len(weights), rng)
    return [known[name] for name in attributes]


Residual = tuple[Array, float]
"""(the residual of a table with one row for each value of the other attribute, the variance of its noise)."""


def _turned(measurement: LinearMeasurement, other: str, domain: Domain, scale: float) -> Residual:
    # Noise is not centred as residuals are. What of it is not says nothing, and no theta has it: the fit would end anywhere.
    table = centre(measurement.answers.reshape(domain.shape(measurement.clique))) * scale
    return table if measurement.clique[0] == other else table.T, measurement.variance * scale**2


def distribution(measurement: LinearMeasurement, links: float, scale: float = 1.0) -> Array:
    """The distribution of an attribute alone, by its residual, of which ``scale`` times is that of so many links.

    Privacy: post-processing.
    """
    counts = measurement.answers * scale + links / len(measurement.answers)
    counts = np.maximum(counts, 0.5)  # no value is left out because of its noise
    return np.asarray(counts / counts.sum())


@final
class _Model:
    r"""The distribution of an attribute y of links given other attributes: log-linear in each.

    Formula: p_i(y) ~ q(y) exp(theta_0(y) + sum over a of theta_a(x_ia, y)); theta minimises
    sum_i w_i log Z_i - n <theta_0, q> - sum_a <theta_a, z_a> + s_a / (2 t_a) |theta_a|^2, with w_i the weight of a link, z_a the
    measured residual and s_a the variance of its noise. theta_0 keeps the distribution q of y over all links, of weight n.
    So the links have every measured pair as far as its noise allows. The dispersion t_a is the energy of z_a above its noise and
    above that of independent values, over that of Poisson counts; a pair whose energy may be noise alone is left out.

    Args:
        shares: q, the distribution of y.
        residuals: z_a and s_a of each other attribute.
        known: the codes of the other attributes for each link.
        weights: of the links.
        rng: the source of randomness, for a sample of links.
    """

    def __init__(
        self,
        shares: Array,
        residuals: Mapping[str, Residual],
        known: Mapping[str, Integers],
        weights: Array,
        rng: np.random.Generator,
    ) -> None:
        self.logs, self.theta = np.log(shares), dict[str, Array]()
        chance = CHANCE / max(len(residuals), 1)
        found = {name: self._ridge(z, s, known[name], weights, chance) for name, (z, s) in residuals.items()}
        ridges = {name: ridge for name, ridge in found.items() if ridge}
        if not ridges:
            return
        from scipy.optimize import minimize  # for import time
        from scipy.sparse import csr_array

        links, mass = len(weights), float(weights.sum())
        sample = np.arange(links) if links <= SAMPLED else rng.choice(links, SAMPLED, replace=False)
        sizes = [len(residuals[name][0]) for name in ridges]
        starts = np.cumsum([1, *sizes])
        columns = [known[name][sample] + start for name, start in zip(ridges, starts, strict=False)]
        cells = np.stack([np.zeros_like(sample), *columns], 1)  # the first value is every link's
        at = np.arange(len(sample) + 1) * cells.shape[1]
        design = csr_array((np.ones(cells.size), cells.reshape(-1), at), shape=(len(sample), int(starts[-1])))
        wanted = np.concatenate([mass * shares[None, :], *(residuals[name][0] for name in ridges)])
        ridges_of = np.repeat([0.0, *ridges.values()], [1, *sizes])[:, None]
        each = weights[sample] * (mass / float(weights[sample].sum()))

        def value(flat: Array) -> tuple[float, Array]:
            theta = flat.reshape(wanted.shape)
            power = design @ theta + self.logs
            tops = power.max(axis=1, keepdims=True)
            p = np.exp(power - tops)
            whole = p.sum(axis=1, keepdims=True)
            held = design.T @ (p * (each[:, None] / whole))
            parts = [centre(held[a:b]) for a, b in itertools.pairwise(starts)]
            slope = np.concatenate([held[:1], *parts]) - wanted + ridges_of * theta
            loss = float(each @ (np.log(whole) + tops)[:, 0]) - float((theta * wanted).sum())
            return loss + 0.5 * float((ridges_of * theta**2).sum()), slope.reshape(-1)

        solved = minimize(value, np.zeros(wanted.size), jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
        theta = solved.x.reshape(wanted.shape)
        self.logs = self.logs + theta[0]
        self.theta = {name: theta[a:b] for name, (a, b) in zip(ridges, itertools.pairwise(starts), strict=True)}

    def _ridge(self, z: Array, s: float, codes: Integers, weights: Array, chance: float) -> float:
        """s / t; 0 where noise alone has such an energy, which is chi-squared, with more than this chance."""
        from scipy.special import chdtri  # for import time

        rows, shares = np.bincount(codes, weights, len(z)), np.exp(self.logs)
        gap = z - centre(np.multiply.outer(rows, shares))
        free = (z.shape[0] - 1) * (z.shape[1] - 1)
        energy, noise = float((gap**2).sum()), s * free
        if energy <= s * float(chdtri(free, chance)):
            return 0.0
        return float(s * weights.sum() * free / (z.size * (energy - noise)))


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
