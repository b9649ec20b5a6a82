from typing import Any

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Distance
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.synthesis.scores import compared, counted, errors, private_scores
from duckdb_dp.testing import NoNoise, SeededEntropy

RNG = np.random.default_rng


@pytest.fixture
def synthetic(codes: Codes) -> Codes:
    return np.stack([RNG(i).permutation(column) for i, column in enumerate(codes.T)], axis=1)[:3000]


def test_errors_by_hand() -> None:
    domain = Domain({"a": 2, "b": 2})
    one = counted(domain, np.array([[0, 0], [0, 1], [1, 1], [1, 1]], dtype=np.int32))
    other = counted(domain, np.array([[0, 0], [0, 0]], dtype=np.int32))
    assert one(("a", "b")).tolist() == [1, 1, 0, 2]
    assert errors(one, other, [("a",), ("b",), ("a", "b")]) == pytest.approx([1.0, 1.5, 1.5])
    empty = counted(domain, np.zeros((0, 2), dtype=np.int32))
    assert errors(empty, other, [("a",)]) == pytest.approx([1.0])


def test_without_noise_scores_are_the_errors(queryable: Any, domain: Domain, codes: Codes, synthetic: Codes) -> None:
    cliques = [compared(domain, order, RNG(0)) for order in (1, 2, 3)]
    exact = private_scores(queryable(domain, codes, 1.0, bits=NoNoise()), counted(domain, synthetic), cliques)
    for score, order in zip(exact, cliques, strict=True):
        truth = errors(counted(domain, codes), counted(domain, synthetic), order)
        assert score.errors == pytest.approx(truth, abs=1e-2)  # to the grid of the noise
        assert score.mean == pytest.approx(truth.mean(), abs=2e-3)


@pytest.mark.slow
def test_the_error_bars_hold(queryable: Any, domain: Domain, codes: Codes, synthetic: Codes) -> None:
    """z-scores of 200 draws have a mean square within 5 standard errors of 1; at 0.7 of the noise they would not."""
    cliques = [compared(domain, order, RNG(0)) for order in (1, 2)]
    truth = [errors(counted(domain, codes), counted(domain, synthetic), order).mean() for order in cliques]
    z = []
    for seed in range(200):
        scores = private_scores(
            queryable(domain, codes, 1e-2, bits=SeededEntropy(seed)), counted(domain, synthetic), cliques
        )
        z.append([(score.mean - true) / score.stddev for score, true in zip(scores, truth, strict=True)])
    # stddev bounds what the noise of N does, so that it is never too small
    assert 0.3 < np.mean(np.square(z)) < 1 + 5 * np.sqrt(2 / 400)


def test_all_is_spent(queryable: Any, domain: Domain, codes: Codes, synthetic: Codes) -> None:
    spent = queryable(domain, codes, 0.3)
    private_scores(spent, counted(domain, synthetic), [compared(domain, 2, RNG(0))])
    assert 0 <= spent.left < 1e-9


def test_one_row_moves_a_distance_by_at_most_one() -> None:
    rng = RNG(0)
    for _ in range(100):
        counts = rng.integers(0, 9, 20)
        expected = rng.random(20) * 9
        more = counts.copy()
        more[rng.integers(20)] += 1
        distance = Distance(expected)
        assert abs(distance.exact(more, 0) - distance.exact(counts, 0)) <= 1
        value, bound = distance.apply(counts)
        assert abs(value[0] - distance.exact(counts, 0)) <= bound[0]


def test_comparisons_are_chosen_without_data() -> None:
    domain = Domain({f"a{i}": 10 for i in range(40)} | {"large": 2**20})
    assert len(compared(domain, 1, RNG(0))) == 41
    chosen = compared(domain, 3, RNG(0), most=50)
    assert len(set(chosen)) == 50
    assert not any("large" in clique for clique in chosen)
    with pytest.raises(DPError, match="no marginal of at most"):
        private_scores(None, counted(domain, np.zeros((0, 41), np.int32)), [()])  # type: ignore[arg-type]
