"""Noise that is drawn together is the noise that is drawn one by one."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from duckdb_dp.linop import Centring, Distance, Identity, Integers, Measurable
from duckdb_dp.noise import answers
from duckdb_dp.noise.answers import noisy, noisy_all
from duckdb_dp.noise.kinds import NOISES, Noise


class Words:
    """Foreseeable words, each drawn by itself or many at once."""

    private = False

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def uint64(self, size: int) -> npt.NDArray[np.uint64]:
        return self._rng.integers(2**64, size=size, dtype=np.uint64)


class Uncertain:
    """A query whose doubles say nothing, so that every answer is asked for exactly."""

    squared_sensitivity = 1.0

    def __init__(self, query: Identity) -> None:
        self.query, self.asked = query, list[int]()

    def apply(self, counts: Integers) -> tuple[npt.NDArray[np.float64], float]:
        return np.zeros(len(counts)), np.inf

    def exact(self, counts: Integers, index: int) -> Fraction:
        self.asked.append(index)
        return self.query.exact(counts, index)


@pytest.mark.parametrize("noise", NOISES.values(), ids=lambda noise: noise.name)
@pytest.mark.parametrize("cells", [1, 7, 2**18])
def test_together_is_one_by_one(monkeypatch: pytest.MonkeyPatch, noise: Noise, cells: int) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr(answers, "CELLS", cells)
    asked: list[tuple[Measurable, Integers]] = [
        (query, rng.integers(1000, size=12))
        for query in (Identity(12), Distance(rng.random(12) * 900), Centring((3, 4)), Distance(np.zeros(12)))
    ]
    words = Words(1)
    alone = [noisy(query, 7.3, exact, words, noise) for query, exact in asked]
    together = noisy_all(iter(asked), 7.3, Words(1), noise)
    assert [len(one) for one in together] == [12, 1, 12, 1]
    np.testing.assert_array_equal(np.concatenate(together), np.concatenate(alone))


@pytest.mark.parametrize("noise", NOISES.values(), ids=lambda noise: noise.name)
def test_the_right_query_is_asked_exactly(noise: Noise) -> None:
    first, second = Uncertain(Identity(3)), Uncertain(Identity(2))
    found = noisy_all(
        [(first, np.array([10**9, 2 * 10**9, 3 * 10**9])), (second, np.array([4 * 10**9, 5 * 10**9]))],
        1.0,
        Words(2),
        noise,
    )
    assert (first.asked, second.asked) == ([0, 1, 2], [0, 1])
    np.testing.assert_array_equal(np.rint(np.concatenate(found) / 1e9), [1, 2, 3, 4, 5])


def test_nothing_asked_is_nothing_drawn() -> None:
    assert noisy_all([], 1.0, Words(0), NOISES["gaussian"]) == []
