"""The progress of a loop that stops when its budget is spent: a bar in hundredths of the budget."""

from collections.abc import Iterator, Mapping
from typing import Any

from duckdb_dp.progress import Track

PARTS = 100


class Progress:
    """Iterates over hundredths of a budget; each one is called with what is left, and says whether it is passed."""

    def __init__(self, track: Track, budget: float, what: str) -> None:
        self._bar = track(range(1, PARTS + 1), f"{what}, % of the budget")
        self._budget = budget
        self._part = 0

    def __iter__(self) -> Iterator["Progress"]:
        for part in self._bar:
            self._part = part
            yield self

    def __call__(self, left: float) -> bool:
        """Whether more than this hundredth of the budget is spent, except for the last: the loop itself ends there."""
        return self._part < PARTS and self._budget - left > self._part / PARTS * self._budget

    def note(self, report: Mapping[str, Any]) -> None:
        """Show the round and its estimated error beside a bar that can show a note."""
        show = getattr(self._bar, "set_postfix_str", None)
        if show is not None:
            show(f"round {report['round']}, estimated error {report['error']:.3g}", refresh=False)
