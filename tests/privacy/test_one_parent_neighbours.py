"""Links of tables whose rows are somebody's by a join: one unit is one parent with its children, whatever keys the tables hold."""

import random
from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.sql import catalog, chosen_parents, dp_links, inherited_columns, link_counts
from duckdb_dp.sql.bindings import LOADED
from duckdb_dp.sql.joined_columns import JoinedColumns
from duckdb_dp.sql.links import Link
from duckdb_dp.sql.session import Session
from tests.conftest import Loaded
from tests.privacy.test_family_neighbours import Schema, Table


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """A database without noise."""
    folder = tmp_path_factory.mktemp("parents") / "l.dp"
    with duckdb.connect() as con:
        duckdb_dp.testing.load_exact(con, folder)
        yield Loaded(con, folder)


def link_of(session: Session, table: Table, *, inherited: bool = False) -> Link:
    """The link of a table's rows to their parents, with what these have by the rows to which they refer."""
    assert table.parent is not None
    dataset = session.ledger.dataset("memory", "main", table.name)
    assert dataset is not None
    synthetic = {table.name: "children_syn", table.parent.name: "parents_syn"}
    arguments: dict[str, object] = {"synthetic": synthetic, dp_links.OWN_KEY: ["id"]}
    if inherited:
        found = inherited_columns_of(session, table.parent)
        arguments[dp_links.BY_REFERENCE] = {("memory", "main", table.parent.name): tuple(found)}
    return dp_links.link_of(session, dataset, arguments, ("memory", "main"), 0.1)


def inherited_columns_of(session: Session, table: Table) -> list[JoinedColumns]:
    """What a table's rows have by the rows to which they refer."""
    if table.parent is None:
        return []
    dataset = session.ledger.dataset("memory", "main", table.name)
    assert dataset is not None
    known = catalog.of(session, dataset)
    assert known is not None
    references, _ = dp_links.references_of(session, dataset, known)
    return [*inherited_columns.chosen(session, dataset, known, references, {}, ("memory", "syn"))]


def counted(db: Loaded, link: Link) -> tuple[Counter[tuple[object, ...]], Counter[tuple[object, ...]]]:
    """The parents and the links that are counted."""
    ctes = link_counts.counting(link, "some key")
    return Counter(db(f"WITH {ctes} FROM rights")), Counter(db(f"WITH {ctes} SELECT r0, * FROM joined"))


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", range(300, 330))
def test_a_unit_is_one_parent_with_its_children(db: Loaded, seed: int) -> None:
    """Every unit with a parent has one; without the unit that one and its links go, and of others nothing comes or goes.

    So it is where parents have columns of the rows to which they refer, which are the unit's own.
    """
    schema = Schema(seed)
    schema.create(db)
    session = LOADED[db("SELECT _dp_loaded()")[0][0]].session
    members = {table.name for table in schema.members}
    tables = [one for one in schema.members if one.parent is not None and one.parent.parent is not None]
    tables += [one for one in schema.members if one.parent in schema.members and one.parent.column == "userid"]
    assert all(one.parent is not None and one.parent.name in members for one in tables)
    links = {table.name: link_of(session, table, inherited=seed % 2 == 1 or seed % 6 == 0) for table in tables}
    schema.fill(db, {table.name: list(table.rows) for table in schema.tables})
    before = {name: counted(db, link) for name, link in links.items()}
    for table in tables:
        parents, joined = before[table.name]
        assert table.parent is not None
        keyed = [row for row in table.parent.rows if row["id"] is not None]
        having = {unit for row in keyed for unit in schema.owners(table.parent, row)}
        assert parents.total() == len(having) == len({row[0] for row in parents})
        children = Counter((owner, row["ref"]) for row in table.rows for owner in schema.owners(table, row))
        for owner, count in Counter(row[0] for row in joined.elements()).items():
            unit = bytes(owner).decode() if schema.text else owner
            assert count in {min(n, table.bound) for (one, _), n in children.items() if one == unit}
    for unit in [*schema.names[:4], schema.far]:
        schema.fill(db, schema.without(unit))
        for table in tables:
            (parents, joined), (fewer, less) = before[table.name], counted(db, links[table.name])
            assert not fewer - parents
            assert not less - joined
            assert (parents - fewer).total() <= 1
            assert (joined - less).total() <= table.bound
            assert {row[0] for row in joined - less} <= {row[0] for row in parents - fewer}


@pytest.mark.slow
def test_columns_of_the_units_rows_are_read_where_they_are_its_own(db: Loaded) -> None:
    """By a column that names the unit, or by a key that a constraint keeps from two rows; by no other."""
    read, left = set[tuple[str, bool]](), set[tuple[str, bool]]()
    for seed in range(400, 460):
        schema = Schema(seed)
        schema.create(db)
        session = LOADED[db("SELECT _dp_loaded()")[0][0]].session
        for table in (one for one in schema.members if one.parent in schema.members):
            assert table.parent is not None
            found = inherited_columns_of(session, table)
            kind = "unit" if table.parent.name.startswith("people") else "parent"
            (read if found else left).add((kind, table.parent.keyed))
            assert [a.name for one in found for a in one.attributes] == [f"{table.parent.name}.x"] * len(found)
    assert read == {("unit", False), ("unit", True), ("parent", True)}
    assert left == {("parent", False)}


@pytest.mark.parametrize("seed", range(300, 330))
def test_which_references_are_drawn(db: Loaded, seed: int) -> None:
    """Those that lead to rows of the unit by a key of theirs; not the unit itself, which is linked with all its rows."""
    schema = Schema(1000 + seed)
    schema.create(db)
    session = LOADED[db("SELECT _dp_loaded()")[0][0]].session
    for table in schema.members:
        if table.parent is None:
            continue
        dataset = session.ledger.dataset("memory", "main", table.name)
        assert dataset is not None
        references, _ = dp_links.references_of(session, dataset, dp_links.catalog.of(session, dataset))
        of_unit = table.parent.name.startswith("people")
        assert [chosen_parents.of_one(session, dataset, one) for one in references] == [not of_unit]


@pytest.mark.some(2, "declared")
@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_parent_by_a_key_that_names_the_unit_is_the_units_own(db: Loaded, seed: int, declared: bool) -> None:
    """Marks of what people have taken name the person too, by whom they are owned: whatever keys dangle, are NULL, or repeat.

    A column of the key that is an attribute of what was taken changes nothing of this.
    """
    rng = random.Random(seed)
    suffix = f"{seed}{'d' if declared else ''}"
    db(f"CREATE TABLE who{suffix} (id INTEGER); INSERT INTO who{suffix} FROM range(8)")
    db(f"CREATE TABLE taken{suffix} (id INTEGER, course VARCHAR, x INTEGER); CREATE TABLE marks{suffix} (n INTEGER, id INTEGER, course VARCHAR, y INTEGER)")  # fmt: skip
    people, courses = [*range(9), None], ["a", "b", "C", "c", None]
    taken = [(rng.choice(people), rng.choice(courses), rng.randrange(3)) for _ in range(30)]
    marks = [(i, rng.choice(people), rng.choice(courses), rng.randrange(2)) for i in range(60)]
    both = f"[{{'columns': ['id', 'course'], 'references': ['taken{suffix}.id', 'taken{suffix}.course']}}]"
    for table in ("taken", "marks"):
        db(f"CALL dp_link('{table}{suffix}', \"references\" := {{'id': 'who{suffix}.id'}})")
    named = f"['who{suffix}', 'taken{suffix}', 'marks{suffix}'], unit := 'who{suffix}.id'"
    db(f"CALL dp_protect({named}, max_rows := {{'taken{suffix}': 2, 'marks{suffix}': 3}}, rho := 100)")
    db(f"CALL dp_link('marks{suffix}', \"references\" := {both})")
    db(
        f"CALL dp_attribute('taken{suffix}', 'x', low := 0, high := 2); CALL dp_attribute('marks{suffix}', 'y', low := 0, high := 1)"
    )
    if declared:
        db(f"CALL dp_attribute('taken{suffix}', 'course', \"values\" := ['C', 'b', 'c'])")
    session = LOADED[db("SELECT _dp_loaded()")[0][0]].session
    dataset = session.ledger.dataset("memory", "main", f"marks{suffix}")
    assert dataset is not None
    synthetic = {f"marks{suffix}": "children_syn", f"taken{suffix}": "parents_syn"}
    numbered: dict[str, object] = {dp_links.NUMBERED: {("memory", "main", f"taken{suffix}"): ()}} if declared else {}
    link = dp_links.link_of(
        session, dataset, {"synthetic": synthetic, dp_links.OWN_KEY: ["n"]} | numbered, ("memory", "main"), 0.1
    )
    assert [attribute.name for attribute in link.sides[1].attributes] == ["x", "course"][: 1 + declared]

    def without(unit: int | None) -> tuple[Counter[tuple[object, ...]], Counter[tuple[object, ...]]]:
        for table, rows, place in (("who", [(i,) for i in range(8)], 0), ("taken", taken, 0), ("marks", marks, 1)):
            kept = [row for row in rows if unit is None or row[place] != unit]
            db(f"DELETE FROM {table}{suffix}")
            db.connection.executemany(f"INSERT INTO {table}{suffix} VALUES ({', '.join('?' * len(kept[0]))})", kept)
        return counted(db, link)

    parents, joined = without(None)
    assert joined.total() > 0
    assert len({row[0] for row in parents}) == parents.total()
    if declared:  # each link's cell has the course of its own parent
        courses = link.sides[1].attributes[1].points
        assert {(row[0], courses[row[-1] % len(courses)]) for row in joined} <= {row[:2] for row in taken}
    for unit in range(9):
        fewer, less = without(unit)
        assert not fewer - parents
        assert not less - joined
        assert (parents - fewer).total() <= 1
        assert (joined - less).total() <= 3
