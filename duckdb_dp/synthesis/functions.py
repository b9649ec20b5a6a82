"""The SQL functions of synthesis: checks before anything is charged, then charge, measure, fit, draw, and store."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from duckdb_dp.accounting.ledger import Dataset, Ledger, Release
from duckdb_dp.answers import price
from duckdb_dp.counting.counts import Counts
from duckdb_dp.errors import DPError
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.private import perform
from duckdb_dp.progress import Track, silent
from duckdb_dp.request import Request
from duckdb_dp.synthesis import discovery, quality, running
from duckdb_dp.synthesis.base import Run, SyntheticTable
from duckdb_dp.synthesis.links import adaptive_links, mwem_pgd
from duckdb_dp.synthesis.links import columns as link_columns
from duckdb_dp.synthesis.table import columns as table_columns
from duckdb_dp.synthesis.table import graphical, pairs


class Synthesis(Protocol):
    """The interface of one SQL function of synthesis; each is a module."""

    def check(self, request: Request) -> None:
        """Refuse a request that cannot be done, before anything is read or charged."""

    def check_tables(self, request: Request, tables: Sequence[SyntheticTable], bound_holds: bool) -> None:
        """Refuse synthetic tables that cannot be used, before anything is charged."""

    def run(self, request: Request, tables: Sequence[SyntheticTable], track: Track) -> Run:
        """The function that measures, fits and draws: from a ``PrivateQueryable`` to the columns that are stored."""


FUNCTIONS: Mapping[str, Synthesis] = {
    "dp_synthesize": table_columns,
    "dp_links": link_columns,
    "dp_quality": quality,
    "dp_discover": discovery,
    "dp_running": running,
}
"""The modules of synthesis by the name of their SQL function."""

SELECTING: Mapping[tuple[str, str], float] = {
    ("dp_synthesize", "forest"): pairs.SELECTING,
    ("dp_synthesize", "mst"): 1 / 3,
    ("dp_synthesize", "aim"): graphical.SELECTING,
    ("dp_links", "auto"): adaptive_links.PROBES * adaptive_links.CHOOSING,
    ("dp_links", "paper"): mwem_pgd.SELECTING,
    ("dp_links", "sliced"): mwem_pgd.SELECTING,
}
"""(function, method) -> the share of its budget that is planned for selections, at most; public."""


def check(request: Request) -> None:
    """Refuse what no synthesis could do, before anything is charged.

    Raises:
        DPError: the accounting is pure DP, or the method refuses the request.
    """
    if request.cost and price(request).beta is None:
        raise DPError(
            "synthetic rows are made and scored with Gaussian noise, which has no pure epsilon (delta 0); protect the table "
            "with a delta, e.g. delta := 1e-9."
        )
    FUNCTIONS[request.function].check(request)


def synthesis(
    request: Request,
    counts: Counts,
    *,
    ledger: Ledger,
    dataset: Dataset,
    bits: EntropySource,
    name: str | None = None,
    fresh_key: str | None = None,
    track: Track = silent,
    tables: Sequence[SyntheticTable] = (),
    bound_holds: bool = True,
) -> Release:
    """Draw or score what a request asks for, from exact counts; charge it unless it was charged before.

    Args:
        request: of a function of ``FUNCTIONS``.
        counts: the exact counts.
        ledger, dataset, bits, name, fresh_key, track: as in ``release``.
        tables: the synthetic tables that the request is about.
        bound_holds: whether the promised bound on links holds.

    Raises:
        DPError: the synthetic tables cannot be used, or the promise is broken; nothing is charged then.

    Privacy: spends request.cost of the dataset's budget, once per request (once more for each ``fresh_key``).
    """
    function = FUNCTIONS[request.function]
    function.check_tables(request, tables, bound_holds)
    return perform(
        function.run(request, tables, track),
        counts,
        request=request,
        mechanism=request.mechanism,
        ledger=ledger,
        dataset=dataset,
        bits=bits,
        name=name,
        fresh_key=fresh_key,
    )


def exact_quality(
    request: Request, counts: Counts, tables: Sequence[SyntheticTable], bound_holds: bool
) -> dict[str, Any]:
    """The scores of dp_quality without noise, for the curator only; nothing is charged.

    Privacy: NONE. What it returns says so.
    """
    quality.check_tables(request, tables, bound_holds)
    return quality.exact(request, counts, tables)
