"""Domains: sizes, cliques in order, and every check."""

import math

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.errors import DPError

D = Domain({"age": 85, "sex": 2, "race": 5})


def test_sizes_and_order() -> None:
    assert D.attributes == ("age", "sex", "race")
    assert D.clique(["race", "age"]) == ("age", "race")
    assert D.clique(("sex",)) == D.clique("sex") == ("sex",)
    assert D.clique([]) == ()
    assert D.shape(("age", "race")) == (85, 5)
    assert (D.cells(("age", "race")), D.cells(()), D.cells(D.attributes)) == (425, 1, 850)


def test_equal_domains_are_one() -> None:
    assert Domain({"a": 1, "b": 2}) == Domain({"a": np.int64(1), "b": 2})
    assert len({Domain({"a": 1, "b": 2}), Domain({"a": 1, "b": 2})}) == 1
    assert hash(Domain({"a": 1, "b": 2})) != hash(Domain({"b": 2, "a": 1}))  # the order of cells is another
    sizes = {"a": 2}
    kept = Domain(sizes)
    sizes["a"] = 3
    assert kept.sizes == {"a": 2}


@pytest.mark.parametrize("size", [0, -1, 1.5, "2", None, True, math.nan])
def test_sizes_that_are_none(size: object) -> None:
    with pytest.raises(DPError, match="a size is a whole number of at least 1"):
        Domain({"a": size})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["", 3, None])
def test_names_that_are_none(name: object) -> None:
    with pytest.raises(DPError, match="attribute names are non-empty strings"):
        Domain({name: 2})  # type: ignore[dict-item]


def test_unknown_and_repeated_attributes() -> None:
    with pytest.raises(DPError, match=r"unknown attribute 'height'; the domain has: age, sex, race\."):
        D.clique(["age", "height"])
    with pytest.raises(DPError, match="attribute 'age' is named twice"):
        D.clique(["age", "sex", "age"])


def test_an_empty_domain_has_a_total() -> None:
    assert Domain({}).cells(()) == 1
    assert Domain({}).attributes == ()
