"""Pure epsilon: delta 0 from the declaration to the ledger."""

import math

import pytest

from duckdb_dp.plan.hdmm import plans

PURE = """
CREATE TABLE pure AS FROM people;
CALL dp_protect('pure', epsilon := 10, delta := 0);
CALL dp_attribute('pure', 'age', bins := [0, 20, 40, 60, 100]);
CALL dp_attribute('pure', 'sex', "values" := ['F', 'M']);
"""


@pytest.fixture
def pure(db):
    db(PURE)
    return db


def test_epsilon_adds_up(pure) -> None:
    pure("FROM dp_marginals('pure', ['sex'], epsilon := 2, delta := 0)")
    pure("FROM dp_marginals('pure', ['age'], epsilon := 3)")
    rows = pure("SELECT accounting, cost, epsilon, delta, mechanism FROM dp_ledger()")
    assert [row[:4] for row in rows] == [("pure", 2.0, 2.0, 0.0), ("pure", 3.0, 3.0, 0.0)]
    assert {row[4] for row in rows} <= {"hdmm", "laplace"}
    ((total, spent, left),) = pure("SELECT total, spent, remaining FROM dp_budget() WHERE dataset = 'pure'")
    assert (total, spent, left) == (10.0, 5.0, 5.0)
    assert "epsilon 5 of epsilon 10" in pure.refused("FROM dp_marginals('pure', ['sex'], epsilon := 5.1)")


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("dp_marginals('pure', ['sex'], epsilon := 1, delta := 1e-9)", "no pure budget"),
        ("dp_marginals('pure', ['sex'], rho := 1)", "no pure budget"),
        ("dp_marginals('pure', ['sex'], epsilon := 1, mechanism := 'residual')", "which has no pure epsilon"),
        ("dp_marginals('pure', ['sex'], epsilon := 1, mechanism := 'aim')", "which has no pure epsilon"),
        ("dp_queries('pure', {'age': 'range'}, epsilon := 1, mechanism := 'laplace')", "use mechanism 'hdmm'"),
        ("dp_marginals('people', ['sex'], epsilon := 1, delta := 0)", "cannot promise delta 0"),
    ],
)
def test_refusals(pure, asked: str, line: str) -> None:
    assert line in pure.refused(f"FROM {asked}")


def test_what_is_measured_must_fit_before_any_charge(pure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_CELLS", 3)
    line = pure.refused("FROM dp_queries('pure', {'age': 'prefix'}, epsilon := 1, mechanism := 'hdmm')")
    assert "what 'opt_kron' measures has 4 cells, and 3 fit into memory; use operator 'best'" in line
    assert pure("FROM dp_ledger()") == []


def test_intervals_are_those_of_laplace_noise(pure) -> None:
    """One Laplace draw of scale b is within b log(20) in 95 % of cases."""
    rows = pure("FROM dp_marginals('pure', ['sex'], epsilon := 1, mechanism := 'laplace')")
    for _, count, stddev, low, high, _ in rows:
        assert stddev == pytest.approx(math.sqrt(2), rel=1e-6)
        assert (high - count, count - low) == pytest.approx((math.log(20), math.log(20)), rel=1e-6)


@pytest.mark.slow
def test_intervals_hold_the_truth(pure) -> None:
    inside = total = 0
    exact: dict[tuple[float, float], int] = {}
    for draw in range(40):
        asked = f"dp_queries('pure', {{'age': 'range'}}, epsilon := {0.1 + draw / 1e6!r})"
        for first, last, low, high in pure(f"SELECT age_from, age_to, ci_low, ci_high FROM {asked}"):
            if (first, last) not in exact:
                truth = pure(f"SELECT count(*) FROM people WHERE age >= {first} AND age < {last}")
                exact[first, last] = truth[0][0]
            inside += low < exact[first, last] < high
            total += 1
    assert inside / total > 0.91


@pytest.mark.slow
def test_without_noise_the_answers_are_exact(exact) -> None:
    exact(PURE)
    asked = "dp_queries('pure', [{'age': 'prefix', 'sex': 'identity'}, {'age': 'range'}], epsilon := 5)"
    rows = exact(f"SELECT sex_from, age_from, age_to, answer FROM {asked}")
    for sex, low, high, answer in rows:
        where = f"age >= {low} AND age < {high}" + (f" AND sex = '{sex}'" if sex else "")
        assert answer == pytest.approx(exact(f"SELECT count(*) FROM people WHERE {where}")[0][0], abs=0.02)


def test_laplace_on_other_accountings(db) -> None:
    """Laplace noise is admitted there at its price: rho = epsilon^2 / 2 under zCDP, randomised response under GDP."""
    db("FROM dp_marginals('people', ['sex'], mu := 0.5, mechanism := 'laplace')")
    ((mu, mechanism),) = db("SELECT mu, mechanism FROM dp_ledger()")
    assert (mu, mechanism) == (pytest.approx(0.5), "laplace")


def test_error_in_budget_out(pure) -> None:
    query = "SELECT DISTINCT epsilon FROM dp_explain('pure', ['sex'], target_stddev := 4, mechanism := 'laplace')"
    ((epsilon,),) = pure(query)
    assert epsilon == pytest.approx(math.sqrt(2) / 4, rel=1e-6)


def test_the_table_of_candidates(pure) -> None:
    rows = pure(
        "SELECT mechanism, rmse, ratio_to_best, note FROM dp_explain('pure', 'all 2-way', epsilon := 1, mechanism := 'all')"
        " WHERE reading = 'unbiased' OR reading IS NULL ORDER BY rmse"
    )
    assert rows[0][2] == 1.0
    found = {row[0]: row for row in rows}
    assert found["laplace"][1] >= found["hdmm"][1] * (1 - 1e-9)
    assert "no pure epsilon" in found["residual"][3]
    rows = pure("SELECT mechanism, rmse FROM dp_explain('people', {'age': 'range'}, mu := 1, mechanism := 'all')")
    assert [rmse for _, rmse in rows if rmse is not None] == sorted(rmse for _, rmse in rows if rmse is not None)


@pytest.mark.slow
def test_an_exact_score_of_links_needs_no_noise(pure) -> None:
    pure(
        "CREATE TABLE homes (home BIGINT PRIMARY KEY, big BOOLEAN); INSERT INTO homes SELECT i, i % 2 = 0 FROM range(6) t(i)"
    )
    pure("CREATE TABLE lives AS SELECT i % 20 AS age, i % 6 AS home FROM range(40) t(i)")
    pure("CREATE TABLE ages AS SELECT i AS age, i < 9 AS young FROM range(20) t(i)")
    for table in ("homes", "ages"):
        pure(f"CALL dp_protect('{table}', epsilon := 1, delta := 0); CALL dp_attributes('{table}')")
        pure(f"CREATE TABLE {table}_syn AS FROM {table}")
        pure(f"CALL dp_public('{table}_syn')")
    pure("CALL dp_protect('lives', unit := 'home', max_rows := 20, epsilon := 1, delta := 0)")
    pure("CALL dp_link('lives', \"references\" := {'age': 'ages.age', 'home': 'homes.home'})")
    pure("CALL dp_public('ages', links := 'lives')")
    pure("CREATE TABLE lives_syn AS SELECT DISTINCT * FROM lives; CALL dp_public('lives_syn')")
    score = "dp_quality('lives', 'lives_syn', synthetic := {'ages': 'ages_syn', 'homes': 'homes_syn'}"
    assert {row[3] for row in pure(f"FROM {score}, exact := true)")} == {0.0}
    assert "no pure epsilon" in pure.refused(f"FROM {score}, epsilon := 0.5)")
