"""Adaptive mechanisms and post-processing from SQL."""

import pytest

ASKED = "dp_marginals('people', 'all <=2-way', mu := 5, mechanism := '{}', release := 'first')"
NAMES = ["marginal", "age", "sex", "race", "smoker", "count", "stddev", "ci_low", "ci_high"]


@pytest.mark.parametrize("mechanism", ["aim", "pairs"])
def test_one_charge_and_honest_error_columns(db, mechanism: str) -> None:
    asked = ASKED.format(mechanism)
    rows = db(f"FROM {asked}")
    assert db.charges() == 1
    assert db(f"FROM {asked}") == rows
    assert db.charges() == 1
    assert db("FROM dp_release('first')") == rows
    ((charge,)) = db.charged()
    assert charge["mechanism"] == mechanism
    assert '"kind":"adaptive"' in charge["event"]
    assert charge["cost"] == pytest.approx(5**2)
    plain = db(
        f"SELECT count, stddev, ci_low, measured_stddev FROM {asked.replace(')', ', postprocess := ' + repr('unbiased') + ')')}"
    )
    assert db.charges() == 1
    assert all(stddev is None and low is None and measured > 0 for _, stddev, low, measured in plain)


@pytest.mark.some(4)
@pytest.mark.parametrize("mechanism", ["aim", "residual", "gaussian", "hdmm"])
@pytest.mark.parametrize("kind", ["nonnegative", "fitted"])
def test_postprocessing_is_free_and_biased(db, mechanism: str, kind: str) -> None:
    asked = f"dp_marginals('people', 'all 2-way', mu := 0.5, mechanism := '{mechanism}', release := 'r')"
    db(f"FROM {asked}")
    names = [name for name, _ in db.columns(f"FROM dp_release('r', postprocess := '{kind}')")]
    assert names == [*NAMES, "private"]
    rows = db(f"SELECT count, stddev FROM dp_release('r', postprocess := '{kind}')")
    assert db.charges() == 1
    assert all(count >= -1e-6 and stddev is None for count, stddev in rows)
    assert db(f"SELECT count, stddev FROM {asked.replace(')', f', postprocess := {kind!r})')}") == rows


def test_without_noise_postprocessing_keeps_the_truth(exact) -> None:
    """Counts that are exact are non-negative and consistent already."""
    truth = dict(exact("SELECT sex, count(*) FROM people GROUP BY sex"))
    rows = exact("SELECT sex, count FROM dp_marginals('people', ['sex'], mu := 50, postprocess := 'nonnegative')")
    assert {sex: round(count, 3) for sex, count in rows} == truth


def test_given_releases_are_a_start(db) -> None:
    db("FROM dp_marginals('people', 'all 1-way', mu := 20, release := 'ones')")
    alone = "dp_marginals('people', 'all 2-way', mu := 0.1, mechanism := 'aim')"
    helped = "dp_marginals('people', 'all 2-way', mu := 0.1, mechanism := 'aim', given := ['ones'])"
    read = "SELECT sum(count), avg(measured_stddev) FROM {} WHERE marginal = 'age,sex'"
    ((far, _),) = db(read.format(alone))
    ((near, _),) = db(read.format(helped))
    assert db.charges() == 3
    inside = db("SELECT count(*) FROM people WHERE age BETWEEN 0 AND 100")[0][0]
    assert abs(near - inside) < 2
    assert abs(near - inside) <= abs(far - inside)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("dp_marginals('people', ['sex'], mu := 1, rounds := 3)", "mechanism 'auto' does not take that"),
        ("dp_marginals('people', ['sex'], mu := 1, mechanism := 'aim', rounds := 0)", "rounds := 0 is not a whole number"),
        ("dp_marginals('people', ['sex'], mu := 1, mechanism := 'aim', given := ['x'])", "there is no release 'x'"),
        ("dp_marginals('people', ['sex'], mu := 1, mechanism := 'aim', given := 3.5)", "write the names of releases"),
        ("dp_marginals('people', ['sex'], mu := 1, postprocess := 'best')", "use 'unbiased', 'nonnegative' or 'fitted'"),
        ("dp_marginals('people', ['sex'], mu := 1, reconstruct := 'magic')", "write reconstruct := 'pgm' alone"),
        ("dp_queries('people', {'age': 'range'}, mu := 1, mechanism := 'aim')", "answers marginals; use dp_marginals"),
        ("dp_marginals('people', ['sex'], mu := 1e-12, mechanism := 'aim')", ""),
    ],
)  # fmt: skip
def test_refusals(db, asked: str, line: str) -> None:
    assert line in db.refused(f"FROM {asked}")


def test_given_of_another_dataset(db) -> None:
    db("CREATE TABLE others AS FROM people")
    db("CALL dp_protect('others', mu := 10, delta := 1e-9)")
    db("CALL dp_attribute('others', 'sex', \"values\" := ['F', 'M'])")
    db("FROM dp_marginals('others', ['sex'], mu := 1, release := 'theirs')")
    asked = "dp_marginals('people', ['sex'], mu := 1, mechanism := 'aim', given := ['theirs'])"
    assert "is of 'others', and this asks 'people'" in db.refused(f"FROM {asked}")


def test_given_synthetic_rows(db) -> None:
    db("FROM dp_synthesize('people', mu := 1, release := 'rows')")
    before = db.charges()
    asked = "dp_marginals('people', 'all 2-way', mu := 1, mechanism := 'aim', given := ['rows'])"
    assert "is of dp_synthesize, which is no measurement" in db.refused(f"FROM {asked}")
    assert db.charges() == before


def test_explain_costs_nothing_and_knows_no_error(db) -> None:
    rows = db("SELECT marginal, stddev, gap, mu FROM dp_explain('people', 'all 2-way', mu := 1, mechanism := 'aim')")
    assert db.charges() == 0
    assert len(rows) == 6
    assert all(stddev is None and gap is None and mu == pytest.approx(1) for _, stddev, gap, mu in rows)
