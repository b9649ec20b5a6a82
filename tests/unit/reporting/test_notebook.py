"""What a notebook shows, in a process of its own: IPython keeps its formatters and handlers for good."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

CELLS = r"""
import contextlib, io, json, sys, warnings
from IPython.core.interactiveshell import InteractiveShell
warnings.simplefilter("ignore")
shell = InteractiveShell.instance(colors="nocolor")
def cell(text):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        result = shell.run_cell(text, store_history=True)
    return result, out.getvalue().strip().splitlines()
cell("import duckdb, duckdb_dp; con = duckdb.connect(); duckdb_dp.load(con); duckdb_dp.load(con)")
cell("con.execute('CREATE TABLE t AS SELECT range % 5 AS a FROM range(1000)')")
cell("con.execute(\"CALL dp_protect('t', mu := 1, delta := 1e-9)\"); con.execute(\"CALL dp_attributes('t', {'a': [0, 1, 2, 3, 4]})\")")
cell("%load_ext sql")
cell("%sql con --alias c")
found = {"errors": [
    cell("con.sql(\"FROM dp_marginals('gone', ['a'], mu := 1)\")")[1],
    cell("%%sql\nFROM dp_marginals('gone', ['a'], mu := 1)")[1][1:],
    cell("con.sql('FROM gone')")[1],
    cell("duckdb_dp.quantiles(con, 't', 'gone', 0.5, mu=1)")[1],
    cell("con.sql(\"FROM dp_marginals('t', ['a'], muu := 1)\")")[1],
    cell("%%sql\nFROM dp_marginals('t', ['a'], muu := 1)")[1][1:],
    cell("con.sql(\"FROM dp_marginal('t', ['a'], mu := 1)\")")[1],
]}
found["other"] = len(cell("1 / 0")[1])
sys.path.insert(0, sys.argv[1])
found["module"] = cell("import mine; mine.ask(con)")[1]
asked = "con.sql(\"FROM dp_marginals('t', ['a'], mu := 0.1, fresh := true)\")"
found["shown"] = [line.split() for line in cell(asked)[1]]
found["charges"] = cell("con.sql('FROM dp_ledger()').fetchall()")[0].result.__len__()
def html(text):
    return shell.display_formatter.format(cell(text)[0].result)[0].get("text/html", "")
same = "FROM dp_marginals('t', ['a'], mu := 0.2)"
found["bars"] = [html(text).count("<rect") for text in (
    f'con.sql("{same}")', f'con.sql("{same}").df()', f"%sql {same}", "con.sql('SELECT 1 AS a')", "con.sql('SELECT 1 AS a').df()", "%sql SELECT 1 AS a",
)]
found["rounded"] = [html(text) for text in (
    "con.sql('FROM dp_budget()')", "%sql FROM dp_budget()", "con.sql(\"FROM dp_explain('t', ['a'], mu := 0.3)\")",
)]
found["text"] = shell.display_formatter.format(cell("con.sql('FROM dp_ledger()')")[0].result)[0]["text/plain"].splitlines()
chosen = "FROM dp_marginals('t', ['a'], mu := 0.2) ORDER BY count LIMIT 2"
found["picked"] = [html(text).count("rows are picked by noisy answers") for text in (f'con.sql("{chosen}")', f"%sql {chosen}", f'con.sql("{same}")')]
found["plain"] = "dataframe" in html("con.sql('SELECT 1 AS a').df()")
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def ask(con):\n    return con.sql('FROM gone')\n")
    done = subprocess.run(
        [sys.executable, "-c", CELLS, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    line = next(text for text in reversed(done.stdout.splitlines()) if text.startswith("{"))
    found = json.loads(line)
    missing = "dp_marginals: 'gone' is not protected"
    assert [len(lines) for lines in found["errors"]] == [1] * 7
    assert [lines[0].startswith(missing) for lines in found["errors"][:2]] == [True, True]
    assert "Table with name gone does not exist" in found["errors"][2][0]
    assert found["errors"][3][0].startswith("dp_quantiles: ")
    unknown = ["dp_marginals has no argument muu; mu may be meant."]
    assert found["errors"][4:6] == [unknown, unknown]
    assert found["errors"][6][0].startswith("Catalog Error: ")
    assert 'Did you mean "dp_marginals' in found["errors"][6][0]
    assert found["other"] > 3  # what is no error of SQL has its traceback
    assert any("mine.py" in text for text in found["module"])
    assert [row[:1] for row in found["shown"]][1:] == [["a"], *([str(i)] for i in range(5))]
    assert found["charges"] == 1  # shown as text and as HTML, read once
    assert found["bars"] == [5, 5, 5, 0, 0, 0]
    assert found["picked"] == [1, 1, 0]
    assert found["plain"]
    for html in found["rounded"]:  # what has no interval is rounded too
        assert "overflow-x" in html
        assert not re.search(r">\d+\.\d{7}", html)
    assert all(len(line) <= 125 and line.endswith("...") for line in found["text"])
