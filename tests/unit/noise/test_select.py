"""The exponential mechanism: edge cases, the decision in doubles against the exact one, the privacy of its exponents."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckdb_dp.noise import select
from duckdb_dp.noise.select import exponential
from duckdb_dp.noise.uniform import SystemEntropy
from duckdb_dp.testing import NoNoise, SeededEntropy
from tests.conftest import replay_digits

EPSILONS = [2.0**-100, 1e-9, 0.1, 1.0, 50.0, 2.0**100]


def some_scores(kind: str, size: int) -> np.ndarray:
    generator = np.random.default_rng(71)
    normal = generator.normal(size=size)
    return {
        "equal": np.full(size, 1e9),
        "near": normal,
        "far": 1e9 * normal,
        "both": np.where(generator.random(size) < 0.5, normal, -1e9),
        "huge": 1e308 * np.tanh(normal),
        "tiny": 5e-324 * np.rint(normal),
        "integers": np.rint(3 * normal),
    }[kind]


KINDS = ["equal", "near", "far", "both", "huge", "tiny", "integers"]


@pytest.mark.some(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 7, 1000, 20_000])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_noise_gives_the_largest(kind: str, size: int, epsilon: float) -> None:
    scores = some_scores(kind, size)
    for error in (0.0, 1e-6, 100.0):
        assert exponential(scores, 1.0, epsilon, bits=NoNoise(), error=error) == np.argmax(scores)


@pytest.mark.some(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 1000, 20_000])
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("sensitivity", [2.0**-100, 1.0, 2.0**100])
def test_all_sizes_end(kind: str, size: int, epsilon: float, sensitivity: float) -> None:
    scores = some_scores(kind, size)
    chosen = exponential(scores, sensitivity, epsilon, bits=SystemEntropy())
    assert isinstance(chosen, int)
    assert 0 <= chosen < size


def test_the_scores_are_left_alone() -> None:
    scores = some_scores("near", 50)
    scores.flags.writeable = False
    exponential(scores, 1.0, 1.0, bits=SystemEntropy())


def test_a_seed_repeats() -> None:
    scores = some_scores("near", 50)

    def chosen(seed: int) -> list[int]:
        bits = SeededEntropy(seed)
        return [exponential(scores, 1.0, 1.0, bits=bits) for _ in range(40)]

    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)


@pytest.mark.parametrize(
    "scores",
    [[], [[1.0]], [math.nan], [0.0, math.inf], [-math.inf, 0.0]],
)
def test_scores_must_be_finite_numbers(scores: list) -> None:
    with pytest.raises(ValueError, match="finite"):
        exponential(np.array(scores, dtype=float), 1.0, 1.0, bits=SystemEntropy())


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf, 2.0**-101, 2.0**101])
def test_parameters_out_of_range(wrong: float) -> None:
    for sensitivity, epsilon, error in ((wrong, 1.0, 0.0), (1.0, wrong, 0.0), (1.0, 1.0, wrong)):
        if error in (0.0, 2.0**-101) and sensitivity == epsilon == 1:
            continue
        with pytest.raises(ValueError, match="out of range"):
            exponential(np.zeros(3), sensitivity, epsilon, bits=SystemEntropy(), error=error)


def boundary_words(scores: np.ndarray, epsilon: float) -> list[int]:
    """u's first words near the ends of the cells, as doubles see them, and others."""
    step, rate = select._grid(1.0, epsilon, 0.0)
    rounded = select._round(scores, step)
    best = int(np.argmax(scores))
    sums = np.cumsum(np.exp((np.roll(rounded, -best) - rounded[best]) * float(rate)))
    leading_digits = [int(part * 2.0**64) for part in np.unique(sums / sums[-1])[:40]]
    near = [head + shift for head in leading_digits for shift in (-(2**20), -3000, 0, 3000, 2**20)]
    return [word for word in [*near, 0, 1, 2**63, 2**64 - 1] if 0 <= word < 2**64]


@pytest.mark.some(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 7, 60])
@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 50.0])
def test_doubles_agree_with_integers(kind: str, size: int, epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = some_scores(kind, size)
    leading_digits = boundary_words(scores, epsilon) + SeededEntropy(72).uint64(20).tolist()

    def chosen() -> list[int]:
        return [exponential(scores, 1.0, epsilon, bits=replay_digits([head, 2**63, 5])) for head in leading_digits]

    fast = chosen()
    monkeypatch.setattr(select, "_decide", lambda *_: None)
    assert chosen() == fast


@pytest.mark.parametrize("size", [3, 1000, 20_000])
def test_doubles_nearly_always_tell(size: int) -> None:
    step, rate = select._grid(1.0, 1.0, 0.0)
    rounded = select._round(some_scores("near", size), step)
    rounded = np.roll(rounded, -int(np.argmax(rounded)))
    leading_digits = SeededEntropy(73).uint64(300).tolist()
    assert all(select._decide(rounded, rate, head) is not None for head in leading_digits)


def test_the_order_does_not_matter() -> None:
    """Cells stand around from the largest: a turn of the scores is a turn of the result."""
    scores = some_scores("near", 30)
    for shift in range(30):
        turned = [exponential(np.roll(scores, shift), 1.0, 2.0, bits=SeededEntropy(seed)) for seed in range(20)]
        plain = [exponential(scores, 1.0, 2.0, bits=SeededEntropy(seed)) for seed in range(20)]
        assert turned == [(place + shift) % 30 for place in plain]


magnitudes = st.one_of(st.just(0.0), st.floats(min_value=1e-12, max_value=1e6))


@pytest.mark.slow
@given(
    st.lists(st.fractions(-(10**9), 10**9), min_size=1, max_size=5),
    st.floats(min_value=1e-6, max_value=1e6),
    st.floats(min_value=1e-9, max_value=50),
    magnitudes,
    st.data(),
)
def test_no_neighbour_moves_an_exponent_by_more_than_half_of_epsilon(
    ideal: list[Fraction], sensitivity: float, epsilon: float, slack: float, data: st.DataObject
) -> None:
    """Ideal scores, their neighbours, and doubles near both: the exponents are rational, and so compared exactly."""
    size = len(ideal)
    shares = st.lists(st.one_of(st.sampled_from([-1, 1]), st.fractions(-1, 1)), min_size=size, max_size=size)
    moved = [one + share * Fraction(sensitivity) for one, share in zip(ideal, data.draw(shares), strict=True)]

    def made(scores: list[Fraction]) -> tuple[np.ndarray, Fraction]:
        """Doubles near these, and how far the farthest is."""
        lies = [share * Fraction(slack) for share in data.draw(shares)]
        near = [float(one + lie) for one, lie in zip(scores, lies, strict=True)]
        return np.array(near), max(abs(Fraction(one) - score) for one, score in zip(near, scores, strict=True))

    (near, one), (neighbour, other) = made(ideal), made(moved)
    error = float(np.nextafter(float(max(one, other)), np.inf))
    step, rate = select._grid(sensitivity, epsilon, error)
    differences = [
        rate * (int(a) - int(b)) for a, b in zip(select._round(near, step), select._round(neighbour, step), strict=True)
    ]
    assert max(abs(difference) for difference in differences) <= Fraction(epsilon) / 2


def test_the_charge_of_rounding_is_needed_and_small() -> None:
    """A neighbour that is `sensitivity` away lands up to one step further: without the charge epsilon would be passed."""
    step, rate = select._grid(1.5, 1.0, 0.0)
    near, far = select._round(np.array([0.49 * step, -0.49 * step - 1.5 + 0.9 * step]), step)
    assert step <= 1.5 * 2.0**-20
    assert abs(float(rate) * 2 * 1.5 / step - 1) < 2.0**-19
    pushed = select._round(np.array([1.5 + 0.5 * step + 1e-9 * step]), step)[0] - select._round(np.zeros(1), step)[0]
    assert pushed * Fraction(step) > Fraction(1.5)
    assert rate * int(pushed) <= Fraction(1, 2)
    assert near == 0
    assert far == -np.rint(1.5 / step)


def test_errors_widen_the_sensitivity() -> None:
    (step, plain), (same, widened) = select._grid(1.0, 1.0, 0.0), select._grid(1.0, 1.0, 0.5)
    assert step == same == 2.0**-20
    assert plain == Fraction(step) / (2 * (1 + Fraction(step)))
    assert widened == Fraction(step) / (2 * (2 + Fraction(step)))


def test_scores_beyond_the_grid_are_cut() -> None:
    rounded = select._round(np.array([1e308, -1e308, 3.0, 0.5, -0.6]) * 1.0, 2.0**-20)
    assert rounded.tolist() == [2.0**1000, -(2.0**1000), 3 * 2.0**20, 2.0**19, float(np.rint(-0.6 * 2**20))]
