"""The rounded Gaussian: shapes, edge cases, the slow path against the fast one."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duckdb_dp.errors import DPError
from duckdb_dp.noise import gaussian
from duckdb_dp.noise.bits import Bits, SystemBits
from duckdb_dp.noise.gaussian import MAX_SCALE, gaussian_grid, rounded_gaussian
from duckdb_dp.testing import SeededBits

SCALES = [1e-3, 0.3, 0.7, 1.0, 2.5, 1000 / 3, 2.0**12, 2.0**20 * 1.1, 2.0**33, 2.0**40 / 3, MAX_SCALE]
SIGN = 1 << 63


class Replay:
    """Gives out the words it was told, in order."""

    private = False

    def __init__(self, words: Sequence[int]) -> None:
        self.words = list(words)

    def uint64(self, size: int) -> np.ndarray:
        """Give out the next `size` words."""
        given, self.words = self.words[:size], self.words[size:]
        return np.array(given, dtype=np.uint64)


@pytest.mark.parametrize("source", [SystemBits(), SeededBits(1)])
@pytest.mark.parametrize("size", [0, 1, 2**13 - 1, 2**13 + 1, 100_000])
def test_bits_are_fresh_and_fair(source: Bits, size: int) -> None:
    words = source.uint64(size)
    assert words.shape == (size,)
    assert words.dtype == np.uint64
    assert len(np.unique(np.concatenate([words, source.uint64(size)]))) == 2 * size
    ones = np.unpackbits(words.view(np.uint8)).reshape(size, 64).sum(axis=0, dtype=np.int64)
    assert np.all(np.abs(ones - size / 2) <= 4 * math.sqrt(size) + 1)  # 8 standard deviations


def test_only_the_system_is_private() -> None:
    assert SystemBits().private
    assert not SeededBits(1).private


def test_seeded_bits_repeat() -> None:
    one, two, other = SeededBits(7), SeededBits(7), SeededBits(8)
    parts = np.concatenate([one.uint64(3), one.uint64(5)])
    assert np.array_equal(parts, two.uint64(8))
    assert not np.array_equal(parts, other.uint64(8))


@pytest.mark.parametrize("size", [0, 1, gaussian._CHUNK - 1, gaussian._CHUNK, 3 * gaussian._CHUNK + 5])
def test_shape(size: int) -> None:
    draws = rounded_gaussian(1000.0, size, bits=SystemBits())
    assert draws.shape == (size,)
    assert draws.dtype == np.int64
    assert np.all(np.abs(draws) < 40_000)
    assert len(np.unique(draws)) >= min(size, 1500)


@pytest.mark.parametrize("scale", [0.7, 2.0**20, 2.0**36])
def test_a_seed_repeats(scale: float) -> None:
    size = 2 * gaussian._CHUNK + 17
    one, two = (rounded_gaussian(scale, size, bits=SeededBits(3)) for _ in range(2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, rounded_gaussian(scale, size, bits=SeededBits(4)))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, math.nextafter(MAX_SCALE, math.inf)])
def test_scale_out_of_range(scale: float) -> None:
    with pytest.raises(DPError, match="is not in"):
        rounded_gaussian(scale, 1, bits=SeededBits(1))


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-3, 0.05])
def test_tiny_scales_give_zero(scale: float) -> None:
    # Smallest first 63 digits included: |X| > 1/2 would need u < Phi(-10).
    draws = rounded_gaussian(scale, 6, bits=Replay([0, 1, 2, SIGN, SIGN | 1, SIGN - 1, SIGN, SIGN]))
    assert np.array_equal(draws, np.zeros(6))


@pytest.mark.parametrize("scale", [2.5, 2.0**20, 2.0**42])
def test_the_first_bit_is_the_sign(scale: float) -> None:
    words = SeededBits(5).uint64(500)
    draws = rounded_gaussian(scale, 500, bits=Replay(words))
    assert np.array_equal(rounded_gaussian(scale, 500, bits=Replay(words ^ np.uint64(SIGN))), -draws)
    assert np.array_equal(np.signbit(draws), (words >= SIGN) & (draws != 0))


def test_half_is_the_centre() -> None:
    assert rounded_gaussian(MAX_SCALE, 1, bits=Replay([SIGN - 1]))[0] == 0


@pytest.mark.parametrize("scale", SCALES)
def test_the_slow_path_agrees_within_the_margin(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    words = SeededBits(11).uint64(2000)
    expected = rounded_gaussian(scale, 2000, bits=Replay(words))
    monkeypatch.setattr(gaussian, "_MARGIN", 0.5 / min(scale, 2.0**43))  # at least half a grid step: all are undecided
    undecided = gaussian._decide(words, scale, np.empty(2000, dtype=np.int64))
    assert len(undecided) == 2000
    assert np.array_equal(rounded_gaussian(scale, 2000, bits=Replay(words)), expected)


@pytest.mark.parametrize("scale", SCALES)
def test_the_slow_path_agrees_without_doubles(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    words = SeededBits(12).uint64(100)
    expected = rounded_gaussian(scale, 100, bits=Replay(words))
    monkeypatch.setattr(gaussian, "_FIRST_FAST", 2**63)  # every draw is searched for from 0 on
    monkeypatch.setattr(gaussian, "ndtri", lambda x, out: np.multiply(x, np.nan, out=out))
    with np.errstate(invalid="ignore"):
        assert np.array_equal(rounded_gaussian(scale, 100, bits=Replay(words)), expected)


@given(st.integers(0, 2**64 - 1), st.floats(min_value=1e-3, max_value=MAX_SCALE))
@example(0, 2.0**20)
@example(2**45 - 1, 2.0**44)
@example(2**45, 2.0**44)
def test_any_word_and_scale(word: int, scale: float) -> None:
    draw = rounded_gaussian(scale, 1, bits=Replay([word, 2**63, 2**63]))[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian, "_FIRST_FAST", 2**63)
        assert rounded_gaussian(scale, 1, bits=Replay([word, 2**63, 2**63]))[0] == draw


def test_an_infinite_tail_is_cut_by_further_words() -> None:
    source = Replay([SIGN, 2**60])  # u in [2**60, 2**60 + 1) * 2**-128, q(2**-68) = 9.377177
    assert rounded_gaussian(1000.0, 1, bits=source)[0] == -9377
    assert source.words == []
    source = Replay([0, 0, 0, 1])  # u in [1, 2) * 2**-256, q from 18.596 to 18.633
    assert rounded_gaussian(1.0, 1, bits=source)[0] == 19
    assert source.words == []


@pytest.mark.parametrize(
    ("stddev", "denominator", "grid"),
    [
        (2.0**10, 1, 1),
        (2.0**10 - 1e-9, 1, 2),
        (1.0, 1, 1024),
        (1.0, 3, 512),
        (4.22468, 8, 32),
        (1e9, 1, 1),
        (0.1, 1, 16384),
    ],
)
def test_gaussian_grid(stddev: float, denominator: int, grid: int) -> None:
    assert gaussian_grid(stddev, denominator) == grid


@given(st.floats(min_value=1e-9, max_value=1e12), st.integers(1, 10**6))
def test_gaussian_grid_is_the_smallest(stddev: float, denominator: int) -> None:
    grid = gaussian_grid(stddev, denominator)
    numerator, power = stddev.as_integer_ratio()
    assert grid & (grid - 1) == 0
    assert numerator * denominator * grid >= 2**10 * power
    assert grid == 1 or numerator * denominator * grid < 2**11 * power


@pytest.mark.parametrize(("stddev", "denominator"), [(0.0, 1), (-1.0, 1), (math.nan, 1), (math.inf, 1), (1.0, 0)])
def test_gaussian_grid_refuses(stddev: float, denominator: int) -> None:
    with pytest.raises(DPError, match="must be positive and finite"):
        gaussian_grid(stddev, denominator)
