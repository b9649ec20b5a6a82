"""Rank error of quantiles: ours by 'auto', prefixes and selections, beside others' selections, at one cost in one run.

The rank error of a cell is the distance of q N from the ranks that its rows have: 0 where the quantile lies in it.
"""

import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import duckdb_dp
from duckdb_dp import Domain, Workload
from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.noise.ranks import selected
from duckdb_dp.noise.uniform import SystemEntropy
from duckdb_dp.plan.selection import INTERVALS, better
from duckdb_dp.reconstruct.quantiles import Prefixes

ROWS, RHO, DRAWS = 48_842, 0.0152, 40

Counts = np.ndarray


def incomes(n: int, rng: np.random.Generator) -> Counts:
    """A skewed, smooth distribution with a long tail."""
    values = rng.lognormal(-1.6, 0.7, ROWS)
    return np.bincount(np.minimum((values * n).astype(int), n - 1), minlength=n)


def rounded(n: int, rng: np.random.Generator) -> Counts:
    """The same, where two of three people round to a hundredth of the range: atoms, and little between them."""
    values = rng.lognormal(-1.6, 0.7, ROWS)
    values = np.where(rng.random(ROWS) < 2 / 3, np.round(values * 100) / 100, values)
    return np.bincount(np.minimum((values * n).astype(int), n - 1), minlength=n)


SHAPES = {"smooth": incomes, "rounded": rounded}


def error(counts: Counts, q: float, cell: int) -> float:
    """Rank error of a cell as the q-quantile."""
    upto, rank = np.cumsum(counts), q * counts.sum()
    return float(max(upto[cell] - counts[cell] - rank, rank - upto[cell], 0.0))


def alone(counts: Counts, q: float, rho: float, rng: np.random.Generator) -> int:
    """The exponential mechanism on ranks, by the Gumbel trick in doubles: a sketch for accuracy, and not private.

    The utility -max(L - q N, q N - L - c, 0), with L rows before a cell of c rows, moves by max(q, 1 - q) at most when a row
    comes or goes; a selection of epsilon costs epsilon^2 / 8 in zCDP.
    """
    upto, rank = np.cumsum(counts), q * counts.sum()
    utility = -np.maximum(np.maximum(upto - counts - rank, rank - upto), 0.0)
    scale = math.sqrt(8 * rho) / (2 * max(q, 1 - q))
    return int(np.argmax(scale * utility + rng.gumbel(size=len(counts))))


def separate(counts: Counts, asked: list[float], rng: np.random.Generator) -> list[int]:
    """One selection for each quantile, at an equal share of the cost: what libraries with a private quantile do."""
    return [alone(counts, q, RHO / len(asked), rng) for q in asked]


def recursive(counts: Counts, asked: list[float], rng: np.random.Generator) -> list[int]:
    """The middle quantile first, then those of the rows on either side of it: a row is in one part at each depth.

    The paper's rows are different real numbers, so each row lies anywhere in its cell: between two neighbouring rows the
    utility is the same, and a point there is drawn uniformly. A sketch for accuracy, and not private.

    Source: Kaplan, Schnapp and Stemmer, Differentially private approximate quantiles, 2022, Algorithm 1.
    """
    scale = math.sqrt(8 * RHO / (math.floor(math.log2(len(asked))) + 1)) / 2
    rows = np.sort(np.repeat(np.arange(len(counts)), counts) + rng.random(counts.sum()))
    found: list[int] = []

    def split(part: np.ndarray, low: float, high: float, quantiles: list[float], start: float, end: float) -> None:
        """Quantiles among the rows from low to high, which lie between the quantiles start and end."""
        if not quantiles:
            return
        q = quantiles[len(quantiles) // 2]
        inside = (q - start) / (end - start)
        ends = np.concatenate([[low], part, [high]])
        utility = -np.abs(np.arange(len(part) + 1) - inside * len(part)) / max(inside, 1 - inside)
        with np.errstate(divide="ignore"):
            drawn = int(np.argmax(scale * utility + np.log(np.diff(ends)) + rng.gumbel(size=len(utility))))
        point = rng.uniform(ends[drawn], ends[drawn + 1])
        split(part[:drawn], low, point, quantiles[: len(quantiles) // 2], start, q)
        found.append(min(int(point), len(counts) - 1))
        split(part[drawn:], point, high, quantiles[len(quantiles) // 2 + 1 :], q, end)

    split(rows, 0.0, float(len(counts)), asked, 0.0, 1.0)
    return found


def prefixes(counts: Counts, rng: np.random.Generator, share: float = 1.0) -> Prefixes:
    """Draws of what dp_quantiles measures and fits, in doubles, at a share of the cost."""
    domain = Domain({"a": len(counts)})
    plan = duckdb_dp.plan(Workload.product(domain, {"a": "prefix"}), rho=RHO * share)
    suffix = replace(plan, workload=Workload.product(domain, {"a": "suffix"}))
    (measured,) = plan.measurements
    exact = measured.strategy.matvec(counts.astype(float))
    noisy = exact[:, None] + rng.normal(0, math.sqrt(measured.variance), (len(exact), DRAWS))
    found = np.cumsum(measured.strategy.estimate(noisy), axis=0).T
    return Prefixes(
        counts=found,
        variances=np.broadcast_to(plan.variance(0), found.shape),
        suffix_variances=np.broadcast_to(np.append(np.asarray(suffix.variance(0))[1:], 0.0), found.shape),
        width=plan.quantile,
    )


def ours(counts: Counts, asked: list[float], expected: np.ndarray, rng: np.random.Generator) -> list[int]:
    """Mechanism 'select', by the exact sampler, beside prefixes that take their part of the cost.

    Args:
        counts: of the cells.
        asked: the quantiles.
        expected: draws of the cells that those prefixes tell, of which one is taken.
        rng: takes it.
    """
    rule = {"cost": RHO * (1 - INTERVALS), "accounting": ZCDP, "rows": 1, "bits": SystemEntropy()}
    return [int(point) for point in selected(counts, expected[rng.integers(len(expected))], asked, **rule)]


def opendp_quantiles(counts: Counts, asked: list[float], rows: list[float]) -> list[int]:
    """OpenDP's private quantile, once for each at an equal share of the cost."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    candidates = [float(cell) for cell in range(len(counts))]
    found = []
    for q in asked:
        made = dp.binary_search_chain(
            lambda scale, q=q: dp.m.make_private_quantile(
                *space, dp.zero_concentrated_divergence(), candidates, q, scale
            ),
            d_in=1,
            d_out=RHO / len(asked),
            T=float,
        )
        found.append(int(made(rows)))
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [1_000, 10_000])
def test_rank_error(report: Callable[[str], None], n: int, shape: str) -> None:
    rng = np.random.default_rng(5)
    counts = SHAPES[shape](n, rng)
    released, beside = prefixes(counts, rng), prefixes(counts, rng, INTERVALS)
    expected = np.diff(beside.fitted(), axis=1, prepend=0.0)
    rows = np.repeat(np.arange(n), counts).astype(float).tolist()
    known = importlib.util.find_spec("opendp") is not None
    for number in (1, 9, 99):
        asked = [(place + 1) / (number + 1) for place in range(number)]
        cells = released.quantiles(asked)[:, :, 0].astype(int).tolist()
        drawn = {
            "prefixes": cells,
            "select": [ours(counts, asked, expected, rng) for _ in range(DRAWS)],
            "recursive": [recursive(counts, asked, rng) for _ in range(DRAWS)],
            "separate": [separate(counts, asked, rng) for _ in range(DRAWS)],
        }
        if known:  # it takes its time
            drawn["opendp"] = [
                opendp_quantiles(counts, asked, rows) for _ in range(DRAWS if number == 1 else 40 // number + 1)
            ]
        auto = "select" if better(n, number) else "prefixes"
        errors = {
            name: [np.mean([error(counts, q, cell) for q, cell in zip(asked, draw, strict=True)]) for draw in draws]
            for name, draws in drawn.items()
        }
        told = ", ".join(f"{name} {np.mean(e):.2f} ±{np.std(e) / math.sqrt(len(e)):.2f}" for name, e in errors.items())
        missing = "" if known else "; opendp is not installed"
        report(f"{shape}, {n:,} cells, {number} quantiles, 'auto' is {auto}: mean rank error of {told}{missing}")
