"""Turns of the rows of a unit: in any classes of them a unit has no more rows than these have turns, and moves no other unit's rows."""

import itertools
import json
from collections import Counter
from dataclasses import replace

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Attribute, Domain
from duckdb_dp.domain.turns import TURNS, Turns, classes
from duckdb_dp.linop import Identity
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.request import Request
from duckdb_dp.sql import render
from duckdb_dp.synthesis.table import first_rows
from duckdb_dp.testing import NoNoise, SeededEntropy
from tests.conftest import Loaded

SIZES = {"a": 3, "b": 4}


def request(max_rows: int, *, unit: str = "u") -> Request:
    return Request(
        function="dp_synthesize", catalog="memory", schema="main", table="t", unit=unit, max_rows=max_rows, accounting=ZCDP,
        attributes=tuple(Attribute(name=n, type="INTEGER", kind="integers", points=(0, size - 1)) for n, size in SIZES.items()),
        questions=(), cost=1.0, mechanism="forest", objective="", options=((TURNS, classes(max_rows)),),
    )  # fmt: skip


def counted(asked: Request, rows: list[tuple[object, int, int]], type_: str) -> Counts:
    """The counts of some rows, as a statement takes them."""
    assert asked.turns is not None
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t (u {type_}, a INTEGER, b INTEGER)")
        if rows:
            con.executemany("INSERT INTO t VALUES (?, ?, ?)", [list(row) for row in rows])
        sql = render.counting(asked, "key", (("a", "b", asked.turns.name),))
        ((block, cells),) = con.execute(f"WITH {sql} SELECT block, cells FROM blocks").fetchall()
    found = np.array([(cell["k"], cell["n"]) for cell in cells or []], dtype=np.int64).reshape(-1, 2)
    domain = Domain({one.name: one.size for one in asked.read})
    return Counts(domain, {tuple(json.loads(block)): (found[:, 0], found[:, 1])})


def queryable(counts: Counts, max_rows: int, total: float = 1.0) -> PrivateQueryable:
    return PrivateQueryable(counts, total=total, accounting=ZCDP, rows=max_rows, bits=NoNoise())


UNITS = {
    "INTEGER": [1, 2, None, 7],
    "VARCHAR": ["x", "X", None, "é"],
    "VARCHAR COLLATE NOCASE": ["x", "X", None, "é"],
    "DOUBLE": [0.0, float("nan"), None, float("inf")],
}


@pytest.mark.some(3)
@pytest.mark.parametrize("max_rows", [3, 5, 12])
@pytest.mark.parametrize("type_", UNITS)
@pytest.mark.parametrize("seed", range(3))
def test_a_unit_has_no_more_rows_than_there_are_turns(type_: str, max_rows: int, seed: int) -> None:
    """Of values outside of the domain and of NULL too, which count nowhere."""
    rng, asked = np.random.default_rng(seed), request(max_rows)
    turns = asked.turns
    assert turns is not None
    rows: list[tuple[object, int, int]] = [
        (unit, int(rng.integers(-1, 4)), int(rng.integers(0, 2)))
        for unit in UNITS[type_]
        for _ in range(int(rng.choice([0, 2, max_rows, 3 * max_rows])))
    ]
    rows = [rows[i] for i in rng.permutation(len(rows))]
    whole = queryable(counted(asked, rows, type_), max_rows)
    for unit in UNITS[type_]:
        less = queryable(counted(asked, [row for row in rows if not _same(row[0], unit)], type_), max_rows)
        for first in range(len(turns.last)):
            for end in range(first + 1, len(turns.last) + 1):
                for clique in ((), ("a",), ("a", "b")):
                    one, other = (each.of_turns(turns, first, end)._marginal(clique) for each in (whole, less))
                    gone = one - other
                    assert (gone >= 0).all()
                    assert gone.sum() <= (0 if unit is None else turns.rows(first, end))


def _same(one: object, other: object) -> bool:
    return one == other or (one != one and other != other)


def test_rows_of_all_classes_together_are_those_that_are_kept() -> None:
    rng, asked = np.random.default_rng(1), request(7)
    rows: list[tuple[object, int, int]] = [
        (int(rng.integers(0, 9)), int(rng.integers(0, 3)), int(rng.integers(0, 4))) for _ in range(200)
    ]
    turns, found = asked.turns, queryable(counted(asked, rows, "INTEGER"), 7)
    assert turns is not None
    held = Counter(unit for unit, *_ in rows)
    for end, turn in enumerate(turns.last, 1):
        some = found.of_turns(turns, 0, end)
        assert some.rows == turn
        assert some._marginal(())[0] == sum(min(n, turn) for n in held.values())
        np.testing.assert_array_equal(some._marginal(("a", "b")).reshape(3, 4).sum(axis=1), some._marginal(("a",)))


def test_each_row_of_a_unit_is_as_likely_the_first_one() -> None:
    """Rows that are the same are not one: of 9 such and one other the first is the other one in a tenth of the units."""
    asked = request(3)
    rows: list[tuple[object, int, int]] = [(unit, int(i == 0), 0) for unit in range(4_000) for i in range(10)]
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT u, (i = 0)::INTEGER AS a, 0 AS b FROM range(4000) r(u), range(10) s(i)")
        source = render.source(asked, "key")
        found = dict(con.execute(f"SELECT turn, avg(a) FROM ({source}) GROUP BY turn").fetchall())
    assert len(rows) == 40_000
    assert found.keys() == {1, 2, 3}
    for share in found.values():
        assert share == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / 4_000))


@pytest.mark.parametrize("rho", [1e-4, 0.01, 1.0, 1e6])
def test_what_is_chosen_and_drawn_costs_no_more_than_there_is(rho: float) -> None:
    rng, asked = np.random.default_rng(2), request(24)
    turns = asked.turns
    assert turns is not None
    rows: list[tuple[object, int, int]] = [
        (unit, int(rng.integers(0, 3)), int(rng.integers(0, 4)))
        for unit in range(60)
        for _ in range(int(rng.geometric(0.2)))
    ]
    counts = counted(asked, rows, "INTEGER")
    whole = PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=24, bits=SeededEntropy(1))
    found = first_rows.chosen(whole, turns)
    assert found.number in turns.last
    assert found.queryable.left == whole.left
    most = first_rows.TOTAL + first_rows.CLASSES + first_rows.MORE + first_rows.COMPARED
    assert whole.left >= rho * (1 - most) * (1 - 1e-9)
    found.queryable.measure((), Identity(1), found.queryable.left)
    assert whole.left == pytest.approx(0.0, abs=1e-12 * rho)
    with pytest.raises(AssertionError, match="does not fit"):
        whole.measure((), Identity(1), 0.1 * rho)


def test_the_larger_the_budget_the_more_rows_count() -> None:
    """All of them in the end; and few where noise would drown more."""
    rng, asked = np.random.default_rng(3), request(24)
    turns = asked.turns
    assert turns is not None
    rows: list[tuple[object, int, int]] = [
        (unit, int(rng.integers(0, 3)), int(rng.integers(0, 4)))
        for unit in range(300)
        for _ in range(min(int(rng.geometric(0.2)), 24))
    ]
    counts = counted(asked, rows, "INTEGER")
    numbers = [
        np.mean(
            [
                first_rows.chosen(
                    PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=24, bits=SeededEntropy(seed)), turns
                ).number
                for seed in range(20)
            ]
        )
        for rho in (0.01, 0.1, 1.0, 100.0)
    ]
    assert numbers == sorted(numbers)
    assert numbers[0] < 8
    assert numbers[-1] == 24


@pytest.mark.parametrize(
    "name", ["turn", "Turn", "TURN", "_dp_unit0", "_DP_unit0", "_dp_hash", "_dp_values", "_dp_again", "__dp_unit0"]
)
@pytest.mark.parametrize("turns", [True, False])
def test_no_name_of_a_column_stands_for_the_unit_or_the_turn(name: str, turns: bool) -> None:
    """Whatever a column is called, and in whatever case: of 300 rows of one unit 3 count, and one is the first."""
    asked = request(3)
    own = tuple(Attribute(name=n, type="INTEGER", kind="integers", points=(0, 99)) for n in (name, "b"))
    asked = replace(asked, attributes=own, options=asked.options if turns else ())
    with duckdb.connect() as con:
        con.execute(f'CREATE TABLE t AS SELECT 1 AS u, i % 100 AS "{name}", 1 AS b FROM range(300) r(i)')
        source = render.source(asked, "key")
        ((rows,),) = con.execute(f"SELECT count(*) FROM ({source})").fetchall()
        assert rows == 3
        if asked.turns is not None:
            sql = render.counting(asked, "key", ((name, "b", asked.turns.name),))
            ((cells,),) = con.execute(f"WITH {sql} SELECT cells FROM blocks").fetchall()
            assert sorted((cell["k"] % 3, cell["n"]) for cell in cells) == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("function", ["dp_marginals('t', ['x'], epsilon := 1)", "dp_synthesize('t', epsilon := 1)"])
def test_columns_that_are_called_like_our_own_are_not_declared(exact: Loaded, function: str) -> None:
    exact("CREATE TABLE t AS SELECT i % 5 AS u, i % 7 AS _dp_unit0, 1 AS x FROM range(100) t(i)")
    exact("CALL dp_protect('t', unit := 'u', max_rows := 3, epsilon := 9, delta := 1e-9)")
    assert "start with _dp_" in exact.refused("CALL dp_attribute('t', '_dp_unit0', low := 0, high := 6)")
    exact("CALL dp_attribute('t', 'x', low := 0, high := 6)")
    assert exact(f"FROM {function}")


@pytest.mark.parametrize("heavy", [1, 4])
def test_rows_of_units_that_are_quite_others_are_not_left_out(heavy: int) -> None:
    """Units with many rows have other values: all rows count where noise leaves that to be seen, and fewer where they are alike."""
    rng, asked = np.random.default_rng(4), request(24)
    turns = asked.turns
    assert turns is not None
    held = np.where(rng.random(4_000) < 0.05, 24, rng.integers(1, 4, 4_000))
    unit = np.repeat(np.arange(len(held)), held)
    many = held[unit] == 24
    a = np.where(many & (heavy > 1), 2, rng.integers(0, 2, len(unit)))
    b = np.where(many & (heavy > 1), 3, rng.integers(0, 3, len(unit)))
    turn = np.arange(len(unit)) - np.repeat(np.cumsum(held) - held, held) + 1
    domain = Domain({one.name: one.size for one in asked.read})
    cells = np.ravel_multi_index([a, b, np.searchsorted(np.array(turns.last), turn)], domain.shape(domain.attributes))
    keys, counts = np.unique(cells, return_counts=True)
    numbers = [
        first_rows.chosen(
            PrivateQueryable(
                Counts(domain, {domain.attributes: (keys, counts)}),
                total=0.02,
                accounting=ZCDP,
                rows=24,
                bits=SeededEntropy(seed),
            ),
            turns,
        ).number
        for seed in range(10)
    ]
    assert (np.median(numbers) == 24) == (heavy > 1)


@pytest.mark.parametrize("rows", [*range(1, 40), 64, 100, 1000])
def test_classes_end_at_the_bound(rows: int) -> None:
    found = classes(rows)
    assert found[0] == 1
    assert found[-1] == rows
    assert list(found) == sorted(set(found))
    assert all(2 * one >= other for one, other in itertools.pairwise(found))
    turns = Turns.of(["turn"], found)
    assert turns.name != "turn"
    assert turns.attribute.size == len(found)
    assert sum(turns.rows(i, i + 1) for i in range(len(found))) == rows


VISITS = """
CREATE TABLE visits AS SELECT u, (u + i * i) % 3 AS a, (u + i * i) % 3 + (i % 7 = 0)::INTEGER AS b FROM range(400) r(u), range(30) s(i) WHERE i <= u % 30;
CALL dp_protect('visits', unit := 'u', max_rows := {rows}, epsilon := 100, delta := 1e-6);
CALL dp_attribute('visits', 'a', low := 0, high := 2); CALL dp_attribute('visits', 'b', low := 0, high := 3);
"""


def test_rows_are_as_many_as_there_are_and_those_from_before_are_paid_for(
    exact: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, folder = duckdb.connect(), exact.folder.with_name("visits.dp")
    duckdb_dp.testing.load(connection, folder, seed=1)
    loaded = Loaded(connection, folder)
    loaded(VISITS.format(rows=30).replace("u % 30", "u % 5"))
    ((rows,),) = loaded("SELECT count(*) FROM visits")
    drawn = loaded("SELECT a, b FROM dp_synthesize('visits', epsilon := 2)")
    assert len(drawn) == pytest.approx(rows, rel=0.2)
    assert np.mean([a <= b for a, b in drawn]) > 0.9
    note = str(loaded("CALL dp_explain('visits', {'synthesize': 'all'}, epsilon := 2)")[0][-1])
    assert "of up to 30 rows of each unit" in note
    assert loaded("SELECT a, b FROM dp_synthesize('visits', epsilon := 2)") == drawn
    assert loaded.charges() == 1
    with monkeypatch.context() as patch:
        patch.setattr("duckdb_dp.sql.dp_synthesize.with_turns", lambda request: request)
        before = loaded("SELECT a, b FROM dp_synthesize('visits', epsilon := 3)")
    assert loaded("SELECT a, b FROM dp_synthesize('visits', epsilon := 3)") == before
    assert loaded.charges() == 2
    assert len(loaded("SELECT a, b FROM dp_synthesize('visits', epsilon := 1, rows := 77)")) == 77
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [12, 30])
def test_what_columns_share_outlives_a_bound_that_is_far_above_most_units(exact: Loaded, rows: int) -> None:
    """With the noise of all rows that there may be of each unit next to nothing was left."""
    shares = list[float]()
    for seed in range(3):
        connection, folder = duckdb.connect(), exact.folder.with_name(f"visits{seed}.dp")
        duckdb_dp.testing.load(connection, folder, seed=seed)
        loaded = Loaded(connection, folder)
        loaded(VISITS.format(rows=rows).replace("u % 30", "u % 4"))
        drawn = loaded("SELECT a, b FROM dp_synthesize('visits', epsilon := 2)")
        shares.append(float(np.mean([0 <= b - a <= 1 for a, b in drawn])))
        connection.close()
    assert np.mean(shares) > 0.85
