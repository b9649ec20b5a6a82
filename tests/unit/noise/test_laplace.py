"""The rounded Laplace: shapes, edge cases, the slow path against the fast one."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duckdb_dp.errors import DPError
from duckdb_dp.noise import laplace
from duckdb_dp.noise.bits import SystemEntropy
from duckdb_dp.noise.laplace import MAX_SCALE, noisy_grid, rounded_laplace
from duckdb_dp.testing import NoNoise, SeededEntropy

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


def without_doubles(patch: pytest.MonkeyPatch) -> None:
    """Let every draw be searched for from its centre on."""
    patch.setattr(laplace, "_log_of_twice", lambda v: np.full(v.shape, np.nan))


@pytest.mark.parametrize("size", [0, 1, laplace._CHUNK - 1, laplace._CHUNK, 3 * laplace._CHUNK + 5])
def test_shape(size: int) -> None:
    draws = rounded_laplace(1000.0, size, bits=SystemEntropy())
    assert draws.shape == (size,)
    assert draws.dtype == np.int64
    assert np.all(np.abs(draws) < 45_000)
    assert len(np.unique(draws)) >= min(size, 1500)


@pytest.mark.parametrize("scale", [0.7, 2.0**20, 2.0**36])
def test_a_seed_repeats(scale: float) -> None:
    size = laplace._CHUNK + 17
    one, two = (rounded_laplace(scale, size, bits=SeededEntropy(3)) for _ in range(2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, rounded_laplace(scale, size, bits=SeededEntropy(4)))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, math.nextafter(MAX_SCALE, math.inf)])
def test_scale_out_of_range(scale: float) -> None:
    with pytest.raises(DPError, match="is not in"):
        rounded_laplace(scale, 1, bits=SeededEntropy(1))


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-3, 0.01])
def test_tiny_scales_give_zero(scale: float) -> None:
    # Smallest first 63 digits included: |X| > 1/2 would need u < exp(-50) / 2 < 2**-73.
    draws = rounded_laplace(scale, 6, bits=Replay([0, 1, 2, SIGN, SIGN | 1, SIGN - 1, SIGN, SIGN]))
    assert np.array_equal(draws, np.zeros(6))


@pytest.mark.parametrize("scale", [2.5, 2.0**20, 2.0**42])
def test_the_first_bit_is_the_sign(scale: float) -> None:
    words = SeededEntropy(5).uint64(500)
    draws = rounded_laplace(scale, 500, bits=Replay(words))
    assert np.array_equal(rounded_laplace(scale, 500, bits=Replay(words ^ np.uint64(SIGN))), -draws)
    assert np.array_equal(np.signbit(draws), (words >= SIGN) & (draws != 0))


@pytest.mark.parametrize("scale", SCALES)
def test_no_noise_is_none(scale: float) -> None:
    centres = np.array([0.0, 0.25, -0.25, 7.0, -1e9, 0.375, 1e15])
    draws = noisy_grid(centres, 0.0, scale, lambda i: Fraction(centres[i]), bits=NoNoise())
    assert np.array_equal(draws, np.rint(centres))
    assert np.array_equal(rounded_laplace(scale, 5, bits=NoNoise()), np.zeros(5))


def test_the_draw_next_to_0_ends_if_all_its_digits_are_1() -> None:
    """t = 0 has the tail 1/2 exactly: no further digit is asked for."""
    bits = Replay([SIGN - 1, *[2**64 - 1] * 3])
    assert noisy_grid(np.zeros(1), math.inf, 1.0, lambda _: Fraction(1, 2), bits=bits)[0] == 1


@pytest.mark.parametrize("scale", SCALES)
def test_the_slow_path_agrees_within_the_margin(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    words = SeededEntropy(11).uint64(2000)
    expected = rounded_laplace(scale, 2000, bits=Replay(words))
    monkeypatch.setattr(laplace, "_MARGIN", 0.5 / min(scale, 2.0**43))  # at least half a grid step: all are undecided
    undecided = laplace._decide(words, scale, *np.zeros((2, 2000)), np.empty(2000, dtype=np.int64))
    assert len(undecided) == 2000
    assert np.array_equal(rounded_laplace(scale, 2000, bits=Replay(words)), expected)


@pytest.mark.parametrize("scale", SCALES)
def test_the_slow_path_agrees_without_doubles(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    words = SeededEntropy(12).uint64(100)
    expected = rounded_laplace(scale, 100, bits=Replay(words))
    without_doubles(monkeypatch)
    assert np.array_equal(rounded_laplace(scale, 100, bits=Replay(words)), expected)


@given(
    st.integers(0, 2**64 - 1),
    st.one_of(st.floats(min_value=5e-324, max_value=MAX_SCALE), st.floats(min_value=1e-3, max_value=1e4)),
    st.one_of(st.fractions(-3, 3), st.fractions(-(2**62), 2**62), st.floats(-1, 1).map(Fraction)),
)
@example(0, 2.0**20, Fraction(0))
@example(1, 2.0**44, Fraction(0))
@example(0, 1e-300, Fraction(1, 2))
@example(SIGN - 1, 2.0**-55, Fraction(1, 2) - Fraction(1, 2**54))
@example(1, 5e-324, Fraction(1, 2) - Fraction(1, 2**1072))
@example(SIGN, 2.0**44, Fraction(2**62))
def test_any_word_scale_and_centre(word: int, scale: float, centre: Fraction) -> None:
    near = np.array([float(centre)])
    error = np.nextafter(float(abs(Fraction(near[0]) - centre)), np.inf)
    draw = noisy_grid(near, error, scale, lambda _: centre, bits=Replay([word, 2**62, 2**62]))
    with pytest.MonkeyPatch.context() as patch:
        without_doubles(patch)
        assert noisy_grid(near, 0.0, scale, lambda _: centre, bits=Replay([word, 2**62, 2**62])) == draw


def test_an_infinite_tail_is_cut_by_further_words() -> None:
    source = Replay([SIGN, 2**60])  # u in [2**60, 2**60 + 1) * 2**-128: 67 log(2) = 46.441
    assert rounded_laplace(1000.0, 1, bits=source)[0] == -46_441
    assert source.words == []
    source = Replay([0, 0, 0, 1])  # u in [1, 2) * 2**-256: 255 log(2) = 176.75, 254 log(2) = 176.06
    assert rounded_laplace(0.1, 1, bits=source)[0] == 18
    assert source.words == []


def thirds(size: int, spread: float) -> list[Fraction]:
    generator = np.random.default_rng(62)
    return [Fraction(spread) * int(k) / (3 * 2**60) for k in generator.integers(-(2**62), 2**62, size)]


@pytest.mark.parametrize("scale", [0.3, 1000.0, 2.0**20, 2.0**44])
@pytest.mark.parametrize("spread", [1.0, 1e6, 1e15])
@pytest.mark.parametrize("error", [0.0, 1e-9, 0.49, 3.0, 1e12])
def test_the_approximation_does_not_show(scale: float, spread: float, error: float) -> None:
    centres = thirds(300, spread)
    words = SeededEntropy(51).uint64(300)
    asked: list[int] = []

    def exact(i: int) -> Fraction:
        asked.append(i)
        return centres[i]

    far = noisy_grid(np.full(300, np.nan), math.inf, scale, exact, bits=Replay(words))
    assert asked == list(range(300))
    lies = error * np.random.default_rng(61).choice([-1.0, -0.3, 0.7, 1.0], 300)
    near = np.array([float(centre + Fraction(lie)) for centre, lie in zip(centres, lies, strict=True)])
    bounds = [float(abs(Fraction(one) - centre)) for one, centre in zip(near, centres, strict=True)]
    draws = noisy_grid(near, np.nextafter(bounds, np.inf), scale, exact, bits=Replay(words))
    assert np.array_equal(draws, far)


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 2.0**-60])
def test_halves_go_where_the_sign_says(scale: float) -> None:
    centres = np.array([0.5, 0.5, -0.5, -0.5, 1e6 + 0.5, 1e6 + 0.5])
    words = [5, SIGN + 5] * 3
    draws = noisy_grid(centres, 0.0, scale, lambda i: Fraction(centres[i]), bits=Replay(words))
    assert draws.tolist() == [1, 0, 0, -1, 10**6 + 1, 10**6]


@pytest.mark.parametrize("sign", [-1, 1])
def test_large_results(sign: int) -> None:
    values = [sign * Fraction(10) ** power for power in (15, 17, 18)]
    values += [sign * Fraction(2**power) for power in (53, 61, 62, 63, 100, 2000)]
    near = np.array([float(value) if abs(value) < 2**1000 else sign * math.inf for value in values])
    draws = noisy_grid(near, 0.0, 1000.0, lambda i: values[i], bits=SeededEntropy(57))
    noise = rounded_laplace(1000.0, len(values), bits=SeededEntropy(57))
    limits = np.iinfo(np.int64)
    wanted = [min(max(int(c) + int(x), limits.min), limits.max) for c, x in zip(values, noise, strict=True)]
    assert draws.tolist() == wanted


@pytest.mark.parametrize(("errors", "most"), [(1e-8, 2), (1e-5, 60), (1e-3, 2400)])
def test_exact_centres_are_seldom_asked_for(errors: float, most: int) -> None:
    near = np.random.default_rng(64).uniform(-1e6, 1e6, 1_000_000)
    asked: list[int] = []

    def exact(i: int) -> Fraction:
        asked.append(i)
        return Fraction(near[i])

    noisy_grid(near, errors, 2.0**10, exact, bits=SeededEntropy(58))
    assert asked == sorted(set(asked))
    assert len(asked) <= most
    assert errors < 1e-3 or len(asked) > 1600  # 2000 in the mean
