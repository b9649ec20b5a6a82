import itertools
from collections.abc import Callable

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Domain
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.testing import SeededEntropy

MakeDoor = Callable[..., PrivateQueryable]


@pytest.fixture
def domain() -> Domain:
    return Domain({"a": 4, "b": 3, "c": 5, "d": 2, "e": 6})


@pytest.fixture
def codes(domain: Domain) -> Codes:
    """4,000 records: b follows a, c follows b, d follows c and a together, e nothing."""
    rng = np.random.default_rng(0)
    a = rng.choice(4, 4000, p=[0.4, 0.3, 0.2, 0.1])
    b = np.where(rng.random(4000) < 0.8, a % 3, rng.integers(0, 3, 4000))
    c = np.where(rng.random(4000) < 0.7, b + 1, rng.integers(0, 5, 4000))
    d = np.where(rng.random(4000) < 0.9, (c + a) % 2, rng.integers(0, 2, 4000))
    return np.stack([a, b, c, d, rng.integers(0, 6, 4000)], axis=1).astype(np.int32)


@pytest.fixture
def queryable() -> MakeDoor:
    """The real queryable to records, all their marginals up to an order counted."""

    def make(
        domain: Domain, codes: Codes, rho: float, *, order: int = 3, bits: EntropySource | None = None, rows: int = 1
    ) -> PrivateQueryable:
        names, blocks = domain.attributes, {}
        for chosen in itertools.combinations(range(len(names)), min(order, len(names))):
            clique = tuple(names[i] for i in chosen)
            cells = np.ravel_multi_index(tuple(codes[:, i] for i in chosen), domain.shape(clique))
            blocks[clique] = np.unique(cells, return_counts=True)
        counts = Counts(domain, blocks)
        return PrivateQueryable(counts, total=rho, accounting=ZCDP, rows=rows, bits=bits or SeededEntropy(1))

    return make
