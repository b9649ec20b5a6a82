"""Marginals from noisy residuals by in-axis array operations."""

import itertools
import math
from collections.abc import Mapping

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array


def marginal(domain: Domain, clique: Clique, residuals: Mapping[Clique, Array]) -> Array:
    """The marginal of a clique as the sum of its smeared, centred residuals.

    Formula: mu_gamma = sum over tau in gamma of smear(z_tau), where smear divides by n_j along each j not in
    tau. The 2^k terms are laid into one array of shape (n_i + 1) that has tau's absent attributes at index 0; each
    axis is then folded once, which costs about k passes over the marginal instead of 2^k.

    Args:
        domain: the domain.
        clique: the attributes of the marginal.
        residuals: estimated, centred residual of each subset, any shape with its cells; a missing one counts as zero
            (attributes of one value have none).

    Returns:
        Array of shape ``domain.shape(clique)``.

    Source: [AIM+GReM] Alg. 2.

    Privacy: post-processing.
    """
    shape = domain.shape(clique)
    terms = np.zeros([n + 1 for n in shape])
    for size in range(len(clique) + 1):
        for tau in itertools.combinations(clique, size):
            if tau in residuals:
                place = tuple(slice(1, None) if name in tau else 0 for name in clique)
                terms[place] = residuals[tau].reshape(domain.shape(tau))
    for axis, n in enumerate(shape):
        absent, present = np.split(terms, [1], axis=axis)
        present += absent / n
        terms = present
    assert terms.size == math.prod(shape)
    return terms
