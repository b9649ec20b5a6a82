"""References to public tables whose columns are declared, and drawn as any column, stay constraints; where they cannot, the notes say so."""

import itertools
from typing import Any

import pytest

from tests.conftest import Loaded

TABLES = """
CREATE TABLE wards (ward INTEGER {parent_key}, floor INTEGER); INSERT INTO wards SELECT i, i % 3 FROM range(8) r(i);
CREATE TABLE halls (hall INTEGER PRIMARY KEY); INSERT INTO halls FROM range(3);
CREATE TABLE persons (person INTEGER PRIMARY KEY, age INTEGER); INSERT INTO persons SELECT i, i % 5 FROM range(300) r(i);
CREATE TABLE visits (person INTEGER NOT NULL REFERENCES persons (person), ward INTEGER {null} REFERENCES wards (ward),
    hall INTEGER REFERENCES halls (hall), kind INTEGER, {own_key});
INSERT INTO visits ({columns}) SELECT i % 300, CASE WHEN {hidden} THEN NULL ELSE i % 8 END, i % 3, i % 4{value} FROM range(900) r(i);
CALL dp_public(['wards', 'halls']);
CALL dp_protect(['persons', 'visits'], unit := 'persons.person', max_rows := {{'visits': 4}}, rho := 1e6);
CALL dp_attribute('persons', 'age', low := 0, high := 4); CALL dp_attribute('visits', 'kind', low := 0, high := 3);
"""
MADE = "FROM dp_synthesize_database('main', target := 'syn', rho := 1e5{})"
KEYS = """
SELECT constraint_text FROM duckdb_constraints() WHERE schema_name = 'syn' AND table_name = 'visits' AND constraint_type = 'FOREIGN KEY'
"""
DECLARED = {"not": None, "keys": "", "range": "low := 0, high := 7, ", "some": '"values" := [1, 2, 5], '}


def made(
    load: Loaded, declared: str | None, *, required: bool, part: bool, nulls: bool = False
) -> tuple[list[str], str]:
    """The foreign keys of the synthetic visits, and the notes."""
    own_key = "PRIMARY KEY (person, ward, hall, kind)" if part else "visit INTEGER PRIMARY KEY"
    load.con.execute(
        TABLES.format(
            parent_key="PRIMARY KEY", null="NOT NULL" if required or part else "",
            hidden="false" if required or part else "i % 5 = 0", own_key=own_key,
            columns="person, ward, hall, kind" + ("" if part else ", visit"), value="" if part else ", i",
        )
    )  # fmt: skip
    if declared is not None:
        said = f"{declared}{'nulls := true' if nulls else ''}".removesuffix(", ")
        load.con.execute(f"CALL dp_attribute('visits', 'ward'{', ' if said else ''}{said})")
    notes = [note or "" for (note,) in load.con.execute(f"SELECT note {MADE.format('')}").fetchall()]
    return [text for (text,) in load.con.execute(KEYS).fetchall()], "; ".join(notes)


@pytest.mark.parametrize(
    ("declared", "required", "part", "nulls"),
    [
        (name, required, part, nulls)
        for name, required, part, nulls in itertools.product(DECLARED, [True, False], [True, False], [True, False])
        if not (nulls and (required or part or name == "not"))
    ],
)
def test_a_declared_reference_to_a_public_table_is_a_constraint(
    load: Loaded, declared: str, required: bool, part: bool, nulls: bool
) -> None:
    keys, notes = made(load, DECLARED[declared], required=required, part=part, nulls=nulls)
    assert any("(ward)" in key and "wards" in key for key in keys), notes
    assert "without a constraint" not in notes
    strange = "SELECT count(*) FROM syn.visits WHERE ward IS NOT NULL AND ward NOT IN (SELECT ward FROM wards)"
    assert load.con.execute(strange).fetchone() == (0,)
    counted: Any = load.con.execute("SELECT count(*), count(ward) FROM syn.visits").fetchone()
    assert (counted[0] - counted[1] > counted[0] / 10) == (nulls or (declared == "not" and not (required or part)))
