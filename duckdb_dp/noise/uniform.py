"""Random words from the operating system, and a uniform real number whose further digits are drawn only when they are needed."""

import os
from collections.abc import Callable
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


@final
class Uniform:
    """A uniform real number in [head, head + 1) * 2**-length; its further digits are drawn when they matter."""

    __slots__ = ("_bits", "head", "length")

    def __init__(self, head: int, bits: EntropySource) -> None:
        """Start from the first 64 binary digits."""
        self.head = head
        self.length = 64
        self._bits = bits

    def extend(self) -> None:
        """Draw 64 more digits."""
        self.head = self.head << 64 | int(self._bits.uint64(1)[0])
        self.length += 64

    def is_below(self, enclose: Callable[[int], tuple[int, int]]) -> bool:
        """Whether this number is below y, where `enclose(length)` gives integers around 2**length * y."""
        while True:
            low, high = enclose(self.length)
            if self.head + 1 <= low:
                return True
            if self.head >= high:
                return False
            self.extend()


def enclose_exp(numerator: int, denominator: int, length: int) -> tuple[int, int]:
    """Enclose 2**length * exp(-t), t = numerator / denominator >= 0, between two integers, nearly always 1 apart.

    exp(-t) = sum_n (-t)**n / n!,   n = 0, 1, ...

    With a_n = t**n / n! in integers, units of 2**-p and all rounded downwards, the sum is off by less than N + 1 units,
    N the n at which a_n becomes 0: t's rounding counts at most 1, and that of a_j, which is below 1, counts
    |sum_{n >= j} (-t)**(n - j) j! / n!| <= 1, since this sum is the integral over s in (0, 1) of
    j (1 - s)**(j - 1) exp(-t s). Large terms cancel, and need no further digits.
    """
    if not numerator:
        return 1 << length, 1 << length
    if 10 * numerator > 7 * length * denominator:  # 0.7 > log(2)
        return 0, 1
    p = length + 32
    t = (numerator << p) // denominator
    a = total = 1 << p
    n = 0
    while a:
        n += 1
        a = (a * t >> p) // n
        total += -a if n & 1 else a
    error = n + 1
    return max(total - error >> 32, 0), -(-(total + error) >> 32)
