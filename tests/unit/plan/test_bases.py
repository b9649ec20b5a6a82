"""Bases of ResidualPlanner+ from Python."""

import numpy as np
import pytest

import duckdb_dp

DOMAIN = duckdb_dp.Domain({"a": 5, "b": 3})
WORKLOAD = duckdb_dp.Workload.all_k_way(DOMAIN, 2, kinds={"a": "prefix"})


def test_own_bases_are_used_and_never_better_than_the_bound() -> None:
    bases = {"a": np.tril(np.ones((5, 5))), "b": np.eye(3)}
    own = duckdb_dp.plan(WORKLOAD, mechanism="residual_plus", rho=0.5, bases=bases)
    best = duckdb_dp.plan(WORKLOAD, mechanism="residual_plus", rho=0.5)
    assert own.lower_bound <= best.rmse < own.rmse


def test_bases_of_another_mechanism_are_refused() -> None:
    with pytest.raises(duckdb_dp.DPError, match="residual_plus"):
        duckdb_dp.plan(WORKLOAD, mechanism="querysmasher", rho=0.5, bases={"a": np.eye(5)})
