"""AIM+GReM and 'neyman' on a small table: budgets, priors, memory, states."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from duckdb_dp.accounting.base import GDP, ZCDP, Accounting
from duckdb_dp.adaptive import MECHANISMS, Options, Outcome, aim, check
from duckdb_dp.adaptive.base import measure_residuals
from duckdb_dp.adaptive.candidates import targets
from duckdb_dp.adaptive.lazy import Estimates
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Centring
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.estimate import by_tree, first
from duckdb_dp.reconstruct.fitted import Fitted
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement
from duckdb_dp.reconstruct.postprocess import postprocess
from duckdb_dp.testing import NoNoise, SeededEntropy

QueryableOf = Callable[..., PrivateQueryable]
Truth = Callable[[Clique], np.ndarray]


class Counting:
    """Bits of a seed that also say how many were drawn."""

    private = False

    def __init__(self, bits: EntropySource) -> None:
        self.bits, self.drawn = bits, 0

    def uint64(self, size: int) -> np.ndarray:
        self.drawn += size
        return self.bits.uint64(size)


@pytest.fixture(params=list(MECHANISMS))
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def three(domain: Domain) -> Workload:
    return Workload.all_k_way(domain, 3)


def cost(measured: tuple[LinearMeasurement, ...], domain: Domain, rows: int = 1) -> float:
    """rho of residual measurements: combined precisions cost what their parts did."""
    return math.fsum(rows**2 * Centring(domain.shape(m.clique)).squared_sensitivity / m.variance / 2 for m in measured)


def reader(
    found: Outcome,
    domain: Domain,
    cliques: Sequence[Clique],
    prior: Sequence[LinearMeasurement] = (),
    kind: str = "fitted",
) -> Callable[[Clique], np.ndarray]:
    """The marginals as a release of it is read."""
    if kind == "fitted" and found.estimate is not None:
        components = ResidualEstimates.of(domain, [*found.measured, *prior])
        return Fitted.around(components, found.estimate, cliques).marginal
    return postprocess(kind, domain, cliques, [*found.measured, *prior])


@pytest.mark.some(2, "mechanism")
@pytest.mark.parametrize("accounting", [ZCDP, GDP])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("rho", [1e-3, 0.5, 50.0])
def test_all_is_spent_and_no_more(
    mechanism: str,
    accounting: Accounting,
    rows: int,
    rho: float,
    queryable_of: QueryableOf,
    three: Workload,
    domain: Domain,
) -> None:
    queryable = queryable_of(rho, accounting=accounting, rows=rows)
    found = MECHANISMS[mechanism](queryable, three, Options())
    assert queryable.left <= 1e-12 * rho
    assert 0.85 * rho < cost(found.measured, domain, rows) < rho
    assert found.rounds[-1]["left"] <= 1e-12 * rho
    assert [report["round"] for report in found.rounds] == list(range(1, len(found.rounds) + 1))


WORKLOADS = [[()], [("one",)], [("a",)], [("a",), ("d",)], [("a", "one")], [("a", "b")], [("a", "b", "c", "d")]]


@pytest.mark.parametrize("cliques", WORKLOADS)
def test_small_workloads(
    mechanism: str, cliques: list[Clique], queryable_of: QueryableOf, domain: Domain, truth: Truth
) -> None:
    queryable = queryable_of(1e9)
    found = MECHANISMS[mechanism](queryable, Workload.marginals(domain, cliques), Options())
    assert queryable.left <= 1e-3
    read = reader(found, domain, cliques, kind="fitted" if mechanism == "neyman" else "unbiased")
    most = 3 if mechanism == "neyman" else 4
    for clique in cliques:
        if len(clique) <= most:
            assert np.abs(read(clique) - truth(clique)).sum() < 15


def test_one_measurement_per_clique_comes_out(mechanism: str, queryable_of: QueryableOf, three: Workload) -> None:
    cliques = [m.clique for m in MECHANISMS[mechanism](queryable_of(5.0), three, Options()).measured]
    assert len(cliques) == len(set(cliques))
    assert () in cliques


def test_more_budget_is_nearer(
    mechanism: str, queryable_of: QueryableOf, three: Workload, domain: Domain, truth: Truth
) -> None:
    errors = []
    for rho in (1e-3, 0.1, 100.0):
        found = MECHANISMS[mechanism](queryable_of(rho), three, Options())
        read = reader(found, domain, three.cliques)
        errors.append(sum(np.abs(read(c) - truth(c)).sum() for c in three.cliques))
    assert errors[2] < 0.5 * errors[1] < 0.25 * errors[0]


def test_what_hangs_together_is_selected(queryable_of: QueryableOf, domain: Domain) -> None:
    """a and b are far from independent, and no other pair is."""
    found = aim.aim(queryable_of(1.0), Workload.all_k_way(domain, 2), Options())
    assert found.rounds[0]["marginal"] == "a,b"


def test_a_prior_costs_nothing_and_helps(
    mechanism: str, queryable_of: QueryableOf, three: Workload, domain: Domain, truth: Truth
) -> None:
    prior = MECHANISMS[mechanism](queryable_of(20.0, 5), three, Options()).measured
    errors: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(3):
        for given in (True, False):
            queryable = queryable_of(0.05, seed)
            found = MECHANISMS[mechanism](queryable, three, Options(), prior=prior if given else ())
            assert cost(found.measured, domain) < 0.05
            read = reader(found, domain, three.cliques, prior if given else ())
            errors[given].append(sum(np.abs(read(c) - truth(c)).sum() for c in three.cliques))
    assert np.mean(errors[True]) < 0.5 * np.mean(errors[False])


def test_with_little_memory_the_answers_are_the_same(queryable_of: QueryableOf, three: Workload) -> None:
    held, lean = (aim.aim(queryable_of(1.0), three, Options(max_memory=memory)) for memory in (1e9, 1.0))
    assert [r["marginal"] for r in held.rounds] == [r["marginal"] for r in lean.rounds]
    for one, other in zip(held.measured, lean.measured, strict=True):
        assert one.clique == other.clique
        assert one.answers == pytest.approx(other.answers)


def test_lazy_estimates_are_the_full_ones(domain: Domain) -> None:
    rng = np.random.default_rng(1)
    workload = Workload.all_k_way(domain, 3)
    cliques = [target.clique for target in targets(workload)]
    held = Estimates.of(ResidualEstimates.of(domain, []), cliques, 1e9)
    lean = Estimates.of(ResidualEstimates.of(domain, []), cliques, 1.0)
    assert set(held.held) == set(cliques)
    assert not lean.held
    for round_ in range(12):
        some = rng.choice(len(cliques), 3, replace=False)
        noisy = [
            residual_measurement(domain, cliques[i], rng.normal(size=domain.shape(cliques[i])), 1.0 + round_)
            for i in some
        ]
        before = {clique: values.copy() for clique, values in held.held.items()}
        new, lean = held.updated(noisy), lean.updated(noisy)
        assert all((held.held[clique] == before[clique]).all() for clique in cliques)
        changed = held.above([one.clique for one in noisy])
        for clique in cliques:
            assert new.marginal(clique) == pytest.approx(lean.marginal(clique))
            assert (new.marginal(clique) is held.marginal(clique)) == (clique not in changed)
        held = new


@pytest.mark.parametrize("prior", [False, True])
def test_the_first_measurements_are_the_papers(
    prior: bool, queryable_of: QueryableOf, three: Workload, domain: Domain
) -> None:
    """Algorithm 6: each attribute's residual with precision 1/s, the total with sum 1/(n_i s), together d/(2 s)."""
    rho = 0.7
    found = targets(three)
    precision = 0.9 * rho / (len(found) + 1)
    known = [residual_measurement(domain, ("a",), np.zeros(3), 1 / (5 * precision))] if prior else []
    queryable = queryable_of(rho)
    state = aim.initial(queryable, three, Options(), found, ResidualEstimates.of(domain, known))
    names = ("a", "b", "c", "d")
    wanted = {(name,): precision for name in names if not (prior and name == "a")}
    wanted[()] = sum(precision / domain.sizes[name] for name in names)
    assert {m.clique: 1 / m.variance for m in state.measured} == pytest.approx(wanted)
    if not prior:
        assert rho - queryable.left == pytest.approx(len(names) * precision / 2)
    assert state.rho == pytest.approx(rho / (2 * (len(found) + 1)))


def test_a_step_leaves_its_state_alone(queryable_of: QueryableOf, three: Workload, domain: Domain) -> None:
    known = ResidualEstimates.of(domain, [])
    found = targets(three)
    queryable = queryable_of(1.0)
    first = aim.initial(queryable, three, Options(), found, known)
    twin = aim.initial(queryable_of(1.0), three, Options(), found, known)
    new = aim.step(queryable, found, first)
    assert len(first.rounds) == 0
    assert len(first.measured) == len(twin.measured) < len(new.measured)
    for target in found:
        one, other = (state.estimates.marginal(target.clique) for state in (first, twin))
        assert (one == other).all()
    assert new.changed is not None
    assert len(new.rounds) == 1


def test_annealing_multiplies_the_rounds_budget(queryable_of: QueryableOf, domain: Domain) -> None:
    """Without noise a selected marginal is either wrong by more than noise, and rounds stay, or right, and they grow."""
    workload = Workload.all_k_way(domain, 2)
    found = targets(workload)
    queryable = queryable_of(1e-4, NoNoise())
    state = aim.initial(queryable, workload, Options(), found, ResidualEstimates.of(domain, []))
    grown = 0
    while not state.finished:
        new = aim.step(queryable, found, state)
        report = new.rounds[-1]
        cells = domain.cells(tuple(report["marginal"].split(",")))
        quiet = report["change"] <= math.sqrt(2 / math.pi) * report["stddev"] * cells
        assert new.rho == pytest.approx(state.rho * (4 if quiet else 1))
        grown += quiet
        state = new
    assert grown


def test_rounds_set_the_first_budget(queryable_of: QueryableOf, three: Workload) -> None:
    few, many = (aim.aim(queryable_of(1.0), three, Options(rounds=rounds)).rounds for rounds in (5, 500))
    assert few[0]["stddev"] < 0.3 * many[0]["stddev"]
    assert len(few) < len(many)


def test_where_no_mixture_and_no_counts_fit_the_tree_is_the_estimate(
    queryable_of: QueryableOf, domain: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duckdb_dp.reconstruct.estimate.WIDEST", 4)
    monkeypatch.setattr("duckdb_dp.reconstruct.combination.JUDGED", 0)
    found = MECHANISMS["neyman"](queryable_of(), Workload.all_k_way(domain, 2), Options())
    known = ResidualEstimates.of(domain, found.measured)
    total, names = float(known.values[()]), [name for name, n in domain.sizes.items() if n > 1]
    assert found.estimate is not None
    expected = by_tree(known, first(known, names, found.estimate.pairs, total))
    for pair, table in expected.pairs.items():
        assert found.estimate.pairs[pair] == pytest.approx(table)


def test_rounds_of_neyman(queryable_of: QueryableOf, domain: Domain) -> None:
    """Each has an equal part of what the first measurements leave."""
    queryable, two = queryable_of(1.0), Workload.marginals(domain, [("a", "b")])
    left = [report["left"] for report in MECHANISMS["neyman"](queryable, two, Options(rounds=4)).rounds]
    assert np.diff(left) == pytest.approx(3 * [left[1] - left[0]])
    assert left[-1] == 0
    with pytest.raises(DPError, match=r"rounds := 21 is too many: .* 1 to 20 work"):
        check(two, Options(rounds=21), 1.0, ZCDP, mechanism="neyman")


def test_equal_attributes_are_found_by_neyman() -> None:
    """Five columns of 40 values that say all of one another, where noise is at least 15 rows in each cell, which has 75 rows or none.

    The products of their singles are 1.95 of the rows from each pair.
    """
    domain, rows = Domain(dict.fromkeys("abcde", 40)), 40 * 75
    values = np.repeat(np.arange(40), 75)
    counts = Counts(domain, {domain.attributes: (sum(values * 40**i for i in range(5)), np.ones(rows, dtype=np.int64))})
    queryable = PrivateQueryable(counts, total=0.02, accounting=ZCDP, rows=1, bits=SeededEntropy(1))
    found = MECHANISMS["neyman"](queryable, Workload.all_k_way(domain, 2), Options())
    assert found.estimate is not None
    errors = [np.abs(table - 75 * np.eye(40)).sum() / rows for table in found.estimate.pairs.values()]
    assert np.mean(errors) < 1


def test_large_marginals_are_not_measured(
    mechanism: str, queryable_of: QueryableOf, three: Workload, domain: Domain
) -> None:
    found = MECHANISMS[mechanism](queryable_of(10.0), three, Options(max_cells=12))
    assert max(domain.cells(m.clique) for m in found.measured) <= 12


def test_shares_of_a_measurement(queryable_of: QueryableOf, domain: Domain) -> None:
    bits = Counting(NoNoise())
    queryable = queryable_of(1.0, bits)
    found = measure_residuals(queryable, {("a",): 2.0, ("a", "b"): 1.0}, 0.3)
    costs = {("a",): 2 * 2 / 3, ("a", "b"): 2 / 3 * 3 / 4}
    for one in found:
        share = 0.3 * costs[one.clique] / sum(costs.values())
        assert one.variance == pytest.approx(Centring(domain.shape(one.clique)).squared_sensitivity / (2 * share))
    assert queryable.left == pytest.approx(0.7)
    assert bits.drawn == 3 + 12


def test_progress_is_in_hundredths_of_the_budget(mechanism: str, queryable_of: QueryableOf, three: Workload) -> None:
    class Bar:
        def __init__(self, items: range) -> None:
            self.items, self.seen, self.notes = items, [], []  # type: ignore[var-annotated]

        def __iter__(self):  # type: ignore[no-untyped-def]
            for item in self.items:
                self.seen.append(queryable.left)
                yield item

        def set_postfix_str(self, text: str, refresh: bool) -> None:
            self.notes.append(text)

    bars = []

    def track(items: range, what: str) -> Bar:
        assert "% of the budget" in what
        bars.append(Bar(items))
        return bars[-1]

    queryable = queryable_of(1.0)
    found = MECHANISMS[mechanism](queryable, three, Options(), track=track)
    (bar,) = bars
    assert len(bar.seen) == len(bar.items) == 100
    assert bar.seen == sorted(bar.seen, reverse=True)
    assert len(bar.notes) == len(found.rounds)
    assert bar.notes[0].startswith("round 1, estimated error ")
