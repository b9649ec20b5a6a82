"""Ctrl-C while functions of this package run: it stops them at once.

Python handles Ctrl-C only in the main thread, between two lines of Python, and DuckDB calls functions in threads of its own. So the
work of a function is done in another thread. The function waits for that thread, and a handler of SIGINT ends the wait. The other
thread ends at its next line of Python.
"""

import ctypes
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Generic, TypeVar, final

import duckdb

from duckdb_dp.linop.threads import one_thread
from duckdb_dp.sql.registry import Role

INTERRUPTED = "interrupted; what was charged stays charged, and the same request draws it at no new cost."

Result = TypeVar("Result")

CONNECTIONS: "weakref.WeakKeyDictionary[Any, tuple[Role, str]]" = weakref.WeakKeyDictionary()
"""Those that have the functions, and whose they are: the role, and the key that its macros say."""

_stops: dict[Callable[[], object], tuple[int, str]] = {}
"""What ends the work in progress, the thread that waits for it, and the key of the connection whose work it is, if that is known."""


class Stopped(SystemExit):
    """Ctrl-C was pressed. A thread that it ends prints nothing."""


def run(work: Callable[[], Result], *, planning: bool = False, connection: str = "") -> Result:
    """Run some work and return or raise what it does; raise ``Stopped`` as soon as Ctrl-C is pressed.

    Args:
        work: what to do.
        planning: whether the statement continues after it, in threads that cannot handle signals themselves.
        connection: the key of the connection whose work it is.
    """
    _listen()
    task = _Task(work)
    try:
        with also(task.stop, connection):
            found: Result = task.result()
            return found
    finally:
        if not planning:
            ctypes.pythonapi.Py_AddPendingCall(_PUT_BACK, None)  # in the main thread, when it runs Python next


@contextmanager
def also(stop: Callable[[], object], connection: str = "") -> Iterator[None]:
    """While a block runs, Ctrl-C calls this too, such as the ``interrupt`` of a connection that is used in it."""
    _stops[stop] = threading.get_ident(), connection
    try:
        yield
    finally:
        del _stops[stop]


def end(thread: int, connection: str = "") -> None:
    """Stop the work of a connection, or that a thread waits for, as Ctrl-C would, where its time is over.

    DuckDB calls functions in any of its threads, so that the one that waits may be none that anybody knows.
    """
    for stop, (waits, whose) in dict(_stops).items():
        if waits == thread or (connection and whose == connection):
            stop()


@contextmanager
def at_once(stop: Callable[[], object]) -> Iterator[None]:
    """While a block runs, a signal calls this even if the main thread cannot handle signals, as while DuckDB plans a statement.

    Only for programs such as the shell, because it uses the process's single signal wake-up file descriptor.
    """
    signals, wakeup = os.pipe()
    os.set_blocking(wakeup, False)

    def watch() -> None:
        with os.fdopen(signals, "rb", buffering=0) as numbers:
            while number := numbers.read(1):
                if number[0] == signal.SIGINT:
                    with suppress(duckdb.Error):  # the statement is over, and its connection closed
                        stop()

    before = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakeup)


@final
class _Task(Generic[Result]):
    """Work in a thread of its own, which nobody need wait for."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._over: SimpleQueue[None] = SimpleQueue()  # a signal handler may put into it
        self._stopped = False
        self._found: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def result(self) -> Result:
        self._thread.start()
        try:
            self._wait()
        except BaseException:  # a handler of the user's raised it
            self._stopped = True
            raise
        finally:
            if self._stopped:
                threading.Thread(target=self._end, daemon=True).start()
        if self._stopped:
            raise Stopped
        self._thread.join()  # it is at its end; were it to outlive a process's last statement, DuckDB would print what it holds
        if self._error is not None:
            raise self._error
        return self._found[0]

    def stop(self) -> None:
        self._stopped = True
        self._over.put(None)

    def _wait(self) -> None:
        """Look up at times: a signal that another thread of the process receives does not end the main thread's wait."""
        while True:
            with suppress(Empty):
                return self._over.get(timeout=0.1)

    def _end(self) -> None:
        """End the thread, but while it imports: half a library cannot be imported again."""
        number = ctypes.c_ulong(self._thread.ident or 0)
        while self._thread.is_alive():
            if not self._imports():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(Stopped))
                self._thread.join(1)
            self._thread.join(0.05)

    def _imports(self) -> bool:
        frame = sys._current_frames().get(self._thread.ident or 0)
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return True
            frame = frame.f_back
        return False

    def _run(self) -> None:
        try:
            with one_thread():
                self._found.append(self._work())
        except BaseException as error:
            self._error = error
        self._over.put(None)


@final
class _Handler:
    """Ends the work in progress and goes on to the handler that was there before."""

    def __init__(self, before: Callable[[int, FrameType | None], object]) -> None:
        self.before = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        stops = dict(_stops)
        for stop in stops:
            stop()
        waits = _is_waiting()
        if not waits:
            # DuckDB itself stops where it hears of Ctrl-C, and then waits for its other threads to finish what they do.
            for connection in list(CONNECTIONS):
                connection.interrupt()
        # What the main thread waits for ends with an error that says so; a KeyboardInterrupt would hide it.
        if not (waits and self.before is signal.default_int_handler):
            self.before(number, frame)


def _listen() -> None:
    """Put a handler before the present one. Only the main thread can, and there statements are planned."""
    if threading.current_thread() is threading.main_thread():
        present = signal.getsignal(signal.SIGINT)
        if callable(present) and not isinstance(present, _Handler):
            signal.signal(signal.SIGINT, _Handler(present))


def _is_waiting() -> bool:
    """Whether this thread waits for work that can be stopped."""
    return any(thread == threading.get_ident() for thread, _ in dict(_stops).values())


def _put_back(_: object) -> int:
    present = signal.getsignal(signal.SIGINT)
    if isinstance(present, _Handler) and not _is_waiting():
        signal.signal(signal.SIGINT, present.before)
    return 0


_PUT_BACK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_put_back)
