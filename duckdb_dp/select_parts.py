"""What of a SELECT of dp_sql a question answers, as part of a request."""

from collections.abc import Sequence
from dataclasses import dataclass

from duckdb_dp.domain.domain import Clique


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectColumn:
    """A column of a SELECT's result, as dp_sql understood it.

    Attributes:
        name: as the SELECT calls it.
        attribute: what it is grouped by, or what is aggregated; '' for count(*).
        function: 'count', 'sum' or 'avg'; '' for a grouped column.
    """

    name: str
    attribute: str
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearQuery:
    """What is added up over the rows of a group: 1, the number of a column, or that less the middle of its domain.

    Attributes:
        function: 'count' (of rows where the attribute is not NULL), 'sum' or 'centred'.
        attribute: its column; '' where every row counts.
    """

    function: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.function}:{self.attribute}"

    @classmethod
    def parse(cls, text: str) -> "LinearQuery":
        """The inverse of ``str``."""
        function, _, attribute = text.partition(":")
        return cls(function=function, attribute=attribute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The rows of a result along one axis of the answers.

    Attributes:
        attributes: what they are grouped by together.
        cells: one cell number for each attribute, row by row.
    """

    attributes: tuple[str, ...]
    cells: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectPart:
    """The part of a SELECT of dp_sql that a question answers: one linear query of one grouping set.

    Attributes:
        number: which SELECT of the call, from 1.
        query: what is added up.
        columns: the columns of the SELECT's result.
        groups: the rows along each axis where not every cell is one; in a joint question, all rows.
        summed: attributes of the clique that are used in conditions or aggregated, and have no column.
    """

    number: int
    query: LinearQuery
    columns: tuple[SelectColumn, ...]
    groups: tuple[Groups, ...] = ()
    summed: tuple[str, ...] = ()

    def to_tags(self, clique: Clique) -> list[tuple[str, str]]:
        """As version 1 writes it: (tag, text) pairs, '#' the number, '@' the query and aggregates, '=' the rows."""
        tags = [("#", str(self.number)), ("@", str(self.query))]
        tags += [(f"@{c.function}:{c.attribute}" if c.function else c.attribute, c.name) for c in self.columns]
        alone = {rows.attributes: rows for rows in self.groups}
        for name in clique:
            if name in self.summed:
                tags.append((f"={name}", ""))
            elif found := alone.pop((name,), None):
                tags += _row_tags(found)
        return tags + [tag for rows in alone.values() for tag in _row_tags(rows)]

    @classmethod
    def from_tags(cls, tags: Sequence[tuple[str, str]], clique: Clique, joint: bool) -> "SelectPart":
        """The inverse of ``to_tags``."""
        (_, number), (_, query), *rest = tags
        rows: dict[str, list[str]] = {}
        columns = []
        for tag, text in rest:
            kind, aggregates, attribute = tag.partition(":")
            if tag.startswith("="):
                rows.setdefault(tag[1:], []).append(text)
            elif aggregates and kind in _AGGREGATES:
                columns.append(SelectColumn(name=text, attribute=attribute, function=kind[1:]))
            else:
                columns.append(SelectColumn(name=text, attribute=tag))
        return cls(
            number=int(number),
            query=LinearQuery.parse(query),
            columns=tuple(columns),
            groups=tuple(_groups(key, cells, clique) for key, cells in rows.items() if joint or cells != [""]),
            summed=() if joint else tuple(key for key, cells in rows.items() if cells == [""]),
        )


_AGGREGATES = ("@count", "@sum", "@avg")


def _row_tags(rows: Groups) -> list[tuple[str, str]]:
    key = "=" + ",".join(rows.attributes)
    return [(key, ",".join(map(str, cells))) for cells in rows.cells]


def _groups(joined: str, cells: Sequence[str], clique: Clique) -> Groups:
    """The rows of one key of tags: names joined by commas, and cell numbers too."""
    numbers = tuple(tuple(map(int, filter(None, cell.split(",")))) for cell in cells)
    return Groups(attributes=_names(joined, len(numbers[0]), clique) or (), cells=numbers)


def _names(joined: str, count: int, clique: Clique) -> tuple[str, ...] | None:
    """The ``count`` names of a clique that were joined by commas, which a name may have some of itself."""
    if count <= 1:
        return (joined,) if joined in clique else None
    for name in clique:
        if joined.startswith(f"{name},") and (rest := _names(joined[len(name) + 1 :], count - 1, clique)):
            return (name, *rest)
    return None
