"""Links of maximum entropy that fit noisy residuals, as far as each can be trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, final

import numpy as np

from duckdb_dp.domain import Clique
from duckdb_dp.linop import Array, Integers
from duckdb_dp.relational.blocks import Blocks
from duckdb_dp.relational.sides import helmert

if TYPE_CHECKING:
    from torch import Tensor

Tilt = Mapping[Clique, Array]
"""Coefficients theta per clique, shape (coordinates on the left, coordinates on the right)."""

_METRIC = (0, 10, 30, 70, 150, 310)  # steps at which the metric is taken anew
_MEMORY = 30  # steps that L-BFGS remembers
_SMALLEST = 1e-10  # step of a line search that is taken whatever it finds: rounding is all that is left


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Datum:
    """A noisy residual in orthonormal coordinates.

    Attributes:
        clique: its attributes.
        values: shape (prod of n_i - 1 on the left, the same on the right).
        ridge: noise variance over overdispersion, s / t: how much it takes to move the fit.
    """

    clique: Clique
    values: Array
    ridge: float


@final
class _Dual:
    """The dual of the fit, as a function of the coefficients theta of the measured residuals."""

    def __init__(self, blocks: Blocks, base: "Tensor", data: Sequence[Datum], each: bool) -> None:
        import torch

        self.blocks, self.each, self.total = blocks, each, float(base.sum())
        self.logs, self.weights = torch.log(base), base.sum(1)
        lefts = list(dict.fromkeys(blocks.split(d.clique)[0] for d in data))
        rights = list(dict.fromkeys(blocks.split(d.clique)[1] for d in data))
        self.left, at_left = _stack(blocks, lefts, blocks.shape[0])
        self.right, at_right = _stack(blocks, rights, blocks.shape[1])
        self.shape = (self.left.shape[1], self.right.shape[1])
        index, values, ridge = [], [], []
        for d in data:
            left, right = blocks.split(d.clique)
            index.append((at_left[left][:, None] * self.shape[1] + at_right[right][None, :]).reshape(-1))
            values.append(d.values.reshape(-1))
            ridge.append(np.full(d.values.size, d.ridge))
        self.cliques = {d.clique: (len(i), d.values.shape) for d, i in zip(data, index, strict=True)}
        self.index = torch.as_tensor(np.concatenate(index), device=base.device)
        self.values, self.ridge = blocks.tensor(np.concatenate(values)), blocks.tensor(np.concatenate(ridge))

    def links(self, theta: "Tensor") -> tuple["Tensor", float]:
        """(links per block, the log partition function's part of the dual)."""
        import torch

        field = torch.zeros(self.shape[0] * self.shape[1], dtype=theta.dtype, device=theta.device)
        field[self.index] = theta
        power = torch.addmm(self.logs, self.left @ field.reshape(self.shape), self.right.T)
        if self.each:
            logs = torch.logsumexp(power, 1)
            scale = torch.log(self.weights) - logs
            return power.add_(scale[:, None]).exp_(), float((self.weights * logs).sum())
        top = float(power.max())
        links = power.sub_(top).exp_()
        mass = float(links.sum())
        return links.mul_(self.total / mass), self.total * (np.log(mass) + top)

    def answers(self, links: "Tensor") -> "Tensor":
        """The measured residuals of links."""
        return (self.left.T @ (links @ self.right)).reshape(-1)[self.index]

    def value(self, theta: "Tensor") -> tuple[float, "Tensor", "Tensor"]:
        """(value, gradient, links)."""
        links, partition = self.links(theta)
        fit = partition - float(theta @ self.values) + 0.5 * float(self.ridge @ theta**2)
        return fit, self.answers(links) - self.values + self.ridge * theta, links


@final
class _Metric:
    """An approximate inverse of the dual's Hessian: exact within each clique, without what cliques share.

    Attributes of uneven values make the coordinates of one clique depend on one another strongly: a diagonal misses that,
    and takes two to three times the steps.
    """

    def __init__(self, dual: _Dual, links: "Tensor") -> None:
        import torch

        groups: dict[int, list[tuple[int, Tensor]]] = {}
        at = 0
        for clique, (size, _) in dual.cliques.items():
            left, right = dual.blocks.split(clique)
            counts = dual.blocks.tensor(dual.blocks.marginal(links, left + right).reshape(-1, 1))
            sizes = dual.blocks.domain.shape(left + right)
            basis = dual.blocks.tensor(reduce(np.kron, map(helmert, sizes)))  # type: ignore[arg-type]
            hessian = basis.T @ (counts * basis)
            hessian.diagonal().add_(dual.ridge[at : at + size] + 1e-12 * hessian.diagonal().sum())
            groups.setdefault(size, []).append((at, hessian))
            at += size
        self._groups = []
        for size, members in groups.items():
            places = torch.as_tensor([at for at, _ in members], device=links.device)
            within = torch.arange(size, device=links.device)
            inverse = torch.cholesky_inverse(torch.linalg.cholesky(torch.stack([hessian for _, hessian in members])))
            self._groups.append((places[:, None] + within[None, :], inverse))

    def __call__(self, gradient: "Tensor") -> "Tensor":
        found = gradient.clone()
        for index, inverse in self._groups:
            found[index] = (inverse @ gradient[index][:, :, None])[:, :, 0]
        return found


def _stack(blocks: Blocks, subsets: list[Clique], types: int) -> tuple["Tensor", dict[Clique, Integers]]:
    """The columns of all subsets of one side beside one another, and the place of each."""
    import torch

    parts, place, at = [], {}, 0
    for subset in subsets:
        part = blocks.columns(subset) if subset else torch.ones((types, 1), dtype=torch.float64, device=blocks.device)
        place[subset] = np.arange(at, at + part.shape[1])
        parts.append(part)
        at += part.shape[1]
    return torch.cat(parts, 1), place


def tilted(blocks: Blocks, base: "Tensor", tilt: Tilt, *, each: bool = False) -> "Tensor":
    """The links base * exp(tilt), with the sum, or with ``each`` the sum of each row, that the base has.

    A tilt that was fitted on some row types holds for others.

    Privacy: post-processing.
    """
    if not tilt:
        return base
    dual = _Dual(blocks, base, [Datum(clique=c, values=v, ridge=1.0) for c, v in tilt.items()], each)
    return dual.links(dual.values)[0]


def fit(
    blocks: Blocks,
    base: "Tensor",
    data: Sequence[Datum],
    *,
    each: bool = False,
    start: Tilt | None = None,
    tolerance: float = 1e-6,
    steps: int = 400,
) -> tuple["Tensor", Tilt]:
    r"""The links M that minimise KL(M || base) + sum over data of ||R M - z||^2 / (2 ridge).

    They are base * exp(sum of theta), with one coefficient per coordinate of a measured residual. To first order each
    residual is shrunk as if its cells had prior variance t mu_0 about the base: t / (t mu_0 + s) of noise s stays out.
    Solved in the dual by L-BFGS, in the metric of its Hessian within each clique, which is taken anew a few times.

    Args:
        blocks: the blocks.
        base: links of the prior, shape (K, L), positive; their sum, or with ``each`` the sum of each row, is kept.
        data: what was measured.
        each: whether each left row has one link exactly.
        start: a tilt to start from; cliques that it lacks start at 0.
        tolerance: of KL, per link: half the square of the relative L1 error that is left.
        steps: evaluations at most.

    Returns:
        Links per block, shape (K, L), and the tilt: theta of every clique.

    Source: [RS25] section 3 with the objective of `docs/mechanisms/links.md`.

    Privacy: post-processing.
    """
    if not data:
        return base, {}
    dual = _Dual(blocks, base, data, each)
    known = start or {}
    first = [np.reshape(known.get(d.clique, np.zeros_like(d.values)), -1) for d in data]
    theta, links = _descend(dual, blocks.tensor(np.concatenate(first)), tolerance, steps)
    parts = np.split(theta.cpu().numpy(), np.cumsum([size for size, _ in dual.cliques.values()])[:-1])
    return links, {c: part.reshape(shape) for (c, (_, shape)), part in zip(dual.cliques.items(), parts, strict=True)}


def _descend(dual: _Dual, theta: "Tensor", tolerance: float, steps: int) -> tuple["Tensor", "Tensor"]:
    """Minimise the dual by L-BFGS with backtracking: (theta, links)."""
    value, gradient, links = dual.value(theta)
    memory: list[tuple[Tensor, Tensor]] = []
    for step in range(steps):
        if step in _METRIC:
            metric = _Metric(dual, links)
        if 0.5 * float(gradient @ metric(gradient)) <= tolerance * dual.total:
            break
        ahead = _direction(gradient, metric, memory)
        size, slope = 1.0, float(gradient @ ahead)
        while True:
            found, new, links = dual.value(theta + size * ahead)
            if found <= value + 1e-4 * size * slope + 1e-13 * abs(value) or size < _SMALLEST:
                break
            size /= 2
        moved, turned = size * ahead, new - gradient
        theta, value, gradient = theta + moved, found, new
        if float(moved @ turned) > 0:
            memory = [*memory[1 - _MEMORY :], (moved, turned)]
    return theta, links


def _direction(gradient: "Tensor", metric: _Metric, memory: Sequence[tuple["Tensor", "Tensor"]]) -> "Tensor":
    """L-BFGS's two loops: minus an approximate inverse Hessian, which starts as the metric, times the gradient."""
    ahead, scales = -gradient, []
    for moved, turned in reversed(memory):
        scale = (moved @ ahead) / (moved @ turned)
        ahead = ahead - scale * turned
        scales.append(scale)
    ahead = metric(ahead)
    for (moved, turned), scale in zip(memory, reversed(scales), strict=True):
        ahead = ahead + (scale - (turned @ ahead) / (moved @ turned)) * moved
    return ahead
