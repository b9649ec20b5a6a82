"""The noise distributions by name: how each is drawn, the width of its intervals, and what it costs.

Plans and stored releases name their noise. A new kind is one class here, one entry in ``NOISES``, and a planner for it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar, Protocol, final

import numpy as np
import numpy.typing as npt

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.accounting.event import Event, GaussianEvent, LaplaceEvent
from duckdb_dp.noise import gaussian, laplace
from duckdb_dp.noise.uniform import EntropySource


class Strategy(Protocol):
    """What noise is calibrated to: the sensitivities of a linear query."""

    @property
    def sensitivity(self) -> float:
        """The largest L1 norm of a column."""

    @property
    def squared_sensitivity(self) -> float:
        """The largest squared L2 norm of a column."""


class Noise(ABC):
    """One kind of independent noise, calibrated by its variance.

    Its cost is in its own unit: the privacy cost beta of Gaussian noise, the epsilon of Laplace noise.

    Attributes:
        name: 'gaussian', as plans store it; the mechanism that adds it to each marginal by itself has the same name.
        pure: whether it has a pure epsilon.
        quantile: half-width of a 95 % interval in standard deviations.
        degree: the total error of parts is least where each has a share of the cost as the 1 / degree-th power of its error.
    """

    name: ClassVar[str]
    pure: ClassVar[bool]
    quantile: ClassVar[float]
    degree: ClassVar[int]

    @abstractmethod
    def draw(
        self,
        centres: npt.NDArray[np.float64],
        errors: npt.NDArray[np.float64] | float,
        stddev: float,
        exact: Callable[[int], Fraction],
        *,
        bits: EntropySource,
    ) -> npt.NDArray[np.int64]:
        """The nearest integers to c_i + X_i for ideal draws X_i; see ``gaussian.noisy_grid``.

        Privacy: spends what noise of this standard deviation costs.
        """

    @abstractmethod
    def event(self, cost: float, accounting: Accounting) -> Event:
        """What is charged where noise may cost ``cost`` under an accounting."""

    @abstractmethod
    def unit_variance(self, cost: float) -> float:
        """The variance of the noise of one answer of sensitivity 1 that costs ``cost``."""

    @abstractmethod
    def variance(self, strategy: Strategy, cost: float) -> float:
        """The variance of the noise of a strategy's answers that together cost ``cost``."""

    @abstractmethod
    def cost(self, strategy: Strategy, variance: float) -> float:
        """What a strategy's answers cost with noise of that variance: the reverse of ``variance``."""


@final
class _Gaussian(Noise):
    """Gaussian noise N(0, variance): beta = max_i [B^T B]_ii / variance.

    Source: [QS26] Sec. 2.
    """

    name, pure, degree = "gaussian", False, 2
    quantile = 1.959963984540054  # exact

    def draw(
        self,
        centres: npt.NDArray[np.float64],
        errors: npt.NDArray[np.float64] | float,
        stddev: float,
        exact: Callable[[int], Fraction],
        *,
        bits: EntropySource,
    ) -> npt.NDArray[np.int64]:
        return gaussian.noisy_grid(centres, errors, stddev, exact, bits=bits)

    def event(self, cost: float, accounting: Accounting) -> Event:
        beta = accounting.beta(cost)
        assert beta is not None, "Gaussian noise has no pure epsilon"
        return GaussianEvent(mu=math.sqrt(beta))

    def unit_variance(self, cost: float) -> float:
        return 1 / cost

    def variance(self, strategy: Strategy, cost: float) -> float:
        return strategy.squared_sensitivity / cost

    def cost(self, strategy: Strategy, variance: float) -> float:
        return strategy.squared_sensitivity / variance


@final
class _Laplace(Noise):
    """Laplace noise of scale b = sqrt(variance / 2): epsilon = max_i sum_j |B_ji| / b.

    log(20) / sqrt(2) = 2.118 standard deviations are exact for one draw, and wide enough for weighted sums of independent
    ones, which lie between one draw and a Gaussian (tests/oracle/test_laplace_sums.py).

    Source: [DMNS06].
    """

    name, pure, degree = "laplace", True, 3
    quantile = math.log(20) / math.sqrt(2)

    def draw(
        self,
        centres: npt.NDArray[np.float64],
        errors: npt.NDArray[np.float64] | float,
        stddev: float,
        exact: Callable[[int], Fraction],
        *,
        bits: EntropySource,
    ) -> npt.NDArray[np.int64]:
        return laplace.noisy_grid(centres, errors, stddev / math.sqrt(2), exact, bits=bits)

    def event(self, cost: float, accounting: Accounting) -> Event:
        return LaplaceEvent(epsilon=accounting.laplace_epsilon(cost))

    def unit_variance(self, cost: float) -> float:
        return 2 / cost**2

    def variance(self, strategy: Strategy, cost: float) -> float:
        return 2 * (strategy.sensitivity / cost) ** 2

    def cost(self, strategy: Strategy, variance: float) -> float:
        return strategy.sensitivity / math.sqrt(variance / 2)


GAUSSIAN, LAPLACE = _Gaussian(), _Laplace()

NOISES: dict[str, Noise] = {noise.name: noise for noise in (GAUSSIAN, LAPLACE)}
"""By name."""
