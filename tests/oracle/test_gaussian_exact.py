"""The rounded Gaussian against mpmath with 60 digits, and the error budget of its fast path."""

from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

from duckdb_dp.noise import gaussian
from duckdb_dp.noise.gaussian import noisy_grid, rounded_gaussian
from duckdb_dp.testing import SeededEntropy

mp = mpmath.MPContext()
mp.dps = 60
SCALES = [1e-3, 0.11, 0.3, 1.0, 2.5, 1000 / 3, 2.0**10, 2.0**20 * 1.1, 2.0**31 / 3, 2.0**40, 2.0**44]
SIGN = 1 << 63


class Replay:
    """Gives out the words it was told, then more of a seed's; counts them."""

    private = False

    def __init__(self, words: list[int]) -> None:
        self.words = words
        self.given = 0

    def uint64(self, size: int) -> np.ndarray:
        """Give out the next `size` words."""
        out = self.words[self.given : self.given + size]
        self.given += size
        return np.array(out, dtype=np.uint64)


def upper_tail(t: mpmath.mpf) -> mpmath.mpf:
    return mp.erfc(t / mp.sqrt(2)) / 2


def quantile(u: mpmath.mpf) -> mpmath.mpf:
    """The point whose upper tail is u: Newton's steps on log(tail) from a double."""
    if u == 0:
        return mp.inf
    t = mp.mpf(-ndtri(float(u)))
    for _ in range(4):  # 1e-15 squared twice is already below 1e-60
        tail = upper_tail(t)
        density = mp.exp(-t * t / 2) / mp.sqrt(2 * mp.pi)
        t += mp.log(tail / u) * tail / density
    return t


def exactly(number: Fraction) -> mpmath.mpf:
    return mp.mpf(number.numerator) / number.denominator


def expected(words: Iterator[int], scale: float, centre: Fraction = Fraction(0)) -> int:
    """The nearest integer to the draw that these words begin, by inverting the tail at both ends of u's interval."""
    word = next(words)
    sign = -1 if word >= SIGN else 1
    head, length = word % SIGN, 64
    while True:
        near, far = (exactly(centre) + sign * mp.mpf(scale) * quantile(mp.ldexp(head + end, -length)) for end in (1, 0))
        if mp.isfinite(far) and mp.nint(near) == mp.nint(far):
            return int(mp.nint(near))
        head, length = head << 64 | next(words), length + 64


def hard_words(scale: float) -> list[int]:
    """First words whose interval holds a boundary between integers, or is next to one that does."""
    words = []
    for k in {0, 1, round(scale / 3), round(scale), round(4 * scale), round(6 * scale)}:
        t = (2 * k + 1) / (2 * mp.mpf(scale))
        head = int(mp.floor(mp.ldexp(upper_tail(t), 64)))
        words += [h for h in (head - 1, head, head + 1) if 0 <= h < SIGN]
    return words


@pytest.mark.parametrize("scale", SCALES)
def test_words_give_what_mpmath_says(scale: float) -> None:
    first = [int(w) for w in SeededEntropy(21).uint64(40)] + hard_words(scale)
    first += [0, 1, SIGN, SIGN + 5, SIGN - 1, 2**44 + 1, 2**45 - 1, 2**45, 2**46, 2**53 + 1]
    for word in first:
        for more in (0, 2**64 - 1, int(SeededEntropy(word % 2**32).uint64(1)[0])):
            words = [word, more, *(int(w) for w in SeededEntropy(22).uint64(3))]
            assert rounded_gaussian(scale, 1, bits=Replay(words))[0] == expected(iter(words), scale), (word, more)


@pytest.mark.parametrize("scale", [1.0, 2.0**20, 2.0**44])
def test_a_boundary_inside_the_interval_takes_a_second_word(scale: float) -> None:
    k = round(scale)
    head = int(mp.floor(mp.ldexp(upper_tail((2 * k + 1) / (2 * mp.mpf(scale))), 64)))
    outer, inner = Replay([head, 0]), Replay([head, 2**64 - 1])
    assert rounded_gaussian(scale, 1, bits=outer)[0] == k + 1
    assert rounded_gaussian(scale, 1, bits=inner)[0] == k
    assert outer.given == inner.given == 2


def noisy(words: list[int], scale: float, centre: Fraction, widen: float = 0.0) -> tuple[int, Replay]:
    """One draw, from the double nearest to the centre and its true error, widened."""
    near = float(centre)
    error = np.nextafter(float(abs(Fraction(near) - centre)), np.inf) + widen
    bits = Replay(words)
    return int(noisy_grid(np.array([near]), error, scale, lambda _: centre, bits=bits)[0]), bits


CENTRES = [
    Fraction(1, 4),
    Fraction(-4999, 10_000),
    Fraction(1, 2),
    Fraction(-7, 2),
    Fraction(1, 10**9),
    -Fraction(1, 3 * 10**17),
    Fraction(1, 2) - Fraction(1, 10**20),
    Fraction(10**15, 7),
    -(10**15) - Fraction(1, 2),
    Fraction(3 * 10**17, 7),
    Fraction(2**62),
]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("centre", CENTRES)
def test_words_give_what_mpmath_says_off_centre(scale: float, centre: Fraction) -> None:
    first = [int(w) for w in SeededEntropy(23).uint64(8)]
    first += [0, 1, SIGN, SIGN + 5, SIGN - 1, 2**12 + 1, SIGN + 2**30, 2**45, 2**53 + 1]
    for word in first:
        words = [word, *(int(w) for w in SeededEntropy(24).uint64(4))]
        wanted = expected(iter(words), scale, centre)
        for widen in (0.0, 1e-6, 0.6):
            assert noisy(words, scale, centre, widen)[0] == wanted, (word, widen)


@pytest.mark.parametrize("scale", [1e-9, 0.3, 2.5, 2.0**10, 2.0**20 / 3, 2.0**31, 2.0**44])
def test_centres_next_to_a_boundary(scale: float) -> None:
    """Centres that put the draw as near to a half-integer as doubles can and cannot tell, on both sides."""
    generator = np.random.default_rng(25)
    for word in [int(w) for w in SeededEntropy(26).uint64(25)] + [3, SIGN + 2**20, 2**44, SIGN + 2**45 + 1, SIGN - 1]:
        words = [word, *(int(w) for w in SeededEntropy(27).uint64(4))]
        x = mp.mpf(scale) * quantile(mp.ldexp(mp.mpf(word % SIGN) + 0.5, -64)) * (-1 if word >= SIGN else 1)
        x = Fraction(int(mp.nint(mp.ldexp(x, 150))), 2**150)
        for power in (-80, -64, -58, -54, -52, -50, -46, -40):
            k = int(generator.integers(-5, 6)) * int(10 ** generator.integers(0, 13))
            sides = [Fraction(side) * Fraction(2) ** power for side in (-1, 1)]
            for centre in (k + Fraction(1, 2) - x + side * (1 + Fraction(scale)) for side in sides):
                assert noisy(words, scale, centre)[0] == expected(iter(words), scale, centre), (word, power, k)


@pytest.mark.parametrize("scale", [1.0, 2.0**10, 2.0**40])
@pytest.mark.parametrize("centre", [Fraction(1, 4), Fraction(-(10**15), 3)])
def test_a_boundary_off_centre_takes_a_second_word(scale: float, centre: Fraction) -> None:
    for sign, first in ((1, 0), (-1, SIGN)):  # the boundary k + sign / 2, beyond which the draw is k + sign
        k = round(centre + sign * Fraction(scale))
        t = sign * (exactly(k + Fraction(sign, 2) - centre)) / mp.mpf(scale)
        head = int(mp.floor(mp.ldexp(upper_tail(t), 64)))
        (outer, one), (inner, two) = (noisy([first + head, second], scale, centre) for second in (0, 2**64 - 1))
        assert (outer, inner) == (k + sign, k)
        assert one.given == two.given == 2


@pytest.mark.parametrize("length", [64, 128, 320])
def test_normal_tail_encloses(length: int) -> None:
    generator = np.random.default_rng(length)
    with mp.workprec(2 * length + 100):
        for t in [0.0, *generator.uniform(0, 1.3 * length**0.5, 200), *np.exp2(generator.uniform(-60, 0, 100))]:
            numerator, denominator = float(t).as_integer_ratio()
            low, high = gaussian._normal_tail(numerator, denominator, length)
            assert low <= mp.ldexp(upper_tail(mp.mpf(float(t))), length) <= high
            assert high - low <= 2


@pytest.mark.parametrize("bits", [8, 96, 160, 1000])
def test_normal_density(bits: int) -> None:
    with mp.workprec(bits + 100):
        assert abs(gaussian._normal_density(bits) - mp.ldexp(1 / mp.sqrt(2 * mp.pi), bits)) < 2


def ndtri_errors(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Absolute errors of ndtri at u, by one Newton step (exact to their square), and the values."""
    values = ndtri(u)
    errors = np.empty_like(values)
    with mp.workdps(30):
        for i, (point, value) in enumerate(zip(u, values, strict=True)):
            z = mp.mpf(float(value))
            slope = mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi)
            errors[i] = abs((upper_tail(-z) - mp.mpf(float(point))) / slope)
    return errors, np.abs(values)


def fast_range(size: int) -> np.ndarray:
    """Doubles u over the fast path's range [2**-19, 1/2], crowded at its ends and where Cephes changes formulas."""
    generator = np.random.default_rng(31)
    near = 1 + np.exp2(generator.uniform(-40, -6, size)) * generator.choice([-1, 1], size)
    u = [2 ** generator.uniform(-19, -1, 2 * size), generator.uniform(2**-19, 0.5, size), np.exp(-2) * near, 0.5 * near]
    return np.concatenate([part[(part >= 2**-19) & (part <= 0.5)] for part in u] + [np.array([2**-19, 0.25, 0.5])])


def test_ndtri_in_the_fast_range_is_within_its_budget() -> None:
    errors, values = ndtri_errors(fast_range(2500))
    assert errors.max() < 2e-15 < 4e-15 < gaussian._MARGIN / 10
    assert np.all(errors <= 1.1e-15 * values)


def test_ndtri_in_the_far_tail() -> None:
    u = np.exp2(np.random.default_rng(32).uniform(-1000, -19, 1000))
    errors, values = ndtri_errors(u)
    assert np.all(errors < 1e-15 * values)


def test_the_whole_error_is_within_its_budget() -> None:
    u = fast_range(300)
    leading_digits = (u[u < 0.5] * 2.0**64).astype(np.int64)
    leading_digits |= np.random.default_rng(33).integers(
        0, 2**10, len(leading_digits)
    )  # digits that a double cannot hold
    small = np.exp2(np.random.default_rng(34).uniform(0, 46, 300)).astype(np.int64)
    leading_digits = np.concatenate([leading_digits, small, 1 + np.arange(50), 2**45 + np.arange(50)])
    doubles = -ndtri(leading_digits * 2.0**-64)
    for head, double in zip(leading_digits, doubles, strict=True):
        near, far = (quantile(mp.ldexp(int(head) + end, -64)) for end in (1, 0))
        worst = max(abs(near - mp.mpf(float(double))), abs(far - mp.mpf(float(double))))
        assert worst < 1.3e-14 + 1.26 / head
        assert 1.3e-14 + 1.26 / head < (gaussian._MARGIN + 2 / head) / 1.5
    assert gaussian._MARGIN > 4 * 1.3e-14
