"""References to public tables whose columns are declared, and drawn as any column, stay constraints; where they cannot, the notes say so."""

import itertools

import pytest

from tests.conftest import Loaded

TABLES = """
CREATE TABLE wards (ward INTEGER {parent_key}, floor INTEGER); INSERT INTO wards SELECT i, i % 3 FROM range(8) r(i);
CREATE TABLE halls (hall INTEGER PRIMARY KEY); INSERT INTO halls FROM range(3);
CREATE TABLE persons (person INTEGER PRIMARY KEY, age INTEGER); INSERT INTO persons SELECT i, i % 5 FROM range(300) r(i);
CREATE TABLE visits (person INTEGER NOT NULL REFERENCES persons (person), ward INTEGER {null} REFERENCES wards (ward),
    hall INTEGER REFERENCES halls (hall), kind INTEGER, {own_key});
INSERT INTO visits ({columns}) SELECT i % 300, CASE WHEN {hidden} THEN NULL ELSE (i + i // 300) % 8 END, i % 3, i % 4{value} FROM range(900) r(i);
CALL dp_public(['wards', 'halls']);
CALL dp_protect(['persons', 'visits'], unit := 'persons.person', max_rows := {{'visits': 4}}, rho := 1e6);
CALL dp_attribute('persons', 'age', low := 0, high := 4); CALL dp_attribute('visits', 'kind', low := 0, high := 3);
"""
MADE = "FROM dp_synthesize_database('main', target := 'syn', tables := ['persons', 'visits'], rho := 1e5{})"
KEYS = """
SELECT constraint_text FROM duckdb_constraints() WHERE schema_name = 'syn' AND table_name = 'visits' AND constraint_type = 'FOREIGN KEY'
"""
DECLARED = {"not": None, "keys": "", "range": "low := 0, high := 7, ", "some": '"values" := [1, 2, 5], '}


def made(db: Loaded, declared: str | None, *, required: bool, part: bool, nulls: bool = False) -> tuple[list[str], str]:
    """The foreign keys of the synthetic visits, and the notes."""
    own_key = "PRIMARY KEY (person, ward, hall, kind)" if part else "visit INTEGER PRIMARY KEY"
    db(
        TABLES.format(
            parent_key="PRIMARY KEY", null="NOT NULL" if required or part else "",
            hidden="false" if required or part else "i % 5 = 0", own_key=own_key,
            columns="person, ward, hall, kind" + ("" if part else ", visit"), value="" if part else ", i",
        )
    )  # fmt: skip
    if declared is not None:
        said = f"{declared}{'nulls := true' if nulls else ''}".removesuffix(", ")
        db(f"CALL dp_attribute('visits', 'ward'{', ' if said else ''}{said})")
    notes = [note or "" for (note,) in db(f"SELECT note {MADE.format('')}")]
    return [text for (text,) in db(KEYS)], "; ".join(notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("declared", "required", "part", "nulls"),
    [
        (name, required, part, nulls)
        for name, required, part, nulls in itertools.product(DECLARED, [True, False], [True, False], [True, False])
        if not (nulls and (required or part or name == "not"))
    ],
)
def test_a_reference_to_a_public_table_is_a_constraint_however_it_is_declared(
    db: Loaded, declared: str, required: bool, part: bool, nulls: bool
) -> None:
    keys, notes = made(db, DECLARED[declared], required=required, part=part, nulls=nulls)
    assert any("(ward)" in key and "wards" in key for key in keys), notes
    assert "without a constraint" not in notes
    assert db("SELECT count(*) FROM syn.visits WHERE ward IS NOT NULL AND ward NOT IN (SELECT ward FROM wards)") == [
        (0,)
    ]
    rows, known = db("SELECT count(*), count(ward) FROM syn.visits")[0]
    assert (rows - known > rows / 10) == (nulls or (declared == "not" and not (required or part)))


def test_a_reference_that_may_be_null_as_declared_is_a_constraint(db: Loaded) -> None:
    keys, notes = made(db, "", required=False, part=False, nulls=True)
    assert any("(ward)" in key and "wards" in key for key in keys), notes
    assert db("SELECT count(ward) < count(*) FROM syn.visits") == [(True,)]


@pytest.mark.slow
@pytest.mark.parametrize("declared", ["low := 0, high := 9, ", '"values" := [1, 2, 77], ', "bins := [0, 4, 8], "])
@pytest.mark.parametrize("nulls", [True, False])
def test_values_that_are_no_keys_have_no_constraint_and_the_notes_say_so(
    db: Loaded, declared: str, nulls: bool
) -> None:
    keys, notes = made(db, declared, required=not nulls, part=False, nulls=nulls)
    assert not any("(ward)" in key for key in keys)
    assert (
        "ward, which refers to it, is drawn as any column, without a constraint, as not all of its declared values are keys"
        in notes
    )


@pytest.mark.slow
@pytest.mark.parametrize("nulls", ["", ", nulls := true"])
def test_a_reference_of_several_columns_that_are_drawn_apart_has_none_and_the_notes_say_so(
    db: Loaded, nulls: str
) -> None:
    db(
        f"""
        CREATE TABLE rooms (house INTEGER, room INTEGER, PRIMARY KEY (house, room));
        INSERT INTO rooms SELECT i % 3, i FROM range(6) r(i);
        CREATE TABLE persons (person INTEGER PRIMARY KEY, age INTEGER); INSERT INTO persons SELECT i, i % 5 FROM range(300) r(i);
        CREATE TABLE visits (visit INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES persons (person), house INTEGER, room INTEGER,
            FOREIGN KEY (house, room) REFERENCES rooms (house, room));
        INSERT INTO visits SELECT i, i % 300, i % 6 % 3, i % 6 FROM range(900) r(i);
        CALL dp_public('rooms');
        CALL dp_protect(['persons', 'visits'], unit := 'persons.person', max_rows := {{'visits': 4}}, rho := 1e6);
        CALL dp_attribute('persons', 'age', low := 0, high := 4);
        CALL dp_attribute('visits', 'house', low := 0, high := 2{nulls}); CALL dp_attribute('visits', 'room', low := 0, high := 5{nulls});
        """
    )
    notes = "; ".join(note or "" for (note,) in db(f"SELECT note {MADE.format('')}"))
    drawn = not any("(house, room)" in text for (text,) in db(KEYS))
    assert drawn == (
        "house, room, which refers to it, is drawn as any column, without a constraint, as its parts are drawn apart"
        in notes
    )
    assert drawn == bool(nulls)


@pytest.mark.parametrize("nulls", ["", ", nulls := true"])
def test_a_reference_to_a_protected_table_that_is_drawn_as_any_column_is_said_to_have_none(
    db: Loaded, nulls: str
) -> None:
    db(
        f"""
        CREATE TABLE persons (person INTEGER PRIMARY KEY, age INTEGER); INSERT INTO persons SELECT i, i % 5 FROM range(60) r(i);
        CREATE TABLE visits (visit INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES persons (person),
            friend INTEGER REFERENCES persons (person));
        INSERT INTO visits SELECT i, i % 60, i * 7 % 60 FROM range(180) r(i);
        CALL dp_link('visits', "references" := {{'person': 'persons.person'}});
        CALL dp_protect(['persons', 'visits'], unit := 'persons.person', max_rows := {{'visits': 4}}, rho := 1e6);
        CALL dp_attribute('persons', 'age', low := 0, high := 4);
        CALL dp_attribute('visits', 'friend', low := 0, high := 70{nulls});
        """
    )
    notes = "; ".join(note or "" for (note,) in db(f"SELECT note {MADE.format('')}"))
    assert not any("(friend)" in text for (text,) in db(KEYS))
    assert "so friend, which refers to it, is drawn as any column, without a constraint" in notes


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["rho := 1e5", "rho := 0.02"])
def test_drawn_values_that_lead_nowhere_are_no_error(db: Loaded, budget: str) -> None:
    made(db, "low := -40, high := 40, ", required=True, part=False)
    db(f"FROM dp_synthesize_database('main', target := 'again', tables := ['persons', 'visits'], {budget})")
    assert db("SELECT count(*) > 0 FROM again.visits") == [(True,)]
