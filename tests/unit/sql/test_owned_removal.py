"""Random statements over random tables: removing a unit takes away its own rows of the relation and changes no other row."""

import random
from collections import Counter
from typing import Any

import duckdb
import pytest
from sqlglot import exp, parse_one

from duckdb_dp.errors import DPError
from duckdb_dp.sql.family import Family, Member, PublicTable, Reference
from duckdb_dp.sql.owned import fan_out
from duckdb_dp.sql.owned.tables import Tables
from duckdb_dp.sql.owned.top import Top, top
from duckdb_dp.synthesis.database import Name

COLUMNS = {
    "p": {"id": "INTEGER", "town": "INTEGER", "sex": "VARCHAR", "mail": "VARCHAR", "w": "DOUBLE"},
    "v": {"vid": "INTEGER", "pid": "INTEGER", "town": "INTEGER", "fee": "INTEGER", "why": "VARCHAR"},
    "d": {"vid": "INTEGER", "drug": "VARCHAR", "days": "INTEGER", "doctor": "INTEGER"},
    "t": {"town": "INTEGER", "name": "VARCHAR"},
    "u": {"drug": "VARCHAR", "n": "INTEGER"},
}


def name(table: str) -> Name:
    return "memory", "main", table


def family(bounds: dict[str, int] | None = None, *, enforced: bool = True) -> Family:
    """Persons p, their visits v, the drugs d of these; public towns t with a key, and drugs u without one.

    Args:
        bounds: how many rows of a person each table has at most; they are not declared where it is left out.
        enforced: whether constraints keep the keys and references, or they are declared alone, as of tables from files.
    """

    def member(table: str, keys: tuple[tuple[str, ...], ...], owner: tuple[str, ...], *to: Reference) -> Member:
        never = frozenset(column for key in keys for column in key)
        return Member(
            name=name(table),
            columns=COLUMNS[table],
            keys=keys if enforced else (),
            not_null=never if enforced else frozenset(),
            references=to,
            owner=owner,
            max_rows=None if bounds is None else bounds[table],
        )

    first = Reference(columns=("pid",), parent=name("p"), parent_columns=("id",), enforced=enforced)
    second = Reference(columns=("vid",), parent=name("v"), parent_columns=("vid",), enforced=enforced)
    members = [
        member("p", (("id",), ("mail",)), ("id",)),
        member("v", (("vid",),), ("pid",), first),
        member("d", (), (), second),
    ]
    public = [
        PublicTable(name=name("t"), columns=COLUMNS["t"], keys=(("town",),), not_null=frozenset({"town"})),
        PublicTable(name=name("u"), columns=COLUMNS["u"]),
    ]
    return Family(
        dataset=None,  # type: ignore[arg-type]
        unit_table=name("p"),
        unit=("id",),
        members={one.name: one for one in members},
        public={one.name: one for one in public},
        views={},
    )


def fill(con: duckdb.DuckDBPyConnection, rng: random.Random, *, twice: bool = False) -> None:
    """Tables whose keys and references hold; other columns of few values, some of them NULL, NaN or infinite.

    Args:
        con: where they are made.
        rng: what they hold.
        twice: whether visits of several persons may have one number, some refer to nobody, and some have no number.
    """

    def some(*values: Any) -> Any:
        return rng.choice([*values, None])

    persons, visits = range(6), range(rng.randint(3, 14))
    rows: dict[str, list[tuple[Any, ...]]] = {
        "p": [
            (i, some(0, 1, 2), some("f", "m"), f"m{i}", some(0.1, 1e300, float("nan"), float("-inf"), 0.7))
            for i in persons
        ],
        "v": [(i, some(*persons), some(0, 1, 2), some(1, 2, 3), some("a", "b")) for i in visits],
        "d": [(some(*visits), some("x", "y"), some(1, 2), some(*persons)) for _ in range(rng.randint(0, 20))],
        "t": [(i, f"t{i % 2}") for i in range(3)],
        "u": [(some("x", "y", "z"), some(1, 2)) for _ in range(4)],
    }
    if twice:
        rows["v"] = [(some(*visits[:4]), some(*persons, 77), *row[2:]) for row in rows["v"]]
    for table, columns in COLUMNS.items():
        con.execute(f"CREATE OR REPLACE TABLE {table} ({', '.join(f'{c} {type_}' for c, type_ in columns.items())})")
        for row in rows[table]:
            con.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


class Statements:
    """Random statements, of which many mix people."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.number = rng, 0

    def alias(self) -> str:
        self.number += 1
        return f"a{self.number}"

    def source(self, depth: int) -> tuple[str, dict[str, str]]:
        """An item of FROM without its alias, and its columns."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.45:
            table = rng.choice(["p", "v", "d", "v", "p", "t", "u"])
            return table, COLUMNS[table]
        return self.query(depth - 1)

    def query(self, depth: int) -> tuple[str, dict[str, str]]:
        """A subquery."""
        rng = self.rng
        text, columns = self.joined(depth)
        names = list(columns)
        kind = rng.random()
        if kind < 0.3:
            kept = rng.sample(names, rng.randint(1, min(4, len(names))))
            shown = {f"c{i}": columns[one] for i, one in enumerate(kept)}
            listed = ", ".join(f"{one} AS c{i}" for i, one in enumerate(kept))
            return f"(SELECT {rng.choice(['', '', 'DISTINCT '])}{listed} FROM {text})", shown
        if kind < 0.45:
            return self.windowed(text, columns)
        if kind < 0.8:
            keys = rng.sample(names, rng.randint(1, min(2, len(names))))
            value = rng.choice(names)
            made = rng.choice(
                ["count(*)", f"count({value})", f"max({value})", f"count(DISTINCT {value})", f"min({value})"]
            )
            if columns[value] != "VARCHAR":
                made = rng.choice(
                    [made, f"sum({value})", f"avg({value}) FILTER (WHERE {keys[0]} IS NOT NULL)", f"stddev({value})"]
                )
            typed = "VARCHAR" if made.startswith(("max", "min")) and columns[value] == "VARCHAR" else "DOUBLE"
            listed = ", ".join(f"{one} AS c{i}" for i, one in enumerate(keys))
            having = rng.choice(["", "", " HAVING count(*) > 1"])
            shown = {f"c{i}": columns[one] for i, one in enumerate(keys)} | {"n": typed}
            return f"(SELECT {listed}, {made} AS n FROM {text} GROUP BY {', '.join(keys)}{having})", shown
        other, found = self.joined(depth)
        pairs = [(one, two) for one in names for two in found if columns[one] == found[two]]
        if not pairs:
            return f"(SELECT {names[0]} AS c0 FROM {text})", {"c0": columns[names[0]]}
        chosen = rng.sample(pairs, min(len(pairs), rng.randint(1, 3)))
        sides = [
            f"SELECT {', '.join(f'{pair[side]} AS c{i}' for i, pair in enumerate(chosen))} FROM {rows}"
            for side, rows in enumerate((text, other))
        ]
        word = rng.choice(["UNION ALL", "UNION ALL", "UNION"])
        return f"({sides[0]} {word} {sides[1]})", {f"c{i}": columns[pair[0]] for i, pair in enumerate(chosen)}

    def windowed(self, text: str, columns: dict[str, str]) -> tuple[str, dict[str, str]]:
        """A subquery with a window, mostly of the rows of one unit."""
        rng, names = self.rng, list(columns)
        own = [one for one in names if one.split(".")[1] in ("id", "pid", "vid")]
        key = rng.choice(own if own and rng.random() < 0.8 else names)
        value, order = rng.choice(names), rng.choice(names)
        function, type_ = rng.choice(
            [
                ("row_number()", "INTEGER"),
                ("rank()", "INTEGER"),
                (f"lag({value})", columns[value]),
                (f"first_value({value})", columns[value]),
                (f"max({value})", columns[value]),
                (f"sum({value})", "DOUBLE"),
                ("count(*)", "INTEGER"),
            ]
        )
        over = f"{function} OVER (PARTITION BY {key} ORDER BY {order}{rng.choice(['', ' DESC'])})"
        kept = rng.sample(names, rng.randint(1, min(3, len(names))))
        qualify = rng.choice(["", "", f" QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {order}) = 1"])
        listed = ", ".join(f"{one} AS c{i}" for i, one in enumerate(kept))
        shown = {f"c{i}": columns[one] for i, one in enumerate(kept)} | {"n": type_}
        return f"(SELECT {listed}, {over} AS n FROM {text}{qualify})", shown

    def joined(self, depth: int) -> tuple[str, dict[str, str]]:
        """What follows FROM, with WHERE, and its columns with their aliases."""
        rng = self.rng
        source, found = self.source(depth)
        first = self.alias()
        columns = {f"{first}.{c}": type_ for c, type_ in found.items()}
        text = f"{source} AS {first}"
        for _ in range(rng.choice([0, 0, 1, 1, 1, 2])):
            source, found = self.source(depth)
            alias = self.alias()
            new = {f"{alias}.{c}": type_ for c, type_ in found.items()}
            word = rng.choice(
                [
                    "JOIN",
                    "JOIN",
                    "LEFT JOIN",
                    "SEMI JOIN",
                    "ANTI JOIN",
                    "CROSS JOIN" if source in ("t", "u") else "JOIN",
                ]
            )
            joined = f"{source} AS {alias}"
            if word in ("JOIN", "LEFT JOIN") and rng.random() < 0.3:  # in parentheses, with a third one
                source, found = self.source(depth)
                third = self.alias()
                more = {f"{third}.{c}": type_ for c, type_ in found.items()}
                joined = (
                    f"({joined} {rng.choice(['JOIN', 'LEFT JOIN'])} {source} AS {third} ON {self.condition(new, more)})"
                )
                new = new | more
            on = "" if word == "CROSS JOIN" else f" ON {self.condition(columns, new)}"
            text = f"({text})" if rng.random() < 0.2 and text.count(" JOIN ") else text
            text += f" {word} {joined}{on}"
            columns |= {} if word in ("SEMI JOIN", "ANTI JOIN") else new
        if rng.random() < 0.4:
            text += f" WHERE {self.nested(columns)}"
        return text, columns

    def condition(self, left: dict[str, str], right: dict[str, str]) -> str:
        """Equality of columns, mostly of those that say who owns a row."""
        rng = self.rng
        pairs = [(one, two) for one, a in left.items() for two, b in right.items() if a == b]
        good = [
            pair
            for pair in pairs
            if {c.split(".")[1] for c in pair}
            in ({"id", "pid"}, {"id"}, {"pid"}, {"vid"}, {"c0"}, {"town"}, {"drug"}, {"mail"})
        ]
        if not pairs:
            return "true"
        found = [rng.choice(good if good and rng.random() < 0.8 else pairs) for _ in range(rng.choice([1, 1, 2]))]
        return " AND ".join(f"{one} = {two}" for one, two in found)

    def nested(self, columns: dict[str, str]) -> str:
        """A condition, mostly on a subquery."""
        rng = self.rng
        table = rng.choice(["p", "v", "d", "t"])
        alias = self.alias()
        inner = {f"{alias}.{c}": type_ for c, type_ in COLUMNS[table].items()}
        tie = self.condition(columns, inner)
        numbers = [c for c, type_ in columns.items() if type_ == "INTEGER"]
        own = [c for c, type_ in inner.items() if type_ == "INTEGER"]
        return rng.choice(
            [
                f"EXISTS (SELECT 1 FROM {table} AS {alias} WHERE {tie})",
                f"NOT EXISTS (SELECT 1 FROM {table} AS {alias} WHERE {tie} AND {rng.choice(own)} > 1)",
                f"{rng.choice(numbers)} IN (SELECT {rng.choice(own)} FROM {table} AS {alias})" if numbers else "true",
                f"{rng.choice(numbers)} <= (SELECT count(*) FROM {table} AS {alias} WHERE {tie})"
                if numbers
                else "true",
                f"{rng.choice(numbers)} + 1 > 2 OR {rng.choice(list(columns))} IS NULL" if numbers else "true",
            ]
        )

    def select(self) -> str:
        text, columns = self.joined(2)
        shown = ", ".join(f"count(DISTINCT {c})" for c in self.rng.sample(list(columns), min(4, len(columns))))
        return f"SELECT count(*), {shown} FROM {text}"


OWNED = {
    "p": "SELECT id AS o FROM p",
    "v": "SELECT pid AS o FROM v WHERE pid IS NOT NULL",
    "d": "SELECT pid AS o FROM d JOIN v USING (vid) WHERE pid IS NOT NULL",
}


def bounds(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """The most rows that a person has in each table."""
    most = "SELECT coalesce(max(n), 1) FROM (SELECT count(*) AS n FROM ({}) GROUP BY o)"
    return {table: con.execute(most.format(rows)).fetchall()[0][0] for table, rows in OWNED.items()}


def compiled(
    con: duckdb.DuckDBPyConnection,
    text: str,
    known: dict[str, int] | None = None,
    *,
    enforced: bool = True,
    as_written: bool = False,
) -> Top | None:
    """The relation of a statement; None of one that is refused."""
    select = parse_one(text, dialect="duckdb")
    assert isinstance(select, exp.Select)

    def read(sql: str) -> list[tuple[Any, ...]]:
        return con.execute(sql).fetchall()

    try:
        tables = Tables(family(known, enforced=enforced), ("memory", "main"), read, bounded=True)
        return top(tables, select, {}, read, as_written=as_written)
    except DPError:
        return None


def rows(con: duckdb.DuckDBPyConnection, found: Top) -> Counter[tuple[str, ...]]:
    """The relation's rows as texts, of which the last says the owner; rows of nobody do not count."""
    read = con.execute(f"SELECT * FROM ({found.source.sql})").fetchall()
    return Counter(tuple(map(repr, row)) for row in read if row[-1] is not None)


def check_removals(con: duckdb.DuckDBPyConnection, found: Top, text: str) -> None:
    """Removing each person takes away its own rows of the relation alone."""
    before = rows(con, found)
    for person in range(6):
        con.execute("BEGIN")
        others = f"SELECT vid FROM v JOIN p ON pid = id WHERE pid <> {person} AND vid IS NOT NULL"
        con.execute(f"DELETE FROM d WHERE vid IN (SELECT vid FROM v WHERE pid = {person}) AND vid NOT IN ({others})")
        con.execute(f"DELETE FROM v WHERE pid = {person}; DELETE FROM p WHERE id = {person}")
        after = rows(con, found)
        con.execute("ROLLBACK")
        kept = Counter({row: count for row, count in before.items() if row[-1] != repr(person)})
        assert after == kept, text


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(20))
def test_removing_a_unit_changes_its_own_rows_alone(seed: int) -> None:
    rng = random.Random(seed)
    statements, answered = Statements(rng), 0
    with duckdb.connect() as con:
        fill(con, rng)
        known = bounds(con)
        for _ in range(90):
            text = statements.select()
            found = compiled(con, text, known)
            if found is None:
                continue
            answered += 1
            before = rows(con, found)
            owners = Counter(row[-1] for row in before.elements())
            assert not found.source.single or all(count == 1 for count in owners.values()), text
            assert found.source.rows is not None, text
            assert max(owners.values(), default=0) <= found.source.rows, (text, found.source.bound)
            check_removals(con, found, text)
    assert answered > 5


@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_tables_and_conditions_changes_no_row(seed: int) -> None:
    """In the form that all ways to write a statement share it has the rows that it has as it was written, where that is answered.

    Some are answered in that form alone: a LEFT JOIN whose other conditions leave out the rows without a partner is an inner one.
    """
    rng = random.Random(100 + seed)
    statements, answered = Statements(rng), 0
    with duckdb.connect() as con:
        fill(con, rng)
        known = bounds(con)
        for _ in range(90):
            text = statements.select()
            found, plain = (compiled(con, text, known, as_written=as_written) for as_written in (False, True))
            assert found is not None or plain is None, text
            if found is not None and plain is not None:
                answered += 1
                assert rows(con, found) == rows(con, plain), text
                assert (found.source.rows or 0) <= (plain.source.rows or 0), text
    assert answered > 5


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("twice", [False, True])
def test_the_same_where_keys_are_declared_alone(seed: int, twice: bool) -> None:
    """As of tables from files, also where the keys are none."""
    rng = random.Random(seed)
    statements, answered = Statements(rng), 0
    with duckdb.connect() as con:
        fill(con, rng, twice=twice)
        known = bounds(con)
        for _ in range(90):
            text = statements.select()
            found = compiled(con, text, known, enforced=False)
            if found is None:
                continue
            answered += 1
            owners = Counter(row[-1] for row in rows(con, found).elements())
            assert not found.source.single or all(count == 1 for count in owners.values()), text
            assert found.source.rows is not None, text
            if not twice:  # otherwise the bound, which is enforced, may leave rows out
                assert max(owners.values(), default=0) <= found.source.rows, (text, found.source.bound)
            check_removals(con, found, text)
    assert answered > 2


FANNED = [
    "SELECT count(*), sum(c.fee) FROM v AS a JOIN v AS b USING (pid) JOIN v AS c USING (pid)",
    "SELECT count(*), sum(c.fee) FROM v AS a JOIN v AS b ON a.pid = b.pid AND a.why = b.why LEFT JOIN v AS c ON c.pid = a.pid AND c.fee > 0",
    "SELECT count(*), sum(e.days) FROM v JOIN d USING (vid) JOIN d AS e USING (vid) JOIN d AS f USING (vid) WHERE f.days > 1",
    "SELECT count(*), count(DISTINCT e.drug) FROM p JOIN v ON v.pid = id JOIN v AS w ON w.pid = id JOIN d AS e ON e.vid = w.vid JOIN d AS f ON f.vid = v.vid",
    "SELECT count(*) FROM v AS a JOIN v AS b USING (pid) WHERE EXISTS (SELECT 1 FROM v AS c WHERE c.pid = a.pid AND c.fee > b.fee)",
    "SELECT sum(x) FROM (SELECT (SELECT sum(c.fee) FROM v AS c WHERE c.pid = a.pid AND c.fee > b.fee) AS x FROM v AS a JOIN v AS b USING (pid))",
    "WITH w AS (SELECT a.pid, b.fee FROM v AS a JOIN v AS b USING (pid)) SELECT count(*), sum(y.fee) FROM w AS x JOIN w AS y USING (pid)",
    "SELECT count(*), sum(b.fee) FROM (SELECT pid FROM v UNION ALL SELECT id FROM p) AS a JOIN v AS b USING (pid) JOIN d USING (vid) "
    "JOIN (SELECT pid, fee FROM v UNION ALL SELECT pid, 0 FROM v) AS c ON c.pid = a.pid",
]
"""Joins with all rows of a unit, and more."""


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize("text", FANNED)
def test_which_rows_a_further_join_takes_depends_on_their_unit_alone(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_out, "FURTHER", 1)
    rng, left_out = random.Random(5), False
    with duckdb.connect() as con:
        for _ in range(12):
            fill(con, rng)
            found = compiled(con, text)
            assert found is not None
            assert "HASH(" in found.source.sql
            check_removals(con, found, text)
            with monkeypatch.context() as patch:
                patch.setattr(fan_out, "FURTHER", 10_000)
                patch.setattr(fan_out, "LIMIT", 10**12)
                whole = compiled(con, text)
            assert whole is not None
            assert rows(con, found).keys() <= rows(con, whole).keys() or "sum(x)" in text or "UNION" in text
            left_out |= rows(con, found) != rows(con, whole)
    assert left_out


LISTED = [
    "SELECT count(*) FROM (SELECT a.town, (SELECT max(b.fee) FROM v AS b WHERE b.pid = a.id) AS x FROM p AS a) WHERE town + x > 2",
    "SELECT sum(x) FROM (SELECT a.id, (SELECT min(b.why) FROM v AS b WHERE b.pid = a.id) AS x FROM p AS a WHERE town > 0)",
    "SELECT sum(CAST(x AS TINYINT) * town) FROM (SELECT *, (SELECT max(b.vid) FROM v AS b WHERE b.pid = a.id) AS x FROM p AS a)",
    "SELECT count(*) FROM (SELECT a.days, (SELECT max(b.n) FROM u AS b WHERE b.drug = a.drug) AS x FROM d AS a) WHERE x + days > 1",
]
"""Subqueries as columns of a subquery of FROM, of which expressions that may fail are worked out above."""


@pytest.mark.parametrize("text", LISTED)
def test_subqueries_as_columns(text: str) -> None:
    rng, seen = random.Random(3), 0
    with duckdb.connect() as con:
        for _ in range(4):
            fill(con, rng)
            found = compiled(con, text, bounds(con))
            assert found is not None
            seen += len(rows(con, found))
            check_removals(con, found, text)
    assert seen > 0
