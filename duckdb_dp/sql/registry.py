"""The registry of SQL functions: each is one record, which the module with the function's name registers.

A function is ``sql/dp_x.sql``, whose header is its reference, and ``duckdb_dp/sql/dp_x.py``, which registers one
``Function``. Nothing else needs to know of it.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any, Literal, final, get_args

from duckdb_dp.accounting.ledger import Release
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.session import Session

Rows = list[dict[str, Any]]
Columns = Mapping[str, str]
"""Names and DuckDB types of the columns of a small table."""


def _nothing(_session: Session, _arguments: Arguments, _place: Place) -> str:
    return "NULL"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """What a SQL function does. It has a ``plan``, or ``rows``, or both, if ``plan`` returns None for some calls.

    Attributes:
        name: in SQL.
        plan: (session, arguments, place) -> the SQL that a call is replaced by, while its statement is bound. It runs
            for EXPLAIN and DESCRIBE too, so it uses neither data nor budget. None: ``rows`` answers the call.
        rows: (session, arguments, place, seen) -> the rows of a small public table, while the statement runs.
        columns: of ``rows``, or a function that computes them from the arguments.
        context: SQL expression of what ``rows`` needs from the catalog, as the user's transaction sees it; its value is ``seen``.
        read: (session, stored, arguments, place) -> the SQL of a stored release of the function, by its name or number.
        compares: whether its SQL compares values of tables, and so depends on how text is compared.
        declares: whether its dataset is a new one.
        curator: whether it is for the curator only, and so does not exist on an analyst's connection.
        exact: arguments that ask for exact numbers, which are for the curator only too.
        declaring: arguments that declare something, which is for the curator only too.
        public: whether it returns releases and declarations only, which are public.
    """

    name: str
    plan: Callable[[Session, Arguments, Place], str | None] | None = None
    rows: Callable[[Session, Arguments, Place, str], Rows] | None = None
    columns: Columns | Callable[[Arguments], Columns] = field(default_factory=dict)
    context: Callable[[Session, Arguments, Place], str] = _nothing
    read: Callable[[Session, Release, Arguments, Place], str] | None = None
    compares: bool = False
    declares: bool = False
    curator: bool = False
    exact: tuple[str, ...] = ()
    declaring: tuple[str, ...] = ()
    public: bool = False

    def columns_of(self, arguments: Arguments) -> Columns:
        """The columns of a call that is answered by ``rows``."""
        return self.columns(arguments) if callable(self.columns) else self.columns


_FUNCTIONS: dict[str, Function] = {}


def register(function: Function) -> Function:
    """Add a function to those that SQL can call."""
    _FUNCTIONS[function.name] = function
    return function


def find(name: str) -> Function:
    """The function of that name; its module is imported when it is first asked for.

    Raises:
        DPError: there is no such function.
    """
    if name not in _FUNCTIONS and name in _modules():
        import_module(f"{__package__}.{name}")
    if name not in _FUNCTIONS:
        raise DPError(f"there is no function {as_sql(name)}.")
    return _FUNCTIONS[name]


def functions() -> Mapping[str, Function]:
    """All functions by name."""
    for name in _modules():
        find(name)
    return _FUNCTIONS


@cache
def _modules() -> frozenset[str]:
    folder = str(files(__package__))
    return frozenset(module.name for module in pkgutil.iter_modules([folder]) if module.name.startswith("dp_"))


Role = Literal["curator", "analyst"]

ROLES: tuple[Role, ...] = get_args(Role)
