"""How many links rows have by attributes of many values."""

from typing import Any

import pytest


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["INTEGER", "DATE"])
@pytest.mark.parametrize("rho", [0.5, 20])
def test_rows_have_their_links_by_attributes_of_many_values(db: Any, kind: str, rho: float) -> None:
    """Of 100 values; those of the upper half have three visits each, others one."""
    moment = "i % 100" if kind == "INTEGER" else "DATE '2000-01-01' + (i % 100)::INTEGER"
    ends = "low := 0, high := 99" if kind == "INTEGER" else "low := '2000-01-01', high := '2000-04-09'"
    db(
        "CREATE TABLE events (id INTEGER PRIMARY KEY, size INTEGER); INSERT INTO events SELECT i, i % 3 FROM range(60) t(i);"
        f"CREATE TABLE guests (id INTEGER PRIMARY KEY, born {kind}); INSERT INTO guests SELECT i, {moment} FROM range(2000) t(i);"
        "CREATE TABLE visits (guest INTEGER REFERENCES guests(id), event INTEGER REFERENCES events(id), PRIMARY KEY (guest, event));"
        "INSERT INTO visits SELECT g.i, (g.i * 7 + v * 11) % 60 FROM range(2000) g(i), range(3) v(v) WHERE v = 0 OR g.i % 100 >= 50;"
        f"CALL dp_protect(['guests', 'visits'], unit := 'guests.id', max_rows := {{'guests': 1, 'visits': 4}}, rho := {3 * rho});"
        f"CALL dp_public(['events']); CALL dp_attribute('guests', 'born', {ends});"
        f"CALL dp_synthesize_database('main', tables := ['guests', 'visits'], target := 'made', rho := {2 * rho});"
    )
    of_halves = (
        "SELECT avg(n) FROM (SELECT g.id, g.born, count(v.event) AS n FROM {0}.guests g LEFT JOIN {0}.visits v ON v.guest = g.id GROUP BY ALL) "
        "GROUP BY born >= (SELECT median(born) FROM main.guests) ORDER BY 1"
    )
    (true_low,), (true_high,) = db(of_halves.format("main"))
    (low,), (high,) = db(of_halves.format("made"))
    assert high - low >= (0.5 if rho < 1 else 0.8) * (true_high - true_low)
