"""Tables that are worked on together, against each of them alone."""

import itertools

import numpy as np
import pytest

from duckdb_dp.domain.domain import Clique, Domain, subsets
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct import stacks as module
from duckdb_dp.reconstruct.grem import centred
from duckdb_dp.reconstruct.nonneg import simplex, simplices
from duckdb_dp.reconstruct.residual import marginal
from duckdb_dp.reconstruct.stacks import ROOM, shapes, stacks, summed

RNG = np.random.default_rng(5)
DOMAIN = Domain({f"a{i}": n for i, n in enumerate((2, 3, 3, 7, 8, 9, 20, 1))})
CLIQUES = [clique for k in (0, 1, 2, 3) for clique in itertools.combinations(DOMAIN.attributes, k)]
TABLES = {clique: RNG.normal(size=DOMAIN.shape(clique)) for clique in CLIQUES}


def test_every_table_is_in_one_stack_with_little_room() -> None:
    found = stacks(shapes(TABLES))
    assert sorted(clique for stack in found for clique in stack.cliques) == sorted(CLIQUES)
    assert len(found) < len({table.shape for table in TABLES.values()})
    for stack in found:
        assert stack.sizes.tolist() == [list(DOMAIN.shape(clique)) for clique in stack.cliques]
        assert np.prod(stack.shape) <= ROOM * np.prod(stack.sizes, axis=1).min()


def test_a_stack_is_no_larger_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CELLS", 200)
    monkeypatch.setattr(module, "KEPT", 0)
    for stack in stacks(shapes(TABLES)):
        assert len(stack.cliques) == 1 or len(stack.cliques) * np.prod(stack.shape) <= 200


def test_tables_come_back_and_what_is_beyond_them_is_empty() -> None:
    for stack in stacks(shapes(TABLES)):
        tables = stack.stacked(TABLES)
        for clique, table in zip(stack.cliques, stack.apart(tables), strict=True):
            assert np.array_equal(table, TABLES[clique])
        assert not tables[~stack.inside].any()
        assert not stack.stacked({}).any()


def test_residuals_and_marginals_are_those_of_each_table() -> None:
    residuals: dict[Clique, Array] = {
        clique: centred(table) for clique, table in TABLES.items() if "a7" not in clique and clique != ("a0", "a3")
    }
    for stack in stacks(shapes(TABLES)):
        for axes in subsets(stack.axes):
            found = stack.centred(stack.stacked(TABLES, axes), axes)
            for clique, table in zip(stack.parts(axes), stack.apart(found, axes), strict=True):
                assert table == pytest.approx(centred(TABLES[clique]), abs=1e-12)
        whole = stack.spread({axes: stack.stacked(residuals, axes) for axes in subsets(stack.axes)})
        assert not whole[~stack.inside].any()
        for clique, table in zip(stack.cliques, stack.apart(whole), strict=True):
            assert table == pytest.approx(marginal(DOMAIN, clique, residuals), abs=1e-12)


def test_sums_along_each_axis() -> None:
    tables = RNG.normal(size=(4, 3, 1, 5))
    for axis in range(4):
        assert summed(tables, axis) == pytest.approx(tables.sum(axis=axis))


@pytest.mark.parametrize("total", [-1.0, 0.0, 1e-3, 5.0, 1e4])
def test_the_simplices_are_those_of_each_row(total: float) -> None:
    values = RNG.normal(size=(50, 12)) * np.geomspace(0.1, 100, 50)[:, None]
    inside = np.arange(12) < RNG.integers(1, 13, 50)[:, None]
    found = simplices(values, total, inside)
    for row, own, kept in zip(values, found, inside, strict=True):
        assert own[kept] == pytest.approx(simplex(row[kept], total), abs=1e-9)
        assert not own[~kept].any()
