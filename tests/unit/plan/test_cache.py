"""Solved strategies on disk."""

from pathlib import Path

import numpy as np
import pytest

from duckdb_dp.optimize.strategy import Strategy, solve
from duckdb_dp.plan import cache

GRAM = np.array([[max(4 - max(i, j), 0) for j in range(4)] for i in range(4)], dtype=float)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "strategies"))
    monkeypatch.setattr(cache, "WORTH", 0)
    return tmp_path / "strategies"


def find(calls: list[float], gram: np.ndarray = GRAM, tol: float = 1e-3) -> Strategy:
    def work() -> Strategy:
        calls.append(tol)
        return solve(gram=gram, tol=tol)

    return cache.cached(gram, "gram", tol, work)


def test_a_second_process_would_find_the_same_solution(folder: Path) -> None:
    calls: list[float] = []
    first, second = find(calls), find(calls)
    assert len(calls) == 1
    assert np.array_equal(first.matrix, second.matrix)
    assert (first.primal, first.dual, first.steps) == (second.primal, second.dual, second.steps)


def test_another_problem_or_tolerance_is_another_entry(folder: Path) -> None:
    calls: list[float] = []
    find(calls), find(calls, gram=2 * GRAM), find(calls, tol=1e-4)
    assert len(calls) == 3 == len(list(folder.iterdir()))


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04"])
def test_a_damaged_entry_is_solved_again(folder: Path, content: bytes) -> None:
    calls: list[float] = []
    find(calls)
    (entry,) = folder.iterdir()
    entry.write_bytes(content)
    find(calls)
    assert len(calls) == 2


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "strategies"))
    monkeypatch.setattr(cache, "WORTH", 0)
    calls: list[float] = []
    find(calls), find(calls)
    assert len(calls) == 2


def test_off_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "WORTH", 0)
    find([])
    assert not list(tmp_path.iterdir())
