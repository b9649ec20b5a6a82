"""What a refusal of a join says to join by is answered, whatever was written instead."""

import re
from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TABLES = """
CREATE TABLE users (id INTEGER PRIMARY KEY, mail VARCHAR, k INTEGER); INSERT INTO users SELECT i, 'm' || i, i % 3 FROM range(40) t(i);
CREATE TABLE orders (oid INTEGER PRIMARY KEY, uid INTEGER REFERENCES users (id), mail VARCHAR, code INTEGER);
INSERT INTO orders SELECT i, i % 40, 'm', i % 5 FROM range(80) t(i);
CREATE TABLE items (iid INTEGER PRIMARY KEY, oid INTEGER REFERENCES orders (oid), id INTEGER, code INTEGER);
INSERT INTO items SELECT i, i % 80, i % 40, i % 5 FROM range(160) t(i);
CREATE TABLE visits (vid INTEGER PRIMARY KEY, uid INTEGER REFERENCES users (id), id INTEGER, code INTEGER);
INSERT INTO visits SELECT i, i % 40, i, i % 5 FROM range(60) t(i);
"""
KEY = {"users": "id", "orders": "oid", "items": "iid", "visits": "vid"}
PAIRS = [(one, two) for one in KEY for two in KEY if one != two]
WRITTEN = [
    "{one}.code = {two}.code", "{one}.id = {two}.id", "{one}.{key} + 0 = {two}.{other}", "CAST({one}.{key} AS VARCHAR) = CAST({two}.{other} AS VARCHAR)",
    "{one}.{key} <= {two}.{other}", "{one}.{key} = {two}.{other} OR {one}.{key} = 1", "true",
]  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    connection, folder = duckdb.connect(), tmp_path_factory.mktemp("shop")
    connection.execute(TABLES)
    duckdb_dp.testing.load_exact(connection, folder / "shop.dp")
    found = Loaded(connection, folder / "shop.dp")
    found(
        "CALL dp_protect(['users', 'orders', 'items', 'visits'], unit := 'users.id', max_rows := {'orders': 2, 'items': 4, 'visits': 2}, "
        "epsilon := 1e7, delta := 1e-9)"
    )
    yield found
    connection.close()


@pytest.mark.some(12)
@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_what_is_said_is_answered(shop: Loaded, pair: tuple[str, str], join: str, written: str) -> None:
    one, two = pair
    on = written.format(one=one, two=two, key=KEY[one], other=KEY[two])
    try:
        shop(f"SELECT count(*) FROM {one} {join} {two} ON {on}")
    except duckdb.Error:
        return  # of a column that is not there
    line = shop.refused("FROM dp_sql(?, epsilon := 1)", [f"SELECT count(*) AS n FROM {one} {join} {two} ON {on}"])
    assert "rows of several units would be mixed" in line
    through = re.search(r'join "(\w+)" by (.*) too\.', line)
    if through is None:
        said = re.search(r"mixed; join by ([^,]*?)(, or by .*)?\.\s", line + " ")
        assert said, line
        select = f"SELECT count(*) AS n FROM {one} {join} {two} ON {said[1]}"
        found = shop("SELECT n FROM dp_sql(?, epsilon := 1e4)", [select])
        assert round(found[0][0]) == shop(select)[0][0]
        return
    own, rest = through[2].partition(" = ")[0].partition(".")[0].strip('"'), through[1]
    assert {own} < {one, two, rest}
    select = f"SELECT count(*) AS n FROM {own} JOIN {rest} ON {through[2]}"
    assert round(shop("SELECT n FROM dp_sql(?, epsilon := 1e4)", [select])[0][0]) == shop(select)[0][0]


@pytest.mark.parametrize("table", ["orders", "visits"])
def test_what_is_said_of_subqueries_is_answered(shop: Loaded, table: str) -> None:
    select = f"SELECT count(*) AS n FROM users WHERE EXISTS (SELECT 1 FROM {table} WHERE {table}.code = users.k)"
    said = re.search(r"tie it by (.*), or ask it first", shop.refused("FROM dp_sql(?, epsilon := 1)", [select]))
    assert said
    tied = select.replace(f"{table}.code = users.k", said[1])
    assert round(shop("SELECT n FROM dp_sql(?, epsilon := 1e4)", [tied])[0][0]) == shop(tied)[0][0]


ALIASED = {
    "orders x JOIN orders y ON x.code = y.code": "orders x JOIN orders y ON {}",
    "orders x LEFT JOIN visits y ON x.code = y.code": "orders x LEFT JOIN visits y ON {}",
    "users u JOIN visits v ON u.k = v.code": "users u JOIN visits v ON {}",
    "users AS u (a, b, c) JOIN visits ON c = code": "users AS u (a, b, c) JOIN visits ON {}",
    "(SELECT uid AS who, code, oid FROM orders) s JOIN visits v ON s.code = v.code": "(SELECT uid AS who, code, oid FROM orders) s JOIN visits v ON {}",
    "(SELECT uid, max(code) AS code FROM orders GROUP BY 1) s JOIN visits v ON s.code = v.code": "(SELECT uid, max(code) AS code FROM orders GROUP BY 1) s JOIN visits v ON {}",
    "orders WHERE code IN (SELECT code FROM orders c WHERE c.oid > 3)": "orders WHERE code IN (SELECT code FROM orders c WHERE c.oid > 3 AND {})",
    "orders x WHERE EXISTS (SELECT 1 FROM visits v WHERE x.code = v.code)": "orders x WHERE EXISTS (SELECT 1 FROM visits v WHERE x.code = v.code AND {})",
    "orders x WHERE code > (SELECT min(code) FROM visits v)": "orders x WHERE code > (SELECT min(code) FROM visits v WHERE {})",
}  # fmt: skip


@pytest.mark.parametrize("asked", ALIASED)
def test_tables_have_the_names_of_the_statement(shop: Loaded, asked: str) -> None:
    line = shop.refused("FROM dp_sql(?, epsilon := 1)", [f"SELECT count(*) AS n FROM {asked}"])
    said = re.search(
        r"(?:mixed; join|tie it) by (.*?)(, or .*)?\.?\s", line.partition("LINE")[0].replace(" = ", "=") + " "
    )
    assert said, line
    select = f"SELECT count(*) AS n FROM {ALIASED[asked].format(said[1].rstrip(',.'))}"
    found = shop("SELECT n FROM dp_sql(?, epsilon := 1e4)", [select])
    assert round(found[0][0]) == shop(select)[0][0]
