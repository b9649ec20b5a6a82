"""Whether there is anything between attributes at all, before a pair has been measured."""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from duckdb_dp.adaptive.neyman.allocation import Residual, squared_distance
from duckdb_dp.adaptive.neyman.scores import Scores
from duckdb_dp.domain.domain import Clique
from duckdb_dp.reconstruct.grem import ResidualEstimates

FIRST = 0.1
"""The chance that there is more between attributes than their noise explains, before anything is known of that."""

FACTORS = np.linspace(0.75, 1.25, 5)
"""What the errors of singles may be over what is expected of them, all together: few attributes with few values err much or little."""


def evidence(scores: Scores, explained: Mapping[Clique, float]) -> float:
    """The log of how much more likely the scores are as they are believed than if noise of singles explained all distances.

    Args:
        scores: of products of singles.
        explained: the squares of the L1 errors that singles and the total are expected to make.

    Privacy: post-processing.
    """
    noisy = np.array([scores.noisy[clique] for clique in explained])
    spread = scores.spread(list(explained))
    errors = np.sqrt(np.array(list(explained.values())))
    believed = _logs(noisy[:, None] - scores.cases, scores.stddev) + np.log(spread)
    alone = _logs(noisy - FACTORS[:, None] * errors, scores.stddev).sum(axis=1)
    return float(np.logaddexp.reduce(believed, axis=1).sum() - (np.logaddexp.reduce(alone) - math.log(len(FACTORS))))


def chance(evidence: float) -> float:
    """That there is more, after so much evidence: Bayes' rule."""
    return 1 / (1 + math.exp(min(-evidence, 700.0)) * (1 - FIRST) / FIRST)


def _logs(gaps: np.ndarray, stddev: float) -> np.ndarray:
    return -(gaps**2) / (2 * stddev**2)


def explained_by(
    pairs: Iterable[Clique], alone: Mapping[Clique, Residual], known: ResidualEstimates
) -> dict[Clique, float]:
    """What noise of the total and of its singles makes of each pair's distance, squared: no sign of anything between them.

    In sums over groups noise of single values is less, by the root of how many there are in one.

    Args:
        pairs: of attributes of more than one value.
        alone: the total and singles.
        known: in which groups pairs are measured.

    Privacy: post-processing.
    """
    error = {clique: squared_distance(one.cells, 1 / one.known[0]) for clique, one in alone.items() if one.measured}
    found = {}
    for pair in pairs:
        kept = (m / known.domain.sizes[name] for name, m in zip(pair, known.shape(pair), strict=True))
        own = (error.get((name,), 0.0) * share for name, share in zip(pair, kept, strict=True))
        found[pair] = math.fsum((error.get((), 0.0), *own))
    return found
