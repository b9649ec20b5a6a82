"""Numbers of distinct values beside tables with more rows: one unit changes them by as many as keys say that it has, and no more."""

import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.grouped_sums import GroupedSums, Source, Sum
from duckdb_dp.plan.sensitivity import squared
from tests.conftest import Loaded
from tests.privacy.test_sums_neighbours import sums
from tests.sql.earlier_forms import check_found_again

ROWS = {"people": 1, "parcels": 2, "events": 3}
BOUNDS = "max_rows := {'parcels': 2, 'events': 3}"
EVENTS = "people p JOIN parcels a USING (id) JOIN events e USING (parcel)"
SELECTS = {
    f"SELECT count(DISTINCT p.id) AS n FROM {EVENTS}": (3, 1),
    f"SELECT count(DISTINCT p.mail) AS n FROM {EVENTS}": (3, 1),
    f"SELECT count(DISTINCT sex) AS n, count(DISTINCT sex || born) AS m FROM {EVENTS}": (3, 1, 1),
    f"SELECT kind, count(DISTINCT p.mail) AS n FROM {EVENTS} GROUP BY kind": (3, 1),
    f"SELECT kind, count(DISTINCT p.mail) AS n, count(DISTINCT a.parcel) AS m, count(DISTINCT e.kind) AS k FROM {EVENTS} GROUP BY kind": (3, 1, 2, 3),
    f"SELECT count(DISTINCT a.weight) AS n, count(DISTINCT a.weight % 2 + born) AS m FROM {EVENTS}": (3, 2, 2),
    f"SELECT count(DISTINCT w.floor) AS n, count(DISTINCT w.floor) FILTER (WHERE weight > 0) AS m FROM {EVENTS} JOIN wards w USING (ward)": (3, 2, 2),
    "SELECT count(DISTINCT born) AS n FROM people LEFT JOIN parcels USING (id) LEFT JOIN events USING (parcel)": (6, 1),
    "SELECT count(DISTINCT mail) AS n FROM events LEFT JOIN parcels USING (parcel) LEFT JOIN people USING (id)": (3, 1),
    "SELECT count(DISTINCT p.born) AS n, count(DISTINCT coalesce(weight, 0)) AS m FROM people p LEFT JOIN parcels a USING (id)": (3, 1, 2),
    "SELECT count(DISTINCT a.weight) AS n, count(DISTINCT coalesce(e.kind, 'none')) AS m FROM parcels a LEFT JOIN events e USING (parcel)": (5, 2, 4),
    "SELECT count(DISTINCT a.weight) AS n, count(DISTINCT a.weight || '/' || b.weight) AS m FROM parcels a JOIN parcels b ON a.id = b.id": (4, 2, 4),
    "SELECT count(DISTINCT born) AS n FROM (SELECT born, weight FROM people JOIN parcels USING (id)) WHERE weight > 0": (2, 1),
    f"SELECT kind, count(DISTINCT s) AS n FROM (SELECT kind, lag(sex) OVER (PARTITION BY p.id ORDER BY event) AS s FROM {EVENTS}) GROUP BY kind": (3, 3),
}  # fmt: skip
"""SELECT -> how many rows one unit may have, and how many of each count of distinct values."""


def opened(folder: Path, *, keys: bool = True) -> Loaded:
    """People, their parcels, and events of these; keys that constraints keep, or that are declared alone."""
    primary, refers = (" PRIMARY KEY", " REFERENCES {}") if keys else ("", "")
    connection = duckdb.connect()
    connection.execute(
        f"""
        CREATE TABLE wards (ward INTEGER PRIMARY KEY, floor INTEGER); INSERT INTO wards SELECT i, i % 2 FROM range(2) t(i);
        CREATE TABLE people (id INTEGER{primary}, sex VARCHAR, born INTEGER, mail VARCHAR{" UNIQUE" if keys else ""});
        CREATE TABLE parcels (parcel INTEGER{primary}, id INTEGER{refers.format("people (id)")}, weight INTEGER);
        CREATE TABLE events (event INTEGER{primary}, parcel INTEGER{refers.format("parcels (parcel)")}, kind VARCHAR,
            ward INTEGER{refers.format("wards (ward)")});
        """
    )
    duckdb_dp.testing.load_exact(connection, folder / "parcels.dp")
    found = Loaded(connection, folder / "parcels.dp")
    found("CALL dp_public('wards')")
    if not keys:
        found("CALL dp_link('parcels', \"references\" := {'id': 'people.id'})")
        found("CALL dp_link('events', \"references\" := {'parcel': 'parcels.parcel', 'ward': 'wards.ward'})")
    found(
        f"CALL dp_protect(['people', 'parcels', 'events'], unit := 'people.id', {BOUNDS}, epsilon := 1e7, delta := 1e-9)"
    )
    found("CALL dp_attribute('events', 'kind', \"values\" := ['a', 'b'])")
    return found


Tables = dict[str, list[tuple[object, ...]]]


def drawn(rng: random.Random, *, often: bool) -> tuple[Tables, dict[int, Tables]]:
    """Rows of all tables, and those of each person.

    Args:
        rng: what they hold.
        often: whether persons may have more rows than was declared, and keys several.
    """
    of: dict[int, Tables] = {}
    parcel = event = 0
    for person in range(5):
        own: Tables = {name: [] for name in ROWS}
        for _ in range(rng.choice([1, 3]) if often else 1):
            values = (
                rng.choice(["f", "m", None]),
                rng.choice([1, 2, 3, None]),
                f"m{rng.randrange(99) if often else person}",
            )
            own["people"].append((person, *values))
        left = 9 if often else ROWS["events"]
        for _ in range(rng.randint(2 * often, 4 if often else ROWS["parcels"])):
            own["parcels"].append((parcel, person, rng.choice([0, 1, 2, 3, None])))
            for _ in range(rng.randint(2 * often, left)):
                left -= 0 if often else 1
                own["events"].append((event, parcel, rng.choice(["a", "b", None]), rng.choice([0, 1, None])))
                event += 1
            parcel += 1
        of[person] = own
    return {name: [row for one in of.values() for row in one[name]] for name in ROWS}, of


def fill(found: Loaded, tables: Tables) -> None:
    for name in reversed(ROWS):
        found(f"DELETE FROM {name}")
    for name in ROWS:
        for row in tables[name]:
            found(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", [*row])


@pytest.fixture(scope="module", params=[True, False], ids=["keys", "declared"])
def parcels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loaded, bool]]:
    found = opened(tmp_path_factory.mktemp("parcels"), keys=request.param)
    yield found, request.param
    found.connection.close()


@pytest.mark.some(4)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("select", SELECTS)
def test_a_unit_changes_numbers_of_distinct_values_by_as_many_as_it_has(
    parcels: tuple[Loaded, bool], select: str, seed: int
) -> None:
    """Whatever the tables hold, where keys are declared alone and some persons have more rows than was said."""
    found, keys = parcels
    rng, (rows, *_) = random.Random(f"{select} {seed}"), SELECTS[select]
    tables, of = drawn(rng, often=not keys)
    fill(found, tables)
    everybody = sums(found.connection, select)
    for own in of.values():
        fill(found, {name: [row for row in tables[name] if row not in own[name]] for name in ROWS})
        for (part, before), (_, after) in zip(everybody, sums(found.connection, select), strict=True):
            for one, a, b in zip(part.sums, before, after, strict=True):
                change = abs(a - b)
                assert change.sum() ** 2 <= squared(part, one, rows, pure=True) * rows**2 + 1e-9
                assert (change**2).sum() <= squared(part, one, rows, pure=False) * rows**2 + 1e-9
                assert change.max() <= (1 if one.distinct else one.each or rows)


@pytest.mark.some(4)
@pytest.mark.parametrize("select", SELECTS)
def test_numbers_of_distinct_values_are_exact_without_noise(parcels: tuple[Loaded, bool], select: str) -> None:
    found, _ = parcels
    for seed in range(3):
        fill(found, drawn(random.Random(seed), often=False)[0])
        names = [name for name, *_ in found.connection.execute(select).description]
        truth = sorted(row for row in found(select) if row[0] is not None or len(names) == 1)
        shown = ", ".join(f'"{name}"' for name in names)
        answers = found(f"SELECT {shown} FROM dp_sql(?, epsilon := {100 + seed})", [select])
        assert sorted(row for row in answers if any(row[1:] if "kind" in names else row) or len(row) == 1) == truth


@pytest.mark.parametrize("select", SELECTS)
def test_the_noise_is_that_of_as_many_values(tmp_path: Path, select: str) -> None:
    """As that of persons, of whom each is one, and times as many values as one has where there is one group."""
    found = opened(tmp_path)
    one = found("SELECT stddev FROM dp_sql('SELECT count(*) AS n FROM people', epsilon := 1)")[0][0]
    shown = found.connection.execute("FROM dp_sql(?, epsilon := 1)", [select])
    names = [name for name, *_ in shown.description]
    row = shown.fetchall()[0]
    noises = [row[i] for i, name in enumerate(names) if name.endswith("stddev")]
    rows, *values = SELECTS[select]
    assert len(noises) == len(values)
    groups = 2 if "GROUP BY kind" in select else 1
    for noise, most in zip(noises, values, strict=True):
        full, left = divmod(min(rows, most * groups), most)
        assert noise == pytest.approx(one * math.sqrt(len(values) * (full * most**2 + left**2)), rel=1e-3)


@pytest.mark.parametrize("pure", [False, True])
def test_no_rows_change_distinct_values_by_more_than_their_sensitivity(pure: bool) -> None:
    """All ways in which k rows may be in groups, none with more than d values of a unit."""
    source = Source(sql="SELECT 1", owner=("o",))
    for rows, most, groups in itertools.product(range(1, 7), range(1, 6), range(1, 5)):
        each = Sum(value="x", kind="values", each=most if most < rows else 0)
        part = GroupedSums(
            number=1,
            columns=(),
            where="",
            clique=(),
            size=groups,
            groups=None,
            labels=(),
            sums=(each,),
            outputs=(),
            source=source,
        )
        changes = [c for c in itertools.product(range(min(most, rows) + 1), repeat=groups) if sum(c) <= rows]
        largest = max(sum(c) ** 2 if pure else sum(x * x for x in c) for c in changes)
        if most < rows:
            assert squared(part, each, rows, pure=pure) * rows**2 == pytest.approx(largest)
        else:
            assert squared(part, each, rows, pure=pure) * rows**2 >= largest - 1e-9


@pytest.mark.some(3)
@pytest.mark.parametrize("select", SELECTS)
def test_what_was_answered_with_the_noise_of_all_rows_is_found_again(tmp_path: Path, select: str) -> None:
    found = opened(tmp_path)
    fill(found, drawn(random.Random(1), often=False)[0])
    check_found_again(found, select, 6)


def test_a_bound_of_a_call_and_one_that_is_chosen_are_as_before(tmp_path: Path) -> None:
    found = opened(tmp_path)
    select = f"SELECT count(DISTINCT mail) AS n FROM {EVENTS}"
    noises = [
        found(f"SELECT stddev FROM dp_sql(?, epsilon := 1, max_rows := {rows})", [select])[0][0] for rows in (1, 2, 6)
    ]
    assert noises == pytest.approx([noises[0] * rows for rows in (1, 2, 6)])
    assert found("FROM dp_sql(?, epsilon := 1, max_rows := 'auto')", [select])
