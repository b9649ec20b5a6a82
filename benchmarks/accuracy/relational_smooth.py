"""Generated databases with attributes of many values whose links depend on them smoothly, for benchmarks/accuracy/links.py.

They are public, and always the same for a seed.
"""

import numpy as np
from relational_data import Linked, bounded
from relational_generated import _degrees, _near, _pairs

from duckdb_dp.linop import Array, Integers


def cut(values: Array, bins: int) -> Integers:
    """Bins of equal width from -3.5 to 3.5."""
    return np.clip((values + 3.5) / 7 * bins, 0, bins - 1).astype(np.int64)


def grades(seed: int = 31) -> Linked:
    """Students take courses, and their grades follow their GPA, of 20 values; students are protected."""
    rng = np.random.default_rng(seed)
    n, m, degree = 2000, 150, 8
    good, age, income = rng.normal(size=n), rng.gamma(2.0, 3.0, n), rng.lognormal(0, 0.7, n)
    major, year = rng.integers(0, 10, n), rng.integers(0, 4, n)
    dept, level = rng.integers(0, 10, m), rng.integers(0, 4, m)
    popular = rng.gamma(1.5, 1.0, m) + 0.1
    weights = np.array([popular * np.where(dept == g, 4.0, 1.0) for g in range(10)])
    links = bounded(_pairs(rng, _degrees(rng, np.full(n, 5.0), 3.0, 30), weights, major), degree, "left")
    student, course = links.T
    grade = 0.75 * good[student] - 0.25 * (level[course] - 1.5) + 0.8 * rng.normal(size=len(links))
    hours = 0.3 * level[course] - 0.4 + rng.normal(size=len(links))
    return Linked(
        name="grades",
        left={
            "gpa": cut(good, 20),
            "age": np.minimum(age, 29).astype(np.int64),
            "income": np.minimum(income * 5, 24).astype(np.int64),
            "major": major,
            "year": year,
            "region": rng.integers(0, 12, n),
        },
        right={"dept": dept, "level": level, "seats": rng.integers(0, 20, m)},
        links=links,
        own={"grade": cut(grade, 16), "hours": cut(hours, 20), "term": rng.integers(0, 6, len(links))},
        degree=degree,
        protected="left",
    )


def bookings(seed: int = 32) -> Linked:
    """Guests book rooms, for which young ones pay more, and dearer ones in dearer hotels; guests are protected."""
    rng = np.random.default_rng(seed)
    n, m, degree = 12_000, 300, 10
    age, tier = np.clip(rng.normal(40, 17, n), 0, 80).astype(np.int64), _near(rng, np.full(n, 1.0), 4, 0.9)
    stars, price = _near(rng, np.full(m, 2.0), 5, 1.2), rng.normal(size=m)
    popular = rng.gamma(1.5, 1.0, m) + 0.1
    weights = np.array([popular * np.exp(-0.3 * abs(stars - 1 - g)) for g in range(4)])
    links = bounded(_pairs(rng, _degrees(rng, np.full(n, 4.0), 1.5, 40), weights, tier), degree, "left")
    guest, hotel = links.T
    cost = 0.5 * price[hotel] + 0.35 * np.tanh((40 - age[guest]) / 8) + 0.8 * rng.normal(size=len(links))
    nights = np.minimum(rng.geometric(0.3, len(links)) - 1, 13)
    return Linked(
        name="bookings",
        left={"age": age, "tier": tier, "country": rng.choice(20, n, p=np.arange(20, 0, -1) / 210)},
        right={"price": cut(price, 20), "stars": stars, "city": rng.integers(0, 25, m)},
        links=links,
        own={"cost": cut(cost, 40), "nights": nights, "channel": rng.integers(0, 5, len(links))},
        degree=degree,
        protected="left",
    )


SMOOTH = {"grades": grades, "bookings": bookings}
"""All of them by name."""
