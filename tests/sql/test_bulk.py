"""Declaring many columns in one statement: shapes, files, all or nothing, and nothing from the rows."""

import json
import tomllib
from pathlib import Path

import pytest

COLUMNS = (
    'age INTEGER, sex VARCHAR, "net pay" DOUBLE, price DECIMAL(8,2), day DATE, moment TIMESTAMP, hour TIME, paid BOOLEAN NOT NULL, '
    "code INTEGER, mood ENUM('sad', 'ok'), rating INTEGER CHECK (rating BETWEEN 1 AND 5), parts INTEGER[]"
)
ONE_BY_ONE = {
    "age": ("[0, 18, 65]", "bins := [0, 18, 65]"),
    "sex": ("['f', 'm', NULL]", "\"values\" := ['f', 'm'], nulls := true"),
    "net pay": ("{'low': 0, 'high': 1000, 'step': 'auto'}", "low := 0, high := 1000, step := 20"),
    "price": (
        "{'low': 0, 'high': 9.5, 'step': 0.5, 'nulls': 'auto'}",
        "low := 0, high := 9.5, step := 0.5, nulls := true",
    ),
    "day": (
        "{'low': DATE '2020-01-01', 'high': DATE '2021-01-01', 'step': INTERVAL 1 MONTH}",
        "low := DATE '2020-01-01', high := DATE '2021-01-01', step := INTERVAL 1 MONTH",
    ),
    "moment": ("['2020-01-01', '2021-06-01']", "bins := ['2020-01-01', '2021-06-01']"),
    "hour": ("[TIME '08:00:00', TIME '18:30:00']", "bins := [TIME '08:00:00', TIME '18:30:00']"),
    "paid": ("[true]", '"values" := [true]'),
    "code": ("[1, 2, 3]", '"values" := [1, 2, 3]'),
    "mood": ("true", "nulls := true"),
    "rating": ("{'values': [1, 5], 'other': true}", '"values" := [1, 5], other := true'),
}
DOMAIN = "FROM dp_domain('{}') ORDER BY ALL"


@pytest.fixture
def t(exact):
    exact(f"CREATE TABLE t ({COLUMNS}); CREATE TABLE u ({COLUMNS})")
    exact("CALL dp_protect('t', mu := 1); CALL dp_protect('u', mu := 1)")
    return exact


@pytest.mark.parametrize("kind", ["struct", "map"])
def test_one_statement_declares_what_many_do(t, kind: str) -> None:
    if kind == "struct":
        shapes = ", ".join(f'"{name}": {shape}' for name, (shape, _) in ONE_BY_ONE.items())
        rows = t(f"CALL dp_attributes('t', {{{shapes}}})")
        assert [row[0] for row in rows] == [*ONE_BY_ONE, "parts"]
        assert [row[3] for row in rows[:2]] == ["[0, 18), [18, 65]", "f, m, NULL"]
    else:
        for name, (shape, _) in ONE_BY_ONE.items():
            t(f"CALL dp_attributes('t', MAP {{'{name.upper()}': {shape}}})")
    for name, (_, words) in ONE_BY_ONE.items():
        t(f"CALL dp_attribute('u', '{name}', {words})")
    assert t(DOMAIN.format("t")) == t(DOMAIN.format("u"))


NUMERIC = [
    "TINYINT",
    "UINTEGER",
    "BIGINT",
    "HUGEINT",
    "DECIMAL(5,0)",
    "DECIMAL(8,2)",
    "DECIMAL(38,4)",
    "FLOAT",
    "DOUBLE",
]
LISTS = [
    ("[0, 1, 2, 3]", '"values" := [0, 1, 2, 3]'),
    ("[0.0, 1.0, 2.0, 3.0]", '"values" := [0, 1, 2, 3]'),
    ("[5]", '"values" := [5]'),
    ("range(2, 6)", '"values" := [2, 3, 4, 5]'),
    ("[NULL, 1, 2]", '"values" := [1, 2], nulls := true'),
    ("{'bins': [0, 1, 2]}", "bins := [0, 1, 2]"),
    ("[0, 2, 3]", "bins := [0, 2, 3]"),
    ("[0, 10, 20, NULL]", "bins := [0, 10, 20], nulls := true"),
]


@pytest.mark.parametrize("type_", NUMERIC)
def test_consecutive_whole_numbers_are_values_of_every_numeric_type(exact, tmp_path: Path, type_: str) -> None:
    """Written as whole numbers or as fractions, in a STRUCT, a MAP with fractions of another column, or a file."""
    for table in "ab":
        exact(f"CREATE TABLE {table} (x {type_}, y DOUBLE); CALL dp_protect('{table}', mu := 1)")
    for shape, words in LISTS:
        ways = [f"{{'x': {shape}}}"]
        if words.startswith('"values"'):
            ways.append(f"MAP {{'x': {shape}, 'y': [0, 0.5]}}")
        if shape.startswith("[") and "NULL" not in shape:
            (tmp_path / "domain.toml").write_text(f"x = {shape}\n")
            ways.append(f"'{tmp_path}/domain.toml'")
        exact(f"CALL dp_attribute('b', 'x', {words})")
        for way in ways:
            exact(f"CALL dp_attributes('a', {way})")
            domains = [exact(f"FROM dp_domain('{table}') WHERE attribute = 'x' ORDER BY ALL") for table in "ab"]
            assert domains[0] == domains[1], way


def test_what_the_statement_leaves_out_keeps_its_declaration(t) -> None:
    t("CALL dp_attribute('t', 'age', low := 0, high := 5)")
    rows = {name: cells for name, _, cells, *_ in t("CALL dp_attributes('t', {'sex': ['f'], 'paid': [true]})")}
    assert (rows["age"], rows["sex"], rows["paid"], rows["rating"], rows["code"]) == (6, 1, 1, 6, None)
    t("CALL dp_attributes('t', {'AGE': [0, 10, 20]})")  # again, as dp_attribute does
    assert t("SELECT count(*) FROM dp_domain('t') WHERE attribute = 'age'") == [(2,)]


REFUSED = [
    ("{'sex': ['f'], 'agee': [1, 2]}", "'t' has no column 'agee'"),
    ("{'sex': ['f'], 'age': 5}", "attribute 'age' is given 5"),
    ("{'sex': ['f'], 'age': NULL}", "attribute 'age' is given NULL"),
    ("{'sex': ['f'], 'age': NULL}", "To take a declaration back: CALL dp_attribute(..., 'age', remove := true)"),
    ("{'sex': ['f'], 'age': ['x', 'y']}", "attribute 'age' has type INTEGER, which 'x' does not fit"),
    ("{'sex': ['f'], 'age': [[1]]}", "attribute 'age' has [1] among its bins"),
    ("{'sex': ['f'], 'age': []}", "attribute 'age' was declared without values"),
    ("{'sex': ['f'], 'age': {'bin': [1, 2]}}", "attribute 'age' has the word 'bin'; there are values, bins,"),
    ("{'sex': ['f'], 'age': {'low': 0, 'high': 9, 'values': [1]}}", "attribute 'age' was declared by values and by low/high"),
    ("{'sex': ['f'], 'age': {'low': 0}}", "attribute 'age' lacks high"),
    ("{'sex': ['f'], 'age': {'low': 9, 'high': 0, 'step': 'auto'}}", "attribute 'age' was declared with low above high"),
    ("{'sex': ['f'], 'age': {'bins': 5}}", "attribute 'age' has bins 5; write a list"),
    ("{'sex': ['f'], 'age': {'values': [1], 'other': 'no'}}", "attribute 'age' has other 'no'; it is true or false"),
    ("{'sex': ['f'], 'age': true}", "attribute 'age' has type INTEGER, which does not list its values"),
    ("{'sex': ['f'], 'parts': [1]}", "attribute 'parts' has type INTEGER[], which is not supported"),
    ("{'sex': ['f'], 'price': {'low': 0, 'high': 5}}", "attribute 'price' has type DECIMAL(8,2); give a step"),
    ("5", "the domain is 5; give columns with their domains"),
    ("['age']", "the domain is ['age']; give columns"),
    ("'domain.yaml'", "'domain.yaml' is no file that says which values columns may take: a file is .toml, .json or .csv"),
    ("'gone.toml'", "'gone.toml' cannot be read: No such file or directory"),
]  # fmt: skip


@pytest.mark.some(3)
@pytest.mark.parametrize(("domain", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_one_bad_column_and_nothing_is_declared(shared, domain: str, says: str) -> None:
    shared(f"CREATE TABLE IF NOT EXISTS t ({COLUMNS})")
    shared("CALL dp_protect('t', mu := 1)")
    line = shared.refused(f"CALL dp_attributes('t', {domain})")
    assert line.startswith("Invalid Input Error: dp_attributes: ")
    assert says in line
    assert shared("FROM dp_domain('t')") == []


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_what_is_saved_declares_the_same(t, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"domain.{suffix}"
    shapes = ", ".join(f'"{name}": {shape}' for name, (shape, _) in ONE_BY_ONE.items())
    t('ALTER TABLE t ADD COLUMN "od\'d ""=[x]\nö" VARCHAR; ALTER TABLE u ADD COLUMN "od\'d ""=[x]\nö" VARCHAR')
    t(f"CALL dp_attributes('t', {{{shapes}, \"od'd \"\"=[x]\nö\": ['\"', '\\', '\x7f\t#', 'other']}})")
    t(f"CALL dp_attributes('t', save := '{file}')")
    t(f"CALL dp_attributes('t', save := '{file}')")  # the same again
    t(f"CALL dp_attributes('u', '{file}')")
    assert t(DOMAIN.format("u")) == t(DOMAIN.format("t"))
    assert ("parts" in file.read_text()) == (suffix == "toml")  # a comment
    t(
        f"ALTER TABLE t ADD COLUMN note VARCHAR; CALL dp_attributes('t', {{'note': ['x']}}, save := '{file}')"
    )  # the same and more
    assert '"note"' in file.read_text()
    t("CALL dp_attribute('t', 'sex', \"values\" := ['x'])")
    assert "exists and says something else" in t.refused(f"CALL dp_attributes('t', save := '{file}')")
    assert "is no name for a domain" in t.refused(f"CALL dp_attributes('t', save := '{tmp_path}/domain.duckdb')")
    line = t.refused(f"CALL dp_attributes('t', {{'sex': ['late']}}, save := '{tmp_path}/no/domain.toml')")
    assert "cannot be written" in line
    assert t("SELECT label FROM dp_domain('t') WHERE attribute = 'sex'") == [("x",)]


def test_what_is_missing_in_a_saved_file_can_be_filled_in(t, tmp_path: Path) -> None:
    file = tmp_path / "domain.toml"
    t(f"CALL dp_attributes('t', {{'age': [0, 18]}}, save := '{file}')")
    text = file.read_text()
    assert f"CALL dp_attributes('t', '{file}');" in text
    lines = text.split("# Not declared")[1].splitlines()[1:]
    assert '# ["sex"]  # VARCHAR' in lines
    found = tomllib.loads("\n".join(line.removeprefix("# ").replace("...", "1") for line in lines))
    assert found["sex"] == {"values": [1]}
    assert found["net pay"] == {"low": 1, "high": 1, "step": 1}
    assert found["day"] == {"bins": [1]}


def test_what_was_just_declared_stands_first(t) -> None:
    everything = [row[0] for row in t("CALL dp_attributes('t')")]
    found = [row[0] for row in t("CALL dp_attributes('t', {'sex': ['f', 'm']})")]
    assert found == ["sex", *(name for name in everything if name != "sex")]


def test_a_domain_of_the_column_that_names_the_unit_says_so(exact) -> None:
    exact("CREATE TABLE v (person INTEGER, x INTEGER)")
    exact("CALL dp_protect('v', unit := 'person', max_rows := 1, mu := 1)")
    assert [row[0] for row in exact("CALL dp_attributes('v')")] == ["x"]
    ((name, *_, call), _) = exact("CALL dp_attributes('v', {'person': [1, 2, 3]})")
    assert name == "person"
    assert "names the unit" in call


def test_like_columns_are_proposed_first(t) -> None:
    t("ALTER TABLE t ADD COLUMN a_score_of_today INTEGER")
    assert "its columns are: a_score_of_today, " in t.refused("CALL dp_attributes('t', {'a_score_of_tody': [1]})")


def test_a_plain_toml_with_dates(t, tmp_path: Path) -> None:
    file = tmp_path / "d.TOML"
    file.write_text('age = [0, 18]\nday = [2020-01-01, 2020-02-01]\n[code]\nvalues = [1, 9]\nnulls = "auto"\n')
    t(f"CALL dp_attributes('t', '{file}')")
    assert t("SELECT label FROM dp_domain('t') WHERE attribute IN ('day', 'age', 'code') ORDER BY ALL") == [
        ("1",), ("9",), ("[0, 18]",), ("[2020-01-01, 2020-02-01]",), (None,),
    ]  # fmt: skip


def test_files_of_other_tools(t, tmp_path: Path) -> None:
    fields = [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120, "required": True}},
        {"name": "net pay", "type": "number", "constraints": {"minimum": 0, "maximum": 1e6}},
        {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"]}},
        {"name": "code", "categories": [{"value": 1, "label": "one"}, {"value": 4, "label": "four"}]},
        {"name": "day", "type": "date", "constraints": {"minimum": "2000-01-01", "maximum": "2024-12-31"}},
        {"name": "paid", "type": "boolean"},
        {"name": "gone", "type": "string"},
    ]
    package = {"resources": [{"name": "other", "schema": {"fields": []}}, {"name": "T", "schema": {"fields": fields}}]}
    for name, content in (("schema.json", {"fields": fields}), ("package.json", package)):
        (tmp_path / name).write_text(json.dumps(content))
        found = {row[0]: row[2] for row in t(f"CALL dp_attributes('t', '{tmp_path}/{name}')")}
        assert [found[each] for each in ("age", "net pay", "sex", "code", "day", "paid")] == [121, 51, 3, 3, 26, 2]
    columns = {
        "age": {"sdtype": "numerical"}, "sex": {"sdtype": "categorical"}, "mood": {"sdtype": "categorical"},
        "code": {"sdtype": "id"}, "paid": {"sdtype": "boolean"}, "rating": {"sdtype": "categorical"},
    }  # fmt: skip
    bounds = {"column_name": "age", "low_value": 0, "high_value": 20, "strict_boundaries": False}
    single = {"columns": columns, "constraints": [{"constraint_class": "ScalarRange", "constraint_parameters": bounds}]}
    for name, content in (("one.json", single), ("all.json", {"tables": {"x": {"columns": {}}, "u": single}})):
        (tmp_path / name).write_text(json.dumps(content))
        rows = {row[0]: row for row in t(f"CALL dp_attributes('u', '{tmp_path}/{name}')")}
        assert [rows[each][2] for each in ("age", "mood", "paid", "rating")] == [22, 3, 2, 6]
        assert rows["code"][4] == "-- an identifier, as the file says: it needs no domain"
        assert rows["sex"][4] == "CALL dp_attribute('u', 'sex', \"values\" := [...])"
    older = {name: {"type": "id" if name == "code" else each["sdtype"]} for name, each in columns.items()}
    constraint = [{"constraint": "sdv.constraints.Between", "column": "age", "low": 0, "high": 20}]
    for name, content in (
        ("older.json", {"primary_key": "code", "fields": older, "constraints": constraint}),
        ("older_all.json", {"tables": {"x": {"fields": {}}, "u": {"primary_key": "code", "fields": older}}}),
    ):
        (tmp_path / name).write_text(json.dumps(content))
        rows = {row[0]: row for row in t(f"CALL dp_attributes('u', '{tmp_path}/{name}')")}
        assert [rows[each][2] for each in ("mood", "paid", "rating")] == [3, 2, 6]
        assert rows["code"][4] == "-- an identifier, as the file says: it needs no domain"
        assert rows["sex"][4] == "CALL dp_attribute('u', 'sex', \"values\" := [...])"
    line = t.refused(f"CALL dp_attributes('t', '{tmp_path}/all.json')")
    assert "describes 2 tables, and none is called 't'" in line


@pytest.mark.some(1)
@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
def test_a_data_dictionary(t, tmp_path: Path, delimiter: str) -> None:
    lines = [("Column", "Value", "Label"), ("sex", "f", 'she said "f"'), ("sex", "m", "male"), ("sex", "", "not asked"),
             ("code", "01", "x"), ("code", "99", "y"), ("paid", "true", ""), ("net pay", "0.5", ""), ("age", "", "in years")]  # fmt: skip
    quoted = "\r\n".join(delimiter.join('"' + part.replace('"', '""') + '"' for part in line) for line in lines)
    (tmp_path / "d.csv").write_text("\ufeff" + quoted)
    found = {row[0]: row[3] for row in t(f"CALL dp_attributes('t', '{tmp_path}/d.csv')")}
    assert [found[each] for each in ("sex", "code", "paid", "net pay", "age")] == [
        "f, m, NULL",
        "1, 99",
        "true",
        "0.5",
        None,
    ]


SECRET = "Ada Lovelace"
WRONG = [
    (
        "p.csv",
        f"name,diagnosis\n{SECRET},flu\n",
        "is no data dictionary: its first line names no columns column and value",
    ),
    ("p.csv", f"{SECRET}\n", "is no data dictionary"),
    ("p.csv", "", "is no data dictionary"),
    ("p.json", f'[{{"name": "{SECRET}"}}]', "is no declaration: it holds no object"),
    ("p.json", f'{{"{SECRET}": [1, 2]}}', "describes no column of 't'; its columns are: age, sex,"),
    ("p.json", f'{{"age": [1, 2], "{SECRET}" [3]}}', "is no JSON: look at line 1"),
    ("p.json", '{"age": [1, 2], "age": [3]}', "has a name twice in one object"),
    ("p.json", "[" * 100_000, "deeply"),
    ("p.json", f'{{"age": "{SECRET}"}}', "entry 1 of"),
    (
        "p.json",
        f'{{"sex": ["f"], "age": [1, "{SECRET}"]}}',
        "'age', gives no domain of type INTEGER; written in the statement it is told",
    ),
    ("p.json", f'{{"sex": ["f"], "age": {{"{SECRET}": 1}}}}', "entry 2 of"),
    ("p.json", f'{{"day": ["2025-01-01", "{SECRET}"]}}', "'day', gives no domain of type DATE"),
    ("p.json", f'{{"sex": ["f"], "{SECRET}": 1}}', "names no column of 't'; its columns are: age,"),
    ("p.json", f'{{"sex": [["{SECRET}"]]}}', "gives no domain"),
    ("p.json", f'{{"sex": {{"values": ["f"], "other": "{SECRET}"}}}}', "gives no domain"),
    ("p.json", f'{{"age": {{"low": 0, "high": 9, "step": "{SECRET}"}}}}', "gives no domain"),
    ("p.json", '{"age": [1, 2], "AGE": [3]}', "names 'age' a second time"),
    ("p.toml", f"sex = ['f']\nage = '{SECRET}'", "gives no domain"),
    ("p.csv", f"id,column,value\n17,age,{SECRET}\n", "gives no domain"),
    ("p.csv", f"id,column,value\n17,{SECRET},1\n17,age,1\n", "entry 1 of"),
    ("p.toml", f"{SECRET} = 5", "is no TOML: look at line 1"),
    ("p.toml", "", "says of no column which values it may take"),
    ("p.json", "{}", "says of no column which values it may take"),
    ("p.toml", f"age = [0, 5]\n'{SECRET}' = 1\n'{SECRET}' = 2", "is no TOML"),
    ("p.toml", b"\xff\xfe\x00", "is no text in UTF-8"),
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("name", "content", "says"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_file_is_not_shown(shared, tmp_path: Path, name: str, content: str | bytes, says: str) -> None:
    shared(f"CREATE TABLE IF NOT EXISTS t ({COLUMNS})")
    shared("CALL dp_protect('t', mu := 1)")
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    line = shared.refused(f"CALL dp_attributes('t', '{tmp_path}/{name}')")
    assert says in line
    assert SECRET not in line
    assert "Ada" not in line


def test_no_file_is_touched_where_duckdb_may_touch_none(t, tmp_path: Path) -> None:
    file = tmp_path / "domain.json"
    file.write_text('{"age": [0, 18]}')
    t("SET enable_external_access = false")
    for call in (f"'t', '{file}'", f"'t', save := '{tmp_path}/new.toml'"):
        assert "enable_external_access is off" in t.refused(f"CALL dp_attributes({call})")
    assert [*tmp_path.glob("new*")] == []
    t("CALL dp_attributes('t', {'age': [0, 18]})")


def test_rows_decide_nothing(t) -> None:
    calls = ["{'age': {'low': 0, 'high': 900, 'step': 'auto', 'nulls': 'auto'}, 'sex': ['f']}", "{'sex': [NULL, 'm']}"]
    empty = [t(f"CALL dp_attributes('t', {call})") for call in calls]
    t("INSERT INTO u (age, sex, paid, code) SELECT i * 1000, 'zz' || i, true, -i FROM range(99) r(i)")
    assert [t(f"CALL dp_attributes('u', {call})") for call in calls] == [
        [tuple(x.replace("'t'", "'u'") if isinstance(x, str) else x for x in row) for row in rows] for rows in empty
    ]
