"""Where the noise's randomness comes from."""

import os
from typing import Protocol, final

import numpy as np
import numpy.typing as npt

# os.urandom gives 45 million words a second in blocks of 2**16 to 2**19 bytes, a fifth less in blocks of 4 kB.
_BLOCK = 2**16


class EntropySource(Protocol):
    """A source of independent uniform 64-bit words."""

    @property
    def private(self) -> bool:
        """Whether nobody can foresee the words, so that a release drawn with them is private."""

    def uint64(self, size: int) -> npt.NDArray[np.uint64]:
        """Draw `size` fresh words, shape `(size,)`."""


@final
class SystemEntropy:
    """The operating system's cryptographic generator (`os.urandom`)."""

    private: bool = True

    def uint64(self, size: int) -> npt.NDArray[np.uint64]:
        """Draw `size` fresh words, shape `(size,)`."""
        words = np.empty(size, dtype=np.uint64)
        octets = words.view(np.uint8)
        for start in range(0, octets.size, _BLOCK):
            block = octets[start : start + _BLOCK]
            block[:] = np.frombuffer(os.urandom(block.size), dtype=np.uint8)
        return words
