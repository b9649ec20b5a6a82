"""What accounts pay: each release once, never more than the grant, in one sum with the dataset, whoever races."""

import multiprocessing
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.accounting.event import GaussianEvent
from duckdb_dp.accounting.grants import Waiting
from duckdb_dp.accounting.ledger import Dataset, Ledger, Release
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError

TABLES = ("accounts", "grants", "account_charges", "requests", "decisions", "shares", "audit")


def opened(folder: Path, **grants: float) -> tuple[Ledger, Dataset]:
    """A ledger with a dataset of rho 1, and a grant for each account."""
    ledger = Ledger(folder / "l.dp")
    dataset = ledger.protect(catalog="c", schema="main", name="t", budget=Budget(rho=1), delta=1e-9)
    for name, rho in grants.items():
        ledger.accounts.add(name, "analyst")
        ledger.accounts.grant(name, dataset, Budget(rho=rho))
    return ledger, dataset


def ask(ledger: Ledger, dataset: Dataset, account: str, request: str, rho: float, **more: Any) -> Release:
    event = GaussianEvent(mu=(2 * rho) ** 0.5)
    asked = {"function": "dp_test", "request": request, "mechanism": "test", "event": event}
    return ledger.asked_by(account).charge(dataset=dataset, **asked, **more)


def sums(ledger: Ledger, account: str) -> tuple[float, int]:
    with sqlite3.connect(ledger.path / "ledger.sqlite") as db:
        found = db.execute("SELECT total(cost), count(*) FROM account_charges WHERE account = ?", (account,)).fetchone()
    db.close()
    return float(found[0]), int(found[1])


@given(
    asked=st.lists(
        st.tuples(st.sampled_from(["ann", "ben"]), st.integers(0, 5), st.sampled_from([0.05, 0.1, 0.3])), max_size=15
    )
)
@settings(max_examples=20, deadline=None)
def test_any_sequence_keeps_both_filters(tmp_path_factory: Any, asked: list[tuple[str, int, float]]) -> None:
    """Against a model: what each account has paid, and what the dataset has."""
    grants = {"ann": 0.5, "ben": 0.7}
    ledger, dataset = opened(tmp_path_factory.mktemp("grants"), **grants)
    paid: dict[str, dict[tuple[int, float], float]] = {"ann": {}, "ben": {}}
    for account, number, rho in asked:
        before = {key for each in paid.values() for key in each}
        key = (number, rho)
        fits = sum(paid[account].values()) + rho <= grants[account] + 1e-9
        room = key in before or sum(rho for _, rho in before) + rho <= 1 + 1e-9
        if key in paid[account] or (fits and room):
            ask(ledger, dataset, account, f"[{number}, {rho}]", rho)
            paid[account][key] = rho
        else:
            with pytest.raises(DPError, match="nothing was charged"):
                ask(ledger, dataset, account, f"[{number}, {rho}]", rho)
    for account, found in paid.items():
        assert sums(ledger, account) == (pytest.approx(sum(found.values())), len(found))
    charged = {key for each in paid.values() for key in each}
    assert ledger.spent(dataset) == pytest.approx(sum(rho for _, rho in charged))


def race(folder: Path, account: str, first: int) -> None:
    """Ask eight requests that all accounts ask, and eight of its own, until it is refused."""
    ledger = Ledger(folder / "l.dp")
    dataset = ledger.dataset("c", "main", "t")
    assert dataset is not None
    for number in range(16):
        request = f"shared {number}" if number < 8 else f"{account} {first} {number}"
        try:
            ask(ledger, dataset, account, request, 0.04)
        except DPError as error:
            assert "nothing was charged" in str(error)


@pytest.mark.parametrize("kind", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_sums_are_exact_when_many_race_for_the_last_of_a_budget(tmp_path: Path, kind: str) -> None:
    ledger, dataset = opened(tmp_path, ann=0.6, ben=0.4, cid=1.0)
    make: Any = threading.Thread if kind == "threads" else multiprocessing.get_context("spawn").Process
    racers = [make(target=race, args=(tmp_path, name, first)) for first in range(2) for name in ("ann", "ben", "cid")]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert 1 - 0.04 < ledger.spent(dataset) <= 1 + 1e-9
    assert sums(ledger, "ann")[0] <= 0.6 + 1e-9
    assert sums(ledger, "ben")[0] <= 0.4 + 1e-9
    with sqlite3.connect(ledger.path / "ledger.sqlite") as db:
        unpaid = "SELECT count(*) FROM charges WHERE id NOT IN (SELECT release FROM account_charges)"
        twice = "SELECT count(*) - count(DISTINCT account || ' ' || release) FROM account_charges"
        assert [db.execute(query).fetchone()[0] for query in (unpaid, twice)] == [0, 0]
    db.close()


def test_a_refused_account_leaves_no_charge_to_the_dataset(tmp_path: Path) -> None:
    ledger, dataset = opened(tmp_path, ann=0.1)
    with pytest.raises(DPError, match="grant of 'ann'"):
        ask(ledger, dataset, "ann", "[1]", 0.2, name="mine")
    ledger.accounts.add("zoe", "analyst")
    with pytest.raises(DPError, match="not granted to 'zoe'"):
        ask(ledger, dataset, "zoe", "[1]", 0.01)
    ledger.accounts.add("ann", "viewer")
    with pytest.raises(DPError, match="ask nothing"):
        ask(ledger, dataset, "ann", "[1]", 0.01)
    ledger.accounts.add("ann", "analyst")
    ledger.accounts.grant("ann", dataset, Budget(rho=0.1), until="2020-01-01")
    with pytest.raises(DPError, match="ended with 2020-01-01"):
        ask(ledger, dataset, "ann", "[1]", 0.01)
    assert ledger.spent(dataset) == 0
    assert ledger.named("ann/mine") is None


def test_what_waits_is_approved_once_and_what_was_refused_stays_refused(tmp_path: Path) -> None:
    ledger, dataset = opened(tmp_path, ann=0.5)
    ledger.accounts.grant("ann", dataset, Budget(rho=0.5), most=Budget(rho=0.05))
    for number, approved in ((1, True), (2, False)):
        with pytest.raises(Waiting, match=f"request {number} waits"):
            ask(ledger, dataset, "ann", f"[{number}]", 0.1)
        ledger.accounts.decide(number, approved=approved, reason="too much", steward="sam")
    assert ask(ledger, dataset, "ann", "[1]", 0.1).id == 1
    with pytest.raises(Waiting, match="request 3 waits"):
        ask(ledger, dataset, "ann", "[1]", 0.1, fresh_key="again")
    with pytest.raises(DPError, match=r"refused this as request 2 \(too much\)"):
        ask(ledger, dataset, "ann", "[2]", 0.1)
    assert ledger.spent(dataset) == pytest.approx(0.1)


@pytest.mark.parametrize("table", TABLES)
def test_nothing_of_accounts_is_ever_changed(tmp_path: Path, table: str) -> None:
    ledger, dataset = opened(tmp_path, ann=0.5)
    ledger.accounts.grant("ann", dataset, Budget(rho=0.5), most=Budget(rho=0.05))
    with pytest.raises(Waiting):
        ask(ledger, dataset, "ann", "[1]", 0.1)
    ledger.accounts.decide(1, approved=True, reason=None, steward=None)
    release = ask(ledger, dataset, "ann", "[1]", 0.1)
    ledger.accounts.note_all([{"account": "ann", "client": "c", "statement": "s", "outcome": "answered"}])
    ledger.store(release, {})
    ledger.accounts.share(release.id, "ann")
    with sqlite3.connect(ledger.path / "ledger.sqlite") as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        assert db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] > 0
        for change in (
            f"UPDATE {table} SET time = 'x'",
            f"DELETE FROM {table}",
            f"INSERT OR REPLACE INTO {table} SELECT {', '.join(columns)} FROM {table} LIMIT 1",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="insert-only"):
                db.execute(change)
    db.close()
