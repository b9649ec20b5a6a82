"""Who may call what: the curator declares and may see what is exact; the analyst asks."""

from typing import Literal, get_args

Role = Literal["curator", "analyst"]

ROLES: tuple[Role, ...] = get_args(Role)
