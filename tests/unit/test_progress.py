"""Progress of long work, where there may be nothing to show it with."""

from collections.abc import Callable

import pytest

from duckdb_dp.progress import silent, tracker


def test_a_notebook_without_ipywidgets_is_left_in_peace(run: Callable[..., str]) -> None:
    for module in ("IPython", "ipykernel"):
        pytest.importorskip(module)
    script = """
        import sys, warnings
        import ipykernel.zmqshell  # what tqdm knows a notebook by
        sys.modules["ipywidgets"] = None
        warnings.simplefilter("always")  # as an error tqdm would catch its own warning
        from duckdb_dp import progress
        progress.SHOWN_AFTER = -1
        print(sum(progress.tracker(True)(range(4), "adding")))
        from tqdm.auto import tqdm
        print(tqdm.__module__)
    """
    assert run(script) == "6\ntqdm.asyncio\n"


def test_no_bar_where_none_is_wanted() -> None:
    items = [1, 2]
    assert tracker(False) is silent
    assert silent(items, "adding") is items
