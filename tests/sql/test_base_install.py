"""After `pip install .` alone: every function works, or says in one line what to install, before anything is charged."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import one_line
from tests.privacy import test_retries

pytestmark = pytest.mark.slow

HIDDEN = """
import sys
class Hidden:
    names = {"torch", "mbi", "jax", "ibis", "pyspark", "matplotlib", "pandas", "polars", "opendp", "dp_accounting", "mpmath"}
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""
ASKED = """
import json
import duckdb, duckdb_dp
con = duckdb.connect()
duckdb_dp.load(con, sys.argv[1], progress=False)
for statements in json.loads(sys.argv[2]):
    con.execute(statements)
found = []
for sql in json.loads(sys.argv[3]):
    before = con.execute("SELECT count(*) FROM dp_ledger()").fetchone()[0]
    try:
        rows = con.execute(sql).fetchall()
        found.append(["rows", len(rows), sql])
    except duckdb.Error as error:
        after = con.execute("SELECT count(*) FROM dp_ledger()").fetchone()[0]
        found.append(["refused" if after == before else "charged", str(error), sql])
print(json.dumps(found))
"""
BOTH = test_retries.BOTH
WORKS = [
    "CALL dp_protect('people', rho := 90000)",
    "CALL dp_attributes('people')",
    "FROM dp_domain('people')",
    "FROM dp_explain('people', 'all 2-way', rho := 1)",
    "FROM dp_explain('people', [{'age': 'range'}], rho := 1)",
    "FROM dp_check('people')",
    "FROM dp_marginals('people', 'all 2-way', rho := 1, release := 'pairs')",
    "FROM dp_marginals('people', 'all 2-way', rho := 1.1, objective := 'max')",
    *(f"FROM dp_marginals('people', 'all 2-way', rho := 1.2, postprocess := '{kind}')" for kind in ("nonnegative", "fitted")),
    *(
        f"FROM dp_marginals('people', 'all 2-way', rho := 2, mechanism := '{mechanism}')"
        for mechanism in ("aim", "neyman", "residual", "gaussian", "hdmm", "querysmasher", "residual_plus", "wff")
    ),
    "FROM dp_queries('people', [{'age': 'range', 'sex': 'identity'}], rho := 1)",
    "FROM dp_queries('people', [{'age': 'prefix', 'sex': 'identity'}], rho := 1, mechanism := 'hdmm')",
    "FROM dp_sql('SELECT sex, count(*) AS n, avg(age) AS mean FROM people GROUP BY sex', rho := 1)",
    "FROM dp_synthesize('people', rho := 2)",
    f"FROM dp_links('ratings', {BOTH}, rho := 2)",
    f"FROM dp_links('ratings', {BOTH}, method := 'paper', rounds := 1, rho := 2)",
    f"FROM dp_links('ratings', {BOTH}, method := 'sliced', rounds := 1, rho := 2)",
    f"FROM dp_links('staff', {test_retries.CHILD}, rho := 2)",
    "FROM dp_quality('people', 'people_syn', rho := 1)",
    "FROM dp_quality('people', 'people_syn', exact := true)",
    "CALL dp_synthesize_database('main', target := 'syn', tables := ['users', 'movies', 'ratings'], rho := 30)",
    "FROM dp_release(1)",
    "FROM dp_releases()",
    "FROM dp_ledger()",
    "FROM dp_budget()",
]  # fmt: skip
NEEDS = [
    "FROM dp_marginals('people', 'all 2-way', rho := 3, reconstruct := 'pgm')",
    "FROM dp_marginals('people', 'all 2-way', rho := 3, postprocess := 'pgm')",
    "FROM dp_release('pairs', postprocess := 'pgm')",
    "FROM dp_synthesize('people', method := 'mst', rho := 3)",
    "FROM dp_synthesize('people', method := 'aim', rho := 3)",
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What each statement comes to where nothing but the dependencies is installed."""
    folder = tmp_path_factory.mktemp("base")
    script = folder / "script.py"
    script.write_text(HIDDEN + ASKED)
    prepared = [test_retries.TABLES, test_retries.PROTECTED, test_retries.MADE]
    arguments = [str(folder / "l.dp"), json.dumps(prepared), json.dumps([*WORKS, *NEEDS])]
    root = str(Path(test_retries.duckdb_dp.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "error", script, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {sql: [kind, found] for kind, found, sql in json.loads(done.stdout)}


@pytest.mark.parametrize("sql", WORKS)
def test_what_works_without_extras(answers: Any, sql: str) -> None:
    kind, found = answers[sql]
    assert kind == "rows", found
    assert found > 0


@pytest.mark.parametrize("sql", NEEDS)
def test_what_needs_an_extra_says_so_before_the_charge(answers: Any, sql: str) -> None:
    kind, found = answers[sql]
    assert kind == "refused", found
    assert re.search(r"pip install 'duckdb-dp\[pgm\]'", one_line(found))
