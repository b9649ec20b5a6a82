"""Two estimates of all pairs as one: weights from residuals whose noise neither of them has seen."""

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
    one: Estimate, other: Estimate, fresh: Iterable[LinearMeasurement], middle: float = MIDDLE
) -> tuple[float, dict[Clique, float]]:
    """(the common weight of ``one``, that of each measured pair), in [0, 1].

    Regression of fresh residuals y on the difference of the two: y - other = l (one - other) + noise, with the precisions of
    the noise, all pairs together first; then each pair, shrunk to that.

    Args:
        one: an estimate from earlier measurements.
        other: another one from the same.
        fresh: residuals that were measured after these.
        middle: the common weight where nothing tells them apart.

    Privacy: post-processing.
    """
    said: dict[Clique, tuple[float, float]] = {}
    for noisy in fresh:
        if noisy.clique not in one.pairs:
            continue
        first, second = centred(one.pairs[noisy.clique]), centred(other.pairs[noisy.clique])
        gap, difference = noisy.answers.reshape(first.shape) - second, first - second
        said[noisy.clique] = (
            float((difference * gap).sum()) / noisy.variance,
            float((difference**2).sum()) / noisy.variance,
        )
    product, square = (float(np.sum([pair[i] for pair in said.values()])) for i in (0, 1))
    common = _clipped((product + middle / ABOUT**2) / (square + 1 / ABOUT**2))
    own = {pair: _clipped((j + common / AROUND**2) / (i + 1 / AROUND**2)) for pair, (j, i) in said.items()}
    return common, own


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
        common, own = weights(one_before, other_before, fresh, middle)
    if measured is not None:
        own = {pair: own.get(pair, common) if pair in measured else 1.0 for pair in one.pairs}
    return combined(one, other, common, own) if common < 1 or any(own[pair] < 1 for pair in own) else one


def comparable(domain: Domain, pairs: Iterable[Clique]) -> bool:
    """Whether two estimates of all pairs are compared."""
    return sum(map(domain.cells, pairs)) <= JUDGED


def _clipped(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def halves(components: ResidualEstimates) -> tuple[ResidualEstimates, tuple[LinearMeasurement, ...]]:
    """(residuals with twice the noise variance, residuals of pairs whose noise is independent of theirs).

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
        if len(clique) == 2:
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
    common, own = weights(*both(half), rest, middle=1.0)
    return combined(*both(components), common, own)
