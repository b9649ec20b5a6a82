"""A small table behind a queryable."""

from collections.abc import Callable

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP, Accounting
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.testing import SeededEntropy

DOMAIN = Domain({"a": 3, "b": 4, "one": 1, "c": 5, "d": 2})


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mixtures are fitted roughly: these tests are about budgets and not about the last percent of accuracy."""
    monkeypatch.setattr("duckdb_dp.adaptive.neyman.mechanism.STEPS", 40)


@pytest.fixture(scope="session")
def domain() -> Domain:
    return DOMAIN


@pytest.fixture(scope="session")
def table() -> np.ndarray:
    """3,000 rows: a and b hang together, the others do not."""
    rng = np.random.default_rng(7)
    shares = rng.dirichlet(np.full(12, 0.3)).reshape(3, 4, 1, 1, 1) * rng.dirichlet(np.ones(10)).reshape(1, 1, 1, 5, 2)
    return np.asarray(rng.multinomial(3_000, shares.reshape(-1)).reshape(DOMAIN.shape(DOMAIN.attributes)))


@pytest.fixture(scope="session")
def truth(table: np.ndarray) -> Callable[[Clique], np.ndarray]:
    def marginal(clique: Clique) -> np.ndarray:
        axes = tuple(i for i, name in enumerate(DOMAIN.attributes) if name not in clique)
        return np.asarray(table.sum(axis=axes), dtype=float)

    return marginal


@pytest.fixture(scope="session")
def queryable_of(table: np.ndarray) -> Callable[..., PrivateQueryable]:
    """(rho, seed or bits, accounting, rows) -> queryable."""

    def build(
        rho: float = 0.5, bits: int | EntropySource = 1, *, accounting: Accounting = ZCDP, rows: int = 1
    ) -> PrivateQueryable:
        flat = table.reshape(-1)
        keys = np.flatnonzero(flat)
        counts = Counts(DOMAIN, {DOMAIN.attributes: (keys, flat[keys])})
        source = SeededEntropy(bits) if isinstance(bits, int) else bits
        return PrivateQueryable(counts, total=rho, accounting=accounting, rows=rows, bits=source)

    return build
