"""Column types that have labels and no bins: BOOLEAN, VARCHAR, ENUM and UUID."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, final
from uuid import UUID

from duckdb_dp.domain.types.base import LABELS, ColumnType, Scalar, literal


@final
class Truth(ColumnType):
    """BOOLEAN."""

    spelled = "BOOLEAN"
    declared_by = ""
    ibis_names: ClassVar[dict[str, str]] = {"Boolean": "BOOLEAN"}

    @property
    def members(self) -> tuple[Scalar, ...]:
        return False, True

    def fits(self, point: Scalar, *, edge: bool = False) -> bool:
        return isinstance(point, bool)

    def asked(self, value: Scalar, *, typed: bool) -> Scalar | None:
        return value if isinstance(value, bool) else None

    def place(self, column: str, points: Sequence[Scalar]) -> str:
        return "CASE " + " ".join(f"WHEN {column} = {literal(p)} THEN {i}" for i, p in enumerate(points)) + " END"


class _Label(ColumnType):
    """Types whose values are labels."""

    declared_by = LABELS
    textual = True

    def fits(self, point: Scalar, *, edge: bool = False) -> bool:
        return isinstance(point, str) and "\0" not in point

    def misfits(self, points: Sequence[Scalar], *, edges: bool) -> list[Scalar]:
        return [] if self._all_fit(points) else super().misfits(points, edges=edges)

    def _all_fit(self, points: Sequence[Any]) -> bool:
        """Whether all texts fit, where that is quickly known of a million of them."""
        return False

    def place(self, column: str, points: Sequence[Scalar]) -> str:
        """A cast to ENUM is one hash look-up a row, whatever the number of values."""
        return f"enum_code(TRY_CAST(CAST({column} AS VARCHAR) AS ENUM({', '.join(map(literal, points))})))"


FEW = 8
"""So many texts are compared one by one: 2 million rows are placed in two thirds of a cast's time, and in more of it where there are 12."""


@final
class Text(_Label):
    """VARCHAR."""

    spelled = "VARCHAR"
    ibis_names: ClassVar[dict[str, str]] = {"String": "VARCHAR"}

    def _all_fit(self, points: Sequence[Any]) -> bool:
        return {*map(type, points)} == {str} and "\0" not in "".join(points)

    def place(self, column: str, points: Sequence[Scalar]) -> str:
        if not 0 < len(points) <= FEW:
            return super().place(column, points)
        # By their bytes, as the cast to ENUM does, whatever collation the column has.
        value = f"encode(CAST({column} AS VARCHAR))"
        return f"CASE {' '.join(f'WHEN {value} = encode({literal(point)}) THEN {i}::UTINYINT' for i, point in enumerate(points))} END"

    def key(self, table: str, number: str) -> str:
        return f"{literal(table + '-')} || {number}"


@final
class Enum(_Label):
    """ENUM('a', 'b'), by its members."""

    spelled = r"ENUM\(.*\)"

    @property
    def members(self) -> tuple[Scalar, ...]:
        return tuple(_members(self.name))

    def fits(self, point: Scalar, *, edge: bool = False) -> bool:
        return isinstance(point, str) and point in _members(self.name)


@cache
def _members(name: str) -> dict[str, None]:
    return dict.fromkeys(text.replace("''", "'") for text in re.findall(r"'((?:[^']|'')*)'", name))


@final
class Uuid(_Label):
    """UUID, in small letters as DuckDB writes it."""

    spelled = "UUID"
    ibis_names: ClassVar[dict[str, str]] = {"UUID": "UUID"}

    def fits(self, point: Scalar, *, edge: bool = False) -> bool:
        try:
            return str(UUID(str(point))) == point
        except ValueError:
            return False

    def canonical(self, point: Scalar) -> Scalar:
        return point.lower() if isinstance(point, str) else point

    def asked(self, value: Scalar, *, typed: bool) -> Scalar | None:
        return value.lower() if isinstance(value, str) and len(value) == 36 else None

    def key(self, table: str, number: str) -> str:
        return f"CAST(md5({literal(table + '-')} || {number}) AS UUID)"

    def ibis_points(self, column: Any, points: Sequence[Scalar]) -> tuple[Any, list[Any]]:
        import ibis

        return column.cast("string").lower(), [ibis.literal(point) for point in points]
