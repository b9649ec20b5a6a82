"""Ctrl-C ends a statement wherever it is: what was charged stays charged, and the same request is drawn for nothing."""

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable

import duckdb
import pytest

from duckdb_dp.sql import stopping

PATIENCE = 30.0
"""Seconds that nobody would wait for; the statements below take minutes, or for ever."""

SCRIPT = """
import json, os, signal, sys, threading, time
import duckdb, duckdb_dp, duckdb_dp.testing

con = duckdb.connect()
con.execute("CREATE TABLE t AS SELECT (i % 5000)::INT AS a, (i % 4001)::INT AS b, (i % 7)::INT AS c FROM range(9000) r(i)")
duckdb_dp.load(con, sys.argv[1], progress=False)
con.execute("CALL dp_protect('t', mu := 100, delta := 1e-9)").fetchall()
for name, high in (("a", 4999), ("b", 4000), ("c", 6)):
    con.execute(f"CALL dp_attribute('t', '{name}', low := 0, high := {high})").fetchall()
before = signal.getsignal(signal.SIGINT)
"""

PRESS = """
def press():
    if sys.argv[3]:
        reached.wait()
    time.sleep(0.5)
    global pressed
    pressed = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)

reached = threading.Event()
threading.Thread(target=press, daemon=True).start()
try:
    con.execute(sys.argv[2]).fetchall()
    found = "no error"
except (duckdb.Error, RuntimeError, KeyboardInterrupt) as error:
    found = f"{type(error).__name__}: {error}"
took = time.monotonic() - pressed
states = con.execute("SELECT function, state FROM dp_ledger()").fetchall()
print(json.dumps([found, took, states, signal.getsignal(signal.SIGINT) is before]), flush=True)
os._exit(0)  # DuckDB counts what a thread that is still in C has kept
"""
STUCK = """
def stuck(*_, **__):
    reached.set()
    while True:
        time.sleep(0.01)
"""
IN_C = STUCK.replace("time.sleep(0.01)", "time.sleep(1000)")
"""A call of C that no exception enters."""

PLACES = {
    "planning": ("duckdb_dp.sql.questions", "planned_for", "FROM dp_marginals('t', ['c'], mu := 1)"),
    "drawing": ("duckdb_dp.noise.gaussian", "draw", "FROM dp_marginals('t', ['c'], mu := 1)"),
    "aim": ("duckdb_dp.adaptive.aim", "select", "FROM dp_marginals('t', [['c'], ['b']], mu := 1, mechanism := 'aim')"),
    "rows": ("duckdb_dp.synthesis.table.methods", "_measure_forest", "FROM dp_synthesize('t', mu := 1)"),
    "a whole schema": ("duckdb_dp.synthesis.table.methods", "_measure_forest", "FROM dp_synthesize_database('main', 'made', mu := 1)"),
    "reading": ("duckdb_dp.sql.session", "load", "FROM dp_marginals('t', ['c'], mu := 1)"),
}  # fmt: skip


def interrupted(run: Callable[..., str], folder: object, script: str, statement: str, *, waits: bool) -> list:
    found, took, states, restored = json.loads(run(SCRIPT + script, folder, statement, "yes" if waits else ""))
    assert took < PATIENCE
    assert restored
    return [found, states]


def one_line(found: str) -> bool:
    line, *place = found.split("\n")
    return "interrupt" in line.lower() and "Traceback" not in found and (not place or place[1].startswith("LINE "))


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("place", "how"), [*((place, IN_C) for place in PLACES), *((place, STUCK) for place in ("planning", "rows"))]
)
def test_wherever_it_is(run: Callable[..., str], tmp_path, place: str, how: str) -> None:
    module, name, statement = PLACES[place]
    patched = f"import importlib\nsetattr(importlib.import_module({module!r}), {name!r}, stuck)\n"
    found, states = interrupted(run, tmp_path / "my.dp", how + patched + PRESS, statement, waits=True)
    assert one_line(found)
    charged = [] if place == "planning" else ["stored" if place == "reading" else "charged"]
    assert [state for _, state in states] == charged


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("time", range(3))
def test_while_duckdb_counts(run: Callable[..., str], tmp_path, time: int) -> None:
    """Whichever of its threads does: DuckDB itself waits for the others."""
    long = """
con.execute("CREATE VIEW long AS SELECT (i % 7)::INT AS c FROM range(1000000000000) r(i)").fetchall()
con.execute("CALL dp_protect('long', mu := 100); CALL dp_attribute('long', 'c', low := 0, high := 6)").fetchall()
"""
    ask = "FROM dp_marginals('long', ['c'], mu := 1)"
    found, states = interrupted(run, tmp_path / "l.dp", long + PRESS, ask, waits=False)
    assert one_line(found)
    assert states == []


@pytest.mark.slow
def test_the_handler_of_the_user_is_called_too(run: Callable[..., str], tmp_path) -> None:
    own = "signal.signal(signal.SIGINT, lambda *_: called.append(1))\nbefore = signal.getsignal(signal.SIGINT)\ncalled = []\n"
    script = own + STUCK + "import duckdb_dp.noise.gaussian\nduckdb_dp.noise.gaussian.draw = stuck\n" + PRESS
    told = script.replace("print(", "found += f' {called}'\nprint(")
    found, states = interrupted(run, tmp_path / "my.dp", told, PLACES["drawing"][2], waits=True)
    assert found.endswith("[1]")
    assert one_line(found.removesuffix(" [1]"))
    assert [state for _, state in states] == ["charged"]


def test_the_request_is_drawn_for_nothing_afterwards(exact, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise stopping.Stopped

    with monkeypatch.context() as patched:
        patched.setattr("duckdb_dp.noise.gaussian.draw", stopped)
        for _ in range(2):
            with pytest.raises(duckdb.Error, match="dp_marginals: interrupted; what was charged stays charged"):
                exact("FROM dp_marginals('people', ['sex'], mu := 0.5)")
            assert [charge["state"] for charge in exact.charged()] == ["charged"]
    assert exact("SELECT sum(count) FROM dp_marginals('people', ['sex'], mu := 0.5)") == [(420,)]
    assert [charge["state"] for charge in exact.charged()] == ["stored"]


def test_a_statement_leaves_no_handler_behind(exact) -> None:
    before = signal.getsignal(signal.SIGINT)
    for statement in (
        "FROM dp_marginals('people', ['sex'], mu := 0.5)",
        "FROM dp_explain('people', 'all 2-way', mu := 0.5)",
        "FROM dp_budget()",
    ):
        exact(statement)
        assert signal.getsignal(signal.SIGINT) is before
    exact.refused("FROM dp_marginals('people', ['nothing'], mu := 0.5)")
    assert signal.getsignal(signal.SIGINT) is before


def test_statements_of_other_threads_and_of_event_loops_run(exact) -> None:
    async def ask() -> list:
        return exact("FROM dp_marginals('people', ['sex'], mu := 0.5)")

    first = asyncio.run(ask())
    found: list = []
    thread = threading.Thread(target=lambda: found.append(exact("FROM dp_marginals('people', ['sex'], mu := 0.5)")))
    thread.start()
    thread.join()
    assert found == [first]


@pytest.mark.slow
def test_a_library_that_is_being_imported_is_left_whole(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slowly.py").write_text("import time\nfor _ in range(20):\n    time.sleep(0.05)\ndone = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    begun = threading.Event()
    ends: list[str] = []

    def work() -> None:
        begun.set()
        try:
            import slowly

            ends.append(str(slowly.done))
            while True:
                time.sleep(0.01)
        except stopping.Stopped:
            ends.append("stopped")

    task = stopping._Task(work)
    threading.Thread(target=lambda: (begun.wait(), task.stop())).start()
    with pytest.raises(stopping.Stopped):
        task.result()
    task._thread.join(PATIENCE)
    assert not task._thread.is_alive()
    import slowly

    assert slowly.done


def test_the_work_of_one_connection_is_stopped_and_that_of_others_goes_on() -> None:
    running, over, ends = threading.Barrier(3), threading.Event(), {}

    def work() -> str:
        running.wait(PATIENCE)
        while not over.wait(0.01):
            pass
        return "done"

    def wait(name: str) -> None:
        try:
            ends[name] = stopping.run(work, connection=name)
        except stopping.Stopped:
            ends[name] = "stopped"

    threads = [threading.Thread(target=wait, args=(name,)) for name in ("mine", "")]
    for each in threads:
        each.start()
    running.wait(PATIENCE)
    stopping.end(threading.get_ident(), "mine")
    threads[0].join(PATIENCE)
    stopping.end(threading.get_ident(), "")
    over.set()
    threads[1].join(PATIENCE)
    assert ends == {"mine": "stopped", "": "done"}
