"""Plans whose strategies were found by search: how each is stored with its measurements, and loaded again.

A search may end a little elsewhere on another processor or with other libraries. A release is read with the strategies that
it was drawn with, or its answers would be biased. Closed forms, as for marginals, are the same everywhere; they are planned
again and not stored.

Nothing private: a plan depends on the workload and the budget alone.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np

from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, LinOp
from duckdb_dp.noise.kinds import GAUSSIAN
from duckdb_dp.plan.base import PLAN as PLAN
from duckdb_dp.plan.base import Measurement, Plan

VERSION = 1


@final
class Matrices:
    """The matrices of a plan by number, each kept once.

    Attributes:
        arrays: name -> matrix.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._numbers: dict[int, int] = {}

    def number(self, matrix: Array) -> int:
        """The number of a matrix; a new one is kept."""
        found = self._numbers.setdefault(id(matrix), len(self._numbers))
        self.arrays[matrix_name(found)] = matrix
        return found


def matrix_name(number: int) -> str:
    """The array that holds a matrix."""
    return f"matrix {number}"


@dataclass(frozen=True, kw_only=True)
class SearchedPlan(Plan):
    """A plan that says what it is in JSON and matrices, and is made from them again.

    Its class's name is the stored kind; ``stored.STORED`` finds the class.
    """

    @abstractmethod
    def described(self, matrices: Matrices) -> dict[str, Any]:
        """What this kind of plan has beyond any plan, as JSON; matrices by their numbers."""

    @classmethod
    @abstractmethod
    def restored(
        cls, workload: Workload, described: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[Sequence[LinOp], dict[str, Any]]:
        """(the strategy of every measurement, the class's own attributes), from what ``described`` has said."""

    def dump(self) -> dict[str, Array]:
        matrices = Matrices()
        described = {
            "version": VERSION,
            "kind": type(self).__name__,
            "mechanism": self.mechanism,
            "noise": self.noise,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "cliques": [m.clique for m in self.measurements],
            "variances": [m.variance for m in self.measurements],
            **self.described(matrices),
        }
        text = np.frombuffer(json.dumps(described).encode(), dtype=np.uint8)
        return {PLAN: text.astype(np.float64), **matrices.arrays}

    @classmethod
    def load(cls, workload: Workload, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The plan that ``dump`` has taken apart; version 0.1.0 left out 'noise' or 'objective' where there was one."""
        strategies, own = cls.restored(workload, described, arrays)
        stored = zip(described["cliques"], strategies, described["variances"], strict=True)
        return cls(
            workload=workload,
            mechanism=described["mechanism"],
            measurements=tuple(
                Measurement(clique=tuple(clique), strategy=strategy, variance=variance)
                for clique, strategy, variance in stored
            ),
            lower_bound=described["lower_bound"],
            objective=described.get("objective", "total"),
            noise=described.get("noise", GAUSSIAN.name),
            **own,
        )


def description(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """What a stored plan says of itself.

    Raises:
        DPError: it is of another version.
    """
    found: dict[str, Any] = json.loads(arrays[PLAN].astype(np.uint8).tobytes())
    if found["version"] != VERSION:
        raise DPError("this plan was stored by another version of duckdb_dp; read it with that version.")
    return found
