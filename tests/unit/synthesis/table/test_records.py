import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.synthesis.scores import counted, errors
from duckdb_dp.synthesis.table import records

RNG = np.random.default_rng


def objective(domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]) -> float:
    found = counted(domain, codes)
    return sum(
        float(((found(pair).reshape(table.shape) - table) ** 2 / (table + 1)).sum()) for pair, table in targets.items()
    )


@pytest.fixture
def targets(domain: Domain, codes: Codes) -> dict[tuple[str, ...], Array]:
    found = counted(domain, codes)
    return {pair: found(pair).reshape(domain.shape(pair)) for pair in [("a", "b"), ("b", "c"), ("a", "d"), ("c", "d")]}


def test_records_reach_the_targets(domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]) -> None:
    start = np.stack([RNG(i).permutation(column) for i, column in enumerate(codes.T)], axis=1)
    before = start.copy()
    found = records.fit(start, domain, targets, RNG(0), 20)
    assert np.array_equal(start, before)
    assert objective(domain, found, targets) < 0.01 * objective(domain, start, targets)
    assert errors(counted(domain, codes), counted(domain, found), list(targets)).max() < 0.03
    assert np.array_equal(found[:, 4], start[:, 4])  # an attribute in no target stays


def test_more_sweeps_do_not_hurt(domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]) -> None:
    start = np.stack([RNG(i).permutation(column) for i, column in enumerate(codes.T)], axis=1)
    reached = [objective(domain, records.fit(start, domain, targets, RNG(0), n), targets) for n in (1, 5, 20)]
    assert reached[0] > reached[1] > reached[2]


def test_exact_records_are_left_alone(domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]) -> None:
    assert np.array_equal(records.fit(codes, domain, targets, RNG(0), 3), codes)


def test_targets_are_scaled_to_the_records(domain: Domain, codes: Codes, targets: dict[tuple[str, ...], Array]) -> None:
    one = records.fit(codes[:500], domain, targets, RNG(0), 5)
    other = records.fit(codes[:500], domain, {pair: 7 * table for pair, table in targets.items()}, RNG(0), 5)
    assert np.array_equal(one, other)


def test_large_attributes_move_few_records_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "ENTRIES", 1000)
    domain = Domain({"a": 100, "b": 2})
    codes = np.zeros((2000, 2), dtype=np.int32)
    found = records.fit(codes, domain, {("a", "b"): np.full((100, 2), 10.0)}, RNG(0), 400)
    assert errors(counted(domain, found), lambda clique: np.ones(200), [("a", "b")])[0] < 0.4


def test_copies() -> None:
    codes = np.arange(10, dtype=np.int32)[:, None]
    found = records.copies(codes, 34, RNG(0))
    counts = np.bincount(found[:, 0])
    assert sorted(counts) == [3] * 6 + [4] * 4
