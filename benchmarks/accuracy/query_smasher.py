"""QuerySmasher's published tables against ours, row by row: python benchmarks/accuracy/query_smasher.py [--quick].

Errors are RMSE at privacy cost 1. `gap` is the certificate: no mechanism of the family is better by more than that.
Times are for a workload from its names to its plan, each row in a process of its own, with nothing cached on disk and
scipy imported before.
"""

import argparse
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from duckdb_dp import Domain, DPError, Plan, Workload, plan

PUBLISHED = Path(__file__).parents[3] / "shared" / "reference" / "published.json"
MECHANISMS = {"RP+": "residual_plus", "WFF": "wff", "QS": "querysmasher"}
LARGE = 20  # sizes above this are left out of the tables of errors by --quick


def cube(n: int, d: int) -> Domain:
    """d attributes of n values."""
    return Domain({f"a{i}": n for i in range(d)})


def schema(sizes: dict[str, list[int]]) -> Domain:
    """c0, c1, ... categorical and n0, n1, ... numeric attributes."""
    return Domain({f"{name[0]}{i}": n for name in ("categorical", "numeric") for i, n in enumerate(sizes[name])})


def hybrid(domain: Domain, k: int, upto: bool) -> Workload:
    """Identity on categorical attributes, prefix on numeric ones."""
    return Workload.all_k_way(domain, k, upto=upto, kinds={a: "prefix" for a in domain.attributes if a[0] == "n"})


def pairs(domain: Domain, kind: str) -> Workload:
    """All 1-way prefixes and a non-product kind on all pairs."""
    found = list(Workload.all_k_way(domain, 1, kinds="prefix").parts)
    for clique in itertools.combinations(domain.attributes, 2):
        found += Workload.predicates(domain, clique, kind).parts
    return Workload(domain, tuple(found))


def one_and_two_way(n: int, d: int, kind: str) -> Workload:
    """Table 4's: one kind on all attributes and all pairs."""
    if kind in ("affine", "abs"):
        return pairs(cube(n, d), kind)
    return Workload.all_k_way(cube(n, d), 2, upto=True, kinds="identity" if kind == "marginal" else kind)


def mixed(n: int, d: int) -> Workload:
    """Table 7's: all 1-way ranges, 2-way affine and 3-way prefixes."""
    domain = cube(n, d)
    found = list(Workload.all_k_way(domain, 1, kinds="range").parts)
    for clique in itertools.combinations(domain.attributes, 2):
        found += Workload.predicates(domain, clique, "affine").parts
    return Workload(domain, (*found, *Workload.all_k_way(domain, 3, kinds="prefix").parts))


def prefixes(n: int, d: int) -> Workload:
    """All pairs of prefixes, of many attributes."""
    return Workload.all_k_way(cube(n, d), 2, kinds="prefix")


def planned(workload: Workload, mechanism: str = "querysmasher") -> Plan:
    return plan(workload, mechanism=mechanism, rho=0.5)


def measured(build: Callable[[], Workload]) -> tuple[float, float, float, float, int]:
    """(seconds, peak GB, RMSE, gap, query sets)."""
    planned(one_and_two_way(3, 2, "prefix"))
    start = perf_counter()
    workload = build()
    found = planned(workload)
    rmse = found.rmse
    return perf_counter() - start, peak_gb(), rmse, found.gap, len(workload.parts)


def peak_gb() -> float:
    """Most memory this process has held; unlike ru_maxrss not inherited from the one that started it."""
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    return int(peak[1]) / 1e6


def alone(build: Callable[[], Workload]) -> tuple[float, float, float, float, int]:
    """``measured`` in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measured, build).result()


def errors(columns: list[str], rows: Iterable[tuple[str, int, list[Any], Callable[[], Workload]]]) -> None:
    """One line per workload: for each mechanism the published error and ours."""
    shown = [name for name in columns if name in MECHANISMS]
    print(
        f"{'':<22}{'queries':>12}"
        + "".join(f"{name + ' published':>16}{'ours':>9}" for name in shown)
        + "      gap    QS by"
    )
    for label, queries, values, build in rows:
        workload = build()
        if workload.queries != queries:
            raise SystemExit(f"{label}: {workload.queries:,} queries, but {queries:,} were published")
        line = f"{label:<22}{queries:>12,}"
        for name in shown:
            published = values[columns.index(name)]
            try:
                ours = planned(workload, MECHANISMS[name]).rmse
            except DPError:
                line += f"{published:>16}{'refused':>9}"
                continue
            line += f"{published or '-':>16}{ours:>9.3f}"
        digits = len(str(published).split(".")[1])
        verdict = "ABOVE" if ours > published + 0.5 * 10**-digits else f"{ours / published - 1:+.2%}"
        print(f"{line}{planned(workload).gap:>9.1e}{verdict:>9}", flush=True)


def hybrids(reference: dict[str, Any]) -> None:
    print("\nTable 2: identity on categorical, prefix on numeric attributes")
    table = reference["table2_hybrid"]
    rows = []
    for name in ("CPS", "Adult"):
        domain = schema(reference["schemas"][name])
        for label, queries, *values in table[name]:
            k, upto = int(label.split("-")[0][-1]), ".." in label
            rows.append((f"{name} {label}", queries, [label, queries, *values], partial(hybrid, domain, k, upto)))
    errors(table["columns"], rows)


def affine_and_abs(reference: dict[str, Any]) -> None:
    print("\nTable 3: all numeric, 1-way prefix and 2-way affine or abs")
    table, domain = reference["table3"], schema(reference["schemas"]["CPS"])
    errors(table["columns"], [(f"CPS {row[0]}", row[1], row, partial(pairs, domain, row[0])) for row in table["CPS"]])


def cubes(reference: dict[str, Any], quick: bool) -> None:
    print("\nTable 4: 1-way and 2-way, 40 attributes of n values")
    table = reference["table4_1way_plus_2way_d40"]
    rows = [row for row in table["rows"] if not quick or row[0] <= LARGE]
    errors(table["columns"], [(f"n={r[0]} {r[1]}", r[2], r, partial(one_and_two_way, r[0], 40, r[1])) for r in rows])


def times(reference: dict[str, Any], quick: bool) -> None:
    print("\nTime to plan")
    print(f"{'':<38}{'query sets':>11}{'published s':>13}{'GB':>7}{'ours s':>9}{'GB':>7}{'RMSE':>10}{'gap':>9}")

    def line(label: str, build: Callable[[], Workload], seconds: Any = "-", memory: Any = "-") -> float:
        took, peak, rmse, gap, sets = alone(build)
        shown = f"{label:<38}{sets:>11,}{seconds:>13}{memory:>7}{took:>9.2f}{peak:>7.2f}{rmse:>10.3f}{gap:>9.1e}"
        print(shown, flush=True)
        return took

    total = 0.0
    for n in (10, 20, 30, 40, 50):
        for kind in ("marginal", "prefix", "range", "circular", "affine", "abs"):
            total += line(f"table 4, n={n} d=40 {kind}", partial(one_and_two_way, n, 40, kind))
    print(f"{'table 4, all of these together':<38}{'':>31}{total:>9.2f}")
    for n, d, _, seconds, memory in reference["table6_seconds_1way_plus_2way_prefix"]["rows"]:
        line(f"table 6, n={n} d={d}", partial(one_and_two_way, n, d, "prefix"), seconds, memory)
    for n, d, _, *_, seconds, memory in reference["table7_seconds_mixed"]["rows"]:
        if not quick or d <= LARGE:
            line(f"table 7, n={n} d={d}", partial(mixed, n, d), seconds, memory)
    line("1,000 attributes of 10, 2-way prefix", partial(prefixes, 10, 1000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only: seconds instead of minutes")
    quick = parser.parse_args().quick
    os.environ["DUCKDB_DP_CACHE"] = "off"
    reference = json.loads(PUBLISHED.read_text())["query_smasher"]
    hybrids(reference)
    affine_and_abs(reference)
    cubes(reference, quick)
    times(reference, quick)


if __name__ == "__main__":
    main()
