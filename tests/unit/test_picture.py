"""Strategies as heat maps."""

import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

import duckdb_dp
from duckdb_dp import Domain, DPError, Plan, Workload, picture, plan

DOMAIN = Domain({"age": 12, "sex": 2, "hours": 9})


def planned(mechanism: str = "querysmasher") -> Plan:
    workload = Workload.product(DOMAIN, {"age": "range", "sex": "identity"}) + Workload.predicates(
        DOMAIN, ("age", "hours"), "affine"
    )
    return plan(workload, mechanism=mechanism, rho=0.5)


@pytest.mark.parametrize("mechanism", ["querysmasher", "wff", "residual"])
@pytest.mark.parametrize("clique", [("age",), ("age", "sex"), ("age", "hours")])
def test_the_picture_shows_the_strategy(mechanism: str, clique: tuple[str, ...]) -> None:
    pytest.importorskip("matplotlib")
    found = planned(mechanism)
    axes = picture.strategy(found, clique).axes[0]
    (operator,) = (m.strategy for m in found.measurements if m.clique == clique)
    np.testing.assert_allclose(np.asarray(axes.images[0].get_array()), operator.dense(), atol=1e-12)
    assert axes.get_xlabel() == f"cells of {' x '.join(clique)}"


def test_a_total_is_one_cell_and_no_picture() -> None:
    with pytest.raises(DPError, match="one or two attributes"):
        picture.strategy(planned(), ())


def test_what_is_not_measured_is_not_drawn() -> None:
    with pytest.raises(DPError, match="measures nothing on \\['sex', 'hours'\\]"):
        picture.strategy(planned(), ("sex", "hours"))


def test_a_picture_has_a_limit() -> None:
    domain = Domain({"a": 3000})
    with pytest.raises(DPError, match="3,000 x 3,000"):
        picture.strategy(plan(Workload.marginals(domain, [("a",)]), rho=0.5), ("a",))


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DPError, match=r"pip install 'duckdb-dp\[plot\]'"):
        picture.strategy(planned(), ("age",))


def test_original_against_synthetic(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    con = duckdb.connect(tmp_path / "people.duckdb")
    duckdb_dp.load(con, progress=False)
    con.execute("CREATE TABLE people AS SELECT i % 3 AS a, i % 2 AS b FROM range(90) t(i)")
    con.execute("CREATE TABLE syn AS SELECT least(i % 4, 2) AS a, i % 2 AS b FROM range(80) t(i)")
    con.execute("CALL dp_public('syn')")
    con.execute("CALL dp_protect('people', rho := 1)")
    con.execute("CALL dp_attribute('people', 'a', low := 0, high := 2)")
    con.execute("CALL dp_attribute('people', 'b', low := 0, high := 1)")
    figure = picture.quality(con, "people", "syn")
    assert "NOT PRIVATE" in figure.get_suptitle()
    one, typical, two, same = figure.axes
    assert [axes.get_title() for axes in (one, typical, two)] == ["worst: a", "typical: a", "worst: a, b"]
    assert not same.get_visible()  # there is but one pair
    original, synthetic = one.containers
    assert [tick.get_text() for tick in one.get_xticklabels()] == ["2", "0", "1"]
    np.testing.assert_allclose([bar.get_height() for bar in original], [1 / 3] * 3)
    np.testing.assert_allclose([bar.get_height() for bar in synthetic], [0.5, 0.25, 0.25])
