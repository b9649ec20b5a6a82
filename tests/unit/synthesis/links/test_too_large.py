"""Pairs that are said to have too many cells, before anything is measured, are those that are measured at no budget."""

from dataclasses import replace

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.synthesis.links import learner, mwem_pgd
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.sides import side_of

SIZES = [1, 2, 9, 40, 128, 129, 130, 300, 2048, 2049, 20_000]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("per_unit", [0, 1])
def test_links_measure_all_other_pairs_where_there_are_units_enough(seed: int, per_unit: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.choice(SIZES, 6).tolist()
    domain = Domain(dict(zip("abcxyz", sizes, strict=True)))
    sides = [
        side_of(tuple(names), np.zeros((1, 3), dtype=np.int64), max_degree=None, linked=None)
        for names in ("abc", "xyz")
    ]
    blocks = Blocks(domain, *sides)
    begun = learner.start(
        blocks,
        Rows(),
        total=1e9,
        total_relative_variance=0.0,
        k=3,
        one_parent=False,
        base=np.ones((1, 1)),
        per_unit=per_unit,
    )  # type: ignore[arg-type]
    said = set(learner.too_large(domain, "abc", "xyz"))
    across = {(a, x) for a in "abc" for x in "xyz" if min(domain.shape((a, x))) > 1}
    assert said == across - set(begun.residuals)
    assert all(domain.cells(pair) > 600 for pair in said)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("left", ["a", "ab"])
def test_attributes_that_follow_from_others_are_not_measured_with_them(k: int, left: str) -> None:
    """And all else is, also where no other three attributes have it."""
    domain = Domain(dict.fromkeys((*left, *"xyz"), 3))

    def measured(*pairs: tuple[str, str]) -> set[tuple[str, ...]]:
        sides = [side_of(tuple(names), np.zeros((1, len(names)), dtype=np.int64)) for names in (left, "xyz")]
        blocks = Blocks(domain, sides[0], replace(sides[1], implied=frozenset(pairs)))
        begun = learner.start(
            blocks,
            Rows(),
            total=1e9,
            total_relative_variance=0.0,
            k=k,
            one_parent=False,
            base=np.ones((1, 1)),
            per_unit=0,
        )  # type: ignore[arg-type]
        return set(begun.residuals)

    assert measured(("x", "y")) == {clique for clique in measured() if not {*clique} >= {"x", "y"}}
    assert {("x",), ("y",), ("a", "x"), ("a", "y")} <= measured(("x", "y"))


class Rows:
    """A queryable of which no more is asked than the rows of a unit."""

    rows = 1


def test_workloads_of_the_published_methods_have_all_other_pairs() -> None:
    domain = Domain({"a": 3, "b": 2000, "x": 2, "y": 2000})
    assert mwem_pgd.too_large(domain, "ab", "xy") == [("b", "y")]
    assert mwem_pgd.too_large(domain, "a", "x") == []
