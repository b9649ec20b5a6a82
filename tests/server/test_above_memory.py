"""What an account writes above the aggregates of a dp_sql call runs in the gateway's process, and is bounded; around the call it is not."""

import pytest

from duckdb_dp.errors import DPError
from tests.server.conftest import Served

B = "(SELECT age, sex, count(*) AS n FROM visits GROUP BY age, sex)"
PAID = "SELECT age, sex, count(*) AS n FROM visits GROUP BY age, sex"

LARGE = [
    f"SELECT a.n AS z, b.n AS y FROM {', '.join(f'{B} {name}' for name in 'abcdefgh')}",
    f"SELECT sum(a.n * b.n) AS s FROM {B} a JOIN {B} b ON true JOIN {B} c ON true JOIN {B} d ON true JOIN {B} e ON true JOIN {B} f ON true JOIN {B} g ON true",
    f"WITH a AS {B}, b AS (SELECT x.n FROM a x, a y, a z), c AS (SELECT x.n FROM b x, b y) SELECT count(*) AS k FROM c x, c y",
    f"SELECT n, repeat('x', 1000000000) AS t FROM {B}",
    f"SELECT n, lpad('x', 1000000000, 'y') AS t FROM {B}",
    f"SELECT n, len(range(1000000000)) AS t FROM {B}",
    f"SELECT n FROM {B}, range(1000000000)",
    f"SELECT n FROM {B}, generate_series(1, 1000000000)",
    f"SELECT n, unnest(range(1000000000)) AS t FROM {B}",
    f"SELECT n, format('{{:>1000000000}}', sex) AS t FROM {B}",
    f"SELECT n, printf('%1000000000d', 1) AS t FROM {B}",
    "WITH a0 AS " + B + "".join(f", a{i} AS (SELECT n, sex || sex AS sex FROM a{i - 1})" for i in range(1, 31)) + " SELECT n, sex FROM a30",
    "WITH a0 AS (SELECT [n] AS l FROM " + B + ")" + "".join(f", a{i} AS (SELECT [l, l] AS l FROM a{i - 1})" for i in range(1, 31)) + " SELECT l FROM a30",
    "WITH a0 AS (SELECT n AS l FROM " + B + ")" + "".join(f", a{i} AS (SELECT row(l, l) AS l FROM a{i - 1})" for i in range(1, 31)) + " SELECT l FROM a30",
    f"SELECT string_agg(repeat(a.sex, 900), ',') AS t FROM {B} a, {B} b, {B} c, {B} d, {B} e",
    f"SELECT n FROM {B} WHERE n > (SELECT sum(a.n) FROM {', '.join(f'{B} {name}' for name in 'abcdefg')})",
    "SELECT * FROM (" + " UNION ALL ".join([f"SELECT a.n FROM {B} a, {B} b, {B} c, {B} d, {B} e, {B} f, {B} g"] * 3) + ")",
]  # fmt: skip

SMALL = [
    f"SELECT sex, lpad(age, 20, ' ') || repeat('.', 5) || format('{{:,.1f}}', n) AS shown, n FROM {B}",
    f"SELECT sex, printf('%.1f', n) AS shown, n FROM {B}",
    f"SELECT a.sex, a.n / b.n AS share FROM {B} a JOIN {B} b USING (age, sex)",
    f"SELECT sex || ' ' || age AS who, n FROM {B}",
    f"SELECT sex, n, 100 * n / sum(n) OVER () AS percent, rank() OVER (ORDER BY n DESC) AS place FROM {B} QUALIFY place < 4",
    f"WITH t AS {B} SELECT t.sex, town, n FROM t JOIN towns USING (sex) WHERE n > (SELECT avg(n) FROM t)",
    f"SELECT string_agg(sex, ',') AS all_of, sum(n) AS n FROM {B}",
]


@pytest.fixture
def paid(served: Served) -> Served:
    served.session("alice").run(f"FROM dp_sql($${PAID}$$, epsilon := 0.2)")
    return served


@pytest.mark.parametrize("statement", LARGE)
def test_what_may_grow_is_refused_and_runs_around_the_call(paid: Served, statement: str) -> None:
    alice = paid.session("alice")
    before = alice.budget().to_pylist()
    with pytest.raises(
        DPError, match=r"runs around the call|not among the functions|write and join shorter|grow to more than"
    ):
        alice.run(f"FROM dp_sql($${statement}$$, epsilon := 0.2)")
    assert alice.budget().to_pylist() == before


@pytest.mark.parametrize("statement", SMALL)
def test_what_people_write_is_answered(paid: Served, statement: str) -> None:
    assert paid.session("alice").run(f"FROM dp_sql($${statement}$$, epsilon := 0.2)").num_rows
