"""References beside the one that says whose rows are: declared next to constraints, later, of other types, and repeated of a parent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

LINK = "CALL dp_link('{}', \"references\" := {})"
MAKE = "CALL dp_synthesize_database('main', target := 'syn', mu := 1e4)"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Loaded]:
    """Users."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, age INTEGER)")
    connection.execute("INSERT INTO users SELECT i, i % 3 FROM range(100) t(i)")
    duckdb_dp.testing.load(connection, tmp_path / "test.dp", seed=1)
    yield Loaded(connection, tmp_path / "test.dp")
    connection.close()


def messages(db: Any, *, constraints: bool) -> None:
    """Messages of one user to another."""
    refers = "REFERENCES users (id)" if constraints else ""
    db(
        f"CREATE TABLE messages (id INTEGER PRIMARY KEY, sender INTEGER {refers}, reader INTEGER {refers}, kind INTEGER)"
    )
    db("INSERT INTO messages SELECT i, i // 3, i * 7 % 100, i % 4 FROM range(300) t(i)")


def protect(db: Any, *tables: str) -> None:
    """Users with these tables, three rows each."""
    named = ", ".join(f"'{name}'" for name in ("users", *tables))
    bounds = ", ".join(f"'{name}': 3" for name in tables)
    db(f"CALL dp_protect([{named}], unit := 'users.id', max_rows := {{{bounds}}}, mu := 1e7, delta := 1e-9)")
    db("CALL dp_attribute('users', 'age', low := 0, high := 2)")


def referring(db: Any, table: str) -> list[str]:
    """The columns that a table is known to refer by."""
    return [row[1] for row in db(f"CALL dp_link('{table}')")]


@pytest.mark.some(1)
@pytest.mark.parametrize("constraints", [True, False])
def test_the_advice_says_whose_rows_are_and_drops_no_other_reference(db: Any, constraints: bool) -> None:
    """A row may belong to two users: what is declared goes before constraints, which are known all the same."""
    messages(db, constraints=constraints)
    if not constraints:
        db(LINK.format("messages", "{'sender': 'users.id', 'reader': 'users.id'}"))
    found = db.refused("CALL dp_protect(['users', 'messages'], unit := 'users.id', mu := 1)")
    assert "may belong to two of 'users.id': by 'sender' ('users') and by 'reader' ('users')" in found
    advice = found[found.index("CALL dp_link") :].partition(". What else")[0]
    assert advice == LINK.format("messages", "{'sender': 'users.id'}")
    db(advice)
    protect(db, "messages")
    if not constraints:
        assert [row[1] for row in db(LINK.format("messages", "{'reader': 'users.id'}"))] == ["sender", "reader"]
    db("CALL dp_attribute('messages', 'kind', low := 0, high := 3)")
    notes = "; ".join(row[-1] or "" for row in db(MAKE))
    assert "'users' has rows of units that do not own these rows, so reader, which refers to it, is left out" in notes
    assert db("SELECT count(*) FROM syn.messages SEMI JOIN syn.users ON sender = users.id") == [(300,)]


def test_references_that_are_declared_later_change_none(db: Any) -> None:
    """Others are added; one of the same column is refused, and so is another word on pairs."""
    messages(db, constraints=False)
    db(LINK.format("messages", "{'sender': 'users.id'}"))
    protect(db, "messages")
    db("CREATE TABLE kinds AS SELECT i AS kind FROM range(4) t(i)")
    added = db(LINK.format("messages", "{'kind': 'kinds.kind'}"))
    assert [row[1] for row in added] == ["sender", "kind"]
    for other in ("{'sender': 'kinds.kind'}", "{'kind': 'users.id'}", "{'reader': 'users.id'}, \"distinct\" := true"):
        assert "a declaration stays" in db.refused(LINK.format("messages", other))
    assert db(LINK.format("messages", "{'sender': 'users.id'}")) == db("CALL dp_link('messages')") == added


def test_the_last_declaration_counts_until_a_table_is_protected(db: Any) -> None:
    """It need not name constraints, and what identifies rows is declared alone."""
    messages(db, constraints=True)
    db("CREATE TABLE kinds AS SELECT i AS kind FROM range(4) t(i)")
    db(LINK.format("messages", "{'kind': 'users.id'}"))
    added = db(LINK.format("messages", "{'kind': 'kinds.kind'}"))
    assert [(row[1], row[2]) for row in added] == [
        ("kind", "kinds(kind)"),
        ("sender", "users(id)"),
        ("reader", "users(id)"),
    ]
    assert len(db(LINK.format("messages", "{'id': 'messages.id'}"))) == 4


@pytest.mark.some(1)
@pytest.mark.parametrize("constraints", [True, False])
def test_an_owner_that_is_named_twice_is_one(db: Any, constraints: bool) -> None:
    """A review names its guest and its booking, which names the guest: in synthetic rows both are the same guest."""
    guest, booking = ("REFERENCES users (id)", "REFERENCES bookings (id)") if constraints else ("", "")
    db(f"CREATE TABLE bookings (id INTEGER PRIMARY KEY, guest INTEGER {guest}, nights INTEGER)")
    db("INSERT INTO bookings SELECT i, i // 2, i % 5 FROM range(200) t(i)")
    db(
        f"CREATE TABLE reviews (id INTEGER PRIMARY KEY, booking INTEGER {booking}, guest INTEGER {guest}, stars INTEGER)"
    )
    db("INSERT INTO reviews SELECT i, i, i // 2, i % 5 FROM range(150) t(i)")
    if not constraints:
        db(LINK.format("bookings", "{'guest': 'users.id'}"))
    db(LINK.format("reviews", "{'booking': 'bookings.id'}"))
    protect(db, "bookings", "reviews")
    if not constraints:
        db(LINK.format("reviews", "{'guest': 'users.id'}"))
    db("CALL dp_attribute('bookings', 'nights', low := 0, high := 4)")
    db(
        "CALL dp_attribute('reviews', 'stars', low := 0, high := 4); CALL dp_attribute('reviews', 'guest', low := 0, high := 99)"
    )
    notes = "; ".join(row[-1] or "" for row in db(MAKE))
    assert "guest as in 'bookings', which has it too" in notes
    assert "get no guest" not in notes
    real = db("SELECT count(*) FROM reviews JOIN bookings ON booking = bookings.id AND reviews.guest = bookings.guest")
    assert db("SELECT count(*) FROM syn.reviews r JOIN syn.bookings b ON booking = b.id AND r.guest = b.guest") == real
    assert db("SELECT count(*) FROM syn.reviews SEMI JOIN syn.users ON guest = users.id") == real


NUMBERS = ["INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL(12, 0)", "DECIMAL(12, 2)"]


TYPES = [
    pytest.param(own, key, marks=[] if (own, key) == ("DOUBLE", "BIGINT") else pytest.mark.slow)
    for own in NUMBERS
    for key in NUMBERS
]


@pytest.mark.parametrize(("own", "key"), TYPES)
def test_keys_of_two_types_of_numbers_meet(db: Any, own: str, key: str) -> None:
    """Such as those of files, in which whole numbers with NULLs became 7.0."""
    db(f"CREATE TABLE rooms (room {key}, beds INTEGER)")
    db("INSERT INTO rooms SELECT i, i % 4 FROM range(1200) t(i)")
    db(f"CREATE TABLE nights (id INTEGER REFERENCES users (id), room {own})")
    db("INSERT INTO nights SELECT i // 3, i * 4 + i // 3 % 3 FROM range(300) t(i)")
    protect(db, "nights")
    db("CALL dp_public('rooms')")
    db(LINK.format("nights", "{'room': 'rooms.room'}"))
    db(MAKE)
    found = "SELECT age, beds, count(*) FROM {0}nights JOIN {0}users USING (id) JOIN {0}rooms USING (room) GROUP BY ALL ORDER BY ALL"
    real, made = db(found.format("")), db(found.format("syn."))
    assert sum(row[2] for row in real) == 300
    assert sum(abs({r[:2]: r[2] for r in made}.get(r[:2], 0) - r[2]) for r in real) <= 30


@pytest.mark.slow
def test_public_tables_are_copied_with_those_that_they_refer_to(db: Any) -> None:
    """Over any number of steps, by constraints and as declared; neither a cycle nor a private table stands in the way."""
    db("CREATE TABLE lands (land INTEGER PRIMARY KEY); INSERT INTO lands FROM range(3)")
    db(
        "CREATE TABLE hosts (host INTEGER PRIMARY KEY, land INTEGER REFERENCES lands (land), above INTEGER REFERENCES hosts (host))"
    )
    db("INSERT INTO hosts SELECT i, i % 3, NULL FROM range(9) t(i)")
    db("CREATE TABLE kinds AS SELECT i AS kind, i AS other FROM range(4) t(i); CREATE TABLE secrets AS FROM kinds")
    db(
        "CREATE TABLE rooms (room INTEGER PRIMARY KEY, host INTEGER REFERENCES hosts (host), kind INTEGER, secret INTEGER)"
    )
    db("INSERT INTO rooms SELECT i, i % 9, i % 4, i % 4 FROM range(40) t(i)")
    db("CREATE TABLE nights (id INTEGER REFERENCES users (id), room INTEGER REFERENCES rooms (room))")
    db("INSERT INTO nights SELECT i // 3, i * 7 % 40 FROM range(300) t(i)")
    db(LINK.format("rooms", "{'kind': 'kinds.kind', 'secret': 'secrets.kind'}"))
    db(LINK.format("kinds", "{'other': 'rooms.room'}"))
    protect(db, "nights")
    db("CALL dp_public(['lands', 'hosts', 'kinds', 'rooms'])")
    note = db(MAKE)[-1][-1]
    assert "'rooms' is public and is copied as it is" in note
    assert "copied too, as public tables refer to them: 'kinds', 'lands', 'hosts'" in note
    made = db("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'syn' ORDER BY ALL")
    assert [name for (name,) in made] == ["hosts", "kinds", "lands", "nights", "rooms", "users"]
    kept = db("SELECT table_name, unnest(constraint_column_names) FROM duckdb_constraints() WHERE schema_name = 'syn' AND constraint_type = 'FOREIGN KEY' ORDER BY ALL")  # fmt: skip
    assert kept == [("hosts", "land"), ("nights", "id"), ("nights", "room"), ("rooms", "host")]
    for table in ("hosts", "kinds", "lands", "rooms"):
        assert db(f"FROM syn.{table} ORDER BY ALL") == db(f"FROM {table} ORDER BY ALL")


FORBIDDEN = {"nobody": (["kind > 5"], 0), "parents": (["age > 5"], 300), "both": (["kind > 5", "age > 5"], 0)}


@pytest.mark.some(1)
@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize(("checks", "left"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_tables_whose_rows_a_constraint_forbids_are_made_empty(
    db: Any, checks: list[str], left: int, links: bool
) -> None:
    """Their links are not asked for, so they cost nothing, and rows have no parents then."""
    age = "CHECK (age > 5 OR age < 0)" if "age > 5" in checks else ""
    kind = "CHECK (kind > 5)" if "kind > 5" in checks else ""
    db(f"CREATE TABLE people (id INTEGER PRIMARY KEY, age INTEGER {age})")
    db(f"INSERT INTO people SELECT i, {7 if age else 2} FROM range(100) t(i)")
    db("CREATE TABLE rooms (room INTEGER PRIMARY KEY); INSERT INTO rooms FROM range(9); CALL dp_public('rooms')")
    room, key = ("room INTEGER REFERENCES rooms (room),", "") if links else ("", "n INTEGER PRIMARY KEY,")
    db(f"CREATE TABLE stays ({key} id INTEGER REFERENCES people (id), {room} kind INTEGER {kind})")
    names, values = ("id, room", "i // 3, i % 9") if links else ("n, id", "i, i // 3")
    db(f"INSERT INTO stays ({names}, kind) SELECT {values}, {7 if kind else 1} FROM range(300) t(i)")
    db("CALL dp_protect(['people', 'stays'], unit := 'people.id', max_rows := {'stays': 3}, mu := 1e7, delta := 1e-9)")
    db(
        "CALL dp_attribute('people', 'age', low := 0, high := 2); CALL dp_attribute('stays', 'kind', low := 0, high := 3)"
    )
    made, charges = db(MAKE), db.charges()
    gone = (0,) if age else (100,)
    assert db("SELECT count(*) FROM syn.people") == [gone]
    assert db("SELECT count(*) FROM syn.stays") == [(0 if links else left if kind or age else 300,)]
    asked = [row for row in made if "not charged, as there are no rows to link" not in (row[-1] or "")]
    assert charges == len(asked) == len(made) - (bool(age) or (bool(kind) and not links))
    assert [row[5] for row in made if row not in asked] == [0.0] * (len(made) - len(asked))


KEYED = {
    "INTEGER": ["0", "2", "10"],
    "VARCHAR": ["'a'", "'b.c'", "'it''s'"],
    "DATE": [f"DATE '2020-0{i}-01'" for i in (1, 2, 3)],
}


@pytest.mark.some(1)
@pytest.mark.parametrize("type_", KEYED)
def test_a_column_that_refers_to_a_public_table_has_its_keys_as_values(db: Any, type_: str) -> None:
    """Declared with NULL, as the plan advises, rows without a reference are kept."""
    db(f'CREATE TABLE kinds ("a.kind" {type_} PRIMARY KEY)')
    db(f"INSERT INTO kinds VALUES {', '.join(f'({value})' for value in reversed(KEYED[type_]))}")
    db(f'CREATE TABLE stays (id INTEGER REFERENCES users (id), "my.kind" {type_})')
    db("INSERT INTO stays SELECT i // 3, NULL FROM range(90) t(i)")
    for i, value in enumerate(KEYED[type_]):
        db(f"INSERT INTO stays SELECT {30 + 20 * i} + i // 3, {value} FROM range(60) t(i)")
    assert db(LINK.format("stays", "{'my.kind': 'kinds.\"a.kind\"'}"))[0][1] == "my.kind"
    protect(db, "stays")
    refused = db.refused("CALL dp_attribute('stays', 'my.kind', nulls := true)")
    assert "give" in refused or "list" in refused
    db("CALL dp_public('kinds')")
    note = db(MAKE[:-1] + ", plan := true)")[-1][-1]
    advice = "CALL dp_attribute('stays', 'my.kind', nulls := true)"
    assert advice in note
    assert db(advice) == [("my.kind", type_, 4)]
    assert [row[2] for row in db("FROM dp_domain('stays')")][:3] == [label(value) for value in KEYED[type_]]
    db(MAKE)
    counts = 'SELECT "my.kind" IS NULL, count(*) FROM {}stays GROUP BY ALL ORDER BY ALL'
    assert db(counts.format("syn.")) == db(counts.format("")) == [(False, 180), (True, 90)]


def label(value: str) -> str:
    """A literal as text."""
    return value.removeprefix("DATE ").strip("'").replace("''", "'")


def test_the_parent_that_a_constraint_gives_the_unit_stays(db: Any) -> None:
    """Its bound covers that parent; another one would be read uncharged."""
    db(
        "CREATE TABLE managers (id INTEGER PRIMARY KEY, age INTEGER); INSERT INTO managers FROM users; CALL dp_protect('managers', mu := 1)"
    )
    db(
        "CREATE TABLE nights (id INTEGER REFERENCES users (id), room INTEGER); INSERT INTO nights SELECT i // 3, i % 9 FROM range(300) t(i)"
    )
    db("CALL dp_protect('nights', unit := 'id', max_rows := 3, mu := 1)")
    found = db.refused(LINK.format("nights", "{'id': 'managers.id'}"))
    assert "id of 'nights' names the unit and refers to 'users' by a FOREIGN KEY, which stays" in found
    db(LINK.format("nights", "{'room': 'users.id'}"))
    assert "which stays" in db.refused(LINK.format("nights", "{'id': 'managers.id'}"))
    assert [row[2] for row in db("CALL dp_link('nights')")] == ["users(id)", "users(id)"]
    db("CREATE TABLE two (a INTEGER, b INTEGER, PRIMARY KEY (a, b)); INSERT INTO two SELECT i, i FROM range(9) t(i)")
    db("CREATE TABLE of_two (a INTEGER, b INTEGER, FOREIGN KEY (a, b) REFERENCES two (a, b))")
    db("CALL dp_protect('of_two', unit := [['a', 'b']], max_rows := 3, mu := 1)")
    order = "[{'columns': ['b', 'a'], 'references': ['two.b', 'two.a']}]"
    assert "which stays" in db.refused(LINK.format("of_two", order.replace("['two.b', 'two.a']", "['two.a', 'two.b']")))
    assert len(db(LINK.format("of_two", order))) == 1  # the same in another order


def test_roles_by_which_links_were_asked_for_stay(db: Any) -> None:
    """What is declared later has another one, also where it leads to the same table."""
    db("CREATE TABLE rooms (room INTEGER PRIMARY KEY); INSERT INTO rooms FROM range(9); CALL dp_public('rooms')")
    db("CREATE TABLE nights (id INTEGER REFERENCES users (id), room INTEGER REFERENCES rooms (room), guide INTEGER)")
    db("INSERT INTO nights SELECT i // 3, i % 9, i % 100 FROM range(300) t(i)")
    protect(db, "nights")
    before = [row[:3] for row in db("CALL dp_link('nights')")]
    db(MAKE)
    added = [row[:3] for row in db(LINK.format("nights", "{'guide': 'users.id'}"))]
    assert added == [*before, ("guide", "guide", "users(id)")]
    charges = db.charges()
    db("DROP SCHEMA syn CASCADE")
    notes = "; ".join(row[-1] or "" for row in db(MAKE))
    assert "so guide, which refers to it, is left out" in notes
    assert db.charges() == charges  # the links are those that were paid


@pytest.mark.some(1)
@pytest.mark.parametrize("constraints", [True, False])
@pytest.mark.parametrize(
    "owner", ["{'id': 'users.id'}", "[{'columns': ['id', 'course'], 'references': ['taken.id', 'taken.course']}]"]
)
def test_a_parent_whose_key_names_the_unit_goes_before_the_unit(db: Any, owner: str, constraints: bool) -> None:
    """Marks of courses that students take, by (student, course), name the student too: each mark belongs to a course of its student."""
    one, two = (
        ("REFERENCES users (id)", ", FOREIGN KEY (id, course) REFERENCES taken (id, course)")
        if constraints
        else ("", "")
    )
    key = ", PRIMARY KEY (id, course)" if constraints else ""
    db(f"CREATE TABLE taken (id INTEGER {one}, course VARCHAR, online BOOLEAN{key})")
    db("INSERT INTO taken SELECT i, 'c' || j, (i + j) % 3 = 0 FROM range(100) t(i), range(3) u(j)")
    db(f"CREATE TABLE marks (id INTEGER {one}, course VARCHAR, mark INTEGER{two})")
    db("INSERT INTO marks SELECT id, course, CASE WHEN online THEN 1 ELSE 2 + id % 2 END FROM taken")
    if not constraints:
        db(LINK.format("taken", "{'id': 'users.id'}"))
    db(LINK.format("marks", owner))
    protect(db, "taken", "marks")
    for other in ("{'id': 'users.id'}", "[{'columns': ['id', 'course'], 'references': ['taken.id', 'taken.course']}]"):
        db(LINK.format("marks", other))
    db("CALL dp_attribute('taken', 'online'); CALL dp_attribute('marks', 'mark', low := 1, high := 3)")
    made = db(MAKE)
    assert [row[2] for row in made if row[1] == "marks"] == ["rows", "parents in taken"]
    found = "SELECT online, mark, count(*) FROM {0}marks JOIN {0}taken USING (id, course) JOIN {0}users USING (id) GROUP BY ALL ORDER BY ALL"
    real, made = ({row[:2]: row[2] for row in db(found.format(schema))} for schema in ("", "syn."))
    assert sum(made.values()) == 300
    assert (
        sum(abs(real.get(cell, 0) - made.get(cell, 0)) for cell in real | made) <= 80
    )  # some 267 of rows dealt at random
    assert db("SELECT count(*) FROM (SELECT id FROM syn.marks GROUP BY id, course HAVING count(*) = 1)") > [(270,)]


def test_columns_that_others_refer_to_number_no_rows_where_these_references_are_not_drawn(db: Any) -> None:
    """A column that is no key, to which a later declaration says that others refer: the call was charged, and failed."""
    db(
        "CREATE TABLE bookings (id INTEGER PRIMARY KEY, guest INTEGER REFERENCES users (id), host INTEGER, nights INTEGER)"
    )
    db("INSERT INTO bookings SELECT i, i // 3, i * 7 % 100, i % 5 FROM range(300) t(i)")
    db("CREATE TABLE reviews (guest INTEGER REFERENCES users (id), host INTEGER, stars INTEGER)")
    db("INSERT INTO reviews SELECT guest, host, id % 5 FROM bookings")
    protect(db, "bookings", "reviews")
    db(LINK.format("reviews", "{'host': 'bookings.host'}"))
    db(
        "CALL dp_attribute('bookings', 'nights', low := 0, high := 4); CALL dp_attribute('reviews', 'stars', low := 0, high := 4)"
    )
    db(MAKE)
    assert db("SELECT count(*) FROM syn.reviews SEMI JOIN syn.users ON guest = users.id") == [(300,)]


def test_units_of_two_columns_are_the_same_ones_on_both_ends(db: Any) -> None:
    """Crossed, (1, 2) of the links would be (2, 1) of their parents, and one bound would not hold for both."""
    db(
        "CREATE TABLE pairs (a INTEGER, b INTEGER, x INTEGER, PRIMARY KEY (a, b)); INSERT INTO pairs SELECT i // 9, i % 9, i % 3 FROM range(81) t(i)"
    )
    db("CREATE TABLE rooms (room INTEGER PRIMARY KEY); INSERT INTO rooms FROM range(9); CALL dp_public('rooms')")
    db("CREATE TABLE stays AS SELECT a, b, r AS room FROM pairs, range(2) t(r)")
    for table in ("pairs", "stays"):
        db(f"CALL dp_protect('{table}', unit := [['a', 'b']], max_rows := 2, mu := 1e4)")
    db(
        "CALL dp_attribute('pairs', 'x', low := 0, high := 2); CREATE TABLE p AS FROM dp_synthesize('pairs', \"key\" := ['a', 'b'], mu := 1)"
    )
    crossed = "[{'columns': ['a', 'b'], 'references': ['pairs.b', 'pairs.a']}, {'columns': ['room'], 'references': ['rooms.room']}]"
    db(LINK.format("stays", crossed))
    assert "neither protect nor charge" in db.refused(
        "FROM dp_links('stays', synthetic := {'pairs': 'p', 'rooms': 'rooms'}, mu := 1)"
    )


def test_the_key_of_a_table_without_constraints_is_kept_as_the_plan_advises(db: Any) -> None:
    """A column that numbers rows would be noise as an attribute."""
    db("CREATE TABLE loans AS SELECT i AS loan_id, i // 3 AS id, i % 4 AS kind FROM range(300) t(i)")
    db(LINK.format("loans", "{'id': 'users.id'}"))
    protect(db, "loans")
    db("CALL dp_attribute('loans', 'kind', low := 0, high := 3)")
    advice = LINK.format("loans", "{'loan_id': 'loans.loan_id'}")
    assert f"if loan_id identifies the rows: {advice}, or" in db(MAKE[:-1] + ", plan := true)")[-1][-1]
    db(advice)
    db(MAKE)
    assert db("SELECT count(DISTINCT loan_id), count(*) FROM syn.loans") == [(300, 300)]


BELIEVED = "no PRIMARY KEY or UNIQUE is known that keeps {} apart, so it is believed to be a key"
ENDS: dict[str, tuple[str, str | None]] = {
    "a primary key": ("CREATE TABLE stays (a INTEGER PRIMARY KEY, b INTEGER)", None),
    "a unique column": ("CREATE TABLE stays (a INTEGER UNIQUE, b INTEGER)", None),
    "none": ("CREATE TABLE stays (a INTEGER, b INTEGER)", BELIEVED.format("a of 'stays'")),
    "another column's": ("CREATE TABLE stays (a INTEGER, b INTEGER PRIMARY KEY)", BELIEVED.format("a of 'stays'")),
    "a longer one": ("CREATE TABLE stays (a INTEGER, b INTEGER, PRIMARY KEY (a, b))", BELIEVED.format("a of 'stays'")),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize(("ends", "said"), ENDS.values(), ids=ENDS)
def test_what_is_referred_to_is_noted_where_nothing_keeps_it_apart(
    db: Any, ends: str, said: str | None, repeats: bool
) -> None:
    """Of protected rows the constraints say so alone, and of public ones their values."""
    db(f"{ends}; CREATE TABLE meals (a INTEGER, id INTEGER)")
    db(f"INSERT INTO stays SELECT i {'// 2' if repeats and said else ''}, i FROM range(10) t(i)")
    db(LINK.format("stays", "{'b': 'users.id'}"))
    db(LINK.format("meals", "{'id': 'users.id'}"))
    protect(db, "stays", "meals")
    (*_, user), (*_, note) = db(LINK.format("meals", "{'a': 'stays.a'}"))
    assert user is None
    assert note is None if said is None else said in note
    db(f"{ends.replace('stays', 'open')}; INSERT INTO open FROM stays; CALL dp_public('open')")
    db("CREATE TABLE looks (a INTEGER, id INTEGER); CALL dp_protect('looks', unit := 'id', max_rows := 3, mu := 1)")
    ((*_, note),) = db(LINK.format("looks", "{'a': 'open.a'}"))
    shared = "'open' is public and has rows that share a: joins by it take each of them"
    assert note == (shared if repeats and said else None)


def test_public_rows_that_cannot_be_read_say_nothing(db: Any) -> None:
    """Those of a table that is not committed, and of a generated column that fails."""
    db(
        "CREATE TABLE looks (id INTEGER, a INTEGER, b INTEGER); CALL dp_protect('looks', unit := 'id', max_rows := 3, mu := 1)"
    )
    db("CREATE TABLE open (a INTEGER); CALL dp_public('open'); DROP TABLE open")
    db(
        "CREATE TABLE made (c VARCHAR, b INTEGER AS (CAST(c AS INTEGER)), d INTEGER); INSERT INTO made (c) VALUES ('1'), ('1'); CALL dp_public('made')"
    )
    db("UPDATE made SET c = 'x'")
    db(LINK.format("looks", "{'b': 'made.b'}"))
    for asked in ("dp_attribute('looks', 'b')", "dp_attributes('looks', {'b': true})"):
        assert "attribute 'b'" in db.refused(f"CALL {asked}")
    db("BEGIN; CREATE TABLE open (a INTEGER); INSERT INTO open VALUES (1), (1)")
    assert [row[-1] for row in db(LINK.format("looks", "{'a': 'open.a'}"))] == [None, None]
    db("COMMIT; UPDATE made SET c = '1'")
    notes = [row[-1] for row in db("CALL dp_link('looks')")]
    assert ["has rows that share" in note for note in notes] == [True, True]


def test_rowid_is_apart_of_itself(db: Any) -> None:
    db("CREATE TABLE pets (id INTEGER, kind INTEGER); CALL dp_protect('pets', unit := 'id', max_rows := 3, mu := 1)")
    assert [row[-1] for row in db(LINK.format("pets", "{'id': 'users.id', 'rowid': 'pets.rowid'}"))] == [None, None]


@pytest.mark.parametrize("believed", [False, True])
def test_what_a_join_is_believed_to_take_one_row_of_is_explained(db: Any, believed: bool) -> None:
    """Where that is wrong, rows are left out, and a bound that is typed keeps them."""
    db("CREATE TABLE stays AS SELECT i // 6 AS id, i % 2 AS a FROM range(600) t(i); CREATE TABLE meals AS FROM stays")
    for table in ("stays", "meals"):
        db(LINK.format(table, "{'id': 'users.id'}"))
    protect(db, "stays", "meals")
    if believed:
        db(LINK.format("meals", "{'a': 'stays.a'}"))
    select = "SELECT count(*) AS n FROM meals JOIN stays USING (id, a)"
    ((route,),) = db(f"SELECT route FROM dp_explain('{select}', mu := 1e4)")
    assert ('3 of "meals" x 1 of "stays" (by "a", as declared)' in route) == believed
    assert ('3 of "meals" x 3 of "stays"' in route) != believed
    ((kept,),) = db(f"SELECT n FROM dp_sql('{select}', mu := 1e4)")
    assert round(kept) == (300 if believed else 900)
    ((whole,),) = db(f"SELECT n FROM dp_sql('{select}', mu := 1e4, max_rows := 18)")
    assert (round(whole), db(select)) == (1800, [(1800,)])


SHAPES = {
    "{'room': true}": ("true", "nulls := true"),
    "a map": ("MAP {'room': true}", "nulls := true"),
    "'nulls': false": ("{'room': {'nulls': false}}", ""),
    "'other'": ("{'room': {'other': true}}", "other := true"),
    "a file": ("room = true", "nulls := true"),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("type_", KEYED)
@pytest.mark.parametrize("shape", SHAPES)
def test_dp_attributes_takes_the_keys_that_dp_attribute_takes(db: Any, tmp_path: Path, type_: str, shape: str) -> None:
    """Where nothing is known of a column both are refused, and a CHECK is less than the keys."""
    db(f"CREATE TABLE rooms (room {type_} PRIMARY KEY)")
    db(f"INSERT INTO rooms VALUES {', '.join(f'({value})' for value in KEYED[type_])}")
    check = "CHECK (room BETWEEN 0 AND 20)" if type_ == "INTEGER" else ""
    db(f"CREATE TABLE stays (id INTEGER REFERENCES users (id), room {type_} {check}, other {type_})")
    protect(db, "stays")
    db(LINK.format("stays", "{'room': 'rooms.room', 'other': 'users.age'}" if check else "{'room': 'rooms.room'}"))
    db("CALL dp_public('rooms')")
    text, words = SHAPES[shape]
    if shape == "a file":
        (tmp_path / "domain.toml").write_text(text)
        text = f"'{tmp_path / 'domain.toml'}'"
    elif text == "true":
        text = shape
    db(f"CALL dp_attributes('stays', {text})")
    found = db("FROM dp_domain('stays')")
    db("CALL dp_attribute('stays', 'room', remove := true)")
    db(f"CALL dp_attribute('stays', 'room', {words})" if words else "CALL dp_attribute('stays', 'room')")
    assert found == db("FROM dp_domain('stays')")
    assert len(found) == 3 + bool(words)
    for refused in ("dp_attributes('stays', {'other': true})", "dp_attribute('stays', 'other')"):
        assert "other" in db.refused(f"CALL {refused}")
