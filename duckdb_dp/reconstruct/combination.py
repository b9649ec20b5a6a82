"""Several estimates of all pairs as one: weights from residuals whose noise neither of them has seen."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Centring
from duckdb_dp.reconstruct.estimate import Estimate, by_counts, by_tree, first
from duckdb_dp.reconstruct.grem import ResidualEstimates, centred
from duckdb_dp.reconstruct.groups import Groups
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.tilting import consistent

MIDDLE, ABOUT = 0.5, 0.3
"""Mean and standard deviation of the common weight of two estimates of which nothing is known."""

AROUND = 0.2
"""Standard deviation of a pair's own weight around the common one."""

JUDGED = 2**20
"""Most cells of all pairs for which two estimates are compared, which takes four times as long as one."""


NONE: Mapping[Clique, Groups] = {}

Said = Mapping[Clique, tuple[float, float]]
"""Of each table, what residuals say of the weight l of one of two estimates: (the precision of l times l, the precision of l)."""


def said(
    one: Mapping[Clique, Array],
    other: Mapping[Clique, Array],
    fresh: Iterable[LinearMeasurement],
    groups: Mapping[Clique, Groups] = NONE,
) -> dict[Clique, tuple[float, float]]:
    """What fresh residuals y say of l in l one + (1 - l) other: regression, y - other = l (one - other) + noise.

    Args:
        one: estimates from earlier measurements.
        other: others from the same.
        fresh: residuals that were measured after these, or whose noise is independent of theirs.
        groups: of those that are of groups.

    Privacy: post-processing.
    """
    found = {}
    for each in fresh:
        if (clique := each.clique) in one:
            tables = [
                table[clique] if clique not in groups else groups[clique].sums(table[clique]) for table in (one, other)
            ]
            found[clique] = _regression(tables[0], tables[1], each)
    return found


def together(found: Iterable[Said]) -> Said:
    """What several say, as if their noise were independent."""
    sums: dict[Clique, tuple[float, float]] = {}
    for each in found:
        for clique, (product, square) in each.items():
            before = sums.get(clique, (0.0, 0.0))
            sums[clique] = before[0] + product, before[1] + square
    return sums


def weights(found: Said, middle: float = MIDDLE) -> tuple[float, dict[Clique, float]]:
    """(the common weight of one of two estimates, that of each table of which something is said), in [0, 1].

    All tables together say the common one, by the precision of each l; then each table its own, shrunk to that.

    Args:
        found: of each table.
        middle: the common weight where nothing tells the estimates apart.

    Privacy: post-processing.
    """
    product, square = (float(np.sum([table[i] for table in found.values()])) for i in (0, 1))
    common = _clipped((product + middle / ABOUT**2) / (square + 1 / ABOUT**2))
    own = {clique: _clipped((j + common / AROUND**2) / (i + 1 / AROUND**2)) for clique, (j, i) in found.items()}
    return common, own


def _regression(one: Array, other: Array, noisy: LinearMeasurement) -> tuple[float, float]:
    """(precision times l, the precision of l) of one table.

    What counts is the L1 error, in which small errors of small counts weigh more than in squares: cells are weighted by
    1 / (sqrt(m s) + s), m their mean count and s the noise's standard deviation.
    """
    stddev = math.sqrt(noisy.variance)
    second = centred(other)
    difference, gap = centred(one) - second, noisy.answers.reshape(one.shape) - second
    cells = 1 / (np.sqrt(np.maximum((one + other) / 2, 0.0) * stddev) + stddev)
    slope, noise = float((cells * difference**2).sum()), float((cells**2 * difference**2).sum()) * noisy.variance
    if slope <= 0 or noise <= 0:
        return 0.0, 0.0
    return float((cells * difference * gap).sum()) * slope / noise, slope**2 / noise


def mixed(
    one: Mapping[Clique, Array], other: Mapping[Clique, Array], common: float, own: Mapping[Clique, float]
) -> dict[Clique, Array]:
    """l one + (1 - l) other for each table.

    Privacy: post-processing.
    """
    found: dict[Clique, Array] = {}
    for clique, table in one.items():
        share = own.get(clique, common)
        found[clique] = share * table + (1 - share) * other[clique]
    return found


def leaning(
    model: Mapping[Clique, Array], counted: Mapping[Clique, Array], precisions: Mapping[Clique, float]
) -> dict[Clique, Array]:
    """Tables between a model and counts without negative ones, as near to the counts as L1 errors allow.

    Where the count c is below the model m, which it is where most cells are empty, it is c; above it is m + sqrt(m / (m + s)) (c - m) with
    noise s: below the noise a high count is mostly noise, which L1 feels most. Where a table was not measured, it is the model's.

    Args:
        model, counted: the tables.
        precisions: 1 / s^2 of their residuals.

    Privacy: post-processing.
    """
    found = dict(model)
    for clique in model.keys() & precisions.keys():
        table = np.maximum(model[clique], 0.0)
        trust = np.sqrt(table / (table + 1 / math.sqrt(precisions[clique])))
        gap = counted[clique] - model[clique]
        found[clique] = model[clique] + np.where(gap < 0, gap, trust * gap)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Several estimates from the same residuals.

    Attributes:
        known: the residuals.
        tree: by a Markov tree.
        mixture: by mixtures of products; None where none was fitted.
        counted: counts without a model; None where there are too many of them.

    Privacy: post-processing.
    """

    known: ResidualEstimates
    tree: Estimate
    mixture: Estimate | None = None
    counted: Estimate | None = None


def best(models: Models, judged: Sequence[tuple[Models, Sequence[LinearMeasurement]]]) -> Estimate:
    """The tree and the mixture together, and these with the counts, by what is said of others like them.

    Args:
        models: from all that is known.
        judged: models of less or noisier residuals, each with residuals whose noise they have not seen; by the last alone how near
            counts are, which is most a matter of the noise.

    Privacy: post-processing.
    """
    if models.mixture is None and models.counted is None:
        return models.tree
    groups = models.known.groups
    found = [
        said(one.tree.pairs, one.mixture.pairs, fresh, groups)
        for one, fresh in judged
        if models.mixture and one.mixture
    ]
    common, own = weights(together(found))

    def model(one: Models) -> dict[Clique, Array]:
        return mixed(one.tree.pairs, one.mixture.pairs, common, own) if one.mixture else dict(one.tree.pairs)

    pairs, singles, total = model(models), models.tree.singles, models.tree.total
    if models.mixture:
        singles = {
            name: common * table + (1 - common) * models.mixture.singles[name] for name, table in singles.items()
        }
    if models.counted:
        near = [
            (table, leaning(table, one.counted.pairs, one.known.whole().precisions), fresh)
            for one, fresh in judged[-1:]
            if one.counted
            for table in [model(one)]
        ]
        # Where nothing is said the model stands.
        counts = weights(together(said(*each, groups) for each in near), 1.0)
        pairs = mixed(pairs, leaning(pairs, models.counted.pairs, models.known.whole().precisions), *counts)
    agreed, singles = consistent(pairs, singles, total)
    return Estimate(total=total, singles=singles, pairs=agreed)


def comparable(domain: Domain, pairs: Iterable[Clique]) -> bool:
    """Whether two estimates of all pairs are compared."""
    return sum(map(domain.cells, pairs)) <= JUDGED


def _clipped(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def halves(components: ResidualEstimates, whole: int = 0) -> tuple[ResidualEstimates, tuple[LinearMeasurement, ...]]:
    """(residuals with twice the noise variance, residuals of two and more attributes whose noise is independent of theirs).

    With noise e of variance v in y and z drawn like it, y + z and y - z have the variance 2 v each, and the covariance 0: what is
    estimated from one half can be judged by the other. The total stays whole, as estimates are scaled to it.

    Args:
        components: the residuals.
        whole: residuals of so many attributes, and of fewer, stay as they are, and judge nothing.

    Source: Tian & Taylor 2018; Leiner et al. 2023 (data fission).

    Privacy: post-processing; z is of a fixed seed, and protects nobody.
    """
    rng = np.random.default_rng(1)
    half, rest = [], []
    for clique, values in components.values.items():
        variance = 1 / components.precisions[clique]
        if len(clique) <= whole:
            half.append(_measured(clique, values, variance))
            continue
        noise = centred(rng.normal(0.0, np.sqrt(variance), values.shape))
        half.append(_measured(clique, values + noise, 2 * variance))
        if len(clique) > 1:
            rest.append(_measured(clique, values - noise, 2 * variance))
    coarser = tuple(halves(one)[0] for one in components.coarser)
    nothing = replace(components, values={}, precisions={}, coarser=coarser)
    return nothing.added(half), tuple(rest)


def _measured(clique: Clique, values: Array, variance: float) -> LinearMeasurement:
    """A residual of the clique's table, or of that of its groups."""
    return LinearMeasurement(
        clique=clique, strategy=Centring(values.shape), answers=values.reshape(-1), variance=variance
    )


def judged(components: ResidualEstimates, names: Sequence[str], pairs: Sequence[Clique], total: float) -> Estimate:
    """The tree's, or nearer to the counts themselves where the residuals say so: each judged on noise that it has not seen.

    Args:
        components: noisy residuals.
        names: attributes of more than one value.
        pairs: of these.
        total: positive.

    Privacy: post-processing.
    """

    def both(known: ResidualEstimates) -> Models:
        start = first(known, names, pairs, total)
        return Models(known=known, tree=by_tree(known, start), counted=by_counts(known, start))

    measured = [pair for pair in pairs if pair in components.values]
    if not measured or not comparable(components.domain, pairs):
        return by_tree(components, first(components, names, pairs, total))
    half, rest = halves(components)
    return best(both(components), [(both(half), rest)])
