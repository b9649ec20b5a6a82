"""The exponential mechanism against mpmath with 80 digits: every cell's ends, to a unit of u's first word."""

from itertools import accumulate

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest

from duckdb_dp.noise import select
from duckdb_dp.noise.select import exponential
from duckdb_dp.noise.uniform import enclose_exp
from tests.conftest import replay_digits

mp = mpmath.MPContext()
mp.dps = 80
SCORES = {
    "one": [3.0],
    "equal": [7.0] * 5,
    "near": [0.0, 1.5, -2.25, 1.0, 0.3, 1.4999],
    "far": [1e9, 1e9 - 3, -1e9, 1e9 + 1, 0.0],
    "under the grid": [1.0, 1.0 + 2.0**-40, 1.0 - 2.0**-40],
    "underflow": [0.0, -1400.0, -1500.0, -800.0, -0.1],
}


def cells(scores: np.ndarray, sensitivity: float, epsilon: float, error: float) -> list[mpmath.mpf]:
    """The ends of the cells of u in [0, 1), from the one of the largest score on: by the formula, from the scores."""
    step = mp.mpf(2) ** (int(mp.floor(mp.log(sensitivity, 2))) - 20)
    widest = mp.mpf(sensitivity) + step + 2 * mp.mpf(error)
    exponents = [mp.mpf(epsilon) * step * mp.nint(mp.mpf(float(score)) / step) / (2 * widest) for score in scores]
    best = int(np.argmax(scores))
    weights = [mp.exp(exponent - max(exponents)) for exponent in exponents[best:] + exponents[:best]]
    return [end / sum(weights) for end in accumulate(weights)]


@pytest.mark.some(6)
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 50.0])
@pytest.mark.parametrize(("sensitivity", "error"), [(1.0, 0.0), (1.0, 1e-9), (0.75, 0.2), (1000 / 3, 1e-3)])
def test_every_cell_ends_where_mpmath_says(name: str, epsilon: float, sensitivity: float, error: float) -> None:
    scores = np.array(SCORES[name])
    size, best = len(scores), int(np.argmax(scores))
    ends = cells(scores, sensitivity, epsilon, error)
    for end in ends[:-1]:
        digits = int(mp.floor(mp.ldexp(end, 192)))  # three words
        for shift in (-(2**160), -(2**129), -(2**128), -(2**64), -2, 2, 2**64, 2**128, 2**129, 2**160):
            point = digits + shift
            if not 0 <= point < 2**192:
                continue
            words = [point >> 128, point >> 64 & 2**64 - 1, point & 2**64 - 1]
            place = sum(other <= mp.ldexp(mp.mpf(point), -192) for other in ends[:-1])
            assert (
                exponential(scores, sensitivity, epsilon, bits=replay_digits(words), error=error)
                == (best + place) % size
            )


def test_an_end_inside_the_interval_takes_a_second_word() -> None:
    scores = np.array(SCORES["near"])
    head = int(mp.floor(mp.ldexp(cells(scores, 1.0, 1.0, 0.0)[0], 64)))
    before, behind = replay_digits([head, 0]), replay_digits([head, 2**64 - 1])
    assert exponential(scores, 1.0, 1.0, bits=before) == 1
    assert exponential(scores, 1.0, 1.0, bits=behind) == 2
    assert before.given == behind.given == 2
    farther = replay_digits([head + 1, 0])
    assert exponential(scores, 1.0, 1.0, bits=farther) == 2
    assert farther.given == 1


@pytest.mark.parametrize("widened", [0, 1, 2, 5])
@pytest.mark.parametrize("below", [0, 2**60])
@pytest.mark.parametrize("above", [0, 2**60])
def test_wider_enclosures_take_more_words_only(
    widened: int, below: int, above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One weight's enclosure, made wider on one side, moves no result."""
    scores = np.array(SCORES["near"])
    exponent = (select._grid(1.0, 1.0, 0.0)[1] * int(r) for r in select._round(1.5 - scores, 2.0**-20))
    wide = list(exponent)[widened]

    def enclose(numerator: int, denominator: int, length: int) -> tuple[int, int]:
        low, high = enclose_exp(numerator, denominator, length)
        one = (numerator, denominator) == (wide.numerator, wide.denominator)
        return (max(low - one * below, 0), high + one * above)

    monkeypatch.setattr(select, "enclose_exp", enclose)
    monkeypatch.setattr(select, "_decide", lambda *_: None)
    ends = cells(scores, 1.0, 1.0, 0.0)
    for end in ends[:-1]:
        for shift in (-(2**128), -(2**126), -(2**124), -2, 2, 2**124, 2**126, 2**128):
            point = int(mp.floor(mp.ldexp(end, 192))) + shift
            words = [point >> 128, point >> 64 & 2**64 - 1, point & 2**64 - 1, 0, 0]
            place = sum(other <= mp.ldexp(mp.mpf(point), -192) for other in ends[:-1])
            assert exponential(scores, 1.0, 1.0, bits=replay_digits(words)) == (1 + place) % len(scores)


def test_exp_is_within_its_budget() -> None:
    generator = np.random.default_rng(81)
    x = -np.concatenate([generator.uniform(0, 740, 2000), 2 ** generator.uniform(-60, 3, 2000), [0.0]])
    values = np.exp(x)
    for point, value in zip(x, values, strict=True):
        assert abs(mp.exp(mp.mpf(float(point))) - mp.mpf(float(value))) <= mp.mpf(float(np.spacing(value)))


@pytest.mark.some(2)
@pytest.mark.parametrize("size", [10, 3000, 20_000])
@pytest.mark.parametrize("spread", [0.0, 5.0, 1000.0])
def test_sums_in_doubles_are_within_their_budget(size: int, spread: float) -> None:
    """Each end of a cell, as a share, against integers with 200 digits: a quarter of the margin is not reached."""
    scores = np.append(0.0, -np.abs(spread * np.random.default_rng(82).normal(size=size - 1)))
    step, rate = select._grid(1.0, 1.0, 0.0)
    rounded = select._round(scores, step)
    with np.errstate(under="ignore"):
        sums = np.cumsum(np.exp((rounded - rounded[0]) * float(rate)))
    with mp.workprec(200):
        exact_rate = mp.mpf(rate.numerator) / rate.denominator
        exact = list(accumulate(mp.exp(exact_rate * int(r - rounded[0])) for r in rounded))
        worst = max(
            abs(mp.mpf(float(s)) / mp.mpf(float(sums[-1])) - e / exact[-1]) for s, e in zip(sums, exact, strict=True)
        )
    assert worst < size * select._MARGIN / 4


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0])
def test_opendp_charges_the_same_rho(epsilon: float) -> None:
    """Its Gumbel noise of scale 2 / epsilon on scores of sensitivity 1 is the exponential mechanism."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    theirs = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=2 / epsilon)
    assert theirs.map(1.0) == pytest.approx(epsilon**2 / 8, rel=1e-9)
