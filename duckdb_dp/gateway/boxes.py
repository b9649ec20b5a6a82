"""The sandboxes of one session: synthetic rows stay in one of their own, so that all that comes out of it is known to be synthetic."""

from typing import TYPE_CHECKING, Literal, final

from duckdb_dp.counting.encode import quote
from duckdb_dp.gateway.sandbox import Sandbox

if TYPE_CHECKING:
    from duckdb_dp.gateway.gateway import Gateway  # for its type: a gateway makes the sessions that have these

Kind = Literal["plain", "mixed", "explore"]
"""Without synthetic rows; with them beside other rows; and to explore them, where a dataset's name is its twin's."""

_MADE = (
    "SELECT table_name AS name FROM duckdb_tables() WHERE NOT internal UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal "
    "UNION ALL SELECT function_name FROM duckdb_functions() WHERE NOT internal"
)


@final
class Boxes:
    """A statement runs in the sandbox whose tables it names.

    Args:
        gateway: whose tables they are given.
        account: whose grants say which.
    """

    def __init__(self, gateway: "Gateway", account: str) -> None:
        self._gateway, self._account = gateway, account
        self._boxes: dict[Kind, Sandbox] = {}
        self._made: dict[Kind, set[str]] = {"plain": set(), "mixed": set(), "explore": set()}

    def kind(self, names: frozenset[str], *, explore: bool = False) -> Kind:
        """Which sandbox a statement runs in: one with synthetic rows where it names such a table, or one that was made beside them."""
        if explore:
            return "explore"
        return "mixed" if names & (self._gateway.twins(self._account).keys() | self._made["mixed"]) else "plain"

    def of(self, kind: Kind, names: frozenset[str]) -> Sandbox:
        """The sandbox, with those public, synthetic and own tables that a statement names."""
        box = self._boxes.get(kind)
        if box is None or not box.alive:
            box = self._boxes[kind] = Sandbox(self._gateway.config.limits)
            self._made[kind] = set()
            self._gateway.boxes.add(self._account, box)
        known = self._gateway.broker.public_tables()
        if kind != "plain":
            known |= self._gateway.twins(self._account)
        if kind == "explore":
            known |= self._gateway.twins(self._account, by_dataset=True)
        for name in (names & known.keys()) - box.tables:
            box.give(name, self._gateway.broker.public(known[name]))
        plain = self._boxes.get("plain")
        if kind == "mixed" and plain is not None and plain.alive:
            for name in (names & self._made["plain"]) - box.tables - self._made["mixed"]:
                box.give(name, plain.run(f"FROM {quote(name)}", {}))
        return box

    def note(self, kind: Kind, names: frozenset[str]) -> None:
        """See what a statement made or changed: a table that it changed beside synthetic rows is one of theirs from then on."""
        found = {name.lower() for name in self._boxes[kind].run(_MADE, {}).column("name").to_pylist()}
        changed = names & (self._made["plain"] | self._made[kind]) if kind == "mixed" else set()
        self._made[kind] = (found - self._boxes[kind].tables) | (found & changed)

    def close(self) -> None:
        """End them; tables that were made are gone."""
        for box in list(self._boxes.values()):
            box.close()
        self._boxes.clear()
        self._made = {"plain": set(), "mixed": set(), "explore": set()}

    @property
    def living(self) -> list[Sandbox]:
        """Those that can be asked."""
        return [box for box in self._boxes.values() if box.alive]
