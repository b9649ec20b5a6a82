"""Records changed one attribute at a time until they fit target marginals of pairs.

Formula: minimises sum over pairs and cells of (count - target)^2 / (target + 1). A step takes some of the records and one
attribute, and finds for each of them the value that lowers the sum most, were it alone; of these moves a random share t is
made, t the minimiser of the sum along the line to all of them. Where records get in each other's way t is small and most of a
step is in vain, so that steps then take fewer records: on Adult half as much time for the same error. Small steps of several
attributes are one step, with records of its own for each attribute: numpy takes longer for many calls than for many numbers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.synthesis.table.views import Costs, Pairs, View

PART, LEAST = 0.0125, 0.005
"""Share of the records that one step may move, at first and at least. At first nine in ten of the moves of a fifth of the records were in
vain, and the records got to the same distance in twice the time."""

USEFUL = 0.5
"""Share of a sweep's moves below which the next one takes half as many records."""

FEW = 32
"""Records of an attribute that a step may move at least: fewer take no less time."""

TOGETHER, APART = 100, 4
"""Records for each value up to which steps of several attributes are one, and one part in how many of the attributes they are at most: more
get in each other's way. So on 48 attributes of 2 to 20 values fitting takes 0.6 of the time of steps of one attribute, and on Adult as
long; the sum of squares ends 2 % lower, and the same."""

ENTRIES = 2**21
"""Numbers in the table of gains, (records, values), of one step: bounds how many records it may move."""

READING = 8
"""Gains that take as long as the rest of what a step does with a record and a pair."""

SWEEPS, WORK = 400, (1e9, 8e9)
"""Sweeps at most; and how much work ends them, a second or two, where the records are near, and ten seconds where they are not. On Adult,
whose pairs have an L1 error of 0.0189 at epsilon 4, 49 sweeps leave the records at 0.0286, 165 at 0.0225 and 400, in 0.7 seconds more, at
0.0202. On 60 attributes of 8 values and 120,000 rows, 0.0148, sweeps for two seconds leave them at 0.11, and for nine at 0.0151."""

NEAR, CLOSE = 1 / 8, 1 / 512
"""Mean of (count - target)^2 / (target + 1) over the cells that is near, and at which sweeps end: it is about 1 for as many rows that are
drawn from the targets."""

RUN = 0.5
"""How often every record has been tried in each attribute, about, where the records are near."""


def work(codes: Codes, sizes: tuple[int, ...]) -> float:
    """What it takes for a pair of attributes of these sizes until records are near it."""
    return RUN * len(codes) * (sum(sizes) + len(sizes) * READING)


def fit(
    codes: Codes,
    domain: Domain,
    targets: Mapping[Clique, Array],
    rng: np.random.Generator,
    sweeps: int | None = None,
    track: Track = silent,
) -> Codes:
    """Change the values of records, one attribute at a time, so that they fit target marginals of pairs.

    Args:
        codes: where to start, (rows, attributes); not changed.
        domain: the domain.
        targets: marginal of each pair to fit, any positive total.
        rng: random numbers.
        sweeps: steps per attribute; None for as many as ``SWEEPS``, ``WORK`` and ``NEAR`` say.
        track: shows progress.

    Returns:
        The records, (rows, attributes).

    Privacy: post-processing.
    """
    codes = codes.copy(order="C")  # whole records are read
    pairs, part = Pairs.of(codes, domain, targets), PART
    done, (short, long) = 0, WORK
    for _ in track(range(sweeps or SWEEPS), "fitting records"):
        if sweeps is None and (done > long or pairs.distance < CLOSE or (done > short and pairs.distance < NEAR)):
            break
        size, shares = min(max(int(part * len(codes)), FEW), len(codes)), []
        for view, few, each in _steps(pairs.views, size, len(codes), rng):
            records = rng.choice(len(codes), (len(few), each), replace=False)
            shares += _step(codes, view, few, records, pairs, rng).tolist()
            done += records.size * (READING + view.n) * view.others.shape[1]
        if part > LEAST and sum(shares) < USEFUL * len(shares):
            part = max(part / 2, LEAST)
    return codes


def _steps(views: list[View], size: int, rows: int, rng: np.random.Generator) -> Iterator[tuple[View, Integers, int]]:
    """All attributes in random order, as (view, some of its attributes, records for each of them).

    As many of a view are together as ``TOGETHER`` and ``APART`` say; no record moves twice in a step.
    """
    steps = []
    for view in views:
        most = max(ENTRIES // view.n, 1)
        each = min(size, most)
        together = max(
            1, min(TOGETHER * view.n // each, rows // each, most // each, (1 + view.others.shape[1]) // APART)
        )
        shuffled = rng.permutation(len(view.others))
        steps += [(view, shuffled[i : i + together], each) for i in range(0, len(shuffled), together)]
    for i in rng.permutation(len(steps)).tolist():
        yield steps[i]


def _step(codes: Codes, view: View, few: Integers, part: Integers, pairs: Pairs, rng: np.random.Generator) -> Array:
    """Move some records to better values of one attribute each; the share of its moves that was made of each attribute, shape (f,).

    Args:
        codes: the records; changed.
        view: of the attributes.
        few: which of them, shape (f,).
        part: the records for each, no record twice, shape (f, size).
        pairs: changed as the records are.
        rng: random numbers.
    """
    attributes, others = view.attributes[few, None], view.others[few, None, :]
    values = codes.reshape(-1).take((part * codes.shape[1])[:, :, None] + others)
    old, held = codes[part, attributes].reshape(-1), pairs.held[part, attributes].reshape(-1)
    new, gains = _best(pairs, view, (view.rows[few, None, :] + values).reshape(old.size, -1), old, held)
    moving = np.flatnonzero(gains > 0)
    if not len(moving):
        return np.ones(len(few))
    which = moving // part.shape[1]
    moves = _Moves.of_values(pairs, view, few[which], values.reshape(old.size, -1)[moving], old[moving], new[moving])
    shares = _shares(pairs, moves, gains[moving], which, len(few))
    made = np.flatnonzero(rng.random(len(moving)) < shares[which])
    _move(codes, pairs, view, part.reshape(-1)[moving[made]], moves.some(made))
    return shares


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Moves:
    """Moves of m records, each to another value of one attribute with t pairs.

    Attributes:
        of: which of the view's attributes, shape (m,).
        values: of the other attributes, shape (m, t).
        old, new: of the attribute, shape (m, 1).
        left, entered: cells of the pairs, shape (m, t).
        out, into: their weights.
    """

    of: Integers
    values: Integers
    old: Integers
    new: Integers
    left: Integers
    entered: Integers
    out: Costs
    into: Costs

    @classmethod
    def of_values(
        cls, pairs: Pairs, view: View, of: Integers, values: NDArray[np.int32], old: NDArray[np.int32], new: Integers
    ) -> "_Moves":
        wide, own, before, after = values.astype(np.int64), view.own[of], old[:, None].astype(np.int64), new[:, None]
        left = view.cells[of] + view.other[of] * wide + own * before
        entered = left + own * (after - before)
        return cls(
            of=of,
            values=wide,
            old=before,
            new=after,
            left=left,
            entered=entered,
            out=pairs.weights.take(left),
            into=pairs.weights.take(entered),
        )

    def some(self, made: Integers) -> "_Moves":
        """Some of the moves."""
        return _Moves(**{name: getattr(self, name)[made] for name in self.__slots__})


def _move(codes: Codes, pairs: Pairs, view: View, records: Integers, moves: _Moves) -> None:
    """Make moves of records: in these, in the counts, and in the costs of both views of each cell."""
    np.add.at(pairs.gaps, moves.left.reshape(-1), -1.0)
    np.add.at(pairs.gaps, moves.entered.reshape(-1), 1.0)
    here = view.span.start + (view.rows[moves.of] + moves.values) * view.n
    there, widths = view.back[moves.of] + moves.values, view.widths[moves.of]
    for cells, weights, value in ((moves.left, moves.out, moves.old), (moves.entered, moves.into, moves.new)):
        costs = weights * (pairs.gaps.take(cells) + 0.5).astype(np.float32)
        pairs.costs[here + value] = costs
        pairs.costs[there + widths * value] = costs
    attributes, change = view.attributes[moves.of], moves.into - moves.out
    pairs.held.reshape(-1)[records[:, None] * codes.shape[1] + view.others[moves.of]] += change
    pairs.held[records, attributes] += change.sum(axis=1)
    codes[records, attributes] = moves.new[:, 0]


def _best(
    pairs: Pairs, view: View, rows: NDArray[np.int32], old: NDArray[np.int32], held: Costs
) -> tuple[Integers, Costs]:
    """(the value of least cost for each record, how much less that is than what leaving the old one saves).

    Changing a count c by +-1 changes w (c - t)^2 / 2 by +-w (c - t) + w / 2.
    """
    from scipy.sparse import csr_array  # 0.1 s: for import time

    entering = pairs.costs[view.span].reshape(-1, view.n)
    ends = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
    cost = csr_array((np.ones(rows.size, np.float32), rows.reshape(-1), ends), (len(rows), len(entering))) @ entering
    here = np.arange(len(rows))
    leaving = cost[here, old] - held
    cost[here, old] = leaving
    new = cost.argmin(axis=1)
    return new, leaving - cost[here, new]


def _shares(pairs: Pairs, moves: _Moves, gains: Costs, which: Integers, attributes: int) -> Array:
    """The share of each attribute's moves that lowers the sum of squares most, shape (attributes,).

    The slope along an attribute's moves is what they would gain, each made alone, but for half of their weights. The second derivative
    along its moves and all others is the sum of weight change over all of its moves into cells, less that over those out of them, with
    the change by all moves of the step: most cells stay as they are, and are not read.

    Args:
        pairs: the pairs.
        moves: all moves of the step.
        gains: what each would lower the sum by, if it were made alone, shape (m,).
        which: the attribute of each, shape (m,).
        attributes: how many there are.
    """
    left, entered = moves.left.reshape(-1), moves.entered.reshape(-1)
    np.add.at(pairs.change, left, np.float32(-1))
    np.add.at(pairs.change, entered, np.float32(1))
    bends = _dots(moves.into, pairs.change.take(moves.entered)) - _dots(moves.out, pairs.change.take(moves.left))
    slopes = gains + (moves.out.sum(axis=1) + moves.into.sum(axis=1)) / 2
    pairs.change[left] = 0.0
    pairs.change[entered] = 0.0
    slope, bend = (np.bincount(which, values, minlength=attributes) for values in (slopes, bends))
    return np.minimum(np.divide(slope, bend, out=np.ones(attributes), where=bend > 0), 1.0)


def _dots(one: Costs, other: Costs) -> Costs:
    return np.asarray(np.einsum("ij,ij->i", one, other))
