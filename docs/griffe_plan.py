"""The function duckdb_dp.plan for the Python reference: read without running, the folder plan/ stands in its place."""

from typing import Any

from griffe import Extension, Function, Module

HIDDEN = "duckdb_dp.plan"
SHOWN = "plan_function"
"""Under this name it is found: '::: duckdb_dp.plan_function'."""


class PlanFunction(Extension):
    """Keeps the function when it is met, and puts it back when the package is complete."""

    def __init__(self) -> None:
        """Start without one."""
        self._found: Function | None = None

    def on_function_instance(self, *, func: Function, **_: Any) -> None:
        """Remember the function."""
        if func.path == HIDDEN:
            self._found = func

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Give it a name of its own; what is shown is still 'plan'."""
        if pkg.name == "duckdb_dp" and self._found is not None:
            pkg.members[SHOWN] = self._found
