"""Synthetic rows of units with many: python benchmarks/accuracy/turns.py [--units 3000 10000] [--bounds 10 20 40] [--seeds 3].

Units have 1 to 40 rows, three on average, of four columns of 3 to 12 values that hang together; the more rows a unit has, the higher two
columns are. Printed is the mean L1 distance (0 to 2) of all pairs of columns: of rows that are drawn where it is chosen how many of each
unit count, with that number, where all count that the bound allows, and of independent columns.
"""

import argparse
import itertools

import numpy as np

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.accounting.convert import zcdp_rho
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.turns import Turns, classes
from duckdb_dp.linop import Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.synthesis.scores import counted, errors
from duckdb_dp.synthesis.table.first_rows import chosen
from duckdb_dp.synthesis.table.methods import synthesize
from duckdb_dp.testing import SeededEntropy

DELTA, MOST = 1e-9, 40
DOMAIN = Domain({"kind": 6, "amount": 12, "place": 8, "late": 3})


def rows(units: int, seed: int) -> tuple[Codes, Integers]:
    """The columns, and the turn of each row in its unit."""
    rng = np.random.default_rng(seed)
    held = np.minimum(1 + rng.negative_binomial(0.5, 0.2, units), MOST)
    number = np.repeat(held, held)
    turn = np.arange(len(number)) - np.repeat(np.cumsum(held) - held, held) + 1
    kind = rng.integers(0, 6, len(number))
    amount = np.clip(np.rint(rng.normal(1.5 * kind + 0.1 * number, 1.5)), 0, 11)
    place = (kind + rng.integers(0, 3, len(number))) % 8
    late = (rng.random(len(number)) < 0.1 + 0.06 * amount + 0.01 * number).astype(np.int64) * rng.integers(
        1, 3, len(number)
    )
    return np.stack([kind, amount, place, late], axis=1).astype(np.int32), turn


def queryable(codes: Codes, turn: Integers, turns: Turns, rho: float, seed: int) -> PrivateQueryable:
    """With the turns of the rows that the bound leaves."""
    kept = turn <= turns.last[-1]
    domain = Domain({**DOMAIN.sizes, turns.name: len(turns.last)})
    columns = [*codes[kept].T, np.searchsorted(np.array(turns.last), turn[kept])]
    keys, counts = np.unique(np.ravel_multi_index(columns, domain.shape(domain.attributes)), return_counts=True)
    found = Counts(domain, {domain.attributes: (keys, counts)})
    return PrivateQueryable(found, total=rho, accounting=ZCDP, rows=turns.last[-1], bits=SeededEntropy(seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", nargs="*", type=int, default=[3_000, 10_000])
    parser.add_argument("--bounds", nargs="*", type=int, default=[10, 20, 40])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 4.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    pairs = list(itertools.combinations(DOMAIN.attributes, 2))
    for units, bound, epsilon in itertools.product(asked.units, asked.bounds, asked.epsilons):
        found = []
        for seed in range(asked.seeds):
            codes, turn = rows(units, seed)
            turns, rng = Turns.of(DOMAIN.attributes, classes(bound)), np.random.default_rng(seed)
            first = chosen(queryable(codes, turn, turns, zcdp_rho(epsilon, DELTA), seed), turns)
            every = queryable(codes, turn, turns, zcdp_rho(epsilon, DELTA), seed).of_turns(turns, 0, len(turns.last))
            real = counted(DOMAIN, codes)
            shuffled = np.stack([rng.permutation(column) for column in codes.T], axis=1)
            drawn = [synthesize(one, rows=len(codes), rng=rng)[0] for one in (first.queryable, every)]
            distances = [float(errors(real, counted(DOMAIN, each), pairs).mean()) for each in (*drawn, shuffled)]
            found.append([distances[0], first.number, *distances[1:]])
        one, number, other, independent = np.mean(found, axis=0)
        figures = f"{one:.3f} | {number:.1f} | {other:.3f} | {independent:.3f}"
        print(f"| {units:,} | {bound} | {epsilon:g} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
