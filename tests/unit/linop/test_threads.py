"""Linear algebra has one thread while any call runs, and as many as before once none does.

In processes of their own: threadpoolctl lets one thread alone set a number while that thread lives, and the main thread does.
"""

import textwrap
from collections.abc import Callable

import pytest

BEGUN = """
import sys
import threading
import numpy
from threadpoolctl import threadpool_info, threadpool_limits
from duckdb_dp.linop import threads

def seen():
    return max(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")

def elsewhere(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread

elsewhere(lambda: threadpool_limits(3, user_api="blas")).join()
found = [seen()]

def run():
"""


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (
            """
            with threads.one_thread():
                found.append(seen())
                with threads.one_thread():
                    found.append(seen())
                found.append(seen())
                with threads.all_threads():
                    found.append(seen())
                found.append(seen())
            """,
            [3, 1, 1, 1, 3, 1, 3],
        ),
        (
            """
            with threads.one_thread():
                with threads.one_thread(with_scipy=True):  # whose threads are others
                    found.append(seen())
                    found.append("scipy.linalg" in sys.modules)
                found.append(seen())
            threadpool_limits(3, user_api="blas")
            """,
            [3, 1, True, 1, 3],
        ),
        (
            """
            try:
                with threads.one_thread():
                    raise ValueError
            except ValueError:
                found.append(seen())
            """,
            [3, 3, 3],
        ),
        (
            """
            first, second, leave = threading.Event(), threading.Event(), threading.Event()

            def one():
                with threads.one_thread():
                    first.set()
                    second.wait()

            def other():
                with threads.one_thread():
                    second.set()
                    leave.wait()

            begun = elsewhere(one)
            first.wait()
            last = elsewhere(other)
            begun.join()
            found.append(seen())
            leave.set()
            last.join()
            """,
            [3, 1, 3],
        ),
        (
            """
            from duckdb_dp.sql import stopping
            found.append(stopping.run(seen))
            """,
            [3, 1, 3],
        ),
    ],
    ids=["nested", "loaded inside", "error", "overlapping", "a call"],
)
def test_one_inside_and_as_many_as_before_outside(run: Callable[..., str], script: str, found: list[int]) -> None:
    body = textwrap.indent(textwrap.dedent(script), "    ")
    assert run(f"{BEGUN}{body}\nelsewhere(run).join()\nprint(found + [seen()])").split("\n")[0] == str(found)
