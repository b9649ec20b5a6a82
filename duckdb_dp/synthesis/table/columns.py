"""dp_synthesize: from a request to the stored columns of a synthetic table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from duckdb_dp.answers import DETAIL, to_bytes
from duckdb_dp.domain.differences import DIFFERENCES
from duckdb_dp.domain.domain import Attribute, Clique
from duckdb_dp.domain.turns import TURNS
from duckdb_dp.domain.types.moments import Moment
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.linop.threads import one_thread
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.reconstruct.likeness import ALIKE, Likeness
from duckdb_dp.request import Request
from duckdb_dp.synthesis.base import Run, SyntheticTable, generator
from duckdb_dp.synthesis.table import first_rows, methods
from duckdb_dp.synthesis.table.by_difference import Apart
from duckdb_dp.synthesis.table.in_order import IN_ORDER, SAID, in_order, orders
from duckdb_dp.synthesis.table.missing import with_both

LEAST = 1e-16
"""Cost under which rows are not made unless their number is given: it would be noise of more than 10^8."""

DEFAULT = methods.Options()
"""The built-in method, as it comes."""

SHARES = "shares"
"""Note in a release's detail: its bins are stored as cell numbers with a share of the way through the bin."""

UNMEASURED = (1, 1)
"""In how many groups both attributes of a pair are told apart that was not measured."""

ROUNDED = "rounded"
"""Note in a release's detail: its values are as coarse as ``counting.encode.decode`` makes them; without it they have all digits."""


def options(request: Request) -> methods.Options:
    """How the rows are made."""
    given: dict[str, Any] = {
        name: value
        for name, value in request.options
        if name not in ("rows", IN_ORDER, SAID, DIFFERENCES, ALIKE, TURNS)
    }
    return methods.Options(method=request.mechanism, **given)  # type: ignore[arg-type]  # it checks the word itself


def check(request: Request) -> None:
    """Refuse what cannot be done, before anything is charged.

    Raises:
        DPError: as ``methods.check``; or a cost at which the number of rows is nothing but noise.
    """
    if request.cost < LEAST and "rows" not in dict(request.options):
        raise DPError(
            f"a cost of {request.cost:g} would give a number of rows that is nothing but noise; ask for a cost (rho, or mu^2) of "
            f"{LEAST:g} or more, or give rows."
        )
    methods.check(request.domain, dict(request.options).get("rows"), options(request))


def cliques(request: Request) -> tuple[Clique, ...]:
    """The marginals that may be measured, and so have to be counted."""
    found, turns = methods.cliques(request.domain, options(request)), request.turns
    return found if turns is None else tuple((*clique, turns.name) for clique in ((), *found))


def too_large(request: Request) -> list[Clique]:
    """The pairs of attributes that have too many cells to be measured; public."""
    return methods.too_large(request.domain, options(request))


def check_tables(request: Request, tables: Sequence[SyntheticTable], bound_holds: bool) -> None:
    """Does nothing: the rows of a table do not depend on other tables."""


def run(request: Request, tables: Sequence[SyntheticTable], track: Track) -> Run:
    """The function that draws the rows.

    Privacy: spends all that ``queryable`` has left.
    """

    def drawn(queryable: PrivateQueryable) -> Mapping[str, Array]:
        rng = generator(queryable)
        rows, turns, first = dict(request.options).get("rows"), request.turns, dict[str, int]()
        with one_thread(with_scipy=True):
            if turns is not None:
                some = first_rows.chosen(queryable, turns)
                queryable, first = some.queryable, {TURNS: some.number}
                rows = min(round(some.total), methods.MOST_ROWS) if rows is None else rows
            codes, detail = methods.synthesize(
                queryable,
                rows=rows,
                options=options(request),
                rng=rng,
                track=track,
                alike=alike(request),
                tails=[one.name for one in request.differences],
            )
        codes = codes[rng.permutation(len(codes))]
        columns = stored(request, request.attributes, [*codes.T], rng, methods.groups(detail))
        return {
            DETAIL: to_bytes({"rows": len(codes), SHARES: True, ROUNDED: True, **first, **detail}),
            **{str(i): column for i, column in enumerate(columns)},
        }

    return drawn


def alike(request: Request) -> dict[str, Likeness]:
    """Which values of each attribute are alike: those in an order, or as a request says of keys of public tables."""
    said = {name: groups for name, _, _, groups in dict(request.options).get(ALIKE, ())}
    return {
        one.name: Likeness(ordered=ordered(one), ways=tuple(np.array(group) for group in said.get(one.name, ())))
        for one in request.counted
    }


def ordered(attribute: Attribute) -> int:
    """How many of its first values are in an order: bins, whole numbers and days from below, not 'other' and NULL."""
    return attribute.base if attribute.kind != "values" or _days(attribute) else 0


def _days(attribute: Attribute) -> bool:
    """Whether values are moments from below, as days by low and high are."""
    if not isinstance(attribute.dtype, Moment):
        return False
    amounts = attribute.dtype.amounts(attribute.points)
    return amounts == sorted(amounts)


def stored(
    request: Request,
    attributes: Sequence[Attribute],
    codes: Sequence[Codes],
    rng: np.random.Generator,
    groups: Mapping[Clique, tuple[int, ...]] | None = None,
) -> list[Array]:
    """Drawn columns as the numbers that are stored, in the order that is public of them.

    Args:
        request: what was asked.
        attributes: of the columns.
        codes: their cells, and after them those of the request's differences.
        rng: random numbers.
        groups: as ``methods.groups``; None where that is not known.

    Privacy: post-processing.
    """
    own, more = codes[: len(attributes)], codes[len(attributes) :]
    if more:
        own, more = with_both(attributes, own, dict(zip(request.differences, more, strict=True)), rng)
    columns = [values(attribute, each, rng) for attribute, each in zip(attributes, own, strict=True)]
    apart = {
        (one.low.name, one.high.name): Apart(
            difference=one,
            codes=each,
            leaning=_leaning(one.attribute, each),
            groups=() if groups is None else groups.get((one.low.name, one.high.name), UNMEASURED),
        )
        for one, each in zip(request.differences, more, strict=True)
    }
    return in_order(attributes, own, columns, orders(request), rng, apart)


def values(attribute: Attribute, codes: Codes, rng: np.random.Generator) -> Array:
    """A drawn column as the numbers that are stored: cell numbers, in bins with a share of the way through the bin.

    Whatever type the column has, ``counting.encode.decode`` finds a value in the bin by it: 3.25 is a quarter through bin 3. In a bin the
    density is a line that leans as the bins beside it say: with t from ``leaning``, the share u has F(u) = u + t (u^2 - u).

    Privacy: post-processing.
    """
    cells = np.asarray(codes, dtype=np.float64)
    if attribute.kind != "bins":
        return cells
    even, t = rng.random(len(cells)), _leaning(attribute, codes)[codes]
    share = 2 * even / (1 - t + np.sqrt((1 - t) ** 2 + 4 * t * even))
    return np.minimum(cells + share, np.nextafter(cells + 1, 0))


def _leaning(attribute: Attribute, codes: Codes) -> Array:
    """How the density leans in each cell of bins of which these were drawn; 0 of 'other' and NULL."""
    bins = len(attribute.points) - 1
    held = np.bincount(np.asarray(codes, dtype=np.int64), minlength=bins)[:bins].astype(np.float64)
    return np.pad(leaning(np.array(attribute.dtype.amounts(attribute.points), np.float64), held), (0, 2))


def leaning(edges: Array, counts: Array) -> Array:
    """How the density leans in each bin, in [-1, 1]: it is 1 - t of its mean where the bin begins, and 1 + t where it ends.

    The slope of a bin is the smaller one of those towards its neighbours, 0 at a peak or a valley, and at the ends that towards the only
    one: a limited slope, as of finite volumes. 0 where bins are too wide for doubles.

    Privacy: post-processing of noisy counts, at no cost.
    """
    if len(counts) < 2:
        return np.zeros(len(counts))
    with np.errstate(all="ignore"):
        widths, middles = np.diff(edges), edges[:-1] / 2 + edges[1:] / 2
        density = counts / widths
        slopes = np.diff(density) / np.diff(middles)
        before, after = np.concatenate([slopes[:1], slopes]), np.concatenate([slopes, slopes[-1:]])
        slope = np.where(before * after > 0, np.sign(before) * np.minimum(np.abs(before), np.abs(after)), 0.0)
        t = np.clip(slope * widths / (2 * density), -1, 1)
    return np.where(np.isfinite(t), t, 0.0)
