import itertools
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.errors import DPError
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.synthesis.scores import counted, errors
from duckdb_dp.synthesis.table.methods import (
    METHODS,
    Options,
    check,
    cliques,
    generate,
    measure,
    synthesize,
)
from duckdb_dp.testing import NoNoise, SeededEntropy

RNG = np.random.default_rng


def pair_error(domain: Domain, one: Codes, other: Codes) -> float:
    pairs = list(itertools.combinations(domain.attributes, 2))
    return float(errors(counted(domain, one), counted(domain, other), pairs).mean())


@pytest.mark.slow
def test_all_is_spent_and_nothing_more(queryable: Any, domain: Domain, codes: Codes) -> None:
    for rounds in (None, 1, 4):
        exact = queryable(domain, codes, 0.5)
        synthesize(exact, options=Options(rounds=rounds), rng=RNG(0))
        assert 0 <= exact.left <= 1e-6 * 0.5


@pytest.mark.slow
def test_variances_add_up_to_the_budget(queryable: Any, domain: Domain, codes: Codes) -> None:
    """Measuring costs squared sensitivity / (2 variance) each; selecting takes at most a tenth of what pairs get."""
    for rows in (1, 3):
        measured = measure(queryable(domain, codes, 0.7, rows=rows), Options(rounds=4))
        costs = [rows**2 * one.strategy.squared_sensitivity / (2 * one.variance) for one in measured]
        assert 0.9 * 0.7 < sum(costs) < 0.7


def test_without_noise_the_records_fit(queryable: Any, domain: Domain, codes: Codes) -> None:
    found, detail = synthesize(queryable(domain, codes, 1e9, bits=NoNoise()), rng=RNG(0))
    assert found.shape == codes.shape
    assert detail["total"] == pytest.approx(4000)
    assert pair_error(domain, codes, found) < 0.02
    independent = np.stack([RNG(i).permutation(column) for i, column in enumerate(codes.T)], axis=1)
    assert pair_error(domain, codes, independent) > 0.3


@pytest.mark.slow
def test_more_budget_is_better(queryable: Any, domain: Domain, codes: Codes) -> None:
    error = [
        np.mean([pair_error(domain, codes, synthesize(queryable(domain, codes, rho, bits=SeededEntropy(s)), rng=RNG(s))[0])
                 for s in range(4)])
        for rho in (1e-5, 1e-3, 1e-1)
    ]  # fmt: skip
    assert error[0] > 1.5 * error[1] > 3 * error[2]


@pytest.mark.slow
def test_no_plateau(queryable: Any) -> None:
    """Attributes that all depend on each other: a tree, and three pairs for each, leave an error that no budget removes."""
    rng = RNG(0)
    hidden = rng.normal(size=(6000, 3))
    rows = (hidden @ rng.normal(size=(3, 10)) + rng.normal(size=(6000, 10)) > 0).astype(np.int64)
    binary = Domain({f"b{i}": 2 for i in range(10)})
    found, _ = synthesize(queryable(binary, rows, 1.0, bits=SeededEntropy(0)), rng=RNG(0))
    assert pair_error(binary, rows, found) < 0.006


def test_only_what_was_announced_is_touched(queryable: Any, domain: Domain, codes: Codes) -> None:
    announced = {*cliques(domain, Options()), ()}
    assert {one.clique for one in measure(queryable(domain, codes, 0.1))} <= announced


@pytest.mark.slow
def test_records_are_a_function_of_the_measurements_and_the_generator(
    queryable: Any, domain: Domain, codes: Codes
) -> None:
    measured = measure(queryable(domain, codes, 0.1))
    first, _ = generate(domain, measured, 500, rng=RNG(3))
    second, _ = generate(domain, measured, 500, rng=RNG(3))
    third, _ = generate(domain, measured, 500, rng=RNG(4))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, third)


@pytest.mark.parametrize("rows", [0, 1, 7, 300_000])
def test_any_number_of_rows(queryable: Any, domain: Domain, codes: Codes, rows: int) -> None:
    found, _ = synthesize(queryable(domain, codes, 0.1), rows=rows, options=Options(sweeps=2), rng=RNG(0))
    assert found.shape == (rows, 5)
    assert (found < list(domain.sizes.values())).all()
    assert (found >= 0).all()


@pytest.mark.parametrize("sizes", [{"a": 1}, {"a": 3}, {"a": 3, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 2}])
def test_small_domains(queryable: Any, sizes: dict[str, int]) -> None:
    domain = Domain(sizes)
    codes = np.stack([RNG(0).integers(0, n, 100) for n in sizes.values()], axis=1).astype(np.int32)
    found, _ = synthesize(queryable(domain, codes, 10.0), rows=100, rng=RNG(0))
    assert found.shape == codes.shape


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("rho", [1e-9, 1e-4])
def test_an_empty_table(queryable: Any, domain: Domain, rho: float) -> None:
    for seed in range(5):
        empty = np.zeros((0, 5), dtype=np.int32)
        found, detail = synthesize(queryable(domain, empty, rho, bits=SeededEntropy(seed)), rng=RNG(0), rows=50)
        assert len(found) == 50
        assert detail["total"] >= 1


def test_candidates_are_bounded() -> None:
    wide = Domain({f"a{i}": 2000 for i in range(60)})
    assert cliques(wide) == tuple((name,) for name in wide.attributes)  # 4 million cells a pair
    many = Domain({f"a{i}": 1000 for i in range(20)})
    pairs = [clique for clique in cliques(many) if len(clique) == 2]
    assert 50 < len(pairs) < 190
    assert sum(map(many.cells, pairs)) <= 2**26


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"method": "gan"}, "method 'gan' is not known"),
        ({"rounds": 0}, "rounds := 0 is out of range"),
        ({"sweeps": 1.5}, "sweeps := 1.5 is out of range"),
        ({"order": 5}, "order := 5 is out of range"),
    ],
)
def test_bad_options(options: dict[str, Any], found: str) -> None:
    with pytest.raises(DPError, match=found):
        replace(Options(), **options)


def test_bad_requests() -> None:
    with pytest.raises(DPError, match="at least one attribute"):
        check(Domain({}), None)
    for rows in (-1, True, 1.5, 10**12):
        with pytest.raises(DPError, match="is out of range; use a whole number from 0"):
            check(Domain({"a": 2}), rows)  # type: ignore[arg-type]
    many = Domain({f"a{i}": 2 for i in range(30)})
    check(many, 33_333_333)
    with pytest.raises(DPError, match="up to rows := 33333333 works"):
        check(many, 33_333_334)


def test_a_workload_of_too_large_marginals() -> None:
    with pytest.raises(DPError, match="'aim' finds no marginal of 2 attributes"):
        check(Domain({"a": 5000, "b": 5000}), None, Options(method="aim"))


def test_without_the_library_nothing_is_spent(
    queryable: Any, domain: Domain, codes: Codes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mbi", None)
    for method in METHODS[1:]:
        closed = queryable(domain, codes, 1.0)
        with pytest.raises(DPError, match="pip install 'duckdb-dp\\[pgm\\]'"):
            synthesize(closed, options=Options(method=method), rng=RNG(0))
        assert closed.left == 1.0
