"""The record of a noisy measurement, which a ``PrivateQueryable`` returns and every reconstruction starts from."""

import math
from dataclasses import dataclass
from typing import final

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array, Centring, LinOp


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearMeasurement:
    """Noisy answers y = B mu + noise of variance v in every answer, mu the marginal of a clique.

    Attributes:
        clique: the attributes of mu; () is the total.
        strategy: B, (m, cells): the linear map that was measured. ``Centring`` measures the residual of the clique.
        answers: y, (m,).
        variance: v.

    Raises:
        DPError: a variance that is not positive and finite.

    Privacy: has been paid for; all that is made of it is post-processing.
    """

    clique: Clique
    strategy: LinOp
    answers: Array
    variance: float

    def __post_init__(self) -> None:
        if not 0 < self.variance < math.inf:
            raise DPError(
                f"the noise variance of {as_sql(self.clique)} is {as_sql(self.variance)}; a variance is positive and finite."
            )


def residual_measurement(domain: Domain, clique: Clique, answers: Array, variance: float) -> LinearMeasurement:
    """The measurement of a residual: y = (C (x) ... (x) C) mu + noise; whatever is not centred in y is noise.

    Args:
        domain: the domain.
        clique: the attributes.
        answers: y, flat or of the clique's shape.
        variance: of the noise in each answer, before centring.
    """
    strategy = Centring(domain.shape(clique))
    return LinearMeasurement(clique=clique, strategy=strategy, answers=answers.reshape(-1), variance=variance)
