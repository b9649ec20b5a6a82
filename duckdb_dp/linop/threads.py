"""How many threads linear algebra uses."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import Any

_LIBRARIES = ("numpy", "scipy.linalg")
"""Each brings threads of its own; those of scipy.linalg are those of all of scipy."""

_lock = Lock()
_inside = 0
_limits: dict[tuple[str, ...], Any] = {}
"""What is loaded -> the limit of its threads, the oldest first, while anything is inside ``one_thread``."""

_controllers: dict[tuple[str, ...], Any] = {}
"""What is loaded -> the controller of its threads, which takes a millisecond to find."""


@contextmanager
def one_thread(*, with_scipy: bool = False) -> Iterator[None]:
    """A context in which linear algebra uses one thread, in the whole process; calls may overlap.

    Several threads wait for one another at each of many small products. On two cores that other programs want too, one thread is
    6 to 15 times as fast for p-Identity on 256 to 1,024 cells, 3 times on 2,048, and 8 times for four columns by a strategy of 3,372
    cells. And numpy and scipy each have threads of their own, which a search calls in turns: those of one spin while the other's work.

    Args:
        with_scipy: whether scipy is used, which is loaded then; else only what is loaded already is limited.
    """
    global _inside
    for name in _LIBRARIES if with_scipy else ():
        import_module(name)
    with _lock:
        _inside += 1
        loaded = _loaded()
        if loaded not in _limits:
            _limits[loaded] = _controller(loaded).limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            while _limits and not _inside:
                _limits.popitem()[1].restore_original_limits()


@contextmanager
def all_threads() -> Iterator[None]:
    """A context inside ``one_thread`` in which large products use as many threads as outside."""
    with _lock:
        limits = list(_limits.values())
    for limit in reversed(limits):
        limit.restore_original_limits()
    try:
        yield
    finally:
        with _lock:
            if _inside:
                _controller(_loaded()).limit(limits=1, user_api="blas")


def _loaded() -> tuple[str, ...]:
    return tuple(name for name in _LIBRARIES if name in sys.modules)


def _controller(loaded: tuple[str, ...]) -> Any:
    from threadpoolctl import ThreadpoolController  # for import time

    if loaded not in _controllers:
        _controllers[loaded] = ThreadpoolController()
    return _controllers[loaded]
