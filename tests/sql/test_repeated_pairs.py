"""Links that repeat pairs of rows: one patient many times in one of a few wards."""

import pytest

from tests.conftest import Loaded

TABLES = """
CREATE TABLE persons (id INTEGER PRIMARY KEY, sex INTEGER);
CREATE TABLE sites (pl INTEGER PRIMARY KEY, big INTEGER);
INSERT INTO persons SELECT i, i % 2 FROM range(200) r(i);
INSERT INTO sites SELECT i, i % 2 FROM range({sites}) r(i);
CREATE TABLE stays (id INTEGER REFERENCES persons (id), pl INTEGER REFERENCES sites (pl), seq INTEGER, kind INTEGER);
INSERT INTO stays SELECT i, (i + n) % {sites}, n + 1, (i + n) % 3 FROM range(200) r(i), range(5) s(n) WHERE n <= i % 5;
CALL dp_public(['sites']);
CALL dp_protect(['persons', 'stays'], unit := 'persons.id', rho := 1e6, max_rows := {{'stays': 5}});
CALL dp_attributes('persons', {{'sex': [0, 1]}}); CALL dp_attributes('stays', {{'kind': [0, 1, 2], 'seq': [1, 2, 3, 4, 5]}});
CREATE TABLE p AS FROM dp_synthesize('persons', key := 'id', rho := 100);
"""


@pytest.mark.some(2)
@pytest.mark.parametrize("rho", [10, 1e4])
@pytest.mark.parametrize("sites", [1, 2, 3, 30])
def test_degrees_do_not_depend_on_how_few_partners_there_are(exact: Loaded, sites: int, rho: float) -> None:
    exact(TABLES.format(sites=sites))
    exact(
        f"CREATE TABLE made AS FROM dp_links('stays', synthetic := {{'persons': 'p', 'sites': 'sites'}}, rho := {rho})"
    )
    degrees = dict(exact("SELECT n, count(*) FROM (SELECT count(*) AS n FROM made GROUP BY id) GROUP BY n"))
    assert sum(abs(degrees.get(n, 0) - 40) for n in range(1, 6)) <= 30  # of 200, 40 each
    for column, shares in (("seq", [200, 160, 120, 80, 40]), ("kind", [199, 201, 200])):
        found = dict(exact(f"SELECT {column}, count(*) FROM made GROUP BY 1"))
        off = sum(abs(found.get(value, 0) - n) for value, n in enumerate(shares, int(column == "seq")))
        assert off <= 90  # of 600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("held", "repeats"), [("(i + n) % 10", False), ("i % 10", True)], ids=["a set of pairs", "repeated pairs"]
)
def test_whether_pairs_repeat_is_measured_where_nothing_says_it(exact: Loaded, held: str, repeats: bool) -> None:
    exact(
        "CREATE TABLE persons AS SELECT i AS id, i % 2 AS sex FROM range(300) r(i); "
        "CREATE TABLE sites AS SELECT i AS pl, i % 3 AS big FROM range(10) r(i); "
        f"CREATE TABLE stays AS SELECT i AS id, {held} AS pl, i % 3 AS kind FROM range(300) r(i), range(4) s(n); "
        "CALL dp_public(['sites'])"
    )
    said = exact("CALL dp_link('stays', \"references\" := {'id': 'persons.id', 'pl': 'sites.pl'})")
    assert [row[3] for row in said] == [None, None]
    exact(
        "CALL dp_protect(['persons', 'stays'], unit := 'persons.id', rho := 1000, max_rows := {'stays': 4}); "
        "CALL dp_attributes('persons', {'sex': [0, 1]}); CALL dp_attributes('stays', {'kind': [0, 1, 2]})"
    )
    exact("CALL dp_synthesize_database('main', target := 'syn', tables := ['persons', 'stays'], rho := 10)")
    ((rows, pairs),) = exact("SELECT count(*), count(DISTINCT (id, pl)) FROM syn.stays")
    assert abs(rows - 1200) < 60
    assert (pairs < rows) == repeats
    exact(
        "CREATE TABLE p AS FROM dp_synthesize('persons', key := 'id', rho := 1); CREATE TABLE s AS FROM sites; CALL dp_public('s'); "
        "CREATE TABLE made AS FROM dp_links('stays', synthetic := {'persons': 'p', 'sites': 's'}, rho := 10)"
    )
    assert exact("SELECT count(*) > count(DISTINCT (id, pl)) FROM made") == [(repeats,)]


@pytest.mark.parametrize("links", [True, False], ids=["links", "children"])
def test_an_attribute_of_many_values_drowns_neither_siblings_nor_itself(exact: Loaded, links: bool) -> None:
    exact(
        "CREATE TABLE persons AS SELECT i AS id, i % 2 AS sex FROM range(2000) r(i); CREATE TABLE sites AS SELECT i AS pl FROM range(30) r(i); "
        "CREATE TABLE stays AS SELECT i AS id, (i * 7 + n) % 30 AS pl, i % 5 AS stars, 50 + (i * 37 + n * 11) % 250 AS amount "
        "FROM range(2000) r(i), range(5) s(n); CALL dp_public(['sites']); CALL dp_link('stays', \"references\" := {'id': 'persons.id'"
        + (", 'pl': 'sites.pl'" if links else "")
        + "}); CALL dp_protect(['persons', 'stays'], unit := 'persons.id', epsilon := 50, delta := 1e-9, max_rows := {'stays': 5}); "
        "CALL dp_attributes('persons', {'sex': [0, 1]}); CALL dp_attributes('stays', {'stars': [0, 1, 2, 3, 4]}); "
        "CALL dp_attribute('stays', 'amount', low := 0, high := 5000, step := 100)"
    )
    exact("CALL dp_synthesize_database('main', target := 'syn', tables := ['persons', 'stays'], epsilon := 10)")
    ((alike,),) = exact(
        "SELECT avg((a.stars = b.stars)::INTEGER) FROM syn.stays a JOIN syn.stays b ON a.id = b.id AND a.rowid < b.rowid"
    )
    assert alike > 0.7  # all of them are, and a fifth is by chance
    ((amount,),) = exact("SELECT avg(amount) FROM syn.stays")
    assert 150 < amount < 230  # 174
