"""Public Python functions say in one line what is wrong with an argument of a wrong type."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp import Budget, Domain, DPError, Workload, picture

BAD = [None, True, 7, -1, 0.5, float("nan"), "x", "", "a\0b", b"x", [], [None], ["x", 1], {}, {"x": None}, {1: 2}, object(), int, np.zeros((2, 2))]  # fmt: skip
DOMAIN = Domain({"age": 3, "sex": 2})
WORKLOAD = Workload.marginals(DOMAIN, [("age",), ("age", "sex")])

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "load": (duckdb_dp.load, {"con": duckdb, "ledger": None, "progress": False, "role": "curator"}),
    "testing.load": (duckdb_dp.testing.load, {"con": duckdb, "ledger": None, "seed": 1, "role": "curator"}),
    "testing.load_exact": (duckdb_dp.testing.load_exact, {"con": duckdb, "ledger": None}),
    "attach": (duckdb_dp.attach, {"con": duckdb, "name": "events", "source": None}),
    "discover": (
        duckdb_dp.discover,
        {"con": duckdb, "dataset": "people", "attribute": "age", "find": "values", "max_values": 2, "bins": None}
        | {"declare": False, "epsilon": 1.0, "delta": None, "rho": None, "mu": None, "release": None, "fresh": False},
    ),
    "max_rows": (
        duckdb_dp.max_rows,
        {"con": duckdb, "dataset": "people", "epsilon": None, "delta": None, "rho": None, "mu": 1.0}
        | {"release": None, "fresh": False},
    ),
    "running": (
        duckdb_dp.running,
        {"con": duckdb, "dataset": "people", "attributes": ["sex"], "start": "2020-01-01", "time_column": None, "every": "day"}
        | {"horizon": 9, "epsilon": None, "delta": None, "rho": None, "mu": 1.0, "release": None, "fresh": False},
    ),
    "report": (duckdb_dp.report, {"con": duckdb, "release": "r", "path": None, "postprocess": None}),
    "quantiles": (
        duckdb_dp.quantiles,
        {"con": duckdb, "dataset": "t", "attribute": "x", "quantiles": [0.5], "by": None, "epsilon": None, "delta": None}
        | {"rho": None, "mu": 1.0, "precision": None, "mechanism": "auto", "release": None, "fresh": False},
    ),
    "plan": (
        duckdb_dp.plan,
        {"workload": WORKLOAD, "mechanism": "residual", "epsilon": None, "delta": None, "rho": None, "mu": 1.0}
        | {"accounting": None, "objective": "total", "bases": None},
    ),
    "ubs": (duckdb_dp.ubs, {"x": [0.5, 0.5], "m": 1, "rng": np.random.default_rng(0)}),
    "Budget": (Budget, {"epsilon": None, "delta": None, "rho": None, "mu": 1}),
    "Domain": (Domain, {"sizes": {"age": 3}}),
    "Workload": (Workload, {"domain": DOMAIN, "parts": WORKLOAD.parts}),
    "marginals": (Workload.marginals, {"domain": DOMAIN, "cliques": [("age",)], "weights": None}),
    "product": (Workload.product, {"domain": DOMAIN, "kinds": {"age": "range"}, "weight": 1.0}),
    "disjunctions": (Workload.disjunctions, {"domain": DOMAIN, "kinds": {"age": "range"}, "weight": 1.0}),
    "predicates": (Workload.predicates, {"domain": DOMAIN, "clique": ("age", "sex"), "kind": "affine", "weight": 1.0}),
    "all_k_way": (Workload.all_k_way, {"domain": DOMAIN, "k": 1, "upto": False, "kinds": None}),
    "strategy": (picture.strategy, {"plan": duckdb_dp.plan(WORKLOAD, mu=1.0), "clique": ("age",)}),
    "quality": (picture.quality, {"con": duckdb, "dataset": "people", "table": "syn", "synthetic": None}),
}  # fmt: skip
"""Public functions with arguments that work; a module stands for a connection, which each call gets anew."""


def cases() -> Iterator[Any]:
    for function, (_, given) in CALLS.items():
        for name in given:
            yield pytest.param(function, name, id=f"{function}-{name}")


@pytest.mark.some(6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("function", "name"), list(cases()))
def test_a_wrong_type_is_told_in_one_line(function: str, name: str, monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    called, given = CALLS[function]
    with duckdb.connect() as con:
        if "load" not in function:
            duckdb_dp.testing.load(con, tmp_path / "ledger.dp", seed=1)
        for bad in BAD:
            arguments = {each: con if value is duckdb else value for each, value in given.items()} | {name: bad}
            try:
                called(**arguments)
            except DPError as error:
                assert "\n" not in str(error), (bad, str(error))
                assert len(str(error)) < 700, (bad, str(error))
            except duckdb.Error as error:
                assert str(error).startswith("Invalid Input Error: dp_"), (bad, str(error))


def test_every_public_function_is_here() -> None:
    tried = {called for called, _ in CALLS.values()}
    public = {getattr(duckdb_dp, name) for name in duckdb_dp.__all__} - {DPError, duckdb_dp.Plan}
    assert public <= tried
    for module in (picture, duckdb_dp.testing):
        found = inspect.getmembers(module, inspect.isfunction)
        assert {each for name, each in found if name[0] != "_" and each.__module__ == module.__name__} <= tried
