"""Adaptive mechanisms see private data through one queryable alone, and what they do next follows from what came out."""

import ast
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import duckdb_dp.adaptive
from duckdb_dp.accounting.base import GDP, ZCDP, Accounting
from duckdb_dp.adaptive import MECHANISMS, Options
from duckdb_dp.adaptive.neyman import neyman
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Array, Grouped, Identity, LinOp, Measurable
from duckdb_dp.private import Candidate, PrivateQueryable
from duckdb_dp.reconstruct.likeness import Likeness
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.testing import SeededEntropy

DOMAIN = Domain({"a": 3, "b": 4, "c": 5, "d": 2})
WORKLOAD = Workload.all_k_way(DOMAIN, 3)


def queryable(seed: int, rows: int, rho: float, accounting: Accounting, unit_rows: int = 1) -> PrivateQueryable:
    rng = np.random.default_rng(seed)
    table = rng.multinomial(rows, rng.dirichlet(np.full(120, 0.2)))
    keys = np.flatnonzero(table)
    counts = Counts(DOMAIN, {DOMAIN.attributes: (keys, table[keys])})
    return PrivateQueryable(counts, total=rho, accounting=accounting, rows=unit_rows, bits=SeededEntropy(3))


def test_no_step_is_drawn_that_the_charge_does_not_cover() -> None:
    private, candidates = queryable(1, 100, 0.3, ZCDP), [Candidate(clique=("a",))]
    private.measure(("a",), Identity(3), 0.2)
    for rho in (0.2, 0.10001, 0.0, -0.1, float("nan")):
        with pytest.raises(AssertionError, match="does not fit into"):
            private.measure(("a",), Identity(3), rho)
        with pytest.raises(AssertionError, match="does not fit into"):
            private.select(candidates, lambda _: np.zeros(3), rho)
    assert private.left == pytest.approx(0.1)
    private.select(candidates, lambda _: np.zeros(3), 0.1)
    assert private.left < 1e-12


def test_a_selection_is_as_sensitive_as_a_unit_has_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit of k rows moves a distance by k, and a score by its weight times that."""
    asked: list[tuple[float, float]] = []

    def chosen(scores: Array, sensitivity: float, epsilon: float, **_: Any) -> int:
        asked.append((sensitivity, epsilon))
        return 0

    monkeypatch.setattr("duckdb_dp.queryable.exponential", chosen)
    candidates = [Candidate(clique=("a",), weight=0.5), Candidate(clique=("b",), weight=2.0)]
    for accounting in (ZCDP, GDP):
        private = queryable(1, 100, 1.0, accounting, unit_rows=3)
        private.select(candidates, lambda clique: np.zeros(DOMAIN.shape(clique)), 0.02)
    assert asked[0] == pytest.approx((6, 0.4))
    assert asked[1] == (6, 2 * GDP.pure_epsilon(0.04))


class Recorder:
    """Passes everything through, keeps what came out and what was spent."""

    def __init__(self, inner: PrivateQueryable) -> None:
        self.inner, self.log = inner, []  # type: ignore[var-annotated]
        self.domain, self.rows, self.accounting = inner.domain, inner.rows, inner.accounting

    @property
    def left(self) -> float:
        return self.inner.left

    def measure(self, clique: Clique, strategy: LinOp, rho: float) -> LinearMeasurement:
        found = self.inner.measure(clique, strategy, rho)
        self.log.append(("measure", clique, rho, found))
        return found

    def measure_all(self, asked: Iterable[tuple[Clique, LinOp, float]]) -> list[LinearMeasurement]:
        return [self.measure(*step) for step in asked]

    def answer_all(self, asked: Iterable[tuple[Clique, Measurable, float]]) -> list[tuple[Array, float]]:
        steps = list(asked)
        found = self.inner.answer_all(steps)
        self.log += [
            ("answer", clique, rho, one, query) for (clique, query, rho), one in zip(steps, found, strict=True)
        ]
        return found

    def select(
        self,
        candidates: Sequence[Candidate],
        estimate: Callable[[Clique], Array],
        rho: float,
        changed: Collection[Clique] | None = None,
    ) -> int:
        found = self.inner.select(candidates, estimate, rho, changed)
        estimates = {c.clique: estimate(c.clique).copy() for c in candidates}
        self.log.append(("select", tuple(candidates), rho, found, estimates, changed))
        return found


class Replay:
    """Has no data at all: gives what another queryable gave, and keeps the budget as it does."""

    def __init__(self, recorded: Recorder, total: float) -> None:
        self.domain, self.rows, self.accounting = recorded.domain, recorded.rows, recorded.accounting
        self.log, self.total, self.spent = iter(recorded.log), total, 0.0

    @property
    def left(self) -> float:
        return max(0.0, self.total - self.spent)

    def _next(self, kind: str, what: object, rho: float) -> Any:
        entry = next(self.log)
        assert entry[:3] == (kind, what, rho)
        self.spent += rho
        return entry[3]

    def measure(self, clique: Clique, strategy: LinOp, rho: float) -> LinearMeasurement:
        return self._next("measure", clique, rho)

    def measure_all(self, asked: Iterable[tuple[Clique, LinOp, float]]) -> list[LinearMeasurement]:
        return [self.measure(*step) for step in asked]

    def answer_all(self, asked: Iterable[tuple[Clique, Measurable, float]]) -> list[tuple[Array, float]]:
        return [self._next("answer", clique, rho) for clique, _, rho in asked]

    def select(self, candidates: Sequence[Candidate], estimate: object, rho: float, changed: object = None) -> int:
        return self._next("select", tuple(candidates), rho)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MECHANISMS))
@pytest.mark.parametrize("accounting", [ZCDP, GDP])
def test_all_follows_from_what_came_out(name: str, accounting: Accounting) -> None:
    """Without the data, the same outputs lead to the same questions, at the same cost, and to the same results."""
    recorder = Recorder(queryable(1, 5_000, 0.3, accounting))
    first = MECHANISMS[name](recorder, WORKLOAD, Options())
    replay = Replay(recorder, 0.3)
    second = MECHANISMS[name](replay, WORKLOAD, Options())
    assert next(replay.log, None) is None
    assert json.dumps(first.rounds) == json.dumps(second.rounds)
    for one, other in zip(first.measured, second.measured, strict=True):
        assert (one.clique, one.variance) == (other.clique, other.variance)
        assert (one.answers == other.answers).all()


@pytest.mark.parametrize("name", list(MECHANISMS))
@pytest.mark.parametrize("rows", [0, 1, 100_000])
def test_any_table_costs_the_same(name: str, rows: int) -> None:
    recorder = Recorder(queryable(2, rows, 0.2, ZCDP))
    MECHANISMS[name](recorder, WORKLOAD, Options())
    assert sum(entry[2] for entry in recorder.log) == pytest.approx(0.2, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("unit_rows", [1, 3])
@pytest.mark.parametrize("rows", [40, 5_000])
def test_neighbours_change_no_more_than_is_charged(rows: int, unit_rows: int) -> None:
    """All steps of 'neyman' are Gaussian: what a unit of k rows moves in them, squared over twice the variances, is rho."""
    recorder = Recorder(queryable(5, rows, 0.3, ZCDP, unit_rows))
    MECHANISMS["neyman"](recorder, WORKLOAD, Options())
    assert {entry[0] for entry in recorder.log} == {"measure", "answer"}
    assert sum(entry[2] for entry in recorder.log) == pytest.approx(0.3)
    counts = recorder.inner._counts
    for cell in range(0, 120, 17):
        lost = 0.0
        for kind, clique, rho, found, *query in recorder.log:
            measured, variance = (query[0], found[1]) if kind == "answer" else (found.strategy, found.variance)
            before = counts.marginal(clique)
            where = np.unravel_index(cell, DOMAIN.shape(DOMAIN.attributes))
            place = [where[DOMAIN.attributes.index(name)] for name in clique]
            after = before.copy()
            after[np.ravel_multi_index(place, DOMAIN.shape(clique)) if clique else 0] += unit_rows
            moved = float(((measured.apply(after)[0] - measured.apply(before)[0]) ** 2).sum()) / (2 * variance)
            assert moved <= rho * (1 + 1e-9)
            lost += moved
        assert lost <= 0.3 * (1 + 1e-9)


WAYS = {
    "x": Likeness(ways=tuple(np.arange(40) % n for n in (4, 7, 28))),
    "y": Likeness(ways=tuple(np.arange(30) * 7 % n for n in (5, 6))),
    "z": Likeness(),
}
ALIKE = [
    {"x": Likeness(ordered=40), "y": Likeness(ordered=30), "z": Likeness()},
    WAYS | {"y": Likeness(ordered=30)},
    WAYS,
]


@pytest.mark.parametrize("unit_rows", [1, 3])
@pytest.mark.parametrize("rho", [0.002, 0.05, 2.0, 1e5])
@pytest.mark.parametrize("alike", ALIKE, ids=["neighbours", "one by public rows", "both by public rows"])
def test_neighbours_of_pairs_in_groups_change_no_more_than_is_charged(
    alike: Mapping[str, Likeness], rho: float, unit_rows: int
) -> None:
    """As before, where pairs are measured in groups of values, in smaller or other ones later, and are scored whole and in all of these."""
    rng, sizes = np.random.default_rng(0), (40, 30, 3)
    domain = Domain(dict(zip("xyz", sizes, strict=True)))
    x = rng.integers(0, 40, 3_000)
    y = np.clip(x * 3 // 4 + rng.integers(-3, 4, len(x)), 0, 29)
    keys, found = np.unique(np.ravel_multi_index([x, y, rng.integers(0, 3, len(x))], sizes), return_counts=True)
    counts = Counts(domain, {domain.attributes: (keys, found)})
    inner = PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=unit_rows, bits=SeededEntropy(4))
    recorder = Recorder(inner)
    neyman(recorder, Workload.all_k_way(domain, 2), Options(), alike=alike)
    assert any(isinstance(query, Grouped) for kind, *_, query in recorder.log if kind == "answer") == (rho < 1e5)
    for cell in keys[:: len(keys) // 7]:
        lost, where = 0.0, np.unravel_index(cell, sizes)
        for kind, clique, _, answer, *query in recorder.log:
            measured, variance = (query[0], answer[1]) if kind == "answer" else (answer.strategy, answer.variance)
            before = counts.marginal(clique)
            place = [where["xyz".index(name)] for name in clique]
            after = before.copy()
            after[np.ravel_multi_index(place, domain.shape(clique)) if clique else 0] += unit_rows
            lost += float(((measured.apply(after)[0] - measured.apply(before)[0]) ** 2).sum()) / (2 * variance)
        assert lost <= rho * (1 + 1e-9)
    assert sum(entry[2] for entry in recorder.log) == pytest.approx(rho)


@pytest.mark.parametrize("name", ["aim"])
def test_selection_is_told_of_every_estimate_that_changed(name: str) -> None:
    """Scores of candidates that are said not to have changed are reused: they must not have."""
    recorder = Recorder(queryable(3, 5_000, 1.0, ZCDP))
    MECHANISMS[name](recorder, WORKLOAD, Options())
    selections = [entry for entry in recorder.log if entry[0] == "select"]
    assert selections[0][5] is None
    assert len(selections) >= 3
    for (*_, before, _), (*_, after, changed) in itertools.pairwise(selections):
        for clique, estimate in after.items():
            assert clique in changed or (estimate == before[clique]).all()


def test_weights_are_not_negative_and_at_most_one() -> None:
    """The queryable multiplies sensitivity by the largest weight."""
    recorder = Recorder(queryable(4, 100, 0.1, ZCDP))
    MECHANISMS["aim"](recorder, WORKLOAD, Options())
    weights = [c.weight for entry in recorder.log if entry[0] == "select" for c in entry[1]]
    assert max(weights) == 1.0
    assert min(weights) > 0


def test_no_module_reads_counts() -> None:
    for path in Path(duckdb_dp.adaptive.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        names = {f"{n.module}.{a.name}" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        assert not any(name.startswith(("duckdb_dp.counting", "duckdb_dp.noise")) for name in names)
        assert not any(isinstance(n, ast.Attribute) and n.attr.startswith("_counts") for n in ast.walk(tree))
