"""Rows depend on columns of the unit to whom their parents belong: how a booking was paid on the country of its guest."""

import itertools
from typing import Any

import pytest

from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.sql import inherited_columns
from tests.conftest import Loaded
from tests.sql.test_joined_columns import distance

TABLES = """
CREATE TABLE guests (guest INTEGER {key}, land VARCHAR, born INTEGER, town VARCHAR);
INSERT INTO guests SELECT i, ['no', 'pe'][1 + i % 2], 1950 + i % 50, 't' || i % 20 FROM range({guests}) r(i);
CREATE TABLE bookings (booking INTEGER {key}, guest INTEGER NOT NULL {to_guests}, nights INTEGER);
INSERT INTO bookings SELECT 2 * i + n, i, hash(i, n) % 3 FROM range({guests}) r(i), range(2) s(n);
CREATE TABLE payments (payment INTEGER {key}, booking INTEGER NOT NULL {to_bookings}, how VARCHAR);
INSERT INTO payments SELECT 2 * booking + n, booking, CASE WHEN (hash(booking, n) % 5 > 0) = (guest % 2 = 0) THEN 'cash' ELSE 'card' END
    FROM bookings, range(2) s(n) WHERE n <= nights % 2;
"""
KEYS = {"key": "PRIMARY KEY", "to_guests": "REFERENCES guests (guest)", "to_bookings": "REFERENCES bookings (booking)"}
DECLARED = """
CALL dp_protect(['guests', 'bookings', 'payments'], unit := 'guests.guest', rho := 1e6, max_rows := {'bookings': 2, 'payments': 4});
CALL dp_attributes('guests', {'land': ['no', 'pe'], 'born': {'low': 1950, 'high': 1999}, 'town': ['t0', 't1', 't2', 't3', 't4', 't5', 't6', 't7', 't8']});
CALL dp_attributes('bookings', {'nights': [0, 1, 2]});
CALL dp_attributes('payments', {'how': ['cash', 'card']});
"""
LINKED = """
CALL dp_link('bookings', "references" := {'guest': 'guests.guest', 'booking': 'bookings.booking'});
CALL dp_link('payments', "references" := {'booking': 'bookings.booking', 'payment': 'payments.payment'});
"""
NO_KEYS = dict.fromkeys(KEYS, "")
MADE = "CALL dp_synthesize_database('main', target := 'syn', tables := ['guests', 'bookings', 'payments'], rho := {}{})"
READ = "measured too: what rows have in common with land, born of 'guests', to which 'bookings' refers"
LANDS = "SELECT land, how, count(*) FROM {0}.payments JOIN {0}.bookings USING (booking) JOIN {0}.guests USING (guest) GROUP BY ALL"


def declared(guests: int = 300, *, keys: bool = True) -> str:
    """Statements of the schema, with constraints or without."""
    made = TABLES.format(guests=guests, **(KEYS if keys else NO_KEYS))
    return made + ("" if keys else LINKED) + DECLARED


@pytest.mark.some(1)
@pytest.mark.parametrize("keys", [True, False])
def test_rows_keep_what_they_have_in_common_with_the_unit_two_references_away(exact: Loaded, *, keys: bool) -> None:
    exact(declared(keys=keys))
    assert READ in exact(MADE.format(300, ", plan := true"))[-1][-1]
    exact(MADE.format(300, ""))
    assert distance(exact, LANDS) < 0.1  # and 0.6 where nothing is known of it
    assert distance(exact, LANDS.replace("land", "nights")) < 0.1


@pytest.mark.slow
def test_it_is_kept_with_noise(db: Loaded) -> None:
    db(declared(guests=2000))
    db(MADE.format(0.3, ""))
    assert distance(db, LANDS) < 0.35


@pytest.mark.slow
def test_rows_that_are_stored_without_are_found_again(exact: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """As earlier versions stored them; and those that are stored with it as they are."""
    exact(declared())
    with monkeypatch.context() as earlier:
        earlier.setattr(inherited_columns, "chosen", lambda *_: ())
        assert "measured too" not in str(exact(MADE.format(50, "")))
    rows = "SELECT how, booking FROM syn.payments ORDER BY payment"
    for more in ("", ", fresh := true"):
        exact("DROP SCHEMA syn CASCADE")
        assert ("measured too" in str(exact(MADE.format(50, more)))) == bool(more)
        charges, before = exact.charges(), exact(rows)
        exact("DROP SCHEMA syn CASCADE")
        assert ("measured too" in str(exact(MADE.format(50, "")))) == bool(more)
        assert (exact.charges(), exact(rows)) == (charges, before)


@pytest.mark.slow
def test_of_four_generations_the_parents_parents_are_read(exact: Loaded) -> None:
    """An item of a payment depends on the booking, whose key is unique by a constraint."""
    exact(TABLES.format(guests=300, **KEYS))
    exact("""
        CREATE TABLE items (item INTEGER PRIMARY KEY, payment INTEGER NOT NULL REFERENCES payments (payment), kind INTEGER);
        INSERT INTO items SELECT payment, payment, (nights + (hash(payment) % 5 = 0)::INTEGER) % 3 FROM payments JOIN bookings USING (booking);
    """)
    exact(DECLARED.replace("'payments']", "'payments', 'items']").replace("'payments': 4", "'payments': 4, 'items': 4"))
    exact("CALL dp_attributes('items', {'kind': [0, 1, 2]})")
    made = exact(MADE.replace("'payments'", "'payments', 'items'").format(400, ""))
    assert "nights of 'bookings', to which 'payments' refers" in made[-1][-1]
    kinds = "SELECT nights, kind, count(*) FROM {0}.items JOIN {0}.payments USING (payment) JOIN {0}.bookings USING (booking) "
    assert distance(exact, kinds + "GROUP BY ALL") < 0.25


@pytest.mark.slow
def test_of_parents_that_are_links_of_people_and_public_rows(exact: Loaded) -> None:
    exact(TABLES.format(guests=300, **KEYS))
    exact("CREATE TABLE rooms AS SELECT i AS room FROM range(100) r(i); CALL dp_public('rooms')")
    exact("ALTER TABLE bookings ADD COLUMN room BIGINT; UPDATE bookings SET room = booking % 100")
    exact("CALL dp_link('bookings', \"references\" := {'guest': 'guests.guest', 'room': 'rooms.room'})")
    exact(DECLARED)
    made = exact(MADE.format(400, ""))
    assert [row[2] for row in made] == ["rows", "links to guests and rooms", "rows", "parents in bookings"]
    assert READ in made[-1][-1]
    assert distance(exact, LANDS) < 0.15


@pytest.mark.parametrize("changed", ["guests", "bookings"])
@pytest.mark.parametrize("type_", ["DOUBLE", "DECIMAL(9,1)", "BIGINT", "VARCHAR"])
def test_nothing_is_read_by_keys_of_types_that_differ(exact: Loaded, changed: str, type_: str) -> None:
    """Rows are somebody's by values: of '7' and '7.0' one would be read for the other, which is another person's."""
    exact(declared(keys=False))
    assert READ in exact(MADE.format(300, ", plan := true"))[-1][-1]
    exact(f"ALTER TABLE {changed} ALTER COLUMN guest TYPE {type_}")
    if type_ == "BIGINT" or changed == "bookings":
        assert "measured too" not in str(exact(MADE.format(300, ", plan := true")))
        return
    before = exact.charges()
    assert "keys of synthetic rows are" in exact.refused(MADE.format(300, ""))
    assert exact.charges() == before


@pytest.mark.some(1)
@pytest.mark.parametrize("keys", [True, False])
def test_a_reference_that_is_declared_as_an_attribute_holds_other_keys_all_the_same(
    exact: Loaded, *, keys: bool
) -> None:
    """Synthetic guests are numbered, beyond what was declared of the bookings' own column."""
    exact(declared(keys=keys))
    exact("CALL dp_attribute('bookings', 'guest', low := 0, high := 7)")
    made = exact(MADE.format(300, ""))
    assert READ in made[-1][-1]
    ((lost, most),) = exact(
        "SELECT count(*) FILTER (g.guest IS NULL), max(b.guest) FROM syn.bookings b LEFT JOIN syn.guests g USING (guest)"
    )
    assert lost == 0
    assert most > 7


ATTRIBUTES: list[dict[str, Any]] = [
    {"type": "INTEGER", "low": 0, "high": 6},
    {"type": "INTEGER", "low": 1900, "high": 2025},
    {"type": "INTEGER", "low": 0, "high": 7, "nulls": True},
    {"type": "INTEGER", "low": 0, "high": 8},
    {"type": "INTEGER", "low": 0, "high": 1000, "step": 50, "other": True},
    {"type": "DATE", "low": "2020-01-01", "high": "2024-12-31", "step": "1 month"},
    {"type": "DECIMAL(8,2)", "low": 0, "high": 10, "step": 0.25},
    {"type": "DOUBLE", "bins": [0, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256], "decimals": 2, "nulls": True},
    {"type": "VARCHAR", "values": list("abcdefgh"), "other": True},
    {"type": "DATE", "low": "2020-01-01", "high": "2020-02-15"},
    {"type": "INTEGER", "values": [30, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89], "nulls": True},
]


@pytest.mark.parametrize("told", ATTRIBUTES, ids=lambda told: f"{told['type']} {len(told)}")
def test_values_in_order_are_put_together_and_none_is_lost(told: dict[str, Any]) -> None:
    attribute = declare(name="x", **told)
    found = inherited_columns.coarse(attribute)
    assert found is not None
    assert found.base == min(attribute.base, inherited_columns.VALUES)
    assert found is attribute or found.kind == "bins"
    assert (found.other, found.nulls, found.type) == (attribute.other, attribute.nulls, attribute.type)
    if found is not attribute:
        order = dict(zip(attribute.dtype.orders(attribute.points), attribute.points, strict=True))
        assert (found.points[0], found.points[-1]) == (order[min(order)], order[max(order)])
        if attribute.kind != "integers":
            assert {*found.points} <= {*attribute.points}


def test_of_more_values_without_an_order_nothing_is_read() -> None:
    many = itertools.islice(map(str, itertools.count()), inherited_columns.VALUES + 1)
    assert inherited_columns.coarse(Attribute(name="x", type="VARCHAR", kind="values", points=tuple(many))) is None
