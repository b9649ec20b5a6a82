"""Blocks counted row by row, against counts of the same rows by numpy."""

import itertools
import threading
from collections import Counter
from functools import partial

import numpy as np
import pytest

from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.tally import FEW_BLOCKS, FEWEST, Tallies, Tally, described, tallied
from duckdb_dp.domain.domain import Clique, Domain

DOMAIN = Domain({"a": 4, "b": 3, "one": 1, "c": 300})
BLOCKS: tuple[Clique, ...] = ((), ("a",), ("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "one", "c"))


def rows(number: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    return np.stack([rng.integers(0, size, number) for size in DOMAIN.sizes.values()], axis=1).astype(np.uint16)


def expected(codes: np.ndarray, block: Clique) -> np.ndarray:
    places = [DOMAIN.attributes.index(name) for name in block]
    found = Counter(tuple(map(int, row)) for row in codes[:, places])
    return np.array([found[cell] for cell in itertools.product(*map(range, DOMAIN.shape(block)))])


@pytest.mark.parametrize("number", [0, 1, 2_048, FEWEST, 3 * FEWEST + 5])
def test_every_block_and_what_is_summed_from_it(number: int) -> None:
    codes, tally = rows(number), Tally(DOMAIN, BLOCKS)
    for part in np.array_split(codes, 7):
        tally.add(part.reshape(-1))
    found = Counts(DOMAIN, tally.cells())
    assert tally.rows == number
    for block in (*BLOCKS, ("c",), ("one",)):
        assert np.array_equal(found.marginal(block), expected(codes, block))


def test_batches_that_are_longer_than_what_is_held() -> None:
    codes, tally = rows(5 * FEWEST), Tally(DOMAIN, BLOCKS)
    tally.add(codes.reshape(-1))
    assert np.array_equal(Counts(DOMAIN, tally.cells()).marginal(("a", "c")), expected(codes, ("a", "c")))


def test_threads_lose_no_row() -> None:
    codes, tallies = rows(40_000), Tallies()
    number = tallies.open(described(DOMAIN, BLOCKS), 1, 1)
    parts = np.array_split(codes, 8)

    def work(part: np.ndarray) -> None:
        for few in np.array_split(part, 50):
            tallies.add(number, partial(few.reshape, -1))

    threads = [threading.Thread(target=work, args=(part,)) for part in parts]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    found = Counts(DOMAIN, tallies.taken(number, 40_000))
    assert np.array_equal(found.marginal(("b", "c")), expected(codes, ("b", "c")))


@pytest.mark.parametrize("claimed", [0, 99, 101, 200])
def test_rows_that_were_not_added_once_each(claimed: int) -> None:
    """Twice the counts would be twice the sensitivity."""
    tallies = Tallies()
    number = tallies.open(described(DOMAIN, BLOCKS), 1, 1)
    tallies.add(number, lambda: rows(100).reshape(-1))
    with pytest.raises(RuntimeError):
        tallies.taken(number, claimed)
    with pytest.raises(RuntimeError):
        tallies.taken(number, 100)  # it is closed


def test_what_cannot_be_read_fails_when_it_is_taken_and_not_before() -> None:
    def broken() -> np.ndarray:
        raise ValueError("a private value")

    tallies = Tallies()
    number = tallies.open(described(DOMAIN, BLOCKS), 1, 1)
    tallies.add(number, broken)
    with pytest.raises(RuntimeError, match="once each"):
        tallies.taken(number, 0)


def test_what_a_failed_statement_left_goes_with_the_connection_s_next_one() -> None:
    tallies = Tallies()
    left = tallies.open(described(DOMAIN, BLOCKS), 1, 1)
    elsewhere = tallies.open(described(DOMAIN, BLOCKS), 2, 2)
    beside = tallies.open(described(DOMAIN, BLOCKS), 1, 3)
    again = tallies.open(described(DOMAIN, BLOCKS), 1, 3)
    for number in (elsewhere, beside, again):
        tallies.taken(number, 0)
    tallies.add(left, lambda: rows(5).reshape(-1))
    with pytest.raises(RuntimeError):
        tallies.taken(left, 0)


def test_which_blocks_are_tallied() -> None:
    small = Domain({f"c{i}": 20 for i in range(FEW_BLOCKS + 1)})
    alone = [(name,) for name in small.attributes]
    assert tallied(small, alone)
    assert not tallied(small, alone[:-1])
    assert not tallied(small, [*alone, small.attributes])  # 20^9 cells
    long = Domain({**small.sizes, "long": 70_000})
    assert not tallied(long, alone)
