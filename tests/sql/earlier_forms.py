"""Requests as earlier versions stored them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from unittest.mock import patch

from duckdb_dp.sql import same_conditions


@contextmanager
def as_in_form(number: int) -> Iterator[None]:
    """Conditions have the form of that number in all threads, as calls are planned in one of their own."""
    with patch.object(same_conditions, "_FORM", ContextVar("earlier", default=number)):
        yield
