"""Links to rows that anybody may see: as many of each row as there are, and one unit's links weigh 1 together in what is measured."""

from collections import Counter
from math import isqrt
from typing import Any

import numpy as np
import pytest

from duckdb_dp.counting import counts
from duckdb_dp.counting.partners import WHOLE, Partners

TABLES = """
CREATE TABLE patients (patient INTEGER PRIMARY KEY, old BOOLEAN);
CREATE TABLE clinics (country {key}, number INTEGER, big BOOLEAN, PRIMARY KEY (country, number));
CREATE TABLE visits (patient INTEGER, country {key}, number INTEGER, urgent BOOLEAN);
INSERT INTO patients SELECT i, i % 3 = 0 FROM range(300) t(i);
INSERT INTO clinics SELECT {value}, i // 3, i % 2 = 0 FROM range(21) t(i);
INSERT INTO visits SELECT i % 290, country, number, i % 5 = 0
    FROM (SELECT i, ((i * 17 % 100) ** 2 * 21 // 10000)::INTEGER % 20 AS c FROM range(1500) t(i)) r
    JOIN (SELECT row_number() OVER (ORDER BY country, number) - 1 AS place, * FROM clinics) ON place = c;
CALL dp_protect('visits', unit := 'patient', max_rows := 8, rho := 9000); CALL dp_protect('patients', rho := 9000);
CALL dp_attributes('visits'); CALL dp_attributes('patients'); CALL dp_public('clinics');
CALL dp_link('visits', "references" := [{{'columns': ['patient'], 'references': ['patients.patient']}},
    {{'columns': ['country', 'number'], 'references': ['clinics.country', 'clinics.number']}}], "distinct" := {distinct});
CREATE TABLE patients_syn AS FROM patients; CALL dp_public('patients_syn');
"""
KEYS = {"BIGINT": "i % 3 * 10", "VARCHAR": "['a', 'B', 'ä'][1 + i % 3]"}


def made(db: Any, key: str, distinct: bool = True) -> None:
    db(TABLES.format(key=key, value=KEYS[key], distinct=distinct))


def visited(db: Any, table: str) -> Counter[tuple[object, int]]:
    return Counter(db(f"SELECT country, number FROM {table}"))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Partners]:
    """What the statement has counted row by row."""
    found: list[Partners] = []

    class Noted(Partners):
        @classmethod
        def read(cls, keys: Any, numbers: Any) -> Partners:
            found.append(Partners.read(keys, numbers))
            return found[-1]

    monkeypatch.setattr(counts, "Partners", Noted)
    return found


def defined(db: Any, distinct: bool) -> list[int]:
    """The links of each clinic, each unit's with a length of ``WHOLE``, rounded down."""
    ranked = {row: place for place, row in enumerate(sorted(db("SELECT country, number FROM clinics"), key=ordered))}
    table = [0] * len(ranked)
    for (patient,) in db("SELECT patient FROM patients"):
        links = Counter(db(f"SELECT country, number FROM visits WHERE patient = {patient}"))
        links = Counter(dict.fromkeys(links, 1)) if distinct else links
        assert sum(links.values()) <= 8
        square = sum(number**2 for number in links.values())
        for row, number in links.items():
            table[ranked[row]] += number * isqrt(WHOLE**2 // square)
    return table


def ordered(row: tuple[Any, int]) -> tuple[Any, int]:
    return (row[0].encode() if isinstance(row[0], str) else row[0], row[1])


SIDES = "{'patients': 'patients_syn', 'clinics': 'clinics'}"


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("key", KEYS)
def test_rows_that_anybody_may_see_keep_their_numbers_of_links(
    exact: Any, seen: list[Partners], key: str, distinct: bool
) -> None:
    made(exact, key, distinct)
    exact("SET default_order = 'DESC'")
    exact(f"CREATE TABLE r AS FROM dp_links('visits', synthetic := {SIDES}, rho := 5000)")
    (found,) = seen
    assert (found.rows, found.original) == (21, True)
    assert found.table().tolist() == defined(exact, distinct)
    real, ours = visited(exact, "visits"), visited(exact, "r")
    assert sum(ours.values()) == pytest.approx(len(found.places), abs=5)
    places = sorted(exact("SELECT country, number FROM clinics"), key=ordered)
    assert np.corrcoef([real[row] for row in places], [ours[row] for row in places])[0, 1] > 0.97


@pytest.mark.slow
def test_other_rows_with_the_same_keys_are_not_taken_for_them(exact: Any, seen: list[Partners]) -> None:
    made(exact, "BIGINT")
    exact(
        "CREATE TABLE clinics_syn AS SELECT country, number, NOT big AS big FROM clinics; CALL dp_public('clinics_syn')"
    )
    sides = SIDES.replace("'clinics'}", "'clinics_syn'}")
    exact(f"CREATE TABLE r AS FROM dp_links('visits', synthetic := {sides}, rho := 4000)")
    assert [one.original for one in seen] == [False]
    exact("CREATE TABLE copied AS FROM clinics; CALL dp_public('copied')")
    exact(f"FROM dp_links('visits', synthetic := {sides.replace('clinics_syn', 'copied')}, rho := 4000)")
    assert [one.original for one in seen] == [False, True]
    # Those that nobody is like have the distribution all the same.
    real, ours = (sorted(visited(exact, table).values())[::-1] for table in ("visits", "r"))
    width = max(len(real), len(ours))
    gaps = np.abs(np.pad(real, (0, width - len(real))) - np.pad(ours, (0, width - len(ours))))
    assert gaps.sum() < 0.35 * sum(real)


@pytest.mark.slow
def test_children_of_rows_that_anybody_may_see(exact: Any, seen: list[Partners]) -> None:
    exact("CREATE TABLE schools (school INTEGER PRIMARY KEY, big BOOLEAN)")
    exact("CREATE TABLE pupils (pupil INTEGER PRIMARY KEY, school INTEGER REFERENCES schools (school), tall BOOLEAN)")
    exact("INSERT INTO schools SELECT i, i % 2 = 0 FROM range(12) t(i)")
    exact("INSERT INTO pupils SELECT i, (i * 29 % 144) * (i * 29 % 144) // 1728, i % 3 = 0 FROM range(1000) t(i)")
    exact("CALL dp_protect('pupils', rho := 9000); CALL dp_attributes('pupils'); CALL dp_public('schools')")
    exact("CREATE TABLE pupils_syn AS SELECT * EXCLUDE (private) FROM dp_synthesize('pupils', rho := 100)")
    sides = "{'pupils': 'pupils_syn', 'schools': 'schools'}"
    exact(f"CREATE TABLE r AS FROM dp_links('pupils', synthetic := {sides}, rho := 5000)")
    (found,) = seen
    real = [exact(f"SELECT count(*) FROM pupils WHERE school = {i}")[0][0] for i in range(12)]
    assert (found.table() // WHOLE).tolist() == real
    ours = [exact(f"SELECT count(*) FROM r WHERE school = {i}")[0][0] for i in range(12)]
    assert np.corrcoef(real, ours)[0, 1] > 0.95


ODD = {
    "DATE '2020-01-01' + clinic": "number them",
    "[clinic]": "number them",
    "{'a': clinic}": "number them",
    "clinic::VARCHAR::BLOB": "number them",
    "to_days(clinic)": "number them",
    "'x' || clinic": "number them",
    "clinic % 2 = 0": "number them",
    "clinic::VARCHAR": None,
    "clinic::DOUBLE": None,
    "clinic::UBIGINT": None,
}
"""Keys of a synthetic table, by those of whole numbers, and what a refusal says."""


@pytest.mark.slow
@pytest.mark.parametrize("key", ODD)
def test_keys_of_any_type_are_read_or_refused_in_words(exact: Any, seen: list[Partners], key: str) -> None:
    exact("CREATE TABLE patients AS SELECT i::INTEGER AS patient, i % 2 = 0 AS old FROM range(100) t(i)")
    exact("CREATE TABLE clinics AS SELECT i::INTEGER AS clinic, i % 3 = 0 AS big FROM range(12) t(i)")
    exact("CREATE TABLE visits AS SELECT i % 100 AS patient, i * i % 12 AS clinic FROM range(300) t(i)")
    exact(
        "CALL dp_protect('visits', unit := 'patient', max_rows := 4, rho := 9000); CALL dp_protect('patients', rho := 9)"
    )
    exact("ALTER TABLE patients ADD PRIMARY KEY (patient); CALL dp_attributes('patients'); CALL dp_public('clinics')")
    exact("CALL dp_link('visits', \"references\" := {'patient': 'patients.patient', 'clinic': 'clinics.clinic'})")
    exact(f"CREATE TABLE odd AS SELECT {key} AS clinic, big FROM clinics; CREATE TABLE patients_syn AS FROM patients")
    exact("CALL dp_public(['odd', 'patients_syn'])")
    asked = "FROM dp_links('visits', synthetic := {'patients': 'patients_syn', 'clinics': 'odd'}, rho := 5000)"
    if (says := ODD[key]) is None:
        assert len(exact(asked)) > 50
        assert [one.original for one in seen] == [True]
        return
    assert says in exact.refused(asked)
    assert exact("SELECT releases FROM dp_budget() WHERE dataset = 'visits'") == [(0,)]


@pytest.mark.slow
def test_rows_that_almost_everybody_is_linked_to_stay_so(db: Any) -> None:
    """A few links for which there are no different pairs left are lost; else all rows would have about as many."""
    rng = np.random.default_rng(7)
    shares = 1 / np.arange(1, 301) ** 1.2
    pairs = [
        (user, int(film))
        for user in range(1000)
        for film in rng.choice(300, int(rng.integers(1, 49)), replace=False, p=shares / shares.sum())
    ]
    db(
        "CREATE TABLE users AS SELECT i AS uid, i % 2 AS sex, i * 7 % 60 AS age, i % 8 AS job, i * 13 % 20 AS since FROM range(1000) r(i);"
        "ALTER TABLE users ADD PRIMARY KEY (uid); CREATE TABLE films (fid BIGINT PRIMARY KEY, year BIGINT, budget BIGINT, lang BIGINT);"
        "CREATE TABLE seen (uid BIGINT REFERENCES users (uid), fid BIGINT REFERENCES films (fid), PRIMARY KEY (uid, fid))"
    )
    columns = [list(range(300)), *(rng.integers(0, most, 300).tolist() for most in (80, 10**6, 4))]
    db("INSERT INTO films SELECT unnest($1), unnest($2), unnest($3), unnest($4)", columns)
    db("INSERT INTO seen SELECT unnest($1), unnest($2)", [[user for user, _ in pairs], [film for _, film in pairs]])
    db(
        "CALL dp_public(['films']); CALL dp_protect(['users', 'seen'], unit := 'users.uid', max_rows := {'seen': 48}, epsilon := 99, "
        "delta := 1e-6); CALL dp_attributes('users', {'sex': {'low': 0, 'high': 1}, 'age': {'low': 0, 'high': 59}, "
        "'job': {'low': 0, 'high': 7}, 'since': {'low': 0, 'high': 19}})"
    )
    db("CALL dp_synthesize_database('main', target := 'syn', tables := ['users', 'seen'], epsilon := 20)")
    count = "SELECT count(fid) FROM films LEFT JOIN {}.seen USING (fid) GROUP BY fid ORDER BY fid"
    real, found = ([row[0] for row in db(count.format(schema))] for schema in ("main", "syn"))
    assert np.corrcoef(real, found)[0, 1] > 0.97
    assert sum(found) > 0.95 * sum(real)
