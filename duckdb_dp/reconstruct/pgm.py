"""Private-PGM: the maximum entropy distribution that fits noisy measurements of small marginals, on domains of any size.

The estimate minimises sum_i |B_i mu_i - y_i|^2 / (2 v_i) over marginals of a distribution, which makes it non-negative and
consistent (and biased). It lives in the cliques of a junction tree of the measured attribute sets, which must fit into
memory; the library ``mbi`` of the method's authors fits it.
"""

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Centring, Factored, Identity, Kron, LinOp
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.junction import JunctionTree, calibrate, junction_tree
from duckdb_dp.reconstruct.measurement import LinearMeasurement

MEMORY = 2**27
"""Bytes that the tables of a junction tree may take; fitting holds a few such sets."""

STEPS = 1000
"""Steps of mirror descent at most."""

GAINED = 1e-3
"""Fitting ends where two blocks of 50 steps lower the objective by no more than this, relatively."""

DENSE = 2**24
"""Entries of a matrix that a strategy without a product form may have."""

EVERY = 50
"""Steps between two calls for progress: mbi's block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted distribution.

    Attributes:
        tree: its marginals, and records from it.
        potentials: P ~ exp(sum of these tables), one for each of some cliques; another fit can start from them.
        loss: mean of |B mu - y|^2 / v over all answers: about 1 or less where the model fits.
    """

    tree: JunctionTree
    potentials: Mapping[Clique, Array] = field(repr=False)
    loss: float


def fit(
    domain: Domain,
    measured: Sequence[LinearMeasurement],
    *,
    steps: int = STEPS,
    memory: float = MEMORY,
    start: Mapping[Clique, Array] | None = None,
    track: Track = silent,
) -> Fit:
    """The maximum entropy distribution that fits noisy measurements.

    Args:
        domain: the domain; may be far larger than memory.
        measured: measurements on small attribute sets; one at least must see the total.
        steps: of mirror descent.
        memory: bytes that the junction tree may take.
        start: potentials of an earlier fit to start from.
        track: shows progress.

    Raises:
        DPError: mbi is not installed; the junction tree would not fit; no measurement sees the total.

    Source: McKenna, Sheldon, Miklau. Graphical-model based estimation and inference for differential privacy. ICML 2019.

    Privacy: post-processing.
    """
    cliques, parents = checked_tree(domain, [one.clique for one in measured], memory)
    total = estimate_total(measured)
    with _mbi() as mbi:
        space = mbi.Domain(domain.attributes, tuple(domain.sizes.values()))
        parts = [_part(mbi, one) for one in measured if one.clique]
        ticks = iter(track(range(-(-steps // EVERY)), "fitting a graphical model"))
        model = mbi.estimation.MirrorDescent().estimate(
            space,
            parts,
            known_total=total,
            iters=steps,
            tol=GAINED,
            warm_start=None if start is None else _vector(mbi, space, start),
            callback_fn=lambda _: next(ticks, None),
        )
        for _ in ticks:
            pass
        potentials = {tuple(c): np.array(model.potentials[c].values, np.float64) for c in model.potentials.cliques}
    tree = calibrate(domain, total, cliques, parents, potentials)
    return Fit(tree=tree, potentials=potentials, loss=loss(tree, measured))


def checked_tree(
    domain: Domain, cliques: Sequence[Clique], memory: float
) -> tuple[tuple[Clique, ...], tuple[int | None, ...]]:
    """The junction tree of these cliques, if its tables take no more than ``memory`` bytes.

    Raises:
        DPError: they would take more.

    Privacy: post-processing.
    """
    tree = junction_tree(domain, cliques)
    size = 8 * sum(map(domain.cells, tree[0]))
    if size > memory:
        raise DPError(
            f"Private-PGM would need a junction tree of {size / 2**20:,.0f} MiB for these {len(cliques):,} marginals, and "
            f"{memory / 2**20:,.0f} MiB are allowed. Measure fewer marginals or of fewer attributes, or use "
            f"postprocess := 'fitted'."
        )
    return tree


def estimate_total(measured: Sequence[LinearMeasurement]) -> float:
    """The inverse variance mean of what each measurement says of the total, at least 1.

    Raises:
        DPError: none says anything.

    Privacy: post-processing.
    """
    weights = values = 0.0
    for one in measured:
        # The total is 1^T mu; B sees it if 1 is in its row space, and then 1^T B^+ y estimates it.
        if isinstance(one.strategy, Identity) or not one.clique:
            scale, total = float(one.strategy.shape[1]), float(one.strategy.estimate(one.answers).sum())
        elif isinstance(one.strategy, Centring | Factored) or one.strategy.shape[0] * one.strategy.shape[1] > DENSE:
            continue
        else:
            ones = np.ones(one.strategy.shape[1])
            combination: Array = np.linalg.lstsq(one.strategy.dense().T, ones, rcond=None)[0].astype(np.float64)
            if not np.allclose(one.strategy.rmatvec(combination), ones, atol=1e-6):
                continue
            scale, total = float(combination @ combination), float(combination @ one.answers)
        weights += 1 / (scale * one.variance)
        values += total / (scale * one.variance)
    if not weights:
        raise DPError("Private-PGM needs a measurement that sees the total; add the marginal [] or one of whole cells.")
    return max(1.0, values / weights)


def loss(tree: JunctionTree, measured: Sequence[LinearMeasurement]) -> float:
    """Mean of |B mu - y|^2 / v over all answers.

    Privacy: post-processing.
    """
    answers = sum(len(one.answers) for one in measured)
    squares = sum(
        float(((one.strategy.matvec(tree.marginal(one.clique).reshape(-1)) - one.answers) ** 2).sum()) / one.variance
        for one in measured
    )
    return squares / answers


def require() -> None:
    """See to it that the library is there, before anything is paid for.

    Raises:
        DPError: it is not.
    """
    with _mbi():
        pass


@contextlib.contextmanager
def _mbi() -> Iterator[Any]:
    """The library, with doubles, and without its warnings about what it finds set outside."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="JAX")
        try:
            jax, mbi = import_module("jax"), import_module("mbi")
        except ImportError:
            raise DPError("Private-PGM needs the library mbi: pip install 'duckdb-dp[pgm]'.") from None
    with jax.enable_x64(True):
        yield mbi


def _vector(mbi: Any, space: Any, potentials: Mapping[Clique, Array]) -> Any:
    tables = {clique: mbi.Factor(space.project(clique), table) for clique, table in potentials.items()}
    return mbi.CliqueVector(space, list(tables), tables)


def _part(mbi: Any, one: LinearMeasurement) -> Any:
    """The measurement as mbi's."""
    return mbi.LinearMeasurement(
        np.asarray(one.answers, dtype=np.float64).reshape(-1),
        one.clique,
        stddev=float(np.sqrt(one.variance)),
        query=Query(matrices=_matrices(one.strategy)),
    )


def _matrices(strategy: LinOp) -> tuple[Array, ...] | None:
    """B as a Kronecker product of matrices, None for the identity.

    Raises:
        DPError: neither a product of small matrices nor small itself.
    """
    if isinstance(strategy, Identity):
        return None
    if isinstance(strategy, Centring):
        return tuple(np.eye(n) - 1 / n for n in strategy.sizes)
    if isinstance(strategy, Factored):
        return tuple(factor.centred for factor in strategy.factors)
    if isinstance(strategy, Kron):
        return tuple(factor.dense() for factor in strategy.factors)
    if strategy.shape[0] * strategy.shape[1] > DENSE:
        raise DPError(
            f"Private-PGM cannot hold a strategy of {strategy.shape[0]:,} answers on {strategy.shape[1]:,} cells; "
            f"up to {DENSE:,} entries work. Measure smaller marginals."
        )
    return (strategy.dense(),)


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
