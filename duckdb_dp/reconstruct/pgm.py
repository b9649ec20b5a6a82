"""Private-PGM: the maximum entropy distribution that fits noisy measurements of small marginals, however large the domain.

The estimate minimises sum_i |B_i mu_i - y_i|^2 / (2 v_i) over marginals of a distribution, which makes it non-negative and
consistent (and biased). It lives in the cliques of a junction tree of the measured attribute sets, which must fit into
memory; the library ``mbi`` of the method's authors fits it.
"""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from duckdb_dp.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Centring, Factored, Identity, Kron, LinOp
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.junction import JunctionTree, calibrate

MEMORY = 2**27
"""Bytes that the tables of a junction tree may take; fitting holds a few such sets."""

STEPS = 1000
"""Steps of mirror descent."""

DENSE = 2**24
"""Entries of a matrix that a strategy without a product form may have."""

EVERY = 50
"""Steps between two calls for progress: mbi's block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One noisy measurement, y = B mu + N(0, v I).

    Attributes:
        clique: the attributes of the marginal mu; () is the total.
        strategy: B, (m, cells).
        values: y, (m,).
        variance: v.
    """

    clique: Clique
    strategy: LinOp
    values: Array
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted distribution.

    Attributes:
        tree: its marginals, and records from it.
        loss: mean of |B mu - y|^2 / v over all answers: about 1 or less where the model fits.
        model: the library's own, to start another fit from.
    """

    tree: JunctionTree
    loss: float
    model: Any = field(repr=False)


def fit(
    domain: Domain,
    measured: Sequence[Measured],
    *,
    steps: int = STEPS,
    memory: float = MEMORY,
    start: Fit | None = None,
    track: Track = silent,
) -> Fit:
    """The maximum entropy distribution that fits noisy measurements.

    Args:
        domain: the domain; may be far larger than memory.
        measured: measurements on small attribute sets; one at least must see the total.
        steps: of mirror descent.
        memory: bytes that the junction tree may take.
        start: an earlier fit to start from.
        track: shows progress.

    Raises:
        DPError: mbi is not installed; the junction tree would not fit; no measurement sees the total.

    Source: McKenna, Sheldon, Miklau. Graphical-model based estimation and inference for differential privacy. ICML 2019.

    Privacy: post-processing.
    """
    cells = tree_cells(domain, [one.clique for one in measured])
    if 8 * cells > memory:
        raise DPError(
            f"Private-PGM would need a junction tree of {8 * cells / 2**20:,.0f} MiB for these {len(measured)} measurements, "
            f"and {memory / 2**20:,.0f} MiB are allowed. Measure fewer marginals or smaller ones, or use "
            f"postprocess := 'fitted'."
        )
    total = estimate_total(measured)
    with _mbi() as mbi:
        space = _space(mbi, domain)
        parts = [_part(mbi, one) for one in measured if one.clique]
        ticks = iter(track(range(-(-steps // EVERY)), "fitting a graphical model"))
        model = mbi.estimation.MirrorDescent().estimate(
            space,
            parts,
            known_total=total,
            iters=steps,
            warm_start=None if start is None else start.model.potentials,
            callback_fn=lambda _: next(ticks, None),
        )
        next(ticks, None)
        tree = _calibrated(mbi, domain, model, total)
    return Fit(tree=tree, loss=_loss(tree, measured), model=model)


def tree_cells(domain: Domain, cliques: Sequence[Clique]) -> int:
    """Cells of a junction tree for marginals of these cliques, all tables together.

    Raises:
        DPError: mbi is not installed.

    Privacy: post-processing.
    """
    with _mbi() as mbi:
        tree, _ = mbi.junction_tree.make_junction_tree(_space(mbi, domain), list(_wanted(domain, cliques)))
        return sum(domain.cells(clique) for clique in tree.nodes)


def estimate_total(measured: Sequence[Measured]) -> float:
    """The inverse variance mean of what each measurement says of the total, at least 1.

    Raises:
        DPError: none says anything.

    Privacy: post-processing.
    """
    weights = values = 0.0
    for one in measured:
        # The total is 1^T mu; B sees it if 1 is in its row space, and then 1^T B^+ y estimates it.
        if isinstance(one.strategy, Identity) or not one.clique:
            scale, found = float(one.strategy.shape[1]), float(one.strategy.estimate(one.values).sum())
        elif isinstance(one.strategy, Centring | Factored) or one.strategy.shape[0] * one.strategy.shape[1] > DENSE:
            continue
        else:
            ones = np.ones(one.strategy.shape[1])
            combination = np.linalg.lstsq(one.strategy.dense().T, ones, rcond=None)[0]
            if not np.allclose(one.strategy.rmatvec(combination), ones, atol=1e-6):
                continue
            scale, found = float(combination @ combination), float(combination @ one.values)
        weights += 1 / (scale * one.variance)
        values += found / (scale * one.variance)
    if not weights:
        raise DPError("Private-PGM needs a measurement that sees the total; add the marginal [] or one of whole cells.")
    return max(1.0, values / weights)


def _wanted(domain: Domain, cliques: Sequence[Clique]) -> dict[Clique, None]:
    """The cliques of a model: those measured, and every attribute."""
    return dict.fromkeys([*(clique for clique in cliques if clique), *((name,) for name in domain.attributes)])


@contextlib.contextmanager
def _mbi() -> Iterator[Any]:
    """The library, with doubles, and without its warnings about what it finds set outside."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="JAX")
        try:
            import jax
            import mbi
        except ImportError:
            raise DPError("Private-PGM needs the library mbi: pip install 'duckdb-dp[pgm]'.") from None
    with jax.enable_x64(True):
        yield mbi


def _space(mbi: Any, domain: Domain) -> Any:
    return mbi.Domain(domain.attributes, tuple(domain.sizes.values()))


def _part(mbi: Any, one: Measured) -> Any:
    """The measurement as mbi's."""
    from duckdb_dp.reconstruct.query import Query

    return mbi.LinearMeasurement(
        np.asarray(one.values, dtype=np.float64).reshape(-1),
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


def _calibrated(mbi: Any, domain: Domain, model: Any, total: float) -> JunctionTree:
    """The model's marginals on a junction tree that covers all attributes, each clique after its parent.

    In numpy: jax would spend seconds on compiling what is done once.
    """
    import networkx

    potentials = {tuple(clique): np.asarray(model.potentials[clique].values) for clique in model.potentials.cliques}
    graph, _ = mbi.junction_tree.make_junction_tree(model.domain, list(_wanted(domain, list(potentials))))
    order: list[Clique] = []
    parents: list[int | None] = []
    for component in networkx.connected_components(graph):
        root = max(component, key=lambda node: (domain.cells(node), node))
        order.append(root)
        parents.append(None)
        for parent, child in networkx.bfs_edges(graph, root):
            parents.append(order.index(parent))
            order.append(child)
    return calibrate(domain, total, tuple(order), tuple(parents), potentials)


def _loss(tree: JunctionTree, measured: Sequence[Measured]) -> float:
    answers = sum(len(one.values) for one in measured)
    squares = sum(
        float(((one.strategy.matvec(tree.marginal(one.clique).reshape(-1)) - one.values) ** 2).sum()) / one.variance
        for one in measured
    )
    return squares / answers
