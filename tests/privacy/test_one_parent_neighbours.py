"""Links of tables whose rows are somebody's by a join: one unit is one parent with its children, whatever keys the tables hold."""

from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.sql import chosen_parents, dp_links, link_counts
from duckdb_dp.sql.bindings import LOADED
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


def link_of(session: Session, table: Table) -> Link:
    """The link of a table's rows to their parents."""
    assert table.parent is not None
    dataset = session.ledger.dataset("memory", "main", table.name)
    assert dataset is not None
    synthetic = {table.name: "children_syn", table.parent.name: "parents_syn"}
    arguments = {"synthetic": synthetic, dp_links.OWN_KEY: ["id"]}
    return dp_links.link_of(session, dataset, arguments, ("memory", "main"), 0.1)


def counted(db: Loaded, link: Link) -> tuple[Counter[tuple[object, ...]], Counter[tuple[object, ...]]]:
    """The parents and the links that are counted."""
    ctes = link_counts.counting(link, "some key")
    return Counter(db(f"WITH {ctes} FROM rights")), Counter(db(f"WITH {ctes} SELECT r0, * FROM joined"))


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", range(300, 330))
def test_a_unit_is_one_parent_with_its_children(db: Loaded, seed: int) -> None:
    """Every unit with a parent has one; without the unit that one and its links go, and of others nothing comes or goes."""
    schema = Schema(seed)
    schema.create(db)
    session = LOADED[db("SELECT _dp_loaded()")[0][0]].session
    members = {table.name for table in schema.members}
    tables = [one for one in schema.members if one.parent is not None and one.parent.parent is not None]
    tables += [one for one in schema.members if one.parent in schema.members and one.parent.column == "userid"]
    assert all(one.parent is not None and one.parent.name in members for one in tables)
    links = {table.name: link_of(session, table) for table in tables}
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
