"""The prefix counts of one attribute in every group of others, as a plan of them answers."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Array
from duckdb_dp.plan.base import Plan
from duckdb_dp.reconstruct.quantiles import Prefixes
from duckdb_dp.request import Question


def prefixes(plan: Plan, question: Question, domain: Domain, estimates: Mapping[Clique, Array]) -> Prefixes:
    """The noisy prefix counts, with what their intervals need.

    Args:
        plan: its one question is of prefixes of one attribute.
        question: that one.
        domain: its attributes.
        estimates: ``plan.estimates(noisy)``.

    Privacy: post-processing.
    """
    axis = question.kinds.index("prefix")
    suffix = replace(question, kinds=tuple("suffix" if kind == "prefix" else kind for kind in question.kinds))
    suffixes = replace(plan, workload=Workload(domain, (suffix.part(domain),)))

    def grouped(table: Array) -> Array:
        return np.moveaxis(table, axis, -1).reshape(-1, table.shape[axis])

    after = grouped(np.asarray(suffixes.variance(0)))[:, 1:]  # from cell j + 1 on
    return Prefixes(
        counts=grouped(plan.answer(0, estimates)),
        variances=grouped(np.asarray(plan.variance(0))),
        suffix_variances=np.pad(after, ((0, 0), (0, 1))),
        width=plan.quantile,
    )
