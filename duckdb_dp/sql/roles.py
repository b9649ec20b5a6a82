"""Who may call what: the curator declares and may see what is exact; the analyst asks."""

from typing import Literal, get_args

from duckdb_dp.errors import DPError
from duckdb_dp.sql.arguments import Arguments
from duckdb_dp.sql.registry import Function

Role = Literal["curator", "analyst"]

ROLES: tuple[Role, ...] = get_args(Role)


def check_role(role: Role | None, function: Function, arguments: Arguments) -> None:
    """Refuse an analyst what is the curator's.

    Args:
        role: whose connection it is; None where that is not known.
        function, arguments: the call.

    Raises:
        DPError: it is the curator's.
    """
    if role == "curator":
        return
    if function.curator:
        raise DPError(
            f"{function.name} is the curator's; ask the curator, or load with role='curator' where you are it."
        )
    for name in function.exact:
        if arguments.get(name):
            raise DPError(
                f"{name} := true shows what is exact, which is the curator's; leave it out and name a budget, e.g. epsilon := 0.2."
            )
