"""Keys of public rows that are alike in several ways: what is measured is the way that matters, and errors do not grow with the budget."""

import itertools
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.adaptive import Options
from duckdb_dp.adaptive.neyman import neyman
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Array, Integers
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.estimate import Estimate
from duckdb_dp.reconstruct.likeness import UNKNOWN, Likeness
from duckdb_dp.testing import NoNoise, SeededEntropy

ROWS, KEYS, KINDS = 8_000, 200, (6, 5, 4)
DOMAIN = Domain({"key": KEYS, "a": 12, "b": 10, "c": 3})


def kinds() -> list[Integers]:
    """What public rows say of each key, in three ways."""
    rng = np.random.default_rng(5)
    return [rng.integers(0, n, KEYS) for n in KINDS]


def rows() -> Iterator[Integers]:
    """``a`` follows the first kind of its row's key, ``b`` the second one, and ``c`` none."""
    rng, (first, second, _) = np.random.default_rng(6), kinds()
    key = np.minimum(rng.pareto(1.2, ROWS) * 20, KEYS - 1).astype(np.int64)
    key = rng.permutation(KEYS)[key]
    yield key
    yield np.clip(2 * first[key] + rng.integers(-1, 2, ROWS), 0, 11)
    yield np.clip(2 * second[key] + rng.integers(-1, 2, ROWS), 0, 9)
    yield rng.integers(0, 3, ROWS)


def estimated(
    alike: Mapping[str, Likeness], rho: float, bits: EntropySource
) -> tuple[Estimate, Mapping[object, object]]:
    keys, counts = np.unique(np.ravel_multi_index([*rows()], DOMAIN.shape(DOMAIN.attributes)), return_counts=True)
    queryable = PrivateQueryable(
        Counts(DOMAIN, {DOMAIN.attributes: (keys, counts)}), total=rho, accounting=ZCDP, rows=1, bits=bits
    )
    outcome = neyman(queryable, Workload.all_k_way(DOMAIN, 2), Options(), alike=alike)
    assert outcome.estimate is not None
    assert queryable.left < 1e-9 * rho
    return outcome.estimate, dict(outcome.grouped)


def alike(*ways: int) -> dict[str, Likeness]:
    found = kinds()
    return {
        "key": Likeness(ways=tuple(found[i] for i in ways)),
        "a": Likeness(ordered=12),
        "b": Likeness(ordered=10),
        "c": UNKNOWN,
    }


def by_kind(table: Array, kind: Integers) -> Array:
    found = np.zeros((int(kind.max()) + 1, table.shape[1]))
    np.add.at(found, kind, table)
    return found


def error(estimate: Estimate, name: str, kind: Integers) -> float:
    """L1 error, over the rows, of an attribute by a kind of the keys."""
    key, *others = rows()
    truth = np.zeros(DOMAIN.shape(("key", name)))
    np.add.at(truth, (key, others["abc".index(name)]), 1.0)
    return float(np.abs(by_kind(estimate.pairs["key", name], kind) - by_kind(truth, kind)).sum()) / ROWS


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0])
def test_each_attribute_is_measured_by_the_kind_that_matters_for_it(rho: float) -> None:
    """Whichever way is named first: errors are those of the right way alone, or near, and a fraction of those without any."""
    first, second, _ = kinds()
    errors = {
        ways: np.mean(
            [
                (error(found, "a", first), error(found, "b", second))
                for seed in range(3)
                for found, _ in [
                    estimated(alike(*ways) if ways else alike(0) | {"key": UNKNOWN}, rho, SeededEntropy(seed))
                ]
            ],
            axis=0,
        )
        for ways in ((), (0, 1, 2), (2, 1, 0), (0,), (1,))
    }
    for every in ((0, 1, 2), (2, 1, 0)):
        assert errors[every][0] < 1.5 * errors[0,][0] + 0.02
        assert errors[every][1] < 1.5 * errors[1,][1] + 0.02
        if rho < 1:
            assert (errors[every] < 0.6 * errors[()]).all()


@pytest.mark.slow
@pytest.mark.parametrize("ways", [(0,), (1, 0), (2, 1, 0)])
def test_errors_do_not_grow_with_the_budget(ways: tuple[int, ...]) -> None:
    kind = kinds()
    found = [
        np.mean(
            [
                [error(one, name, kind[i]) for i in (0, 1, 2) for name in "abc"]
                for seed in range(4)
                for one, _ in [estimated(alike(*ways), rho, SeededEntropy(seed))]
            ],
            axis=0,
        )
        for rho in (0.003, 0.03, 0.3, 3.0)
    ]
    for less, more in itertools.pairwise(found):
        assert (more <= less + 0.03).all()
        assert more.mean() < less.mean()


@pytest.mark.parametrize("rho", [0.3, 3.0])
def test_what_public_columns_do_not_say_is_found_where_noise_allows(rho: float) -> None:
    """Ways that say nothing are given up for groups of neighbours, and these for single keys, as where there are none."""
    rng, key = np.random.default_rng(9), next(rows())
    near = np.clip(key * 12 // KEYS + rng.integers(-1, 2, ROWS), 0, 11)
    keys, counts = np.unique(np.ravel_multi_index([key, near], (KEYS, 12)), return_counts=True)
    domain = Domain({"key": KEYS, "a": 12})
    truth = np.zeros((KEYS, 12))
    np.add.at(truth, (key, near), 1.0)
    found = []
    for ways in (tuple(rng.integers(0, n, KEYS) for n in KINDS), ()):
        errors = []
        for seed in range(3):
            queryable = PrivateQueryable(
                Counts(domain, {domain.attributes: (keys, counts)}),
                total=rho,
                accounting=ZCDP,
                rows=1,
                bits=SeededEntropy(seed),
            )
            likeness = {"key": Likeness(ways=ways), "a": Likeness(ordered=12)}
            estimate = neyman(queryable, Workload.all_k_way(domain, 2), Options(), alike=likeness).estimate
            assert estimate is not None
            tenth = np.arange(KEYS) * 10 // KEYS
            errors.append(np.abs(by_kind(estimate.pairs["key", "a"], tenth) - by_kind(truth, tenth)).sum() / ROWS)
        found.append(np.mean(errors))
    assert found[0] < 1.2 * found[1] + 0.02


def test_without_noise_every_key_stays_alone_and_counts_are_exact() -> None:
    found, grouped = estimated(alike(2, 1, 0), 1e9, NoNoise())
    assert not grouped
    for name in "abc":
        assert error(found, name, np.arange(KEYS)) < 0.01


def test_what_says_nothing_costs_little() -> None:
    """Ways that have nothing to do with the table leave errors about where they are without any."""
    rng = np.random.default_rng(7)
    noise = Likeness(ways=tuple(rng.integers(0, n, KEYS) for n in KINDS))
    first, second, _ = kinds()
    plain, odd = (
        np.mean(
            [
                [
                    error(one, "a", first),
                    error(one, "b", second),
                    np.abs(one.singles["key",] - np.bincount(next(rows()), minlength=KEYS)).sum() / ROWS,
                ]
                for seed in range(3)
                for one, _ in [estimated(alike(0) | {"key": likeness}, 0.1, SeededEntropy(seed))]
            ],
            axis=0,
        )
        for likeness in (UNKNOWN, noise)
    )
    assert (odd < 1.15 * plain + 0.02).all()
