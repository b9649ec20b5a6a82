"""Which pairs were measured in groups of values is said where a database is made, and where stored links are explained."""

from pathlib import Path

import duckdb

import duckdb_dp


def test_the_steps_of_a_database_name_pairs_in_groups(tmp_path: Path) -> None:
    con = duckdb.connect(str(tmp_path / "guests.db"))
    duckdb_dp.load(con)
    con.execute("CREATE TABLE guests (id INT PRIMARY KEY, age INT, income INT, kind INT)")
    con.execute(
        "INSERT INTO guests SELECT i, i * 7 % 80, i * 7 % 80 // 4 + (hash(i) % 39)::INT, i % 2 FROM range(3000) t(i)"
    )
    con.execute("CREATE TABLE hotels (id INT PRIMARY KEY, stars INT)")
    con.execute("INSERT INTO hotels SELECT i, i % 5 FROM range(100) t(i)")
    con.execute("CREATE TABLE stays (guest INT REFERENCES guests(id), hotel INT REFERENCES hotels(id), cost INT)")
    con.execute("INSERT INTO stays SELECT id, (id * 3 + i) % 100, age // 2 FROM guests, range(3) t(i)")
    con.execute(
        "CALL dp_protect(['guests', 'stays'], unit := 'guests.id', max_rows := 5, epsilon := 20, delta := 1e-9)"
    )
    for table, column, high in (
        ("guests", "age", 79),
        ("guests", "income", 59),
        ("guests", "kind", 1),
        ("stays", "cost", 39),
    ):
        con.execute(f"CALL dp_attribute('{table}', '{column}', low := 0, high := {high})")
    con.execute("CALL dp_public('hotels')")
    done = con.execute("CALL dp_synthesize_database('main', target := 'syn', epsilon := 5)").fetchall()
    notes = {row[1]: row[-1] for row in done}
    assert "pairs measured in groups of neighbouring values: age x income" in notes["guests"]
    assert "pairs of attributes of links measured in at most" in notes["stays"]
    assert "guests.age x cost" in notes["stays"]
