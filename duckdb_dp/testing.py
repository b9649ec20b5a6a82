"""Help for tests of code that uses this package."""

from typing import final

import numpy as np
import numpy.typing as npt


@final
class SeededBits:
    """Repeatable 64-bit words from a seed, for tests only.

    Privacy: none. Whoever knows the seed can take the noise off again: a release drawn with it is not private.
    """

    private: bool = False

    def __init__(self, seed: int) -> None:
        """Start the stream of `seed`."""
        self._generator = np.random.PCG64(seed)

    def uint64(self, size: int) -> npt.NDArray[np.uint64]:
        """Draw the next `size` words of the seed's stream, shape `(size,)`."""
        return np.asarray(self._generator.random_raw(size), dtype=np.uint64)
