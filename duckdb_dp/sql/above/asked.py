"""What stands above a batch of SELECTs, as a question sees it that may not need to parse it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Request

if TYPE_CHECKING:
    from duckdb_dp.plan.direct import DirectPlan


class Statement(Protocol):
    """What stands above a batch of SELECTs."""

    @property
    def selects(self) -> list[str]:
        """The SELECTs."""

    def sql(
        self,
        request: Request,
        plan: "Plan | DirectPlan",
        handle: str,
        *,
        private: bool,
        found: Sequence[str] = (),
        in_short: bool = False,
    ) -> str:
        """The SQL of the statement on their answers; it refuses before anything is charged."""

    def check_size(self, request: Request) -> None:
        """Refuse what may make too much of answers that are not paid yet."""
