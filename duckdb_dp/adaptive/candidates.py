"""The candidates of an adaptive mechanism, their weights, and the limits that are checked before anything is charged."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import final

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError, few

LARGEST_CLOSURE = 200_000
"""Most marginals in a workload's closure: each is scored in the first round."""

LARGEST_MARGINAL = 2**26
"""Most cells of one marginal: while it is measured, 51 bytes a cell are held, 3.2 GiB."""

HELD_PAIRS = 2**25
"""Most cells of all pairs that are held at once, 96 bytes a cell with all that goes with them, 3 GiB."""

LARGEST_NOISE = 1e9
"""Largest standard deviation, in rows, of the first 1-way counts: beyond that they say nothing of any table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A marginal that may be selected.

    Attributes:
        clique: its attributes.
        weight: how much its error matters for the workload.
        cells: number of its cells.
    """

    clique: Clique
    weight: float
    cells: int


def targets(workload: Workload, max_cells: int | None = None) -> tuple[Target, ...]:
    """All subsets of the workload's marginals that have residuals and are not too large.

    The weight of gamma is sum over workload marginals pi of weight_pi |gamma & pi|, here the sum over gamma's attributes
    of the weights of the marginals that have them; scaled to a largest weight of 1. A set with an attribute of one value
    is the same marginal as without it, and is not a target of its own.

    Source: [AIM+GReM] appendix F.1.
    """
    weights, domain = attribute_weights(workload), workload.domain
    weighted = [
        (clique, math.fsum(weights[name] for name in clique))
        for clique in workload.closure
        if clique and alive(domain, clique) and domain.cells(clique) <= (max_cells or math.inf)
    ]
    largest = max((weight for _, weight in weighted), default=1.0)
    return tuple(
        Target(clique=clique, weight=weight / largest, cells=domain.cells(clique)) for clique, weight in weighted
    )


def attribute_weights(workload: Workload) -> dict[str, float]:
    """For each attribute: the sum of the weights of the workload's marginals that have it."""
    total: dict[str, float] = defaultdict(float)
    for clique, weight in workload.weights.items():
        for name in clique:
            total[name] += weight
    return dict(total)


def alive(domain: Domain, clique: Clique) -> bool:
    """Whether every attribute has more than one value, so that the clique has a residual."""
    return all(domain.sizes[name] > 1 for name in clique)


def singles(workload: Workload) -> tuple[str, ...]:
    """The workload's attributes of more than one value, in the domain's order."""
    asked = {name for clique in workload.cliques for name in clique}
    return tuple(name for name, size in workload.domain.sizes.items() if name in asked and size > 1)


@final
class Above:
    """Finds the cliques that contain one of a few others, and so depend on a measured residual."""

    def __init__(self, cliques: Iterable[Clique]) -> None:
        self._all = frozenset(cliques)
        self._with: dict[str, set[Clique]] = defaultdict(set)
        for clique in self._all:
            for name in clique:
                self._with[name].add(clique)

    def __call__(self, measured: Iterable[Clique]) -> frozenset[Clique]:
        """The cliques that contain one of the measured ones."""
        return frozenset[Clique]().union(*map(self._one, measured))

    def _one(self, tau: Clique) -> Set[Clique]:
        sets = sorted((self._with.get(name, set()) for name in tau), key=len)
        return sets[0].intersection(*sets[1:]) if sets else self._all


def check_closure(workload: Workload) -> None:
    """Refuse a workload that is not made of marginals, or has too many subsets, before they are listed.

    Raises:
        DPError: as said.

    Privacy: depends on public facts only, as all checks here.
    """
    largest = max(workload.weights, key=len)
    if sum(2 ** len(clique) for clique in workload.cliques) <= LARGEST_CLOSURE:
        return
    if 2 ** len(largest) > LARGEST_CLOSURE or len(workload.closure) > LARGEST_CLOSURE:
        raise DPError(
            f"an adaptive mechanism scores every subset of the marginals asked for: more than {LARGEST_CLOSURE:,} here, "
            f"the largest marginal with {len(largest)} attributes; ask for fewer or smaller ones."
        )


def check_cells(workload: Workload, max_cells: int | None) -> None:
    """Refuse a limit of cells that excludes a 1-way marginal.

    Raises:
        DPError: as said.
    """
    sizes = workload.domain.sizes
    widest = max(singles(workload), key=sizes.__getitem__, default=None)
    if max_cells is not None and widest is not None and sizes[widest] > max_cells:
        raise DPError(
            f"max_cells := {max_cells} leaves out the 1-way marginal of '{widest}', which comes first; "
            f"at least {sizes[widest]} works."
        )


def check_memory(domain: Domain, cliques: Iterable[Clique], *, together: bool = False) -> None:
    """Refuse marginals that do not fit into memory: any single one, or all that are held together.

    Raises:
        DPError: as said, with the limit of cells that works.
    """
    cells = {clique: domain.cells(clique) for clique in cliques}
    largest = max(cells, key=cells.__getitem__, default=())
    if cells and cells[largest] > LARGEST_MARGINAL:
        alone = len(largest) == 1
        works = (
            "declare coarser bins"
            if alone
            else f"max_cells := {LARGEST_MARGINAL} leaves it out, or declare coarser bins"
        )
        raise DPError(
            f"the marginal of {few(largest)} has {cells[largest]:,} cells, and up to {LARGEST_MARGINAL:,} fit into "
            f"memory (3.2 GiB); {works}."
        )
    if together and sum(cells.values()) > HELD_PAIRS:
        sizes = sorted(cells.values())
        most = next(n for n, held in zip(sizes, itertools.accumulate(sizes), strict=True) if held > HELD_PAIRS) - 1
        raise DPError(
            f"the pairs have {sum(cells.values()):,} cells together, and up to {HELD_PAIRS:,} fit into memory (3 GiB); "
            f"max_cells := {most} leaves the largest out, or use mechanism := 'aim'."
        )


def check_first_noise(variance: float, rho: float, accounting: Accounting) -> None:
    """Refuse a budget whose first counts would have noise beyond the size of any table.

    Args:
        variance: of the first 1-way counts.
        rho: the budget; variance falls as 1 / rho.
        accounting: says how to type a budget.

    Raises:
        DPError: as said, with the least budget that works.
    """
    if variance <= LARGEST_NOISE**2:
        return
    least = rho * variance / LARGEST_NOISE**2 * (1 + 1e-9)
    ((name, amount),) = accounting.typed(accounting.gaussian_cost(2 * least)).items()
    raise DPError(
        f"the budget is too small: the first 1-way counts would have noise of {math.sqrt(variance):.1e} rows; "
        f"at least {name} := {_up(amount)} works."
    )


def _up(number: float) -> str:
    """Three digits, rounded up."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / unit) * unit:.3g}"
