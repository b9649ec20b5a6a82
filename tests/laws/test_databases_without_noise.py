"""With a budget so large that noise is nothing, a synthetic schema has what the original has, whatever its keys and references are."""

import random
from typing import Any

import pytest

from tests.conftest import Loaded

ROWS = 300


class Schema:
    """A random schema: people, their visits, perhaps lines of visits, and wards that anybody may see.

    Attributes:
        lines: whether visits have lines.
        wards: how visits refer to wards: not at all, by links that repeat pairs or do not, or by a column that may be NULL.
        own: the columns that identify visits; () where none do.
        most: visits of a person at most.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.wards = rng.choice(["none", "pairs", "repeated", "null"])
        self.own: tuple[str, ...] = rng.choice([("visit",), ("person", "seq"), ()])
        if self.wards == "pairs":
            self.own = rng.choice([("person", "ward"), ()])
        self.lines = self.own in (("visit",), ("person", "seq")) and rng.random() < 0.6
        self.most, self.number = rng.choice([1, 2, 3, 6]), rng.choice([1, 2, 4, 30])
        self.keyed, self.declared = rng.random() < 0.5, rng.random() < 0.5
        self.type, self.key = rng.choice(["TINYINT", "INTEGER", "UBIGINT"]), rng.choice(["INTEGER", "VARCHAR"])
        self.degrees = rng.choice(
            ["1 + hash(i, 1) % {}", "hash(i, 1) % ({} + 1)", "CASE i % 3 WHEN 0 THEN {} ELSE 1 END"]
        )

    def make(self, con: Loaded) -> None:
        """Make, declare and protect the tables."""
        ward = f"((i % 3) * 2 + hash(i, n, 4) % {max(1, self.number // 2)}) % {self.number}"
        shown = {"none": "", "null": f"CASE WHEN hash(i, n, 5) % 10 < 3 THEN NULL ELSE {ward} END AS ward,"}
        columns = shown.get(self.wards, f"{ward} AS ward,")
        con(f"""
            CREATE TABLE persons AS SELECT i::{self.key} AS person, (i % 3)::INTEGER AS a FROM range({ROWS}) r(i);
            CREATE TABLE wards AS SELECT i AS ward, i % 3 AS kind FROM range({self.number}) r(i);
            CREATE TABLE visits AS SELECT i::{self.key} AS person, {columns} (row_number() OVER ())::INTEGER AS visit,
                (n + 1)::{self.type} AS seq, ((i + (hash(i, n, 2) % 4 = 0)::INTEGER) % 3)::INTEGER AS x, (hash(i, 3) % 4)::INTEGER AS y
                FROM range({ROWS}) r(i), range({self.most}) s(n) WHERE n < ({self.degrees.format(self.most)})::BIGINT;
        """)
        if self.wards == "pairs":
            con("CREATE OR REPLACE TABLE visits AS SELECT DISTINCT ON (person, ward) * FROM visits")
        for table, key in (("persons", ("person",)), ("visits", self.own), ("wards", ("ward",) if self.keyed else ())):
            if key:
                con(f"ALTER TABLE {table} ADD PRIMARY KEY ({', '.join(key)})")
        con("CALL dp_public(['wards'])")
        more = "" if self.wards == "none" else ", 'ward': 'wards.ward'"
        con(f"""CALL dp_link('visits', "references" := {{'person': 'persons.person'{more}}})""")
        names, most = ["persons", "visits"], {"visits": self.most}
        if self.lines:
            on = ", ".join(self.own)
            con(f"""CREATE TABLE lines AS SELECT {on}, ((x + n) % 3)::INTEGER AS z FROM visits, range(3) s(n) WHERE n <= y % 3;
                CALL dp_link('lines', "references" := [{{'columns': {list(self.own)}, 'references': {[f"visits.{c}" for c in self.own]}}}])""")
            names, most = [*names, "lines"], {**most, "lines": 3 * self.most}
        con(f"CALL dp_protect({names}, unit := 'persons.person', rho := 1e9, max_rows := {most})")
        seq = f", 'seq': {list(range(1, self.most + 1))}" if self.declared else ""
        con(
            f"CALL dp_attributes('persons', {{'a': [0, 1, 2]}}); CALL dp_attributes('visits', {{'x': [0, 1, 2], 'y': [0, 1, 2, 3]{seq}}})"
        )
        if self.wards == "null":
            con(f"CALL dp_attribute('visits', 'ward', low := 0, high := {self.number - 1}, nulls := true)")
        if self.lines:
            con("CALL dp_attributes('lines', {'z': [0, 1, 2]})")
        con(f"CALL dp_synthesize_database('main', target := 'syn', tables := {names}, rho := 1e5)")

    def compared(self) -> dict[str, tuple[str, float]]:
        """What is counted -> (a SELECT of numbers by value, the L1 distance over the visits that may be)."""
        visits = "{s}.visits"
        of_person = "{s}.persons LEFT JOIN {s}.visits USING (person)"
        numbers = f"SELECT person, any_value(a) AS a, count(x) AS n FROM {of_person} GROUP BY person"
        found = {
            "visits": (f"SELECT count(*) FROM {visits}", 0.02),
            "x": (f"SELECT x, count(*) FROM {visits} GROUP BY x", 0.05),
            "y": (f"SELECT y, count(*) FROM {visits} GROUP BY y", 0.12),
            "visits of a person": (f"SELECT n, count(*) FROM ({numbers}) GROUP BY n", 0.12),
            "by a": (f"SELECT a, n, count(*) FROM ({numbers}) GROUP BY a, n", 0.2),
            "a and x": (f"SELECT a, x, count(*) FROM {of_person} GROUP BY a, x", 0.12),
        }
        if self.declared or "seq" in self.own:
            found["seq"] = f"SELECT seq, count(*) FROM {visits} GROUP BY seq", 0.12
        if self.wards != "none":
            found["wards"] = f"SELECT ward, count(*) FROM {visits} GROUP BY ward", 0.12
            found["kinds by a"] = (
                f"SELECT a, kind, count(*) FROM {of_person} LEFT JOIN {{s}}.wards USING (ward) GROUP BY ALL",
                0.15,
            )
        if self.lines:
            found["z"] = "SELECT z, count(*) FROM {s}.lines GROUP BY z", 0.2
            found["x and z"] = (
                f"SELECT x, z, count(*) FROM {{s}}.lines JOIN {visits} USING ({', '.join(self.own)}) GROUP BY x, z",
                0.35,
            )
        return found


def distance(con: Any, select: str) -> float:
    """The L1 distance of the numbers in the schemas."""
    one, other = ({row[:-1]: row[-1] for row in con(select.format(s=schema))} for schema in ("main", "syn"))
    return float(sum(abs(one.get(key, 0) - other.get(key, 0)) for key in {*one, *other}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_a_synthetic_schema_has_what_the_original_has(exact: Loaded, seed: int) -> None:
    schema = Schema(seed)
    schema.make(exact)
    ((size,),) = exact("SELECT count(*) FROM visits")
    found = {name: distance(exact, select) / size for name, (select, _) in schema.compared().items()}
    assert {name: error for name, error in found.items() if error > schema.compared()[name][1]} == {}, vars(schema)
