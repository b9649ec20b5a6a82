"""Messages are in the words of the statement, answers without values say so, and a request may name its own number of rows."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TABLES = """
CREATE TABLE people (person BIGINT PRIMARY KEY);
INSERT INTO people FROM range(20);
CREATE TABLE stays (stay BIGINT PRIMARY KEY, person BIGINT REFERENCES people(person), ward VARCHAR, days BIGINT);
INSERT INTO stays SELECT i, i % 20, ['a', 'b'][1 + i // 20 % 2], i // 20 FROM range(200) t(i);
CREATE TABLE wards AS SELECT 'a' AS ward;
CREATE TABLE alone AS SELECT i AS id, 'v' || i AS word, i AS number, DATE '2024-01-01' + i::INTEGER AS day FROM range(30) t(i);
CALL dp_protect(['people', 'stays'], unit := 'people.person', max_rows := 'auto', epsilon := 1000, delta := 1e-9);
CALL dp_protect('alone', epsilon := 1000, delta := 1e-9, discovery_delta := 1e-10, another := true);
CALL dp_public('wards');
CALL dp_attribute('stays', 'ward', "values" := ['a', 'b']);
CALL dp_attribute('stays', 'days', low := 0, high := 9);
"""


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder: Path = tmp_path_factory.mktemp("words") / "l.dp"
    connection = duckdb.connect()
    duckdb_dp.testing.load_exact(connection, folder)
    loaded = Loaded(connection, folder)
    for statement in TABLES.strip().split(";\n"):
        loaded(statement)
    yield loaded
    loaded.connection.close()


SAID = [
    ("SELECT 1", "SELECT 1 reads no table: run it as it is"),
    ("SELECT count(*) FROM wards", "reads public tables alone: run it as it is"),
    (
        "SELECT s.ward, count(*) FROM stays s JOIN people p USING (person)",
        "FROM stays AS s JOIN people AS p USING (person) uses",
    ),
    ("SELECT count(*) FROM stays s JOIN people p USING (person) WHERE reduce(s.days) > 1", "s.days"),
    ("SELECT count(*) FROM stays s JOIN people p USING (person) WHERE foo(s.days, p.person) > 1", "s.days"),
    ("SELECT sum(s.days - s.ward) FROM stays s JOIN people p USING (person)", "ward"),
    ("SELECT count(DISTINCT s.ward, s.days) FROM stays s JOIN people p USING (person)", "count(DISTINCT"),
]


@pytest.mark.parametrize(("select", "says"), SAID)
def test_errors_are_in_the_words_of_the_statement(exact: Loaded, select: str, says: str) -> None:
    line = exact.refused("FROM dp_sql(?, mu := 1)", [select])
    assert says in line
    for internal in ("k0", "k1", "joined", "_dp_", "CASE WHEN"):
        assert internal not in line


def test_a_name_is_a_table_in_its_own_definition(exact: Loaded) -> None:
    shadowing = "WITH stays AS (SELECT * FROM stays WHERE days > 4) SELECT count(*) AS n FROM stays"
    rows = exact("SELECT round(n) FROM dp_sql(?, mu := 2, max_rows := 10)", [shadowing])
    assert rows == exact(shadowing)
    twice = "WITH a AS (SELECT * FROM stays), stays AS (SELECT * FROM a WHERE days > 7) SELECT count(*) AS n FROM stays"
    assert exact("SELECT round(n) FROM dp_sql(?, mu := 2, max_rows := 10)", [twice]) == exact(twice)


def test_columns_of_a_view_have_names(exact: Loaded) -> None:
    rows = exact("CALL dp_view('each', 'SELECT person, count(*), max(days) FROM stays GROUP BY person')")
    assert [name for name, *_ in rows] == ["person", "count", "max"]
    assert exact("SELECT round(n) FROM dp_sql('SELECT count(*) AS n FROM each', mu := 2)") == [(20,)]
    line = exact.refused("CALL dp_view('two', 'SELECT person, count(*), count(*) FROM stays GROUP BY person')")
    assert "two columns 'count'" in line


@pytest.mark.parametrize("column", ["word", "number", "day", "upper(word)"])
def test_where_nothing_is_found_all_rows_are_other(exact: Loaded, column: str) -> None:
    select = f"SELECT {column} AS found, count(*) AS n FROM alone GROUP BY {column}"
    own = str(exact.connection.execute(f"SELECT {column} FROM alone").description[0][1])
    cursor = exact.connection.execute("FROM dp_sql(?, mu := 0.5)", [select])
    assert [str(kind[1]) for kind in cursor.description][:2] == [own, "DOUBLE"]
    rows, other = cursor.fetchall(), "other" if own == "VARCHAR" else None
    assert [(label, round(n)) for label, n, *_ in rows] == [(other, 30)]
    assert exact("FROM dp_sql(?, mu := 0.5)", [select]) == rows
    beside = f"SELECT {column} AS found, count(*) AS n FROM alone WHERE id < 10 GROUP BY {column}"
    assert [(row[0], round(row[1])) for row in exact("FROM dp_sql(?, mu := 0.5)", [beside])] == [(other, 10)]
    if column == "word":
        assert exact("FROM dp_discover('alone', 'word', mu := 0.4)") == []
    assert "without values" in exact.refused("CALL dp_attribute('alone', 'word', \"values\" := [], other := true)")


PLANNED = {
    "dp_marginals": "SELECT sum(count) FROM dp_marginals('stays', ['ward'], mu := 2{})",
    "dp_queries": "SELECT max(answer) FROM dp_queries('stays', {{'days': ['days >= 0']}}, mu := 2{})",
    "dp_quantiles": "SELECT count(*) FROM dp_quantiles('stays', 'days', [0.5], mu := 2{})",
    "dp_synthesize": "SELECT count(*) FROM dp_synthesize('stays', mu := 2{})",
    "dp_discover": "SELECT sum(count) FROM dp_discover('stays', 'days', find := 'bounds', mu := 2{})",
}


@pytest.mark.parametrize("function", PLANNED)
def test_a_request_names_its_number_of_rows(exact: Loaded, function: str) -> None:
    """Each of 20 people has 10 rows; the noise is as many times that of one row."""
    statement = PLANNED[function]
    assert "max_rows := 5, say" in exact.refused(statement.format(""))
    assert exact.refused(statement.format(", max_rows := 'auto'"))
    assert exact.refused(statement.format(", max_rows := 0"))
    for rows in (1, 5):
        found = exact(statement.format(f", max_rows := {rows}"))[0][0]
        if function in ("dp_marginals", "dp_queries"):
            assert found == pytest.approx(20 * rows, abs=0.5)
        assert found is not None
    if function == "dp_marginals":
        each = "SELECT stddev FROM dp_explain('stays', ['ward'], mu := 1, max_rows := {})"
        assert exact(each.format(5))[0][0] == pytest.approx(5 * exact(each.format(1))[0][0], rel=1e-3)


@pytest.mark.parametrize("sign", [1, -1])
def test_no_answer_where_most_of_a_sum_may_be_cut_off(exact: Loaded, sign: int) -> None:
    """With little budget the bound that is chosen has most units beyond it; with more it has few."""
    name = "rising" if sign == 1 else "falling"
    exact(f"CREATE TABLE {name} AS SELECT i AS id, {sign} * exp(i * 0.15)::DOUBLE AS x FROM range(60) t(i)")
    exact(f"CALL dp_protect('{name}', epsilon := 1000, delta := 1e-9, another := true)")
    select = f"SELECT sum(x) AS s, avg(x) AS m, count(*) AS n FROM {name}"
    for mu in (0.7, 20):
        ((s, s_sd, low, high, cut, m, _, m_low, m_high, _, n, _, n_low, n_high, *_),) = exact(
            f"FROM dp_sql('{select}', mu := {mu})"
        )
        honest = mu > 1
        assert (s is not None, s_sd is not None) == (honest, honest)
        beyond = exact(f"SELECT count(*) FROM {name} WHERE abs(x) > ?", [max(map(abs, cut))])[0][0]
        assert (beyond <= 30) == honest
        assert (low is not None, high is not None) == (honest, honest)
        assert (m is not None) == (m_low is not None) == (m_high is not None) == honest
        assert n_low < n < n_high


WORDS = ["alter", "drop", "force", "grant", "insert", "install", "revoke", "rollback", "cube", "rollup", "lock", "if"]
FORMS = (
    "SELECT avg({0}) AS m FROM w",
    "SELECT {0}, count(*) AS n FROM w GROUP BY {0}",
    "SELECT count(*) AS n FROM w WHERE {0} = 1",
)


@pytest.mark.slow
def test_columns_that_are_called_like_words_of_sql(shared) -> None:
    """What DuckDB takes without quotes and is not understood here is told how to be written, and works so."""
    shared(f"CREATE TABLE w ({', '.join(f'{word} INTEGER' for word in WORDS)})")
    shared("CALL dp_protect('w', mu := 9)")
    shared(f"CALL dp_attributes('w', {{{', '.join(f'{word!r}: [0, 1, 2]' for word in WORDS)}}})")
    refused = set()
    for word in WORDS:
        for form in FORMS:
            ask = "FROM dp_explain('w', '{}', mu := 1)"
            assert shared(ask.format(form.format(f'"{word}"')))
            try:
                shared(ask.format(form.format(word)))
            except duckdb.Error as error:
                assert f'if a column is called so, write "{word}" in double quotes.' in str(error)
                refused.add(word)
    assert refused == {*WORDS}


@pytest.mark.parametrize(
    "text", ["SELECT count(* FROM people", "SELECT count(*) FROM people WHERE", "SELECT sum(age FROM people"]
)
def test_what_ends_too_early_is_told_nothing_of_quotes(shared, text: str) -> None:
    line = shared.refused(f"FROM dp_explain('people', '{text}', mu := 1)")
    assert "does not parse" in line
    assert "double quotes" not in line
