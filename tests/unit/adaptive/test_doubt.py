"""Whether scores show anything but noise of singles, and that nothing is spent on pairs where they do not."""

import itertools

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.adaptive import MECHANISMS, Options
from duckdb_dp.adaptive.neyman.doubt import FIRST, chance, evidence
from duckdb_dp.adaptive.neyman.scores import SHARES, Scores, posterior
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.testing import SeededEntropy

ROWS, ERROR = 5_000.0, 400.0
PAIRS: list[Clique] = list(itertools.combinations("abcdefghijklmn", 2))


def scores(own: float, stddev: float, seed: int) -> Scores:
    """Of products whose singles err by ERROR, where each pair is at that distance from independence."""
    noisy = np.hypot(own, ERROR) + np.random.default_rng(seed).normal(0, stddev, len(PAIRS))
    cases = ROWS * SHARES
    chances = posterior(noisy, stddev, cases)
    return Scores(
        cases=cases,
        chances=dict(zip(PAIRS, chances, strict=True)),
        distances=dict(zip(PAIRS, (chances @ cases).tolist(), strict=True)),
        stddev=stddev,
        noisy=dict(zip(PAIRS, noisy.tolist(), strict=True)),
    )


def believed(own: float, stddev: float) -> list[float]:
    explained = dict.fromkeys(PAIRS, ERROR**2)
    return [chance(max(evidence(scores(own, stddev, seed), explained), 0.0)) for seed in range(20)]


@pytest.mark.parametrize("stddev", [100.0, 1_000.0, 5_000.0])
def test_noise_of_singles_alone_is_no_evidence(stddev: float) -> None:
    assert np.mean(believed(0.0, stddev)) < 2 * FIRST


def test_what_many_pairs_have_in_common_is_seen_in_noise_that_drowns_each() -> None:
    assert np.median(believed(2_500.0, 5_000.0)) > 0.9
    assert min(believed(2_500.0, 1_000.0)) > 0.99


def test_the_chance_rises_with_the_evidence_from_the_first() -> None:
    assert chance(0.0) == pytest.approx(FIRST)
    found = [chance(x) for x in (-1e9, -5.0, 0.0, 5.0, 1e9)]
    assert found == sorted(found)
    assert found[-1] == 1.0


def measured(follow: float, rho: float, seed: int) -> int:
    """How many pairs of twelve bits are measured, each of which follows the one before in that share of the rows."""
    rng, columns = np.random.default_rng(seed), []
    for number in range(12):
        own = rng.integers(0, 2, 4_000)
        columns.append(np.where(rng.random(4_000) < follow, columns[-1], own) if number else own)
    domain = Domain({f"a{number}": 2 for number in range(12)})
    keys, counts = np.unique(np.array(columns).T @ (1 << np.arange(12)[::-1]), return_counts=True)
    queryable = PrivateQueryable(
        Counts(domain, {domain.attributes: (keys, counts)}),
        total=rho,
        accounting=ZCDP,
        rows=1,
        bits=SeededEntropy(seed),
    )
    found = MECHANISMS["neyman"](queryable, Workload.all_k_way(domain, 2), Options())
    assert found.estimate is not None
    return sum(len(each.clique) == 2 for each in found.measured)


@pytest.mark.slow
def test_pairs_are_measured_where_there_is_something_between_them() -> None:
    """At a budget at which noise drowns single pairs, and at which many that hang together are seen."""
    alone, together = ([measured(follow, 3e-4, seed) for seed in range(6)] for follow in (0.0, 0.95))
    assert np.median(alone) < 4  # of 66
    assert np.median(together) > 20
