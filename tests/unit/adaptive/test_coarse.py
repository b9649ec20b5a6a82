"""Pairs of many values in groups of neighbouring ones: which groups by how much noise, and what is kept of what two numbers share."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.adaptive import Options
from duckdb_dp.adaptive.base import Outcome, measure_residuals
from duckdb_dp.adaptive.neyman import mechanism, neyman
from duckdb_dp.adaptive.neyman.coarse import FEWEST, LEAST, by_chance, grouped
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Array
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.estimate import Estimate
from duckdb_dp.reconstruct.likeness import Likeness
from duckdb_dp.testing import NoNoise, SeededEntropy

ROWS = 5_000


def estimate(*sizes: int) -> Estimate:
    singles = {(f"a{i}",): np.full(n, ROWS / n) for i, n in enumerate(sizes)}
    return Estimate(total=ROWS, singles=singles, pairs={})


def groups(sizes: tuple[int, int], stddev: float, bias: float = 0.5) -> tuple[int, ...]:
    pair = ("a0", "a1")
    found = grouped(
        estimate(*sizes), pair, stddev**-2, bias, {a: Likeness(ordered=n) for a, n in zip(pair, sizes, strict=True)}
    )
    return sizes if found is None else found.shape


def test_the_louder_noise_is_the_fewer_groups_there_are() -> None:
    cells = [np.prod(groups((60, 60), stddev)) for stddev in (1e-6, 0.1, 1.0, 10.0, 100.0, 1e6)]
    assert cells == sorted(cells, reverse=True)
    assert cells[0] == 3600
    assert cells[-1] == LEAST**2
    few = [np.prod(groups((60, 60), 10.0, bias)) for bias in (5.0, 1.0, 0.1)]  # what hides more is cut finer
    assert few == sorted(few, reverse=True)


def test_few_values_stay_alone() -> None:
    assert groups((FEWEST, FEWEST), 1e9) == (FEWEST, FEWEST)
    alone, some = groups((3, 60), 100.0)
    assert alone == 3
    assert LEAST <= some < 60


def test_as_many_groups_as_cost_least() -> None:
    """No other number of groups has less noise and bias together."""
    stddev, bias = 12.0, 0.7
    noise = stddev * np.sqrt(2 / np.pi) / ROWS
    losses = {(g, h): noise * g * h + bias / g + bias / h for g in range(LEAST, 61) for h in range(LEAST, 61)}
    g, h = groups((60, 60), stddev, bias)
    assert losses[g, h] <= 1.05 * min(losses.values())


def test_the_distance_by_chance_is_that_of_counts() -> None:
    means = np.array([0.02, 0.5, 1.0, 3.7, 40.0])
    drawn = np.random.default_rng(0).poisson(means, (400_000, len(means)))
    assert by_chance(means) == pytest.approx(float(np.abs(drawn - means).mean(axis=0).sum()), rel=0.01)
    assert by_chance(np.zeros(4)) == 0


def pairs_of_numbers(how: str, bins: int) -> Iterator[Array]:
    """Two columns that hang together as ``how`` says, twice, and two that stand alone."""
    rng = np.random.default_rng(1)
    for _ in range(2):
        x, e = rng.normal(size=(2, ROWS))
        y = {"line": 0.7 * x + 0.7 * e, "bend": 1.4 * np.abs(x) - 1.1 + 0.5 * e}[how]
        yield from (np.clip((v + 3.5) / 7 * bins, 0, bins - 1).astype(np.int64) for v in (x, y))
    yield from (rng.integers(0, n, ROWS) for n in (3, 5))


def run(how: str, bins: int, rho: float, bits: EntropySource, ordered: bool) -> tuple[PrivateQueryable, Outcome, Array]:
    columns = list(pairs_of_numbers(how, bins))
    domain = Domain(dict(zip("abcdef", (bins, bins, bins, bins, 3, 5), strict=True)))
    keys, counts = np.unique(np.ravel_multi_index(columns, domain.shape(domain.attributes)), return_counts=True)
    queryable = PrivateQueryable(
        Counts(domain, {domain.attributes: (keys, counts)}), total=rho, accounting=ZCDP, rows=1, bits=bits
    )
    alike = {name: Likeness(ordered=n if n == bins else 0) for name, n in domain.sizes.items()} if ordered else None
    outcome = neyman(queryable, Workload.all_k_way(domain, 2), Options(), alike=alike)
    truth = np.zeros((bins, bins))
    np.add.at(truth, (columns[0], columns[1]), 1.0)
    return queryable, outcome, truth


def explained(table: Array) -> float:
    """The part of the variance of the second number that the tenths of the first one explain."""
    places, shares = np.arange(table.shape[1]), table / table.sum()
    tenth = np.minimum((10 * (shares.sum(1).cumsum() - shares.sum(1) / 2)).astype(int), 9)
    cells = np.zeros((10, table.shape[1]))
    np.add.at(cells, tenth, shares)
    mean, own = float(shares.sum(0) @ places), cells @ places / np.maximum(cells.sum(1), 1e-300)
    return float(cells.sum(1) @ (own - mean) ** 2 / (shares.sum(0) @ (places - mean) ** 2))


@pytest.mark.parametrize("how", ["line", "bend"])
@pytest.mark.parametrize("bins", [40, 70])
def test_what_two_numbers_share_is_kept_where_their_cells_drown(how: str, bins: int) -> None:
    """Of it as much more as groups make of it: measured cell by cell next to nothing is left."""
    kept = {
        ordered: np.mean(
            [
                explained(outcome.estimate.pairs["a", "b"]) / explained(truth)
                for seed in (1, 2)
                for _, outcome, truth in [run(how, bins, 0.03, SeededEntropy(seed), ordered)]
                if outcome.estimate is not None
            ]
        )
        for ordered in (True, False)
    }
    assert kept[True] > 0.5
    assert kept[True] > 1.5 * kept[False]


def test_all_is_spent_and_it_is_said_which_pairs_are_in_groups() -> None:
    queryable, outcome, _ = run("line", 40, 0.05, SeededEntropy(3), ordered=True)
    assert queryable.left < 1e-9
    assert ("a", "b") in outcome.grouped
    assert all(len(shape) == 2 and max(shape) < 40 for shape in outcome.grouped.values())
    assert ("e", "f") not in outcome.grouped


def test_every_pair_that_took_budget_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its values are planned to stand alone later, and then get nothing."""
    took = set[Clique]()

    def measure(*args: Any, **kwargs: Any) -> Any:
        found = measure_residuals(*args, **kwargs)
        took.update(one.clique for one in found if len(one.clique) == 2)
        return found

    monkeypatch.setattr(mechanism, "measure_residuals", measure)
    for seed, rho in enumerate([0.01, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]):
        took.clear()
        _, outcome, _ = run("bend", 40, rho, SeededEntropy(seed), ordered=True)
        assert took == {one.clique for one in outcome.measured if len(one.clique) == 2} | outcome.grouped.keys()


def test_without_noise_every_value_stays_alone_and_counts_are_exact() -> None:
    _, outcome, truth = run("bend", 20, 1e9, NoNoise(), ordered=True)
    assert not outcome.grouped
    assert outcome.estimate is not None
    assert np.abs(outcome.estimate.pairs["a", "b"] - truth).sum() < 0.01 * ROWS
