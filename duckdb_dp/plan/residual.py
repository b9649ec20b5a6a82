"""ResidualPlanner: provably optimal Gaussian noise for any weighted set of marginals, in closed form.

Source: [RP23] Xiao et al. 2023 (ResidualPlanner), as restated in [AIM+GReM] appendix D.1.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Centring
from duckdb_dp.plan.base import Measurement, Plan, unknown_objective
from duckdb_dp.plan.subspaces import residuals_of
from duckdb_dp.reconstruct.residual import marginal


@dataclass(frozen=True, kw_only=True)
class ResidualPlan(Plan):
    """Each residual tau is measured once with variance s_tau, and every marginal above it uses it.

    A cell of marginal gamma has variance sum over tau in gamma of
    s_tau * prod_{i in tau} (n_i - 1)/n_i * prod_{j in gamma - tau} 1/n_j^2.

    Attributes:
        residuals: those that are measured, in the order of the measurements.
    """

    residuals: "_Residuals" = field(repr=False)

    @cached_property
    def _variances(self) -> Mapping[Clique, float]:
        return {m.clique: m.variance for m in self.measurements}

    @cached_property
    def _costs(self) -> Mapping[Clique, float]:
        return {m.clique: m.cost for m in self.measurements}

    @cached_property
    def _needs(self) -> Mapping[Clique, float]:
        """For each residual: the weighted total variance that unit noise on it causes, V_tau."""
        return dict(zip(self.residuals.taus, self.residuals.needs.tolist(), strict=True))

    @property
    def total(self) -> float:
        variances = [measurement.variance for measurement in self.measurements]
        return math.fsum((self.residuals.needs * variances).tolist())

    def variance(self, which: int | Clique) -> float:
        clique = self.part(which).clique
        cells = self.workload.domain.cells(clique)
        return sum(self._variances[tau] * share for tau, share in _named(self.workload.domain, clique)) / cells

    def share(self, which: int | Clique) -> float:
        """A residual's cost is divided among the marginals above it as its contribution to their variance is."""
        clique = self.part(which).clique
        weight = self.workload.weights[clique]
        shares = _named(self.workload.domain, clique)
        return sum(self._costs[tau] * weight * share / self._needs[tau] for tau, share in shares) / self.beta

    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        return marginal(self.workload.domain, self.part(which).clique, estimates)


def residual(workload: Workload, beta: float, objective: str = "total") -> Plan:
    """The plan of least total (or least maximal) weighted variance at privacy cost beta.

    For 'total': minimise sum_tau V_tau s_tau subject to sum_tau p_tau / s_tau <= beta, with
    p_tau = prod (n_i - 1)/n_i and V_tau the sum over gamma containing tau of
    w_gamma * n_gamma * (variance share of tau). Solution s_tau = sqrt(p_tau / V_tau) * T / beta, T = sum sqrt(p V).
    For 'max' the variables solve a small convex program (cvxpy), and the dual weights prove the bound.

    Source: [RP23] Theorems 4.5, 4.7 and section 5.

    Privacy: costs nothing; measuring it costs beta.
    """
    if not workload.is_marginals:
        from duckdb_dp.plan.smasher import residual_queries  # for import time: marginals are planned without it

        return residual_queries(workload, beta, objective)
    residuals = _residuals(workload)
    if objective == "total":
        variances, bound = _least_total(residuals, beta)
        lower_bound = math.sqrt(bound / workload.queries)
    elif objective == "max":
        variances, bound = _least_max(residuals, workload, beta)
        lower_bound = math.sqrt(bound)
    else:
        raise unknown_objective(objective)
    strategies = {shape: Centring(shape) for shape in set(residuals.shapes)}
    measurements = tuple(
        Measurement(clique=tau, strategy=strategies[shape], variance=variance)
        for tau, shape, variance in zip(residuals.taus, residuals.shapes, variances.tolist(), strict=True)
    )
    return ResidualPlan(
        workload=workload,
        mechanism="residual",
        measurements=measurements,
        lower_bound=lower_bound,
        objective=objective,
        residuals=residuals,
    )


def _shares(sizes: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
    """(places of tau in a clique of these sizes, the sum over its cells of the variance that unit noise on tau causes)."""
    cells = math.prod(sizes)
    return [(places, math.prod(sizes[i] * (sizes[i] - 1) for i in places) / cells) for places in residuals_of(sizes)]


_FEW = 4
_few_shares = lru_cache(maxsize=4096)(_shares)
"""Of cliques of few attributes, of which there are thousands of few shapes."""


def _named(domain: Domain, clique: Clique) -> list[tuple[Clique, float]]:
    """(tau, share) as of ``_shares``."""
    found = (_few_shares if len(clique) <= _FEW else _shares)(domain.shape(clique))
    return [(tuple([clique[i] for i in places]), share) for places, share in found]


@dataclass(frozen=True, eq=False)
class _Residuals:
    """The residuals of a set of marginals, smaller ones first, then in the domain's order.

    Attributes:
        taus: their attributes.
        shapes: the sizes of these.
        costs: p_tau, the privacy cost of unit noise on each.
        needs: V_tau, the weighted total variance of all marginals that unit noise on it causes.
    """

    taus: list[Clique]
    shapes: list[tuple[int, ...]]
    costs: Array
    needs: Array


def _residuals(workload: Workload) -> _Residuals:
    """All that the plan depends on, by arrays: a hundred attributes have 161,700 marginals of three."""
    domain = workload.domain
    names = np.array(domain.attributes, dtype=object)
    whole = np.array(list(domain.sizes.values()), dtype=np.int64)
    sizes = whole.astype(np.float64)
    place = {name: i for i, name in enumerate(domain.attributes)}
    by_order: dict[int, list[int]] = {}
    for index, clique in enumerate(workload.cliques):
        by_order.setdefault(len(clique), []).append(index)
    # Per order of a residual: (part, attributes, weighted share), an entry for each part above it.
    entries: dict[int, list[tuple[NDArray[Any], ...]]] = {}
    for order, members in by_order.items():
        parts = [workload.parts[index] for index in members]
        named = map(place.__getitem__, chain.from_iterable([part.clique for part in parts]))
        cliques = np.fromiter(named, np.int64, order * len(parts)).reshape(len(parts), order)
        weights = np.array([part.weight for part in parts])
        cells = sizes[cliques].prod(axis=1)
        for size in range(order + 1):
            chosen = cliques[
                :, list(itertools.combinations(range(order), size))
            ]  # (parts, residuals of each, attributes)
            share = weights[:, None] * ((sizes * (sizes - 1))[chosen].prod(axis=2) / cells[:, None])
            above = np.broadcast_to(np.array(members)[:, None], share.shape)
            kept = (whole > 1)[chosen].all(axis=2)
            entries.setdefault(size, []).append((above[kept], chosen[kept], share[kept]))
    taus: list[Clique] = []
    shapes: list[tuple[int, ...]] = []
    costs, needs = [], []
    for order in sorted(entries):
        above, attributes, amounts = (np.concatenate(column) for column in zip(*entries[order], strict=True))
        if len(entries[order]) > 1:
            turn = np.argsort(above, kind="stable")  # the order in which amounts are added is that of the parts
            attributes, amounts = attributes[turn], amounts[turn]
        found, sums = _added(attributes, amounts, len(sizes))
        taus += zip(*names[found].T.tolist(), strict=True) if order else [()] * len(found)
        shapes += zip(*whole[found].T.tolist(), strict=True) if order else [()] * len(found)
        costs.append(np.prod((sizes[found] - 1) / sizes[found], axis=1))
        needs.append(sums)
    return _Residuals(taus, shapes, np.concatenate(costs), np.concatenate(needs))


DENSE = 2**22
"""Most sets of attributes, those included that nothing asks for, that are counted without sorting."""


def _added(attributes: NDArray[np.int64], amounts: Array, count: int) -> tuple[NDArray[np.int64], Array]:
    """(the different rows of ``attributes`` in order, the sum of the amounts of each)."""
    order = attributes.shape[1]
    if count**order <= DENSE:
        ids = attributes @ count ** np.arange(order - 1, -1, -1)
        found = np.flatnonzero(np.bincount(ids))
        rows = found[:, None] // count ** np.arange(order - 1, -1, -1) % count
        return rows, np.asarray(np.bincount(ids, weights=amounts)[found], dtype=np.float64)
    ids = np.zeros(len(attributes), dtype=np.int64)
    for column in attributes.T:  # attribute by attribute, as all of them together may be no 64-bit number
        ids = np.unique(ids * count + column, return_inverse=True)[1]
    _, first = np.unique(ids, return_index=True)
    return attributes[first], np.asarray(np.bincount(ids, weights=amounts), dtype=np.float64)


def _least_total(residuals: _Residuals, beta: float) -> tuple[Array, float]:
    """Optimal variances and the optimal weighted total variance (sum sqrt(p V))^2 / beta."""
    root = np.sqrt(residuals.costs * residuals.needs).sum()
    return np.sqrt(residuals.costs / residuals.needs) * root / beta, float(root**2 / beta)


def _least_max(residuals: _Residuals, workload: Workload, beta: float) -> tuple[Array, float]:
    """Minimise t subject to w_gamma * variance_gamma <= t and sum p/s <= beta; s is scaled to cost exactly beta.

    Bound: for any l >= 0 with sum l = 1 the least of sum l_gamma w_gamma variance_gamma is a lower bound of the
    least maximum; l are the constraints' multipliers.
    """
    import cvxpy
    from scipy import sparse

    costs = residuals.costs
    index = {tau: column for column, tau in enumerate(residuals.taus)}
    entries = [
        (row, index[tau], weight * share / workload.domain.cells(clique))
        for row, (clique, weight) in enumerate(workload.weights.items())
        for tau, share in _named(workload.domain, clique)
    ]
    rows, columns, values = (list(column) for column in zip(*entries, strict=True))
    matrix = sparse.csr_array((values, (rows, columns)), shape=(len(workload.weights), len(costs)))
    # Substituting s = scale * x with the least-total variances as scale makes every x of order one.
    scale, _ = _least_total(residuals, 1.0)
    unit = float((matrix @ scale).max())
    x, t = cvxpy.Variable(len(costs), pos=True), cvxpy.Variable()
    below = (matrix @ sparse.diags_array(scale)) @ x / unit <= t
    affordable = cvxpy.sum(cvxpy.multiply(costs / scale, cvxpy.inv_pos(x))) <= 1
    cvxpy.Problem(cvxpy.Minimize(t), [below, affordable]).solve(solver=cvxpy.CLARABEL)
    if x.value is None or below.dual_value is None:
        raise DPError("the plan of least maximal variance did not converge; use objective := 'total'.")
    variances = np.asarray(x.value) * scale
    variances *= float((costs / variances).sum()) / beta
    multipliers = np.maximum(np.asarray(below.dual_value), 0.0)
    multipliers = np.maximum(multipliers / multipliers.sum(), 1e-12)
    multipliers /= multipliers.sum()
    dual = tuple(
        replace(part, weight=part.weight * float(multiplier) / workload.domain.cells(part.clique))
        for part, multiplier in zip(workload.parts, multipliers, strict=True)
    )
    return variances, _least_total(_residuals(replace(workload, parts=dual)), beta)[1]
