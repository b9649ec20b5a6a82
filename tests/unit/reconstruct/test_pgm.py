import sys

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Centring, Dense, Identity
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.pgm import checked_tree, estimate_total, fit, require

DOMAIN = Domain({"a": 3, "b": 2})


def of(clique: tuple[str, ...], strategy: object, values: list[float], variance: float = 1.0) -> LinearMeasurement:
    return LinearMeasurement(clique=clique, strategy=strategy, answers=np.array(values), variance=variance)  # type: ignore[arg-type]


def test_the_total_is_the_inverse_variance_mean() -> None:
    single = of(("a",), Identity(3), [10.0, 20.0, 30.0], 2.0)  # variance 6
    total = of((), Identity(1), [66.0], 3.0)
    assert estimate_total([single, total]) == pytest.approx((60 / 6 + 66 / 3) / (1 / 6 + 1 / 3))
    assert estimate_total([of((), Centring(()), [12.0])]) == pytest.approx(12)
    assert estimate_total([of((), Identity(1), [-12.0])]) == 1


def test_the_total_is_found_in_any_strategy_that_sees_it() -> None:
    prefix = of(("a",), Dense(np.tril(np.ones((3, 3)))), [10.0, 30.0, 60.0], 2.0)  # the last answer is the total
    assert estimate_total([prefix]) == pytest.approx(60)
    blind = of(("a",), Dense(np.array([[1.0, -1.0, 0.0]])), [4.0])
    total = of((), Identity(1), [66.0], 3.0)
    assert estimate_total([blind, total]) == pytest.approx(66)
    for unseen in (blind, of(("a",), Centring((3,)), [0.0, 0.0, 0.0])):
        with pytest.raises(DPError, match="sees the total"):
            estimate_total([unseen])


def test_a_tree_beyond_memory_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mbi", None)  # before the library is even looked for
    domain = Domain({f"x{i}": 100 for i in range(8)})
    pairs = [(f"x{i}", f"x{j}") for i in range(8) for j in range(i)]
    with pytest.raises(DPError, match="76,293,945,312 MiB for these 28 marginals") as error:
        fit(domain, [of(pair, Identity(10_000), [0.0] * 10_000) for pair in pairs])
    assert "\n" not in str(error.value)
    assert "fewer marginals" in str(error.value)
    checked_tree(domain, pairs[:1], 2**20)


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mbi", None)
    with pytest.raises(DPError, match="pip install 'duckdb-dp\\[pgm\\]'"):
        require()
    with pytest.raises(DPError, match="pip install 'duckdb-dp\\[pgm\\]'"):
        fit(DOMAIN, [of(("a",), Identity(3), [1.0, 2.0, 3.0])])
