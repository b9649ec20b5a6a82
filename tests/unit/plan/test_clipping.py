"""Bounds on what an owner adds: how far they go beyond the first selection's."""

import math

import numpy as np
import pytest

from duckdb_dp.grouped_sums import PER_OCTAVE, GroupedSums, Sum
from duckdb_dp.plan.choose import PrivacyCost
from duckdb_dp.plan.clipping import BEYOND, FORMER_NONE, NONE, OVER, STEEP, Clip
from duckdb_dp.plan.direct import DirectPlan

SIZE, EPSILON = 40 * PER_OCTAVE + 1, 0.16


def clip(*, noise: float = 6.7, numbers: bool = False, rows: bool = False, size: int = SIZE) -> Clip:
    steep = 0.0 if rows else EPSILON / STEEP
    return Clip(sums=(0,), lowest=0, size=size, epsilon=EPSILON, steep=steep, noise=noise, numbers=numbers, rows=rows)


@pytest.mark.parametrize("numbers", [False, True])
def test_a_bound_only_grows_and_stays_a_candidate(numbers: bool) -> None:
    one = clip(numbers=numbers, size=60)
    for choice in range(one.size):
        for steep in range(choice + 1):
            moved = one.moved(choice, steep)
            assert choice <= moved < one.size
            assert moved - choice <= choice - steep, "as far beyond as the second candidate is below, at most"
            if steep in (choice, 0) or (numbers and steep <= NONE * PER_OCTAVE):
                assert moved == choice


@pytest.mark.parametrize("alpha", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("noise", [2.0, 6.7])
def test_of_a_tail_the_bound_leaves_as_many_owners_as_suit_the_noise(alpha: float, noise: float) -> None:
    """Where T and STEEP T owners are beyond the two candidates, and their number falls as x^-alpha."""
    one, wanted = clip(noise=noise), 2 * BEYOND / EPSILON
    choice = 20 * PER_OCTAVE
    steep = choice - round(math.log2(STEEP) / alpha * PER_OCTAVE)
    moved = one.moved(choice, steep)
    beyond = wanted * (one.candidates[moved] / one.candidates[choice]) ** -alpha
    suits = OVER * noise * math.sqrt(alpha - 1)
    furthest = wanted / STEEP  # as far as the second candidate is below
    assert max(suits, furthest) * 0.9 <= beyond <= max(suits, furthest) * 2.0 ** (2.5 * alpha / PER_OCTAVE)


def test_a_slow_fall_and_much_noise_move_nothing() -> None:
    choice = 20 * PER_OCTAVE
    assert clip().moved(choice, choice - 3 * PER_OCTAVE) == choice  # alpha = 1
    assert clip(noise=1e6).moved(choice, choice - PER_OCTAVE) == choice
    assert not clip(rows=True).goes_on(choice)
    assert not clip().goes_on(0)
    assert not clip(numbers=True).goes_on(NONE * PER_OCTAVE)


def test_the_second_selection_prefers_where_as_many_more_owners_are_beyond() -> None:
    """Without noise, of owners whose number falls as x^-2."""
    one = clip()
    beyond = np.floor(1e6 * one.candidates**-2.0)
    owners = -np.diff(np.concatenate([[2e6], beyond, [0]])).astype(np.int64)
    first = int(one.scores(owners).argmax())
    second = int(one.steep_scores(owners, first).argmax())
    assert abs(beyond[first] - 2 * BEYOND / EPSILON) < 0.3 * 2 * BEYOND / EPSILON
    assert abs(beyond[second] - STEEP * 2 * BEYOND / EPSILON) < 0.3 * STEEP * 2 * BEYOND / EPSILON


@pytest.mark.parametrize("wanted", [0.0, 40.0, 1e9])
def test_one_owner_moves_a_score_by_one_at_most(wanted: float) -> None:
    """Wherever it is added, and however many owners beyond suit the noise of quantiles."""
    one = Clip(sums=(0,), lowest=0, size=30, epsilon=EPSILON, rows=True, lost=wanted)
    rng = np.random.default_rng(3)
    for scale in (1.0, 30.0, 1000.0):
        owners = rng.poisson(scale * rng.dirichlet(np.ones(31)) * 31)
        before = one.scores(owners)
        for cell in range(31):
            more = owners.copy()
            more[cell] += 1
            assert np.abs(one.scores(more) - before).max() <= 1 + 1e-9


def test_more_owners_are_beyond_where_the_noise_of_quantiles_is_larger() -> None:
    """As many as suit it, an eighth at most, and never fewer than can be told from none."""
    owners = np.append(np.full(80, 100), 0)
    beyond = owners[::-1].cumsum()[::-1][1:]
    found = [
        beyond[int(Clip(sums=(0,), lowest=0, size=80, epsilon=100.0, rows=True, lost=suits).scores(owners).argmax())]
        for suits in (0.0, 400.0, 1e9)
    ]
    assert found == [0, 400, 1000]


VALUED = [
    ("INTEGER", 1.0, 5.0, 3.0, 1.0),  # 2 and 4 are 1 from the middle
    ("INTEGER", 0.0, 5.0, 2.5, 0.5),
    ("INTEGER", 0.0, 5.0, 0.0, 1.0),
    ("DECIMAL(8,2)", 0.0, 700.0, 350.0, 0.01),
    ("DECIMAL(8,2)", 0.0, 700.05, 350.025, 0.005),
    ("DECIMAL(38,10)", 0.0, 1e9, 0.0, 1e-10),
    ("DOUBLE", 0.0, 1e6, 0.0, 0.1),
    ("DOUBLE", -1.0, 1.0, 0.0, 2e-7),
    ("DOUBLE", 0.0, 100.0, 50.0, 1e-2),
    ("DOUBLE", 10.0, 40.0, 0.0, 10.0),  # each row adds 10 or more
    ("DOUBLE", -1e9, -1e8, 0.0, 1e8),
    ("DOUBLE", 8.0, 9.0, 2.0, 6.0),
    ("INTEGER", 18.0, 99.0, 0.0, 18.0),
    ("DECIMAL(8,2)", 0.05, 700.0, 0.0, 0.05),
]


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize(("norm", "low", "high", "centre", "least"), VALUED)
def test_the_smallest_bounds_reach_what_one_row_can_add(
    norm: str, low: float, high: float, centre: float, least: float, square: bool
) -> None:
    """And not much further down where the type says so: each candidate below takes a part of the choice away."""
    one = Sum(value="x", low=low, high=high, centre=centre, square=square, norm=norm)
    smallest, largest = one.octaves
    added = least**2 if square else least
    assert 2.0**smallest <= max(added, 2.0**one.former_lowest)
    assert 2.0**largest >= one.largest * 2.0**30
    if norm != "DOUBLE" or low > centre or high < centre:
        assert 2.0**smallest >= min(added / 8, one.largest / 4)
    assert smallest >= one.former_lowest


def test_doubles_without_bounds_are_seldom_all_below_a_millionth() -> None:
    """Releases from before went on to 2^-40."""
    one = Sum(value="x", norm="DOUBLE", low=0.0, high=0.0)
    assert not one.bounded
    assert one.octaves[0] == -20
    assert one.former_lowest == -40


def plan_of_one_sum() -> tuple[DirectPlan, Sum]:
    """A plan whose only sum has a bound that is chosen."""
    one = Sum(value="x", low=1.0, high=5.0, centre=3.0, norm="INTEGER")
    part = GroupedSums(
        number=1, columns=(), where="", clique=(), size=1, groups=None, labels=(), sums=(one,), outputs=()
    )
    plan = DirectPlan(parts=(part,), cost=PrivacyCost(beta=1.0, epsilon=1.0), auto=True)
    return plan, one


def test_releases_that_do_not_store_their_smallest_bound_are_read_as_they_were_drawn() -> None:
    plan, one = plan_of_one_sum()
    (clip,) = plan.clips
    assert clip.numbers
    former = one.former_lowest - FORMER_NONE
    place = PER_OCTAVE * (3 - former)
    assert plan.bound(0, {clip.name: np.array([place, place, place])}) == 8.0
    place = PER_OCTAVE * (3 - clip.lowest)
    assert plan.bound(0, {clip.name: np.array([place, place, place, clip.lowest])}) == 8.0
    assert np.isnan(plan.bound(0, {clip.name: np.array([0, 0, 0, clip.lowest])}) or 0.0)
    assert np.isnan(plan.bound(0, {clip.name: np.zeros(1)}) or 0.0)


def test_too_few_owners_hardly_ever_draw_a_bound() -> None:
    """A bound far too small would be a confident wrong answer; no bound is no answer."""
    one = clip(numbers=True, size=60 * PER_OCTAVE)
    owners = np.zeros(one.size + 1, np.int64)
    owners[40 * PER_OCTAVE] = 3
    scores = one.scores(owners) * one.epsilon / 2
    drawn = np.exp(scores - scores.max())
    told = np.array([not math.isnan(one.bound(i)) for i in range(one.size)])
    assert drawn[told].sum() < 1e-4 * drawn.sum()


def test_releases_of_fewer_octaves_below_keep_their_bounds() -> None:
    plan, _ = plan_of_one_sum()
    (clip,) = plan.clips
    place = FORMER_NONE * PER_OCTAVE
    assert plan.bound(0, {clip.name: np.array([place, place, place, -5])}) == 2.0 ** (FORMER_NONE - 5)
    assert np.isnan(plan.bound(0, {clip.name: np.array([place, place, place, -5, NONE])}) or 0.0)
