"""Every way in, by statements: tables, files, settings, internals, others' releases, the ledger, budgets and hostile arguments.

A statement may be refused, or answered from what is public. It never shows a private value, another account's release, a key or a path,
it charges nothing that was not granted, and it ends no process.
"""

import sqlite3
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.config import Config, Limits
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.session import Session
from duckdb_dp.sql.bindings import LOADED
from tests.server.conftest import Served, make_database

TABLES = ["visits", "payroll", "plain", "clinic.main.visits", '"plain"', "clinic.plain", "main.payroll"]
READS = [
    "FROM {t}", "SELECT * FROM {t}", "TABLE {t}", "SELECT count(*) FROM {t}", "WITH x AS (FROM {t}) FROM x", "FROM query('FROM {t}')",
    "FROM query_table('{t}')", "FROM query_table(['{t}'])", "SELECT (SELECT max(t) FROM {t} t)", "DESCRIBE {t}", "SUMMARIZE {t}",
    "EXPLAIN FROM {t}", "EXPLAIN ANALYZE FROM {t}", "CREATE TABLE x AS FROM {t}", "CREATE OR REPLACE VIEW w AS FROM {t}",
    "COPY {t} TO 'out.csv'", "PREPARE p AS FROM {t}", "CREATE OR REPLACE MACRO m() AS TABLE FROM {t}", "PRAGMA table_info('{t}')",
    "FROM pragma_storage_info('{t}')", "DELETE FROM {t}", "DROP TABLE {t}", "ALTER TABLE {t} ADD COLUMN x INT", "FROM (FROM towns), {t}",
    "SELECT * FROM towns WHERE EXISTS (FROM {t})", "SHOW {t}", "FROM dp_domain('{t}')", "FROM dp_check('{t}')",
    "SELECT * FROM towns UNION ALL BY NAME FROM {t}", "EXPORT DATABASE '{t}'", "SELECT ((FROM {t}) IS NULL)", "FROM towns POSITIONAL JOIN {t}",
]  # fmt: skip
FILES = [
    "{database}",
    "{ledger}",
    "{folder}/*",
    "/etc/passwd",
    "/proc/self/environ",
    "/proc/self/maps",
    "http://127.0.0.1:9/x",
    "s3://a/b",
]
READERS = [
    "FROM read_csv('{f}')", "FROM read_text('{f}')", "FROM read_blob('{f}')", "FROM read_parquet('{f}')", "FROM '{f}'", "FROM glob('{f}')",
    "FROM read_json('{f}')", "FROM sqlite_scan('{f}', 'secret')", "ATTACH '{f}' AS stolen", "COPY (FROM towns) TO '{f}'", "IMPORT DATABASE '{f}'",
    "FROM sniff_csv('{f}')", "FROM parquet_metadata('{f}')", "COPY towns FROM '{f}'", "FROM query('FROM ''{f}''')", "LOAD '{f}'",
]  # fmt: skip
SETTINGS = [
    "enable_external_access = true", "lock_configuration = false", "allowed_directories = ['/']", "temp_directory = '/tmp'",
    "memory_limit = '100GB'", "threads = 64", "python_enable_replacements = true", "home_directory = '/root'", "allow_unsigned_extensions = true",
    "custom_extension_repository = 'http://127.0.0.1:9'", "log_query_path = '/tmp/q'", "profile_output = '/tmp/p'", "search_path = 'clinic'",
    "disabled_optimizers = ''", "autoinstall_known_extensions = true", "secret_directory = '/tmp'", "schema = 'clinic.main'", "access_mode = 'read_write'",
]  # fmt: skip
CHANGES = ["SET {s}", "SET GLOBAL {s}", "SET SESSION {s}", "PRAGMA {s}"]
INTERNALS = [
    "SELECT _dp_loaded()", "SELECT _dp_plan('', 'dp_check', '{}', '', '', '', '')", "SELECT _dp_call('', 'dp_check', '{}', '', '', NULL)",
    "SELECT _dp_cells('1', 0)", "SELECT _dp_bind('dp_check', {'dataset': 'visits'})", "SELECT _dp_run('x', NULL, NULL, [], [])",
    "FROM query(_dp_bind('dp_release', {'name': 1}))", "SELECT getenv('HOME')", "FROM duckdb_secrets()", "CREATE SECRET s (TYPE s3, KEY_ID 'x')",
    "INSTALL httpfs", "LOAD httpfs", "INSTALL sqlite FROM community", "CALL enable_logging(storage = 'file', storage_path = '/tmp/zz')",
    "CALL enable_profiling()", "FROM duckdb_logs()", "FROM duckdb_views() WHERE sql LIKE '%scan%'", "FROM python_map_function(1)", "SELECT * FROM self",
    "FROM con", "FROM served", "FROM _dp_given", "FROM pandas_scan(1)", "FROM arrow_scan(1, 2, 3)", "CHECKPOINT", "VACUUM", "BEGIN", "ROLLBACK",
    "USE clinic", "DETACH memory", "ATTACH ':memory:' AS m", "SELECT 1; FROM visits", "CALL dp_account('eve'); FROM visits", "FROM duckdb_tables()",
    "FROM duckdb_settings()", "FROM duckdb_databases()", "FROM duckdb_extensions()", "FROM pragma_database_list()", "SHOW ALL TABLES",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 50) SELECT max(n) FROM r", "EXECUTE p", "DEALLOCATE p",
    "SELECT current_setting('temp_directory')", "SELECT current_database(), current_user, version()", "SELECT sum(1) FROM range(3), read_text('/etc/hosts')",
    "SET VARIABLE x = 1", "SELECT getvariable('x')", "FROM histogram('visits', 'age')", "KILL 1", "SELECT repeat('x', 10000000000)",
]  # fmt: skip
RELEASES = ["1", "2", "3", "-1", "0", "99", "9223372036854775808", "'hers'", "'alice/hers'", "'../alice/hers'", "'bob/../alice/hers'", "NULL",
            "''", "['hers']", "{'a': 1}", "1.5", "true", "'1'", "'2'", "'2 OR 1=1'", "'hers'' OR ''1''=''1'", "'%'", "'ALICE/HERS'"]  # fmt: skip
OTHERS = ["FROM dp_release({r})", "CALL dp_release({r})", "SELECT * FROM dp_release(name := {r})", "FROM dp_marginals('visits', ['sex'], epsilon := 0.01, mechanism := 'aim', given := [{r}])"]  # fmt: skip
STEWARDS = [
    "dp_account('eve', role := 'steward')", "dp_account('alice')", "dp_grant('bob', 'visits', epsilon := 100)", "dp_grant('bob', 'payroll', epsilon := 1)",
    "dp_approve(1)", "dp_refuse(1, 'x')", "dp_share(2, 'bob')", "dp_requests()", "dp_accounts()", "dp_audit()", "dp_protect('plain', epsilon := 9)",
    "dp_public('plain')", "dp_public('visits')", "dp_attribute('visits', 'diagnosis', \"values\" := ['secret1'])", "dp_attributes('visits')",
    "dp_view('mine', 'SELECT * FROM visits')", "dp_check('visits')", "dp_link('visits', \"references\" := {'age': 'towns.sex'})",
    "dp_discover('visits', 'diagnosis', epsilon := 0.01, declare := true)", "dp_quality('visits', 'visits_syn', exact := true)",
    "dp_synthesize_database('main', epsilon := 0.01)",
]  # fmt: skip
ASKED = [
    "CALL {c}",
    "FROM {c}",
    "SELECT * FROM main.{c}",
    "SELECT {c}",
    "CREATE TABLE x AS FROM {c}",
    "FROM query('FROM {c}')",
]
TEXTS = [
    "SELECT * FROM visits", "SELECT diagnosis FROM visits", "SELECT max(diagnosis) AS m FROM visits", "SELECT count(*) AS n FROM payroll",
    "SELECT avg(salary) AS s FROM payroll", "SELECT count(*) AS n FROM plain", "SELECT count(*) AS n FROM read_csv('/etc/passwd')",
    "SELECT count(*) AS n FROM duckdb_tables()", "SELECT error(diagnosis) AS e FROM visits", "SELECT count(*) AS n FROM visits WHERE error(diagnosis)",
    "SELECT count(*) AS n FROM visits WHERE getenv('HOME') = 'x'", "SELECT string_agg(diagnosis) AS s FROM visits", "SELECT list(age) AS s FROM visits",
    "SELECT any_value(diagnosis) AS s FROM visits", "SELECT first(age) AS s FROM visits", "SELECT age FROM visits LIMIT 1", "SELECT count(*) AS n, (SELECT max(salary) FROM payroll) AS m FROM visits",
    "SELECT count(*) AS n FROM visits, payroll", "SELECT count(*) AS n FROM visits JOIN plain ON true", "SELECT count(*) AS n FROM query('FROM plain')",
    "SELECT count(*) AS n FROM visits; FROM plain", "FROM plain", "DROP TABLE visits", "COPY visits TO '/tmp/x.csv'", "SELECT _dp_loaded() AS x",
    "SELECT count(*) AS n FROM dp_check('visits')", "SELECT count(*) AS n FROM dp_release(2)", "EXPLAIN SELECT count(*) FROM visits", "SELECT diagnosis, count(*) AS n FROM visits GROUP BY diagnosis",
    "SELECT sum(age::VARCHAR::INT / 0) AS n FROM visits", "SELECT count(*) AS n FROM visits WHERE diagnosis::INT = 1", "SELECT count(*) AS n FROM visits FOR SYSTEM_TIME AS OF now()",
    "SELECT min(rowid) AS r FROM visits", "SELECT count(*) AS n FROM visits TABLESAMPLE 1 ROWS", "", ";", "SELECT", "'", "--", "/*", "\\0", "SELECT " + "(" * 500 + "1" + ")" * 500,
]  # fmt: skip
VALUES = [
    "'nan'::DOUBLE", "'inf'::DOUBLE", "-1", "0", "1e308", "NULL", "[1]", "{'a': 1}", "true", "'0.1'", "10 ** 400", "1e-320", "(SELECT 0.1)", "DATE '2020-01-01'", "repeat('x', 90000)",
    "[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]", "range(200000)", "'\"; DROP TABLE visits; --'", "$1", "(FROM visits)", "INTERVAL 1 DAY", "'x'::BLOB",
]  # fmt: skip
PLACES = [
    "FROM dp_marginals('visits', ['sex'], epsilon := {v})", "FROM dp_marginals({v}, ['sex'], epsilon := 0.001)", "FROM dp_marginals('visits', {v}, epsilon := 0.001)",
    "FROM dp_sql({v}, epsilon := 0.001)", "FROM dp_quantiles('visits', {v}, epsilon := 0.001)", "FROM dp_explain('visits', {v}, epsilon := 0.001)",
    "FROM dp_release({v})", "FROM dp_marginals('visits', ['sex'], epsilon := 0.001, release := {v})", "FROM dp_marginals('visits', ['sex'], epsilon := 0.001, mechanism := {v})",
]  # fmt: skip


def statements(served: Served) -> list[str]:
    """All attacks."""
    ledger = served.database.with_name("clinic.duckdb.dp") / "ledger.sqlite"
    places = {"database": served.database, "ledger": ledger, "folder": ledger.parent / "releases"}
    files = [file.format(**places) for file in FILES]
    found = [text.replace("{t}", table) for text, table in product(READS, TABLES)]
    found += [text.replace("{f}", file) for text, file in product(READERS, files)]
    found += [text.replace("{s}", setting) for text, setting in product(CHANGES, SETTINGS)]
    found += INTERNALS
    found += [text.replace("{r}", release) for text, release in product(OTHERS, RELEASES)]
    found += [text.replace("{c}", call) for text, call in product(ASKED, STEWARDS)]
    found += ["FROM dp_sql('" + text.replace("'", "''") + "', epsilon := 0.001)" for text in TEXTS]
    found += [text.replace("{v}", value) for text, value in product(PLACES, VALUES)]
    return found


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("attacked") / "clinic.duckdb"
    tokens = make_database(path)
    gateway = Gateway.open(Config(database=path, limits=Limits(seconds=10, memory=64, rows=100_000)))
    yield Served(gateway, tokens, path)
    gateway.close()


def shown(session: Session, statement: str) -> str:
    """All that a client sees of a statement."""
    try:
        found: pa.Table = session.run(statement)
    except DPError as error:
        return f"refused: {error}"
    return f"answered: {found.schema} {found.to_pylist()}"


def secrets(served: Served) -> set[str]:
    """What no client may see: values of private tables, what alice paid, keys, hashes, and where files are."""
    ledger = served.database.with_name("clinic.duckdb.dp") / "ledger.sqlite"
    with sqlite3.connect(ledger) as db:
        hidden = {key.hex() for (key,) in db.execute("SELECT key FROM secret")}
        hidden |= {each for (each,) in db.execute("SELECT token_hash FROM accounts")}
    db.close()
    found = served.session("alice").run("FROM dp_marginals('visits', ['sex'], epsilon := 0.2, release := 'hers')")
    hidden |= {str(count) for count in found["count"].to_pylist()}
    hidden |= {key for loaded in LOADED.values() for key in (*loaded.keys.values(), *loaded.accounts)}
    return hidden | {"secret7", "hidden3", "4718", "Traceback", "root:", str(Path(__file__).parents[2])}


def attacks(served: Served, some: slice) -> None:
    hidden = secrets(served)
    gateway = served.gateway
    written = [Path("/tmp/q"), Path("/tmp/p"), Path("/tmp/zz"), Path("/tmp/x.csv"), Path("out.csv"), Path("/out.csv")]
    before = [path.exists() for path in written]
    bob = served.session("bob")
    charged = {row["dataset"]: row["spent"] for row in gateway.broker.ledger.budget_rows()}
    for statement in statements(served)[some]:
        found = shown(bob, statement)
        said = [each for each in hidden if each in found and each not in statement]
        assert not said, f"{statement[:200]} showed {said}: {found[:300]}"
        assert "internal error" not in found, f"{statement[:200]}: {found[:300]}"
    rows = {row["dataset"]: row["spent"] for row in gateway.broker.ledger.budget_rows()}
    assert rows["payroll"] == charged["payroll"] == 0
    (budget,) = bob.budget().to_pylist()
    assert budget["dataset"] == "visits"
    assert budget["spent"] < 0.1 * budget["total"]
    assert [row["role"] for row in gateway.broker.ledger.accounts.accounts()] == [
        "analyst",
        "analyst",
        "steward",
        "viewer",
    ]
    assert gateway.healthy()
    assert [path.exists() for path in written] == before


@pytest.mark.slow
def test_there_are_many(attacked: Served) -> None:
    assert len(set(statements(attacked))) >= 500


@pytest.mark.slow
def test_some_attacks_show_nothing(attacked: Served) -> None:
    attacks(attacked, slice(0, None, 17))


@pytest.mark.slow
def test_all_attacks_show_nothing(attacked: Served) -> None:
    attacks(attacked, slice(None))


@pytest.mark.slow
def test_explore_and_price_show_no_more(attacked: Served) -> None:
    hidden, bob = secrets(attacked), attacked.session("bob")
    for statement in statements(attacked)[::41]:
        for way in (bob.explore, bob.price, bob.schema):
            try:
                found = str(way(statement))
            except DPError as error:
                found = str(error)
            assert not [each for each in hidden if each in found and each not in statement], statement
            assert "internal error" not in found, f"{way.__name__} {statement[:200]}: {found}"
