"""What a private selection chooses from."""

from dataclasses import dataclass
from typing import final

from duckdb_dp.domain.domain import Clique


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A marginal that a selection may choose, with the score weight * (||mu - estimate||_1 - bias)."""

    clique: Clique
    weight: float = 1.0
    bias: float = 0.0
