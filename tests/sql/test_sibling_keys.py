"""Keys of a parent and a number of its own, such as (order, line), and keys of narrow types."""

import itertools
import random
from dataclasses import replace

import duckdb
import pytest

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.sql.sibling_keys import SiblingKey, room
from duckdb_dp.synthesis.database import Table
from tests.conftest import Loaded

WHOLE = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"]
MADE = "CALL dp_synthesize_database('main', target := 'syn', rho := 1e4, tables := {})"
NAMES = ["persons", "stays"]

PLACED = {
    "integers": (Attribute(name="c", type="TINYINT", kind="integers", points=(-2, 3)), list(range(-2, 4))),
    "bins": (Attribute(name="c", type="INTEGER", kind="bins", points=(0, 2, 5)), list(range(6))),
    "days": (
        Attribute(name="c", type="DATE", kind="bins", points=("2020-02-27", "2020-02-28", "2020-03-02")),
        [f"2020-{day}" for day in ("02-27", "02-28", "02-29", "03-01", "03-02")],
    ),
    "decimals": (
        Attribute(name="c", type="DECIMAL(3,1)", kind="bins", points=(0, 0.3, 0.5)),
        [f"0.{digit}" for digit in range(6)],
    ),
    "values": (Attribute(name="c", type="VARCHAR", kind="values", points=("b", "it's", "a")), ["b", "it's", "a"]),
}


@pytest.mark.parametrize("kind", list(PLACED))
def test_siblings_differ_wherever_values_are_left(kind: str) -> None:
    attribute, values = PLACED[kind]
    rng, con = random.Random(kind), duckdb.connect()
    key = SiblingKey(column="c", type=attribute.type, among=("up", "of"), attribute=attribute)
    for _ in range(40):
        con.execute(f"CREATE OR REPLACE TABLE drawn (up INTEGER, of VARCHAR, c {attribute.type}, x INTEGER)")
        rows = [(rng.randrange(3), rng.choice("ab"), rng.choice(values), i) for i in range(rng.randrange(30))]
        rows += [(None, "a", values[0], 100), (None, "a", values[0], 101), (1, "a", None, 102), (1, "a", None, 103)]
        con.executemany("INSERT INTO drawn VALUES (?, ?, ?, ?)", rows)
        found = con.execute(
            f"SELECT up, of, c::VARCHAR, x FROM ({key.rows('FROM drawn', ['up', 'of', 'c', 'x'])})"
        ).fetchall()
        texts = list(map(str, values))
        for up, of in itertools.product(range(3), "ab"):
            before = [str(row[2]) for row in rows if row[:2] == (up, of) and row[2] is not None]
            after = [row[2] for row in found if row[:2] == (up, of) and row[2] is not None]
            assert len(set(after)) == len(after) == min(len(before), len(values))
            assert set(after) <= set(texts)
            if len(set(before)) == len(before):
                assert sorted(after) == sorted(before)
        # Of rows without a parent or a value nothing is known.
        assert {row[3] for row in found if row[0] is None or row[2] is None} == {100, 101, 102, 103}


def test_a_repeat_takes_the_next_value_and_the_last_ones_move_back() -> None:
    attribute, _ = PLACED["integers"]
    key = SiblingKey(column="c", type="TINYINT", among=("up",), attribute=attribute)
    drawn = "SELECT 1 AS up, unnest([-2, -2, 0, 3, 3])::TINYINT AS c"
    assert duckdb.sql(f"SELECT c FROM ({key.rows(drawn, ['up', 'c'])}) ORDER BY c").fetchall() == [
        (-2,), (-1,), (0,), (2,), (3,),
    ]  # fmt: skip


def test_texts_that_nobody_declared_are_numbered_among_siblings() -> None:
    attribute = Attribute(name="c", type="VARCHAR", kind="values", points=("a", "b"), other=True, nulls=True)
    key = SiblingKey(column="c", type="VARCHAR", among=("up",), attribute=attribute)
    drawn = (
        "SELECT unnest([1, 1, 1, 1, 2, 2, 2]) AS up, unnest(['other', 'a', 'other', 'other', NULL, NULL, 'other']) AS c"
    )
    found = duckdb.sql(f"SELECT up, c FROM ({key.rows(drawn, ['up', 'c'])}) ORDER BY ALL").fetchall()
    assert found == [(1, "a"), (1, "other"), (1, "other-2"), (1, "other-3"), (2, "other"), (2, None), (2, None)]


OTHER = """
CREATE TABLE persons (id INTEGER PRIMARY KEY, sex INTEGER); INSERT INTO persons SELECT i, i % 2 FROM range(200) r(i);
CREATE TABLE drugs (id INTEGER REFERENCES persons (id), drug {type}, kind INTEGER, PRIMARY KEY (id, drug));
INSERT INTO drugs SELECT i, {value}, n % 3 FROM range(200) r(i), range(5) s(n);
CALL dp_protect(['persons', 'drugs'], unit := 'persons.id', rho := 1e9, max_rows := 5);
CALL dp_attributes('persons', {{'sex': [0, 1]}}); CALL dp_attributes('drugs', {{'kind': [0, 1, 2]}});
"""


@pytest.mark.parametrize(
    ("type_", "value", "declared"),
    [
        ("VARCHAR", "'drug ' || n", "\"values\" := ['drug 0', 'drug 1', 'drug 2'], other := true"),
        ("DECIMAL(4,1)", "0.2 * n", "low := 0, high := 1, step := 1"),
    ],
)
def test_parts_of_keys_with_other_texts_and_decimals_lose_no_rows(
    exact: Loaded, type_: str, value: str, declared: str
) -> None:
    """Two of five drugs are 'other', or five doses lie in one bin, of eleven."""
    exact(OTHER.format(type=type_, value=value) + f"CALL dp_attribute('drugs', 'drug', {declared})")
    steps = exact(MADE.format(["persons", "drugs"]))
    ((rows,),) = exact("SELECT count(*) FROM syn.drugs")
    assert rows >= 985
    assert ("and other texts are numbered" in steps[-1][-1]) == (type_ == "VARCHAR")


STAYS = """
CREATE TABLE persons (id INTEGER PRIMARY KEY, sex INTEGER);
CREATE TABLE sites (pl TINYINT PRIMARY KEY, big INTEGER);
INSERT INTO persons SELECT i, i % 2 FROM range(200) r(i);
INSERT INTO sites SELECT i, i % 2 FROM range(3) r(i);
CREATE TABLE stays (id INTEGER REFERENCES persons (id), {more} seq {type}, kind INTEGER, {key});
INSERT INTO stays SELECT i, {held} n + 1, (i + n) % 3 FROM range(200) r(i), range(5) s(n) WHERE n <= i % 5;
CALL dp_public(['sites']);
CALL dp_protect(['persons', 'stays'], unit := 'persons.id', rho := 1e6, max_rows := {{'stays': 5}});
CALL dp_attributes('persons', {{'sex': [0, 1]}}); CALL dp_attributes('stays', {{'kind': [0, 1, 2] {declared}}});
"""


@pytest.mark.slow
@pytest.mark.some(3)
@pytest.mark.parametrize("declared", ["", ", 'seq': [1, 2, 3, 4, 5]"], ids=["numbered", "declared"])
@pytest.mark.parametrize("links", [False, True], ids=["children", "links"])
@pytest.mark.parametrize("type_", WHOLE)
def test_no_row_is_lost_to_a_key_of_siblings(exact: Loaded, type_: str, links: bool, declared: str) -> None:
    more, held, key = (
        ("pl TINYINT REFERENCES sites (pl),", "0,", "PRIMARY KEY (id, pl, seq)")
        if links
        else ("", "", "PRIMARY KEY (id, seq)")
    )
    exact(STAYS.format(type=type_, more=more, held=held, key=key, declared=declared))
    steps = exact(MADE.format(NAMES))
    ((rows, least, most, whole),) = exact(
        f"SELECT count(*), min(seq), max(seq), count(DISTINCT (id, {'pl,' if links else ''} seq)) FROM syn.stays"
    )
    assert 560 <= rows == whole <= 640  # of 600
    assert (least, most <= 8) == (1, True)
    assert exact("SELECT typeof(seq) FROM syn.stays LIMIT 1") == [(type_,)]
    assert steps[-1][-1].count("seq") == 1
    assert "left out, which" not in steps[-1][-1]
    if not links and not declared:  # as many rows with each number as parents with so many rows
        ((gaps,),) = exact(
            "SELECT count(*) FROM (SELECT max(seq) - count(*) AS d FROM syn.stays GROUP BY id) WHERE d > 0"
        )
        assert gaps == 0


@pytest.mark.parametrize("key", ["PRIMARY KEY (seq), UNIQUE (id, seq)", "UNIQUE (seq), PRIMARY KEY (seq, id)"])
def test_numbers_that_identify_rows_alone_count_all_rows(exact: Loaded, key: str) -> None:
    exact(STAYS.format(type="BIGINT", more="", held="1000 * i +", key=key, declared=""))
    steps = exact(MADE.format(NAMES))
    ((rows, numbers),) = exact("SELECT count(*), count(DISTINCT seq) FROM syn.stays")
    assert numbers == rows >= 560
    assert "seq" not in steps[-1][-1]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("type_", "rows"), [("TINYINT", 256), ("UTINYINT", 256), ("SMALLINT", 40_000), ("USMALLINT", 40_000)]
)
def test_narrow_keys_hold_as_many_rows_as_their_type_has_values(exact: Loaded, type_: str, rows: int) -> None:
    exact(
        f"CREATE TABLE t (id {type_} PRIMARY KEY, a INTEGER); CALL dp_protect('t', rho := 1); CALL dp_attributes('t', {{'a': [0, 1]}})"
    )
    found = exact(f"SELECT id FROM dp_synthesize('t', \"rows\" := {rows}, rho := .1)")
    assert len(found) == len(set(found)) == rows
    assert (1,) in found
    over = exact("SELECT count(*) FROM dp_synthesize('t', \"rows\" := 70000, rho := .1, fresh := true)")
    assert over == [({256: 256}.get(rows, 65_536),)]


@pytest.mark.parametrize(
    ("one", "other", "rows"),
    [("TINYINT", "UTINYINT", 65_536), ("TINYINT", "INTEGER", 70_000), ("VARCHAR", "TINYINT", 70_000)],
)
def test_keys_of_two_narrow_columns_differ_in_one(exact: Loaded, one: str, other: str, rows: int) -> None:
    exact(
        f"CREATE TABLE t (a {one}, b {other}, c INTEGER, PRIMARY KEY (a, b)); CALL dp_protect('t', rho := 1); CALL dp_attributes('t', {{'c': [0, 1]}})"
    )
    ((found, whole),) = exact(
        "SELECT count(*), count(DISTINCT (a, b)) FROM dp_synthesize('t', \"rows\" := 70000, rho := .1)"
    )
    assert found == whole == rows


def test_links_called_by_hand_number_siblings_too(exact: Loaded) -> None:
    exact(
        STAYS.format(
            type="TINYINT",
            more="pl TINYINT REFERENCES sites (pl),",
            held="0,",
            key="PRIMARY KEY (id, pl, seq)",
            declared="",
        )
    )
    exact("CREATE TABLE p AS FROM dp_synthesize('persons', key := 'id', rho := 1e4)")
    ((rows, whole, most),) = exact(
        "SELECT count(*), count(DISTINCT (id, pl, seq)), max(seq) FROM dp_links('stays', synthetic := {'persons': 'p', 'sites': 'sites'}, rho := 1e4)"
    )
    assert 560 <= rows == whole
    assert most <= 8


@pytest.mark.parametrize("argument", ["tables", "shares", "max_rows"])
@pytest.mark.parametrize("name", ["stay", "sites", "it's"])
def test_a_table_that_is_not_made_is_named(exact: Loaded, argument: str, name: str) -> None:
    exact(STAYS.format(type="TINYINT", more="", held="", key="PRIMARY KEY (id, seq)", declared=""))
    text = "'" + name.replace("'", "''") + "'"
    call = MADE.format(f"['stays', {text}]" if argument == "tables" else NAMES)
    said = exact.refused(call if argument == "tables" else f"{call[:-1]}, {argument} := {{{text}: 2}})")
    assert f"{argument} names {text}" in said
    if name == "sites" and argument == "tables":
        assert "which is public" in said
    else:
        assert "'stays'" in said


WEAK = """
CREATE TABLE persons (pid INTEGER PRIMARY KEY, sex INTEGER);
CREATE TABLE admissions (adm INTEGER PRIMARY KEY, pid INTEGER NOT NULL REFERENCES persons (pid), kind INTEGER);
CREATE TABLE diagnoses ({up} INTEGER REFERENCES {parent} ({up}), seq INTEGER, code INTEGER, {key});
INSERT INTO persons SELECT i, i % 2 FROM range(400) r(i);
INSERT INTO admissions SELECT row_number() OVER (), i, (i + n) % 3 FROM range(400) r(i), range(3) s(n) WHERE n <= i % 3;
INSERT INTO diagnoses SELECT {up}, n + 1, (11 * {up} + 5 * n) % 12 FROM {parent}, range(8) s(n) WHERE n <= {up} * 7 % 8;
CALL dp_protect(['persons', 'admissions', 'diagnoses'], unit := 'persons.pid', epsilon := 100, delta := 1e-9,
    max_rows := {{'admissions': 3, 'diagnoses': 24}});
CALL dp_attributes('persons', {{'sex': [0, 1]}}); CALL dp_attributes('admissions', {{'kind': [0, 1, 2]}});
CALL dp_attribute('diagnoses', 'code', low := 0, high := 11); CALL dp_attribute('diagnoses', 'seq', low := 1, high := 8);
"""
KEYS = {
    "seq": "PRIMARY KEY ({up}, seq)",
    "two keys": "UNIQUE ({up}, code), PRIMARY KEY ({up}, seq)",
    "two columns": "PRIMARY KEY ({up}, code, seq)",
}


@pytest.mark.some(2)
@pytest.mark.parametrize("key", list(KEYS))
@pytest.mark.parametrize(("parent", "up"), [("admissions", "adm"), ("persons", "pid")])
def test_no_parent_has_more_rows_than_their_keys_have_values(db: Loaded, parent: str, up: str, key: str) -> None:
    """Eight numbers make at most eight diagnoses of one admission, and of a person's 24 that count no more; noise made more of them."""
    db(WEAK.format(parent=parent, up=up, key=KEYS[key].format(up=up)))
    steps = db(MADE.format(["persons", "admissions", "diagnoses"]).replace("rho := 1e4", "epsilon := 0.5"))
    made = [step for step in steps if step[1] == "diagnoses"]
    drawn, linked = (step[7] for step in made)
    most = {"two columns": 24}.get(key, 8)
    ((parents,),) = db(f"SELECT count(*) FROM syn.{parent}")
    assert linked == min(drawn, most * parents) > 500  # as many with a parent as were drawn, or as have room
    assert ("rows left out" in str(made)) == (linked < drawn)
    assert f"{most} of its links" in made[1][-1] or f"'{parent}' above {most} are not counted" in made[1][-1]
    ((whole, least, highest),) = db(f"SELECT count(DISTINCT ({up}, code, seq)), min(seq), max(seq) FROM syn.diagnoses")
    assert (whole, least >= 1, highest <= 8) == (linked, True, True)
    ((children,),) = db(f"SELECT max(n) FROM (SELECT count(*) AS n FROM syn.diagnoses GROUP BY {up})")
    assert children <= most


ATTRIBUTES = {
    "seq": Attribute(name="seq", type="INTEGER", kind="integers", points=(1, 8)),
    "day": Attribute(name="day", type="DATE", kind="bins", points=("2020-02-27", "2020-03-02")),
    "more": Attribute(name="more", type="VARCHAR", kind="values", points=("a", "b"), other=True),
    "null": Attribute(name="null", type="INTEGER", kind="integers", points=(1, 8), nulls=True),
    "real": Attribute(name="real", type="DOUBLE", kind="bins", points=(0, 1, 2)),
}


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        (["up seq"], 8),
        (["up day"], 5),
        (["up seq", "up day"], 5),
        (["up seq day"], 40),
        (["up more"], None),
        (["up null"], None),
        (["up seq null"], None),
        (["up seq real"], None),
        (["up seq more", "up day"], 5),
        (["other seq"], None),
        (["up other seq"], None),
        ([], None),
    ],
)
def test_how_many_rows_of_a_parent_a_constraint_allows(keys: list[str], most: int | None) -> None:
    found = [tuple(key.split()) for key in keys]
    siblings = [
        SiblingKey(column=key[-1], type=ATTRIBUTES[key[-1]].type, among=key[:-1], attribute=ATTRIBUTES[key[-1]])
        for key in found
    ]
    table = Table(name=("", "", "t"), columns={}, keys=tuple(found))
    assert room(table, siblings, ATTRIBUTES, ("up",)) == most
    assert room(replace(table, keys=()), siblings, ATTRIBUTES, ("up",)) is None  # which is only believed
