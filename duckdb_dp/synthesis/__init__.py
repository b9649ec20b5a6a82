"""The orchestration of synthesis: request -> charge -> measure through the door -> draw -> store."""

from collections.abc import Sequence
from typing import Any

from duckdb_dp.accounting.ledger import Dataset, Ledger, Release
from duckdb_dp.answers import price
from duckdb_dp.counting.counts import Counts
from duckdb_dp.errors import DPError
from duckdb_dp.noise.bits import EntropySource
from duckdb_dp.private import perform
from duckdb_dp.progress import Track, silent
from duckdb_dp.request import Request
from duckdb_dp.synthesis import link_rows, quality, rows
from duckdb_dp.synthesis.base import SyntheticTable

__all__ = ["SyntheticTable", "check", "exact_quality", "links", "quality", "rows", "synthesis"]


def check(request: Request) -> None:
    """Refuse what no synthesis could do, before anything is charged.

    Raises:
        DPError: pure DP, or what the method itself refuses.
    """
    if request.cost and price(request).beta is None:
        raise DPError(
            "synthetic rows are made and scored with Gaussian noise, which has no pure epsilon (delta 0); protect the table "
            "with a delta, e.g. delta := 1e-9."
        )
    if request.function == "dp_synthesize":
        rows.check(request)
    if request.function == "dp_links":
        link_rows.check(request)


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
    kept: bool = True,
) -> Release:
    """Draw or score what a request asks for from exact counts, charging it unless it was charged before.

    Args:
        request: of dp_synthesize, dp_links or dp_quality.
        counts: the exact counts.
        ledger, dataset, bits, name, fresh_key, track: as in ``release``.
        tables: the synthetic tables that the request is about.
        kept: whether the promised bound on links holds.

    Raises:
        DPError: the synthetic tables do not do, or the promise is broken; nothing is charged then.

    Privacy: spends request.cost of the dataset's budget, once per request (once more for each ``fresh_key``).
    """
    if request.function == "dp_synthesize":
        run = rows.run(request, track)
    else:
        module: Any = link_rows if request.function == "dp_links" else quality
        module.check_tables(request, tables, kept)
        run = module.run(request, tables, track)
    return perform(
        run,
        counts,
        request=request,
        mechanism=request.mechanism,
        ledger=ledger,
        dataset=dataset,
        bits=bits,
        name=name,
        fresh_key=fresh_key,
    )


def exact_quality(request: Request, counts: Counts, tables: Sequence[SyntheticTable], kept: bool) -> dict[str, Any]:
    """A dp_quality without noise, for the curator's eyes only; charged nothing.

    Privacy: NONE. What it returns says so.
    """
    quality.check_tables(request, tables, kept)
    return quality.exact(request, counts, tables)
