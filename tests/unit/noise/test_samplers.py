"""The rounded Gaussian and the rounded Laplace: shapes, edge cases, the slow path against the fast one."""

import importlib
import math
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duckdb_dp.errors import DPError
from duckdb_dp.noise import gaussian, laplace
from duckdb_dp.noise.gaussian import MAX_SCALE
from duckdb_dp.noise.uniform import EntropySource, SystemEntropy
from duckdb_dp.testing import NoNoise, SeededEntropy
from tests.conftest import Replay

LAWS = [gaussian, laplace]
SCALES = [1e-3, 0.3, 0.7, 1.0, 2.5, 1000 / 3, 2.0**12, 2.0**20 * 1.1, 2.0**33, 2.0**40 / 3, MAX_SCALE]
SIGN = 1 << 63
both = pytest.mark.parametrize("law", LAWS, ids=["gaussian", "laplace"])


def rounded(law: ModuleType, scale: float, size: int, *, bits: EntropySource) -> np.ndarray:
    return (law.rounded_gaussian if law is gaussian else law.rounded_laplace)(scale, size, bits=bits)


def without_doubles(patch: pytest.MonkeyPatch) -> None:
    """Let every draw be searched for from its centre on."""
    patch.setattr(gaussian, "_normal_quantiles", lambda u: np.full(u.shape, np.nan))
    patch.setattr(laplace, "_log_of_twice", lambda v: np.full(v.shape, np.nan))


@pytest.mark.parametrize("source", [SystemEntropy(), SeededEntropy(1)])
@pytest.mark.parametrize("size", [0, 1, 2**13 - 1, 2**13 + 1, 100_000])
def test_bits_are_fresh_and_fair(source: EntropySource, size: int) -> None:
    words = source.uint64(size)
    assert words.shape == (size,)
    assert words.dtype == np.uint64
    assert len(np.unique(np.concatenate([words, source.uint64(size)]))) == 2 * size
    ones = np.unpackbits(words.view(np.uint8)).reshape(size, 64).sum(axis=0, dtype=np.int64)
    assert np.all(np.abs(ones - size / 2) <= 4 * math.sqrt(size) + 1)  # 8 standard deviations


def test_only_the_system_is_private() -> None:
    assert SystemEntropy().private
    assert not SeededEntropy(1).private


def test_seeded_bits_repeat() -> None:
    one, two, other = SeededEntropy(7), SeededEntropy(7), SeededEntropy(8)
    parts = np.concatenate([one.uint64(3), one.uint64(5)])
    assert np.array_equal(parts, two.uint64(8))
    assert not np.array_equal(parts, other.uint64(8))


@pytest.mark.parametrize("size", [0, 1, 2**13 - 1, 2**14 - 1, 2**14, 3 * 2**14 + 5])
@both
def test_shape(law: ModuleType, size: int) -> None:
    draws = rounded(law, 1000.0, size, bits=SystemEntropy())
    assert draws.shape == (size,)
    assert draws.dtype == np.int64
    assert np.all(np.abs(draws) < 45_000)
    assert len(np.unique(draws)) >= min(size, 1500)


@pytest.mark.parametrize("scale", [0.7, 2.0**20, 2.0**36])
@both
def test_a_seed_repeats(law: ModuleType, scale: float) -> None:
    size = 2 * law._CHUNK + 17
    one, two = (rounded(law, scale, size, bits=SeededEntropy(3)) for _ in range(2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, rounded(law, scale, size, bits=SeededEntropy(4)))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, math.nextafter(MAX_SCALE, math.inf)])
@both
def test_scale_out_of_range(law: ModuleType, scale: float) -> None:
    with pytest.raises(DPError, match="is not in"):
        rounded(law, scale, 1, bits=SeededEntropy(1))


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-3, 0.01])
@both
def test_tiny_scales_give_zero(law: ModuleType, scale: float) -> None:
    # Smallest first 63 digits included: |X| > 1/2 would need u < exp(-50) / 2 < 2**-73.
    draws = rounded(law, scale, 6, bits=Replay([0, 1, 2, SIGN, SIGN | 1, SIGN - 1, SIGN, SIGN]))
    assert np.array_equal(draws, np.zeros(6))


@pytest.mark.parametrize("scale", [2.5, 2.0**20, 2.0**42])
@both
def test_the_first_bit_is_the_sign(law: ModuleType, scale: float) -> None:
    words = SeededEntropy(5).uint64(500)
    draws = rounded(law, scale, 500, bits=Replay(words))
    assert np.array_equal(rounded(law, scale, 500, bits=Replay(words ^ np.uint64(SIGN))), -draws)
    assert np.array_equal(np.signbit(draws), (words >= SIGN) & (draws != 0))


@both
def test_half_is_the_centre(law: ModuleType) -> None:
    assert rounded(law, MAX_SCALE, 1, bits=Replay([SIGN - 1]))[0] == 0


@pytest.mark.parametrize("scale", SCALES)
@both
def test_the_slow_path_agrees_within_the_margin(law: ModuleType, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    words = SeededEntropy(11).uint64(2000)
    expected = rounded(law, scale, 2000, bits=Replay(words))
    monkeypatch.setattr(law, "_MARGIN", 0.5 / min(scale, 2.0**43))  # at least half a grid step: all are undecided
    undecided = law._decide(words, scale, *np.zeros((2, 2000)), np.empty(2000, dtype=np.int64))
    assert len(undecided) == 2000
    assert np.array_equal(rounded(law, scale, 2000, bits=Replay(words)), expected)


@pytest.mark.parametrize("scale", SCALES)
@both
def test_the_slow_path_agrees_without_doubles(law: ModuleType, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    words = SeededEntropy(12).uint64(100)
    expected = rounded(law, scale, 100, bits=Replay(words))
    without_doubles(monkeypatch)
    assert np.array_equal(rounded(law, scale, 100, bits=Replay(words)), expected)


@pytest.mark.parametrize(
    ("law", "scale", "words", "drawn"),
    [
        (gaussian, 1000.0, [SIGN, 2**60], -9377),  # u in [2**60, 2**60 + 1) * 2**-128, q(2**-68) = 9.377177
        (gaussian, 1.0, [0, 0, 0, 1], 19),  # u in [1, 2) * 2**-256, q from 18.596 to 18.633
        (laplace, 1000.0, [SIGN, 2**60], -46_441),  # 67 log(2) = 46.441
        (laplace, 0.1, [0, 0, 0, 1], 18),  # 255 log(2) = 176.75, 254 log(2) = 176.06
    ],
)
def test_an_infinite_tail_is_cut_by_further_words(law: ModuleType, scale: float, words: list[int], drawn: int) -> None:
    source = Replay(words)
    assert rounded(law, scale, 1, bits=source)[0] == drawn
    assert source.words == []


@pytest.mark.parametrize("scale", SCALES)
@both
def test_no_noise_is_none(law: ModuleType, scale: float) -> None:
    centres = np.array([0.0, 0.25, -0.25, 7.0, -1e9, 0.375, 1e15])
    draws = law.noisy_grid(centres, 0.0, scale, lambda i: Fraction(centres[i]), bits=NoNoise())
    assert np.array_equal(draws, np.rint(centres))
    assert np.array_equal(rounded(law, scale, 5, bits=NoNoise()), np.zeros(5))


@both
def test_the_draw_next_to_0_ends_if_all_its_digits_are_1(law: ModuleType) -> None:
    """t = 0 has the tail 1/2 exactly: no further digit is asked for."""
    bits = Replay([SIGN - 1, *[2**64 - 1] * 3])
    assert laplace.noisy_grid(np.zeros(1), math.inf, 1.0, lambda _: Fraction(1, 2), bits=bits)[0] == 1


class Centres:
    """Rational centres, and which of them were asked for."""

    def __init__(self, values: Sequence[Fraction]) -> None:
        self.values = values
        self.asked: list[int] = []

    def __call__(self, i: int) -> Fraction:
        """Give centre i."""
        self.asked.append(i)
        return self.values[i]

    def near(self, error: float) -> np.ndarray:
        """Doubles within `error` of the centres, or of their rounding; half of them at that distance."""
        lies = error * np.random.default_rng(61).choice([-1.0, -0.3, 0.7, 1.0], len(self.values))
        return np.array([float(value + Fraction(lie)) for value, lie in zip(self.values, lies, strict=True)])

    def bounds(self, near: np.ndarray) -> np.ndarray:
        """The distances of doubles from the centres, rounded upwards."""
        exact = [abs(Fraction(one) - value) for one, value in zip(near, self.values, strict=True)]
        return np.nextafter(np.array([float(distance) for distance in exact]), np.inf)


def some_centres(size: int, spread: float) -> Centres:
    generator = np.random.default_rng(62)
    thirds = [Fraction(int(k), 3 * 2**40) for k in generator.integers(-(2**62), 2**62, size)]
    return Centres([Fraction(spread) * third / 2**20 for third in thirds])


@pytest.mark.some(8, "law")
@pytest.mark.parametrize("scale", [0.3, 1000.0, 2.0**20, 2.0**44])
@pytest.mark.parametrize("spread", [1.0, 1e6, 1e15])
@pytest.mark.parametrize("error", [0.0, 1e-9, 0.1, 0.49, 0.5, 3.0, 1e12])
@both
def test_the_approximation_does_not_show(law: ModuleType, scale: float, spread: float, error: float) -> None:
    centres = some_centres(400, spread)
    words = SeededEntropy(51).uint64(400)
    far = law.noisy_grid(np.zeros(400), math.inf, scale, centres, bits=Replay(words))
    assert centres.asked == list(range(400))
    near = centres.near(error)
    assert np.array_equal(law.noisy_grid(near, centres.bounds(near), scale, centres, bits=Replay(words)), far)


@pytest.mark.parametrize("bound", [1e-3, 0.3, 0.5, 1e300, math.inf])
@both
def test_bounds_may_be_larger_than_the_errors(law: ModuleType, bound: float) -> None:
    centres = some_centres(2000, 1e4)
    near = centres.near(0.0)
    one, other = (law.noisy_grid(near, errors, 900.0, centres, bits=SeededEntropy(52)) for errors in (1e-9, bound))
    assert np.array_equal(one, other)
    assert np.array_equal(law.noisy_grid(near, np.full(2000, bound), 900.0, centres, bits=SeededEntropy(52)), one)


@pytest.mark.parametrize("useless", [math.nan, math.inf, -math.inf, 1e300])
@both
def test_any_double_will_do_where_the_bound_is_infinite(law: ModuleType, useless: float) -> None:
    centres = some_centres(300, 100.0)
    expected = law.noisy_grid(centres.near(0.0), 1e-9, 40.0, centres, bits=SeededEntropy(53))
    assert np.array_equal(
        law.noisy_grid(np.full(300, useless), math.inf, 40.0, centres, bits=SeededEntropy(53)), expected
    )


@pytest.mark.some(4, "law")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("spread", [2.0, 1e9])
@both
def test_the_slow_path_agrees_off_centre(
    law: ModuleType, scale: float, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    centres = some_centres(100, spread)
    words = [0, 1, SIGN + 1, 2**20, SIGN + 2**20, 2**45, SIGN - 1, *SeededEntropy(54).uint64(93).tolist()]
    near = centres.near(0.0)
    bounds = centres.bounds(near)

    def draw(i: int) -> int:
        """Each with further digits of its own: the search takes some that the others do not need."""
        bits = Replay([words[i], 2**62 + i, i])
        return int(law.noisy_grid(near[i : i + 1], bounds[i], scale, lambda _: centres.values[i], bits=bits)[0])

    expected = [draw(i) for i in range(100)]
    without_doubles(monkeypatch)
    assert [draw(i) for i in range(100)] == expected


@pytest.mark.slow
@both
@given(
    st.integers(0, 2**64 - 1),
    st.one_of(st.floats(min_value=5e-324, max_value=MAX_SCALE), st.floats(min_value=1e-3, max_value=1e4)),
    st.one_of(st.fractions(-3, 3), st.fractions(-(2**62), 2**62), st.floats(-1, 1).map(Fraction)),
)
@example(0, 2.0**20, Fraction(0))
@example(1, 2.0**44, Fraction(0))
@example(2**20, 2.0**10, Fraction(0))
@example(0, 1e-300, Fraction(1, 2))
@example(SIGN - 1, 2.0**-55, Fraction(1, 2) - Fraction(1, 2**54))
@example(1, 2.0**-58, Fraction(1, 2) - Fraction(1, 2**54))
@example(1, 5e-324, Fraction(1, 2) - Fraction(1, 2**1072))
@example(SIGN, 2.0**44, Fraction(2**62))
def test_any_word_scale_and_centre(law: ModuleType, word: int, scale: float, centre: Fraction) -> None:
    centres = Centres([centre])
    near = centres.near(0.0)
    draw = law.noisy_grid(near, centres.bounds(near), scale, centres, bits=Replay([word, 2**63, 2**63]))
    with pytest.MonkeyPatch.context() as patch:
        without_doubles(patch)
        assert law.noisy_grid(near, 0.0, scale, centres, bits=Replay([word, 2**63, 2**63])) == draw


@pytest.mark.parametrize("scale", [0.7, 2.0**10, 2.0**40])
@pytest.mark.parametrize("shift", [1, -7, 10**9, -(2**52)])
@both
def test_integers_shift_the_draws(law: ModuleType, scale: float, shift: int) -> None:
    centres = np.random.default_rng(63).integers(-(2**20), 2**20, 3000) / 2**10
    centres = centres if abs(shift) < 2**40 else np.rint(centres)
    draws, shifted = (
        law.noisy_grid(moved, 0.0, scale, Centres([Fraction(c) for c in moved]), bits=SeededEntropy(55))
        for moved in (centres, centres + shift)
    )
    assert np.array_equal(shifted, draws + shift)


@pytest.mark.parametrize("scale", [0.7, 2.0**10, 2.0**44])
@both
def test_the_mirror_image(law: ModuleType, scale: float) -> None:
    centres = some_centres(2000, 50.0)
    mirror = Centres([-value for value in centres.values])
    words = SeededEntropy(56).uint64(2000)
    draws = law.noisy_grid(centres.near(0.0), 1e-9, scale, centres, bits=Replay(words))
    other = law.noisy_grid(mirror.near(0.0), 1e-9, scale, mirror, bits=Replay(words ^ np.uint64(SIGN)))
    assert np.array_equal(other, -draws)


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 2.0**-60])
@both
def test_halves_go_where_the_sign_says(law: ModuleType, scale: float) -> None:
    centres = np.array([0.5, 0.5, -0.5, -0.5, 1e6 + 0.5, 1e6 + 0.5])
    words = [5, SIGN + 5] * 3
    draws = law.noisy_grid(centres, 0.0, scale, lambda i: Fraction(centres[i]), bits=Replay(words))
    assert draws.tolist() == [1, 0, 0, -1, 10**6 + 1, 10**6]


@pytest.mark.parametrize("sign", [-1, 1])
@both
def test_large_results(law: ModuleType, sign: int) -> None:
    values = [sign * Fraction(10) ** power for power in (15, 16, 17, 18)]
    values += [sign * Fraction(2**power) for power in (52, 53, 61, 62, 63, 64, 100, 2000)]
    near = np.array([float(value) if abs(value) < 2**1000 else sign * math.inf for value in values])
    draws = law.noisy_grid(near, 0.0, 1000.0, lambda i: values[i], bits=SeededEntropy(57))
    noise = rounded(law, 1000.0, len(values), bits=SeededEntropy(57))
    limits = np.iinfo(np.int64)
    wanted = [min(max(int(c) + int(x), limits.min), limits.max) for c, x in zip(values, noise, strict=True)]
    assert draws.dtype == np.int64
    assert draws.tolist() == wanted
    assert draws[-1] == (limits.max if sign > 0 else limits.min)


@pytest.mark.parametrize(("errors", "most"), [(1e-8, 2), (1e-5, 60), (1e-3, 2400)])
@both
def test_exact_centres_are_seldom_asked_for(law: ModuleType, errors: float, most: int) -> None:
    near = np.random.default_rng(64).uniform(-1e6, 1e6, 1_000_000)
    centres = Centres([])
    centres.values = near  # type: ignore[assignment]
    law.noisy_grid(near, errors, 2.0**10, lambda i: Fraction(centres(i)), bits=SeededEntropy(58))
    assert centres.asked == sorted(set(centres.asked))
    assert len(centres.asked) <= most
    assert errors < 1e-3 or len(centres.asked) > 1600  # 2000 in the mean


@pytest.mark.parametrize(
    "draw",
    [
        lambda law, size: rounded(law, 1024.0, size, bits=SystemEntropy()),
        lambda law, size: law.noisy_grid(np.zeros(size), 1e-9, 1024.0, lambda _: Fraction(0), bits=SystemEntropy()),
    ],
)
@both
def test_memory_beside_the_result(law: ModuleType, draw: Callable[..., np.ndarray]) -> None:
    peaks = []
    for size in (2**16, 2**20):
        tracemalloc.start()
        draw(law, size)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < 2**22
    assert peaks[1] - peaks[0] <= 2 * 8 * 2**20  # the result, and the centres where they are made here


@pytest.mark.parametrize("size", [0, 1, 2**14 + 1])
@both
def test_shape_of_the_grid(law: ModuleType, size: int) -> None:
    draws = law.noisy_grid(np.full(size, 0.25), 0.0, 1000.0, lambda _: Fraction(1, 4), bits=SystemEntropy())
    assert draws.shape == (size,)
    assert draws.dtype == np.int64


@pytest.mark.parametrize("scale", [0.0, math.nan, math.inf])
@both
def test_scale_of_the_grid_out_of_range(law: ModuleType, scale: float) -> None:
    with pytest.raises(DPError, match="is not in"):
        law.noisy_grid(np.zeros(1), 0.0, scale, lambda _: Fraction(0), bits=SeededEntropy(1))


def test_draws_are_the_same_by_the_standard_library_and_by_scipy(monkeypatch) -> None:
    importlib.import_module("scipy.special")
    by_scipy = gaussian.rounded_gaussian(100.0, 2000, bits=SeededEntropy(5))
    monkeypatch.delitem(sys.modules, "scipy.special")
    assert gaussian.rounded_gaussian(100.0, 2000, bits=SeededEntropy(5)).tolist() == by_scipy.tolist()
