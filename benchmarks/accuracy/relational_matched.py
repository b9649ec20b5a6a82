"""Generated databases whose links depend on whether their two ends match, for benchmarks/accuracy/links.py.

They are public, and always the same for a seed.
"""

import numpy as np
from relational_data import Linked, bounded
from relational_generated import _degrees, _near, _of_parents, _pairs

from duckdb_dp.linop import Array


def _uneven(values: int) -> Array:
    shares = np.arange(values, 0, -1.0) + 2
    return shares / shares.sum()


def courses(seed: int = 21) -> Linked:
    """Students take courses, mostly of their own department, and have better grades there; students are protected."""
    rng = np.random.default_rng(seed)
    n, m, degree, departments = 4000, 300, 10, 10
    major, year = rng.choice(departments, n, p=_uneven(departments)), rng.integers(0, 4, n)
    dept, level = rng.choice(departments, m, p=_uneven(departments)[::-1]), rng.integers(0, 4, m)
    popular = rng.gamma(1.5, 1.0, m) + 0.1
    weights = np.array(
        [popular * np.where(dept == g // 4, 8.0, 1.0) * np.exp(-0.4 * abs(level - g % 4)) for g in range(40)]
    )
    pairs = _pairs(rng, _degrees(rng, np.full(n, 5.0), 2.0, 40), weights, major * 4 + year)
    links = bounded(pairs, degree, "left")
    own = major[links[:, 0]] == dept[links[:, 1]]
    return Linked(
        name="courses",
        left={"major": major, "year": year},
        right={"dept": dept, "level": level},
        links=links,
        own={"grade": _near(rng, 1.2 + 1.8 * own, 5, 0.9)},
        degree=degree,
        protected="left",
        matches=(("major", "dept"),),
    )


def tastes(seed: int = 22) -> Linked:
    """Users rate films, and higher where the genre is their favourite one; users are protected."""
    rng = np.random.default_rng(seed)
    n, m, degree, genres = 4000, 500, 15, 12
    favourite, age = rng.choice(genres, n, p=_uneven(genres)), _near(rng, np.full(n, 2.0), 6, 1.4)
    genre, decade = rng.choice(genres, m, p=_uneven(genres)), _near(rng, np.full(m, 3.5), 6, 1.3)
    popular = rng.lognormal(0, 1.0, m)
    weights = np.array(
        [popular * np.where(genre == g // 6, 3.0, 1.0) * np.exp(-0.2 * abs(decade - g % 6)) for g in range(72)]
    )
    pairs = _pairs(rng, _degrees(rng, np.full(n, 8.0), 0.9, 100), weights, favourite * 6 + age)
    links = bounded(pairs, degree, "left")
    liked = favourite[links[:, 0]] == genre[links[:, 1]]
    return Linked(
        name="tastes",
        left={"favourite": favourite, "age": age},
        right={"genre": genre, "decade": decade},
        links=links,
        own={"stars": _near(rng, 1.4 + 1.6 * liked, 5, 1.0), "again": rng.integers(0, 2, len(links))},
        degree=degree,
        protected="left",
        matches=(("favourite", "genre"),),
    )


def stays(seed: int = 23) -> Linked:
    """Guests stay in hotels of any city, and pay less in their own; prices follow the hotel's stars too. Guests are protected."""
    rng = np.random.default_rng(seed)
    n, m, degree, cities = 5000, 200, 8, 20
    city, kind = rng.choice(cities, n, p=_uneven(cities)), rng.integers(0, 3, n)
    place, stars = rng.choice(cities, m, p=_uneven(cities)), _near(rng, np.full(m, 2.0), 5, 1.2)
    popular = rng.gamma(1.5, 1.0, m) + 0.1
    weights = np.array([popular * np.exp(-0.3 * abs(stars - 1 - g)) for g in range(3)])
    links = bounded(_pairs(rng, _degrees(rng, np.full(n, 4.0), 1.5, 40), weights, kind), degree, "left")
    near = city[links[:, 0]] == place[links[:, 1]]
    return Linked(
        name="stays",
        left={"city": city, "kind": kind},
        right={"city": place, "stars": stars},
        links=links,
        own={"price": _near(rng, 2.0 + 0.5 * stars[links[:, 1]] - 2.5 * near, 6, 0.8)},
        degree=degree,
        protected="left",
        matches=(("city", "city"),),
    )


def orders(seed: int = 24) -> Linked:
    """Shops and their orders, most of which go to the shop's own city; shops are protected."""
    rng = np.random.default_rng(seed)
    n, degree, cities = 3000, 12, 40
    city, kind = rng.choice(cities, n, p=_uneven(cities)), rng.integers(0, 4, n)
    held = np.repeat(np.arange(n), _degrees(rng, np.array([2.0, 3, 5, 7])[kind], 1.0, degree))
    there = np.where(rng.random(len(held)) < 0.6, city[held], rng.choice(cities, len(held), p=_uneven(cities)))
    found = _of_parents(
        "orders",
        {"city": city, "kind": kind},
        {"city": there, "amount": _near(rng, 1.0 + 0.5 * kind[held], 5)},
        held.tolist(),
        degree,
    )
    return Linked(
        **{**{name: getattr(found, name) for name in found.__dataclass_fields__}, "matches": (("city", "city"),)}
    )


def both(seed: int = 25) -> Linked:
    """Courses as above, but with students and courses protected."""
    found = courses(seed)
    kept = bounded(np.column_stack([found.links]), 20, "both")
    rows = {tuple(pair): i for i, pair in enumerate(found.links.tolist())}
    order = [rows[tuple(pair)] for pair in kept.tolist()]
    fields = {name: getattr(found, name) for name in found.__dataclass_fields__}
    fields |= {
        "name": "both",
        "links": kept,
        "own": {"grade": found.own["grade"][order]},
        "degree": 20,
        "protected": "both",
    }
    return Linked(**fields)


MATCHED = {"courses": courses, "tastes": tastes, "stays": stays, "orders": orders, "both": both}
