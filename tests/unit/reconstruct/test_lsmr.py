import functools

import numpy as np

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Dense, Identity, Kron, LinOp
from duckdb_dp.reconstruct.lsmr import least_squares


def test_it_is_generalised_least_squares() -> None:
    domain, rng = Domain({"a": 3, "b": 2, "c": 4}), np.random.default_rng(2)
    strategies: dict[tuple[str, ...], LinOp] = {
        ("a", "c"): Kron((Dense(np.tril(np.ones((3, 3)))), Dense(rng.normal(size=(5, 4))))),
        ("b",): Identity(2),
        (): Identity(1),
    }
    variances = {("a", "c"): 0.5, ("b",): 2.0, (): 7.0}
    noisy = {clique: rng.normal(size=strategy.shape[0]) for clique, strategy in strategies.items()}
    rows = np.concatenate(
        [
            strategy.dense()
            @ functools.reduce(
                np.kron, [np.eye(n) if name in clique else np.ones((1, n)) for name, n in domain.sizes.items()]
            )
            / np.sqrt(variances[clique])
            for clique, strategy in strategies.items()
        ]
    )
    answers = np.concatenate([noisy[clique] / np.sqrt(variances[clique]) for clique in strategies])
    found = least_squares(domain, domain.attributes, strategies, noisy, variances)
    np.testing.assert_allclose(found, np.linalg.pinv(rows) @ answers, atol=1e-9)
