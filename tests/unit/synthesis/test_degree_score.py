"""How far one unit can move the score of degrees: what its noise is calibrated to."""

from types import SimpleNamespace
from typing import Any

import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.synthesis import quality


@pytest.mark.parametrize(("rows", "moved"), [(1, 2.0), (2, 1.0), (5, 1.0)])
def test_a_unit_without_its_links_moves_two_cells_of_the_degrees(
    monkeypatch: pytest.MonkeyPatch, rows: int, moved: float
) -> None:
    """In units of k: two cells change by 1, whatever k is, and a unit of k rows is k."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(quality.scores, "private_score", lambda *_, **more: seen.update(more))
    monkeypatch.setattr(quality, "_marginals", lambda *_: None)
    queryable: Any = SimpleNamespace(rows=rows, domain=Domain({"degree": 3}), measure=lambda *_: None)
    group: Any = SimpleNamespace(cliques=(("degree",),), attributes=())
    table: Any = None
    quality._degree_score(queryable, group, table, 1.0, lambda items, _: items)
    assert seen["moved"] == moved
