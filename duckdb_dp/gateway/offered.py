"""Which dp_ functions an account may call, and with which arguments."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import final

import duckdb

from duckdb_dp.errors import DPError, as_sql, few, first_line
from duckdb_dp.gateway.asked import Asked, check_size, written
from duckdb_dp.sql.install import macro_files
from duckdb_dp.sql.registry import functions

STEWARDS = frozenset({
    "dp_account", "dp_accounts", "dp_approve", "dp_audit", "dp_grant", "dp_refuse", "dp_requests", "dp_share",
})  # fmt: skip
"""Curator's functions that a steward may call over the network: they decide who may ask, and read no table."""

LOCAL = frozenset({"dp_synthesize_database"})
"""Functions for local connections alone: they make tables."""

TEXT = 1_000_000
"""Characters of a call from its constants, all of which a steward may have to see."""


@final
class Offered:
    """The functions of the macros, and a database with nothing in it that knows what constants are."""

    def __init__(self) -> None:
        self._alone = duckdb.connect()

    @cached_property
    def parameters(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Function -> its arguments: (those without a default, those with one)."""
        found = {}
        for file, text in macro_files():
            name = file.removesuffix(".sql")
            if name not in functions():
                continue
            header = re.search(
                rf"MACRO {name}\((.*?)\)\s+AS", re.sub(r"^--.*\n", "", text, flags=re.MULTILINE), re.DOTALL
            )
            pieces = [piece.strip() for piece in (header[1] if header else "").split(",") if piece.strip()]
            plain = tuple(piece.strip('"') for piece in pieces if ":=" not in piece)
            named = tuple(piece.split(":=")[0].strip().strip('"') for piece in pieces if ":=" in piece)
            found[name] = (plain, named)
        return found

    def check(self, asked: Asked, role: str) -> None:
        """Refuse a function that there is not for a role, and arguments that it has not.

        Raises:
            DPError: it is so.
        """
        function = functions().get(asked.function)
        curators = function is not None and function.curator and not (role == "steward" and asked.function in STEWARDS)
        if function is None or curators or asked.function in LOCAL:
            raise DPError(
                f"there is no function {asked.function} here; what there is: {', '.join(self.functions(role))}."
            )
        plain, named = self.parameters[asked.function]
        given = [name for name, _ in asked.arguments if name is not None]
        for name in given:
            if name not in (*plain, *named):
                close = ", ".join((*plain, *named))
                raise DPError(f"{asked.function}: there is no argument {as_sql(name)}; there are: {close}.")
        positions = [name for name, _ in asked.arguments[: len(asked.arguments) - len(given)]]
        if any(positions) or len(set(given)) < len(given):
            raise DPError(f"{asked.function}: arguments without a name come first, and none comes twice.")
        missing = [name for name in plain[len(positions) :] if name not in given]
        if asked.function == "dp_explain" and positions:  # whose SELECTs may stand alone
            missing = []
        most = len(plain) + (len(named) if asked.function in STEWARDS else 0)  # as dp_refuse(18, 'reason') is written
        if missing or len(positions) > most or set(given) & {*(*plain, *named)[: len(positions)]}:
            raise DPError(
                f"{asked.function}: {few(missing) + ' is missing' if missing else 'name the further arguments, with :='}."
            )
        check_size([value for _, value in asked.arguments])
        if len(asked.sql) > TEXT:
            raise DPError(f"{asked.function}: the arguments have more than {TEXT:,} characters; ask for less at once.")
        self._check_constants(asked)

    def _check_constants(self, asked: Asked) -> None:
        """Refuse lists and structs that DuckDB has no value for, such as {'': 1}, where there is nothing private to tell of."""
        nested = [value for _, value in asked.arguments if isinstance(value, list | tuple | dict)]
        if not nested:
            return
        try:
            self._alone.cursor().execute(f"SELECT {', '.join(map(written, nested))}")
        except duckdb.Error as error:
            raise DPError(f"{asked.function}: an argument is no value of DuckDB: {first_line(error)}") from None

    def functions(self, role: str) -> list[str]:
        """The functions that a role may call."""
        own = STEWARDS if role == "steward" else frozenset()
        return sorted(
            name for name, each in functions().items() if (not each.curator or name in own) and name not in LOCAL
        )

    def close(self) -> None:
        """Close that database."""
        self._alone.close()
