"""How many rows of a side have a link at all."""

import numpy as np

from duckdb_dp.linop import Dense, Total
from duckdb_dp.private import PrivateQueryable

SPREAD = 0.25
"""How far, before it is measured, the share of linked rows may be from that of links dealt at random."""


def measure_linked(queryable: PrivateQueryable, tag: str, rho: float) -> tuple[float, float]:
    """The share of linked rows, and the noise's variance in it.

    Rows here may change sides: a link more makes an unlinked row a linked one and changes two counts of the 0/1
    attribute ``tag``, whereas a door reckons with rows that come or go. So the number of all rows and that of the linked
    ones are measured apart: a row that changes sides changes the first by nothing and the second by 1.

    Privacy: spends rho.
    """
    asked = ((tag,), Total(2), rho / 2), ((tag,), Dense(np.array([[0.0, 1.0]])), rho / 2)
    rows, linked = queryable.measure_all(asked)
    size = max(float(rows.answers[0]), 1.0)
    return float(np.clip(linked.answers[0] / size, 0, 1)), linked.variance / size**2


def shrunk(share: float, total_relative_variance: float, links: int, rows: int) -> float:
    """A measured share of linked rows, drawn towards that of links dealt at random as far as it is in doubt.

    Privacy: post-processing.
    """
    random = 1 - float(np.exp(-links / rows))
    weight = SPREAD**2 / (SPREAD**2 + total_relative_variance)
    return weight * share + (1 - weight) * random
