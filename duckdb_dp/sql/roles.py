"""Who may call what: the curator declares and may see what is exact; the analyst asks."""

import re
from typing import Literal, get_args

from duckdb_dp.errors import DPError
from duckdb_dp.sql.parse import Arguments

Role = Literal["curator", "analyst"]

ROLES: tuple[Role, ...] = get_args(Role)

CURATORS = frozenset({"dp_protect", "dp_attribute", "dp_attributes", "dp_link", "dp_public", "dp_check"})
"""Functions that say what is private or public, or show what is exact; on an analyst's connection they do not exist."""

EXACT = ("exact", "cells")
"""Arguments of dp_quality that ask for exact scores, which are the curator's too."""


def for_role(role: Role | None, error: DPError) -> DPError:
    """An error whose advice an analyst cannot follow alone says whom to ask."""
    text = " ".join(str(error).split())
    if role != "analyst" or "curator" in text or not CURATORS & set(re.findall(r"\bdp_\w+", text)):
        return error
    return DPError(f"{text.rstrip('.')}. That is the curator's to do: ask the curator.")


def check_role(role: Role | None, function: str, arguments: Arguments) -> None:
    """Refuse an analyst what is the curator's.

    Args:
        role: whose connection it is; None where that is not known.
        function, arguments: the call.

    Raises:
        DPError: it is the curator's.
    """
    if role == "curator":
        return
    if function in CURATORS:
        raise DPError(f"{function} is the curator's; ask the curator, or load with role='curator' where you are it.")
    for name in EXACT:
        if function == "dp_quality" and arguments.get(name):
            raise DPError(
                f"{name} := true shows what is exact, which is the curator's; leave it out and name a budget, e.g. epsilon := 0.2."
            )
