"""Bounds on norms are chosen once for each charge: a statement that fails after it knew them is not given others."""

import sqlite3
from pathlib import Path
from unittest.mock import patch

import duckdb
import pytest

from duckdb_dp import private
from duckdb_dp.plan.clipping import Clip
from duckdb_dp.sql import execute
from tests.conftest import Loaded

ASKED = [
    "SELECT avg(paid) AS a FROM visits",
    "SELECT town, count(*) AS n, sum(paid) AS s FROM visits GROUP BY town",
    "SELECT town, count(*) AS n, median(paid) AS m, count(DISTINCT kind) AS k FROM visits GROUP BY town",
]


class LostError(Exception):
    """Stands for what may end a statement between the choice and the sums."""


@pytest.fixture
def visits(exact: Loaded) -> Loaded:
    exact(
        "CREATE TABLE visits AS SELECT i % 300 AS id, ['a', 'b', 'c'][1 + i % 3] AS town, i % 41 AS paid, i % 5 AS kind FROM range(2000) t(i);"
        "CALL dp_protect('visits', unit := 'id', max_rows := 'auto', epsilon := 100, delta := 1e-9);"
        "CALL dp_attribute('visits', 'town', \"values\" := ['a', 'b', 'c']); CALL dp_attribute('visits', 'paid', low := 0, high := 40)"
    )
    return exact


def chosen(folder: Path) -> list[tuple[int, list[int]]]:
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        rows = db.execute("SELECT release, chosen FROM choices ORDER BY release").fetchall()
    return [(release, list(map(int, text.split()))) for release, text in rows]


@pytest.mark.parametrize("asked", ASKED)
def test_a_retry_has_the_bounds_of_the_first_attempt(visits: Loaded, asked: str) -> None:
    def lost(*_: object, **__: object) -> None:
        raise LostError

    call = "FROM dp_sql(?, epsilon := 1)"
    with patch.object(execute, "_draw", lost), pytest.raises(duckdb.Error, match="LostError"):
        visits(call, [asked])
    first = chosen(visits.folder)
    assert len(first) == visits.charges() == 1
    real = private._chosen

    def again(clip: Clip, *of: object) -> object:
        assert clip.rows, "a norm's bound is chosen twice"
        return real(clip, *of)  # type: ignore[arg-type]

    with patch.object(private, "_chosen", again):
        rows = visits(call, [asked])
    assert rows
    assert chosen(visits.folder) == first
    assert visits.charges() == 1
    assert visits(call, [asked]) == rows


def test_each_charge_has_bounds_of_its_own(visits: Loaded) -> None:
    for _ in range(2):
        visits("FROM dp_sql(?, epsilon := 1, fresh := true)", [ASKED[0]])
    assert [release for release, _ in chosen(visits.folder)] == [1, 2]
    visits("FROM dp_sql(?, epsilon := 1)", [ASKED[0]])  # the newest release
    assert len(chosen(visits.folder)) == visits.charges() == 2


def test_choices_are_charged_with_what_they_belong_to(visits: Loaded) -> None:
    """Where the budget is too small, nothing is chosen."""
    with (
        patch.object(private, "_chosen", side_effect=AssertionError),
        pytest.raises(duckdb.Error, match="nothing was charged"),
    ):
        visits("FROM dp_sql(?, epsilon := 1000)", [ASKED[0]])
    assert chosen(visits.folder) == []
    assert visits.charges() == 0
