"""dp_links: which synthetic rows are linked, as positions in their tables."""

from collections.abc import Mapping, Sequence
from typing import Any, cast, final

import numpy as np

from duckdb_dp.answers import DETAIL, to_bytes
from duckdb_dp.attribute import Attribute
from duckdb_dp.domain import Clique
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Dense, Integers, LinOp, Total
from duckdb_dp.noise.bits import Bits
from duckdb_dp.private import Door
from duckdb_dp.progress import Track
from duckdb_dp.relational.links import links
from duckdb_dp.relational.schema import Reference
from duckdb_dp.relational.sides import side_of
from duckdb_dp.request import Request, units
from duckdb_dp.synthesis.base import Run, SyntheticTable, generator

LINKED = ".linked"
"""End of the name, after a role, of the pseudo-attribute of its rows: whether they have a link."""


def side_attributes(request: Request, place: int) -> tuple[Attribute, ...]:
    """The attributes of the left (0) or right (1) side of a dp_links, as the request calls them."""
    sizes = dict(request.options)["sizes"]
    start = sum(sizes[:place])
    return request.attributes[start : start + sizes[place]]


def check_tables(request: Request, tables: Sequence[SyntheticTable], kept: bool) -> None:
    """Refuse synthetic tables that cannot be linked, and a broken promise, before anything is charged.

    Raises:
        DPError: an empty table, keys that repeat, values outside the domain; more links than there can be.
    """
    check_promise(request, kept)
    found = dict(request.options)
    for place, table in enumerate(tables):
        name = found["synthetic"][place]
        table.check_values(name, side_attributes(request, place))
        if not table.distinct:
            columns = ", ".join(found["references"][place]["key"])
            raise DPError(f"{name} has rows whose key ({columns}) is NULL or the same as another's; number them.")


def check_promise(request: Request, kept: bool) -> None:
    """Refuse links that break the bound that was promised for both sides. Says neither whose nor how many.

    Raises:
        DPError: the bound does not hold.
    """
    if not kept:
        raise DPError(
            f"'{request.table}' has rows with more links than the {request.max_rows} promised for both sides; promise more "
            "with max_degree, or protect one side, whose further links are left out."
        )


def run(request: Request, tables: Sequence[SyntheticTable], bits: Bits, track: Track) -> Run:
    """What draws the links.

    Privacy: spends all that the door has.
    """

    def drawn(door: Door) -> Mapping[str, Array]:
        links, detail = links_of(door, request, tables, generator(bits), track)
        read = {"digests": [table.digest for table in tables], "texts": [table.texts for table in tables]}
        return {
            DETAIL: to_bytes({**read, **detail}),
            **{str(i): np.asarray(found, np.float64) for i, found in enumerate(links)},
        }

    return drawn


@final
class Flags:
    """A door at which rows may change sides: a link more makes an unlinked row a linked one, and changes two counts.

    Doors reckon with rows that come or go. So the number of all rows and that of the linked ones are measured apart: a
    row that changes sides changes the one by nothing and the other by 1.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        self.domain, self.rows, self.accounting = door.domain, door.rows, door.accounting
        self.select, self.selection_epsilon = door.select, door.selection_epsilon

    @property
    def left(self) -> float:
        """As the door's own."""
        return self._door.left

    def measure(self, clique: Clique, strategy: LinOp, rho: float) -> tuple[Array, float]:
        """As the door's own; of the pseudo-attribute of linked rows (unlinked, linked), whatever the strategy.

        Privacy: spends rho.
        """
        if len(clique) != 1 or not clique[0].endswith(LINKED):
            return self._door.measure(clique, strategy, rho)
        rows, _ = self._door.measure(clique, Total(2), rho / 2)
        linked, variance = self._door.measure(clique, Dense(np.array([[0.0, 1.0]])), rho / 2)
        return np.array([rows[0] - linked[0], linked[0]]), variance


def links_of(
    door: Door, request: Request, tables: Sequence[SyntheticTable], rng: np.random.Generator, track: Track
) -> tuple[list[Integers], dict[str, Any]]:
    """The links of a request; a bound that protects a side holds for its synthetic rows too.

    Privacy: spends all that the door has.
    """
    found = dict(request.options)
    bounded = [tuple(map(str.lower, unit)) for unit in units(request.unit)]
    sides = []
    for place, table in enumerate(tables):
        reference = Reference.from_json(found["references"][place])
        attributes = side_attributes(request, place)
        tag = f"{reference.role}{LINKED}"
        held = tuple(map(str.lower, reference.columns)) in bounded
        sides.append(
            side_of(
                tuple(attribute.name for attribute in attributes),
                table.codes(attributes).astype(np.int64),
                max_degree=request.max_rows if held else None,
                linked=tag if tag in door.domain.sizes else None,
            )
        )
    start = sum(found["sizes"])
    own = [a.name for a in request.attributes[start:] if not a.name.endswith(LINKED)]
    return links(
        cast(Door, Flags(door)),
        sides[0],
        sides[1],
        rows=found.get("rows"),
        distinct=bool(found["distinct"]),
        child=bool(found["child"]),
        own=own,
        rng=rng,
        track=track,
    )
