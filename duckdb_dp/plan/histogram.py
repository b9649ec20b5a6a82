"""Values counted in public cells, as part of the plan of sums: quantiles, and the bounds of sums, are read off their prefixes."""

from dataclasses import dataclass
from typing import final

from duckdb_dp.domain.domain import Domain
from duckdb_dp.grouped_sums import Sum
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.request import Question


@final
@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Public cells of a value, counted as prefixes: rows of each group for quantiles, units of all together to choose bounds.

    Attributes:
        name: what the names of its measurements begin with.
        one: the value, its condition and its cells.
        weight: of its share of the cost.
        question: what is asked about 'group' and 'value'.
        domain: how many groups and cells these have.
        plan: of the prefix counts.
    """

    name: str
    one: Sum
    weight: float
    question: Question
    domain: Domain
    plan: Plan

    @property
    def measurements(self) -> list[Measurement]:
        """Those of the plan, under the names of the request."""
        return [
            Measurement(clique=(self.name, "cells", *m.clique), strategy=m.strategy, variance=m.variance)
            for m in self.plan.measurements
        ]
