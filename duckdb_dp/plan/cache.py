"""A cache of solved strategies on disk: public numbers that depend only on the queries.

Nothing here is trusted for privacy: the sensitivity of a strategy is always worked out from its matrix.
"""

import os
from collections.abc import Callable
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from zipfile import BadZipFile

import numpy as np

from duckdb_dp.linop import Array
from duckdb_dp.optimize.strategy import Strategy

VERSION = 2
"""Part of every key: raise it when the solver gets better."""

VARIABLE = "DUCKDB_DP_CACHE"
"""Environment variable: the folder to use, or 'off'."""

WORTH = 16
"""Steps from which a solution is kept: quicker ones are as quick to find again."""


def cached(problem: Array, kind: str, tol: float, solve: Callable[[], Strategy]) -> Strategy:
    """The stored solution of a problem, or a new one.

    Args:
        problem: the Gram matrix or factor that defines it.
        kind: which of the two.
        tol: the gap that it is solved to.
        solve: finds it.
    """
    folder = _folder()
    if folder is None:
        return solve()
    text = f"{VERSION} {kind} {tol} {problem.shape} ".encode()
    path = folder / f"{sha256(text + np.ascontiguousarray(problem).tobytes()).hexdigest()}.npz"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return Strategy(
                matrix=stored["matrix"],
                weights=stored["weights"],
                primal=float(stored["primal"]),
                dual=float(stored["dual"]),
                steps=int(stored["steps"]),
            )
    except (OSError, EOFError, KeyError, ValueError, BadZipFile):
        found = solve()
    if found.steps >= WORTH:
        _store(path, found)
    return found


def _store(path: Path, found: Strategy) -> None:
    """Write beside and rename, so that no reader sees half a file; a folder that cannot be written costs only time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            arrays: dict[str, Any] = {field.name: np.asarray(getattr(found, field.name)) for field in fields(found)}
            np.savez(file, **arrays)
        Path(file.name).replace(path)
    except OSError:
        pass


def _folder() -> Path | None:
    given = os.environ.get(VARIABLE)
    if given == "off":
        return None
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "duckdb_dp" / "strategies"
