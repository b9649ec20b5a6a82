"""Two estimates of all pairs as one: weights from residuals whose noise neither of them has seen."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.estimate import Estimate, by_counts, by_tree, first
from duckdb_dp.reconstruct.grem import ResidualEstimates, centred
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement
from duckdb_dp.reconstruct.tilting import consistent

MIDDLE, ABOUT = 0.5, 0.3
"""Mean and standard deviation of the common weight of two estimates of which nothing is known."""

AROUND = 0.2
"""Standard deviation of a pair's own weight around the common one."""

JUDGED = 2**20
"""Most cells of all pairs for which two estimates are compared, which takes four times as long as one."""


def weights(
    one: Mapping[Clique, Array],
    other: Mapping[Clique, Array],
    fresh: Iterable[LinearMeasurement],
    middle: float = MIDDLE,
) -> tuple[float, dict[Clique, float]]:
    """(the common weight of ``one``, that of each table that was measured), in [0, 1].

    Regression of fresh residuals y on the difference of the two: y - other = l (one - other) + noise, all tables together first, by the
    precision of each l; then each table, shrunk to that.

    Args:
        one: estimates from earlier measurements.
        other: others from the same.
        fresh: residuals that were measured after these, or whose noise is independent of theirs.
        middle: the common weight where nothing tells them apart.

    Privacy: post-processing.
    """
    said = {
        noisy.clique: _regression(one[noisy.clique], other[noisy.clique], noisy)
        for noisy in fresh
        if noisy.clique in one
    }
    product, square = (float(np.sum([table[i] for table in said.values()])) for i in (0, 1))
    common = _clipped((product + middle / ABOUT**2) / (square + 1 / ABOUT**2))
    own = {clique: _clipped((j + common / AROUND**2) / (i + 1 / AROUND**2)) for clique, (j, i) in said.items()}
    return common, own


def _regression(one: Array, other: Array, noisy: LinearMeasurement) -> tuple[float, float]:
    """(precision times l, the precision of l) of one table.

    What counts is the L1 error, in which small errors of small counts weigh more than in squares: cells are weighted by 1 / (their mean
    count + the noise's standard deviation).
    """
    stddev = math.sqrt(noisy.variance)
    second = centred(other)
    difference, gap = centred(one) - second, noisy.answers.reshape(one.shape) - second
    cells = 1 / (np.maximum((one + other) / 2, 0.0) + stddev)
    slope, noise = float((cells * difference**2).sum()), float((cells**2 * difference**2).sum()) * noisy.variance
    if slope <= 0 or noise <= 0:
        return 0.0, 0.0
    return float((cells * difference * gap).sum()) * slope / noise, slope**2 / noise


def combined(one: Estimate, other: Estimate, common: float, own: Mapping[Clique, float]) -> Estimate:
    """l one + (1 - l) other for each pair, made consistent.

    Privacy: post-processing.
    """
    pairs: dict[Clique, Array] = {}
    for pair, table in one.pairs.items():
        share = own.get(pair, common)
        pairs[pair] = share * table + (1 - share) * other.pairs[pair]
    singles = {name: common * table + (1 - common) * other.singles[name] for name, table in one.singles.items()}
    agreed, singles = consistent(pairs, singles, one.total)
    return Estimate(total=one.total, singles=singles, pairs=agreed)


def better(
    one: Estimate,
    other: Estimate,
    one_before: Estimate | None,
    other_before: Estimate | None,
    fresh: Sequence[LinearMeasurement],
    middle: float,
    measured: Collection[Clique] | None = None,
) -> Estimate:
    """The combination of two estimates with the weights that what was measured last gives to those of before.

    Args:
        one, other: from all that is known.
        one_before, other_before: from what was known before the last measurements; None where there were none.
        fresh: the last measurements.
        middle: the common weight of ``one`` where nothing tells them apart.
        measured: pairs of which ``other`` says something; of all where None. ``one`` stands for the rest.

    Privacy: post-processing.
    """
    if one_before is None or other_before is None:
        common, own = middle, dict[Clique, float]()
    else:
        common, own = weights(one_before.pairs, other_before.pairs, fresh, middle)
    if measured is not None:
        own = {pair: own.get(pair, common) if pair in measured else 1.0 for pair in one.pairs}
    return combined(one, other, common, own) if common < 1 or any(own[pair] < 1 for pair in own) else one


def comparable(domain: Domain, pairs: Iterable[Clique]) -> bool:
    """Whether two estimates of all pairs are compared."""
    return sum(map(domain.cells, pairs)) <= JUDGED


def _clipped(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def halves(components: ResidualEstimates) -> tuple[ResidualEstimates, tuple[LinearMeasurement, ...]]:
    """(residuals with twice the noise variance, residuals of two and more attributes whose noise is independent of theirs).

    With noise e of variance v in y and z drawn like it, y + z and y - z have the variance 2 v each, and the covariance 0: what is
    estimated from one half can be judged by the other. The total stays whole, as estimates are scaled to it.

    Source: Tian & Taylor 2018; Leiner et al. 2023 (data fission).

    Privacy: post-processing; z is of a fixed seed, and protects nobody.
    """
    rng, domain = np.random.default_rng(1), components.domain
    half, rest = [], []
    for clique, values in components.values.items():
        variance = 1 / components.precisions[clique]
        if not clique:
            half.append(residual_measurement(domain, clique, values, variance))
            continue
        noise = centred(rng.normal(0.0, np.sqrt(variance), values.shape))
        half.append(residual_measurement(domain, clique, values + noise, 2 * variance))
        if len(clique) > 1:
            rest.append(residual_measurement(domain, clique, values - noise, 2 * variance))
    return ResidualEstimates.of(domain, half), tuple(rest)


def judged(components: ResidualEstimates, names: Sequence[str], pairs: Sequence[Clique], total: float) -> Estimate:
    """The tree's, or nearer to the counts themselves where the residuals say so: each judged on noise that it has not seen.

    Args:
        components: noisy residuals.
        names: attributes of more than one value.
        pairs: of these.
        total: positive.

    Privacy: post-processing.
    """

    def both(known: ResidualEstimates) -> tuple[Estimate, Estimate]:
        start = first(known, names, pairs, total)
        return by_tree(known, start), by_counts(known, start)

    measured = [pair for pair in pairs if pair in components.values]
    if not measured or not comparable(components.domain, pairs):
        return by_tree(components, first(components, names, pairs, total))
    half, rest = halves(components)
    one, other = both(half)
    common, own = weights(one.pairs, other.pairs, rest, middle=1.0)
    return combined(*both(components), common, own)
