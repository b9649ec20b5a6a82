"""Progress bars for long computations: on a terminal or in a notebook, but not when output is piped or bars are off."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any

Track = Callable[[Sequence[Any], str], Iterable[Any]]
"""Wraps a long loop: (items, what is done to them) -> the same items."""

SHOWN_AFTER = 1.0
"""Seconds before a bar appears: short work shows none."""


def tracker(progress: bool) -> Track:
    """The wrapper for long loops: a tqdm bar, or nothing."""
    return _bar if progress else silent


def silent(items: Sequence[Any], what: str) -> Iterable[Any]:
    """No progress."""
    return items


def _bar(items: Sequence[Any], what: str) -> Iterator[Any]:
    """The items, with a bar as soon as they have taken a second: importing tqdm takes 40 ms."""
    start = monotonic()
    for done, item in enumerate(items):
        if monotonic() - start > SHOWN_AFTER:
            yield from _shown(items, what, done)
            return
        yield item


def _shown(items: Sequence[Any], what: str, done: int) -> Iterable[Any]:
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # A notebook without ipywidgets shows no bar, and no advice about it either.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm

    # disable=None: no bar where standard error is not a terminal.
    bar: Iterable[Any] = tqdm(items[done:], desc=what, initial=done, total=len(items), disable=None, leave=False)
    return bar
