"""dp_marginals and dp_explain: every cell in order, honest error columns, budgets in every unit, bounded contributions."""

import itertools
import math
from collections import Counter
from pathlib import Path

import pytest

import duckdb_dp
from duckdb_dp.accounting.base import find_accounting
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.budget import Budget
from duckdb_dp.request import SLACK
from tests.conftest import Loaded

AGES = ["[0, 20)", "[20, 40)", "[40, 60)", "[60, 100]"]
CELLS = {"age": AGES, "sex": ["F", "M"], "race": [0, 1, 2, 3], "smoker": [False, True, None]}
ORDER = list(CELLS)
DOMAIN = duckdb_dp.Domain({name: len(cells) for name, cells in CELLS.items()})
NOISY = ["count", "stddev", "ci_low", "ci_high", "private"]


def people() -> list[dict]:
    """The rows of 'people', encoded by hand."""
    rows = []
    for i in range(420):
        age = i * 37 % 100
        rows.append(
            {
                "age": AGES[min(sum(age >= edge for edge in (20, 40, 60)), 3)],
                "sex": "F" if i % 3 == 0 else "M",
                "race": i % 4,
                "smoker": None if i % 7 == 0 else i % 2 == 0,
            }
        )
    return rows


def brute_force(clique: tuple[str, ...]) -> list[tuple]:
    """(labels of the clique's cells..., count) in order."""
    found = Counter(tuple(row[name] for name in clique) for row in people())
    return [(*cell, found[cell]) for cell in itertools.product(*(CELLS[name] for name in clique))]


ASKED = [
    [["age"]],
    [["age", "sex"]],
    [["smoker", "age"]],
    [["age", "sex", "race", "smoker"]],
    [["age", "sex"], ["race"], []],
    [[], ["smoker"], ["sex", "smoker"]],
    [[]],
    [list(pair) for pair in itertools.combinations(ORDER, 2)],
]


@pytest.mark.parametrize("mechanism", ["residual", "gaussian"])
def test_every_cell_in_order_and_the_counts_are_exact_without_noise(exact, mechanism: str) -> None:
    for mu, asked in enumerate(ASKED, start=1):
        rows = exact("FROM dp_marginals('people', ?, mu := ?, mechanism := ?)", [asked, mu, mechanism])
        cliques = [tuple(name for name in ORDER if name in names) for names in asked]
        used = [name for name in ORDER if any(name in clique for clique in cliques)]
        expected = [
            ([",".join(clique)] if len(asked) > 1 else [])
            + [cell[clique.index(name)] if name in clique else None for name in used]
            + [cell[-1]]
            for clique in cliques
            for cell in brute_force(clique)
        ]
        width = len(expected[0])
        assert [[*row[: width - 1], round(row[width - 1], 3)] for row in rows] == expected


def test_columns_and_types(exact) -> None:
    base = [(name, "BOOLEAN" if name == "private" else "DOUBLE") for name in NOISY]
    types = {"age": "VARCHAR", "sex": "VARCHAR", "race": "INTEGER", "smoker": "BOOLEAN"}
    assert exact.columns("FROM dp_marginals('people', ['smoker', 'race', 'sex', 'age'], mu := 1)") == [
        *types.items(),
        *base,
    ]
    assert exact.columns("FROM dp_marginals('people', ['race'], mu := 1)") == [("race", "INTEGER"), *base]
    assert (
        exact.columns("FROM dp_marginals('people', [[]], mu := 1)")
        == exact.columns("FROM dp_marginals('people', [], mu := 1)")
        == base
    )
    several = [("marginal", "VARCHAR"), ("sex", "VARCHAR"), ("race", "INTEGER"), *base]
    assert exact.columns("FROM dp_marginals('people', [['race'], ['sex']], mu := 1)") == several
    bounds = [("age", "VARCHAR"), ("age_low", "DOUBLE"), ("age_high", "DOUBLE"), ("race", "INTEGER"), *base]
    assert exact.columns("FROM dp_marginals('people', ['age', 'race'], mu := 1, bounds := true)") == bounds
    explained = exact.columns("FROM dp_explain('people', ['race'], mu := 1)")
    assert explained == [("marginal", "VARCHAR"), ("cells", "BIGINT"), *[(name, "DOUBLE") for name in ("stddev", "half_width", "budget_share")],
                         ("mechanism", "VARCHAR"), *[(name, "DOUBLE") for name in ("rho", "mu", "epsilon", "delta", "ratio_to_gaussian", "gap")],
                         ("history", "VARCHAR"), ("neighbours", "VARCHAR"), ("route", "VARCHAR"),
                         ("part_of", "VARCHAR"), ("error_in", "VARCHAR")]  # fmt: skip


def test_columns_and_types_are_the_same_once_stored(exact) -> None:
    for asked in ASKED:
        call = f"FROM dp_marginals('people', {asked}, mu := 3, bounds := true)"
        before, rows = exact.columns(call), exact(call)
        assert exact.columns(call) == before == exact.columns(f"FROM dp_release({exact.charges()}, bounds := true)")
        assert exact(call) == rows


def test_bounds(exact) -> None:
    rows = exact(
        "SELECT age, age_low, age_high FROM dp_marginals('people', [['age'], ['sex']], mu := 1, bounds := true)"
    )
    assert (
        rows
        == [(label, low, high) for label, low, high in zip(AGES, [0, 20, 40, 60], [20, 40, 60, 100], strict=True)]
        + [(None, None, None)] * 2
    )


def test_all_k_way(exact) -> None:
    for text, orders in [
        ("all 1-way", [1]), ("all 2-way", [2]), ("ALL  2-way ", [2]), ("all <=3-way", [1, 2, 3]), ("all ≤2-way", [1, 2]),
        ("all 4-way", [4]),
    ]:  # fmt: skip
        cliques = [",".join(c) for order in orders for c in itertools.combinations(ORDER, order)]
        found = [name for (name,) in exact(f"SELECT marginal FROM dp_explain('people', '{text}', mu := 1)")]
        assert found == cliques
        if len(cliques) > 1:
            rows = exact(f"SELECT marginal FROM dp_marginals('people', '{text}', mu := 1)")
            assert list(dict.fromkeys(name for (name,) in rows)) == cliques
    assert exact("FROM dp_explain('people', 'race', mu := 1)") == exact("FROM dp_explain('people', ['race'], mu := 1)")


@pytest.mark.some(1, "mechanism")
@pytest.mark.parametrize("mechanism", ["residual", "gaussian"])
@pytest.mark.parametrize("objective", ["total", "max"])
@pytest.mark.parametrize("weights", [None, [1, 5, 0.5]])
def test_the_error_columns_are_the_plans(shared, mechanism: str, objective: str, weights: list[float] | None) -> None:
    cliques = [("age", "sex"), ("race",), ()]
    workload = duckdb_dp.Workload.marginals(
        duckdb_dp.Domain({name: DOMAIN.sizes[name] for name in ORDER[:3]}), cliques, weights
    )
    plan = duckdb_dp.plan(workload, mechanism=mechanism, mu=0.7 * math.sqrt(1 - SLACK), objective=objective)
    arguments = "'people', [['sex', 'age'], ['race'], []], mu := 0.7, mechanism := ?, objective := ?, weights := ?"
    rows = shared(
        f"SELECT marginal, count, stddev, ci_low, ci_high FROM dp_marginals({arguments})",
        [mechanism, objective, weights],
    )
    assert len(rows) == 8 + 4 + 1
    for name, count, stddev, low, high in rows:
        assert stddev == pytest.approx(float(plan.stddev(tuple(filter(None, name.split(","))))), rel=1e-9)
        assert (count - low, high - count) == (
            pytest.approx(1.959963984540054 * stddev),
            pytest.approx(1.959963984540054 * stddev),
        )
    explained = shared(
        f"SELECT marginal, stddev, half_width, budget_share, cells FROM dp_explain({arguments})",
        [mechanism, objective, weights],
    )
    assert [row[0] for row in explained] == ["age,sex", "race", ""]
    assert math.fsum(share for *_, share, _ in explained) == pytest.approx(1)
    for name, stddev, half_width, share, cells in explained:
        assert {row[2] for row in rows if row[0] == name} == {stddev}
        assert half_width == pytest.approx(1.959963984540054 * stddev)
        assert 0 < share <= 1 + 1e-9
        assert cells == sum(row[0] == name for row in rows)


def test_the_objective_max_evens_out_the_largest_error(shared) -> None:
    def errors(objective: str) -> list[float]:
        asked = "SELECT max(stddev), sum(cells * stddev ** 2) FROM dp_explain('people', 'all <=2-way', mu := 1, objective := ?)"
        return shared(asked, [objective])[0]

    assert errors("max")[0] < errors("total")[0]
    assert errors("total")[1] < errors("max")[1]


def test_a_weight_buys_accuracy(shared) -> None:
    def stddevs(weights: list[float]) -> list[float]:
        return [
            s
            for (s,) in shared(
                "SELECT stddev FROM dp_explain('people', [['age'], ['race']], mu := 1, weights := ?)", [weights]
            )
        ]

    even, uneven = stddevs([1, 1]), stddevs([10, 1])
    assert uneven[0] < even[0]
    assert uneven[1] > even[1]


# Budgets


BUDGETS = [
    ("mu := 0.5", Budget(mu=0.5)),
    ("rho := 0.125", Budget(rho=0.125)),
    ("epsilon := 0.75, delta := 1e-6", Budget(epsilon=0.75, delta=1e-6)),
    ("epsilon := 0.75", Budget(epsilon=0.75, delta=1e-9)),  # the dataset's delta
]


@pytest.mark.some(1, "accounting")
@pytest.mark.parametrize("accounting", ["gdp", "zcdp"])
@pytest.mark.parametrize(("typed", "budget"), BUDGETS, ids=[typed for typed, _ in BUDGETS])
def test_budgets_in_every_unit_under_both_accountings(exact, accounting: str, typed: str, budget: Budget) -> None:
    exact("CREATE TABLE t AS SELECT true AS b FROM range(10)")
    exact(f"CALL dp_protect('t', mu := 10, delta := 1e-9, accounting := '{accounting}'); CALL dp_attribute('t', 'b')")
    exact(f"FROM dp_marginals('t', ['b'], {typed}, mechanism := 'gaussian')")
    expected = find_accounting(accounting).cost(budget)
    (row,) = Ledger(exact.folder).ledger_rows()
    mu = math.sqrt(expected if accounting == "gdp" else 2 * expected)
    assert (row["cost"], row["mu"], row["rho"]) == (
        pytest.approx(expected),
        pytest.approx(mu),
        pytest.approx(mu**2 / 2),
    )
    assert exact("SELECT accounting, cost, mu, rho, delta FROM dp_ledger()") == [
        (accounting, row["cost"], row["mu"], row["rho"], 1e-9)
    ]
    assert exact("SELECT spent, remaining FROM dp_budget() WHERE dataset = 't'")[0] == (
        row["cost"],
        pytest.approx((100 if accounting == "gdp" else 50) - expected),
    )
    ((stddev, epsilon, shown_mu),) = exact(
        f"SELECT stddev, epsilon, mu FROM dp_explain('t', ['b'], {typed}, mechanism := 'gaussian')"
    )
    assert stddev == pytest.approx(1 / mu, rel=1e-8)
    assert shown_mu == pytest.approx(mu)
    assert epsilon == pytest.approx(budget.epsilon or row["epsilon"], rel=1e-9)
    assert exact("SELECT DISTINCT stddev FROM dp_marginals('t', ['b'], " + typed + ", mechanism := 'gaussian')") == [
        (stddev,)
    ]
    assert stddev * mu >= 1  # never less noise than is charged for


@pytest.mark.some(1, "accounting")
@pytest.mark.parametrize("accounting", ["gdp", "zcdp"])
@pytest.mark.parametrize("target", [0.37, 5, 12345.6])
@pytest.mark.parametrize("asked", ["['sex']", "'all <=2-way'", "[['age', 'race'], []]"])
def test_the_inverse_of_explain_is_what_to_type(exact, accounting: str, target: float, asked: str) -> None:
    exact("CREATE TABLE t AS FROM people")
    exact(
        f"CALL dp_protect('t', mu := 1e4, delta := 1e-9, accounting := '{accounting}'); CALL dp_attribute('t', 'sex', \"values\" := ['F', 'M'])"
    )
    exact("CALL dp_attribute('t', 'age', bins := [0, 50, 100]); CALL dp_attribute('t', 'race', low := 0, high := 3)")
    for extra in ("", ", mechanism := 'gaussian'", ", objective := 'max'"):
        call = f"FROM dp_explain('t', {asked}, target_stddev := {target}{extra})"
        worst, mu, rho, epsilon = exact(
            f"SELECT max(stddev), any_value(mu), any_value(rho), any_value(epsilon) {call}"
        )[0]
        assert worst == pytest.approx(target, rel=1e-8)
        assert worst <= target * (1 + 1e-9)
        for typed in (
            f"mu := {mu!r}", f"rho := {rho!r}", f"epsilon := {epsilon!r}", f"epsilon := {epsilon!r}, delta := 1e-9",
        ):  # fmt: skip
            again = exact(f"SELECT max(stddev) FROM dp_explain('t', {asked}, {typed}{extra})")[0][0]
            assert again == pytest.approx(target, rel=1e-6)
            assert again <= target * (1 + 1e-6)
    at_delta = exact(
        f"SELECT any_value(epsilon), any_value(delta) FROM dp_explain('t', {asked}, target_stddev := {target}, delta := 1e-6)"
    )[0]
    assert (
        at_delta[0] < exact(f"SELECT any_value(epsilon) FROM dp_explain('t', {asked}, target_stddev := {target})")[0][0]
    )
    assert at_delta[1] == 1e-6
    assert exact.charges() == 0


def test_explain_says_how_much_better_than_independent_noise(shared) -> None:
    def ratio(mechanism: str) -> float:
        return shared(
            "SELECT DISTINCT ratio_to_gaussian FROM dp_explain('people', 'all 2-way', mu := 1, mechanism := ?)",
            [mechanism],
        )[0][0]

    assert ratio("gaussian") == 1
    assert ratio("residual") == ratio("auto") < 1
    assert shared("SELECT DISTINCT mechanism FROM dp_explain('people', 'all 2-way', mu := 1)") == [("residual",)]


# Units


def protect_visits(exact, rows: str, max_rows: int = 5) -> None:
    exact(f"CREATE OR REPLACE TABLE visits AS {rows}")
    exact(
        f"CALL dp_protect('visits', mu := 1e4, unit := 'patient', max_rows := {max_rows}); CALL dp_attribute('visits', 'ward', low := 0, high := 9)"
    )


def wards(exact, mu: float = 1) -> list[int]:
    return [
        round(count, 3)
        for (count,) in exact(f"SELECT count FROM dp_marginals('visits', ['ward'], mu := {mu}, fresh := true)")
    ]


ROWS = "SELECT (i % 40)::INTEGER AS patient, (i * 7 % 10)::INTEGER AS ward, i AS other FROM range(200) t(i)"


def test_a_unit_changes_counts_by_at_most_its_bound(exact) -> None:
    protect_visits(exact, ROWS)
    before = wards(exact)
    assert sum(before) == 200
    exact("INSERT INTO visits SELECT 999, i % 10, i FROM range(1000) t(i)")
    after = wards(exact)
    assert sum(after) == 205
    assert all(b <= a for b, a in zip(before, after, strict=True))
    exact("INSERT INTO visits SELECT 1000, 3, i FROM range(1000) t(i)")
    assert [a - b for a, b in zip(wards(exact), after, strict=True)] == [0, 0, 0, 5, 0, 0, 0, 0, 0, 0]


def test_which_rows_are_kept_depends_on_the_units_own_rows_alone(exact) -> None:
    many = "SELECT (i % 12)::INTEGER AS patient, (hash(i) % 10)::INTEGER AS ward FROM range(2000) t(i)"
    protect_visits(exact, many)
    everyone = wards(exact)
    assert sum(everyone) == 60
    alone = [0] * 10
    for patient in range(12):
        exact(f"CREATE OR REPLACE TABLE visits AS FROM ({many}) WHERE patient = {patient}")
        mine = wards(exact)
        assert sum(mine) == 5
        alone = [a + b for a, b in zip(alone, mine, strict=True)]
    assert alone == everyone
    # Nor on the order of the rows, nor on columns that were not asked about.
    exact(f"CREATE OR REPLACE TABLE visits AS SELECT *, random() AS noise FROM ({many}) ORDER BY random()")
    assert wards(exact) == everyone


def test_the_choice_is_by_a_secret_key(exact: Loaded, tmp_path: Path) -> None:
    """Of each ledger its own; of a test's seed always the same, so that it gives the same answers."""
    many = "SELECT (i % 12)::INTEGER AS patient, (hash(i) % 10)::INTEGER AS ward FROM range(2000) t(i)"
    made: dict[str, list[list[int]]] = {"private": [], "tests": []}
    for kind, number in itertools.product(made, range(2)):
        ledger = tmp_path / f"{kind}{number}.dp"
        if kind == "private":
            duckdb_dp.load(exact.connection, ledger)
        else:
            duckdb_dp.testing.load_exact(exact.connection, ledger)
        protect_visits(exact, many)
        first, again = ([round(count) for count in wards(exact, mu=1000)] for _ in range(2))
        assert first == again
        made[kind].append(first)
    assert made["private"][0] != made["private"][1]
    assert made["tests"][0] == made["tests"][1]


def test_rows_without_a_unit_are_left_out(exact) -> None:
    protect_visits(exact, ROWS)
    before = wards(exact)
    exact("INSERT INTO visits SELECT NULL, i % 10, i FROM range(1000) t(i)")
    assert wards(exact) == before


def test_the_bound_holds_across_all_marginals_of_a_request(exact) -> None:
    exact("CREATE TABLE visits AS SELECT 1 AS patient, i % 2 AS a, i % 3 AS b FROM range(600) t(i)")
    exact("CALL dp_protect('visits', mu := 100, unit := 'patient', max_rows := 4)")
    exact(
        "CALL dp_attribute('visits', 'a', low := 0, high := 1); CALL dp_attribute('visits', 'b', low := 0, high := 2)"
    )
    rows = exact(
        "SELECT marginal, a, b, round(count, 2) FROM dp_marginals('visits', [['a', 'b'], ['a'], ['b'], []], mu := 50, mechanism := 'gaussian')"
    )
    total = {name: sum(count for other, *_, count in rows if other == name) for name in ("a,b", "a", "b", "")}
    assert total == dict.fromkeys(total, 4)
    joint = {(a, b): count for name, a, b, count in rows if name == "a,b"}
    assert all(count == sum(joint[a, b] for b in range(3)) for name, a, _, count in rows if name == "a")


@pytest.mark.parametrize("mechanism", ["residual", "gaussian"])
def test_a_unit_of_k_rows_gets_k_times_the_noise(exact, mechanism: str) -> None:
    found = {}
    for rows in (1, 2, 7):
        exact(f"CREATE TABLE v{rows} AS SELECT 1 AS patient, true AS a, 1 AS b")
        exact(
            f"CALL dp_protect('v{rows}', mu := 100, unit := 'patient', max_rows := {rows}); CALL dp_attribute('v{rows}', 'a'); CALL dp_attribute('v{rows}', 'b', low := 0, high := 4)"
        )
        found[rows] = exact(
            f"SELECT stddev FROM dp_explain('v{rows}', [['a', 'b'], ['a']], mu := 1, mechanism := '{mechanism}')"
        )
    for rows in (2, 7):
        assert [s for (s,) in found[rows]] == pytest.approx([rows * s for (s,) in found[1]])
    assert exact("SELECT neighbours FROM dp_budget() WHERE dataset = 'v7'") == [
        ("add or remove one 'patient' with up to 7 rows",)
    ]


def test_a_unit_may_be_an_attribute_too(exact) -> None:
    exact(
        "CREATE TABLE t AS SELECT i % 3 AS u FROM range(30) t(i); CALL dp_protect('t', mu := 10, unit := 'u', max_rows := 2)"
    )
    exact("CALL dp_attribute('t', 'u', low := 0, high := 2)")
    assert [round(count, 2) for (count,) in exact("SELECT count FROM dp_marginals('t', ['u'], mu := 1)")] == [2, 2, 2]


# Sizes


def test_an_attribute_of_one_value(exact) -> None:
    exact("CREATE TABLE t AS SELECT 1 AS one, i % 2 AS b FROM range(10) t(i); CALL dp_protect('t', mu := 1000)")
    exact("CALL dp_attribute('t', 'one', low := 1, high := 1); CALL dp_attribute('t', 'b', low := 0, high := 1)")
    for mechanism in ("residual", "gaussian"):
        rows = exact(
            "SELECT marginal, one, b, round(count, 2) FROM dp_marginals('t', 'all <=2-way', mu := 100, mechanism := ?)",
            [mechanism],
        )
        assert rows == [
            ("one", 1, None, 10), ("b", None, 0, 5), ("b", None, 1, 5), ("one,b", 1, 0, 5), ("one,b", 1, 1, 5),
        ]  # fmt: skip


def test_large_marginals_come_in_order(exact) -> None:
    exact(
        "CREATE TABLE t AS SELECT (i * 37 % 500)::INTEGER AS a, (i * 11 % 300)::INTEGER AS b FROM range(5000) t(i); CALL dp_protect('t', mu := 1e5)"
    )
    exact("CALL dp_attribute('t', 'a', low := 0, high := 499); CALL dp_attribute('t', 'b', low := 0, high := 299)")
    exact(
        "CREATE TABLE made AS SELECT row_number() OVER () AS place, * FROM dp_marginals('t', [['a', 'b'], ['a']], mu := 1e4)"
    )
    assert exact("SELECT count(*), sum(count)::INTEGER FROM made WHERE marginal = 'a,b'") == [(150_000, 5000)]
    assert exact("SELECT bool_and(place = a * 300 + b + 1) FROM made WHERE marginal = 'a,b'") == [(True,)]
    assert exact("SELECT bool_and(place = 150_000 + a + 1), bool_and(b IS NULL) FROM made WHERE marginal = 'a'") == [
        (True, True)
    ]
    truth = "SELECT a, b, count(*) AS n FROM t GROUP BY ALL"
    assert exact(
        f"SELECT max(abs(count - coalesce(n, 0))) < 0.01 FROM made LEFT JOIN ({truth}) USING (a, b) WHERE marginal = 'a,b'"
    ) == [(True,)]


@pytest.mark.slow
def test_more_marginals_than_a_vector_of_rows(exact) -> None:
    names = [f"x{i:02}" for i in range(24)]
    exact(
        f"CREATE TABLE t AS SELECT {', '.join(f'((i >> {k % 9}) & 1)::INTEGER AS {name}' for k, name in enumerate(names))} FROM range(512) t(i)"
    )
    exact("CALL dp_protect('t', mu := 1e5)")
    for name in names:
        exact(f"CALL dp_attribute('t', '{name}', low := 0, high := 1)")
    rows = exact(
        "SELECT marginal, sum(count)::INTEGER, count(*) FROM dp_marginals('t', 'all 3-way', mu := 1e4) GROUP BY ALL"
    )
    assert len(rows) == math.comb(24, 3)
    assert {row[1:] for row in rows} == {(512, 8)}


@pytest.mark.some(2)
@pytest.mark.parametrize("rho", ["1e3", "1e12", "1e20", "1e30", "1e60", "1e97"])
def test_with_any_budget_answers_are_near_the_counts(db, rho: str) -> None:
    """However little noise there is: a grid as fine as its noise would have no room for the counts."""
    db("CREATE TABLE much AS SELECT i % 3 AS a FROM range(100000) t(i); CALL dp_protect('much', rho := 1e99)")
    db("CALL dp_attribute('much', 'a', low := 0, high := 2)")
    for mechanism in ("residual", "gaussian", "hdmm"):
        found = [
            row[0]
            for row in db(f"SELECT count FROM dp_marginals('much', ['a'], rho := {rho}, mechanism := '{mechanism}')")
        ]
        assert found == pytest.approx([33334, 33333, 33333], abs=1)
    assert db(f"SELECT count(*) FROM dp_synthesize('much', rho := {rho})")[0][0] == pytest.approx(100000, abs=1)


def test_with_any_pure_budget_answers_are_near_the_counts(db) -> None:
    db(
        "CREATE TABLE much AS SELECT i % 3 AS a FROM range(100000) t(i); CALL dp_protect('much', epsilon := 1e99, delta := 0)"
    )
    db("CALL dp_attribute('much', 'a', low := 0, high := 2)")
    for epsilon in ("1e2", "1e9", "1e15", "1e40", "1e97"):
        found = [row[0] for row in db(f"SELECT count FROM dp_marginals('much', ['a'], epsilon := {epsilon})")]
        assert found == pytest.approx([33334, 33333, 33333], abs=2)
