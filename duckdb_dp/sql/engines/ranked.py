"""Quantiles and numbers of distinct values where it is chosen how many rows of a unit count: as ``sql/direct_counts`` reads them."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.counting.engines.count import ranked
from duckdb_dp.counting.engines.expressions import by_bytes
from duckdb_dp.domain.domain import Clique
from duckdb_dp.grouped_sums import GroupedSums, Sum
from duckdb_dp.plan.clipping import Clip
from duckdb_dp.request import Request
from duckdb_dp.sql.engines.clipped import cell
from duckdb_dp.sql.engines.sums import (
    Blocks,
    Table,
    added,
    adding_anything,
    block,
    columns_of,
    numbered,
    placed,
    unit_of,
)


@final
class Ranked:
    """What is read of one grouping set: of all rows, each with the first candidate for the number of rows of a unit with which it counts.

    A unit's rows are ranked by a keyed hash of what they add, as where that number is declared, so that with any candidate those
    count that would then. A number of distinct values is that of the values whose first candidate is not above the bound.

    Args:
        request: whose part it is.
        part: the grouping set, with the sums that are read.
        names: of these.
        unit_key: the ledger's key of the hash that ranks the rows of a unit.
        engine: where the rows are, for messages.
        clip: the candidates.
    """

    def __init__(
        self, request: Request, part: GroupedSums, names: Sequence[Clique], unit_key: str, engine: str, *, clip: Clip
    ) -> None:
        self._request, self.part, self._names, self._key, self._engine = request, part, names, unit_key, engine
        self._clip = clip
        self._unit = {f"u{i}": name for i, name in enumerate(unit_of(request, part))}
        before = [{other.histogram for other in part.sums[:i]} for i in range(len(part.sums))]
        self._read = [i for i, one in enumerate(part.sums) if one.cells is None or one.histogram not in before[i]]

    @property
    def number(self) -> int:
        """How many blocks there are: of each sum that is read, and of how many rows units have."""
        return len(self._read) + 1

    def tables(self, table: Table, first: int) -> list[Table]:
        """Tables of (b, k, n0): a block's number, (candidate * groups + group) * cells + cell or a candidate, and a number.

        The group of a quantile is still a cell of its attributes.

        Args:
            table: the rows.
            first: the number of the first block.
        """
        rows = self._rows(table)
        found = [self._counted(rows, i, first + number) for number, i in enumerate(self._read)]
        units = [name for name in rows.columns if name[0] in "ub"]
        owners = rows.group_by(units).aggregate(n=rows.count())
        owners = owners.select(j=cell(owners["n"].cast("float64"), self._clip))
        owners = owners.group_by("j").aggregate(n=owners.count())
        return [*found, block(first + len(self._read), owners["j"], [owners["n"]])]

    def blocks(self, found: Mapping[int, Sequence[NDArray[np.int64]]]) -> Blocks:
        """The answers of ``tables`` by name, from (k, n0, ...) by the number of their block."""
        none = [np.zeros(0, dtype=np.int64)] * 2
        names: list[Clique] = [*(self._names[i] for i in self._read), (*self._names[0], "owners")]
        read = [found.get(number, none)[:2] for number in range(len(names))]
        blocks: Blocks = {name: (places, numbers) for name, (places, numbers) in zip(names, read, strict=True)}
        for i in self._read:
            places, numbers = blocks[self._names[i]]
            blocks[self._names[i]] = (self._of_groups(places, self.part.sums[i]), numbers)
        return blocks

    def _of_groups(self, places: NDArray[np.integer], one: Sum) -> NDArray[np.integer]:
        """Places among the groups, which several cells of the attributes may be in."""
        if self.part.groups is None or one.cells is None:
            return places
        groups = np.array(self.part.groups, dtype=np.int64)
        place, value = np.divmod(places, one.cells.size)
        candidate, cell_ = np.divmod(place, len(groups))
        return (candidate * self.part.size + groups[cell_]) * one.cells.size + value

    def _rows(self, table: Table) -> Table:
        """The rows that add anything: the unit, the cell k of the group's attributes, s0, s1, ..., and their first candidate j."""
        columns = columns_of(self.part, table, self._engine)
        adding = {f"s{i}": added(columns, one) for i, one in enumerate(self.part.sums)}
        found = placed(self.part, self._request, table, self._engine, self._unit, adding)
        found = ranked(adding_anything(found, adding), list(self._unit), self._key)
        apart = {f"b{i}": by_bytes(found[at]) for i, at in enumerate(self._unit) if found[at].type().is_string()}
        return found.mutate(j=cell((found["rank"] + 1).cast("float64"), self._clip), **apart)

    def _counted(self, rows: Table, index: int, number: int) -> Table:
        """Values by the first candidate with which they are there; or the cells of a quantile by that of their rows."""
        one, name = self.part.sums[index], f"s{index}"
        size = self.part.size if self.part.groups is None else len(self.part.groups)
        rows = rows.filter(rows[name].notnull())
        place: Any
        if one.cells is None:
            size, rows = self.part.size, numbered(self.part, rows)
            rows = rows.group_by(["k", name]).aggregate(j=rows["j"].min())
            place = rows["j"] * size + rows["k"]
        else:
            place = (rows["j"] * size + rows["k"]) * one.cells.size + rows[name]
        rows = rows.select(p=place)
        found = rows.group_by("p").aggregate(n=rows.count())
        return block(number, found["p"], [found["n"]])
