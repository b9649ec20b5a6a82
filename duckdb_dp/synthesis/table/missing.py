"""Which rows have a difference: exactly those that have both values, though noise draws some that have one and not the other."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.differences import Difference
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.reconstruct.junction import Codes


def with_both(
    attributes: Sequence[Attribute],
    codes: Sequence[Codes],
    differences: Mapping[Difference, Codes],
    rng: np.random.Generator,
) -> tuple[list[Codes], list[Codes]]:
    """The columns, and the differences, so that a row has a difference where it has both values.

    Values of rows that have both, but no difference, are exchanged with what rows lack that have one. So each column, and each difference,
    is distributed as it was drawn, and which rows lack a value is as well known as which lack the difference. What is left of rows that
    have both values gets the difference of another row.

    Args:
        attributes: of the columns.
        codes: their cells; those from ``base`` on are NULL, or other values.
        differences: the difference of a pair of columns -> its cell in each row.
        rng: random numbers.

    Privacy: post-processing; where differences are NULL is public.
    """
    own, found = [np.array(each) for each in codes], [np.array(each) for each in differences.values()]
    place = {attribute.name: i for i, attribute in enumerate(attributes)}
    ends = [(place[one.low.name], place[one.high.name]) for one in differences]
    bases = [one.attribute.base for one in differences]

    def has(i: int) -> NDArray[np.bool_]:
        known: NDArray[np.bool_] = own[i] < attributes[i].base
        return known

    for (i, j), classes, base in zip(ends, found, bases, strict=True):
        for lacking in ([j], [i], [i, j]):
            without = np.flatnonzero(has(i) & has(j) & (classes >= base))
            lacks = (has(i) != (i in lacking)) & (has(j) != (j in lacking))
            wanting = np.flatnonzero(lacks & (classes < base))
            both = min(len(without), len(wanting))
            r, s = (rng.permutation(rows)[:both] for rows in (without, wanting))
            for k in lacking:
                own[k][r], own[k][s] = own[k][s], own[k][r]
    for (i, j), classes, base in zip(ends, found, bases, strict=True):
        left, known = np.flatnonzero(has(i) & has(j) & (classes >= base)), classes[classes < base]
        if len(known):
            classes[left] = rng.choice(known, len(left))
    return own, found
