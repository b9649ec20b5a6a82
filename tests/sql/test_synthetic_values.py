"""Synthetic values of every column type, declared in every way, from every function that returns some."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import duckdb_dp.sql.dp_synthesize
import duckdb_dp.synthesis.older  # noqa: F401  before a test changes what they import
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.counting.encode import encode, inside, literal, quote
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.synthesis.links import columns as link_columns
from duckdb_dp.synthesis.table import columns as table_columns
from tests.conftest import Loaded

FLAGS = ["", ", other := true", ", nulls := true", ", other := true, nulls := true"]
UUIDS = [f"{i:08x}-4036-403d-bf84-cf8400f67836" for i in range(3)]


def ways(type_: str) -> list[str]:
    """Every way to declare a column of a type."""
    if type_ in ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"):
        return [
            "\"values\" := ['2020-01-01', '2020-01-01 12:00:00']",
            "bins := ['1970-01-01', '2020-01-01 00:00:01', '2020-01-01 00:00:02', '2021-01-01']",
            "bins := range(TIMESTAMP '2020-01-01', TIMESTAMP '2021-01-01', INTERVAL 4 MONTH)",
            "low := TIMESTAMP '2020-01-01', high := '2020-01-03', step := INTERVAL '12:00:00'",
        ]
    if type_ == "DATE":
        return [
            "\"values\" := range(DATE '2020-01-01', DATE '2020-01-04', INTERVAL 1 DAY)",
            "bins := ['2020-01-01', '2020-01-02', '2021-01-01']",
            "bins := range(DATE '2020-01-01', DATE '2021-01-01', INTERVAL 3 MONTH)",
            "low := DATE '2020-01-01', high := DATE '2020-12-31', step := INTERVAL 1 MONTH",
            "low := '2020-01-01', high := '2020-01-05'",
        ]
    if type_ == "TIME":
        return [
            "\"values\" := [TIME '08:00', TIME '09:30:00.5']",
            "bins := ['00:00:00', '08:00:00', '23:59:59.999999']",
            "low := TIME '08:00', high := '18:00', step := INTERVAL 150 MINUTE",
        ]
    if type_ in ("FLOAT", "DOUBLE"):
        return ['"values" := range(3, 6)', "bins := [-1.5, 0, 0.1, 1e30]", "low := 0, high := 1, step := 0.3"]
    if type_.startswith("DECIMAL"):
        width, scale = (int(part) for part in type_[8:-1].split(","))
        top = 10 ** (width - scale)
        whole = "low := 100, high := 104, step := 1" if top > 104 else "low := -0.5, high := 0.5, step := 0.25"
        if not scale:
            return ['"values" := [0, 5]', f"bins := [{1 - top}, 0, 5, {top - 1}]", whole]
        return ['"values" := [0, 0.5]', f"bins := [{-0.9 if top == 1 else 1 - top}, 0, 0.75, {top}]", whole]
    if type_ in ("VARCHAR", "BOOLEAN", "UUID") or type_.startswith("ENUM"):
        found = {"VARCHAR": ["a", "it''s"], "UUID": UUIDS, "BOOLEAN": ["true"]}.get(type_, ["x"])
        values = found if type_ == "BOOLEAN" else [f"'{value}'" for value in found]
        own = ["\"values\" := ['other', 'b']"] if type_ == "VARCHAR" else [] if type_ == "UUID" else [""]
        return [f'"values" := [{", ".join(values)}]', *own]
    signed = not type_.startswith("U")
    bits = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}[type_.removeprefix("U")]
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    cast = "::UHUGEINT" if type_ == "UHUGEINT" else ""
    edges = [low, low + 1, low + 4, 0, 100, high - 4, high] if signed else [0, 1, 100, high - 4, high]
    return [
        f'"values" := [{high}{cast}, {low}{cast}, 3{cast}]',
        f"bins := [{', '.join(f'{edge}{cast}' for edge in edges)}]",
        f"low := {high - 24}{cast}, high := {high}{cast}, step := 8",
        f"low := {low}, high := {low + 2}",
    ]


TYPES = [
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    *("FLOAT", "DOUBLE", "DECIMAL(4,2)", "DECIMAL(18,0)", "DECIMAL(38,0)", "DECIMAL(38,12)", "DECIMAL(38,38)"),
    *("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
    *("VARCHAR", "ENUM('x', 'y')", "BOOLEAN", "UUID"),
]  # fmt: skip
DECLARED = [(type_, way) for type_ in TYPES for way in ways(type_)]
COLUMNS = [(f"c{i}", type_, way + FLAGS[(i + i // 4) % 4]) for i, (type_, way) in enumerate(DECLARED)]
GROUPS = [COLUMNS[start::12] for start in range(12)]
ROWS = 240


def build(db: Loaded, columns: Sequence[tuple[str, str, str]]) -> None:
    """Tables whose columns hold what is declared of them: links between two tables, and children of one of them."""
    types = ", ".join(f"{name} {type_}" for name, type_, _ in columns)
    for name in ("owners", "pets"):
        db(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, b BOOLEAN)")
        db(f"INSERT INTO {name} SELECT i, i % 2 = 0 FROM range(60) t(i)")
        db(f"CALL dp_protect('{name}', mu := 1e6, delta := 1e-9); CALL dp_attributes('{name}')")
    db(
        f"CREATE TABLE links (o INTEGER REFERENCES owners (id), p INTEGER REFERENCES pets (id), {types}, PRIMARY KEY (o, p))"
    )
    db(f"CREATE TABLE kids (id INTEGER PRIMARY KEY, o INTEGER REFERENCES owners (id), {types})")
    db("CALL dp_protect('links', unit := 'o', max_rows := 9, mu := 1e6, delta := 1e-9)")
    db("CALL dp_public('pets', links := 'links')")
    db("CALL dp_protect('kids', mu := 1e6, delta := 1e-9)")
    db("CALL dp_public('owners', links := 'kids')")
    for table in ("links", "kids"):
        for name, _, way in columns:
            db(f"CALL dp_attribute('{table}', '{name}'{', ' * (not way.startswith(',')) * bool(way)}{way})")
    attributes = declared(db, "kids")
    found = ", ".join(
        f"CAST(({samples(a)})[1 + (i * {i + 1}) % {len(points(a))}] AS {a.type})" for i, a in enumerate(attributes)
    )
    db(f"INSERT INTO kids SELECT i, i % 60, {found} FROM range({ROWS}) t(i)")
    db(f"INSERT INTO links SELECT i % 60, (i % 60 * 7 + i // 60) % 60, {found} FROM range({ROWS}) t(i)")


def declared(db: Loaded, table: str) -> list[Attribute]:
    ledger = Ledger(db.folder)
    (dataset,) = [found for found in ledger.datasets() if found.name == table]
    return [Attribute.from_json(json.loads(spec)) for _, spec in ledger.attributes(dataset)]


def points(attribute: Attribute) -> list[Any]:
    """Values of every cell: edges that the type holds are in the bins that they begin."""
    found: list[Any] = [*attribute.points]
    if attribute.type.startswith("DECIMAL") and attribute.kind == "bins":
        found = ["0", "0.5"] if "38)" in attribute.type else ["-1", "0", "0.7", "99"]
    return found + [None] * attribute.nulls


def samples(attribute: Attribute) -> str:
    texts = [None if point is None else str(point) for point in points(attribute)]
    return f"[{', '.join(map(literal, texts))}]"


def check(db: Loaded, made: str, attributes: Sequence[Attribute]) -> None:
    """Of the column's type, in the domain, and in bins that hold many values not always the same."""
    columns = dict(db.columns(f"FROM {made}"))
    for attribute in attributes:
        assert columns[attribute.name] == attribute.type
        kept = inside(attribute) or "true"
        coded = encode([attribute], made)
        cell = f"CASE WHEN {kept} THEN {coded.codes[0]} END AS cell"
        asked = f"SELECT {cell}, {quote(attribute.name)} AS v FROM {coded.rows}"
        found = db(f"SELECT cell, count(*), count(DISTINCT v::VARCHAR) FROM ({asked}) GROUP BY cell ORDER BY cell")
        assert found
        assert all(cell is not None for cell, *_ in found), attribute
        for cell, count, several in found:
            if attribute.kind == "bins" and cell < len(attribute.held):
                low, high = attribute.held[cell]
                room = 1000 if attribute.type in ("FLOAT", "DOUBLE") else int(high - low + 1)
                assert several >= min(count, room) / 4, (attribute, cell)


@pytest.mark.slow
@pytest.mark.parametrize("columns", GROUPS, ids=lambda group: ", ".join(type_ for _, type_, _ in group))
def test_every_type_declared_in_every_way_by_every_function(exact: Loaded, columns: Any) -> None:
    db = exact
    build(db, columns)
    attributes = declared(db, "kids")
    for name in ("owners", "pets", "kids"):
        db(f"CREATE TABLE {name}_syn AS SELECT * EXCLUDE (private) FROM dp_synthesize('{name}', mu := 2000)")
    check(db, "kids_syn", attributes)
    db(
        "CREATE TABLE l AS SELECT * EXCLUDE (private) FROM dp_links('links', "
        "synthetic := {'owners': 'owners_syn', 'pets': 'pets_syn'}, mu := 2000)"
    )
    check(db, "l", attributes)
    db(
        "CREATE TABLE k AS SELECT * EXCLUDE (private) FROM dp_links('kids', synthetic := {'kids': 'kids_syn', 'owners': 'owners_syn'}, mu := 2000)"
    )
    check(db, "k", attributes)
    db(
        "CALL dp_synthesize_database('main', target := 'made', tables := ['owners', 'pets', 'kids', 'links'], mu := 2000)"
    )
    check(db, "made.links", attributes)
    check(db, "made.kids", attributes)
    for table, made in (("kids", "kids_syn"), ("kids", "k"), ("kids", "made.kids")):
        assert db(f"FROM dp_quality('{table}', '{made}', exact := true)")
    assert db("FROM dp_quality('links', 'l', synthetic := {'owners': 'owners_syn', 'pets': 'pets_syn'}, exact := true)")
    assert db(
        "FROM dp_quality('links', 'made.links', synthetic := {'owners': 'made.owners', 'pets': 'made.pets'}, exact := true)"
    )


OLD: list[tuple[str, str, list[float], list[Any]]] = [  # type, domain, numbers as they were stored, values
    ("DATE", "bins := ['2020-01-01', '2020-02-01', '2021-01-01']", [18262, 18293, 18628], ["2020-01-01", "2020-02-01", "2021-01-01"]),
    ("INTEGER", "bins := [0, 10, 100], nulls := true", [0, 9, 10, 100, math.nan], [0, 9, 10, 100, None]),
    ("DOUBLE", "bins := [-1.5, 0.1, 2], other := true", [-1.5, 0.1, 2, math.nan], [-1.5, 0.1, 2, None]),
    ("DECIMAL(9,2)", "bins := [0, 0.05, 13]", [0, 0.04, 0.05, 12.99], [0, 0.04, 0.05, 12.99]),
    ("TIME", "bins := ['00:00:00', '12:00:00', '23:59:59']", [1e6, 43200e6], ["00:00:01", "12:00:00"]),
    ("TIMESTAMP", "bins := ['1970-01-01', '2020-01-01', '2021-01-01']", [1, 1577836800e6], ["1970-01-01 00:00:00.000001", "2020-01-01 00:00:00"]),
    ("TIMESTAMP_S", "bins := ['1970-01-01', '2020-01-01', '2021-01-01']", [1e6, 1577836800e6], ["1970-01-01 00:00:01", "2020-01-01 00:00:00"]),
    ("TIMESTAMP_MS", "bins := ['1970-01-01', '2020-01-01', '2021-01-01']", [1e3, 1577836800e6], ["1970-01-01 00:00:00.001", "2020-01-01 00:00:00"]),
]  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.parametrize(("type_", "domain", "stored", "values"), OLD, ids=[type_ for type_, *_ in OLD])
def test_rows_that_older_versions_stored(
    exact: Loaded, monkeypatch: pytest.MonkeyPatch, type_: str, domain: str, stored: list[float], values: list[Any]
) -> None:
    """They stored the values themselves, and NaN for none."""
    exact(
        f"CREATE TABLE old (v {type_}); CALL dp_protect('old', mu := 9, delta := 1e-9); CALL dp_attribute('old', 'v', {domain})"
    )
    with monkeypatch.context() as older:
        older.setattr(table_columns, "SHARES", "none")
        older.setattr(table_columns, "ROUNDED", "not yet")
        older.setattr(table_columns, "values", lambda *_: np.array(stored, np.float64))
        exact("FROM dp_synthesize('old', \"rows\" := 5, mu := 1, release := 'old')")
    want = exact(f"SELECT unnest(?::VARCHAR[])::{type_}", [[None if v is None else str(v) for v in values]])
    found = exact("SELECT v FROM dp_release('old')")
    if type_ == "DOUBLE":
        assert [value for (value,) in found] == pytest.approx([value for (value,) in want], abs=1e-12)
    else:
        assert found == want


@pytest.mark.slow
def test_links_that_older_versions_stored(exact: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stored cell numbers; read as values those were days after 1970 and prices of 0 and 1."""
    build(
        exact,
        [
            ("day", "DATE", "bins := ['2020-01-01', '2020-02-01', '2020-12-01']"),
            ("price", "DOUBLE", "bins := [0, 100, 150]"),
        ],
    )
    for name in ("owners", "pets"):
        exact(f"CREATE TABLE {name}_syn AS SELECT * EXCLUDE (private) FROM dp_synthesize('{name}', mu := 2000)")
    call = "dp_links('links', synthetic := {'owners': 'owners_syn', 'pets': 'pets_syn'}, mu := 2000)"
    with monkeypatch.context() as older:
        older.setattr(link_columns, "SHARES", "none")
        older.setattr(
            link_columns,
            "stored",
            lambda _request, _attributes, codes, _rng: [np.asarray(one, np.float64) for one in codes],
        )
        exact(f"FROM {call}")
    days = exact(f"SELECT DISTINCT day::VARCHAR FROM {call} ORDER BY 1")
    assert days == [("2020-01-16",), ("2020-07-02",)]
    assert exact(f"SELECT DISTINCT round(price, 6) FROM {call} ORDER BY 1") == [(50.0,), (125.0,)]
    exact(f"CREATE TABLE l AS SELECT * EXCLUDE (private) FROM {call}")
    assert exact(
        "FROM dp_quality('links', 'l', synthetic := {'owners': 'owners_syn', 'pets': 'pets_syn'}, exact := true)"
    )
    assert exact.charges() == 3
