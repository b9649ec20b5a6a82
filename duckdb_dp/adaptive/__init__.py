"""Adaptive mechanisms: they choose what to measure from earlier noisy measurements."""

from collections.abc import Callable, Mapping

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.adaptive import aim as _aim
from duckdb_dp.adaptive import neyman as _neyman
from duckdb_dp.adaptive.base import SELECTION as _SELECTION
from duckdb_dp.adaptive.base import Options, Outcome
from duckdb_dp.domain.workload import Workload

__all__ = ["CHECKS", "MECHANISMS", "SELECTING", "Options", "Outcome", "check"]

MECHANISMS: Mapping[str, Callable[..., Outcome]] = {"aim": _aim.aim, "neyman": _neyman.neyman}
"""(queryable, workload, options, *, prior, track) -> Outcome."""

SELECTING: Mapping[tuple[str, str], float] = {
    ("dp_marginals", "aim"): _SELECTION,
}
"""(function, mechanism) -> the share of its budget that is planned for selections; public."""

CHECKS: Mapping[str, Callable[..., None]] = {"aim": _aim.check, "neyman": _neyman.check}


def check(
    workload: Workload, options: Options, rho: float, accounting: Accounting, *, mechanism: str = "aim", rows: int = 1
) -> None:
    """Refuse what a mechanism cannot do, before anything is charged.

    Args:
        workload: what is asked.
        options: the options.
        rho: the budget; mu^2 / 2 in Gaussian DP.
        accounting: the dataset's; not the pure one.
        mechanism: a key of ``MECHANISMS``.
        rows: rows of one privacy unit.

    Raises:
        DPError: as the mechanism's own check.

    Privacy: depends on public facts only.
    """
    CHECKS[mechanism](workload, options, rho, accounting, rows=rows)
