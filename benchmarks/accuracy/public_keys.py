"""Synthetic rows that refer to public rows: python benchmarks/accuracy/public_keys.py [--rows 3000 20000] [--seeds 3].

Stays name one of 300 doctors, whose field (8) and rank (3) make their cost (20 bins), and whose field they share with the ward (12); lines
of orders name one of 1,000 products, whose price (8 bins) makes the quantity (8) and whose kind (8) the shop (3) and the discount.
Printed are L1 distances (0 to 2) of such pairs, a column of the rows and one of the public rows: of rows that are drawn where keys are
told alike by both columns, where they are not, and of independent columns.
"""

import argparse
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from synthesis import opened

from duckdb_dp.accounting.convert import zcdp_rho
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.reconstruct.likeness import Likeness
from duckdb_dp.synthesis.table.methods import DEFAULT, synthesize

DELTA = 1e-9


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows, in the order of ``sizes``, of which ``key`` refers to public rows with the columns ``public``; pairs that are compared."""

    sizes: Mapping[str, int]
    columns: Mapping[str, Integers]
    key: str
    public: Mapping[str, Integers]
    pairs: tuple[tuple[str, str], ...]
    ordered: tuple[str, ...]


def drawn(weights: Array, rng: np.random.Generator) -> Integers:
    """A column for each row of weights."""
    sums = weights.cumsum(axis=1)
    return np.asarray((rng.random(len(weights))[:, None] * sums[:, -1:] > sums).sum(axis=1), dtype=np.int64)


def stays(rows: int, seed: int) -> Table:
    """Stays of a hospital."""
    rng = np.random.default_rng(seed)
    field, rank, popular = rng.integers(0, 8, 300), rng.integers(0, 3, 300), rng.gamma(1, 1, 300) + 0.1
    ward, kinds = rng.integers(0, 12, rows), rng.integers(0, 8, 12)
    doctor = drawn(popular * np.where(field[None] == kinds[ward][:, None], 6, 1), rng)
    cost = np.clip(np.rint(rng.normal(3 + 1.6 * field[doctor] + 1.5 * rank[doctor], 2)), 0, 19).astype(np.int64)
    return Table(
        sizes={"ward": 12, "doctor": 300, "cost": 20},
        columns={"ward": ward, "doctor": doctor, "cost": cost},
        key="doctor",
        public={"field": field, "rank": rank},
        pairs=(("field", "cost"), ("rank", "cost"), ("field", "ward")),
        ordered=("cost",),
    )


def lines(rows: int, seed: int) -> Table:
    """Lines of orders."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(8, 1000, p=np.arange(8, 0, -1) / 36)
    price, popular = np.exp(rng.normal(2 + 0.2 * kind, 0.8)), rng.pareto(1.3, 1000) + 0.2
    shop = rng.integers(0, 3, rows)
    product = drawn(popular * np.where(kind[None] % 3 == shop[:, None], 3, 1), rng)
    quantity = np.clip(np.rint(rng.normal(8 - 2 * np.log(price[product]), 1.2)), 1, 8).astype(np.int64) - 1
    return Table(
        sizes={"shop": 3, "product": 1000, "quantity": 8, "discount": 2},
        columns={
            "shop": shop,
            "product": product,
            "quantity": quantity,
            "discount": (rng.random(rows) < 0.1 + 0.08 * kind[product]).astype(np.int64),
        },
        key="product",
        public={"kind": kind, "price": np.searchsorted(np.quantile(price, np.arange(1, 8) / 8), price)},
        pairs=(("price", "quantity"), ("kind", "shop"), ("kind", "discount")),
        ordered=("quantity",),
    )


def alike(table: Table) -> dict[str, Likeness]:
    """As ``sql.alike_keys`` has them."""
    one, other = table.public.values()
    both = np.unique(one * (int(other.max()) + 1) + other, return_inverse=True)[1].astype(np.int64)
    return {name: Likeness(ordered=table.sizes[name]) for name in table.ordered} | {
        table.key: Likeness(ways=(one, other, both))
    }


def distance(table: Table, pair: tuple[str, str], one: Mapping[str, Integers], other: Mapping[str, Integers]) -> float:
    """L1 distance of a column of public rows and one of rows, over the rows."""
    public, own = pair
    shape, found = (int(table.public[public].max()) + 1, table.sizes[own]), []
    for columns in (one, other):
        cells = np.ravel_multi_index([table.public[public][columns[table.key]], columns[own]], shape)
        found.append(np.bincount(cells, minlength=shape[0] * shape[1]) / len(cells))
    return float(np.abs(found[0] - found[1]).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", type=int, default=[3_000, 20_000])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[0.5, 1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    for made, rows, epsilon in itertools.product((stays, lines), asked.rows, asked.epsilons):
        found = []
        for seed in range(asked.seeds):
            table = made(rows, seed)
            domain, codes = Domain(table.sizes), np.stack([*table.columns.values()], 1).astype(np.int32)
            shuffled = np.random.default_rng(seed).permutation(rows)
            columns = [{**table.columns, table.key: table.columns[table.key][shuffled]}]
            known = alike(table)
            for ways in (known, {name: known[name] for name in table.ordered}):
                queryable = opened(domain, codes, DEFAULT, zcdp_rho(epsilon, DELTA), seed)
                new = synthesize(queryable, rows=rows, rng=np.random.default_rng(seed), alike=ways)[0]
                columns.insert(0, dict(zip(table.sizes, new.T.astype(np.int64), strict=True)))
            plain, told, independent = columns
            found.append(
                [
                    [distance(table, pair, table.columns, one) for one in (told, plain, independent)]
                    for pair in table.pairs
                ]
            )
        for pair, (told_l1, plain_l1, independent_l1) in zip(table.pairs, np.mean(found, axis=0).tolist(), strict=True):
            figures = f"{told_l1:.2f} | {plain_l1:.2f} | {independent_l1:.2f}"
            print(f"| {made.__name__} | {rows:,} | {epsilon:g} | {' x '.join(pair)} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
