"""For tests of code that uses this package: repeatable noise, or none. Nothing made with it is private."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

import numpy as np
import numpy.typing as npt

from duckdb_dp.errors import DPError, as_sql, expect

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ZERO = np.uint64(2**63 - 1)  # the tail 1/2: the draw next to 0


@final
class SeededEntropy:
    """Repeatable 64-bit words from a seed, for tests only.

    Privacy: none. Whoever knows the seed can take the noise off again: a release drawn with it is not private.
    """

    private: bool = False

    def __init__(self, seed: int) -> None:
        """Start the stream of `seed`."""
        expect("testing", "seed", seed, int, "a whole number of at least 0, e.g. 1")
        if seed < 0:
            raise DPError(f"testing: seed is {as_sql(seed)}; give a whole number of at least 0, e.g. 1.")
        self._generator = np.random.PCG64(seed)

    def uint64(self, size: int) -> npt.NDArray[np.uint64]:
        """Draw the next `size` words of the seed's stream, shape `(size,)`."""
        return np.asarray(self._generator.random_raw(size), dtype=np.uint64)


@final
class NoNoise:
    """Words that every sampler of this package turns into 0, and a selection into the largest score, for tests only.

    Privacy: none. A release drawn with it is the private data.
    """

    private: bool = False

    def uint64(self, size: int) -> npt.NDArray[np.uint64]:
        """Draw `size` equal words, shape `(size,)`."""
        return np.full(size, _ZERO)


def load(
    con: "DuckDBPyConnection",
    ledger: str | Path | None = None,
    *,
    seed: int,
    role: Literal["curator", "analyst"] = "curator",
) -> None:
    """What ``duckdb_dp.load`` does, with the noise of a seed. Results and ledger say ``private = false``.

    Args:
        con: any ``duckdb.connect()`` connection.
        ledger: folder of the ledger; as for ``duckdb_dp.load``.
        seed: of the noise. Charges and budgets work as ever.
        role: as for ``duckdb_dp.load``.

    Privacy: none.
    """
    from duckdb_dp.sql.install import load as install

    install(con, ledger, bits=SeededEntropy(seed), progress=False, role=role)


def load_exact(con: "DuckDBPyConnection", ledger: str | Path | None = None) -> None:
    """What ``duckdb_dp.load`` does, with all noise 0. Results and ledger say ``private = false``.

    Args:
        con: any ``duckdb.connect()`` connection.
        ledger: folder of the ledger; as for ``duckdb_dp.load``. Charges and budgets work as ever.

    Privacy: none: exact answers from private data.
    """
    from duckdb_dp.sql.install import load as install

    install(con, ledger, bits=NoNoise(), progress=False)
