"""The first requests of a gateway, which import what agents need."""

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import sys, threading
from duckdb_dp.gateway.http.app import _imported
from duckdb_dp.gateway.http.guard import Guard

sys.setswitchinterval(1e-5)
failed = []

def run(work):
    try:
        work()
    except BaseException as error:
        failed.append(error)

async def app(scope, receive, send): ...

works = [lambda: Guard(app)._limited, _imported, _imported, lambda: Guard(app)._limited]
threads = [threading.Thread(target=run, args=(work,)) for work in works]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
"""


@pytest.mark.slow
def test_first_requests_at_a_time_import_what_they_need() -> None:
    """Parts of one package that import each other, in threads: Python gives up where each waits for the other."""
    pytest.importorskip("mcp")
    for _ in range(2):
        subprocess.run([sys.executable, "-c", textwrap.dedent(SCRIPT)], check=True, timeout=120)
