"""Shares of a budget for selection, under 'gdp': python benchmarks/accuracy/selection.py [aim | links ...] [--runs 16].

Mean L1 / rows of `aim`, and of links the error of 3-way cross-table marginals relative to random links, with the
standard error of the mean of the runs. All noise is exact and from the operating system. 'before' is the share of the package
with selections charged as pure steps, as they were until November 2026.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import relational
from aim_grem import Table, adult, others, read_all, titanic
from relational_data import ALL

from duckdb_dp import Budget, Workload
from duckdb_dp.accounting.base import GDP, ZCDP, Accounting
from duckdb_dp.adaptive import MECHANISMS, Options, base
from duckdb_dp.noise.uniform import SystemEntropy
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links import adaptive_links
from duckdb_dp.synthesis.links.methods import links

EPSILONS, DELTA = (0.31, 1.0, 3.16), 1e-9
LINK_EPSILONS, LINK_DELTA = (0.5, 1.0, 2.0, 4.0), 1e-6


@contextmanager
def setting(module: Any, name: str, share: float, *, before: bool = False) -> Iterator[None]:
    """A share for selections; and, before, their charge as that of pure steps."""
    was, sharper = getattr(module, name), type(GDP).selection_epsilon
    setattr(module, name, share)
    if before:
        type(GDP).selection_epsilon = Accounting.selection_epsilon  # type: ignore[method-assign]
    try:
        yield
    finally:
        setattr(module, name, was)
        type(GDP).selection_epsilon = sharper  # type: ignore[method-assign]


def mean(found: Sequence[float]) -> str:
    return f"{np.mean(found):.4f} ±{np.std(found, ddof=1) / math.sqrt(len(found)):.4f}"


def cases(
    label: str, module: Any, name: str, shares: Sequence[float], once: Callable[[Accounting], float], runs: int
) -> None:
    """One line: before, then every share under 'gdp', then the package's own under 'zcdp'."""
    own = getattr(module, name)
    kinds = [
        ("before", GDP, own, True),
        *((f"{share:g}", GDP, share, False) for share in shares),
        ("zcdp", ZCDP, own, False),
    ]
    line = []
    for title, accounting, share, before in kinds:
        with setting(module, name, share, before=before):
            line.append(f"{title}: {mean([once(accounting) for _ in range(runs)])}")
    print(f"{label:<34}" + "  ".join(line), flush=True)


def marginals(mechanism: str, kind: str, runs: int) -> None:
    """All 3-way marginals of small tables, and all pairs of Adult."""
    tables = [(titanic(), 3), *((table, 3) for table in others()[:2]), (adult(), 2)]
    for table, order in tables:
        workload = Workload.all_k_way(table.domain, order)
        for epsilon in EPSILONS:

            def once(
                accounting: Accounting, table: Table = table, workload: Workload = workload, epsilon: float = epsilon
            ) -> float:
                beta = accounting.beta(accounting.cost(Budget(epsilon=epsilon, delta=DELTA)))
                assert beta is not None
                door = PrivateQueryable(
                    table.counts, total=beta / 2, accounting=accounting, rows=1, bits=SystemEntropy()
                )
                measured = MECHANISMS[mechanism](door, workload, Options()).measured
                return table.error(read_all(kind, table, workload, measured).__getitem__, workload.cliques)

            label = f"{mechanism} {kind} {table.name} {epsilon}"
            cases(label, base, "SELECTION", (0.02, 0.05, 0.1, 0.2), once, runs)


def probes(runs: int) -> None:
    """Three link tables: the share of a probe that pays for choosing its pair."""
    for name in ("raters", "matches", "squads"):
        data = ALL[name]()
        errors, exact, sides = relational.Errors(data), relational.counts(data), data.sides()
        uniform = float(np.mean([errors.of(*relational.uniform(data, np.random.default_rng(s))) for s in range(10)]))
        for epsilon in LINK_EPSILONS:

            def once(accounting: Accounting, epsilon: float = epsilon) -> float:
                beta = accounting.beta(accounting.cost(Budget(epsilon=epsilon, delta=LINK_DELTA)))
                assert beta is not None
                rest: dict[str, Any] = {"accounting": accounting, "rows": data.degree, "bits": SystemEntropy()}  # noqa: B023
                door = PrivateQueryable(exact, total=beta / 2, **rest)  # noqa: B023
                (lefts, rights), _ = links(door, *sides, rng=np.random.default_rng())  # noqa: B023
                return errors.of(lefts, rights) / uniform  # noqa: B023

            cases(f"links {name} {epsilon}", adaptive_links, "CHOOSING", (0.1, 0.2, 0.4), once, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=["aim", "links", []], default=["aim", "links"])
    parser.add_argument("--runs", type=int, default=16)
    arguments = parser.parse_args()
    if "aim" in arguments.parts:
        marginals("aim", "unbiased", arguments.runs)
    if "links" in arguments.parts:
        probes(arguments.runs)


if __name__ == "__main__":
    main()
