"""Whether there is anything between attributes at all, before a pair has been measured."""

import math
from collections.abc import Mapping

import numpy as np

from duckdb_dp.adaptive.neyman.scores import Scores
from duckdb_dp.domain.domain import Clique

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
