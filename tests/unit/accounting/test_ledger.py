"""The ledger in one process: declarations, charges, names, releases, reports."""

import json
import math
import re
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.accounting.convert import gdp_mu
from duckdb_dp.accounting.event import GaussianEvent
from duckdb_dp.accounting.ledger import Dataset, Ledger, Release, hash_request
from duckdb_dp.accounting.schema import MIGRATIONS
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "test.dp")


def protect(ledger: Ledger, name: str = "adult", **declared) -> Dataset:
    declared.setdefault("budget", Budget(rho=1))
    return ledger.protect(catalog="memory", schema="main", name=name, **declared)


def charge(ledger: Ledger, dataset: Dataset, request: str = "{}", rho: float = 0.25, **asked) -> Release:
    event = GaussianEvent(mu=math.sqrt(2 * rho))
    asked = {"function": "dp_marginals", "mechanism": "residual", "event": event, **asked}
    return ledger.charge(dataset=dataset, request=request, **asked)


SIZES = [("0.0662297", "1.4"), ("0.0165574", "0.69"), ("0.0331148", "1")]  # asked, left, total

# Declarations


def test_protect_fills_in_and_reads_back(ledger: Ledger) -> None:
    dataset = protect(ledger, budget=Budget(epsilon=1), delta=1e-9, unit="patient_id", max_rows=5)
    assert (dataset.accounting.name, dataset.epsilon, dataset.delta) == ("gdp", 1.0, 1e-9)
    assert dataset.budget == pytest.approx(5.49527**-2, rel=1e-5)
    assert dataset.neighbours == "add or remove one 'patient_id' with up to 5 rows"
    assert protect(ledger, "other").neighbours == "add or remove one row"
    assert protect(ledger, "third", unit="id").neighbours == "add or remove one 'id' with up to 1 row"
    assert ledger.dataset("memory", "main", "adult") == dataset == Ledger(ledger.path).datasets()[0]
    assert ledger.dataset("memory", "main", "nothing") is None
    assert [found.name for found in ledger.datasets()] == ["adult", "other", "third"]


def test_declarations_are_read_anew_when_anybody_declares_while_a_call_is_held(ledger: Ledger) -> None:
    dataset, second, other = protect(ledger), protect(ledger, "second"), Ledger(ledger.path)
    with ledger.held():
        for _ in range(2):
            assert (ledger.attributes(dataset), ledger.link(dataset)) == ([], None)
        other.declare(dataset, "x", "1")
        assert [ledger.attributes(dataset) for _ in range(2)] == [[("x", "1")]] * 2
        ledger.declare(dataset, "y", "2")
        assert ledger.attributes(dataset) == [("x", "1"), ("y", "2")]
        other.declare_link(dataset, "[]")
        assert (ledger.link(dataset), ledger.link(second), ledger.attributes(second)) == ("[]", None, [])
        other.declare(dataset, "x", None)
        assert ledger.attributes(dataset) == [("y", "2")]


def test_names_of_tables_ignore_case_as_duckdb_does(ledger: Ledger) -> None:
    dataset = protect(ledger, "Adult")
    assert protect(ledger, "ADULT") == dataset
    assert ledger.dataset("MEMORY", "Main", "adult") == dataset
    assert protect(ledger, "adult2") != dataset


def test_the_same_declaration_again_is_the_same_dataset(ledger: Ledger) -> None:
    first = protect(ledger, budget=Budget(epsilon=3, delta=1e-9))
    assert protect(ledger, budget=Budget(epsilon=3), delta=1e-9) == first
    assert len(ledger.datasets()) == 1


@pytest.mark.parametrize(
    "declared",
    [
        {"budget": Budget(epsilon=4, delta=1e-9)},
        {"budget": Budget(epsilon=3, delta=1e-8)},
        {"budget": Budget(rho=0.1), "delta": 1e-9},
        {"budget": Budget(epsilon=3, delta=1e-9), "accounting": "zcdp"},
        {"budget": Budget(epsilon=3, delta=1e-9), "unit": "id"},
    ],
)
def test_another_declaration_is_refused_and_changes_nothing(ledger: Ledger, declared: dict) -> None:
    first = protect(ledger, budget=Budget(epsilon=3, delta=1e-9))
    with pytest.raises(DPError, match=r"'adult' \(add or remove one row; epsilon 3, delta 1e-09; accounting 'gdp'\)"):
        protect(ledger, **declared)
    assert ledger.datasets() == [first]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"budget": Budget(epsilon=1)}, "needs a delta"),
        ({"accounting": "pure"}, "is no pure budget"),
        ({"accounting": "renyi"}, "'renyi' is not available"),
        ({"max_rows": 0, "unit": "id"}, "max_rows 0"),
        ({"max_rows": True, "unit": "id"}, "max_rows true"),
        ({"max_rows": 2.0, "unit": "id"}, "max_rows 2.0"),
        ({"max_rows": 2}, "needs a unit"),
        ({"delta": 2}, "delta 2 is not between"),
        ({"budget": Budget(epsilon=1, delta=1e-9), "delta": 1e-6}, "two deltas"),
    ],
)
def test_impossible_declarations_are_refused(ledger: Ledger, declared: dict, message: str) -> None:
    with pytest.raises(DPError, match=message):
        protect(ledger, **declared)
    assert ledger.datasets() == []


def test_attributes_keep_their_first_position_and_newest_spec(ledger: Ledger) -> None:
    dataset, other = protect(ledger), protect(ledger, "other")
    for name, spec in (("age", "1"), ("sex", "2"), ("Age", "3"), ("sex", "2"), ("hours", "4")):
        ledger.declare(dataset, name, spec)
    ledger.declare(other, "age", "5")
    assert ledger.attributes(dataset) == [("Age", "3"), ("sex", "2"), ("hours", "4")]
    assert ledger.attributes(other) == [("age", "5")]
    with ledger._database.reading() as db:
        assert db.execute("SELECT count(*) FROM attributes").fetchone()[0] == 5


def test_a_dataset_of_another_ledger_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    foreign = protect(Ledger(tmp_path / "other.dp"), budget=Budget(rho=1000))
    protect(ledger)
    for act in (lambda: charge(ledger, foreign), lambda: ledger.declare(foreign, "a", "1")):
        with pytest.raises(DPError, match="not protected in this ledger"):
            act()


def test_the_unit_key_is_random_and_stays(ledger: Ledger, tmp_path: Path) -> None:
    key = ledger.unit_key()
    assert len(bytes.fromhex(key)) == 16
    assert Ledger(ledger.path).unit_key() == key != Ledger(tmp_path / "other.dp").unit_key()


# Charges


def test_a_request_is_charged_once_ever(ledger: Ledger) -> None:
    dataset = protect(ledger)
    first = charge(ledger, dataset, '{"q":1}')
    assert first.state == "charged"
    for again in (ledger, Ledger(ledger.path)):
        assert charge(again, dataset, '{"q":1}') == first == again.find(hash_request('{"q":1}'))
    assert ledger.spent(dataset) == pytest.approx(0.25)
    assert charge(ledger, dataset, '{"q":2}').id != first.id
    assert ledger.remaining(dataset) == pytest.approx(0.5)
    assert ledger.find(hash_request('{"q":3}')) is None


def test_fresh_charges_once_per_key_and_renews_the_request(ledger: Ledger) -> None:
    dataset = protect(ledger)
    old = charge(ledger, dataset)
    new = charge(ledger, dataset, fresh_key="statement 1")
    assert new.id > old.id
    assert charge(ledger, dataset, fresh_key="statement 1") == new
    assert charge(ledger, dataset) == new == ledger.find(hash_request("{}"))
    assert charge(ledger, dataset, "other", fresh_key="statement 1").id > new.id
    assert ledger.spent(dataset) == pytest.approx(0.75)


def test_seeded_and_private_releases_are_never_found_by_each_other(ledger: Ledger) -> None:
    dataset = protect(ledger)
    seeded = charge(ledger, dataset, private=False)
    assert ledger.find(hash_request("{}")) is None
    private = charge(ledger, dataset)
    assert (seeded.private, private.private) == (False, True)
    assert private.id != seeded.id
    assert charge(ledger, dataset) == private
    assert charge(ledger, dataset, private=False) == seeded == ledger.find(hash_request("{}"), private=False)


def test_over_budget_says_what_remains_and_that_much_works(ledger: Ledger) -> None:
    dataset = protect(ledger, budget=Budget(epsilon=1, delta=1e-9))
    charge(ledger, dataset, "1", rho=dataset.budget / 4)
    with pytest.raises(DPError) as caught:
        charge(ledger, dataset, "2", rho=dataset.budget)
    message = str(caught.value)
    asked, left, total = (rf"epsilon {e}\S* at delta 1e-09 \(mu\^2 {size}\)" for size, e in SIZES)
    assert re.match(
        rf"dp_marginals: {asked} is more than what remains of the budget of 'adult', {left} of {total}", message
    )
    assert "nothing was charged" in message
    assert "\n" not in message
    epsilon = float(message.split("epsilon := ")[1].split(" ")[0].rstrip(";,"))
    charge(ledger, dataset, "3", event=GaussianEvent(mu=gdp_mu(epsilon, 1e-9)))
    assert ledger.remaining(dataset) < 0.01 * dataset.budget
    assert ledger.find(hash_request("2")) is None


def test_over_budget_without_delta_and_with_nothing_left(ledger: Ledger) -> None:
    dataset = protect(ledger)
    charge(ledger, dataset, "1", rho=1)
    with pytest.raises(DPError) as caught:
        charge(ledger, dataset, "2", rho=1)
    assert "epsilon" not in str(caught.value)
    assert " works" not in str(caught.value)
    assert "releases already made stay free" in str(caught.value)


@pytest.mark.parametrize("parts", [1, 3, 7, 10, 100])
def test_parts_that_make_up_the_budget_all_fit_and_no_more(ledger: Ledger, parts: int) -> None:
    dataset = protect(ledger, budget=Budget(rho=0.3))
    for part in range(parts):
        charge(ledger, dataset, str(part), rho=0.3 / parts)
    assert ledger.remaining(dataset) == 0
    with pytest.raises(DPError, match="nothing was charged"):
        charge(ledger, dataset, "more", rho=1e-8)


def test_a_draw_that_became_dearer_than_its_charge_is_refused(ledger: Ledger) -> None:
    dataset = protect(ledger)
    release = charge(ledger, dataset, rho=0.1)
    with pytest.raises(DPError, match=r"was charged rho 0.1 and never drawn, and drawing it would now cost rho 0.2"):
        charge(ledger, dataset, rho=0.2)
    ledger.store(release, {})
    assert charge(ledger, dataset, rho=0.2).id == release.id  # nothing will be drawn


def test_a_request_that_does_not_name_its_dataset_is_refused(ledger: Ledger) -> None:
    charge(ledger, protect(ledger))
    with pytest.raises(DPError, match="charged to another dataset"):
        charge(ledger, protect(ledger, "other"))


def test_a_name_stays_with_its_request(ledger: Ledger) -> None:
    dataset = protect(ledger)
    first = charge(ledger, dataset, "1", rho=0.1, name="ages")
    assert charge(ledger, dataset, "1", rho=0.1, name="ages") == first == ledger.named("ages")
    for other in ({"request": "2"}, {"request": "1", "private": False}):
        with pytest.raises(DPError, match="the name 'ages' belongs to another request"):
            charge(ledger, dataset, rho=0.1, name="ages", **other)
    assert ledger.spent(dataset) == pytest.approx(0.1), "refused before it is charged"
    with pytest.raises(DPError, match="the name 'ages' stays with release 1: choose another for the new draw"):
        charge(ledger, dataset, "1", rho=0.1, name="ages", fresh_key="k")
    fresh = charge(ledger, dataset, "1", rho=0.1, fresh_key="k")
    assert ledger.named("ages") == first == charge(ledger, dataset, "1", rho=0.1, name="ages")
    assert ledger.named("ages", private=False) is ledger.named("nothing") is None
    assert charge(ledger, dataset, "1", rho=0.1, name="ages again") == fresh == ledger.named("ages again")
    assert charge(ledger, dataset, "1", rho=0.1, name="more", fresh_key="k") == fresh
    assert [row["name"] for row in ledger.releases()] == ["ages", "ages again"]


def test_names_of_older_ledgers_stay_with_the_release_that_was_newest_then(ledger: Ledger) -> None:
    """Their rows lack the release's number."""
    dataset = protect(ledger)
    first = charge(ledger, dataset, "1", rho=0.1, name="ages")
    made = [
        statement.split()[2] for later in MIGRATIONS[3:] for statement in later if statement.startswith("CREATE TABLE")
    ]
    with sqlite3.connect(ledger.path / "ledger.sqlite") as db:
        db.executescript("".join(f"DROP TABLE {table};" for table in reversed(made)))
        db.executescript(
            "ALTER TABLE attributes DROP COLUMN member;"
            "ALTER TABLE datasets DROP COLUMN discovery_delta; ALTER TABLE charges DROP COLUMN discovery_delta;"
            "ALTER TABLE datasets DROP COLUMN auto_rows;"
            "DROP TRIGGER names_no_update; UPDATE names SET release = NULL; ALTER TABLE names DROP COLUMN release;"
            "CREATE TRIGGER names_no_update BEFORE UPDATE ON names BEGIN SELECT RAISE(ABORT, 'no'); END; PRAGMA user_version = 3"
        )
    db.close()
    older = Ledger(ledger.path)
    charge(older, dataset, "1", rho=0.1, fresh_key="k")
    assert older.named("ages") == first
    assert [row["name"] for row in older.releases()] == ["ages", None]


@given(
    asked=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([0.05, 0.2, 0.45, 1.0]), st.sampled_from([None, "a", "b"])),
        max_size=12,
    )
)
@settings(max_examples=25, deadline=None)
def test_any_sequence_of_charges_keeps_the_filter(tmp_path_factory, asked: list) -> None:
    """Against a model: a dict of what is charged, and one sum."""
    ledger = Ledger(tmp_path_factory.mktemp("filter") / "l.dp")
    dataset = protect(ledger)
    charged: dict[tuple, int] = {}
    newest: dict[int, int] = {}
    total = 0.0
    for number, rho, fresh in asked:
        request = json.dumps([number, rho])
        known = newest.get((number, rho)) if fresh is None else charged.get((number, rho, fresh))
        if known is None and total + rho > 1 + 1e-9:
            with pytest.raises(DPError, match="nothing was charged"):
                charge(ledger, dataset, request, rho=rho, fresh_key=fresh)
            continue
        release = charge(ledger, dataset, request, rho=rho, fresh_key=fresh)
        assert known in (None, release.id)
        if known is None:
            total += rho
            charged[number, rho, fresh] = newest[number, rho] = release.id
    assert ledger.spent(dataset) == pytest.approx(total)


def test_threads_share_one_ledger(ledger: Ledger) -> None:
    dataset = protect(ledger)
    outcomes: list[str] = []

    def ask(number: int) -> None:
        try:
            outcomes.append(str(charge(ledger, dataset, str(number % 8), rho=0.25).id))
        except DPError:
            outcomes.append("refused")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(outcomes) - {"refused"}) == 4
    assert outcomes.count("refused") == 12
    assert ledger.remaining(dataset) == 0


# Releases


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"empty": np.empty(0), "one": np.array(3.5)},
        {"age,sex": np.arange(12.0).reshape(3, 4), "é": np.array([-0.0, 1e-320, math.inf, math.nan])},
        {"strided": np.arange(10.0)[::3], "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3))},
    ],
)
def test_arrays_come_back_bit_for_bit(ledger: Ledger, arrays: dict) -> None:
    release = charge(ledger, protect(ledger))
    ledger.store(release, arrays)
    for reader in (ledger, ledger, Ledger(ledger.path)):
        loaded = reader.load(release)
        assert list(loaded) == list(arrays)
        for name, array in arrays.items():
            assert loaded[name].shape == array.shape
            assert loaded[name].tobytes() == array.tobytes()
            assert not loaded[name].flags.writeable


def test_the_first_to_store_wins_and_the_other_draw_is_deleted(ledger: Ledger) -> None:
    dataset = protect(ledger)
    release = charge(ledger, dataset)
    ledger.store(release, {"a": np.array([1.0])})
    ledger.store(release, {"a": np.array([2.0])})
    assert ledger.load(release)["a"] == [1.0]
    assert len(list((ledger.path / "releases").iterdir())) == 1
    found = charge(ledger, dataset)
    assert (found.id, found.state) == (release.id, "stored")


def test_only_float64_is_stored(ledger: Ledger) -> None:
    release = charge(ledger, protect(ledger))
    with pytest.raises(DPError, match="'a' is int64: float64 works"):
        ledger.store(release, {"a": np.arange(3)})
    assert list((ledger.path / "releases").iterdir()) == []


def test_a_release_that_is_only_charged_cannot_be_loaded(ledger: Ledger) -> None:
    with pytest.raises(DPError, match="charged but not stored"):
        ledger.load(charge(ledger, protect(ledger)))


def test_stored_releases_are_found_by_number_and_by_name(ledger: Ledger) -> None:
    dataset = protect(ledger)
    charge(ledger, dataset, "1", rho=0.1, name="ages")
    for key in (1, "ages"):
        with pytest.raises(DPError, match=f"release {key!r} is charged but not stored"):
            ledger.release(key)
    ledger.store(charge(ledger, dataset, "1", rho=0.1), {})
    assert ledger.release(1) == ledger.release("ages") == ledger.named("ages")
    for key in (2, "1", "sexes"):
        with pytest.raises(DPError, match=f"no release {key!r}; the first names in use: 'ages'"):
            ledger.release(key)
    seeded = charge(ledger, dataset, "2", rho=0.1, name="seeded", private=False)
    ledger.store(seeded, {})
    assert ledger.release("seeded").id == seeded.id


# Reports


def test_reports(ledger: Ledger) -> None:
    dataset = protect(ledger, budget=Budget(epsilon=1, delta=1e-9), unit="id", max_rows=2)
    release = charge(ledger, dataset, '{"q":1}', rho=dataset.budget / 8, name="ages")
    ledger.store(release, {"a": np.array([1.0])})
    charge(ledger, dataset, '{"q":2}', rho=dataset.budget / 8, private=False)
    stored, charged = ledger.releases()
    assert (stored["release"], stored["name"], stored["dataset"], stored["state"]) == (1, "ages", "adult", "stored")
    assert stored["private"] is True
    assert stored["charged_at"] < stored["released_at"]
    assert (charged["name"], charged["state"], charged["released_at"]) == (None, "charged", None)
    assert charged["private"] is False
    row = ledger.ledger_rows()[0]
    assert row["neighbours"] == "add or remove one 'id' with up to 2 rows"
    assert json.loads(row["event"])["mu"] == row["mu"] == pytest.approx(math.sqrt(dataset.budget) / 2)
    assert row["cost"] == pytest.approx(2 * row["rho"])
    assert row["epsilon"] == pytest.approx(stored["epsilon"]) == pytest.approx(0.46, abs=0.05)
    (budget,) = ledger.budget_rows()
    assert budget["spent"] == pytest.approx(budget["total"] / 2) == pytest.approx(budget["remaining"])
    assert budget["epsilon_total"] == 1
    assert budget["epsilon_spent"] == pytest.approx(budget["epsilon_remaining"])
    assert budget["epsilon_spent"] > 0.5, "epsilons add up to less"
    assert budget["releases"] == 2


def test_reports_without_delta_show_no_epsilon(ledger: Ledger) -> None:
    charge(ledger, protect(ledger))
    assert ledger.ledger_rows()[0]["epsilon"] is None
    (budget,) = ledger.budget_rows()
    assert {budget[f"epsilon_{part}"] for part in ("total", "spent", "remaining")} == {None}


def test_reports_of_an_empty_ledger(ledger: Ledger) -> None:
    assert ledger.releases() == ledger.ledger_rows() == ledger.budget_rows() == []
