"""Keys of several columns to which other tables refer: their columns keep what they are, and the keys stay keys."""

import re

import pytest

from tests.conftest import Loaded

MADE = "CALL dp_synthesize_database('main', target := 'syn', tables := {}, rho := 1e6)"
PUPILS = """
CREATE TABLE pupils (pupil INTEGER PRIMARY KEY, year INTEGER);
INSERT INTO pupils SELECT i, i % 3 FROM range(400) r(i);
CREATE TABLE courses (course {type} PRIMARY KEY, hard BOOLEAN);
INSERT INTO courses SELECT {course}, c % 2 = 0 FROM range(8) s(c);
"""
DECLARED = """
CALL dp_public('courses');
CALL dp_protect([{tables}], unit := 'pupils.pupil', rho := 1e9, max_rows := {{{bounds}}});
CALL dp_attributes('pupils', {{'year': [0, 1, 2]}});
"""
COURSES = {
    "VARCHAR": "'course ' || c",
    "INTEGER": "(7 * c + 3)",
    "DATE": "DATE '2024-02-27' + 2 * c::INTEGER",
    "UTINYINT": "(30 * c)",
}


def check(db: Loaded) -> None:
    """Every FOREIGN KEY and key of the original is one of the copy, and holds there; columns of keys have the original's values."""
    found, made = (
        db(
            "SELECT table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names FROM duckdb_constraints() "
            f"WHERE schema_name = '{schema}' AND constraint_type IN ('FOREIGN KEY', 'PRIMARY KEY') "
            "AND table_name IN (SELECT table_name FROM duckdb_tables() WHERE schema_name = 'syn') ORDER BY ALL"
        )
        for schema in ("main", "syn")
    )
    assert made == found
    assert len(found) > 2
    for table, kind, columns, parent, key in found:
        names = ", ".join(columns)
        if kind == "PRIMARY KEY":
            ((rows, distinct, real),) = db(
                f"SELECT count(*), count(DISTINCT ({names})), (SELECT count(*) FROM {table}) FROM syn.{table}"
            )
            assert rows == distinct
            assert abs(rows - real) <= 0.1 * real, table
        else:
            on = " AND ".join(f"c.{one} = p.{other}" for one, other in zip(columns, key, strict=True))
            assert db(f"SELECT count(*) FROM syn.{table} c ANTI JOIN syn.{parent} p ON {on}") == [(0,)]


def kept(db: Loaded, table: str, column: str) -> None:
    """A column of the copy has the values of the original, and about as often."""
    counts = "SELECT {1}::VARCHAR, count(*) / sum(count(*)) OVER () FROM {0} GROUP BY ALL"
    real, made = (dict(db(counts.format(name, column))) for name in (table, f"syn.{table}"))
    assert made.keys() <= real.keys()
    assert sum(abs(share - made.get(value, 0)) for value, share in real.items()) < 0.15


ENROLLED = """
CREATE TABLE enrolments (pupil INTEGER REFERENCES pupils (pupil), course {type}{public},{more} kind INTEGER,
    PRIMARY KEY (pupil, course{key}));
CREATE TABLE grades (pupil INTEGER, course {type},{more} grade BOOLEAN, PRIMARY KEY (pupil, course{key}), {again}
    FOREIGN KEY (pupil, course{key}) REFERENCES enrolments (pupil, course{key}));
CREATE TABLE remarks (n INTEGER PRIMARY KEY, pupil INTEGER, course {type},{more} good BOOLEAN,
    FOREIGN KEY (pupil, course{key}) REFERENCES grades (pupil, course{key}));
INSERT INTO enrolments SELECT i, {course},{of} i % 3 FROM range(400) r(i), range(8) s(c) WHERE (i * 7 + c * 5) % 16 < 5;
INSERT INTO grades SELECT pupil, course{key}, hard FROM enrolments JOIN courses USING (course);
INSERT INTO remarks SELECT row_number() OVER (), pupil, course{key}, grade FROM grades, range(2);
"""
ATTRIBUTES = """
CALL dp_attributes('enrolments', {{'kind': [0, 1, 2]}}); CALL dp_attribute('grades', 'grade'); CALL dp_attribute('remarks', 'good');
"""
NAMES = ["pupils", "enrolments", "grades", "remarks"]
BOUNDS = "'enrolments': 5, 'grades': 5, 'remarks': 10"


@pytest.mark.some(1)
@pytest.mark.parametrize("term", ["", "VARCHAR", "DATE", "SMALLINT"])
@pytest.mark.parametrize("public", [True, False], ids=["public", "declared"])
@pytest.mark.parametrize("type_", list(COURSES))
def test_keys_of_a_parent_and_others(exact: Loaded, type_: str, public: bool, term: str) -> None:
    """A public table's keys, declared values, or both, beside the parent; with children and their children."""
    terms = {"VARCHAR": "['a', 'b']", "DATE": "[DATE '2024-01-01', DATE '2025-01-01']", "SMALLINT": "[1, 2]"}
    course = COURSES[type_]
    exact(PUPILS.format(type=type_, course=course))
    exact(
        ENROLLED.format(
            type=type_,
            course=course,
            public=" REFERENCES courses (course)" if public else "",
            again="FOREIGN KEY (course) REFERENCES courses (course)," if public else "",
            key=", term" if term else "",
            more=f" term {term}," if term else "",
            of=f" ({terms[term]})[1 + (i + c) % 2]," if term else "",
        )
    )
    exact(DECLARED.format(tables=str(NAMES)[1:-1], bounds=BOUNDS) + ATTRIBUTES.format())
    if not public:
        ((listed,),) = exact("SELECT list(course ORDER BY course) FROM courses")
        exact(
            "CALL dp_attribute('enrolments', 'course', \"values\" := ?)",
            [[v if isinstance(v, int) else str(v) for v in listed]],
        )
    if term:
        exact(f"CALL dp_attribute('enrolments', 'term', \"values\" := {re.sub(r'DATE ', '', terms[term])})")
    notes = "; ".join(row[-1] or "" for row in exact(MADE.format(NAMES)))
    assert "numbered" not in notes
    check(exact)
    for table in ("enrolments", "grades", "remarks"):
        kept(exact, table, "course")
        if term:
            kept(exact, table, "term")
    for table, column in (("grades", "grade"), ("remarks", "good")):
        ((alike, rows),) = exact(
            f"SELECT avg(({column} = hard)::INTEGER), count(*) FROM syn.{table} JOIN courses USING (course)"
        )
        assert (alike > 0.85, rows) == (True, exact(f"SELECT count(*) FROM syn.{table}")[0][0])


OTHERS = {
    # The unit's own key, of a number and a declared text.
    "unit": (
        """
        CREATE TABLE pupils (school VARCHAR, nr INTEGER, year INTEGER, PRIMARY KEY (school, nr));
        CREATE TABLE marks (mark INTEGER PRIMARY KEY, school VARCHAR, nr INTEGER, good BOOLEAN,
            FOREIGN KEY (school, nr) REFERENCES pupils (school, nr));
        INSERT INTO pupils SELECT ['x', 'y', 'z'][1 + i % 3], i // 3, i % 2 FROM range(300) r(i);
        INSERT INTO marks SELECT row_number() OVER (), school, nr, school = 'x' FROM pupils, range(2);
        CALL dp_protect(['pupils', 'marks'], unit := [['pupils.school', 'pupils.nr']], rho := 1e9, max_rows := 2);
        CALL dp_attributes('pupils', {'school': ['x', 'y', 'z'], 'year': [0, 1]}); CALL dp_attribute('marks', 'good')
        """,
        ["pupils", "marks"],
        {"school": ["pupils", "marks"]},
        "SELECT avg((good = (school = 'x'))::INTEGER) FROM syn.marks",
    ),
    # All declared, and none of them the parent.
    "declared": (
        """
        CREATE TABLE guests (guest INTEGER PRIMARY KEY, sex INTEGER);
        CREATE TABLE bookings (room VARCHAR, day DATE, guest INTEGER NOT NULL REFERENCES guests (guest), big BOOLEAN, PRIMARY KEY (room, day));
        CREATE TABLE meals (meal INTEGER PRIMARY KEY, room VARCHAR, day DATE, early BOOLEAN,
            FOREIGN KEY (room, day) REFERENCES bookings (room, day));
        INSERT INTO guests SELECT i, i % 2 FROM range(200) r(i);
        INSERT INTO bookings SELECT ['x', 'y', 'z'][1 + i % 3], DATE '2024-02-01' + (i // 3)::INTEGER, i % 200, i % 3 = 0 FROM range(300) r(i);
        INSERT INTO meals SELECT row_number() OVER (), room, day, room = 'x' FROM bookings, range(2);
        CALL dp_protect(['guests', 'bookings', 'meals'], unit := 'guests.guest', rho := 1e9, max_rows := {'bookings': 2, 'meals': 4});
        CALL dp_attributes('guests', {'sex': [0, 1]}); CALL dp_attribute('bookings', 'room', "values" := ['x', 'y', 'z']);
        CALL dp_attribute('bookings', 'day', bins := ['2024-02-01', '2024-04-01', '2024-06-01']);
        CALL dp_attribute('bookings', 'big'); CALL dp_attribute('meals', 'early')
        """,
        ["guests", "bookings", "meals"],
        {"room": ["bookings", "meals"]},
        "SELECT avg((early = (room = 'x') AND big = (room = 'x'))::INTEGER) FROM syn.meals JOIN syn.bookings USING (room, day)",
    ),
    # More rows than the parent's type has values, and a second parent.
    "narrow": (
        """
        CREATE TABLE pupils (pupil TINYINT PRIMARY KEY, year INTEGER);
        CREATE TABLE courses (course VARCHAR PRIMARY KEY, hard BOOLEAN);
        CREATE TABLE enrolments (pupil TINYINT REFERENCES pupils (pupil), course VARCHAR REFERENCES courses (course), PRIMARY KEY (pupil, course));
        CREATE TABLE grades (pupil TINYINT, course VARCHAR, task USMALLINT, grade BOOLEAN, PRIMARY KEY (pupil, course, task),
            FOREIGN KEY (pupil, course) REFERENCES enrolments (pupil, course));
        INSERT INTO pupils SELECT i, i % 3 FROM range(120) r(i);
        INSERT INTO courses SELECT c, c < 'e' FROM (SELECT unnest(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']) AS c);
        INSERT INTO enrolments SELECT pupil, course FROM pupils, courses WHERE (pupil + ord(course)) % 2 = 0;
        INSERT INTO grades SELECT pupil, course, t, course < 'e' FROM enrolments, range(3) s(t);
        CALL dp_public('courses');
        CALL dp_protect(['pupils', 'enrolments', 'grades'], unit := 'pupils.pupil', rho := 1e9, max_rows := {'enrolments': 4, 'grades': 12});
        CALL dp_attributes('pupils', {'year': [0, 1, 2]}); CALL dp_attribute('grades', 'grade')
        """,
        ["pupils", "enrolments", "grades"],
        {"course": ["enrolments", "grades"]},
        "SELECT avg((grade = hard)::INTEGER) FROM syn.grades JOIN syn.courses USING (course)",
    ),
}

OFFERED = """
    CREATE TABLE pupils (pupil INTEGER PRIMARY KEY, year INTEGER);
    CREATE TABLE offers (course {type}, term INTEGER, hard BOOLEAN, PRIMARY KEY (course{key}));
    CREATE TABLE enrolments (pupil INTEGER REFERENCES pupils (pupil), course {type}, term INTEGER, PRIMARY KEY (pupil, course, term),
        FOREIGN KEY (course{key}) REFERENCES offers (course{key}));
    CREATE TABLE grades (pupil INTEGER, course {type}, term INTEGER, grade BOOLEAN, PRIMARY KEY (pupil, course, term),
        FOREIGN KEY (pupil, course, term) REFERENCES enrolments (pupil, course, term), FOREIGN KEY (course{key}) REFERENCES offers (course{key}));
    INSERT INTO pupils SELECT i, i % 3 FROM range(300) r(i);
    INSERT INTO offers SELECT {course}, 2020 + c % 3, c % 2 = 0 FROM range({size}) s(c);
    INSERT INTO enrolments SELECT pupil, course, term FROM pupils, offers WHERE hash(pupil, course) % {size} < 5
        QUALIFY row_number() OVER (PARTITION BY pupil ORDER BY course) <= 5;
    INSERT INTO grades SELECT pupil, course, term, hard FROM enrolments JOIN offers USING (course, term);
    CALL dp_public('offers');
    CALL dp_protect(['pupils', 'enrolments', 'grades'], unit := 'pupils.pupil', rho := 1e9, max_rows := {{'enrolments': 5, 'grades': 5}});
    CALL dp_attributes('pupils', {{'year': [0, 1, 2]}}); CALL dp_attribute('grades', 'grade');
"""
OTHERS["offers"] = (
    OFFERED.format(type="VARCHAR", course="'course ' || c // 3", key=", term", size=15),
    ["pupils", "enrolments", "grades"],
    {"course": ["enrolments", "grades"], "term": ["enrolments", "grades"]},
    "SELECT avg((grade = hard)::INTEGER) FROM syn.grades JOIN syn.offers USING (course, term)",
)
# Too many for the values of a column; the links keep them.
OTHERS["many"] = (
    OFFERED.format(type="INTEGER", course="3 * c", key="", size=1500).replace("% 1500 < 5", "% 100 < 5")
    + "CALL dp_attribute('enrolments', 'term', low := 2020, high := 2022)",
    ["pupils", "enrolments", "grades"],
    {"term": ["enrolments", "grades"]},
    "SELECT count(*) / (SELECT count(*) FROM grades) FROM syn.grades JOIN syn.offers USING (course)",
)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", list(OTHERS))
def test_keys_of_other_kinds(exact: Loaded, name: str) -> None:
    made, names, columns, alike = OTHERS[name]
    exact(made)
    exact(MADE.format(names))
    check(exact)
    for column, tables in columns.items():
        for table in tables:
            kept(exact, table, column)
    assert exact(alike)[0][0] > 0.85


@pytest.mark.parametrize("type_", ["VARCHAR", "DATE"])
def test_columns_that_nobody_declared_are_named(exact: Loaded, type_: str) -> None:
    """Texts are numbered, and what holds no number is asked for before a charge."""
    course = COURSES[type_]
    exact(PUPILS.format(type=type_, course=course))
    exact(ENROLLED.format(type=type_, course=course, public="", again="", key="", more="", of=""))
    exact(DECLARED.format(tables=str(NAMES)[1:-1], bounds=BOUNDS) + ATTRIBUTES.format())
    call = MADE.format(NAMES)
    if type_ == "DATE":
        assert "keys of synthetic rows are numbered, as whole numbers or text; declare it, leave" in exact.refused(call)
        return
    notes = [row[-1] or "" for row in exact(call) if row[1] == "enrolments"]
    assert "numbered as keys, not declared: course (to keep it: CALL dp_attribute('enrolments', 'course'" in notes[-1]
    check(exact)


PARTS = {
    "INTEGER": ("n", "low := 0, high := 5"),
    "VARCHAR": ("'v' || n", "\"values\" := ['v0', 'v1', 'v2', 'v3', 'v4', 'v5']"),
    "DATE": ("DATE '2024-01-01' + n::INTEGER", "bins := ['2024-01-01', '2024-01-04', '2024-01-07']"),
    "DECIMAL(5, 1)": ("1.5 * n", '"values" := [0, 1.5, 3, 4.5, 6, 7.5]'),
    "kinds": ("['p', 'q', 'r', 's', 't', 'u'][1 + n]", ""),
    "BOOLEAN": ("n % 2 = 0", ""),
    "UUID": (
        "'00000000-0000-0000-0000-00000000000' || n",
        f'"values" := {[f"00000000-0000-0000-0000-00000000000{n}" for n in range(6)]}',
    ),
}
NULLS = """
CREATE TYPE kinds AS ENUM ('p', 'q', 'r', 's', 't', 'u');
CREATE TABLE pupils (pupil INTEGER PRIMARY KEY, year INTEGER);
CREATE TABLE visits (pupil INTEGER {to_pupils}, part {type}, kind INTEGER {unique});
CREATE TABLE notes (note INTEGER PRIMARY KEY, pupil INTEGER, part {type}, good BOOLEAN {to_visits});
INSERT INTO pupils SELECT i, i % 3 FROM range({rows}) r(i);
INSERT INTO visits SELECT {pupil}, CASE WHEN (i + n) % 4 > 0 THEN {value} END, (i + n) % 3 FROM range({rows}) r(i), range(2) s(n) WHERE n <= i % 2;
INSERT INTO notes SELECT row_number() OVER (), pupil, part, kind = 0 FROM visits, range(2) WHERE part IS NOT NULL;
"""
OF_PUPILS = """
CALL dp_protect(['pupils', 'visits', 'notes'], unit := 'pupils.pupil', rho := 1e9, max_rows := {'visits': 2, 'notes': 4});
CALL dp_attributes('pupils', {'year': [0, 1, 2]});
"""
OF_ROWS = """
CALL dp_protect('visits', rho := 1e9); CALL dp_protect('notes', rho := 1e9); CALL dp_public('visits', links := 'notes');
CALL dp_attribute('visits', 'pupil', low := 0, high := 59, nulls := true);
"""


@pytest.mark.some(1)
@pytest.mark.parametrize("unit", [True, False], ids=["unit", "facts"])
@pytest.mark.parametrize("unique", [True, False], ids=["unique", "declared"])
@pytest.mark.parametrize("type_", list(PARTS))
def test_keys_with_nulls_have_rows_to_which_nothing_refers(exact: Loaded, type_: str, unique: bool, unit: bool) -> None:
    """A quarter of the visits has no part; all notes have one, and so have the visits of theirs."""
    value, declared = PARTS[type_]
    exact(
        NULLS.format(
            type=type_,
            value=value,
            to_pupils="REFERENCES pupils (pupil)" if unit else "",
            rows=300 if unit else 60,
            pupil="i" if unit else "CASE WHEN (i + n) % 12 > 0 THEN i END",
            unique=", UNIQUE (pupil, part)" if unique else "",
            to_visits=", FOREIGN KEY (pupil, part) REFERENCES visits (pupil, part)" if unique else "",
        )
    )
    if not unique:
        exact(
            "CALL dp_link('notes', \"references\" := [{'columns': ['pupil', 'part'], 'references': ['visits.pupil', 'visits.part']}])"
        )
    exact(OF_PUPILS if unit else OF_ROWS)
    exact("CALL dp_attributes('visits', {'kind': [0, 1, 2]}); CALL dp_attribute('notes', 'good')")
    exact(f"CALL dp_attribute('visits', 'part', {', '.join(filter(None, [declared, 'nulls := true']))})")
    steps = exact(MADE.format(["pupils", "visits", "notes"] if unit else ["visits", "notes"]))
    assert "left out" not in "; ".join(step[-1] or "" for step in steps)
    for table in ("visits", "notes"):
        counted = "count(*), count(*) FILTER (pupil IS NULL), count(*) FILTER (part IS NULL)"
        for real, made in zip(*(exact(f"SELECT {counted} FROM {s}{table}")[0] for s in ("", "syn.")), strict=True):
            assert abs(made - real) <= 3, table
    kept(exact, "visits", "kind")
    ((linked,),) = exact("SELECT count(*) FROM syn.notes SEMI JOIN syn.visits USING (pupil, part)")
    assert [(linked,)] == exact("SELECT count(*) FROM syn.notes")


@pytest.mark.parametrize("unit", [True, False], ids=["unit", "facts"])
def test_where_no_row_has_a_whole_key_nothing_is_linked_or_charged(exact: Loaded, unit: bool) -> None:
    exact(
        NULLS.format(
            type="INTEGER",
            value="NULL",
            to_pupils="REFERENCES pupils (pupil)" if unit else "",
            rows=300 if unit else 60,
            pupil="i" if unit else "CASE WHEN (i + n) % 12 > 0 THEN i END",
            unique=", UNIQUE (pupil, part)",
            to_visits=", FOREIGN KEY (pupil, part) REFERENCES visits (pupil, part)",
        )
    )
    exact("INSERT INTO notes SELECT i, i, NULL, true FROM range(40) r(i)")
    exact(OF_PUPILS if unit else OF_ROWS)
    exact("CALL dp_attribute('visits', 'part', low := 0, high := 5, nulls := true); CALL dp_attribute('notes', 'good')")
    exact("CALL dp_attributes('visits', {'kind': [0, 1, 2]})")
    steps = exact(MADE.format(["pupils", "visits", "notes"] if unit else ["visits", "notes"]))
    assert exact("SELECT count(*), count(part) FROM syn.visits") == [(450 if unit else 90, 0)]
    assert "not charged, as there are no rows to link" in steps[-1][-1]


REPEATED = """
CREATE TABLE pupils (pupil INTEGER PRIMARY KEY, year INTEGER);
CREATE TABLE visits (pupil INTEGER REFERENCES pupils (pupil), {part} kind INTEGER);
CREATE TABLE notes (note INTEGER PRIMARY KEY, {held} good BOOLEAN);
INSERT INTO pupils SELECT i, i % 3 FROM range(200) r(i);
INSERT INTO visits SELECT i, {value} i % 3 FROM range(200) r(i), range(5) s(n) WHERE n <= i % 5;
INSERT INTO notes SELECT row_number() OVER (), {key}, kind = 0 FROM (SELECT DISTINCT ON ({key}) * FROM visits);
CALL dp_link('notes', "references" := [{{'columns': [{named}], 'references': [{there}]}}]);
CALL dp_protect(['pupils', 'visits', 'notes'], unit := 'pupils.pupil', rho := 1e9, max_rows := 5);
CALL dp_attributes('pupils', {{'year': [0, 1, 2]}}); CALL dp_attributes('visits', {{'kind': [0, 1, 2]}}); CALL dp_attribute('notes', 'good');
"""


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize("part", ["BOOLEAN", "SMALLINT", "VARCHAR", "DATE", ""])
def test_rows_that_share_a_declared_key_are_kept(exact: Loaded, part: str) -> None:
    """Up to five visits of a pupil have two values of the part, or share the pupil alone, and no constraint forbids it."""
    values = {
        "BOOLEAN": "n % 2 = 0,",
        "SMALLINT": "1 + n % 2,",
        "VARCHAR": "'v' || n % 2,",
        "DATE": "DATE '2024-01-01' + (n % 2)::INTEGER,",
    }
    declared = {
        "BOOLEAN": "",
        "SMALLINT": ", low := 1, high := 2",
        "VARCHAR": ", \"values\" := ['v0', 'v1']",
        "DATE": ", bins := ['2024-01-01', '2024-01-02']",
    }
    key = ["pupil", "part"] if part else ["pupil"]
    exact(
        REPEATED.format(
            part=f"part {part}," if part else "",
            held=f"pupil INTEGER, {f'part {part},' if part else ''}",
            value=values.get(part, ""),
            key=", ".join(key),
            named=str(key)[1:-1],
            there=str([f"visits.{name}" for name in key])[1:-1],
        )
    )
    if part:
        exact(f"CALL dp_attribute('visits', 'part'{declared[part]})")
    call = MADE.format(["pupils", "visits", "notes"])
    planned = exact(call[:-1] + ", plan := true)")
    assert "refers to 'visits' without a constraint, as its rows may share them" in planned[-1][-1]
    steps = exact(call)
    assert "left out, which" not in str(steps)
    for table in ("visits", "notes"):
        ((real, made),) = exact(f"SELECT (SELECT count(*) FROM {table}), (SELECT count(*) FROM syn.{table})")
        assert abs(made - real) <= 3, table
    counted = f"SELECT count(*), count(DISTINCT ({', '.join(key)})) FROM"
    ((rows, distinct),) = exact(f"{counted} syn.visits")
    assert distinct < rows
    assert abs(distinct - exact(f"{counted} visits")[0][1]) <= 40  # of 360, or of 200 pupils
    assert exact(f"SELECT count(*) FROM syn.notes ANTI JOIN syn.visits USING ({', '.join(key)})") == [(0,)]
