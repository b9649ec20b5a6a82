"""What a function that asks queries about one table says of itself, for its calls in SQL and for dp_explain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Question, Request
from duckdb_dp.sql.above.asked import Statement
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset
from duckdb_dp.sql.session import Session

if TYPE_CHECKING:
    from duckdb_dp.grouped_sums import GroupedSums
    from duckdb_dp.sql.found_groups import Found

Declared = Mapping[str, Attribute]


def named_dataset(session: Session, arguments: Arguments, place: Place) -> Dataset:
    """The dataset that is an argument of the call."""
    return find_dataset(session.ledger, arguments["dataset"], *place)


def as_declared(declared: Declared, _dataset: Dataset, _arguments: Arguments) -> Declared:
    """The attributes as they are declared."""
    return declared


def as_asked(request: Request, _arguments: Arguments) -> Request:
    """The request with the mechanism that was asked for."""
    return request


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A function that asks queries about one table: dp_marginals, dp_queries, dp_quantiles or dp_sql.

    Attributes:
        name: of the function.
        argument: the argument that holds the queries.
        recognises: whether the arguments of dp_explain ask about a call of this function; its second one is 'attributes'.
        questions: (argument, dataset, declared, arguments) -> the questions.
        rows: (request, plan, handle, arguments, private) -> the SQL of the answers; the plan is None for an adaptive one.
        describe: a question in a few words.
        dataset: whose questions they are.
        adaptive: whether adaptive mechanisms can answer them.
        direct: (session, dataset, declared, arguments, place) -> the sums that answer the call row by row, none where questions
            do; and the declarations of their columns.
        domain: (declared, dataset, arguments) -> the attributes as the function counts their cells.
        chosen: (request, arguments) -> the request with the mechanism that 'auto' takes for how its answers are read.
        found: (session, arguments, place) -> the columns to group by whose values are found first; None for none.
        above: (session, argument, place) -> what a statement asks above the SELECTs that it aggregates by; None for none.
        own: mechanisms that this function has beside the planners.
        arranged: (session, arguments, SQL of the answers, the same to describe them by) -> with their columns in the order asked for.
    """

    name: str
    argument: str
    recognises: Callable[[Arguments], bool]
    questions: Callable[[Any, Dataset, Declared, Arguments], tuple[Question, ...]]
    rows: Callable[[Request, Plan | None, str, Arguments, bool], str]
    describe: Callable[[Question], str]
    dataset: Callable[[Session, Arguments, Place], Dataset] = named_dataset
    adaptive: bool = False
    direct: "Callable[[Session, Dataset, Declared, Arguments, Place], tuple[tuple[GroupedSums, ...], Declared]] | None" = None
    domain: Callable[[Declared, Dataset, Arguments], Declared] = as_declared
    chosen: Callable[[Request, Arguments], Request] = as_asked
    found: "Callable[[Session, Arguments, Place], Found | None] | None" = None
    above: Callable[[Session, Any, Place], "Statement | None"] | None = None
    own: tuple[str, ...] = ()
    arranged: Callable[[Session, Arguments, str, Callable[[], str]], str] | None = None
