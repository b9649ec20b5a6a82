"""HDMM's published tables against ours, row by row: python benchmarks/accuracy/hdmm.py [--quick].

Errors are RMSE at epsilon 1 with Laplace noise, and at epsilon 1, delta 1e-6 (analytic calibration) with Gaussian noise.
`gap` says how far ours can be above the best strategy of any kind, by the plan's own lower bound. Seconds are for a
workload from its names to its plan, with nothing cached on disk and scipy imported before.
"""

import argparse
import functools
import itertools
import json
import math
import operator
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from duckdb_dp.accounting.convert import gdp_mu
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.hdmm import hdmm, hdmm_pure
from duckdb_dp.plan.independent import laplace

PUBLISHED = Path(__file__).parents[3] / "shared" / "reference" / "published.json"
PLANNERS = {"gaussian": hdmm, "laplace": hdmm_pure}
COLUMNS = ("opt_kron", "opt_union", "opt_marginals", "opt_mixture", "best")


def line(n: int, kind: str) -> Workload:
    """One attribute of n values."""
    return Workload.product(Domain({"a": n}), {"a": kind})


def schema(sizes: dict[str, list[int]]) -> Domain:
    """c0, c1, ... categorical and n0, n1, ... numeric attributes."""
    return Domain({f"{name[0]}{i}": n for name in ("categorical", "numeric") for i, n in enumerate(sizes[name])})


def up_to(domain: Domain, k: int, kinds: dict[str, str] | None = None) -> Workload:
    """All sets of 0 to k attributes."""
    return Workload.all_k_way(domain, k, upto=True, kinds=kinds) + Workload.product(domain, {})


def with_prefixes(domain: Domain, prefix: dict[str, str]) -> Workload:
    """All marginals of the categorical attributes, each with prefixes on all numeric ones."""
    names = [name for name in domain.attributes if name not in prefix]
    found = [
        Workload.product(domain, {**dict.fromkeys(chosen, "identity"), **prefix})
        for order in range(len(names) + 1)
        for chosen in itertools.combinations(names, order)
    ]
    return functools.reduce(operator.add, found)


def table7(schemas: dict[str, dict[str, list[int]]], dataset: str, workload: str) -> Workload:
    """The workloads of tables 6 and 7 by their published names."""
    domain = schema(schemas[dataset])
    prefix = {name: "prefix" for name in domain.attributes if name[0] == "n"}
    return {
        "all marginals": lambda: up_to(domain, len(domain.sizes)),
        # A prefix has the total in it: the published error of the identity is that of prefixes wherever they are possible.
        "all prefix-marginals": lambda: with_prefixes(domain, prefix),
        "<=3-way marginals": lambda: up_to(domain, 3),
        "2-way prefix-marginals": lambda: Workload.all_k_way(domain, 2, kinds=prefix),
    }[workload]()


def timed(build: Callable[[], Plan]) -> tuple[Plan, float]:
    start = perf_counter()
    found = build()
    _ = found.rmse
    return found, perf_counter() - start


def verdict(ours: float, published: float) -> str:
    digits = len(str(published).split(".")[1])
    return "ABOVE" if ours > published + 0.5 * 10**-digits else f"{ours / published - 1:+.2%}"


def one_dimensional(reference: dict[str, Any], noise: str, cost: float, quick: bool) -> None:
    table = reference["table4_laplace_1d" if noise == "laplace" else "table5_gaussian_1d"]
    print(f"\nTable {4 if noise == 'laplace' else 5}: one attribute, {noise} noise")
    print(f"{'':<18}{'published':>10}{'ours':>9}{'':>9}{'SVD bound':>11}{'gap':>9}{'seconds':>9}")
    for kind, n, *values in table["rows"]:
        if quick and n > 256:
            continue
        published, bound = values[-2:]
        workload = line(n, {"all-range": "range"}.get(kind, kind))
        plan, seconds = timed(lambda w=workload: PLANNERS[noise](w, cost))
        print(
            f"{kind + ' ' + str(n):<18}{published:>10}{plan.rmse:>9.3f}{verdict(plan.rmse, published):>9}"
            f"{bound:>11}{plan.gap:>9.1e}{seconds:>9.2f}",
            flush=True,
        )


def many(reference: dict[str, Any], schemas: dict[str, Any], noise: str, cost: float) -> None:
    table = reference["table6_laplace" if noise == "laplace" else "table7_gaussian"]
    print(f"\nTable {6 if noise == 'laplace' else 7}: many attributes, {noise} noise")
    print(f"{'':<30}{'operator':>15}{'published':>11}{'ours':>10}{'':>9}{'gap':>9}{'seconds':>9}")
    for dataset, name, *values in table["rows"]:
        published = dict(zip(table["columns"][2:], values, strict=True))
        workload = table7(schemas, dataset, name)
        for name_ in COLUMNS:
            column = {"best": "HDMM"}.get(name_, name_)
            known = published.get(column)
            try:
                plan, seconds = timed(lambda w=workload, o=name_: PLANNERS[noise](w, cost, operator=o))
            except DPError as error:
                print(f"{dataset + ' ' + name:<30}{column:>15}{known or '-':>11}  {str(error)[:90]}")
                continue
            print(
                f"{dataset + ' ' + name:<30}{column:>15}{known or '-':>11}{plan.rmse:>10.2f}"
                f"{verdict(plan.rmse, known or published['HDMM']):>9}{plan.gap:>9.1e}{seconds:>9.2f}"
                + (f"  {getattr(plan, 'operator', 'opt_residuals')}" if name_ == "best" else ""),
                flush=True,
            )
        if noise == "laplace" and workload.is_marginals:
            plan, seconds = timed(lambda w=workload: laplace(w, cost))
            print(f"{dataset + ' ' + name:<30}{'laplace':>15}{published['laplace']:>11}{plan.rmse:>10.2f}")


def table3(reference: dict[str, Any]) -> None:
    print("\nTable 3: all 2-way marginals of (2, 5, 50, 100), L1; total squared error in units of the noise")
    published = reference["table3_2way_marginals_2_5_50_100"]["expected_TSE"]
    workload = Workload.all_k_way(Domain({"a": 2, "b": 5, "c": 50, "d": 100}), 2)
    for name in ("opt_kron", "opt_union", "opt_marginals", "best"):
        plan, seconds = timed(lambda o=name: hdmm_pure(workload, 1.0, operator=o))
        print(f"{name:<18}{published.get(name, '-'):>10}{plan.total / 2:>12.1f}{seconds:>9.2f}", flush=True)


def others(cost: float, quick: bool) -> None:
    print("\nOther workloads: ours alone")
    print(f"{'':<34}{'gaussian':>10}{'gap':>9}{'s':>7}{'laplace':>10}{'gap':>9}{'s':>7}")
    n, rng = 256, np.random.default_rng(0)
    grid = Domain({"a": 64, "b": 64})
    ranges = np.array([[first <= c <= last for c in range(64)] for first in range(64) for last in range(first, 64)])
    built: dict[str, Workload] = {
        "width-32 ranges, n=256": line(n, "width-32"),
        "permuted ranges, n=64": Workload.product(Domain({"a": 64}), {"a": ranges[:, rng.permutation(64)]}),
        "500 random predicates, n=256": Workload.product(Domain({"a": n}), {"a": rng.random((500, n)) < 0.3}),
        "20 random predicates, n=256": Workload.product(Domain({"a": n}), {"a": rng.random((20, n)) < 0.3}),
        "2-D ranges, 64 x 64": Workload.product(grid, {"a": "range", "b": "range"}),
        "prefix x total + total x prefix": Workload.product(grid, {"a": "prefix"})
        + Workload.product(grid, {"b": "prefix"}),
        "prefixes and pairs of them": Workload.all_k_way(grid, 2, upto=True, kinds="prefix"),
    }
    for name, workload in built.items():
        g, g_seconds = timed(lambda w=workload: hdmm(w, cost))
        p, p_seconds = timed(lambda w=workload: hdmm_pure(w, 1.0))
        print(
            f"{name:<34}{g.rmse:>10.3f}{g.gap:>9.1e}{g_seconds:>7.2f}{p.rmse:>10.3f}{p.gap:>9.1e}{p_seconds:>7.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only: seconds instead of minutes")
    quick = parser.parse_args().quick
    os.environ["DUCKDB_DP_CACHE"] = "off"
    published = json.loads(PUBLISHED.read_text())
    reference, schemas = published["hdmm"], published["query_smasher"]["schemas"]
    beta = gdp_mu(1.0, 1e-6) ** 2
    hdmm(line(16, "prefix"), beta), hdmm_pure(line(16, "prefix"), 1.0)
    print(f"epsilon 1, delta 1e-6: sigma {1 / math.sqrt(beta):.5f}")
    table3(reference)
    for noise, cost in (("laplace", 1.0), ("gaussian", beta)):
        one_dimensional(reference, noise, cost, quick)
        many(reference, schemas, noise, cost)
    others(beta, quick)


if __name__ == "__main__":
    main()
