"""Strategies as heat maps."""

import sys

import numpy as np
import pytest

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
