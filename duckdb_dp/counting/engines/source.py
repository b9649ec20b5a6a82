"""Tables of other engines: which are attached, the DuckDB types of their columns, and how their engine runs a query."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, final

import pyarrow as pa

from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, quoted_name

SCHEMA = "(attached)"
"""The schema in the full name of an attached table, 'spark.(attached).events': nobody calls one in DuckDB that."""

FullName = tuple[str, str, str]

_ENGINES = {"pyspark": "spark"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table of another engine under its name in SQL.

    Attributes:
        name: what it is called in dp_ calls.
        engine: where it lives, 'spark' say: the catalog of its full name.
        table: the Ibis table expression.
        columns: name -> DuckDB type of each column, in order.
    """

    name: str
    engine: str
    table: Any
    columns: dict[str, str]
    _asking: AbstractContextManager[Any] = field(default_factory=threading.Lock, repr=False, compare=False)

    @classmethod
    def of(cls, name: str, table: Any) -> "Source":
        """The source of an Ibis table expression.

        Raises:
            DPError: it is none, or it belongs to no engine, or to one that has ended, or Ibis could not tell it from its steps.
        """
        if type(table).__module__.split(".")[0] != "ibis" or not hasattr(table, "get_backend"):
            raise DPError(
                f"attach: the source of '{name}' is of type {type(table).__name__}; give an Ibis table "
                "(pip install 'duckdb-dp[spark]'), e.g. ibis.pyspark.connect(spark).table('events')."
            )
        try:
            engine = table.get_backend().name
            columns = {column: types.from_ibis(dtype) for column, dtype in table.schema().items()}
        except Exception as error:
            raise DPError(
                f"attach: the source of '{name}' is a table of no engine that answers ({type(error).__name__}); "
                "give one of a connection, e.g. ibis.pyspark.connect(spark).table('events')."
            ) from None
        _check_names(name, table)
        return cls(name=name, engine=_ENGINES.get(engine, engine), table=_held(engine, table), columns=columns)

    @property
    def full_name(self) -> FullName:
        """Catalog, schema and name: its identity in the ledger."""
        return self.engine, SCHEMA, self.name

    @property
    def backend(self) -> Any:
        """The Ibis connection."""
        return self.table.get_backend()

    def shares(self, other: "Source") -> bool:
        """Whether both sources may be read from one table, as far as expressions show."""
        import ibis.expr.operations as ops

        own, others = (source.table.op().find(ops.PhysicalTable) for source in (self, other))
        return any(_same_table(one, leaf) for one in own for leaf in others)

    def has(self, *operations: str) -> bool:
        """Whether the engine has all of these operations of Ibis."""
        import ibis.expr.operations as ops

        return all(self.backend.has_operation(getattr(ops, name)) for name in operations)

    def fetch(self, build: Callable[[Any], Any]) -> pa.Table:
        """What the engine answers to an expression that is built from the table, as Arrow.

        Args:
            build: the table -> a table of counts. It must not run anything.

        Raises:
            DPError: the engine lacks what the expression needs, or failed. Its text is left out: it may hold values.

        Privacy: exact counts; only ``private.py`` may read them.
        """
        with self._asking:
            try:
                expression = build(self.table)
                text = self.backend.compile(expression)
            except DPError:
                raise
            except Exception as error:
                raise DPError(
                    f"'{self.name}' is in {self.engine}, which cannot count it ({type(error).__name__} in Ibis before "
                    "anything ran). Use an engine that groups and has the functions needed, or copy the table to DuckDB."
                ) from None
            try:
                return self._run(expression, text)
            except Exception as error:
                raise self._failed(error) from None

    def _run(self, expression: Any, text: str) -> pa.Table:
        import ibis.expr.operations as ops

        if self.engine == "spark" and not expression.op().find(ops.InMemoryTable):
            found = self.backend.raw_sql(text)
            if hasattr(found, "toArrow"):  # Spark 4; Ibis itself goes through pandas
                return found.toArrow()
        return expression.to_pyarrow()

    def check_now(self, attributes: Sequence[Attribute], unit: Sequence[str]) -> None:
        """Compare what was declared with the table as it was attached and as the engine has it now.

        Raises:
            DPError: a column or a table is gone or has another type, or the engine does not answer.
        """
        for attribute in attributes:
            if self.columns.get(attribute.name) != attribute.type:
                raise self.replaced()
        if not set(unit) <= set(self.columns):
            raise self.replaced()
        import ibis.expr.operations as ops

        with self._asking:
            for leaf in self.table.op().find(ops.DatabaseTable):
                place = {"catalog": leaf.namespace.catalog, "database": leaf.namespace.database}
                try:
                    now = self.backend.get_schema(leaf.name, **place)
                except Exception as error:
                    raise self._failed(error) from None
                for column, dtype in leaf.schema.items():
                    if column not in now or types.from_ibis(now[column]) != types.from_ibis(dtype):
                        raise self.replaced()

    def _failed(self, error: Exception) -> DPError:
        return DPError(
            f"{self.engine} did not count '{self.name}' ({type(error).__name__}; its own log says why), and nothing was "
            f"charged. Ask again; if its session has ended or the table is gone, attach '{self.name}' again first."
        )

    def replaced(self) -> DPError:
        """The error that the table has changed since it was attached and declared."""
        return DPError(
            f"the columns of '{self.name}' in {self.engine} are not those that were declared. Attach it again, and "
            f"declare what has changed: CALL dp_attribute({quoted_name(self.name)}, ...)"
        )


def check_together(sources: Sequence[Source]) -> None:
    """Refuse tables of several connections: one statement of one engine reads them.

    Raises:
        DPError: there are two.
    """
    for one in sources[1:]:
        if one.backend is not sources[0].backend:
            raise DPError(
                f"'{sources[0].name}' and '{one.name}' are on two connections; attach both from one Ibis connection."
            )


@final
class Attached:
    """The attached tables of one loaded database, by name; names are the same in any letter case, as in DuckDB."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}

    def add(self, source: Source) -> None:
        """Attach a source, in place of one of the same name."""
        self._sources[source.name.lower()] = source

    def __iter__(self) -> Iterator[Source]:
        return iter(list(self._sources.values()))

    def find(self, catalog: str, schema: str, name: str) -> Source | None:
        """The source with that full name."""
        found = self._sources.get(name.lower())
        full = (catalog.lower(), schema.lower(), name.lower())
        return found if found is not None and _folded(found.full_name) == full else None

    def named(self, parts: tuple[str, ...]) -> list[FullName]:
        """Full names of the sources that a name in SQL may mean: its own name alone stands for it too."""
        found = self._sources.get(parts[-1].lower())
        if found is None or (len(parts) > 1 and _folded(found.full_name)[-len(parts) :] != _folded(parts)):
            return []
        return [found.full_name]

    def columns(self, names: Iterable[FullName]) -> list[dict[str, Any]]:
        """Columns of the named sources, in the form of the catalog query of ``declaring``."""
        found = [source for name in names if (source := self.find(*name)) is not None]
        return [
            {
                "catalog": source.engine,
                "schema": SCHEMA,
                "table": source.name,
                "column": column,
                "type": type_,
                "nullable": True,
                "checks": None,
            }
            for source in found
            for column, type_ in source.columns.items()
        ]


def _held(engine: str, table: Any) -> Any:
    """The table, where what Ibis calls DECIMAL(38,0) is one: HUGEINT is called so too, which becomes NULL where it has more digits.

    DuckDB would cast it beside a DECIMAL(38,0), in UNION ALL or where keys are compared, and fail on such a row.
    """
    wide = [
        name
        for name, dtype in table.schema().items()
        if dtype.is_decimal() and (dtype.precision, dtype.scale) == (38, 0)
    ]
    if engine != "duckdb" or not wide:
        return table
    # By their texts, as Ibis leaves out a cast to what it takes for the same type.
    return table.mutate({name: table[name].cast("string").try_cast("decimal(38, 0)") for name in wide})


def _check_names(name: str, table: Any) -> None:
    """Refuse a table called 't7', say: so Ibis calls the steps of its statements, and would read a step in its place."""
    import ibis.expr.operations as ops

    for leaf in table.op().find(ops.DatabaseTable):
        if leaf.namespace.database is None and re.fullmatch(r"t\d+", leaf.name, re.IGNORECASE):
            raise DPError(
                f"attach: the source of '{name}' is called '{leaf.name}', as steps of Ibis's statements are; give it with "
                f"its schema, connection.table('{leaf.name}', database='...'), or a view of another name."
            )


def _same_table(one: Any, other: Any) -> bool:
    """Whether two leaves of expressions may be one table; a schema that is not said may be any."""
    if not (hasattr(one, "namespace") and hasattr(other, "namespace")):
        return bool(one == other)
    pairs = [(leaf.name, leaf.namespace.database, leaf.namespace.catalog) for leaf in (one, other)]
    return all(a is None or b is None or a.lower() == b.lower() for a, b in zip(*pairs, strict=True))


def _folded(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)
