"""What an account writes above the aggregates of a dp_sql call runs in a process of its own, and nobody else notices what it takes."""

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from duckdb_dp.errors import DPError
from duckdb_dp.gateway import aside
from duckdb_dp.sql.above import statement
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


def memory() -> int:
    """Bytes that this process has."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("statement", LARGE)
def test_what_may_grow_is_refused_before_it_is_paid(served: Served, statement: str) -> None:
    alice = served.session("alice")
    before = alice.budget().to_pylist()
    with pytest.raises(
        DPError, match=r"once they are paid|not among the functions|write and join shorter|grow to more"
    ):
        alice.run(f"FROM dp_sql($${statement}$$, epsilon := 0.2)")
    assert alice.budget().to_pylist() == before


@pytest.mark.slow
@pytest.mark.parametrize("statement", LARGE)
def test_what_grows_once_it_is_paid_takes_nothing_of_the_gateway(paid: Served, statement: str) -> None:
    """It is answered or refused, costs nothing, and takes no memory here; bob asks meanwhile, and does not wait for it."""
    alice, bob, said = paid.session("alice"), paid.session("bob"), []

    def ask() -> None:
        try:
            alice.run(f"FROM dp_sql($${statement}$$, epsilon := 0.2)")
        except DPError as error:
            said.append(str(error))

    bob.run(f"FROM dp_sql($$SELECT max(n) AS m FROM {B}$$, epsilon := 0.2)")  # its process is there
    before, spent = memory(), alice.budget().to_pylist()
    thread = threading.Thread(target=ask)
    thread.start()
    for each in range(3):
        began = time.monotonic()
        bob.run(f"FROM dp_sql($$SELECT sum(n) AS m FROM {B}$$, epsilon := 0.0{each + 1})")
        assert time.monotonic() - began < 15
    thread.join(120)
    assert not thread.is_alive()
    assert memory() - before < 300 << 20
    assert alice.budget().to_pylist() == spent
    assert not any("internal error" in text for text in said)
    assert alice.run(f"FROM dp_sql($${PAID}$$, epsilon := 0.2)").num_rows == 10


@pytest.mark.parametrize("statement", SMALL)
def test_what_people_write_is_answered(served: Served, statement: str) -> None:
    assert served.session("alice").run(f"FROM dp_sql($${statement}$$, epsilon := 0.2)").num_rows


LISTS = [
    f"[$${PAID}$$, $$SELECT sex, count(*) AS n FROM visits GROUP BY sex$$]",
    f"[$$SELECT max(n) AS n FROM {B}$$, $$SELECT sex, count(*) AS n FROM visits GROUP BY sex$$]",
]


def rows(found: pa.Table, ordered: bool = False) -> list[str]:
    """Its rows; in an order of their own where the statement says none."""
    texts = [repr(row) for row in found.to_pylist()]
    return texts if ordered else sorted(texts)


FORMS = ["epsilon := 0.2", "epsilon := 0.2, columns := 'short'", "precision := 40, release := 'named'"]


def local(served: Served, call: str) -> pa.Table:
    """What a call says beside the gateway, on a connection that holds the database."""
    con = served.gateway.broker._con.cursor()
    return con.execute(f"FROM {call}").to_arrow_table()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asked", [*(f"$${each}$$" for each in SMALL), *LISTS])
def test_it_is_what_it_is_beside_the_gateway(served: Served, asked: str, form: str) -> None:
    """The same columns, types and rows of the same stored answers; what was asked alone or before is not charged again."""
    alice, call = served.session("alice"), f"dp_sql({asked}, {form})"
    said = alice.schema(f"FROM {call}")
    found = alice.run(f"FROM {call}").replace_schema_metadata(None)
    spent = served.session("sam").budget().to_pylist()
    beside = local(served, call)
    assert said == found.schema == beside.schema
    assert rows(found) == rows(beside)
    assert served.session("sam").budget().to_pylist() == spent


TYPES = {
    "BOOLEAN": ["true", "false"], "TINYINT": ["1", "2"], "UBIGINT": ["18446744073709551615", "2"], "HUGEINT": ["1", "-2"],
    "DOUBLE": ["1.5", "2.5"], "DECIMAL(9,2)": ["1.25", "2.5"], "VARCHAR": ["it''s", "b \"c\""], "DATE": ["2024-01-01", "2024-02-29"],
    "TIMESTAMP": ["2024-01-01 01:02:03", "2024-02-29 00:00:00"], "TIME": ["01:02:03", "04:05:06"],
    "UUID": ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"],
    "ENUM('low', 'high')": ["low", "high"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("type_", TYPES)
def test_labels_and_numbers_keep_their_types(served: Served, type_: str) -> None:
    """Of labels of all types and of sums of them, read above as they are, and compared, sorted and joined."""
    con = served.gateway.broker._con.cursor()
    values = [f"CAST('{value}' AS {type_})" for value in TYPES[type_]]
    con.execute(
        f'CREATE TABLE things AS SELECT range AS i, CASE WHEN range % 3 = 0 THEN {values[0]} ELSE {values[1]} END AS "a g" FROM range(300)'
    )
    con.execute(f"CREATE TABLE names AS SELECT {values[1]} AS g, 'second' AS name")
    con.execute("CALL dp_protect('things', epsilon := 9, delta := 1e-9)")
    con.execute(f"CALL dp_attribute('things', 'a g', \"values\" := [{', '.join(values)}])")
    con.execute("CALL dp_public('names')")
    con.execute("CALL dp_grant('alice', 'things', epsilon := 9)")
    counted = '(SELECT "a g" AS g, count(*) AS n, 2 * count(*) AS "s ""t" FROM things GROUP BY "a g")'
    for asked in (
        f"SELECT *, n + 1 AS m FROM {counted} ORDER BY g DESC",
        f"SELECT name, t.g, n FROM {counted} t JOIN names USING (g)",
        f"SELECT g, n FROM {counted} UNION ALL SELECT g, n FROM {counted} WHERE g = {values[0]}",
        f"SELECT max(g) AS top, any_value(g ORDER BY n) AS few, list(g ORDER BY g) AS all_of FROM {counted}",
    ):
        call = f"dp_sql($${asked}$$, epsilon := 1)"
        found, beside = served.session("alice").run(f"FROM {call}").replace_schema_metadata(None), local(served, call)
        assert found.schema == beside.schema
        ordered = "ORDER BY g DESC" in asked
        assert rows(found, ordered) == rows(beside, ordered)


def test_a_process_is_one_accounts_and_ends_with_the_gateway(served: Served) -> None:
    for name in ("alice", "bob"):
        served.session(name).run(f"FROM dp_sql($$SELECT max(n) AS m FROM {B}$$, epsilon := 0.2)")
    boxes = served.gateway.broker._aside._idle
    assert set(boxes) == {"alice", "bob"}
    alices = boxes["alice"]
    with pytest.raises(DPError):
        served.session("alice").run(f"FROM dp_sql($$SELECT nonsense FROM {B}$$, epsilon := 0.2)")
    assert boxes["alice"] is alices  # a refusal does not end it
    served.gateway.close()
    assert not alices.alive


def test_a_process_that_was_killed_is_replaced(served: Served) -> None:
    alice = served.session("alice")
    ask = "FROM dp_sql($$SELECT max(n) + {} AS m FROM " + B + "$$, epsilon := 0.2)"
    (first,) = alice.run(ask.format(0)).to_pylist()
    boxes = served.gateway.broker._aside._idle
    boxes["alice"]._process.kill()
    boxes["alice"]._process.wait()
    assert alice.run(ask.format(1)).to_pylist() == [{"m": first["m"] + 1}]
    assert boxes["alice"].alive


def test_as_many_run_as_are_asked(served: Served) -> None:
    """Each in a process of its own, of which one is kept."""
    alice, found = served.session("alice"), {}
    ask = "FROM dp_sql($$SELECT max(n) + {} AS m FROM " + B + "$$, epsilon := 0.2)"
    (first,) = alice.run(ask.format(0)).to_pylist()

    def run(number: int) -> None:
        found[number] = alice.run(ask.format(number)).to_pylist()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == {number: [{"m": first["m"] + number}] for number in range(1, 6)}
    assert len(served.gateway.broker._aside._idle) == 1


def test_what_was_refused_for_its_size_runs_once_its_selects_are_paid(served: Served) -> None:
    """In a list they are the request that the statement is of, as the refusal says."""
    alice, per_sex = served.session("alice"), "SELECT sex, count(*) AS m FROM visits GROUP BY sex"
    large = (
        f"WITH a AS ({PAID}), b AS ({per_sex}) SELECT count(*) AS k FROM a u, a v, a w, a x, a y, a z, b WHERE u.n > 0"
    )
    call = f"FROM dp_sql($${large}$$, epsilon := 0.1)"
    with pytest.raises(DPError, match=r"may make 2,000,000 rows .* or a list of them"):
        alice.run(call)
    alice.run(f"FROM dp_sql([$${PAID}$$, $${per_sex}$$], epsilon := 0.1)")
    spent = alice.budget().to_pylist()
    (row,) = alice.run(call).to_pylist()
    assert row["k"] % 100_000 == 0
    assert alice.budget().to_pylist() == spent


@pytest.mark.slow
def test_large_public_tables_are_not_copied(served: Served) -> None:
    """Whether the answers are paid or not, nothing is charged and this process does not hold them."""
    con, alice = served.gateway.broker._con.cursor(), served.session("alice")
    con.execute("CREATE TABLE large AS SELECT 'f' AS sex, range AS i FROM range(1_000_001)")
    con.execute("CALL dp_public('large')")
    for _ in range(2):
        with pytest.raises(DPError, match="'large' has 1,000,001 rows, and at most 1,000,000"):
            alice.run(f"FROM dp_sql($$SELECT count(*) AS k FROM {B} JOIN large USING (sex)$$, epsilon := 0.2)")
        alice.run(f"FROM dp_sql($${PAID}$$, epsilon := 0.2)")
    assert alice.releases().num_rows == 1
    con.execute("CREATE OR REPLACE TABLE wide AS SELECT 'f' AS sex, repeat('x', 10_000) AS t FROM range(10_000)")
    con.execute("CALL dp_public('wide')")
    served.gateway.broker._aside.most = 10 << 20
    with pytest.raises(DPError, match=r"more than 10 MB.*are paid and stay"):
        alice.run(f"FROM dp_sql($$SELECT count(*) AS k FROM {B} JOIN wide USING (sex)$$, epsilon := 0.2)")
    assert alice.releases().num_rows == 1


def test_processes_that_nobody_needs_end(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "IDLE", 1)
    ask = f"FROM dp_sql($$SELECT max(n) AS m FROM {B}$$, epsilon := 0.2)"
    served.session("alice").run(ask)
    alices = served.gateway.broker._aside._idle["alice"]
    served.session("bob").run(ask)
    assert set(served.gateway.broker._aside._idle) == {"bob"}
    assert not alices.alive


@pytest.mark.slow
def test_nothing_an_account_writes_above_answers_runs_here(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the trial, nor the statement itself: this process only binds what has no word of it."""

    def never(sql: str) -> dict[str, str]:
        raise AssertionError(sql)

    monkeypatch.setattr(statement, "here", never)
    ran: list[str] = []
    told = aside.Aside.done
    monkeypatch.setattr(aside.Aside, "done", lambda self, *given: ran.append(given[1]) or told(self, *given))
    for each in SMALL:
        served.session("alice").run(f"FROM dp_sql($${each}$$, epsilon := 0.2)")
    assert len(ran) >= len(SMALL)
