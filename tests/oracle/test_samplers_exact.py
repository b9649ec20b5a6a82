"""The rounded Gaussian and Laplace against mpmath with 60 digits, and the error budgets of their fast paths."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

from duckdb_dp.noise import gaussian, laplace
from duckdb_dp.noise.uniform import enclose_exp
from duckdb_dp.testing import SeededEntropy
from tests.conftest import Replay

mp = mpmath.MPContext()
mp.dps = 60
SCALES = [1e-3, 0.11, 0.3, 1.0, 2.5, 1000 / 3, 2.0**10, 2.0**20 * 1.1, 2.0**31 / 3, 2.0**40, 2.0**44]
SIGN = 1 << 63


@dataclass(frozen=True)
class Gaussian:
    module: ModuleType = gaussian
    farthest: int = 6

    def upper_tail(self, t: mpmath.mpf) -> mpmath.mpf:
        return mp.erfc(t / mp.sqrt(2)) / 2

    def quantile(self, u: mpmath.mpf) -> mpmath.mpf:
        """The point whose upper tail is u: Newton's steps on log(tail) from a double."""
        if u == 0:
            return mp.inf
        t = mp.mpf(-ndtri(float(u)))
        for _ in range(4):  # 1e-15 squared twice is already below 1e-60
            tail = self.upper_tail(t)
            density = mp.exp(-t * t / 2) / mp.sqrt(2 * mp.pi)
            t += mp.log(tail / u) * tail / density
        return t


@dataclass(frozen=True)
class Laplace:
    module: ModuleType = laplace
    farthest: int = 43

    def upper_tail(self, t: mpmath.mpf) -> mpmath.mpf:
        return mp.exp(-t) / 2

    def quantile(self, u: mpmath.mpf) -> mpmath.mpf:
        return -mp.log(2 * u) if u else mp.inf


Law = Gaussian | Laplace
both = pytest.mark.parametrize("law", [Gaussian(), Laplace()], ids=["gaussian", "laplace"])


def exactly(number: Fraction) -> mpmath.mpf:
    return mp.mpf(number.numerator) / number.denominator


def expected(law: Law, words: Iterator[int], scale: float, centre: Fraction = Fraction(0)) -> int:
    """The nearest integer to the draw that these words begin, by inverting the tail at both ends of u's interval."""
    word = next(words)
    sign = -1 if word >= SIGN else 1
    head, length = word % SIGN, 64
    while True:
        ends = (mp.ldexp(head + end, -length) for end in (1, 0))
        near, far = (exactly(centre) + sign * mp.mpf(scale) * law.quantile(end) for end in ends)
        if mp.isfinite(far) and mp.nint(near) == mp.nint(far):
            return int(mp.nint(near))
        head, length = head << 64 | next(words), length + 64


def hard_words(law: Law, scale: float) -> list[int]:
    """First words whose interval holds a boundary between integers, or is next to one that does."""
    words = []
    for k in {0, 1, *(round(times * scale) for times in (1 / 3, 1, 4, 20, law.farthest) if times <= law.farthest)}:
        t = (2 * k + 1) / (2 * mp.mpf(scale))
        head = int(mp.floor(mp.ldexp(law.upper_tail(t), 64)))
        words += [h for h in (head - 1, head, head + 1) if 0 <= h < SIGN]
    return words


def noisy(law: Law, words: list[int], scale: float, centre: Fraction, widen: float = 0.0) -> tuple[int, Replay]:
    """One draw, from the double nearest to the centre and its true error, widened."""
    near = float(centre)
    error = np.nextafter(float(abs(Fraction(near) - centre)), np.inf) + widen
    bits = Replay(words)
    return int(law.module.noisy_grid(np.array([near]), error, scale, lambda _: centre, bits=bits)[0]), bits


@pytest.mark.some(2, "law")
@both
@pytest.mark.parametrize("scale", SCALES)
def test_words_give_what_mpmath_says(law: Law, scale: float) -> None:
    first = [int(w) for w in SeededEntropy(21).uint64(40)] + hard_words(law, scale)
    first += [0, 1, SIGN, SIGN + 5, SIGN - 1, 2**44 + 1, 2**45 - 1, 2**45, 2**46, 2**53 + 1]
    for word in first:
        for more in (0, 2**64 - 1, int(SeededEntropy(word % 2**32).uint64(1)[0])):
            words = [word, more, *(int(w) for w in SeededEntropy(22).uint64(3))]
            assert noisy(law, words, scale, Fraction(0))[0] == expected(law, iter(words), scale), (word, more)


CENTRES = [
    Fraction(1, 4), Fraction(-4999, 10_000), Fraction(1, 2), Fraction(-7, 2), Fraction(1, 10**9), -Fraction(1, 3 * 10**17),
    Fraction(1, 2) - Fraction(1, 10**20), Fraction(10**15, 7), -(10**15) - Fraction(1, 2), Fraction(3 * 10**17, 7),
    Fraction(2**62),
]  # fmt: skip


@both
@pytest.mark.some(2, "law")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("centre", CENTRES)
def test_words_give_what_mpmath_says_off_centre(law: Law, scale: float, centre: Fraction) -> None:
    first = [int(w) for w in SeededEntropy(23).uint64(8)]
    first += [0, 1, SIGN, SIGN + 5, SIGN - 1, 2**12 + 1, SIGN + 2**30, 2**45, 2**53 + 1]
    for word in first:
        words = [word, *(int(w) for w in SeededEntropy(24).uint64(4))]
        wanted = expected(law, iter(words), scale, centre)
        for widen in (0.0, 1e-6, 0.6):
            assert noisy(law, words, scale, centre, widen)[0] == wanted, (word, widen)


@pytest.mark.slow
@pytest.mark.some(1, "law")
@both
@pytest.mark.parametrize("scale", [1e-9, 0.3, 2.5, 2.0**10, 2.0**20 / 3, 2.0**31, 2.0**44])
def test_centres_next_to_a_boundary(law: Law, scale: float) -> None:
    """Centres that put the draw as near to a half-integer as doubles can and cannot tell, on both sides."""
    generator = np.random.default_rng(25)
    for word in [int(w) for w in SeededEntropy(26).uint64(25)] + [3, SIGN + 2**20, 2**44, SIGN + 2**45 + 1, SIGN - 1]:
        words = [word, *(int(w) for w in SeededEntropy(27).uint64(4))]
        x = mp.mpf(scale) * law.quantile(mp.ldexp(mp.mpf(word % SIGN) + 0.5, -64)) * (-1 if word >= SIGN else 1)
        x = Fraction(int(mp.nint(mp.ldexp(x, 150))), 2**150)
        for power in (-80, -64, -58, -54, -52, -50, -46, -40):
            k = int(generator.integers(-5, 6)) * int(10 ** generator.integers(0, 13))
            sides = [Fraction(side) * Fraction(2) ** power for side in (-1, 1)]
            for centre in (k + Fraction(1, 2) - x + side * (1 + Fraction(scale)) for side in sides):
                assert noisy(law, words, scale, centre)[0] == expected(law, iter(words), scale, centre), (
                    word,
                    power,
                    k,
                )


@both
@pytest.mark.parametrize("scale", [1.0, 2.0**10, 2.0**20, 2.0**40, 2.0**44])
@pytest.mark.parametrize("centre", [Fraction(0), Fraction(1, 4), Fraction(-(10**15), 3)])
def test_a_boundary_inside_the_interval_takes_a_second_word(law: Law, scale: float, centre: Fraction) -> None:
    for sign, first in ((1, 0), (-1, SIGN)):  # the boundary k + sign / 2, beyond which the draw is k + sign
        k = round(centre + sign * Fraction(scale))
        t = sign * (exactly(k + Fraction(sign, 2) - centre)) / mp.mpf(scale)
        head = int(mp.floor(mp.ldexp(law.upper_tail(t), 64)))
        (outer, one), (inner, two) = (noisy(law, [first + head, second], scale, centre) for second in (0, 2**64 - 1))
        assert (outer, inner) == (k + sign, k)
        assert one.given == two.given == 2


@pytest.mark.parametrize("length", [64, 128, 320])
def test_normal_tail_encloses(length: int) -> None:
    generator = np.random.default_rng(length)
    with mp.workprec(2 * length + 100):
        for t in [0.0, *generator.uniform(0, 1.3 * length**0.5, 200), *np.exp2(generator.uniform(-60, 0, 100))]:
            numerator, denominator = float(t).as_integer_ratio()
            low, high = gaussian._normal_tail(numerator, denominator, length)
            assert low <= mp.ldexp(Gaussian().upper_tail(mp.mpf(float(t))), length) <= high
            assert high - low <= 2


@pytest.mark.parametrize("bits", [8, 96, 160, 1000])
def test_normal_density(bits: int) -> None:
    with mp.workprec(bits + 100):
        assert abs(gaussian._normal_density(bits) - mp.ldexp(1 / mp.sqrt(2 * mp.pi), bits)) < 2


def few_at_a_time(u: np.ndarray) -> np.ndarray:
    """The quantiles by which a few draws are decided."""
    return np.concatenate([gaussian._by_library(part) for part in np.array_split(u, 1 + len(u) // 1000)])


quantiles = pytest.mark.parametrize("quantile", [ndtri, few_at_a_time], ids=["many", "few"])


def quantile_errors(quantile: Callable[[np.ndarray], np.ndarray], u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Absolute errors of normal quantiles at u, by one Newton step (exact to their square), and the values."""
    values = quantile(u)
    errors = np.empty_like(values)
    with mp.workdps(30):
        for i, (point, value) in enumerate(zip(u, values, strict=True)):
            z = mp.mpf(float(value))
            slope = mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi)
            errors[i] = abs((Gaussian().upper_tail(-z) - mp.mpf(float(point))) / slope)
    return errors, np.abs(values)


def fast_range(size: int) -> np.ndarray:
    """Doubles u over the fast path's range [2**-19, 1/2], crowded at its ends and where the libraries change formulas."""
    generator = np.random.default_rng(31)
    near = 1 + np.exp2(generator.uniform(-40, -6, size)) * generator.choice([-1, 1], size)
    u = [
        2 ** generator.uniform(-19, -1, 2 * size),
        generator.uniform(2**-19, 0.5, size),
        np.exp(-2) * near,
        0.075 * near,
        0.5 * near,
    ]
    return np.concatenate([part[(part >= 2**-19) & (part <= 0.5)] for part in u] + [np.array([2**-19, 0.25, 0.5])])


@pytest.mark.slow
def test_scipy_in_the_fast_range_is_within_its_budget() -> None:
    errors, values = quantile_errors(ndtri, fast_range(2500))
    assert errors.max() < 2e-15 < 4e-15 < gaussian._MARGIN / 10
    assert np.all(errors <= 1.1e-15 * values)


@pytest.mark.slow
def test_the_standard_library_in_the_fast_range_is_within_its_budget() -> None:
    errors, _ = quantile_errors(few_at_a_time, fast_range(2500))
    assert errors.max() < 3e-15 < 4e-15 < gaussian._MARGIN / 10


@quantiles
def test_quantiles_in_the_far_tail(quantile: Callable[[np.ndarray], np.ndarray]) -> None:
    u = np.exp2(np.random.default_rng(32).uniform(-1000, -19, 1000))
    errors, values = quantile_errors(quantile, np.append(u, np.exp(-25) * (1 + np.linspace(-1e-6, 1e-6, 99))))
    assert np.all(errors < 1e-15 * values)


@pytest.mark.slow
@quantiles
def test_the_whole_error_of_the_gaussian_is_within_its_budget(quantile: Callable[[np.ndarray], np.ndarray]) -> None:
    u = fast_range(100)
    leading_digits = (u[u < 0.5] * 2.0**64).astype(np.int64)
    leading_digits |= np.random.default_rng(33).integers(
        0, 2**10, len(leading_digits)
    )  # digits that a double cannot hold
    small = np.exp2(np.random.default_rng(34).uniform(0, 46, 100)).astype(np.int64)
    leading_digits = np.concatenate([leading_digits, small, 1 + np.arange(50), 2**45 + np.arange(50)])
    doubles = -quantile(leading_digits * 2.0**-64)
    for head, double in zip(leading_digits, doubles, strict=True):
        near, far = (Gaussian().quantile(mp.ldexp(int(head) + end, -64)) for end in (1, 0))
        worst = max(abs(near - mp.mpf(float(double))), abs(far - mp.mpf(float(double))))
        assert worst < 1.3e-14 + 1.26 / head
        assert 1.3e-14 + 1.26 / head < (gaussian._MARGIN + 2 / head) / 1.5
    assert gaussian._MARGIN > 4 * 1.3e-14


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


def test_the_whole_error_of_the_laplace_is_within_its_budget() -> None:
    points = leading_digits(500)
    doubles = -laplace._log_of_twice(points)
    for head, double in zip(points, doubles, strict=True):
        near, far = (Laplace().quantile(mp.ldexp(int(head) + end, -64)) for end in (1, 0))
        worst = max(abs(near - mp.mpf(float(double))), abs(far - mp.mpf(float(double))))
        rounded = 2 * double * 2.0**-53  # of the product, and of the sum with the centre
        assert worst + rounded < 1e-14 + 1.001 / head
        assert worst + rounded < (laplace._MARGIN + 2 / int(head)) / 1.5
