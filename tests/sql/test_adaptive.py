"""Adaptive mechanisms and post-processing from SQL."""

import pytest

ASKED = "dp_marginals('people', 'all <=2-way', mu := 5, mechanism := '{}', release := 'first')"
NAMES = ["marginal", "age", "sex", "race", "smoker", "count", "stddev", "ci_low", "ci_high"]


@pytest.mark.parametrize("mechanism", ["aim", "neyman"])
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


@pytest.mark.some(2)
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
    alone = "dp_marginals('people', 'all 2-way', mu := 0.1, mechanism := 'aim', postprocess := 'unbiased')"
    helped = "dp_marginals('people', 'all 2-way', mu := 0.1, mechanism := 'aim', given := ['ones'], postprocess := 'unbiased')"
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


def test_auto_read_fitted_is_neyman(db) -> None:
    """Where nothing is stored; a plan's release of the same call is read fitted for nothing."""
    asked = "dp_marginals('people', [['age', 'sex'], ['race']], mu := {}, postprocess := 'fitted')"
    rows = db(f"FROM {asked.format(1)}")
    assert [charge["mechanism"] for charge in db.charged()] == ["neyman"]
    assert (
        db(f"FROM {asked.format(1).replace(', postprocess', ', mechanism := ' + repr('neyman') + ', postprocess')}")
        == rows
    )
    assert db.charges() == 1
    db(f"FROM {asked.format(2).replace('fitted', 'unbiased')}")
    db(f"FROM {asked.format(2)}")
    assert [charge["mechanism"] for charge in db.charged()] == ["neyman", "residual"]


@pytest.mark.parametrize(
    "asked",
    ["['age']", "'all 2-way', objective := 'max'", "'all 2-way', mechanism := 'residual'", "[]"],
)
def test_what_neyman_would_not_gain_by_is_planned(db, asked: str) -> None:
    db(f"FROM dp_marginals('people', {asked}, mu := 1, postprocess := 'fitted')")
    assert [charge["mechanism"] for charge in db.charged()] == ["residual"]


def test_a_plan_that_is_read_fitted_is_made_for_that(db) -> None:
    asked = "dp_marginals('people', 'all 2-way', mu := 1, mechanism := 'residual', postprocess := 'fitted'{})"
    rows = db(f"FROM {asked.format('')}")
    assert db(f"FROM {asked.format('')}") == rows
    assert (
        db(f"FROM {asked.format('').replace(', postprocess', ', objective := ' + repr('fitted') + ', postprocess')}")
        == rows
    )
    assert db.charges() == 1
    # The counts without bias still have intervals.
    db(f"FROM {asked.format(', fresh := true, release := ' + repr('again'))}")
    assert db.charges() == 2
    errors = db("SELECT stddev, ci_low < ci_high FROM dp_release('again', postprocess := 'unbiased')")
    assert all(stddev > 0 and wide for stddev, wide in errors)
    first = (
        "SELECT max(stddev) FROM dp_explain('people', 'all 2-way', mu := 1, mechanism := 'residual', objective := '{}')"
    )
    assert db(first.format("fitted")) > db(first.format("total"))
    assert db.charges() == 2


def test_a_plan_that_is_stored_is_read_fitted_for_nothing(db) -> None:
    asked = "dp_marginals('people', 'all 2-way', mu := 1, mechanism := 'residual'{})"
    db(f"FROM {asked.format('')}")
    db(f"FROM {asked.format(', postprocess := ' + repr('fitted'))}")
    assert db.charges() == 1


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("mechanism := 'gaussian', objective := 'fitted'", "objective 'fitted' is not known"),
        ("mechanism := 'laplace', objective := 'fitted'", "objective 'fitted' is not known"),
    ],
)
def test_what_cannot_be_planned_for_being_fitted(db, more: str, line: str) -> None:
    assert line in db.refused(f"FROM dp_marginals('people', 'all 2-way', mu := 1, {more})")
    assert db.charges() == 0


def test_a_target_is_of_a_plan_whose_error_falls_as_the_noise(db) -> None:
    asked = "dp_explain('people', 'all 2-way', target_stddev := 50, mechanism := 'residual', {})"
    ((largest,),) = db(f"SELECT max(stddev) FROM {asked.format('postprocess := ' + repr('fitted'))}")
    assert largest == pytest.approx(50, rel=1e-6)
    assert "errors do not fall as the noise" in db.refused(f"FROM {asked.format('objective := ' + repr('fitted'))}")


def test_a_mechanism_that_is_gone_names_the_one_to_take(db) -> None:
    for function in ("dp_marginals", "dp_explain"):
        line = db.refused(f"FROM {function}('people', 'all 2-way', mu := 1, mechanism := 'pairs')")
        assert "mechanism 'pairs' is gone; mechanism := 'neyman' is nearer to the truth" in line
    assert db.charges() == 0


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
