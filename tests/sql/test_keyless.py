"""Child tables without a PRIMARY KEY, as CREATE TABLE AS FROM a file makes them."""

import pytest

from tests.conftest import Loaded

TABLES = """
CREATE TABLE owners AS SELECT i AS owner_id, i % 3 AS kind FROM range(200) r(i);
CREATE TABLE pets AS SELECT i % 200 AS owner_id, i % 4 AS legs, 'p' || i AS tag FROM range(500) r(i);
CREATE VIEW seen AS FROM pets;
CALL dp_protect('owners', rho := 90, unit := 'owner_id', max_rows := 1);
CALL dp_protect('pets', rho := 90, unit := 'owner_id', max_rows := 4);
CALL dp_attributes('owners', {'kind': [0, 1, 2]});
CALL dp_attributes('pets', {'legs': [0, 1, 2, 3]});
CALL dp_link('pets', "references" := {'owner_id': 'owners.owner_id'});
CREATE TABLE owners_syn AS SELECT * EXCLUDE (private) FROM dp_synthesize('owners', rho := 1, key := 'owner_id');
CREATE TABLE pets_syn AS SELECT * EXCLUDE (private) FROM dp_synthesize('pets', rho := 1);
"""
LINKS = "FROM dp_links('pets', synthetic := {{'pets': '{}', 'owners': 'owners_syn'}}, rho := 1)"


@pytest.mark.slow
@pytest.mark.parametrize(("key", "type_"), [("tag", "VARCHAR"), ("rowid", "BIGINT")])
def test_a_key_is_named_when_it_is_needed(exact, key: str, type_: str) -> None:
    exact(TABLES)
    line = exact.refused(LINKS.format("pets_syn"))
    assert "'pets' has no PRIMARY KEY that identifies its rows" in line
    assert "CALL dp_link('pets', \"references\" := {'rowid': 'pets.rowid'})" in line
    call = f"CALL dp_link('pets', \"references\" := {{'{key}': 'pets.{key}'}})"
    assert [row[2] for row in exact(call)] == ["owners(owner_id)", f"pets({key})"]
    assert exact(call) == exact(call)
    for other in (
        "{'legs': 'pets.legs'}",
        "{'owner_id': 'owners.kind'}",
        f"{{'owner_id': 'owners.kind', '{key}': 'pets.{key}'}}",
    ):
        assert "a declaration stays" in exact.refused(f"CALL dp_link('pets', \"references\" := {other})")
    exact("CREATE TABLE keyed AS SELECT * EXCLUDE (private) FROM dp_synthesize('pets', rho := 1, fresh := true)")
    assert exact.columns("FROM keyed")[0] == (key, type_)
    ((rows, keys, owners),) = exact(
        f"SELECT count(*), count(DISTINCT {key}), count(owner_id) FROM ({LINKS.format('keyed')}) SEMI JOIN owners_syn USING (owner_id)"
    )
    assert rows == keys == owners > 400
    exact("FROM dp_synthesize_database('main', target := 'made', tables := ['owners', 'pets'], rho := 2)")
    ((rows, keys),) = exact(
        f"SELECT count(*), count(DISTINCT {key}) FROM made.pets SEMI JOIN made.owners USING (owner_id)"
    )
    assert rows == keys > 400


def test_what_is_no_key(exact) -> None:
    exact(TABLES)
    exact("CALL dp_protect('seen', rho := 1, unit := 'owner_id', max_rows := 4)")
    ask = "CALL dp_link('{}', \"references\" := {{'owner_id': 'owners.owner_id', '{}': '{}'}})".format
    assert "'seen' is a view, whose rows have no rowid" in exact.refused(ask("seen", "rowid", "seen.rowid"))
    assert "has no column 'rowid'" in exact.refused(ask("pets", "rowid", "owners.rowid"))
    assert "has no column 'gone'" in exact.refused(ask("pets", "gone", "pets.gone"))


@pytest.mark.parametrize("key", ["tag", "rowid"])
def test_a_key_may_be_named_before_tables_are_protected_together(exact: Loaded, key: str) -> None:
    exact(TABLES.split("CREATE VIEW")[0])
    exact(f"CALL dp_link('pets', \"references\" := {{'owner_id': 'owners.owner_id', '{key}': 'pets.{key}'}})")
    exact("CALL dp_protect(['owners', 'pets'], unit := 'owners.owner_id', max_rows := 'auto', rho := 90)")
    exact("CALL dp_attributes('owners', {'kind': [0, 1, 2]}); CALL dp_attributes('pets', {'legs': [0, 1, 2, 3]})")
    exact(
        "FROM dp_synthesize_database('main', target := 'made', tables := ['owners', 'pets'], max_rows := {'owners': 1, 'pets': 3}, rho := 9)"
    )
    ask = "FROM dp_quality('pets', 'made.pets', synthetic := {'pets': 'made.pets', 'owners': 'made.owners'}, "
    for call, word in (("FROM dp_quality('owners', 'made.owners', ", "max_rows"), (ask, "max_degree")):
        for budget in ("exact := true", "rho := 1"):
            assert f"add {word} := 1" in exact.refused(f"{call}{budget})")
            assert exact(f"{call}{budget}, {word} := 3)")


PEOPLE = """
CREATE TABLE people_of_a_file AS SELECT i % 50 AS person, i % 2 AS sex FROM range(60) t(i);
CREATE TABLE stays AS SELECT i % 50 AS person, i % 3 AS ward, i AS stay FROM range(300) t(i);
CREATE TABLE meals AS SELECT i AS stay FROM range(300) t(i);
CALL dp_link('stays', "references" := {'person': 'people_of_a_file.person'});
CALL dp_link('meals', "references" := {'stay': 'stays.stay'});
"""


@pytest.mark.parametrize(
    ("tables", "unit", "said", "rows"),
    [
        (["people_of_a_file", "stays"], "people_of_a_file.person", "{'stays': 9}", 1),
        (["people_of_a_file", "stays"], "people_of_a_file.person", "NULL", 1),
        (["people_of_a_file", "stays"], "people_of_a_file.person", "'auto'", None),
        (["people_of_a_file", "stays"], "people_of_a_file.person", "{'people_of_a_file': 'auto'}", None),
        (["people_of_a_file", "stays"], "people_of_a_file.person", "{'people_of_a_file': 2}", 2),
        (["stays", "meals"], "stays.person", "NULL", None),  # its key is another one than the unit
    ],
)
def test_a_table_of_people_without_a_key_counts_one_row_of_each(
    exact: Loaded, tables: list[str], unit: str, said: str, rows: int | None
) -> None:
    exact(PEOPLE)
    protect = f"CALL dp_protect({tables}, unit := '{unit}', max_rows := {said}, mu := 9)"
    note = exact(protect)[0][-1]
    assert exact(protect)[0][-1] == note
    wanted = {
        1: "one row of each counts",
        2: "at most 2 rows of each count",
        None: "each request of dp_sql chooses privately",
    }
    assert note.startswith(wanted[rows])
    if rows is None:
        assert "needs one: add max_rows := 1 where a unit has one row" in exact.refused(
            f"FROM dp_marginals('{tables[0]}', [[]], mu := 1)"
        )
    else:
        (count,) = exact(f"SELECT count FROM dp_marginals('{tables[0]}', [[]], mu := 1)")[0]
        assert round(count) == (50 if rows == 1 else 60)


def test_what_was_declared_without_a_number_stays_so(exact: Loaded) -> None:
    exact(PEOPLE)
    protect = "CALL dp_protect(['people_of_a_file', 'stays'], unit := 'people_of_a_file.person', mu := 9{})"
    note = exact(protect.format(", max_rows := 'auto'"))[0][-1]
    assert exact(protect.format(""))[0][-1] == note
    assert "a declaration stays" in exact.refused(protect.format(", max_rows := {'people_of_a_file': 1}"))
