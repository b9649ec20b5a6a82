"""The error of a column without a declared domain, wherever it is named."""

import difflib
from collections.abc import Iterable
from typing import final

from duckdb_dp.domain.attribute import DOMAINS
from duckdb_dp.errors import DPError, as_sql, few, quoted


@final
class UnknownAttribute(DPError):  # noqa: N818  what it says of a name
    """A column without a declared domain.

    Args:
        name: as it was written.
        declared: the names that have one.
        table: the table's name, and that name as an argument; None where it is not known.
    """

    def __init__(self, name: str, declared: Iterable[str], table: tuple[str, str] | None = None) -> None:
        self.name, self.declared = name, list(declared)
        full, hint = as_sql(name), ""
        if table is not None:
            full = f"'{table[0]}'.{full}"
            hint = (
                f" Declare it: CALL dp_attribute({table[1]}, {quoted(name)}, ...) with {DOMAINS}; "
                f"CALL dp_attributes({table[1]}) lists what each column needs."
            )
        spelling = {one.lower(): one for one in self.declared}
        close = difflib.get_close_matches(name.lower(), spelling, n=1)
        meant = f" Did you mean {as_sql(spelling[close[0]])}?" if close else ""
        super().__init__(
            f"{full} has no declared domain (declared so far: {few(self.declared) or 'none'}).{meant}{hint}"
        )
