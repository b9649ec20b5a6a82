"""A marginal as the sum of its residuals; all reconstructions use this module for that."""

import itertools
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array


def marginal(domain: Domain, clique: Clique, residuals: Mapping[Clique, Array]) -> Array:
    """The marginal of a clique as the sum of its smeared, centred residuals.

    Formula: mu_gamma = sum over tau in gamma of smear(z_tau), where smear divides by n_j along each j not in tau. Every
    part is spread along one axis, into one part with one attribute more, until all are in the marginal: for three
    attributes that is three passes over the marginal instead of eight.

    Args:
        domain: the domain.
        clique: the attributes of the marginal.
        residuals: estimated, centred residual of each subset, any shape with its cells; a missing one counts as zero
            (attributes of one value have none).

    Returns:
        A new array of shape ``domain.shape(clique)``.

    Source: [AIM+GReM] Alg. 2 and Prop. 3.1.

    Privacy: post-processing.
    """
    sizes = domain.shape(clique)
    parts: dict[tuple[int, ...], Array] = {}
    for axes, larger, axis in ladder(len(clique)):
        part = parts.pop(axes, None)
        residual = residuals.get(tuple(clique[i] for i in axes))
        if residual is not None:
            residual = residual.reshape([sizes[i] for i in axes])
            part = residual if part is None else part + residual
        if part is None:
            continue
        part = np.expand_dims(part / sizes[larger[axis]], axis)
        if larger in parts:
            parts[larger] += part
        else:
            parts[larger] = np.broadcast_to(part, [sizes[i] for i in larger]).copy()
    table = parts.get(tuple(range(len(clique))))
    if table is None:
        table = np.zeros(sizes)
    if clique in residuals:
        table += residuals[clique].reshape(sizes)
    return table


@lru_cache(maxsize=32)
def ladder(order: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]:
    """For every proper subset of 0..order-1, smallest first: (subset, the set one larger it goes to, the axis added)."""
    steps = []
    for size in range(order):
        for axes in itertools.combinations(range(order), size):
            # The next axis after a gap, cyclically: parts spread evenly over those one larger.
            first = axes[-1] + 1 if axes else 0
            new = next(i % order for i in range(first, first + order) if i % order not in axes)
            larger = tuple(sorted((*axes, new)))
            steps.append((axes, larger, larger.index(new)))
    return tuple(steps)
