"""A release that was begun while a selection was charged as a pure step: what was drawn stays, and the charge is kept."""

from pathlib import Path

import numpy as np
import pytest

from duckdb_dp.accounting.base import GDP, Accounting
from duckdb_dp.accounting.journal import Step, journal
from duckdb_dp.adaptive import MECHANISMS, Options
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.testing import SeededEntropy

DOMAIN = Domain({"a": 3, "b": 4, "c": 5, "d": 2})
WORKLOAD = Workload.all_k_way(DOMAIN, 3)
TOTAL = 0.3


class BrokenError(Exception):
    """A failure that nothing in the package knows."""


class Watched:
    """A journal whose process ends after some steps, and what went through it."""

    def __init__(self, inner: object, ends: int = 10**9) -> None:
        self.inner, self.ends, self.kept, self.replayed = inner, ends, [], []  # type: ignore[var-annotated]

    def next(self, asked: str, rho: float) -> Step | None:
        step = self.inner.next(asked, rho)  # type: ignore[attr-defined]
        self.replayed += [step] if step is not None else []
        return step

    def keep(self, steps: list[Step]) -> None:
        self.inner.keep(steps)  # type: ignore[attr-defined]
        self.kept += steps
        if len(self.kept) >= self.ends:
            raise BrokenError("the power went off")


def run(name: str, path: Path, seed: int, ends: int = 10**9) -> tuple[Watched, PrivateQueryable]:
    table = np.random.default_rng(1).multinomial(5_000, np.random.default_rng(2).dirichlet(np.full(120, 0.2)))
    counts = Counts(DOMAIN, {DOMAIN.attributes: (np.flatnonzero(table), table[table > 0])})
    with journal(path, "release 1") as held:
        watched = Watched(held, ends)
        queryable = PrivateQueryable(
            counts, total=TOTAL, accounting=GDP, rows=1, bits=SeededEntropy(seed), journal=watched
        )  # type: ignore[arg-type]
        try:
            MECHANISMS[name](queryable, WORKLOAD, Options())
        except BrokenError:
            assert ends < 10**9
    return watched, queryable


@pytest.mark.parametrize("name", list(MECHANISMS))
@pytest.mark.parametrize("ends", [1, 8, 14])
def test_a_journal_begun_before_is_finished_within_its_charge(
    name: str, ends: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "1.journal"
    with monkeypatch.context() as before:
        before.setattr(type(GDP), "selection_epsilon", Accounting.selection_epsilon)
        begun, _ = run(name, path, 3, ends)
    finished, queryable = run(name, path, 4)

    def text(steps: list[Step]) -> list[tuple[str, float, bytes]]:
        return [(step.asked, step.rho, step.values.tobytes()) for step in steps]

    assert text(finished.replayed) == text(begun.kept)
    taken = [*begun.kept, *finished.kept]
    assert sum(step.rho for step in taken) == pytest.approx(TOTAL, rel=1e-12)
    assert queryable.left < 1e-12
    costs = [
        GDP.selection_cost(of(GDP, 2 * step.rho)) / (2 * step.rho)
        for of, steps in ((Accounting.selection_epsilon, begun.kept), (type(GDP).selection_epsilon, finished.kept))
        for step in steps
        if step.asked.startswith('["select"')
    ]
    assert bool(costs) == (name != "neyman"), "which takes Gaussian steps alone"
    assert max(costs, default=1) <= 1 + 1e-10, "a selection costs more than was kept of it"
    assert max(costs, default=1) > 1 - 1e-9
