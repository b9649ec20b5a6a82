"""QuerySmasher and related planners: one strategy for each residual, a closed-form split of the budget, and a lower bound.

Source: [QS26] Alg. 1 and section 6.4.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain, subsets
from duckdb_dp.domain.queries import Intervals, Queries
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array, Centring, Factor, Factored, LinOp
from duckdb_dp.plan.base import Measurement, family_answers
from duckdb_dp.plan.searched import Matrices, SearchedPlan, matrix_name
from duckdb_dp.plan.solve import Solution, best, for_gram, fourier, identity, one_attribute, products
from duckdb_dp.plan.subspaces import Subspace, centred_gram, is_constant, split
from duckdb_dp.reconstruct.residual import marginal


@dataclass(frozen=True, kw_only=True)
class SubspacePlan(SearchedPlan):
    """One measurement per residual A': B_A' on the residual, with unit cost, noise variance s_A'.

    The answer to q has variance sum over A' in A of s_A' |q_A' B_A'^+|^2.

    Attributes:
        errors: total weighted squared error of each measurement's residual at unit variance.
    """

    errors: tuple[float, ...]

    @cached_property
    def _measured(self) -> Mapping[Clique, Measurement]:
        return {m.clique: m for m in self.measurements}

    @cached_property
    def _needs(self) -> Mapping[Clique, tuple[float, float]]:
        return {m.clique: (m.cost, error) for m, error in zip(self.measurements, self.errors, strict=True)}

    @property
    def total(self) -> float:
        return math.fsum(m.variance * error for m, error in zip(self.measurements, self.errors, strict=True))

    def variance(self, which: int | Clique) -> Array:
        part = self.part(which)
        found = np.zeros(part.shape)
        for places, measured in self._below(part):
            found += measured.variance * _spread(part, places, measured.strategy, self.workload.domain)
        return found

    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        part = self.part(which)
        return family_answers(part, marginal(self.workload.domain, part.clique, estimates))

    def share(self, which: int | Clique) -> float:
        """A residual's cost is divided among the parts above it as its contribution to their total variance is."""
        part = self.part(which)
        weights = _outer([family.weights() for family in part.queries])
        found = 0.0
        for places, measured in self._below(part):
            cost, error = self._needs[measured.clique]
            used = part.weight * float((weights * _spread(part, places, measured.strategy, self.workload.domain)).sum())
            found += cost * used / error
        return found / self.beta

    def described(self, matrices: Matrices) -> dict[str, Any]:
        """For every strategy [number of its matrix, sizes] of each factor; None for plain centring."""
        return {
            "errors": self.errors,
            "strategies": [
                [[matrices.number(factor.matrix), factor.sizes] for factor in m.strategy.factors]
                if isinstance(m.strategy, Factored)
                else None
                for m in self.measurements
            ],
        }

    @classmethod
    def restored(
        cls, workload: Workload, described: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[list[LinOp], dict[str, Any]]:
        made: dict[int, Factor] = {}  # a factor's inverse is worked out once for all strategies that share it

        def factor(number: int, sizes: list[int]) -> Factor:
            return made.setdefault(number, Factor(np.asarray(arrays[matrix_name(number)]), tuple(sizes)))

        strategies: list[LinOp] = [
            Centring(workload.domain.shape(tuple(clique)))
            if factors is None
            else Factored(tuple(factor(number, sizes) for number, sizes in factors))
            for clique, factors in zip(described["cliques"], described["strategies"], strict=True)
        ]
        return strategies, {"errors": tuple(described["errors"])}

    def _below(self, part: Part) -> list[tuple[tuple[int, ...], Measurement]]:
        """(places in the part's clique, measurement) of each measured residual that the part is answered from."""
        cliques = [
            (places, tuple(part.clique[place] for place in places)) for places in subsets(range(len(part.clique)))
        ]
        return [(places, self._measured[tau]) for places, tau in cliques if tau in self._measured]


def querysmasher(workload: Workload, beta: float, objective: str = "total") -> SubspacePlan:
    """The best strategy on every residual, certified: measured separately, at costs that sum to beta, none does better.

    Source: [QS26] Alg. 1; the certificate is ours.

    Privacy: costs nothing; measuring it costs beta.
    """
    return _assemble("querysmasher", workload, beta, objective, lambda _, subspace: best(subspace))


def wff(workload: Workload, beta: float, objective: str = "total") -> SubspacePlan:
    """Weighted Fourier Factorization: circulant strategies, in closed form; optimal for circular products.

    Source: [WFF25]; [QS26] appendix C.

    Privacy: costs nothing; measuring it costs beta.
    """
    return _assemble("wff", workload, beta, objective, lambda _, subspace: fourier(subspace))


def residual_plus(
    workload: Workload, beta: float, objective: str = "total", bases: Mapping[str, Array] | None = None
) -> SubspacePlan:
    """ResidualPlanner+: on every residual the product of one strategy per attribute.

    Args:
        workload: the queries.
        beta: privacy cost.
        objective: 'total'.
        bases: attribute -> strategy matrix (m, n) whose rows answer its queries; an attribute that is not named gets
            the best strategy for the first family of queries that it is asked, if that answers the others too.

    Source: [RP+25] as described in [QS26] section 7.

    Raises:
        DPError: a basis of the wrong width, or one that does not answer the queries on its attribute.

    Privacy: costs nothing; measuring it costs beta.
    """
    chosen = _bases(workload, bases or {})
    solver = products(chosen)
    return _assemble(
        "residual_plus", workload, beta, objective, solver, lambda clique: tuple(id(chosen[name]) for name in clique)
    )


def residual_queries(workload: Workload, beta: float, objective: str = "total") -> SubspacePlan:
    """ResidualPlanner's noise for queries that are no marginals: every residual is measured as it is.

    Source: [RP23].

    Privacy: costs nothing; measuring it costs beta.
    """
    return _assemble("residual", workload, beta, objective, lambda _, subspace: identity(subspace))


def _assemble(
    name: str,
    workload: Workload,
    beta: float,
    objective: str,
    solver: Callable[[Clique, Subspace], Solution],
    means: Callable[[Clique], object] = lambda _: None,
) -> SubspacePlan:
    """Solve each distinct residual once and split the budget: s_A' = (sum sqrt L) / (beta sqrt L_A').

    ``means`` tells cliques apart that the solver treats differently on the same subspace.
    """
    if objective != "total":
        raise DPError(f"objective {as_sql(objective)} is planned for marginals only; use 'total' for other queries.")
    pieces = split(workload)
    if not pieces:
        raise DPError("every query of the workload is 0 on every cell, so there is nothing to measure.")
    solutions: dict[object, tuple[Solution, float]] = {}
    found = []
    for clique, subspace, _ in pieces:
        key = id(subspace), means(clique)
        if key not in solutions:
            solution = solver(clique, subspace)
            solutions[key] = solution, solution.strategy.squared_sensitivity
        found.append(solutions[key])
    factors = np.array([factor for _, _, factor in pieces])
    errors = np.array([solution.error for solution, _ in found]) * factors
    bounds = np.array([solution.bound for solution, _ in found]) * factors
    costs = np.array([cost for _, cost in found])
    root = math.fsum(np.sqrt(errors * costs))
    variances = root * np.sqrt(costs / errors) / beta
    return SubspacePlan(
        workload=workload,
        mechanism=name,
        measurements=tuple(
            Measurement(clique=clique, strategy=solution.strategy, variance=variance)
            for (clique, _, _), (solution, _), variance in zip(pieces, found, variances.tolist(), strict=True)
        ),
        lower_bound=math.fsum(np.sqrt(bounds)) / math.sqrt(beta * workload.queries),
        errors=tuple(errors.tolist()),
    )


def _bases(workload: Workload, given: Mapping[str, Array]) -> dict[str, Factor]:
    sizes = workload.domain.sizes
    for name, matrix in given.items():
        workload.domain.clique([name])
        if np.ndim(matrix) != 2 or np.shape(matrix)[1] != sizes[name] or not np.isfinite(matrix).all():
            raise DPError(f"the basis of '{name}' has shape {np.shape(matrix)}; it needs {sizes[name]} finite columns.")
    asked: dict[str, dict[int, Queries]] = {}
    joint: set[str] = set()
    for part in (part.negated or part for part in workload.parts):
        if part.joint:
            joint.update(part.clique)
        else:
            for name, family in zip(part.clique, part.queries, strict=True):
                asked.setdefault(name, {})[id(family)] = family
    found = {}
    for name, size in sizes.items():
        families = [family for family in dict.fromkeys(asked.get(name, {}).values()) if not is_constant(family)]
        if size > 1 and (families or name in joint):
            found[name] = _basis(name, size, families, name in joint, given.get(name))
    return found


def _basis(name: str, size: int, families: list[Queries], joint: bool, given: Array | None) -> Factor:
    """The given basis of an attribute, else the first family's best; where that leaves queries out, one for them all."""
    if given is None and len(families) == 1 and not joint:
        return one_attribute(families[0])[0]
    gram = sum(
        (centred_gram(family) for family in families), np.eye(size) - 1 / size if joint else np.zeros((size, size))
    )
    if given is not None:
        basis = Factor(np.asarray(given, dtype=np.float64), (size,))
        if not _answers(basis, gram):
            raise DPError(f"the basis of '{name}' does not answer the queries on it; give one whose rows span them.")
        return basis.unit()
    first = one_attribute(families[0])[0] if families else Factor(np.eye(size), (size,)).unit()
    return first if _answers(first, gram) else for_gram(gram)


def _answers(basis: Factor, gram: Array) -> bool:
    """Whether all queries of a centred Gram matrix are combinations of the centred rows of a basis."""
    seen = float(((gram @ basis.inverse) * basis.centred.T).sum())
    return bool(seen >= (1 - 1e-9) * np.trace(gram))


def _spread(part: Part, places: tuple[int, ...], strategy: LinOp, domain: Domain) -> Array:
    """|q_A' B_A'^+|^2 of every query of a part, shape ``part.shape``."""
    if part.joint and not places:
        return np.asarray(part.queries[0].means() ** 2, dtype=np.float64)
    if part.negated is not None:  # 1 - q and q differ in the total alone
        return _spread(part.negated, places, strategy, domain).reshape(-1)
    sizes = domain.shape(part.clique)
    if isinstance(strategy, Centring) and not part.joint:
        return _outer([_left(f) if i in places else f.means() ** 2 for i, f in enumerate(part.queries)])
    inverses = _inverses(strategy)
    joint = len(inverses) < len(places)
    if not part.joint and not joint:
        by_place = dict(zip(places, inverses, strict=True))
        squares = (_squares(f, by_place[i]) if i in by_place else f.means() ** 2 for i, f in enumerate(part.queries))
        return _outer(squares)
    if not part.joint:
        through = _joint_squares([part.queries[place] for place in places], inverses[0])
        found = np.ones(())
        # The residual's axes first, the averaged ones after; then back into the part's order.
        for place in range(len(sizes)):
            if place not in places:
                found = np.multiply.outer(found, part.queries[place].means() ** 2)
        rest = [place for place in range(len(sizes)) if place not in places]
        return np.moveaxis(np.multiply.outer(through, found), range(len(sizes)), [*places, *rest])
    rows = part.queries[0].dense().reshape(-1, *sizes)
    gone = tuple(axis + 1 for axis in range(len(sizes)) if axis not in places)
    rows = rows.mean(axis=gone) if gone else rows
    if joint:
        return _squared_norms(rows.reshape(len(rows), -1) @ inverses[0])
    for axis, inverse in enumerate(inverses):
        rows = np.moveaxis(np.tensordot(rows, inverse, axes=(axis + 1, 0)), -1, axis + 1)
    return _squared_norms(rows.reshape(len(rows), -1))


def _outer(vectors: Iterable[Array]) -> Array:
    found = np.ones(())
    for vector in vectors:
        found = np.multiply.outer(found, vector)
    return found


def _left(family: Queries) -> Array:
    """|q C|^2 of every query, what centring leaves of it: of an interval that holds a share m of the n cells n m (1 - m)."""
    if isinstance(family, Intervals):
        return family.n * family.means() * (1 - family.means())
    return _squares(family, np.eye(family.n) - 1 / family.n)


def _inverses(strategy: LinOp) -> list[Array]:
    if isinstance(strategy, Factored):
        return [factor.inverse for factor in strategy.factors]
    assert isinstance(strategy, Centring)
    return [np.eye(n) - 1 / n for n in strategy.sizes]


def _squares(family: Queries, inverse: Array) -> Array:
    return _squared_norms(family.answers(inverse, 0))


def _squared_norms(rows: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", rows, rows), dtype=np.float64)


def _joint_squares(families: list[Queries], inverse: Array) -> Array:
    """|(q_1 (x) ... (x) q_k) P|^2 for all products, a few columns of P at a time."""
    sizes = [family.n for family in families]
    found = np.zeros([family.count for family in families])
    for column in range(inverse.shape[1]):
        table = inverse[:, column].reshape(sizes)
        for axis, family in enumerate(families):
            table = family.answers(table, axis)
        found += table**2
    return found
