"""ORDER BY an aggregate with a LIMIT asks for the largest groups that are found: the rest is none of them, and adds no noise."""

import pytest

from tests.conftest import Loaded
from tests.sql.earlier_forms import as_in_form

TABLES = """
CREATE TABLE buyers AS SELECT i AS id, ['north', 'south'][1 + i % 2] AS area FROM range(600) r(i);
CREATE TABLE bought AS SELECT i % 600 AS id, CASE WHEN i % 7 < 3 THEN 'item' || [0, 0, 0, 1, 1, 2][1 + i // 7 % 6] ELSE 'rare' || i END AS item,
    i % 7 * 10 AS code, i % 50 AS paid, 's' || i AS serial FROM range(6000) r(i)
"""
RARE = "item NOT LIKE 'rare%'"


@pytest.fixture(params=["10", "'auto'"])
def shop(exact: Loaded, request: pytest.FixtureRequest) -> Loaded:
    exact(TABLES)
    exact("""CALL dp_link('bought', "references" := {'id': 'buyers.id'})""")
    exact(
        f"CALL dp_protect(['buyers', 'bought'], unit := 'buyers.id', max_rows := {request.param}, epsilon := 10000, delta := 1e-7, "
        "discovery_delta := 1e-8)"
    )
    exact("""CALL dp_attribute('buyers', 'area', "values" := ['north', 'south'])""")
    return exact


TOP = [
    "SELECT item, count(*) AS n FROM bought {} GROUP BY item ORDER BY n DESC LIMIT 9",
    "SELECT count(*) AS n, item FROM bought {} GROUP BY 2 ORDER BY 1 DESC LIMIT 2",
    "SELECT item, area, count(*) AS n FROM bought JOIN buyers USING (id) {} GROUP BY ALL ORDER BY count(*) DESC, area, item LIMIT 9",
    "SELECT upper(item) AS item, sum(paid) AS n FROM bought WHERE paid BETWEEN 0 AND 50 AND {0} GROUP BY 1 ORDER BY sum(paid) LIMIT 9",
]


@pytest.mark.some(2, "shop")
@pytest.mark.parametrize("select", TOP)
def test_the_largest_groups_are_those_of_sql(shop: Loaded, select: str) -> None:
    where = "{}" if "AND {0}" in select else "WHERE {}"
    truth = shop(select.format(where.format(RARE)))
    names = [name for name, _ in shop.columns(select.format(where.format(RARE)))]
    asked = select.format("true" if "AND {0}" in select else "")
    first = shop(f"SELECT {', '.join(names)} FROM dp_sql(?, epsilon := 100)", [asked])
    charges = shop.charges()
    assert shop(f"SELECT {', '.join(names)} FROM dp_sql(?, epsilon := 100)", [asked]) == first
    assert shop.charges() == charges == 2
    place = names.index("n")
    assert sorted(map(str, (row[:place] + row[place + 1 :] for row in first))) == sorted(
        map(str, (row[:place] + row[place + 1 :] for row in truth))
    )
    assert sorted(row[place] for row in first) == pytest.approx(sorted(float(row[place]) for row in truth), rel=0.02)


def test_other_rows_are_no_part_of_the_noise(shop: Loaded) -> None:
    """Of a unit with 10 rows about 6 are of rare items, which the bound on its rows, or on their norm, leaves out."""
    (low,) = shop("SELECT DISTINCT stddev FROM dp_sql(?, epsilon := 2)", [TOP[0].format("")])
    (high,) = shop("SELECT DISTINCT stddev FROM dp_sql(?, epsilon := 2)", [TOP[0].format("").partition(" LIMIT")[0]])
    assert low[0] <= high[0]
    columns = {column for column, _ in shop.columns(f"FROM dp_sql('{TOP[0].format('')}', epsilon := 2)")}
    assert "clipped_at" not in columns or low[0] < 0.7 * high[0]


@pytest.mark.parametrize(
    "after", ["ORDER BY item LIMIT 9", "LIMIT 9", "ORDER BY n DESC", "ORDER BY upper(item), n DESC LIMIT 9"]
)
def test_other_statements_have_the_rest_as_a_group(shop: Loaded, after: str) -> None:
    rows = shop(
        "SELECT item FROM dp_sql(?, epsilon := 3)", [f"SELECT item, count(*) AS n FROM bought GROUP BY item {after}"]
    )
    assert ("other",) in rows


def test_where_nothing_is_found_all_rows_are_the_rest(shop: Loaded) -> None:
    asked = "SELECT serial, count(*) AS n FROM bought GROUP BY serial ORDER BY n DESC LIMIT 3"
    for _ in range(2):
        ((serial, n),) = shop("SELECT serial, n FROM dp_sql(?, epsilon := 50)", [asked])
        assert serial == "other"
        assert n == pytest.approx(6000, rel=0.05)
    assert shop.charges() == 2


def test_numbers_that_are_found_keep_their_type(shop: Loaded) -> None:
    found = shop(
        "SELECT code, n FROM dp_sql('SELECT code, count(*) AS n FROM bought GROUP BY code ORDER BY n DESC LIMIT 7', epsilon := 100)"
    )
    assert sorted(code for code, _ in found) == [0, 10, 20, 30, 40, 50, 60]


def test_what_was_stored_with_the_rest_is_found(shop: Loaded) -> None:
    with as_in_form(3):
        before = shop("FROM dp_sql(?, epsilon := 1)", [TOP[0].format("")])
    charges = shop.charges()
    assert shop("FROM dp_sql(?, epsilon := 1)", [TOP[0].format("")]) == before
    assert shop.charges() == charges


def test_each_column_of_a_list_has_the_rest_where_a_select_lists_it(shop: Loaded) -> None:
    asked = [
        "SELECT item, count(*) AS n FROM bought GROUP BY item ORDER BY n DESC LIMIT 9",
        "SELECT serial, count(*) AS n FROM bought GROUP BY serial",
    ]
    rows = shop("SELECT query, n, item, serial FROM dp_sql(?, epsilon := 200)", [asked])
    assert {row[2:] for row in rows} == {("item0", None), ("item1", None), ("item2", None), (None, "other")}
    truth = dict(shop(f"SELECT item, count(*) AS n FROM bought WHERE {RARE} GROUP BY item"))
    for _, n, item, serial in rows:
        assert n == pytest.approx(6000 if serial else truth[item], rel=0.03)
    asked[1] = "SELECT item, sum(paid) AS n FROM bought WHERE paid BETWEEN 0 AND 50 GROUP BY item"
    rows = shop("SELECT query, item FROM dp_sql(?, epsilon := 200)", [asked])
    assert (1, "other") in rows
    assert (2, "other") in rows
