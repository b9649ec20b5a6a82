"""One end of the links: the row types of a synthetic table, which are public, and the coding of its attributes."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Integers

_WIDE = 100
"""Coordinates of one attribute, above which a matrix of all coordinates is formed as a whole."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A synthetic table as one side of links: rows with equal attributes are one row type.

    Attributes:
        attributes: names in the domain, '<role>.<attribute>', one per column of ``types``.
        types: distinct codes, shape (types, attributes).
        rows: the row type of every synthetic row, shape (rows,).
        max_degree: links that a row may have at most; None: as many as there are partners.
        linked: name of the 0/1 attribute that says whether a row has a link; None: not measured.
        repeated: that of whether a row has two links of one pair of rows; None where it is known whether pairs repeat.
        implied: pairs of attributes of which the second follows from the first.
        key: the attribute that tells its rows apart; None where none does.
    """

    attributes: Clique
    types: Integers
    rows: Integers
    max_degree: int | None = None
    linked: str | None = None
    repeated: str | None = None
    implied: frozenset[tuple[str, str]] = frozenset()
    key: str | None = None

    def __post_init__(self) -> None:
        if self.types.ndim != 2 or self.types.shape[1] != len(self.attributes):
            raise DPError(
                f"links: row types of shape {self.types.shape} do not have {len(self.attributes)} attributes."
            )
        if not len(self.rows) or self.rows.min() < 0 or self.rows.max() >= len(self.types):
            raise DPError("links: a synthetic table needs at least one row, and a row type for each.")
        if self.max_degree is not None and self.max_degree < 1:
            raise DPError(f"links: max_degree {self.max_degree} allows no link; give at least 1.")

    @property
    def sizes(self) -> Integers:
        """Rows of each type, shape (types,)."""
        return np.bincount(self.rows, minlength=len(self.types))


def side_of(attributes: Clique, codes: Integers, **options: object) -> Side:
    """The side of a table given by the codes of all its rows, shape (rows, attributes)."""
    types, rows = np.unique(codes.reshape(len(codes), len(attributes)), axis=0, return_inverse=True)
    return Side(attributes=attributes, types=types, rows=rows.reshape(-1), **options)  # type: ignore[arg-type]


@functools.cache
def helmert(n: int) -> Array:
    """An orthonormal basis of the vectors of length n that add up to 0, shape (n, n - 1), read only."""
    basis = np.zeros((n, n - 1))
    for j in range(1, n):
        basis[:j, j - 1], basis[j, j - 1] = 1.0, -j
        basis[:, j - 1] /= math.sqrt(j * (j + 1))
    basis.flags.writeable = False
    return basis


def coordinates(tables: Array, bases: Sequence[Array] | None = None) -> Array:
    """The residuals of m tables in the orthonormal coordinates of their attributes, (m, n_i for each) -> (m, n_i - 1 for each).

    Args:
        tables: the tables.
        bases: other bases of the attributes, (n_i, coordinates) each.
    """
    for basis in [helmert(n) for n in tables.shape[1:]] if bases is None else bases:
        tables = np.tensordot(tables, basis, axes=(1, 0))
    return tables


def residual_cells(found: Array) -> Array:
    """The residuals that have these ``coordinates``, cell by cell, (m, n_i - 1 for each) -> (m, n_i for each)."""
    for n in found.shape[1:]:
        found = np.tensordot(found, helmert(n + 1), axes=(1, 1))
    return found


def spread(expected: Array, bases: Sequence[Array] | None = None) -> Array:
    """The covariance of the coordinates of a table whose cells are independent and have these variances, shape (c, c).

    It is B^T diag(expected) B with B the Kronecker product of the attributes' bases, and is formed attribute by attribute.

    Args:
        expected: the variances.
        bases: as in ``coordinates``.
    """
    bases = [helmert(n) for n in expected.shape] if bases is None else bases
    if max(basis.shape[1] for basis in bases) > _WIDE:  # of which all products of two coordinates would be large
        whole = functools.reduce(np.kron, bases)  # type: ignore[arg-type]
        return np.asarray(whole.T @ (expected.reshape(-1, 1) * whole))
    table = expected[None]
    for basis in bases:
        squares = (basis[:, :, None] * basis[:, None, :]).reshape(len(basis), -1)
        table = np.tensordot(table, squares, axes=(1, 0))
    table = table.reshape([basis.shape[1] for basis in bases for _ in range(2)])
    order = [*range(0, table.ndim, 2), *range(1, table.ndim, 2)]
    size = math.prod(basis.shape[1] for basis in bases)
    return np.ascontiguousarray(table.transpose(order)).reshape(size, size)


def codes(side: Side, domain: Domain, subset: Clique) -> Integers:
    """The cell of every row type in the marginal of some of its attributes, shape (types,)."""
    cell = np.zeros(len(side.types), dtype=np.int64)
    for name in subset:
        cell = cell * domain.sizes[name] + side.types[:, side.attributes.index(name)]
    return cell


def columns(side: Side, domain: Domain, subset: Clique) -> Array:
    """Residual coordinates of every row type: the Kronecker product of its attributes' contrasts.

    The row of a type is what one link of that type adds to the residual of ``subset``, in an orthonormal basis of it.

    Returns:
        Array of shape (types, prod (n_i - 1)).
    """
    products: NDArray[np.float64] = np.ones((len(side.types), 1))
    for name in subset:
        contrast = helmert(domain.sizes[name])[side.types[:, side.attributes.index(name)]]
        products = (products[:, :, None] * contrast[:, None, :]).reshape(len(products), -1)
    return products
