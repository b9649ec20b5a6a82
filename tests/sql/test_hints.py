"""Advice in messages can be followed as it is written, by whoever reads it."""

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TABLES = """
CREATE TABLE staff (id INTEGER PRIMARY KEY, old BOOLEAN, boss INTEGER);
CREATE TABLE teams (tid INTEGER PRIMARY KEY, good BOOLEAN);
CREATE TABLE matches (home INTEGER REFERENCES teams (tid), away INTEGER REFERENCES teams (tid));
INSERT INTO staff SELECT i, i % 2 = 0, i // 2 FROM range(9) t(i); INSERT INTO teams SELECT i, i % 2 = 0 FROM range(4) t(i);
INSERT INTO matches SELECT i % 4, (i + 1) % 4 FROM range(8) t(i);
CALL dp_protect('staff', rho := 9); CALL dp_protect('teams', rho := 9);
CALL dp_attributes('staff'); CALL dp_attributes('teams');
CALL dp_link('staff', "references" := {'boss': 'staff.id'});
CREATE TABLE staff_syn AS SELECT 1 AS id, true AS old; CREATE TABLE teams_syn AS SELECT 1 AS tid, true AS good;
CREATE TABLE own AS SELECT i AS home, i AS away FROM range(50, 55) t(i); CALL dp_public(['staff_syn', 'teams_syn', 'own']);
"""


@pytest.fixture(scope="module")
def linked(shared: Loaded) -> Loaded:
    shared(TABLES)
    shared("CALL dp_protect('matches', unit := 'home', max_rows := 3, rho := 9)")
    return shared


def test_a_table_that_refers_to_itself(linked: Loaded) -> None:
    found = linked.refused("FROM dp_links('staff', synthetic := {'boss': 'staff_syn'}, rho := 1)")
    assert "synthetic := {'staff': 'staff_syn'}" in found


def test_a_key_that_is_there_already_is_not_asked_for(linked: Loaded) -> None:
    found = linked.refused("FROM dp_links('matches', synthetic := {'teams': 'teams_syn'}, rho := 1)")
    assert "CALL dp_public('teams', links := 'matches')" in found
    assert "PRIMARY KEY" not in found


def test_links_that_join_nothing_are_no_empty_table(linked: Loaded) -> None:
    linked("CALL dp_public('teams', links := 'matches')")
    found = linked.refused("FROM dp_quality('matches', 'own', synthetic := {'teams': 'teams_syn'}, rho := 1)")
    assert "refers to rows of" in found
    assert "no rows" not in found


def test_an_empty_list_of_attributes(linked: Loaded) -> None:
    for call in (
        "dp_quality('people', 'staff_syn', attributes := [], mu := 1)",
        "dp_synthesize('people', attributes := [], mu := 1)",
    ):
        assert "attributes is []; name some" in linked.refused(f"FROM {call}")


def test_the_ledger_names_the_bound_that_a_release_was_drawn_for(linked: Loaded) -> None:
    linked("CALL dp_public('teams', links := 'matches')")
    linked("FROM dp_links('matches', synthetic := {'teams': 'teams_syn'}, max_degree := 8, rho := 1)")
    ((neighbours,),) = linked("SELECT neighbours FROM dp_ledger() WHERE function = 'dp_links'")
    assert neighbours == "add or remove one 'home' with up to 8 rows"


def test_unknown_mechanisms_are_told_what_the_function_takes(linked: Loaded) -> None:
    found = linked.refused("FROM dp_marginals('people', ['sex'], mu := 1, mechanism := 'foo')")
    assert "'laplace', 'aim', 'neyman'." in found
    found = linked.refused("FROM dp_queries('people', {'sex': 'identity'}, mu := 1, mechanism := 'foo')")
    assert "'laplace'" not in found
    assert "'aim'" not in found


@pytest.mark.parametrize(
    ("column", "arguments", "says"),
    [
        ("v", "", 'give "values" := [...]'),
        ("z", "", "make it a number, a date or a text in a view"),
        ("z", ", \"values\" := ['2020-01-01']", "make it a number, a date or a text in a view"),
        ("l", ", bins := [1, 2]", "make it a number, a date or a text in a view"),
        ("n", ", low := 0", "lacks high"),
        ("n", ", high := 0", "lacks low"),
    ],
)
def test_declarations_say_what_the_type_can_take(linked: Loaded, column: str, arguments: str, says: str) -> None:
    linked("CREATE TABLE IF NOT EXISTS odd (v VARCHAR, z TIMESTAMPTZ, l INTEGER[], n INTEGER)")
    linked("CALL dp_protect('odd', rho := 1)")
    assert says in linked.refused(f"CALL dp_attribute('odd', '{column}'{arguments})")


def test_an_analyst_is_told_whom_to_ask(linked: Loaded) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE people AS SELECT 1 AS a")
        duckdb_dp.testing.load(con, linked.folder.parent / "other.dp", seed=1)
        con.execute("CALL dp_protect('people', rho := 1)").fetchall()
        duckdb_dp.testing.load(con, linked.folder.parent / "other.dp", seed=1, role="analyst")
        for call in ("dp_marginals('people', ['a'], rho := 1)", "dp_marginals('more', ['a'], rho := 1)"):
            with pytest.raises(duckdb.Error, match="Only the curator can do that: ask the curator"):
                con.execute(f"FROM {call}")


def test_all_tables_that_a_view_may_share_rows_with_are_counted(linked: Loaded) -> None:
    linked("CREATE TABLE base AS SELECT 1 AS x")
    for i in range(5):
        linked(f"CREATE VIEW over_{i} AS FROM base; CALL dp_protect('over_{i}', rho := 1)")
    linked("CREATE VIEW last AS FROM base")
    ((*_, note),) = linked("CALL dp_protect('last', rho := 1)")
    assert "'over_0', 'over_1', 'over_2' and 2 more, with a budget too" in note
