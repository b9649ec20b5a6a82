"""Ctrl-C ends a statement wherever it is: what was charged stays charged, and the same request is drawn for nothing."""

import json
from collections.abc import Callable

import pytest

PATIENCE = 30.0
"""Seconds that nobody would wait for; the statements below take minutes, or for ever."""

SCRIPT = """
import json, os, signal, sys, threading, time
import duckdb, duckdb_dp, duckdb_dp.testing

con = duckdb.connect()
con.execute("CREATE TABLE t AS SELECT (i % 5000)::INT AS a, (i % 4001)::INT AS b, (i % 7)::INT AS c FROM range(9000) r(i)")
duckdb_dp.load(con, sys.argv[1])
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
print(json.dumps([found, took, states, signal.getsignal(signal.SIGINT) is before]))
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
    "planning": (
        "duckdb_dp.plan.choose",
        "residual",
        "FROM dp_marginals('t', ['c'], mu := 1, mechanism := 'residual')",
    ),
    "drawing": ("duckdb_dp.noise.gaussian", "draw", "FROM dp_marginals('t', ['c'], mu := 1)"),
    "aim": ("duckdb_dp.adaptive.aim", "_select", "FROM dp_marginals('t', [['c'], ['b']], mu := 1, mechanism := 'aim')"),
    "rows": ("duckdb_dp.synth.synthesize", "measure", "FROM dp_synthesize('t', ['b', 'c'], mu := 1)"),
    "reading": ("duckdb_dp.answers", "load", "FROM dp_marginals('t', ['c'], mu := 1)"),
}


def interrupted(run: Callable[..., str], folder: object, script: str, statement: str, *, waits: bool) -> list:
    found, took, states, restored = json.loads(run(SCRIPT + script, folder, statement, "yes" if waits else ""))
    assert took < PATIENCE
    assert restored
    return [found, states]


def one_line(found: str) -> bool:
    line, *place = found.split("\n")
    return "interrupt" in line.lower() and "Traceback" not in found and (not place or place[1].startswith("LINE "))


@pytest.mark.parametrize("how", [STUCK, IN_C], ids=["python", "c"])
@pytest.mark.parametrize("place", PLACES)
def test_wherever_it_is(run: Callable[..., str], tmp_path, place: str, how: str) -> None:
    module, name, statement = PLACES[place]
    patched = f"import importlib\nsetattr(importlib.import_module({module!r}), {name!r}, stuck)\n"
    found, states = interrupted(run, tmp_path / "my.dp", how + patched + PRESS, statement, waits=True)
    assert one_line(found)
    charged = [] if place == "planning" else ["stored" if place == "reading" else "charged"]
    assert [state for _, state in states] == charged
