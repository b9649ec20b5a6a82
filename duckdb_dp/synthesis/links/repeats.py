"""Whether links repeat a pair of rows, as stays of one patient in one ward do, where no constraint says it."""

import numpy as np

from duckdb_dp.linop import Dense
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.measured_degrees import Measured
from duckdb_dp.synthesis.links.per_unit import PerUnit

MOST, SURE = 0.05, 0.03
"""Share of the budget that is spent at most, and the standard deviation, over the units with a link, of which a smaller one is not worth
more."""

FEW = 0.1
"""Share of the units that may repeat a pair where links are taken for a set of pairs, in which each comes once."""


def pairs_repeat(queryable: PrivateQueryable, tag: str, units: Measured, rho: float) -> bool:
    """Whether more than a few units have two links to one row.

    Args:
        queryable: what measures.
        tag: the 0/1 attribute that says whether a unit with a link has two links of one pair.
        units: as measured.
        rho: of what a share is spent.

    Privacy: spends MOST rho at most; a unit has one row in the table, so it changes the answer by 1 at most.
    """
    share = min(MOST * rho, 1 / (2 * (SURE * units.linked) ** 2))
    query = PerUnit(Dense(np.array([[0.0, 1.0]])), 1, queryable.rows)
    ((found, _),) = queryable.answer_all([((tag,), query, share)])
    return float(found[0]) > FEW * units.linked
