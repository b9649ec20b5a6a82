"""How marginals are computed from measured residuals: unbiased, without negative counts, or fitted."""

from collections.abc import Callable, Iterable, Sequence

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.measurement import LinearMeasurement

MEMORY = 2**30
"""Bytes of marginals that are held at once."""

Read = Callable[[Clique], Array]
"""Gives one marginal of those wanted, of its shape."""


def _nonnegative(estimates: ResidualEstimates, wanted: Sequence[Clique], memory: float) -> Read:
    from duckdb_dp.reconstruct.nonneg import Nonnegative  # for import time: a first answer is unbiased

    return Nonnegative.fit(estimates, wanted, memory=memory).marginal


def _fitted(estimates: ResidualEstimates, wanted: Sequence[Clique], _memory: float) -> Read:
    from duckdb_dp.reconstruct.fitted import Fitted  # for import time

    return Fitted.fit(estimates, wanted).marginal


KINDS: dict[str, Callable[[ResidualEstimates, Sequence[Clique], float], Read]] = {
    "unbiased": lambda estimates, _wanted, _memory: estimates.marginal,
    "nonnegative": _nonnegative,
    "fitted": _fitted,
}
"""The ways to read marginals by name: (estimates, the marginals that will be read, bytes that may be held) -> reader."""


def postprocess(
    kind: str,
    domain: Domain,
    wanted: Sequence[Clique],
    residuals: Iterable[LinearMeasurement],
    *,
    memory: float = MEMORY,
) -> Read:
    """A reader of marginals, one at a time, from measured residuals of any mechanism.

    Args:
        kind: 'unbiased' (sums of the residuals), 'nonnegative' (on the simplex of the noisy total, nearly consistent)
            or 'fitted' (empirical Bayes). The last two are biased, and mostly much nearer.
        domain: the domain.
        wanted: the marginals that will be read; they are made to agree with one another. They need not be measured.
        residuals: measured residuals, several of one clique too; ``grem.decompose`` makes them of noisy marginals.
        memory: bytes of marginals that 'nonnegative' may hold; beyond that it works each out again.

    Raises:
        DPError: an unknown kind, or residuals that do not fit the domain.

    Privacy: post-processing.
    """
    check_kind(kind)
    return KINDS[kind](ResidualEstimates.of(domain, residuals), wanted, memory)


def check_kind(kind: str) -> None:
    """Refuse a post-processing that is not known.

    Raises:
        DPError: as said.
    """
    if kind not in KINDS:
        *others, last = map(as_sql, KINDS)
        raise DPError(f"postprocess {as_sql(kind)} is not known; use {', '.join(others)} or {last}.")
