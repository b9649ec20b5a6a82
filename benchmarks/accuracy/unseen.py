"""Tables that nothing was chosen on: other tables, columns and joins of the data for tests, and generated ones of other kinds.

``promise.py --unseen`` measures them.
"""

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from aim_grem import SHARED, Table, columns_of, table_of
from neyman import records

from duckdb_dp.linop import Array

DATA = SHARED / "data"

Columns = dict[str, list[str]]


def joined(left: Columns, right: Columns, key: str, names: Iterable[str]) -> Columns:
    """The left rows with some columns of the first right row of their key; empty where there is none."""
    row = {value: i for i, value in reversed(list(enumerate(right[key])))}
    places = [row.get(value) for value in left[key]]
    return left | {name: ["" if i is None else right[name][i] for i in places] for name in names}


def logs(values: Sequence[str], base: float) -> list[str]:
    """Positive numbers in bins of equal ratios."""
    return [f"{math.floor(math.log(max(float(value or 0), 1.0), base)):03}" for value in values]


def divided(values: Sequence[str], width: float) -> list[str]:
    """Numbers in bins of equal width; empty ones stay so."""
    return [f"{math.floor(float(value) / width):04}" if value else "" for value in values]


def part(columns: Columns, count: int, seed: int) -> Columns:
    """Some of the rows."""
    kept = np.random.default_rng(seed).permutation(len(next(iter(columns.values()))))[:count]
    return {name: [values[i] for i in kept] for name, values in columns.items()}


def cups() -> list[Table]:
    matches = columns_of(DATA / "worldcup/matches.csv")
    goals = columns_of(DATA / "worldcup/goals.csv")
    teams = columns_of(DATA / "worldcup/teams.csv")
    played = joined(columns_of(DATA / "worldcup/team_appearances.csv"), teams, "team_id", ["confederation_code"])
    goals["minute"] = divided(goals["minute_regulation"], 5)
    goals["year"] = [one[3:7] for one in goals["tournament_id"]]
    match = "stage_name group_stage extra_time penalty_shootout home_team_score away_team_score home_team_score_margin result"
    goal = "year stage_name shirt_number minute match_period own_goal penalty"
    side = "tournament_id stage_name group_name confederation_code home_team goals_for goals_against result"
    return [
        table_of("worldcup matches", matches, match.split()),
        table_of("worldcup goals", goals, goal.split()),
        table_of("worldcup sides", played, side.split()),
    ]


def games() -> list[Table]:
    people, schools = columns_of(DATA / "baseball/People.csv"), columns_of(DATA / "baseball/Schools.csv")
    paid = joined(
        columns_of(DATA / "baseball/Salaries.csv"), people, "playerID", ["birthYear", "birthCountry", "bats", "throws"]
    )
    paid["pay"], paid["age"] = (
        logs(paid["salary"], 1.5),
        [str(int(y) - int(b)) if b else "" for y, b in zip(paid["yearID"], paid["birthYear"], strict=True)],
    )
    college = joined(columns_of(DATA / "baseball/CollegePlaying.csv"), schools, "schoolID", ["state"])
    college = joined(college, people, "playerID", ["birthState", "bats", "throws", "height"])
    college["decade"] = divided(college["yearID"], 10)
    fame = columns_of(DATA / "baseball/HallOfFame.csv")
    fame["decade"] = divided(fame["yearID"], 10)
    fame["share"] = [
        f"{math.floor(20 * float(votes) / float(ballots)):02}" if votes and ballots and float(ballots) else ""
        for votes, ballots in zip(fame["votes"], fame["ballots"], strict=True)
    ]
    pay, studied = "yearID teamID lgID pay age bats throws birthCountry", "decade state birthState bats throws height"
    return [
        table_of("salaries", paid, pay.split()),
        table_of("colleges", college, studied.split()),
        table_of("hall of fame", fame, ["decade", "votedBy", "share", "inducted", "category"]),
    ]


def ratings() -> Table:
    """Users beside films, and what they gave."""
    rows = columns_of(DATA / "movielens-100k/u.data", ("user", "film", "rating", "time"), "\t")
    users = columns_of(DATA / "movielens-100k/u.user", ("user", "age", "gender", "occupation", "zip"), "|")
    head = ["film", "title", "date", "video", "url", *(f"genre{i}" for i in range(19))]
    films = columns_of(DATA / "movielens-100k/u.item", head, "|")
    films["year"], users["decade"] = [one[-4:-1] for one in films["date"]], divided(users["age"], 10)
    found = joined(
        joined(rows, users, "user", ["decade", "gender", "occupation"]),
        films,
        "film",
        ["year", "genre1", "genre5", "genre8"],
    )
    found["hour"] = [str(int(time) // 3600 % 24) for time in found["time"]]
    names = "rating decade gender occupation year genre1 genre5 genre8 hour"
    return table_of("ratings", found, names.split())


def adults() -> Table:
    """3,000 of Adult's rows with readable labels, all countries and years of age."""
    columns = part(columns_of(DATA / "adult/adult_labelled.csv"), 3_000, 5)
    columns["hours"] = divided(columns["hours_per_week"], 5)
    names = "age workclass education marital_status occupation sex native_country hours income"
    return table_of("3,000 adults", columns, names.split())


@functools.cache
def classes(rows: int = 4_000, attributes: int = 9, count: int = 4, seed: int = 21) -> Table:
    """Generated: a few hidden classes with sharp answers."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 9, attributes)
    known = rng.choice(count, rows, p=rng.dirichlet(np.full(count, 3.0)))
    columns = []
    for size in sizes:
        shares = rng.dirichlet(np.full(size, 0.4), count)
        drawn = (rng.random(rows)[:, None] > np.cumsum(shares, axis=1)[known]).sum(axis=1)
        columns.append(np.minimum(drawn, size - 1))
    return records("4 classes", sizes, columns)


@functools.cache
def steps(rows: int = 10_000, attributes: int = 15, size: int = 6, seed: int = 22) -> Table:
    """Generated: a long chain, each value that of the attribute before or a neighbour of it."""
    rng = np.random.default_rng(seed)
    columns: list[Array] = [rng.integers(size, size=rows)]
    for _ in range(attributes - 1):
        columns.append(np.clip(columns[-1] + rng.choice([-1, 0, 1], rows, p=[0.15, 0.75, 0.1]), 0, size - 1))
    return records("long chain", [size] * attributes, columns)


@functools.cache
def thirds(rows: int = 15_000, groups: int = 3, seed: int = 23) -> Table:
    """Generated: groups of three, in each the third drawn by what the two others are, who lean on one another a little."""
    rng = np.random.default_rng(seed)
    sizes: list[int] = []
    columns: list[Array] = []
    for _ in range(groups):
        a, b, c = rng.integers(3, 8, 3)
        one = rng.choice(a, rows, p=rng.dirichlet(np.full(a, 2.0)))
        other = np.where(rng.random(rows) < 0.2, one % b, rng.choice(b, rows, p=rng.dirichlet(np.full(b, 2.0))))
        cases = rng.dirichlet(np.full(c, 0.2), a * b)
        drawn = (rng.random(rows)[:, None] > np.cumsum(cases, axis=1)[one * b + other]).sum(axis=1)
        sizes, columns = [*sizes, a, b, c], [*columns, one, other, np.minimum(drawn, c - 1)]
    return records("strong triples", sizes, columns)


@functools.cache
def rare(rows: int = 30_000, attributes: int = 9, seed: int = 24) -> Table:
    """Generated: one value has 90 to 99 % of each attribute, and the rare ones come together."""
    rng = np.random.default_rng(seed)
    sizes, odd = rng.integers(2, 31, attributes), rng.random(rows) < 0.04
    columns = []
    for size in sizes:
        chance = np.where(odd, 0.6, rng.uniform(0.005, 0.05))
        columns.append(np.where(rng.random(rows) < chance, 1 + np.minimum(rng.geometric(0.2, rows) - 1, size - 2), 0))
    return records("rare values", sizes, columns)


@functools.cache
def places(rows: int = 8_000, seed: int = 25) -> Table:
    """Generated: towns, which say the region, the land and the code, and people in them, of whom age says the group."""
    rng = np.random.default_rng(seed)
    town = rng.choice(150, rows, p=rng.dirichlet(np.full(150, 0.7)))
    region, code = rng.integers(24, size=150), rng.integers(10, size=150)
    land, age = rng.integers(5, size=24), np.clip(rng.normal(40, 18, rows), 0, 79).astype(int)
    rent = np.clip(rng.integers(12, size=150)[town] + rng.integers(-1, 2, rows), 0, 11)
    sex = rng.integers(2, size=rows)
    work = np.where(age < 18, 0, np.where(age > 65, 1, 2 + rng.choice(7, rows, p=rng.dirichlet(np.ones(7)))))
    columns = [town, region[town], land[region[town]], code[town], age // 2, age // 16, sex, work, rent]
    return records("towns", [150, 24, 5, 10, 40, 5, 2, 9, 12], columns)


def tables() -> list[Table]:
    return [*cups(), *games(), ratings(), adults(), classes(), steps(), thirds(), rare(), places()]
