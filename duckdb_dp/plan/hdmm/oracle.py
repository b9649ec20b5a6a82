"""OPT_0: the best strategy for one Gram matrix, with Gaussian or Laplace noise.

Source: [HDMM18] section 4.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, final

import numpy as np

from duckdb_dp.domain.queries import Intervals
from duckdb_dp.errors import DPError
from duckdb_dp.linop import (
    Array,
    Blended,
    Chains,
    Circulant,
    Dense,
    Explicit,
    Folded,
    Identity,
    Layered,
    Merged,
    Reflected,
    Total,
    Waves,
)
from duckdb_dp.optimize import layers, reflected, tridiagonal, windows
from duckdb_dp.optimize.layers import coarsened
from duckdb_dp.optimize.p_identity import FEW, PIdentity, optimise, refine, uniform
from duckdb_dp.optimize.strategy import Strategy, solve
from duckdb_dp.plan.cache import cached
from duckdb_dp.plan.searched import Matrices, matrix_name

MAX_CELLS = 4096
"""Most cells of one Gram matrix: 0.13 GB, and with Gaussian noise a minute."""

RIDGE = 1e-12
"""Of the largest diagonal entry, where a Gram matrix is a difference: above its rounding, and 1e-6 of the error."""

LARGE = 512
"""Cells above which prefixes, suffixes and ranges are solved by themselves."""

RESTARTS = {128: 24, 256: 8, math.inf: 2}
"""Cells -> random starts of p-Identity; fewer on so few that most of them find the same."""

MANY = 384
"""Cells above which p-Identity is searched from a strategy on fewer cells alone, if that fits."""

ORDERED = 0.08
"""Share of the error that a search from there gains at most where it fits: prefixes, ranges and windows gain 0.02 to 0.06."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class AxisStrategy:
    """A strategy A of sensitivity 1 and what it is worth.

    Attributes:
        strategy: the operator.
        error: tr(G (A^T A)^+).
        bound: no strategy of sensitivity 1 has a smaller error; 0 where no bound was worked out.
        weights: the lambda that proves it, shape (n,), >= 0 of sum 1.
        solved: G, where the error is known without the covariance.
    """

    strategy: Explicit
    error: float
    bound: float = 0.0
    weights: Array | None = None
    solved: Array | None = None

    @cached_property
    def covariance(self) -> Array:
        """(A^T A)^+, shape (n, n): of the estimate from unit noise."""
        if isinstance(self.strategy, Identity):
            return np.eye(self.strategy.n)
        if isinstance(self.strategy, Total):
            return np.full((self.strategy.n, self.strategy.n), self.strategy.n**-2.0)
        if isinstance(self.strategy, Reflected | Circulant):
            n = self.strategy.shape[1]
            return np.asarray(sum((sign * (half @ half.T) for sign, half in self.strategy.halves()), np.zeros((n, n))))
        assert isinstance(self.strategy, Dense)
        return np.asarray(self.strategy.inverse @ self.strategy.inverse.T, dtype=np.float64)

    def against(self, gram: Array | None) -> float:
        """tr(G (A^T A)^+) for another Gram matrix, None for 1 1^T."""
        if gram is None:
            return float(self.covariance.sum())
        if self.solved is not None and np.array_equal(gram, self.solved):
            return self.error
        return float((gram * self.covariance).sum())

    def described(self, matrices: Matrices) -> list[Any]:
        """[operator, error, bound] as JSON."""
        return [to_json(self.strategy, matrices), self.error, self.bound]


def to_json(operator: Explicit, matrices: Matrices) -> list[Any]:
    """['identity' or 'total', n], ['dense', its matrix], or the operator's name and what it is made of; arrays by names."""
    if isinstance(operator, Identity | Total):
        return [type(operator).__name__.lower(), operator.n]
    if isinstance(operator, Reflected):
        return ["reflected", [matrix_name(matrices.number(vector)) for vector in operator.vectors]]
    if isinstance(operator, Waves):
        vectors = (operator.image, operator.inverse, operator.scale)
        return ["waves", [operator.kind, *(matrix_name(matrices.number(vector)) for vector in vectors)]]
    if isinstance(operator, Layered):
        return ["layered", [matrix_name(matrices.number(operator.top)), operator.n, operator.cell]]
    if isinstance(operator, Merged):
        return ["merged", [to_json(operator.inner, matrices), operator.first, operator.run]]
    if isinstance(operator, Folded):
        return ["folded", [to_json(operator.ring, matrices), to_json(operator.ends, matrices)]]
    if isinstance(operator, Blended):
        own = [matrix_name(matrices.number(array)) for array in (operator.top, operator.shares, operator.coarse)]
        chains = [
            [
                one.first,
                matrix_name(matrices.number(one.mix)),
                to_json(one.ring, matrices),
                matrix_name(matrices.number(one.scale)),
            ]
            for one in operator.chains
        ]
        return ["blended", [operator.n, own, chains]]
    if isinstance(operator, Circulant):
        return ["circulant", [matrix_name(matrices.number(operator.kernel)), operator.n]]
    assert isinstance(operator, Dense)
    return ["dense", matrix_name(matrices.number(operator.matrix))]


def from_json(described: Sequence[Any], arrays: Mapping[str, Array]) -> Explicit:
    """The inverse of ``to_json``."""
    kind, value = described
    if kind == "dense":
        return Dense(arrays[value])
    if kind == "reflected":
        return Reflected.of(*(arrays[name] for name in value))
    if kind == "waves":
        symmetry, *names = value
        return Waves(symmetry, *(arrays[name] for name in names))
    if kind == "layered":
        name, n, cell = value
        return Layered(arrays[name], n, cell)
    if kind == "merged":
        inner, first, run = value
        return Merged(from_json(inner, arrays), first, run)
    if kind == "folded":
        ring, ends = (from_json(one, arrays) for one in value)
        assert isinstance(ring, Circulant | Waves)
        assert isinstance(ends, Circulant)
        return Folded(ring, ends)
    if kind == "blended":
        return _blended(value, arrays)
    if kind == "circulant":
        name, n = value
        return Circulant(arrays[name], n)
    return Identity(value) if kind == "identity" else Total(value)


def _blended(described: Sequence[Any], arrays: Mapping[str, Array]) -> Blended:
    n, (top, shares, coarse), listed = described
    chains = []
    for first, mix, around, scale in listed:
        ring = from_json(around, arrays)
        assert isinstance(ring, Circulant)
        chains.append(Chains(first, arrays[mix], ring, arrays[scale]))
    return Blended(arrays[top], n, arrays[shares], arrays[coarse], tuple(chains))


Oracle = Callable[[Array], AxisStrategy]


def total(n: int) -> AxisStrategy:
    """The strategy where only the total of n cells is asked."""
    return AxisStrategy(strategy=Total(n), error=1.0, bound=1.0)


def closed_form(family: Intervals) -> AxisStrategy:
    """The strategy for prefixes, suffixes, ranges or ranges of one width on many cells.

    Privacy: post-processing of public queries.
    """
    found: reflected.Found | windows.Found
    if family.kind == "width":
        found = windows.closed_form(family.parameter, family.n)
    else:
        found = reflected.closed_form(family.kind, family.n)
    solved = family.gram() if isinstance(found.strategy, Dense) else None
    return AxisStrategy(strategy=found.strategy, error=found.error, bound=found.bound, solved=solved)


def closed_form_pure(family: Intervals) -> AxisStrategy:
    """The same for Laplace noise; the bound is that of Gaussian noise, whose sensitivity is never larger.

    Privacy: post-processing of public queries.
    """
    bound, ends = closed_form(family).bound, family.n - family.parameter
    if family.kind == "width" and ends + 1 < family.parameter:  # what all windows hold is one cell
        fewer = Intervals("width", 2 * ends + 1, ends + 1)
        inner = laplace(fewer.gram()) if fewer.n <= windows.FEW else _layer(fewer)
        merged = Merged(inner.strategy, ends, family.n - 2 * ends)
        return AxisStrategy(strategy=merged, error=inner.error, bound=bound)
    return replace(_layer(family), bound=bound)


def _layer(family: Intervals) -> AxisStrategy:
    found = layers.Family(family.kind, family.n, family.parameter).strategy(_coarse)
    return AxisStrategy(strategy=found.strategy, error=found.error)


def _coarse(gram: Array) -> Array:
    return cached(gram, "p-identity", 0.0, lambda: _p_identity(gram)).matrix


def gaussian(gram: Array) -> AxisStrategy:
    """The certified optimum of L2 sensitivity 1.

    Privacy: post-processing of public queries.
    """
    _check(gram)
    if _is_diagonal(gram):
        size = float(np.trace(gram))
        return AxisStrategy(strategy=Identity(len(gram)), error=size, bound=size, weights=np.diag(gram) / size)
    if len(gram) > LARGE and (kind := tridiagonal.kind_of(gram)):
        name, scale = kind
        own = tridiagonal.solve(name, len(gram))
        error, bound = own.primal * scale, own.dual * scale
        return AxisStrategy(strategy=Dense(own.matrix), error=error, bound=bound, weights=own.weights, solved=gram)
    tol = _tolerance(len(gram))
    found = cached(gram, "gram", tol, lambda: solve(gram=gram, tol=tol))
    return AxisStrategy(strategy=Dense(found.matrix), error=found.primal, bound=found.dual, weights=found.weights)


def laplace(gram: Array) -> AxisStrategy:
    """The best p-Identity strategy found, L1 sensitivity 1; p = n/16, and 1 for marginals.

    Cells that no query tells apart are one cell, and cells that no query touches are left out: that loses nothing.

    Privacy: post-processing of public queries.
    """
    _check(gram)
    label = distinct_cells(gram)
    count = int(label.max()) + 1
    first = np.array([int(np.argmax(label == cell)) for cell in range(count)])
    small = gram[np.ix_(first, first)]
    if count == len(gram) and _is_diagonal(gram):
        return AxisStrategy(strategy=Identity(count), error=float(np.trace(gram)))
    found = cached(small, "p-identity", 0.0, lambda: _p_identity(small))
    matrix = np.where(label >= 0, found.matrix[:, label], 0.0)
    # The rounded columns may sum to a little more than 1: the operator's own sensitivity says so.
    return AxisStrategy(strategy=Dense(matrix), error=found.primal)


def distinct_cells(gram: Array) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """A number for each cell, equal where all queries agree on two cells; -1 where every query is 0. Shape (n,)."""
    scale = float(np.diag(gram).max())
    leader = np.full(len(gram), -1, dtype=np.intp)
    key = gram @ np.cos(np.arange(len(gram)) ** 1.5)
    order = np.argsort(key, kind="stable")
    leaders: list[int] = []
    for cell in order[np.diag(gram)[order] > 1e-14 * scale].tolist():
        near = [k for k in leaders[-8:] if abs(key[k] - key[cell]) <= 1e-9 * scale * len(gram)]
        same = [k for k in near if np.abs(gram[k] - gram[cell]).max() <= 1e-12 * scale]
        leader[cell] = same[0] if same else cell
        if not same:
            leaders.append(cell)
    # Numbered as they come, so that equal problems are equal whatever rounding does to the keys.
    numbers: dict[int, int] = {}
    return np.array([-1 if k < 0 else numbers.setdefault(k, len(numbers)) for k in leader.tolist()], dtype=np.intp)


def memoised(oracle: Oracle) -> Oracle:
    """The same oracle, asked once for each Gram matrix."""
    known: dict[bytes, AxisStrategy] = {}

    def found(gram: Array) -> AxisStrategy:
        key = blake2b(np.ascontiguousarray(gram).reshape(-1).data).digest()
        if key not in known:
            known[key] = oracle(gram)
        return known[key]

    return found


def steadied(oracle: Oracle) -> Oracle:
    """The same oracle for differences of Gram matrices, asked for G + r I, r above the rounding of G.

    tr (G + R)^(1/2) <= tr G^(1/2) + tr R^(1/2), so that the bound falls by sqrt(n r) in its root.
    """

    def found(gram: Array) -> AxisStrategy:
        n, ridge = len(gram), RIDGE * float(np.diag(gram).max())
        strategy = oracle(gram + ridge * np.eye(n))
        return replace(strategy, bound=max(math.sqrt(strategy.bound) - math.sqrt(n * ridge), 0.0) ** 2)

    return found


def _p_identity(gram: Array) -> Strategy:
    """In the cache's form: primal is the error, dual is not used."""
    n = len(gram)
    off = gram - np.diag(np.diag(gram))
    rng = np.random.default_rng(n)
    if n == 1:
        return _stored(np.ones((1, 1)), float(gram[0, 0]), 0)
    if _is_marginal(gram):
        theta = np.full((1, n), uniform(n, float(np.trace(gram)), float(gram.sum())))
        found = optimise(gram, 1, rng, restarts=0, starts=[theta])
        return _stored(found.matrix, found.error, found.steps)
    # On few cells a search costs nothing, and more sums than n/16 are sometimes needed.
    sums = [max(1, n // 16), *([n // 8] if 8 <= n <= 64 else [])]
    restarts = next(many for most, many in RESTARTS.items() if n <= most)
    tried = [optimise(gram, p, rng, restarts=min(3 + n // 4, restarts)) for p in sums if n <= MANY]
    if n > FEW:
        tried.append(_refined(gram))
        if n > MANY and tried[0].gain > ORDERED:  # the order of the cells means nothing
            tried.append(optimise(gram, n // 16, rng, restarts=RESTARTS[256]))
    found = min(tried, key=lambda found: found.error)
    if not off.any() or found.error > float(np.trace(gram)):
        return _stored(np.eye(n), float(np.trace(gram)), found.steps)
    return _stored(found.matrix, found.error, found.steps)


def _refined(gram: Array) -> PIdentity:
    """From a strategy on a sixteenth of the cells, which is found in the same way."""
    count = len(gram) // 16
    small = coarsened(gram, count)
    if count > FEW:
        return refine(gram, _refined(small).matrix)
    rng = np.random.default_rng(count)
    found = (optimise(small, max(1, p), rng, restarts=6) for p in (count // 16, count // 8))
    return refine(gram, min(found, key=lambda found: found.error).matrix)


def _stored(matrix: Array, error: float, steps: int) -> Strategy:
    return Strategy(matrix=matrix, primal=error, dual=0.0, weights=np.zeros(0), steps=steps)


def _is_diagonal(gram: Array) -> bool:
    return not (gram - np.diag(np.diag(gram))).any() and bool((np.diag(gram) > 0).all())


def _is_marginal(gram: Array) -> bool:
    """Whether G = b I + c 1 1^T."""
    n, level = len(gram), float(gram[0, 1])
    rest = gram - level
    return bool(np.abs(rest - rest[0, 0] * np.eye(n)).max() <= 1e-12 * float(gram[0, 0]))


def _tolerance(n: int) -> float:
    """As tight as is cheap: 1e-6 up to 512 cells is well below a second."""
    return 1e-6 if n <= 512 else 1e-4 if n <= 2048 else 1e-3


def _check(gram: Array) -> None:
    if len(gram) > MAX_CELLS:
        raise DPError(
            f"mechanism 'hdmm': queries that need one dense strategy on {len(gram):,} cells, and such are planned up to "
            f"{MAX_CELLS:,}; use coarser bins."
        )
    if not np.isfinite(gram).all() or not math.isfinite(float(np.abs(gram).sum())):
        raise DPError("mechanism 'hdmm': the queries' weights are too large for a finite error; scale them down.")
