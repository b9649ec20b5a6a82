"""Dates of a child and of its parent, by day: synthetic rows keep how far they are apart."""

from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_reviews_are_written_after_the_stay(db: Any, kind: str) -> None:
    """Three to twelve days, of 1,000 days of stays; every guest has one or two."""
    start = f"{kind} '2020-01-01'"
    db(
        "CREATE TABLE guests (id INTEGER PRIMARY KEY, land INTEGER); INSERT INTO guests SELECT i, i % 4 FROM range(2500) t(i);"
        f"CREATE TABLE stays (id INTEGER PRIMARY KEY, guest INTEGER REFERENCES guests(id), day {kind});"
        f"INSERT INTO stays SELECT i, i % 2500, {start} + to_days((hash(i) % 980)::INTEGER) FROM range(4000) t(i);"
        f"CREATE TABLE reviews (id INTEGER PRIMARY KEY, stay INTEGER REFERENCES stays(id), day {kind});"
        "INSERT INTO reviews SELECT id, id, day + to_days((3 + hash(id * 7) % 10)::INTEGER) FROM stays WHERE id % 5 < 3;"
        "CALL dp_protect(['guests', 'stays', 'reviews'], unit := 'guests.id', max_rows := {'guests': 1, 'stays': 2, 'reviews': 2}, rho := 50);"
        "CALL dp_attribute('guests', 'land', low := 0, high := 3);"
        "CALL dp_attribute('stays', 'day', low := '2020-01-01', high := '2022-09-30', step := INTERVAL 1 DAY);"
        "CALL dp_attribute('reviews', 'day', low := '2020-01-01', high := '2022-09-30', step := INTERVAL 1 DAY);"
    )
    asked = "'main', tables := ['guests', 'stays', 'reviews'], target := 'made', rho := 30"
    done = db(f"CALL dp_synthesize_database({asked})")
    assert any(
        "how far their bins are apart, to a factor of 2: reviews.day x stays.day" in str(row[-1]) for row in done
    )
    apart = "date_diff('day', s.day, r.day)"
    found = (
        f"SELECT avg(({apart} > 0)::INTEGER), avg(({apart} BETWEEN 1 AND 31)::INTEGER), corr(epoch(s.day), epoch(r.day)) "
        "FROM {0}.reviews r JOIN {0}.stays s ON r.stay = s.id"
    )
    assert db(found.format("main")) == [(1.0, 1.0, pytest.approx(1, abs=0.001))]
    ((after, month, alike),) = db(found.format("made"))
    assert after >= 0.9
    assert month >= 0.8
    assert alike >= 0.8
