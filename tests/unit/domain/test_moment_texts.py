"""Moments as texts at once, against Python's own and against one text at a time."""

import random
from datetime import datetime

import numpy as np
import pytest

from duckdb_dp.domain.types import moment_texts
from duckdb_dp.domain.types.moments import Moment, _pattern

TYPES = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
WRITTEN = {
    "DATE": lambda moment: moment.date(),
    "TIME": lambda moment: moment.time(),
    "TIMESTAMP": lambda moment: moment,
}


def some(rng: random.Random, places: tuple[int, ...]) -> datetime:
    day = rng.randrange(1, 10_000), rng.randrange(1, 13), rng.randrange(1, 29)
    return datetime(*day, rng.randrange(24), rng.randrange(60), rng.randrange(60), rng.choice(places))


@pytest.mark.parametrize("type_", WRITTEN)
@pytest.mark.parametrize("places", [(0,), (0, 100_000), (7, 123_456, 0)])
def test_texts_are_pythons_own(type_: str, places: tuple[int, ...]) -> None:
    rng = random.Random(1)
    said = {"dates": type_ != "TIME", "times": type_ != "DATE"}
    for count in (1, 2, 50):
        moments = [some(rng, places) for _ in range(count)]
        texts = moment_texts.write(np.array(moments, dtype="datetime64[us]"), **said)
        assert texts == [str(WRITTEN[type_](moment)) for moment in moments]
        read = moment_texts.read(texts, 6, **said)
        assert read is not None
        assert moment_texts.write(read, **said) == texts


def test_nothing_is_read_at_once_that_is_no_moment_alone() -> None:
    rng = random.Random(2)
    good = [
        "2020-01-01", "12:30:59", "12:30", "12:30:59.25", "2020-01-01 12:30:59", "2020-01-01T12:30:59.123456",
        "2020-02-30", "23:59:60", "24:00:00", "0000-01-01", "2020-01-01 12:30:59.", "2020-01-01T", "2020-01-01 12:30",
    ]  # fmt: skip
    read = 0
    for _ in range(600):
        text = list(rng.choice(good))
        if rng.random() < 0.5:
            text[rng.randrange(len(text))] = rng.choice("0123456789-: T.\0é٣")
        texts = ["".join(text) + rng.choice(["", "", "", "0", "\0"]), *rng.choices(good, k=rng.randrange(2))]
        for name in TYPES:
            dtype = Moment(name)
            found = dtype._read_at_once(texts)
            if found is not None:
                read += 1
                assert all(_pattern(name).fullmatch(text) and text[-1] != "." for text in texts)
                assert list(found) == list(dtype._moments(texts))
    assert read > 150
