"""WINDOW w AS (...) means what the same window written out means, wherever a window may stand."""

from collections.abc import Iterator
from unittest.mock import patch

import duckdb
import pytest
from sqlglot import exp, parse_one

from duckdb_dp.errors import DPError
from duckdb_dp.sql import named_windows
from tests.conftest import Loaded
from tests.sql.some_visits import answers, loaded

SAME = {
    "SELECT count(*) AS n FROM (SELECT person, sum(x) OVER w AS s FROM visits WINDOW w AS (PARTITION BY person ORDER BY a)) WHERE s > 5":
    "SELECT count(*) AS n FROM (SELECT person, sum(x) OVER (PARTITION BY person ORDER BY a) AS s FROM visits) WHERE s > 5",
    "SELECT count(*) AS n FROM (SELECT sum(x) OVER (w ORDER BY a) AS s, count(*) OVER W AS k FROM visits WINDOW w AS (PARTITION BY person)) WHERE s > k":
    "SELECT count(*) AS n FROM (SELECT sum(x) OVER (PARTITION BY person ORDER BY a) AS s, count(*) OVER (PARTITION BY person) AS k FROM visits) WHERE s > k",
    "SELECT avg(s - k) AS n FROM (SELECT max(x) OVER v AS s, min(x) OVER w AS k FROM visits WINDOW w AS (PARTITION BY person), v AS (w ORDER BY a DESC))":
    "SELECT avg(s - k) AS n FROM (SELECT max(x) OVER (PARTITION BY person ORDER BY a DESC) AS s, min(x) OVER (PARTITION BY person) AS k FROM visits)",
    "WITH f AS (SELECT person, reason FROM visits WINDOW w AS (PARTITION BY person ORDER BY a) QUALIFY row_number() OVER w = 1) "
    "SELECT sex, count(*) AS n FROM f JOIN users ON person = id WHERE reason = 'flu' GROUP BY sex":
    "WITH f AS (SELECT person, reason FROM visits QUALIFY row_number() OVER (PARTITION BY person ORDER BY a) = 1) "
    "SELECT sex, count(*) AS n FROM f JOIN users ON person = id WHERE reason = 'flu' GROUP BY sex",
    "SELECT count(*) AS n FROM users WHERE id IN (SELECT person FROM visits WINDOW w AS (PARTITION BY person ORDER BY a) QUALIFY lag(x) OVER w > 8)":
    "SELECT count(*) AS n FROM users WHERE id IN (SELECT person FROM visits QUALIFY lag(x) OVER (PARTITION BY person ORDER BY a) > 8)",
    "SELECT sex, count(*) AS n, rank() OVER w AS r FROM visits JOIN users ON person = id GROUP BY sex WINDOW w AS (ORDER BY count(*), sex)":
    "SELECT sex, count(*) AS n, rank() OVER (ORDER BY count(*), sex) AS r FROM visits JOIN users ON person = id GROUP BY sex",
    "SELECT sex, sum(n) OVER w AS s FROM (SELECT sex, count(*) AS n FROM users GROUP BY sex) WINDOW w AS (ORDER BY sex) QUALIFY row_number() OVER w < 3":
    "SELECT sex, sum(n) OVER (ORDER BY sex) AS s FROM (SELECT sex, count(*) AS n FROM users GROUP BY sex) QUALIFY row_number() OVER (ORDER BY sex) < 3",
}  # fmt: skip
"""Statements with named windows, and the same ones written out."""


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("named")) as found:
        yield found


@pytest.mark.parametrize("named", SAME)
def test_a_named_window_is_the_window_written_out(visits: Loaded, named: str) -> None:
    """It has DuckDB's own answer, and the other statement has the same release."""
    found = answers(visits, named)
    truth = sorted(visits(named), key=str)
    assert len(found) == len(truth)
    for row, expected in zip(found, truth, strict=True):
        for one, other in zip(row, expected, strict=True):
            assert one == other if isinstance(other, str) else one == pytest.approx(float(other), rel=1e-4)
    charges = visits.charges()
    assert answers(visits, SAME[named]) == found
    assert visits.charges() == charges


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ("(ORDER BY a)", "reads the rows of several units"),
        ("(PARTITION BY reason ORDER BY a)", "reads the rows of several units"),
        ("(PARTITION BY person ORDER BY a ROWS 1 PRECEDING)", "a frame, such as ROWS 1 PRECEDING"),
    ],
)
def test_a_named_window_is_refused_for_the_reason_of_the_window(visits: Loaded, window: str, says: str) -> None:
    lines = []
    for over, words in (("w", f"WINDOW w AS {window}"), (window, "")):
        asked = f"SELECT count(*) FROM (SELECT sum(x) OVER {over} AS s FROM visits {words}) WHERE s > 5"
        lines.append(visits.refused("FROM dp_sql(?, epsilon := 1)", [asked]))
    assert says in lines[0]
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    ("over", "words", "says"),
    [
        ("v", "w AS (PARTITION BY person)", 'window "v" does not exist'),
        ("(w PARTITION BY x)", "w AS (PARTITION BY person)", "PARTITION BY"),
        ("w", "w AS (PARTITION BY person), W AS (PARTITION BY x)", "already defined"),
    ],
)
@pytest.mark.parametrize("call", ["FROM dp_sql(?, epsilon := 1)", "CALL dp_view('some', ?)"])
def test_names_that_windows_do_not_have(visits: Loaded, call: str, over: str, words: str, says: str) -> None:
    asked = f"SELECT person, count(*) OVER {over} AS s FROM visits WINDOW {words}"
    text = asked if "dp_view" in call else f"SELECT count(*) FROM ({asked})"
    assert says in visits.refused(call, [text])


def test_a_view_may_have_named_windows(visits: Loaded) -> None:
    asked = (
        "SELECT person, reason FROM visits WINDOW w AS (PARTITION BY person ORDER BY a) QUALIFY row_number() OVER w = 1"
    )
    visits("CALL dp_view('firsts', ?)", [asked])
    ((found,),) = visits(
        "SELECT n FROM dp_sql('SELECT count(*) AS n FROM firsts WHERE reason = ''flu''', epsilon := 1e4)"
    )
    assert round(found) == visits(f"SELECT count(*) FROM ({asked}) WHERE reason = 'flu'")[0][0]


def test_names_are_known_in_their_own_select() -> None:
    text = (
        "SELECT sum(i) OVER w, (SELECT max(s) FROM (SELECT count(*) OVER w AS s FROM t WINDOW w AS (ORDER BY j))) "
        "FROM t WINDOW w AS (PARTITION BY i)"
    )
    tree = parse_one(text, dialect="duckdb")
    named_windows.written_out(tree)
    written = "SELECT SUM(i) OVER (PARTITION BY i), (SELECT MAX(s) FROM (SELECT COUNT(*) OVER (ORDER BY j) AS s FROM t)) FROM t"
    assert tree.sql("duckdb") == written
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i, i % 3 AS j FROM range(9) r(i)")
        assert sorted(connection.execute(text).fetchall()) == sorted(connection.execute(written).fetchall())


LONG = ", ".join(f"x + {i}" for i in range(400))


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT {', '.join(['count(*) OVER w'] * 400)} FROM t WINDOW w AS (PARTITION BY {LONG})",
        f"SELECT 1 FROM t WINDOW w0 AS (PARTITION BY {LONG}), {', '.join(f'w{i} AS (w{i - 1})' for i in range(1, 400))}",
        " UNION ALL ".join(
            [f"(SELECT {', '.join(['sum(x) OVER w'] * 10)} FROM t WINDOW w AS (PARTITION BY {LONG}))"] * 20
        ),
    ],
    ids=["in many places", "of one another", "in many SELECTs"],
)
def test_windows_that_would_be_too_long_are_refused(text: str) -> None:
    """Before so many parts are copied: a statement may come over a network."""
    tree = parse_one(text, dialect="duckdb")
    copied = exp.Expr.copy
    parts = 0

    def counted(node: exp.Expr) -> exp.Expr:
        nonlocal parts
        parts += sum(1 for _ in node.walk())
        return copied(node)

    with patch.object(exp.Expr, "copy", counted), pytest.raises(DPError, match="fewer places"):
        named_windows.written_out(tree)
    assert parts <= named_windows.MOST
