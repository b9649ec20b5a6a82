"""The sum of the deltas of thresholds: reserved by dp_protect, converted apart from the costs, and never overspent."""

import json
import threading
from pathlib import Path

import pytest

from duckdb_dp.accounting.convert import gdp_epsilon, gdp_mu
from duckdb_dp.accounting.event import GaussianEvent, ThresholdEvent
from duckdb_dp.accounting.ledger import Dataset, Ledger
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError


def protected(path: Path, **declared) -> tuple[Ledger, Dataset]:
    ledger = Ledger(path / "test.dp")
    declared = {"budget": Budget(epsilon=3, delta=1e-9), "discovery_delta": 1e-10, **declared}
    return ledger, ledger.protect(catalog="memory", schema="main", name="visits", **declared)


def charge(ledger: Ledger, dataset: Dataset, number: int, delta: float, mu: float = 1e-3) -> None:
    event = ThresholdEvent(mu=mu, delta=delta)
    request = json.dumps({"number": number})
    ledger.charge(dataset=dataset, function="dp_discover", request=request, mechanism="gaussian", event=event)


def test_costs_are_converted_at_what_is_left_of_delta(tmp_path: Path) -> None:
    ledger, dataset = protected(tmp_path)
    assert dataset.budget == pytest.approx(gdp_mu(3, 0.9e-9) ** 2, rel=1e-9)
    assert dataset.budget < gdp_mu(3, 1e-9) ** 2
    charge(ledger, dataset, 1, 1e-11, mu=0.1)
    (row,) = ledger.ledger_rows()
    assert row["delta"] == pytest.approx(0.9e-9)
    assert row["epsilon"] == pytest.approx(gdp_epsilon(0.1, 0.9e-9), rel=1e-4)
    assert row["discovery_delta"] == 1e-11
    (budget,) = ledger.budget_rows()
    assert (budget["delta"], budget["epsilon_total"], budget["discovery_delta"]) == (1e-9, 3, 1e-10)
    assert budget["discovery_delta_remaining"] == pytest.approx(9e-11)


def test_a_discovery_delta_leaves_room_for_costs(tmp_path: Path) -> None:
    for wrong in (1e-9, 1.0, 0, -1e-12, "much", True):
        with pytest.raises(DPError):
            protected(tmp_path, discovery_delta=wrong)
    with pytest.raises(DPError, match="with a delta"):
        protected(tmp_path, budget=Budget(epsilon=1, delta=0))
    ledger, dataset = protected(tmp_path)
    with pytest.raises(DPError, match="declared already"):
        protected(tmp_path, discovery_delta=2e-10)
    with pytest.raises(DPError, match="declared already"):
        protected(tmp_path, discovery_delta=None)
    assert protected(tmp_path)[1] == dataset == ledger.datasets()[0]


@pytest.mark.parametrize("budget", [Budget(mu=0.5), Budget(rho=0.1)])
def test_with_mu_or_rho_it_is_added_to_the_guarantee(tmp_path: Path, budget: Budget) -> None:
    ledger, dataset = protected(tmp_path, budget=budget)
    assert dataset.budget == dataset.accounting.cost(budget)
    charge(ledger, dataset, 1, 1e-10)
    assert ledger.budget_rows()[0]["discovery_delta_remaining"] == 0


def test_it_cannot_be_overspent(tmp_path: Path) -> None:
    ledger, dataset = protected(tmp_path)
    for number in range(10):
        charge(ledger, dataset, number, 1e-11)
    charge(ledger, dataset, 9, 1e-11)  # the same request once more
    before = ledger.ledger_rows()
    with pytest.raises(DPError, match="nothing was charged"):
        charge(ledger, dataset, 10, 1e-11)
    with pytest.raises(DPError, match="nothing was charged"):
        charge(ledger, dataset, 11, 1e-18)
    assert ledger.ledger_rows() == before
    event = GaussianEvent(mu=0.01)  # what takes none of it goes on
    ledger.charge(dataset=dataset, function="dp_marginals", request="{}", mechanism="gaussian", event=event)


def test_without_one_no_threshold_is_charged(tmp_path: Path) -> None:
    ledger, dataset = protected(tmp_path, discovery_delta=None)
    with pytest.raises(DPError, match="nothing was charged"):
        charge(ledger, dataset, 1, 1e-300)
    assert ledger.ledger_rows() == []
    assert ledger.budget_rows()[0]["discovery_delta_remaining"] is None


def test_an_event_that_costs_too_much_takes_none_of_it(tmp_path: Path) -> None:
    ledger, dataset = protected(tmp_path)
    with pytest.raises(DPError, match="more than what remains"):
        charge(ledger, dataset, 1, 1e-11, mu=10)
    assert ledger.budget_rows()[0]["discovery_delta_remaining"] == 1e-10


def test_threads_together_do_not_overspend_it(tmp_path: Path) -> None:
    _, dataset = protected(tmp_path)
    refused: list[DPError] = []

    def ask(start: int) -> None:
        ledger = Ledger(tmp_path / "test.dp")
        for number in range(start, start + 4):
            try:
                charge(ledger, dataset, number, 3e-11)
            except DPError as error:
                refused.append(error)

    threads = [threading.Thread(target=ask, args=(10 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Ledger(tmp_path / "test.dp").ledger_rows()) == 3
    assert len(refused) == 13
