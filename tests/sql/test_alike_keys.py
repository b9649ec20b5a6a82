"""What a column has in common with the public rows that another column refers to is kept, where each single key drowns in noise."""

from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.request import Request
from duckdb_dp.sql import alike_keys, dp_synthesize
from tests.conftest import Loaded

FIELDS = "['heart', 'eyes', 'skin', 'bones', 'brain', 'teeth']"
KEYS = {
    "INTEGER": "i",
    "VARCHAR": "'D' || i",
    "UUID": "('00000000-0000-0000-0000-' || lpad(i::VARCHAR, 12, '0'))::UUID",
    "DATE": "DATE '2020-01-01' + i::INTEGER",
}
DOCTORS = """
CREATE TABLE doctors AS SELECT ({key})::{type} AS doctor_id, ({fields})[1 + (i * 7 % 100) % 6] AS field, 20 + i * 13 % 45 AS age,
    i * 31 % 3 = 0 AS senior, 'Dr ' || i AS name FROM range(240) t(i);
CREATE TABLE wards AS SELECT i AS ward, 'W' || i AS label FROM range(5) t(i);
ALTER TABLE doctors ADD PRIMARY KEY (doctor_id);
CREATE TABLE stays (patient INTEGER, doctor {type} {null} REFERENCES doctors (doctor_id), ward INTEGER, cost INTEGER, night BOOLEAN);
INSERT INTO stays SELECT i, CASE WHEN i % 20 = 0 AND {nulls} THEN NULL ELSE doctor_id END, i % 5,
    CASE WHEN i % 20 = 0 AND {nulls} THEN i % 24 ELSE 4 * list_position({fields}, field) - 1 - i % 4 END, age > 45 AND i % 10 > 0
    FROM range(6000) s(i) JOIN (SELECT *, row_number() OVER (ORDER BY doctor_id) - 1 AS n FROM doctors) d ON d.n = (i * i * 17 + i % 7) % 240;
CALL dp_public('doctors'); CALL dp_public('wards');
CALL dp_protect('stays', epsilon := 100, delta := 1e-6);
CALL dp_attribute('stays', 'cost', low := 0, high := 23); CALL dp_attribute('stays', 'night');
"""
SHARED = (
    "SELECT corr(cost, list_position({fields}, field)), corr(night::INTEGER, (age > 45)::INTEGER), count(*) FROM {schema}.stays "
    "JOIN doctors ON doctor = doctor_id"
)


def opened(exact: Loaded, type_: str = "INTEGER", *, nulls: bool = False, seed: int = 3) -> Loaded:
    """The stays of a hospital in a session of its own with seeded noise; doctors are public."""
    connection = duckdb.connect()
    duckdb_dp.testing.load(connection, exact.folder.with_name(f"{type_}{nulls}{seed}.dp"), seed=seed)
    loaded = Loaded(connection, exact.folder.with_name(f"{type_}{nulls}{seed}.dp"))
    loaded(
        DOCTORS.format(
            key=KEYS[type_], type=type_, fields=FIELDS, nulls=str(nulls).lower(), null="" if nulls else "NOT NULL"
        )
    )
    return loaded


@pytest.fixture
def stays(exact: Loaded) -> Iterator[Loaded]:
    loaded = opened(exact)
    yield loaded
    loaded.connection.close()


DECLARED = "CALL dp_attribute('stays', 'doctor', \"values\" := {keys}, nulls := {nulls})"


@pytest.mark.slow
@pytest.mark.some(3)
@pytest.mark.parametrize("declared", [False, True], ids=["keys", "declared"])
@pytest.mark.parametrize("nulls", [False, True], ids=["", "nulls"])
@pytest.mark.parametrize("type_", KEYS)
def test_rows_keep_what_they_share_with_public_rows(exact: Loaded, type_: str, nulls: bool, declared: bool) -> None:
    """Costs by the doctors' fields, and nights by their age: both, though each doctor has 25 stays, under noise of ten or so."""
    loaded = opened(exact, type_, nulls=nulls)
    if declared:
        keys = [
            str(key) if type_ != "INTEGER" else key for (key,) in loaded("SELECT doctor_id FROM doctors ORDER BY ALL")
        ]
        loaded(DECLARED.format(keys=keys, nulls=str(nulls).lower()))
    loaded("CALL dp_synthesize_database('main', target := 'syn', epsilon := 1.5)")
    ((cost, night, rows),) = loaded(SHARED.format(fields=FIELDS, schema="main"))
    ((made_cost, made_night, made),) = loaded(SHARED.format(fields=FIELDS, schema="syn"))
    assert made == pytest.approx(rows, rel=0.05)
    assert made_cost > 0.7 * cost
    assert made_night > 0.6 * night
    # They stay keys of the public table.
    ((strange, missing),) = loaded(
        "SELECT count(*) FILTER (doctor NOT IN (SELECT doctor_id FROM doctors)), avg((doctor IS NULL)::INTEGER) FROM syn.stays"
    )
    assert strange == 0
    assert missing == pytest.approx(0.05 if nulls else 0.0, abs=0.02)
    loaded.connection.close()


SYNTHESIZE = "SELECT * FROM dp_synthesize('stays', epsilon := 1) ORDER BY ALL"


def with_doctors(loaded: Loaded) -> None:
    loaded("CALL dp_attribute('stays', 'doctor', low := 0, high := 239)")


OTHERWISE = {
    "values": "UPDATE doctors SET age = age + 1, field = 'feet' WHERE senior",
    "all alike": "UPDATE doctors SET age = 1, field = 'feet', senior = true, name = 'x'",
    "columns": "DROP TABLE stays_; ALTER TABLE doctors DROP COLUMN field",
    "gone": "DROP TABLE stays; DROP TABLE doctors; CREATE TABLE stays AS FROM stays_",
}


@pytest.mark.parametrize("named", ["", ", release := 'mine'"])
@pytest.mark.parametrize("change", OTHERWISE)
def test_other_public_rows_ask_nothing_new(stays: Loaded, change: str, named: str) -> None:
    with_doctors(stays)
    stays("CREATE TABLE stays_ AS FROM stays")
    asked = SYNTHESIZE.replace("epsilon := 1", f"epsilon := 1{named}")
    rows, charges = stays(asked), stays.charges()
    for statement in OTHERWISE[change].split("; "):
        try:
            stays(statement)
        except duckdb.Error:  # a table that others refer to is not altered by every version
            return
    assert stays(asked) == rows
    assert stays.charges() == charges


def test_a_view_that_reads_protected_rows_tells_no_keys_alike(stays: Loaded) -> None:
    """Nor one that has taken the name of a public table: as for joins, it is refused before a charge."""
    with_doctors(stays)
    stays(
        "CREATE TABLE secret AS SELECT doctor_id, doctor_id * 7 % 5 AS ill FROM doctors; CALL dp_protect('secret', epsilon := 1, delta := 1e-9)"
    )
    stays("CREATE TABLE rows AS FROM stays; DROP TABLE stays; DROP TABLE doctors; CREATE TABLE stays AS FROM rows")
    stays(
        "CREATE VIEW doctors AS SELECT doctor_id, ill FROM secret; CALL dp_link('stays', \"references\" := {'doctor': 'doctors.doctor_id'})"
    )
    for asked in (SYNTHESIZE, "CALL dp_explain('stays', {'synthesize': 'all'}, epsilon := 1)"):
        assert "'doctors' may be read from 'secret', which is protected" in stays.refused(asked)


@pytest.mark.slow
def test_rows_from_before_are_paid_for(stays: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    with_doctors(stays)
    with monkeypatch.context() as patch:
        patch.setattr(dp_synthesize, "with_alike", lambda _session, _dataset, request: request)
        rows = stays(SYNTHESIZE)
    charges = stays.charges()
    assert stays(SYNTHESIZE) == rows
    assert stays.charges() == charges
    assert stays(SYNTHESIZE.replace("epsilon := 1", "epsilon := 1, fresh := true")) != rows
    assert stays.charges() == charges + 1


def asked(loaded: Loaded) -> dict[str, list[tuple[str, ...]]]:
    """Of each column the ways in which its keys are alike, as the newest request says."""
    request = Request.from_json(loaded.charged()[-1]["request"])
    return {name: [tuple(way) for way in columns] for name, _, columns, _ in dict(request.options).get("alike", ())}


def test_columns_that_tell_keys_apart_are_taken_and_others_are_not(stays: Loaded) -> None:
    """A name that each doctor has alone says what the key says; and no wards are told alike by theirs."""
    with_doctors(stays)
    stays("CALL dp_attribute('stays', 'ward', low := 0, high := 4)")
    stays(SYNTHESIZE)
    (ways,) = asked(stays).values()
    assert {way for way in ways if len(way) == 1} == {("field",), ("age",), ("senior",)}
    assert "name" not in str(ways)
    note = str(stays("CALL dp_explain('stays', {'synthesize': 'all'}, epsilon := 1)")[0][-1])
    assert "doctor by " in note
    assert "of 'doctors'" in note


def test_what_is_private_tells_no_keys_alike(exact: Loaded) -> None:
    loaded = opened(exact, seed=4)
    with_doctors(loaded)
    loaded("CREATE TABLE nurses AS FROM doctors; ALTER TABLE nurses ADD PRIMARY KEY (doctor_id)")
    loaded("CREATE TABLE shifts (nurse INTEGER REFERENCES nurses (doctor_id), hour INTEGER)")
    loaded("INSERT INTO shifts SELECT doctor_id, doctor_id % 24 FROM nurses")
    loaded(
        "CALL dp_protect('nurses', epsilon := 10, delta := 1e-6); CALL dp_protect('shifts', epsilon := 10, delta := 1e-6)"
    )
    loaded(
        "CALL dp_attribute('shifts', 'nurse', low := 0, high := 239); CALL dp_attribute('shifts', 'hour', low := 0, high := 23)"
    )
    loaded("SELECT * FROM dp_synthesize('shifts', epsilon := 1)")
    assert asked(loaded) == {}
    loaded.connection.close()


PUBLIC = {
    "BOOLEAN": "i % 2 = 0", "TINYINT": "i % 50", "INTEGER": "i // 3", "BIGINT": "i % 7", "UBIGINT": "i // 2", "HUGEINT": "i // 3",
    "FLOAT": "i / 7", "DOUBLE": "CASE WHEN i % 9 = 0 THEN 'nan' WHEN i % 9 = 1 THEN 'inf' ELSE (i / 7)::VARCHAR END",
    "DECIMAL(18,6)": "i / 7", "VARCHAR": "'v' || i % 5", "DATE": "CASE WHEN i % 9 = 0 THEN 'infinity' ELSE (DATE '2020-01-01' + i::INTEGER)::VARCHAR END",
    "TIME": "TIME '00:00:00' + INTERVAL 1 MINUTE * i", "TIMESTAMP": "TIMESTAMP '2020-01-01 10:00:00' + INTERVAL 1 HOUR * i",
    "UUID": "('00000000-0000-0000-0000-' || lpad((i % 4)::VARCHAR, 12, '0'))", "ENUM('a', 'b')": "['a', 'b'][1 + i % 2]",
    "INTEGER[]": "[i]", "STRUCT(a INTEGER)": "{'a': i % 3}", "BLOB": "'x'", "INTERVAL": "INTERVAL 1 DAY * (i % 3)",
}  # fmt: skip


@pytest.mark.parametrize("name", ["c", "v", "C", "v0", "turn", "d", "p", "_dp_hash", 'a "b"'])
def test_public_columns_of_any_name(exact: Loaded, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    exact(
        f"CREATE TABLE parts AS SELECT i AS part, i % 4 AS {quoted} FROM range(90) t(i); ALTER TABLE parts ADD PRIMARY KEY (part)"
    )
    exact("CREATE TABLE used (part INTEGER, n INTEGER); INSERT INTO used SELECT i % 90, i % 4 FROM range(500) t(i)")
    exact("CALL dp_public('parts'); CALL dp_link('used', \"references\" := {'part': 'parts.part'})")
    exact("CALL dp_protect('used', rho := 10); CALL dp_attribute('used', 'part', low := 0, high := 89)")
    exact("CALL dp_attribute('used', 'n', low := 0, high := 3); FROM dp_synthesize('used', rho := 1)")
    assert asked(exact) == {"part": [(name,)]}


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("type_", PUBLIC)
def test_public_columns_of_each_type(exact: Loaded, type_: str, nulls: bool) -> None:
    """Groups are few, begin at 0, hold equal values together, and keys without a row are in one of their own."""
    value = f"CASE WHEN i % 10 = 0 AND {nulls} THEN NULL ELSE ({PUBLIC[type_]})::{type_} END"
    exact(
        f"CREATE TABLE parts AS SELECT i AS part, {value} AS x FROM range(90) t(i); ALTER TABLE parts ADD PRIMARY KEY (part)"
    )
    exact("CREATE TABLE used (part INTEGER, n INTEGER); INSERT INTO used SELECT i % 90, i % 4 FROM range(500) t(i)")
    exact("CALL dp_public('parts'); CALL dp_link('used', \"references\" := {'part': 'parts.part'})")
    exact("CALL dp_protect('used', rho := 10); CALL dp_attribute('used', 'part', low := 0, high := 99, nulls := true)")
    exact("CALL dp_attribute('used', 'n', low := 0, high := 3); FROM dp_synthesize('used', rho := 1)")
    options = dict(Request.from_json(exact.charged()[-1]["request"]).options)
    if type_ in ("INTEGER[]", "STRUCT(a INTEGER)", "BLOB", "INTERVAL"):
        assert "alike" not in options
        return
    ((name, table, columns, (groups,)),) = options["alike"]
    assert (name, table[2], columns) == ("part", "parts", [["x"]])
    known, strange = groups[:90], groups[90:]
    assert len(set(strange)) == 1
    assert not {*strange} & {*known}
    assert {*groups} == {*range(max(groups) + 1)}
    assert len({*known}) <= alike_keys.MOST + 1
    same = exact("SELECT list(part ORDER BY part) FROM parts GROUP BY x")
    assert all(len({known[part] for part in parts}) == 1 for (parts,) in same)
