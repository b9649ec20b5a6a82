"""Generated databases with links, for benchmarks/accuracy/links.py: degrees, attributes of links, and siblings have structure.

They are public and always the same: a seed makes them.
"""

from collections.abc import Sequence

import numpy as np
from relational_data import Linked, bounded

from duckdb_dp.linop import Array, Integers


def _drawn(rng: np.random.Generator, shares: Array) -> Integers:
    """One value for each row of shares."""
    ends = np.cumsum(shares, 1)
    return np.minimum((rng.random(len(shares))[:, None] * ends[:, -1:] > ends).sum(1), shares.shape[1] - 1)


def _near(rng: np.random.Generator, centre: Array, sizes: int, spread: float = 1.0) -> Integers:
    return np.clip(np.rint(rng.normal(centre, spread)), 0, sizes - 1).astype(np.int64)


def _degrees(rng: np.random.Generator, means: Array, spread: float, most: int) -> Integers:
    """Overdispersed numbers of links: Poisson with gamma means."""
    return np.minimum(rng.poisson(means * rng.gamma(spread, 1 / spread, len(means))), most)


def _pairs(rng: np.random.Generator, degrees: Integers, weights: Array, groups: Integers) -> Integers:
    """Links of each left row to right rows by the weights of its group, shape (links, 2), each pair once."""
    found = []
    for group in np.unique(groups):
        rows = np.repeat(np.flatnonzero(groups == group), degrees[groups == group])
        rights = rng.choice(weights.shape[1], len(rows), p=weights[group] / weights[group].sum())
        found.append(np.stack([rows, rights], 1))
    return np.unique(np.concatenate(found), axis=0)


def hospital() -> Linked:
    """Patients and the clinics that they visit, with a reason and the urgency of the visit; patients are protected."""
    rng = np.random.default_rng(1)
    n, m, degree = 6000, 60, 8
    age, region = _near(rng, np.full(n, 3.0), 7, 1.8), rng.choice(5, n, p=[0.35, 0.25, 0.2, 0.12, 0.08])
    insured = _drawn(rng, np.stack([0.3 + 0.08 * age, 0.7 - 0.08 * age], 1))
    place, kind = rng.integers(0, 5, m), rng.choice(4, m, p=[0.4, 0.3, 0.2, 0.1])
    size = rng.gamma(1.0, 1.0, m) + 0.1
    groups = age * 5 + region
    weights = np.array(
        [size * np.where(place == g % 5, 8.0, 1.0) * np.exp(-0.5 * abs(kind - (g // 5) / 2)) for g in range(35)]
    )
    links = bounded(_pairs(rng, _degrees(rng, 0.6 + 0.5 * age, 1.2, 40), weights, groups), degree, "left")
    reason = _near(rng, kind[links[:, 1]] * 1.2 + 0.3 * age[links[:, 0]], 6)
    urgent = _drawn(
        rng, np.stack([0.75 - 0.1 * insured[links[:, 0]], 0.15 + 0 * reason, 0.1 + 0.05 * reason], 1).astype(float)
    )
    return Linked(
        name="hospital",
        left={"age": age, "region": region, "insured": insured},
        right={"place": place, "kind": kind},
        links=links,
        own={"reason": reason, "urgent": urgent},
        degree=degree,
        protected="left",
    )


def shop() -> Linked:
    """Customers and the products that they buy, with how many and how they paid; customers are protected."""
    rng = np.random.default_rng(2)
    n, m, degree = 4000, 800, 12
    segment, country = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1]), rng.choice(10, n, p=np.arange(10, 0, -1) / 55)
    age = _near(rng, 2 + 0.7 * segment, 6, 1.2)
    kind, price = rng.choice(8, m, p=np.arange(8, 0, -1) / 36), _near(rng, np.full(m, 2.0), 5)
    popular = rng.pareto(1.3, m) + 0.2
    groups = segment * 6 + age
    weights = np.array(
        [popular * np.exp(-0.6 * abs(price - g // 6 - 0.5) - 0.25 * abs(kind - g % 6)) for g in range(24)]
    )
    links = bounded(
        _pairs(rng, _degrees(rng, np.array([2.0, 4, 6, 9])[segment], 0.8, 60), weights, groups), degree, "left"
    )
    amount = _near(rng, 3 - 0.8 * price[links[:, 1]] + 0.4 * segment[links[:, 0]], 5)
    paid = _drawn(rng, np.array([[0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.1, 0.4, 0.5]])[country[links[:, 0]] % 3])
    return Linked(
        name="shop",
        left={"segment": segment, "country": country, "age": age},
        right={"kind": kind, "price": price},
        links=links,
        own={"amount": amount, "paid": paid},
        degree=degree,
        protected="left",
    )


def films() -> Linked:
    """Users and the films that they rate, with stars; users are protected."""
    rng = np.random.default_rng(3)
    n, m, degree = 3000, 600, 20
    sex, age, job = rng.choice(2, n, p=[0.6, 0.4]), _near(rng, np.full(n, 2.0), 6, 1.4), rng.integers(0, 8, n)
    genre, decade = rng.choice(7, m, p=np.arange(7, 0, -1) / 28), _near(rng, np.full(m, 3.5), 6, 1.3)
    good, popular = _near(rng, np.full(m, 1.5), 4), rng.lognormal(0, 1.2, m)
    groups = sex * 6 + age
    taste = rng.normal(0, 0.6, (12, 7))
    weights = np.array([popular * np.exp(taste[g][genre] - 0.2 * abs(decade - (5 - g % 6))) for g in range(12)])
    links = bounded(_pairs(rng, _degrees(rng, 14.0 - age, 0.7, 200), weights, groups), degree, "left")
    liked = taste[groups[links[:, 0]], genre[links[:, 1]]]
    stars = _near(rng, 1.3 + 0.6 * good[links[:, 1]] + 0.5 * liked + 0.12 * age[links[:, 0]], 5, 0.95)
    return Linked(
        name="films",
        left={"sex": sex, "age": age, "job": job},
        right={"genre": genre, "decade": decade, "good": good},
        links=links,
        own={"stars": stars},
        degree=degree,
        protected="left",
    )


def friends() -> Linked:
    """People and the people whom they follow; the followers are protected."""
    rng = np.random.default_rng(4)
    n, degree = 2500, 10
    town, age, sport = (
        rng.choice(8, n, p=np.arange(8, 0, -1) / 36),
        _near(rng, np.full(n, 2.5), 6, 1.3),
        rng.integers(0, 3, n),
    )
    groups = (town * 6 + age) * 3 + sport
    known = rng.gamma(0.8, 1.0, n) + 0.05
    weights = np.array(
        [
            known
            * np.where(town == g // 18, 6.0, 1.0)
            * np.exp(-0.6 * abs(age - g // 3 % 6))
            * np.where(sport == g % 3, 2.0, 1.0)
            for g in range(144)
        ]
    )
    pairs = _pairs(rng, _degrees(rng, np.full(n, 5.0), 1.0, 60), weights, groups)
    people = {"town": town, "age": age, "sport": sport}
    return Linked(
        name="friends",
        left=people,
        right=people,
        links=bounded(pairs[pairs[:, 0] != pairs[:, 1]], degree, "left"),
        degree=degree,
        protected="left",
    )


def _of_parents(
    name: str, parents: dict[str, Integers], rows: dict[str, Integers], held: Sequence[int], degree: int
) -> Linked:
    links = np.stack([np.arange(len(held)), np.asarray(held)], 1)
    return Linked(name=name, left=rows, right=parents, links=links, degree=degree, protected="right", child=True)


def sessions() -> Linked:
    """Users and their sessions, which resemble each other; users are protected."""
    rng = np.random.default_rng(5)
    n, degree = 5000, 12
    plan, country = rng.choice(3, n, p=[0.6, 0.3, 0.1]), rng.choice(6, n, p=np.arange(6, 0, -1) / 21)
    device = _drawn(rng, np.array([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2], [0.2, 0.3, 0.5]])[plan])
    degrees = _degrees(rng, np.array([1.5, 3.0, 6.0])[plan], 0.9, degree)
    held = np.repeat(np.arange(n), degrees)
    usual = _drawn(rng, np.array([[5.0, 3, 2, 1, 1], [2, 4, 3, 2, 1], [1, 1, 2, 4, 5]])[device])
    action = np.where(rng.random(len(held)) < 0.6, usual[held], rng.integers(0, 5, len(held)))
    hour = _near(rng, rng.uniform(0, 5, n)[held], 6, 0.8)
    length = _near(rng, 0.8 * action + 0.5 * plan[held], 5)
    return _of_parents(
        "sessions",
        {"plan": plan, "country": country, "device": device},
        {"action": action, "hour": hour, "length": length},
        held,
        degree,
    )


def households(n: int = 10_000) -> Linked:
    """Households and their persons: couples, children and lodgers of like age, origin and schooling; households are protected."""
    rng = np.random.default_rng(6)
    degree = 10
    region = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    urban = (rng.random(n) < np.array([0.9, 0.7, 0.5, 0.3])[region]).astype(np.int64)
    kind = _drawn(rng, np.array([[0.25, 0.3, 0.4, 0.05], [0.35, 0.25, 0.3, 0.1]])[urban])
    income = _near(rng, 1.3 + 0.5 * urban + 0.7 * (kind == 1) + 0.5 * (kind == 2) - 0.3 * region, 5)
    tenure = _near(rng, 1.1 - 0.3 * income + 0.4 * urban, 3, 0.7)
    origin = _drawn(
        rng, np.array([[5, 2, 1.5, 1, 0.5], [7, 1, 1, 0.5, 0.5], [3, 4, 1, 1.5, 0.5], [6, 1, 1, 2, 1]])[region]
    )
    more = np.select(
        [kind == 0, kind == 1, kind == 2], [1, 2, 3 + rng.poisson(0.9 + 0.1 * region)], 2 + rng.poisson(1.2, n)
    )
    held = np.repeat(np.arange(n), np.minimum(more, degree))
    place = np.arange(len(held)) - np.searchsorted(held, held)
    child = (kind[held] == 2) & (place >= 2)
    parents_age, childrens = rng.uniform(2, 8, n), rng.uniform(0, 2, n)
    age = np.where(child, _near(rng, childrens[held], 2, 0.4), _near(rng, parents_age[held], 9, 0.6))
    first = rng.integers(0, 2, n)
    pair = (kind[held] != 3) & (place < 2) & (rng.random(len(held)) < 0.95)
    sex = np.where(pair, (first[held] + place) % 2, rng.integers(0, 2, len(held)))
    usual = _near(rng, 0.8 + 0.5 * income, 4, 0.8)
    school = np.where(rng.random(len(held)) < 0.55, usual[held], _near(rng, 0.8 + 0.5 * income[held], 4, 0.8))
    school = np.where(child, 0, school)
    work = np.where(child, 2, np.where(age >= 7, 1, _near(rng, 0.2 + 0.1 * (school < 1), 3, 0.4)))
    own = np.where(rng.random(len(held)) < 0.9, origin[held], _drawn(rng, np.ones((len(held), 5))))
    return _of_parents(
        "households",
        {"region": region, "urban": urban, "kind": kind, "income": income, "tenure": tenure},
        {"age": age, "sex": sex, "school": school, "work": work, "origin": own},
        held.tolist(),
        degree,
    )


def popular() -> Linked:
    """Users with very different numbers of films, of which one is seen by most of them; users are protected."""
    rng = np.random.default_rng(11)
    n, m, degree = 4000, 200, 100
    held = np.minimum(np.floor(np.exp(rng.normal(0.75, 1.4, n))), degree - 1).astype(np.int64)
    fans = rng.permutation(n) < 3400
    links = [(user, 1 + film) for user in range(n) for film in rng.choice(m - 1, held[user], replace=False).tolist()]
    links += [(user, 0) for user in np.flatnonzero(fans).tolist()]
    return Linked(
        name="popular",
        left={"age": rng.integers(0, 3, n)},
        right={"kind": np.arange(m) % 50},
        links=np.array(sorted(links)),
        degree=degree,
        protected="left",
    )


GENERATED = {
    "hospital": hospital,
    "shop": shop,
    "films": films,
    "friends": friends,
    "sessions": sessions,
    "households": households,
    "popular": popular,
}
