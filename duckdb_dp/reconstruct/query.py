"""A strategy as jax sees it: a Kronecker product of matrices on the cells of a marginal."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from duckdb_dp.linop import Array


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """mu -> (M_1 (x) ... (x) M_k) mu, flat; the identity where there are no matrices.

    Two of equal matrices are equal, so that jax compiles one program for both.
    """

    matrices: tuple[Array, ...] | None

    def __call__(self, factor: Any) -> Any:
        """The answers on mbi's factor."""
        jnp = import_module("jax.numpy")

        table = factor.datavector(flatten=False)
        if self.matrices is None:
            return table.reshape(-1)
        table = table.reshape([matrix.shape[1] for matrix in self.matrices])
        for axis, matrix in enumerate(self.matrices):
            table = jnp.moveaxis(jnp.tensordot(matrix, table, axes=(1, axis)), 0, axis)
        return table.reshape(-1)

    def op_norm_sq(self) -> float:
        """Largest squared singular value."""
        norms = [np.linalg.norm(matrix, 2) ** 2 for matrix in self.matrices or ()]
        return float(np.prod(norms))

    def __hash__(self) -> int:
        return hash(tuple(matrix.tobytes() for matrix in self.matrices or ()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Query) or len(self.matrices or ()) != len(other.matrices or ()):
            return False
        return all(map(np.array_equal, self.matrices or (), other.matrices or ()))
