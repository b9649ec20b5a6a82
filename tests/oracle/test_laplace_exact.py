"""The rounded Laplace against mpmath with 60 digits, and the error budget of its fast path."""

from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from duckdb_dp.noise import laplace
from duckdb_dp.noise.laplace import noisy_grid, rounded_laplace
from duckdb_dp.noise.uniform import enclose_exp
from duckdb_dp.testing import SeededEntropy

mp = mpmath.MPContext()
mp.dps = 60
SCALES = [1e-3, 0.11, 0.3, 1.0, 2.5, 1000 / 3, 2.0**10, 2.0**20 * 1.1, 2.0**31 / 3, 2.0**40, 2.0**44]
SIGN = 1 << 63


class Replay:
    """Gives out the words it was told; counts them."""

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
    return mp.exp(-t) / 2


def quantile(u: mpmath.mpf) -> mpmath.mpf:
    return -mp.log(2 * u) if u else mp.inf


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
    for k in {0, 1, round(scale / 3), round(scale), round(4 * scale), round(20 * scale), round(43 * scale)}:
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
            assert rounded_laplace(scale, 1, bits=Replay(words))[0] == expected(iter(words), scale), (word, more)


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
    -Fraction(1, 3 * 10**17),
    Fraction(1, 2) - Fraction(1, 10**20),
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
@pytest.mark.parametrize("centre", [Fraction(0), Fraction(1, 4), Fraction(-(10**15), 3)])
def test_a_boundary_inside_the_interval_takes_a_second_word(scale: float, centre: Fraction) -> None:
    for sign, first in ((1, 0), (-1, SIGN)):  # the boundary k + sign / 2, beyond which the draw is k + sign
        k = round(centre + sign * Fraction(scale))
        t = sign * (exactly(k + Fraction(sign, 2) - centre)) / mp.mpf(scale)
        head = int(mp.floor(mp.ldexp(upper_tail(t), 64)))
        (outer, one), (inner, two) = (noisy([first + head, second], scale, centre) for second in (0, 2**64 - 1))
        assert (outer, inner) == (k + sign, k)
        assert one.given == two.given == 2


@pytest.mark.parametrize("length", [63, 64, 128, 320, 1000])
def test_enclose_exp(length: int) -> None:
    generator = np.random.default_rng(length)
    with mp.workprec(3 * length + 100):
        for t in [0.0, *generator.uniform(0, 0.8 * length, 200), *np.exp2(generator.uniform(-200, 0, 100))]:
            number = Fraction(float(t)) * Fraction(int(generator.integers(1, 99)), 99)
            low, high = enclose_exp(number.numerator, number.denominator, length)
            assert low <= mp.ldexp(mp.exp(-exactly(number)), length) <= high
            assert high - low <= 2
            assert low >= 0


def test_enclose_exp_where_it_is_known() -> None:
    assert enclose_exp(0, 7, 64) == (2**64, 2**64)
    assert enclose_exp(10**300, 1, 64) == (0, 1)
    low, high = enclose_exp(1, 10**400, 64)
    assert low >= 2**64 - 1
    assert high >= 2**64


def leading_digits(size: int) -> np.ndarray:
    """V over all of its range, crowded at its ends and around 2**44, where the budget's argument changes."""
    generator = np.random.default_rng(31)
    parts = [2 ** generator.uniform(0, 63, 4 * size), 2 ** generator.uniform(43, 63, 2 * size)]
    parts += [2**63 * (1 - 2 ** generator.uniform(-50, -1, size)), 2**44 * generator.uniform(0.9, 1.1, size)]
    found = np.concatenate([np.minimum(np.concatenate(parts), 2.0**63 - 2**11).astype(np.int64), 1 + np.arange(50)])
    noise = generator.integers(0, 2**10, len(found))  # digits that a double cannot hold
    return np.concatenate([np.where(found > 2**54, found | noise, found), [2**63 - 1, 2**62, 2**44]])


def test_log_is_within_its_budget() -> None:
    u = leading_digits(500) * 2.0**-63
    logs = np.log(u)
    errors = [abs(mp.log(mp.mpf(float(point))) - mp.mpf(float(log))) for point, log in zip(u, logs, strict=True)]
    units = np.array([float(error) for error in errors]) / np.spacing(np.maximum(np.abs(logs), 2.0**-1000))
    assert units.max() <= 1


def test_the_whole_error_is_within_its_budget() -> None:
    points = leading_digits(500)
    doubles = -laplace._log_of_twice(points)
    for head, double in zip(points, doubles, strict=True):
        near, far = (quantile(mp.ldexp(int(head) + end, -64)) for end in (1, 0))
        worst = max(abs(near - mp.mpf(float(double))), abs(far - mp.mpf(float(double))))
        rounded = 2 * double * 2.0**-53  # of the product, and of the sum with the centre
        assert worst + rounded < 1e-14 + 1.001 / head
        assert worst + rounded < (laplace._MARGIN + 2 / int(head)) / 1.5
