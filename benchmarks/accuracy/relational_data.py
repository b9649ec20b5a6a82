"""Databases with links, for benchmarks/accuracy/relational.py: codes of both tables, links, and a bound for links."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Integers
from duckdb_dp.synthesis.links.matches import Match
from duckdb_dp.synthesis.links.sides import Side, side_of

DATA = Path(__file__).parents[3] / "shared" / "data"


@dataclass(frozen=True, kw_only=True)
class Linked:
    """Two tables and links between them.

    Attributes:
        name: shown.
        left, right: codes of each attribute by its name, shape (rows,).
        links: row numbers on the left and on the right, shape (links, 2), each pair once.
        degree: links of one protected row, at most.
        protected: 'left', 'right', 'both', or 'none' where the bound is not one on what is made.
        own: codes of each attribute of the links themselves, shape (links,).
        child: whether the left table is one whose rows have one parent each.
        matches: a left and a right attribute whose codes stand for the same values.
    """

    name: str
    left: dict[str, Integers]
    right: dict[str, Integers]
    links: Integers
    degree: int
    protected: str
    own: dict[str, Integers] = field(default_factory=dict)
    child: bool = False
    matches: tuple[tuple[str, str], ...] = ()

    @property
    def domain(self) -> Domain:
        """Attributes of both sides, '<side>.<name>', and of the links, of observed sizes."""
        sides = {"left.": self.left, "right.": self.right, "": self.own}
        return Domain({f"{s}{a}": int(codes.max()) + 1 for s, table in sides.items() for a, codes in table.items()})

    @property
    def unit(self) -> int | None:
        """The side whose rows are the units, where one is."""
        return {"left": 0, "right": 1}.get(self.protected)

    def options(self) -> dict[str, Any]:
        """What ``links`` is told besides."""
        return {"unit": self.unit, "matches": self.matched()}

    def matched(self) -> list[Match]:
        """The matches, whose values have equal codes."""
        pairs = [(f"left.{a}", f"right.{b}") for a, b in self.matches]
        sizes = self.domain.sizes
        return [Match(left=a, right=b, same=np.eye(sizes[a], sizes[b], dtype=np.int64)) for a, b in pairs]

    def sides(self) -> tuple[Side, Side]:
        """The tables themselves as synthetic ones: what is measured here is the links."""
        found = []
        for name, table in (("left", self.left), ("right", self.right)):
            codes = np.stack(list(table.values()), 1)
            bound = self.degree if self.protected in (name, "both") else None
            tag = None if self.child and name == "left" else f"{name}.linked"
            found.append(side_of(tuple(f"{name}.{a}" for a in table), codes, max_degree=bound, linked=tag))
        return found[0], found[1]


def bounded(links: Integers, degree: int, protected: str, seed: int = 0) -> Integers:
    """Links in random order, without those that would break the bound: public preparation of the example."""
    kept, used = [], [np.zeros(n + 1, dtype=np.int64) for n in links.max(0)]
    watched = {"left": (0,), "right": (1,), "both": (0, 1)}[protected]
    for pair in np.random.default_rng(seed).permutation(np.unique(links, axis=0)):
        if all(used[i][pair[i]] < degree for i in watched):
            kept.append(pair)
            for i in watched:
                used[i][pair[i]] += 1
    return np.array(kept)


def movielens(degree: int = 10) -> Linked:
    """Users by gender, age band and occupation; movies by 18 genres; the bound holds for both."""
    con, folder = duckdb.connect(), DATA / "movielens-100k"
    options = "header := false, quote := '', encoding := 'latin-1'"
    users = con.sql(f"FROM read_csv('{folder}/u.user', delim := '|', {options}) ORDER BY column0").fetchnumpy()
    items = con.sql(f"FROM read_csv('{folder}/u.item', delim := '|', {options}) ORDER BY column00").fetchnumpy()
    pairs = con.sql(
        f"SELECT column0 - 1 AS u, column1 - 1 AS m FROM read_csv('{folder}/u.data', delim := '\t', {options})"
    )
    return Linked(
        name="movielens",
        left={
            "gender": codes(users["column2"]),
            "age": np.digitize(users["column1"], [18, 25, 35, 45, 50, 56]),
            "occupation": codes(users["column3"]),
        },
        right={f"genre{i}": np.asarray(items[f"column{i + 5:02}"], dtype=np.int64) for i in range(1, 19)},
        links=bounded(np.stack(list(pairs.fetchnumpy().values()), 1), degree, "both"),
        degree=degree,
        protected="both",
    )


def codes(values: Any, most: int = 1 << 30) -> Integers:
    """0 for the most common value and so on; values beyond ``most - 1``, and missing ones, share the last code."""
    text = np.asarray(np.ma.filled(np.ma.asarray(values).astype(object), "missing")).astype(str)
    names, back, counts = np.unique(text, return_inverse=True, return_counts=True)
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(names))
    return np.minimum(rank, most - 1)[back]


def bands(values: Any, edges: list[float]) -> Integers:
    """Which band a number is in; missing ones have a band of their own, the last."""
    numbers = np.ma.asarray(values).astype(float)
    return np.where(np.ma.getmaskarray(numbers), len(edges) + 1, np.digitize(np.ma.filled(numbers, 0.0), edges))


def query(text: str) -> dict[str, Any]:
    """Columns of a query, in which {data} is the folder of the data."""
    return dict(duckdb.connect().sql(text.replace("{data}", str(DATA))).fetchnumpy())


def worldcup(file: str, columns: str = "*", order: str = "ALL") -> dict[str, Any]:
    """Columns of one of the World Cup's files, all text."""
    path = "{data}/worldcup/" + file
    return query(f"SELECT {columns} FROM read_csv('{path}.csv', all_varchar := true) ORDER BY {order}")


def positions(keys: Any, table: Any) -> Integers:
    """The row of ``table`` with each key; -1 where there is none."""
    order = np.argsort(table)
    found = np.minimum(np.searchsorted(table[order], keys), len(table) - 1)
    return np.where(table[order][found] == keys, order[found], -1)


def _joined(pairs: dict[str, Any], left: Any, right: Any) -> Integers:
    ends = [positions(keys, table) for keys, table in zip(pairs.values(), (left, right), strict=True)]
    both = np.stack(ends, 1)
    return both[(both >= 0).all(1)]


def baseball() -> Linked:
    """People and the schools for which they played; the people are protected."""
    people = query("FROM read_csv('{data}/baseball/People.csv', nullstr := '') ORDER BY playerID")
    schools = query("FROM read_csv('{data}/baseball/Schools.csv') ORDER BY schoolID")
    pairs = query("SELECT DISTINCT playerID, schoolID FROM read_csv('{data}/baseball/CollegePlaying.csv')")
    return Linked(
        name="baseball",
        left={
            "born": bands(people["birthYear"], list(range(1870, 2000, 20))),
            "state": codes(people["birthState"], 20),
            "height": bands(people["height"], [69, 71, 73, 75]),
            "weight": bands(people["weight"], [165, 180, 195, 210]),
            "bats": codes(people["bats"]),
            "throws": codes(people["throws"]),
        },
        right={"state": codes(schools["state"], 25), "country": codes(schools["country"])},
        links=bounded(_joined(pairs, people["playerID"], schools["schoolID"]), 4, "left"),
        degree=4,
        protected="left",
    )


def _nations(teams: dict[str, Any]) -> dict[str, Integers]:
    names = {
        "region": "region_name",
        "confederation": "confederation_code",
        "womens": "womens_team",
        "mens": "mens_team",
    }
    return {name: codes(teams[column]) for name, column in names.items()}


def squads() -> Linked:
    """Players and the teams for which they were at a World Cup; the players are protected."""
    players = worldcup("players", order="player_id")
    teams = worldcup("teams", order="team_id")
    pairs = worldcup("squads", "DISTINCT player_id, team_id")
    born = np.array([int(text[:4]) if text[:4].isdigit() else 0 for text in map(str, players["birth_date"])])
    return Linked(
        name="squads",
        left={
            "born": np.digitize(born, list(range(1910, 2000, 10))),
            **{name: codes(players[name]) for name in ("female", "goal_keeper", "defender", "midfielder", "forward")},
            "tournaments": codes(players["count_tournaments"], 4),
        },
        right=_nations(teams),
        links=bounded(_joined(pairs, players["player_id"], teams["team_id"]), 2, "left"),
        degree=2,
        protected="left",
    )


def matches() -> Linked:
    """Matches and the two teams of each; the matches are protected."""
    played = worldcup("matches", order="match_id")
    teams = worldcup("teams", order="team_id")
    pairs = worldcup("team_appearances", "DISTINCT match_id, team_id")
    years = np.array([int(str(key)[3:7]) for key in played["tournament_id"]])
    return Linked(
        name="matches",
        left={
            "decade": np.digitize(years, list(range(1940, 2030, 10))),
            "stage": codes(played["stage_name"], 6),
            "women": codes(["Women" in str(name) for name in played["tournament_name"]]),
            "extra": codes(played["extra_time"]),
            "result": codes(played["result"]),
        },
        right=_nations(teams),
        links=bounded(_joined(pairs, played["match_id"], teams["team_id"]), 2, "left"),
        degree=2,
        protected="left",
    )


def unlinked() -> Linked:
    """MovieLens's tables with as many uniform random links: what fitting noise would cost."""
    found, rng = movielens(), np.random.default_rng(7)
    users, movies = (len(next(iter(table.values()))) for table in (found.left, found.right))
    pairs = rng.choice(users * movies, len(found.links), replace=False)
    return replace(found, name="no structure", links=np.stack(np.divmod(pairs, movies), 1), protected="none")


def raters() -> Linked:
    """MovieLens with the users alone protected."""
    found = movielens()
    user, movie, _ = _stars()
    links = bounded(np.stack([user, movie], 1), found.degree, "left")
    return replace(found, name="raters", links=links, protected="left")


def ratings() -> Linked:
    """The same with the stars of the ratings."""
    found = raters()
    user, movie, stars = _stars()
    keys, wide = user * 10_000 + movie, found.links @ [10_000, 1]
    order = np.argsort(keys)
    given = stars[order[np.searchsorted(keys[order], wide)]] - 1
    return replace(found, name="ratings", own={"stars": given})


def _stars() -> tuple[Integers, Integers, Integers]:
    folder = DATA / "movielens-100k"
    columns = "column0 - 1 AS user, column1 - 1 AS movie, column2 AS stars"
    found = query(f"SELECT {columns} FROM read_csv('{folder}/u.data', delim := '\t', header := false)")
    return found["user"], found["movie"], found["stars"]


ALL = {
    "movielens": movielens,
    "raters": raters,
    "ratings": ratings,
    "baseball": baseball,
    "squads": squads,
    "matches": matches,
    "no structure": unlinked,
}
