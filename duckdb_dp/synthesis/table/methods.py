"""A synthetic table from one private table: measure, fit, draw records. The last two are post-processing."""

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct import pgm
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.reconstruct.likeness import UNKNOWN, Likeness
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.table import fitting, graphical, pairs, records, singles
from duckdb_dp.synthesis.table.forest import Forest, candidates
from duckdb_dp.synthesis.table.model import Estimated, Model, estimable, estimate
from duckdb_dp.synthesis.table.tails import without_tail

Method = Literal["forest", "mst", "aim"]

METHODS: tuple[Method, ...] = get_args(Method)

GROUPED = "grouped"
"""Note in a release's detail: (attribute, attribute, groups, groups) of each pair that was measured in groups of neighbouring values."""

MOST_ROWS = 10**8

MOST_VALUES = 10**9
"""Rows times attributes: 4 GB of cell numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to synthesise.

    Attributes:
        method: 'forest' (needs no extra), 'mst' or 'aim' (by mbi).
        rounds: 'forest': how often all pairs are scored and some measured, by default 3; where 'neyman' cannot do that, how
            many pairs are measured, by default 3 for each attribute.
        sweeps: 'forest': steps per attribute by which records are fitted; by default as many as take a second or two, or up to ten.
        order: 'aim': the workload is all marginals of that many attributes.

    Raises:
        DPError: an unknown method, or a number out of range.
    """

    method: Method = "forest"
    rounds: int | None = None
    sweeps: int | None = None
    order: int = 2

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise DPError(
                f"method {as_sql(self.method)} is not known; use {', '.join(map(repr, METHODS[:-1]))} or 'aim'."
            )
        for name, value, most in (
            ("rounds", self.rounds, 10**6),
            ("sweeps", self.sweeps, 10**4),
            ("order", self.order, 4),
        ):
            if value is not None and not (type(value) is int and 1 <= value <= most):
                raise DPError(f"{name} := {as_sql(value)} is out of range; use a whole number from 1 to {most:,}.")


DEFAULT = Options()


def cliques(domain: Domain, options: Options = DEFAULT) -> tuple[Clique, ...]:
    """The marginals that may be measured or compared, which have to be counted; a function of the domain alone."""
    alone = tuple((name,) for name in domain.attributes)
    if options.method == "aim":
        return tuple(dict.fromkeys([*alone, *graphical.closure(graphical.workload(domain, options.order))]))
    return (*alone, *(graphical.workload(domain, 2) if options.method == "mst" else candidates(domain)))


def too_large(domain: Domain, options: Options = DEFAULT) -> list[Clique]:
    """The pairs of attributes that have too many cells to be measured, alone or all together; a function of the domain alone."""
    held = set(cliques(domain, options))
    pairs = itertools.combinations(domain.attributes, 2)
    return [pair for pair in pairs if min(domain.shape(pair)) > 1 and pair not in held]


def check(domain: Domain, rows: int | None, options: Options = DEFAULT) -> None:
    """Refuse a synthesis that cannot be done, before anything is charged.

    Raises:
        DPError: no attributes, a number of rows out of range, no marginal to measure, or a library that is not installed.

    Privacy: costs nothing.
    """
    if not domain.attributes:
        raise DPError("synthesis needs at least one attribute; declare one: CALL dp_attribute(...).")
    if rows is not None and not (isinstance(rows, int) and not isinstance(rows, bool) and 0 <= rows <= MOST_ROWS):
        raise DPError(f"rows := {as_sql(rows)} is out of range; use a whole number from 0 to {MOST_ROWS:,}.")
    if rows is not None and rows * len(domain.attributes) > MOST_VALUES:
        raise DPError(
            f"rows := {rows} of {len(domain.attributes)} attributes are {rows * len(domain.attributes):,} values, and up to "
            f"{MOST_VALUES:,} fit into memory; up to rows := {MOST_VALUES // len(domain.attributes)} works."
        )
    if options.method == "aim" and not graphical.workload(domain, options.order):
        raise DPError(
            f"method 'aim' finds no marginal of {options.order} attributes with at most {graphical.CELLS:,} cells; "
            f"declare coarser bins or use method := 'forest'."
        )
    if options.method != "forest":
        pgm.require()


def measure(queryable: PrivateQueryable, options: Options = DEFAULT, track: Track = silent) -> list[LinearMeasurement]:
    """All noisy measurements of a synthesis, with all that ``queryable`` has left; nothing else depends on the data.

    Privacy: spends ``queryable.left``.
    """
    if options.method == "mst":
        return graphical.mst(queryable, track=track)
    if options.method == "aim":
        return graphical.aim(queryable, order=options.order, track=track)
    return _measure_forest(queryable, options, track)[0]


def _measure_forest(
    queryable: PrivateQueryable, options: Options, track: Track, alike: Mapping[str, Likeness] | None = None
) -> tuple[list[LinearMeasurement], Model]:
    """The measurements of method 'forest', and the estimates that were made of them on the way.

    'neyman' measures all pairs, where it can. A forest grows where there are too many pairs, or too large ones.
    """
    if estimable(queryable.domain, queryable.left, queryable.accounting, queryable.rows, options.rounds):
        return estimate(queryable, options.rounds, track, alike)
    measured = [singles.measure_total(queryable, queryable.left * singles.TOTAL_SHARE)]
    share = singles.singles_share(queryable.domain, float(measured[0].answers[0]), queryable.left, queryable.rows)
    if not candidates(queryable.domain):
        share = 1.0
    measured += singles.measure_singles(queryable, queryable.left * share)
    forest = Forest(queryable.domain, *singles.fit_singles(queryable.domain, measured))
    if share < 1:
        measured += pairs.measure_pairs(queryable, forest, queryable.left, track, options.rounds)
    return measured, forest


def generate(
    domain: Domain,
    measured: Sequence[LinearMeasurement],
    rows: int | None,
    *,
    options: Options = DEFAULT,
    rng: np.random.Generator,
    track: Track = silent,
    forest: Model | None = None,
) -> tuple[Codes, dict[str, Any]]:
    """Records that fit measurements, and details about them.

    Args:
        domain: the domain.
        measured: what ``measure`` returned, in its order.
        rows: how many; by default the noisy number of rows, or ``MOST_ROWS`` where that is less.
        options: as for ``measure``.
        rng: random numbers; the same ones give the same records.
        track: shows progress.
        forest: the estimates of method 'forest' where they are known; else they are made again, the same ones.

    Returns:
        (cell numbers, shape (rows, attributes); details: method, total, measured cliques, the pairs of the tree).

    Privacy: post-processing.
    """
    if options.method == "forest":
        total, sample, more = _forest(forest or _grown(domain, measured), options, rng, track)
    else:
        total, sample, more = _graphical(domain, measured, rng, track)
    rows = min(round(total), MOST_ROWS) if rows is None else rows
    chosen = [one.clique for one in measured]
    return sample(rows), {"method": options.method, "total": total, "measured": chosen, **more}


def synthesize(
    queryable: PrivateQueryable,
    *,
    rows: int | None = None,
    options: Options = DEFAULT,
    rng: np.random.Generator,
    track: Track = silent,
    alike: Mapping[str, Likeness] | None = None,
    tails: Collection[str] = (),
) -> tuple[Codes, dict[str, Any]]:
    """Measure and generate.

    Args:
        queryable, rows, options, rng, track: as for ``measure`` and ``generate``.
        alike: which values of an attribute are, so that these may be measured together; what is between groups of an order is smooth.
        tails: attributes of which the last ordered values have no rows where noise alone explains them, with method 'forest'.

    Raises:
        DPError: the options are not possible for this domain.

    Privacy: spends ``queryable.left``.
    """
    check(queryable.domain, rows, options)
    forest = None
    if options.method == "forest":
        measured, forest = _measure_forest(queryable, options, track, alike)
    else:
        measured = measure(queryable, options, track)
    codes, detail = generate(queryable.domain, measured, rows, options=options, rng=rng, track=track, forest=forest)
    noise = {one.clique: one.variance for one in measured if len(one.clique) == 1}
    for place, name in enumerate(queryable.domain.attributes):
        if name in tails and forest is not None and (name,) in noise:
            single = forest.singles[name][: (alike or {}).get(name, UNKNOWN).ordered]
            codes[:, place] = without_tail(codes[:, place], single, noise[name,], rng)
    return codes, detail


def groups(detail: Mapping[str, Any]) -> dict[Clique, tuple[int, ...]]:
    """Of each pair that was measured, in both orders: in how many groups of neighbouring values of each; () where each value is one."""
    found: dict[Clique, tuple[int, ...]] = {
        pair: () for clique in detail["measured"] for pair in itertools.permutations(clique, 2)
    }
    for one, other, *counts in detail.get(GROUPED, ()):
        found |= {(one, other): tuple(counts), (other, one): tuple(reversed(counts))}
    return found


Sample = Callable[[int], Codes]


def _grown(domain: Domain, measured: Sequence[LinearMeasurement]) -> Forest:
    """The estimates that measurements give, taken in their order."""
    forest = Forest(domain, *singles.fit_singles(domain, [one for one in measured if len(one.clique) < 2]))
    pairs.grow(forest, (one for one in measured if len(one.clique) == 2))
    return forest


def _forest(
    forest: Model, options: Options, rng: np.random.Generator, track: Track
) -> tuple[float, Sample, dict[str, Any]]:
    def sample(rows: int) -> Codes:
        few = records.draw(forest, records.fitted(rows), rng)
        if not rows:
            return few
        targets = records.farthest(few, forest.domain, forest.fitted)
        fitted = fitting.fit(few, forest.domain, targets, rng, options.sweeps, track)
        return fitted if rows == len(fitted) else records.copies(fitted, rows, rng)

    grouped = forest.grouped if isinstance(forest, Estimated) else {}
    return forest.total, sample, {"tree": list(forest.edges), GROUPED: [[*pair, *m] for pair, m in grouped.items()]}


def _graphical(
    domain: Domain, measured: Sequence[LinearMeasurement], rng: np.random.Generator, track: Track
) -> tuple[float, Sample, dict[str, Any]]:
    fitted = pgm.fit(domain, measured, memory=math.inf, start=graphical.start(domain, measured), track=track)
    return (
        fitted.tree.total,
        lambda rows: fitted.tree.sample(rows, rng),
        {"tree": list(fitted.tree.cliques), "loss": fitted.loss},
    )
