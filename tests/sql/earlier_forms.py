"""Requests as earlier versions stored them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from unittest.mock import patch

from duckdb_dp.sql import same_conditions
from duckdb_dp.sql.bindings import LOADED
from duckdb_dp.sql.older_forms import Looked
from tests.conftest import Loaded


@contextmanager
def as_in_form(number: int) -> Iterator[None]:
    """Conditions have the form of that number in all threads, as calls are planned in one of their own."""
    with patch.object(same_conditions, "_FORM", ContextVar("earlier", default=number)):
        yield


def check_found_again(found: Loaded, select: str, number: int) -> None:
    """What dp_sql answered in that form it answers now, at no cost, as a new process does, which looks through the ledger once."""
    with as_in_form(number):
        before = found("FROM dp_sql(?, epsilon := 1)", [select])
    charges = found.charges()
    looked_anew(found)
    assert found("FROM dp_sql(?, epsilon := 1)", [select]) == before
    assert found.charges() == charges


def looked_anew(found: Loaded) -> None:
    """As a new process does, which looks through the ledger once."""
    looked = LOADED[found("SELECT _dp_loaded()")[0][0]].session.kept(Looked)
    looked.found.clear()
    looked.respelt.clear()
    looked.sought.clear()
    looked.joined.clear()
