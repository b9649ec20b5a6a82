"""Links: what else a data scientist looks at: python benchmarks/accuracy/links.py [--data films ...] [--seeds 10] [--json FILE].

Both tables are the original ones, so that what is seen is the links alone. Each row has, for one epsilon (delta 1e-6, zCDP):

cross     mean over the 3-way cross-table marginals of the L1 distance of distributions, over that of as many random links
          with the original degrees: 1 is no better than random links
dealt     the same of these links, each with the partner of another one at random: random links with degrees as private as theirs
partners  mean over the attributes of the other side of the L1 distance of their distributions over the links
degrees   L1 distance of the distributions of degrees of the protected side, rows without a link too
others    the same of the other side, in classes 0 to 8 and a quarter wider each: links of two rows are seldom the same number where
          rows have many
by row    correlation of the numbers of links of the other side's rows with the original ones; with --strangers the rows are
          taken for others than the original ones
by value  the same of joint distributions of degree and one attribute of the protected side, mean over its attributes
own       as cross, of one attribute of the links and one of either side, over that of shuffled labels
shuffled  the same of these links with their own attributes shuffled among them: labels that depend on nothing, as private as theirs
matches   links whose ends match, over those of the original, in which there are ``apart`` as many where ends are dealt at random
R2        of predicting the first attribute of a link from all attributes of both sides, and from whether they match, by least squares,
          over that of real links;
          ``tested`` is that of the prediction that synthetic links teach, on the real ones, and ``untaught`` that of shuffled ones
pairs     L1 distance of the distributions of pairs of rows of one unit, by one attribute of each, all units alike,
          mean over pairs of attributes;
          ``alone`` is that of random pairs
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from relational import RHO as KNOWN
from relational import counts
from relational_data import ALL, Linked
from relational_generated import GENERATED
from relational_matched import MATCHED
from relational_smooth import SMOOTH

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.linop import Array, Integers
from duckdb_dp.noise.uniform import SystemEntropy
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.learner import workloads
from duckdb_dp.synthesis.links.methods import Rules, links

RHO = {0.1: 0.00032, 0.25: 0.0018, **KNOWN}
"""epsilon: rho at delta = 1e-6."""


class Seen:
    """What is looked at of some links."""

    def __init__(self, data: Linked) -> None:
        self.data, self.sizes = data, data.domain.sizes
        self.tables = {f"left.{a}": codes for a, codes in data.left.items()}
        self.tables |= {f"right.{a}": codes for a, codes in data.right.items()}
        self.lefts, self.rights = ([n for n in self.tables if n.startswith(side)] for side in ("left.", "right."))
        self.cross = workloads(self.lefts, self.rights, 3)
        self.own = [(a, b, c) for a in data.own for b in self.lefts for c in self.rights]
        self.owner = 1 if data.protected == "right" else 0
        self.partners = [(name,) for name in (self.lefts if self.owner else self.rights)]

    def codes(self, ends: Integers, own: dict[str, Integers]) -> dict[str, Integers]:
        """A code of each attribute for each link."""
        return {n: table[ends[:, 0 if n in self.lefts else 1]] for n, table in self.tables.items()} | own

    def marginals(self, codes: dict[str, Integers], cliques: list[tuple[str, ...]]) -> list[Array]:
        """The distribution of each clique over the links."""
        return [shares([codes[n] for n in clique], [self.sizes[n] for n in clique]) for clique in cliques]

    def degrees(self, ends: Integers) -> tuple[Array, list[Array]]:
        """The distributions of degrees, and of degree and each attribute of the protected side."""
        names = (self.lefts, self.rights)[self.owner]
        rows = len(self.tables[names[0]])
        degree = np.minimum(np.bincount(ends[:, self.owner], minlength=rows), self.data.degree)
        size = self.data.degree + 1
        return shares([degree], [size]), [shares([degree, self.tables[n]], [size, self.sizes[n]]) for n in names]

    def others(self, ends: Integers) -> tuple[Array, Array]:
        """The links of each row of the other side, and their distribution in classes."""
        names = (self.rights, self.lefts)[self.owner]
        degree = np.bincount(ends[:, 1 - self.owner], minlength=len(self.tables[names[0]]))
        first = [*range(9)]
        while first[-1] < len(self.data.links):
            first.append(first[-1] + first[-1] // 4)
        return degree, shares([np.searchsorted(first, degree, side="right") - 1], [len(first)])

    def pairs(self, ends: Integers, codes: dict[str, Integers]) -> list[Array]:
        """Distributions of two attributes of two different links of one unit, in both orders."""
        names = [*(self.lefts if self.owner else self.rights), *self.data.own]
        order = np.argsort(ends[:, self.owner], kind="stable")
        unit = ends[order, self.owner]
        held = np.bincount(unit)[unit]
        found = [np.zeros((self.sizes[a], self.sizes[b])) for a, b in itertools.combinations_with_replacement(names, 2)]
        for gap in range(1, self.data.degree):
            first = np.flatnonzero(unit[gap:] == unit[:-gap])
            weight = 1 / (held[first] * (held[first] - 1.0))
            for table, (a, b) in zip(found, itertools.combinations_with_replacement(names, 2), strict=True):
                one, other = order[first], order[first + gap]
                np.add.at(table, (codes[a][one], codes[b][other]), weight)
                np.add.at(table, (codes[a][other], codes[b][one]), weight)
        return [table / max(table.sum(), 1) for table in found]

    def r2(self, codes: dict[str, Integers], names: list[str], target: str, tested: dict[str, Integers]) -> float:
        """R2 on the tested links of least squares on the others."""

        def design(found: dict[str, Integers]) -> Array:
            columns = [np.eye(self.sizes[n])[found[n]][:, 1:] for n in names]
            columns += [match.codes(found)[:, None] for match in self.data.matched()]
            return np.concatenate([np.ones((len(found[target]), 1)), *columns], 1)

        fitted = np.linalg.lstsq(design(codes), codes[target].astype(float), rcond=None)[0]
        left = tested[target] - design(tested) @ fitted
        return float(1 - (left**2).mean() / tested[target].var())

    def matching(self, codes: dict[str, Integers]) -> float:
        """The share of links whose ends match, mean over the matches."""
        return float(np.mean([match.codes(codes).mean() for match in self.data.matched()]))


def shares(codes: list[Integers], sizes: list[int]) -> Array:
    """The joint distribution of some codes."""
    cell = np.zeros(len(codes[0]), dtype=np.int64)
    for code, size in zip(codes, sizes, strict=True):
        cell = cell * size + code
    return np.bincount(cell, minlength=int(np.prod(sizes))) / len(cell)


def distance(one: list[Array], other: list[Array]) -> float:
    """Mean L1 distance."""
    return float(np.mean([np.abs(a - b).sum() for a, b in zip(one, other, strict=True)])) if one else float("nan")


def alike(one: Integers, other: Integers) -> float:
    """The correlation of two lists, 0 where one of them is the same everywhere."""
    return float(np.corrcoef(one, other)[0, 1]) if one.std() and other.std() else 0.0


def measure(data: Linked, seeds: int, epsilons: list[float], original: bool) -> Iterator[dict[str, Any]]:
    """One row per epsilon."""
    seen, exact, sides, rng = Seen(data), counts(data, original), data.sides(), np.random.default_rng(0)
    real = seen.codes(data.links, data.own)
    cross, own = seen.marginals(real, seen.cross), seen.marginals(real, seen.own)
    partners = seen.marginals(real, seen.partners)
    degrees, by_value = seen.degrees(data.links)
    others, other_degrees = seen.others(data.links)
    pairs = seen.pairs(data.links, real)
    names, target = [*seen.lefts, *seen.rights], next(iter(data.own), None)
    best = seen.r2(real, names, target, real) if target else float("nan")
    base = {"cross": [], "own": [], "alone": [], "apart": []}  # type: dict[str, list[float]]
    matching = seen.matching(real) if data.matches else float("nan")
    for _ in range(10):
        order = rng.permutation(len(data.links))
        ends = data.links.copy()
        ends[:, 1 - seen.owner] = ends[order, 1 - seen.owner]
        codes = seen.codes(ends, {n: v[order] for n, v in data.own.items()})
        base["cross"].append(distance(seen.marginals(codes, seen.cross), cross))
        base["alone"].append(distance(seen.pairs(ends, codes), pairs))
        base["apart"].append(seen.matching(codes) / matching if data.matches else np.nan)
        labels = seen.codes(data.links, {n: v[order] for n, v in data.own.items()})
        base["own"].append(distance(seen.marginals(labels, seen.own), own))
    for epsilon in epsilons:
        found: dict[str, list[float]] = {}
        for seed in range(seeds):
            queryable = PrivateQueryable(
                exact, total=RHO[epsilon], accounting=ZCDP, rows=data.degree, bits=SystemEntropy()
            )
            begun = process_time()
            drawn, _ = links(
                queryable,
                *sides,
                rules=Rules(child=data.child),
                link_attributes=list(data.own),
                rng=np.random.default_rng(seed),
                **data.options(),
            )
            seconds = process_time() - begun
            ends = np.stack(drawn[:2], 1)
            drawn_own = dict(zip(data.own, drawn[2:], strict=True))
            codes = seen.codes(ends, drawn_own)
            shape, valued = seen.degrees(ends)
            numbers, classed = seen.others(ends)
            order = rng.permutation(len(ends))
            dealt = ends.copy()
            dealt[:, 1 - seen.owner] = dealt[order, 1 - seen.owner]
            mixed = seen.codes(ends, {n: v[order] for n, v in drawn_own.items()})
            row = {
                "cross": distance(seen.marginals(codes, seen.cross), cross) / np.mean(base["cross"]),
                "dealt": distance(seen.marginals(seen.codes(dealt, {}), seen.cross), cross) / np.mean(base["cross"]),
                "three": distance(seen.marginals(codes, seen.cross), cross),
                "partners": distance(seen.marginals(codes, seen.partners), partners),
                "degrees": float(np.abs(shape - degrees).sum()),
                "others": float(np.abs(classed - other_degrees).sum()),
                "by row": alike(numbers, others),
                "by value": distance(valued, by_value),
                "own": distance(seen.marginals(codes, seen.own), own) / np.mean(base["own"]) if target else np.nan,
                "shuffled": distance(seen.marginals(mixed, seen.own), own) / np.mean(base["own"]) if target else np.nan,
                "matches": seen.matching(codes) / matching if data.matches else np.nan,
                "apart": float(np.mean(base["apart"])),
                "R2": seen.r2(codes, names, target, codes) / best if target else np.nan,
                "tested": seen.r2(codes, names, target, real) / best if target else np.nan,
                "untaught": seen.r2(mixed, names, target, real) / best if target else np.nan,
                "pairs": distance(seen.pairs(ends, codes), pairs),
                "alone": float(np.mean(base["alone"])),
                "seconds": seconds,
            }
            for name, value in row.items():
                found.setdefault(name, []).append(float(value))
        yield {"data": data.name, "epsilon": epsilon, **{name: float(np.mean(v)) for name, v in found.items()}}


def main() -> None:
    every = {**ALL, **GENERATED, **MATCHED, **SMOOTH}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", choices=list(every), default=[n for n in every if n != "no structure"])
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(RHO))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="also append rows to this file")
    parser.add_argument(
        "--strangers", action="store_true", help="rows of the other side are not known to be the original ones"
    )
    options = parser.parse_args()
    columns = [
        "cross",
        "dealt",
        "three",
        "partners",
        "degrees",
        "others",
        "by row",
        "by value",
        "own",
        "shuffled",
        "matches",
        "apart",
        "R2",
        "tested",
        "untaught",
    ]
    columns += ["pairs", "alone", "seconds"]
    print(f"{'data':12}{'epsilon':>8}" + "".join(f"{c:>9}" for c in columns))
    for name in options.data:
        for row in measure(every[name](), options.seeds, options.epsilons, not options.strangers):
            print(f"{name:12}{row['epsilon']:8}" + "".join(f"{row[c]:9.3f}" for c in columns))
            sys.stdout.flush()
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
