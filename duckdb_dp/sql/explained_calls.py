"""Functions of which dp_explain says in columns of their own what a call would cost: dp_discover, dp_synthesize, dp_links, dp_max_rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from duckdb_dp.sql import dp_discover, dp_max_rows
from duckdb_dp.sql import explained_synthesis as synthesis
from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Columns, Rows
from duckdb_dp.sql.session import Session


@final
@dataclass(frozen=True, slots=True)
class Call:
    """How dp_explain speaks of one function.

    Attributes:
        columns: of the rows.
        asked: arguments of dp_explain -> those of the call that it is asked about; None where that is of another function.
        explain: (session, arguments of the call, place) -> the rows, at no cost.
    """

    columns: Columns
    asked: Callable[[Arguments], dict[str, Any] | None]
    explain: Callable[[Session, Arguments, Place], Rows]


CALLS = (
    Call(dp_discover.EXPLAINED, dp_discover.explained, dp_discover.explain),
    Call(synthesis.ROWS, synthesis.rows_asked, synthesis.explain_rows),
    Call(synthesis.LINKS, synthesis.links_asked, synthesis.explain_links),
    Call(dp_max_rows.EXPLAINED, dp_max_rows.explained, dp_max_rows.explain),
)


def find(arguments: Arguments) -> tuple[Call, dict[str, Any]] | None:
    """The call that dp_explain is asked about, and its arguments; None where these are questions.

    Raises:
        DPError: the call has arguments that its function does not take.
    """
    for call in CALLS:
        if (asked := call.asked(arguments)) is not None:
            return call, asked
    return None
