"""Rows depend on columns of public tables to which their parents refer: the stars of a review on the kind of the booking's listing."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.sql import catalog, dp_links, inherited_columns, joined_columns, link_counts
from duckdb_dp.sql.bindings import LOADED
from duckdb_dp.sql.joined_columns import JoinedColumns
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Reference
from tests.conftest import Loaded

TABLES = """
CREATE TABLE guests AS SELECT i AS guest, i % 2 AS sex FROM range({guests}) r(i);
CREATE TABLE listings AS SELECT {key} AS listing, i % 3 AS kind, i % 7 < 3 AS beach, 'l' || i AS name FROM range({number}) r(i);
CREATE TABLE hosts AS SELECT i AS host FROM range(3) r(i);
CREATE TABLE places AS SELECT i AS place FROM range(3) r(i);
CREATE TABLE bookings AS SELECT i * 2 + n AS booking, i AS guest, j AS spot, {value} AS listing, j % 3 AS host, j % 3 AS place, n AS nights
    FROM (SELECT i, n, (hash(i, n) % {number})::BIGINT AS j FROM (SELECT i, n FROM range({guests}) r(i), range(2) s(n)));
CREATE TABLE reviews AS SELECT booking * 2 + n AS review, booking, (spot + (booking % 5 = 0)::INTEGER) % 3 AS stars
    FROM bookings, range(2) s(n) WHERE n <= spot % 3;
ALTER TABLE bookings DROP spot;
CALL dp_public(['listings', 'hosts', 'places']);
CALL dp_link('bookings', "references" := {{'guest': 'guests.guest', 'listing': 'listings.listing'{more}}});
CALL dp_link('reviews', "references" := {{'booking': 'bookings.booking', 'review': 'reviews.review'}});
CALL dp_protect(['guests', 'bookings', 'reviews'], unit := 'guests.guest', rho := 1e6, max_rows := {{'bookings': 2, 'reviews': 4}});
CALL dp_attributes('guests', {{'sex': [0, 1]}}); CALL dp_attributes('bookings', {{'nights': [0, 1]}});
CALL dp_attributes('reviews', {{'stars': [0, 1, 2]}});
"""
TWO_MORE = ", 'host': 'hosts.host', 'place': 'places.place'"
MADE = "CALL dp_synthesize_database('main', target := 'syn', tables := ['guests', 'bookings', 'reviews'], rho := {}{})"
SHAPES: dict[str, dict[str, Any]] = {
    "links": {"key": "i", "value": "j", "number": 1500, "more": ""},
    "links by text": {"key": "'no ' || i", "value": "'no ' || j", "number": 1500, "more": ""},
    "keys of two types": {"key": "i::VARCHAR", "value": "j", "number": 60, "more": TWO_MORE},
    "a column": {"key": "i", "value": "j", "number": 60, "more": TWO_MORE},
    "a column with NULL": {
        "key": "i",
        "value": "CASE WHEN i % 5 > 0 THEN j END",
        "number": 60,
        "more": TWO_MORE,
    },
}
KINDS = """
SELECT kind, stars, count(*) FROM {0}.reviews JOIN {0}.bookings USING (booking) JOIN {0}.listings l
ON l.listing::VARCHAR = bookings.listing::VARCHAR GROUP BY ALL
"""


CODED = """
CREATE TABLE codes AS SELECT 'c' || i AS code, i % 3 AS class, i AS rank FROM range(90) r(i);
ALTER TABLE reviews ADD COLUMN code VARCHAR; UPDATE reviews SET code = 'c' || (stars + 3 * (hash(review) % 30))::INTEGER;
CALL dp_public('codes');
"""


def tables(guests: int = 300, *, coded: bool = False, **shape: Any) -> str:
    """Statements of a schema, in which reviews may have codes."""
    made = TABLES.format(guests=guests, **shape)
    if not coded:
        return made
    tables_, declared = made.split("CALL", 1)
    declared = declared.replace("'review': 'rev", "'code': 'codes.code', 'review': 'rev")
    return f"{tables_} {CODED} CALL {declared}"


def session_of(db: Loaded) -> Session:
    """The session of a loaded database."""
    return LOADED[db("SELECT _dp_loaded()")[0][0]].session


def distance(db: Loaded, query: str) -> float:
    """The L1 distance of two distributions."""
    one, other = ({row[:-1]: row[-1] for row in db(query.format(schema))} for schema in ("main", "syn"))
    totals = sum(one.values()), sum(other.values())
    return float(sum(abs(one.get(cell, 0) / totals[0] - other.get(cell, 0) / totals[1]) for cell in {*one, *other}))


@pytest.mark.some(1)
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_keep_what_they_have_in_common_with_a_public_table_two_references_away(exact: Loaded, shape: str) -> None:
    exact(tables(**SHAPES[shape]))
    plan = exact(MADE.format(300, ", plan := true"))
    assert "measured too: what rows have in common with kind, beach of 'listings', to which 'bookings' refers" in str(
        plan[-1]
    )
    exact(MADE.format(300, ""))
    assert distance(exact, KINDS) < 0.12
    assert distance(exact, "SELECT stars, count(*) FROM {}.reviews GROUP BY ALL") < 0.02
    number = "SELECT nights, k, count(*) FROM (SELECT any_value(nights) AS nights, count(review) AS k FROM {0}.bookings LEFT JOIN {0}.reviews "
    assert distance(exact, number + "USING (booking) GROUP BY booking) GROUP BY ALL") < 0.15


@pytest.mark.slow
def test_it_is_kept_with_noise_that_drowns_single_keys(db: Loaded) -> None:
    """200 keys and three values of stars are 600 cells for 1,000 reviews; without kinds the distance is 0.97."""
    db(tables(**{**SHAPES["a column"], "number": 200}))
    db(MADE.format(0.5, ""))
    assert distance(db, KINDS) < 0.6


@pytest.mark.slow
def test_a_childs_own_references_are_read_too(db: Loaded) -> None:
    """The class of a review's code depends on the kind of the booking's listing: of 90 codes and 200 listings noise leaves nothing."""
    db(tables(coded=True, **{**SHAPES["links"], "number": 200}))
    plan = db(MADE.format(5, ", plan := true"))
    assert (
        "class of 'codes', to which 'reviews' refers; kind, beach of 'listings', to which 'bookings' refers"
        in plan[-1][-1]
    )
    db(MADE.format(5, ""))
    classes = KINDS.replace("stars", "class").replace("GROUP BY", "JOIN codes USING (code) GROUP BY")
    assert distance(db, classes) < 0.6  # and 0.9 where nothing is known of it


@pytest.mark.slow
def test_of_three_generations_without_a_column_of_the_unit(exact: Loaded) -> None:
    """Bookings are a guest's by the trip alone."""
    exact(tables(**SHAPES["a column"]).split("CALL")[0])
    exact("""
        CREATE TABLE trips AS SELECT booking // 2 * 2 AS trip, guest, 1 AS x FROM bookings WHERE booking % 2 = 0;
        ALTER TABLE bookings ADD COLUMN trip BIGINT; UPDATE bookings SET trip = booking // 2 * 2; ALTER TABLE bookings DROP guest;
        CALL dp_public(['listings']);
        CALL dp_link('trips', "references" := {'guest': 'guests.guest'});
        CALL dp_link('bookings', "references" := {'trip': 'trips.trip', 'listing': 'listings.listing'});
        CALL dp_link('reviews', "references" := {'booking': 'bookings.booking', 'review': 'reviews.review'});
        CALL dp_protect(['guests', 'trips', 'bookings', 'reviews'], unit := 'guests.guest', rho := 1e6, max_rows := 4);
        CALL dp_attributes('guests', {'sex': [0, 1]}); CALL dp_attributes('bookings', {'nights': [0, 1]});
        CALL dp_attributes('trips', {'x': [0, 1]}); CALL dp_attributes('reviews', {'stars': [0, 1, 2]});
    """)
    exact("CALL dp_attribute('bookings', 'listing', low := 0, high := 59)")
    made = exact(
        "CALL dp_synthesize_database('main', target := 'syn', tables := ['guests', 'trips', 'bookings', 'reviews'], rho := 3000)"
    )
    assert "kind, beach of 'listings', to which 'bookings' refers" in made[-1][-1]
    ((rows, kinds),) = exact(
        "SELECT count(*), avg((kind = stars)::INTEGER) FROM syn.reviews JOIN syn.bookings USING (booking) JOIN listings USING (listing)"
    )
    assert rows > 500
    assert kinds > 0.6  # 0.8 in the original, and a third where nothing is known of it


@pytest.mark.slow
def test_links_by_hand_and_what_is_stored_stay(exact: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call by hand reads no other table, and links that are stored without such columns are used again at no cost."""
    exact(tables(**SHAPES["a column"]))
    with monkeypatch.context() as earlier:
        earlier.setattr(joined_columns, "chosen", lambda *_: ())
        earlier.setattr(inherited_columns, "chosen", lambda *_: ())
        assert "measured too" not in str(exact(MADE.format(50, "")))
    links = "SELECT stars, booking FROM syn.reviews ORDER BY review"
    charges, before = exact.charges(), exact(links)
    exact("DROP SCHEMA syn CASCADE")
    assert "measured too" not in str(exact(MADE.format(50, "")))
    assert (exact.charges(), exact(links)) == (charges, before)
    exact("DROP SCHEMA syn CASCADE")
    assert "measured too" in str(exact(MADE.format(50, ", fresh := true")))
    charges, before = exact.charges(), exact(links)
    exact("DROP SCHEMA syn CASCADE")
    assert "measured too" in str(exact(MADE.format(50, "")))
    assert (exact.charges(), exact(links)) == (charges, before)
    exact("CREATE TABLE children AS SELECT review, stars FROM syn.reviews; CALL dp_public('children')")
    exact("FROM dp_links('reviews', synthetic := {'reviews': 'children', 'bookings': 'syn.bookings'}, rho := 5)")
    session = session_of(exact)
    ((number, _), *_) = session.ledger.newest("dp_links", 1, private=False)
    assert '"joined"' not in session.ledger.release(number).request


@pytest.mark.slow
def test_links_that_were_made_of_other_public_rows_are_not_read(exact: Loaded) -> None:
    """Which row of bookings is linked follows from its listing's kind, so that the release is of these kinds."""
    exact(tables(**SHAPES["a column"]))
    exact(MADE.format(50, ""))
    exact("DROP SCHEMA syn CASCADE; UPDATE listings SET kind = 2 - kind")
    assert "the synthetic tables changed since" in exact.refused(MADE.format(50, ""))


COLUMNS = {
    "kind": "i % 3",
    "same": "10 + i % 3",
    "half": "i // 3 % 2",
    "rare": "(i = 7)::INTEGER",
    "one": "1",
    "name": "'n' || i",
    "many": "i % 9",
    "empty": "NULL::INTEGER",
}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("kind", "same", "half"), ["kind", "half"]),
        (("rare", "one", "name", "many", "empty"), []),
        (("half", "rare"), ["half"]),
        (tuple(COLUMNS), ["kind", "half"]),
    ],
)
def test_the_columns_that_are_read_cut_the_table_evenly_and_each_says_more(
    exact: Loaded, names: Sequence[str], expected: Sequence[str]
) -> None:
    shown = ", ".join(f"{COLUMNS[name]} AS {name}" for name in names)
    exact(tables(**SHAPES["a column"]).split("CALL")[0])
    exact(
        f"CREATE OR REPLACE TABLE listings AS SELECT i AS listing, {shown} FROM range(60) r(i); CALL dp_public('listings')"
    )
    session = session_of(exact)
    known = {name[2]: table for name, table in catalog.committed(session, [("memory", "main")]).items()}
    reference = Reference(columns=("listing",), parent=known["listings"].name, key=("listing",), role="listings")
    public = {reference.parent: replace(known["listings"], keys=(("listing",),))}
    found = joined_columns.chosen(session, known["bookings"], [reference], public)
    assert [column for one in found for column in one.columns] == expected
    assert all(
        a.nulls for one in found for a in one.attributes
    )  # as no constraint says that each booking has a listing


def joined_to(name: str, key: str, *values: str) -> JoinedColumns:
    """Columns of a public table by a column of the same name."""
    reference = Reference(columns=(key,), parent=("memory", "main", name), key=(key,), role=name)
    attributes = (
        Attribute(name=f"{name}.{v}", type="INTEGER", kind="values", points=(0, 1, 2), nulls=True) for v in values
    )
    return JoinedColumns(reference=reference, attributes=tuple(attributes))


@pytest.mark.parametrize("types", [*itertools.product(("INTEGER", "VARCHAR", "DOUBLE"), repeat=2)])
def test_a_join_keeps_each_row_once_whatever_the_keys_are(exact: Loaded, types: tuple[str, str]) -> None:
    """With keys that repeat, are NULL, lead nowhere, or are of another type, and no value fails."""
    exact(f"""
        CREATE TABLE parents AS SELECT * FROM (VALUES (1, '1'), (2, '2'), (3, NULL), (4, '9'), (5, '2')) t(id, listing);
        CREATE TABLE listings AS SELECT * FROM (VALUES ('1', 1), ('2', 1), ('2', 0), (NULL, 1)) t(listing, kind);
        ALTER TABLE parents ALTER listing TYPE {types[0]}; ALTER TABLE listings ALTER listing TYPE {types[1]};
    """)
    if types[0] == "VARCHAR":
        exact("INSERT INTO parents VALUES (6, 'no number')")
    rows = joined_columns.joined('"memory"."main"."parents"', [joined_to("listings", "listing", "kind")])
    found = exact(f'SELECT id, "listings.kind" FROM {rows} ORDER BY id')
    assert found[:5] == [(1, 1), (2, 0), (3, None), (4, None), (5, 0)]
    assert found[5:] == [(6, None)] * (types[0] == "VARCHAR")


@pytest.mark.some(1)
@pytest.mark.parametrize("repeated", [False, True])
def test_without_a_unit_the_counted_links_of_others_stay(exact: Loaded, *, repeated: bool) -> None:
    """What a row has by references is a function of the row and of public rows: a unit changes its own links, and no others."""
    exact(tables(coded=True, **SHAPES["a column with NULL"]))
    if repeated:
        exact("INSERT INTO listings SELECT listing, 2 - kind, beach, name FROM listings")
        exact("INSERT INTO codes SELECT code, 1, rank FROM codes")
    session = session_of(exact)
    dataset = session.ledger.dataset("memory", "main", "reviews")
    assert dataset is not None
    reviews, bookings = (("memory", "main", name) for name in ("reviews", "bookings"))
    code = Attribute(name="code", type="VARCHAR", kind="values", points=tuple(f"c{i}" for i in range(90)))
    by_reference = {
        bookings: (joined_to("listings", "listing", "kind", "beach"),),
        reviews: (joined_to("codes", "code", "class"),),
    }
    arguments = {
        dp_links.ALSO: {reviews: [code]},
        "synthetic": {"reviews": "children", "bookings": "parents"},
        dp_links.OWN_KEY: ["review"],
        dp_links.BY_REFERENCE: by_reference,
    }
    link = dp_links.link_of(session, dataset, arguments, ("memory", "main"), 0.1)
    assert [a.name for a in link.sides[0].attributes] == ["stars", "code", "codes.class"]
    assert [a.name for a in link.sides[1].attributes] == ["nights", "listings.kind", "listings.beach"]

    def counted() -> Counter[tuple[Any, ...]]:
        return Counter(exact(f"WITH {link_counts.counting(link, 'some key')} SELECT r0, * FROM joined"))

    before = counted()
    assert sum(before.values()) > 300
    for guest in (0, 17, 298):
        exact(
            f"BEGIN; DELETE FROM reviews WHERE booking // 2 = {guest}; DELETE FROM bookings WHERE guest = {guest}; DELETE FROM guests WHERE guest = {guest}"
        )
        after = counted()
        exact("ROLLBACK")
        gone = before - after
        assert not after - before
        assert 0 < sum(gone.values()) <= link.request.max_rows
        assert {row[0] for row in gone} == {guest}
