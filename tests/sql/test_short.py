"""columns := 'short': one interval column for each answer, of the same release."""

import pytest

ASKED = [
    ("dp_marginals('people', ['age', 'sex'], mu := 1)", {"count": ""}),
    ("dp_marginals('people', [['age'], []], mu := 1, bounds := true)", {"count": ""}),
    ("dp_queries('people', [{'age': 'range'}], mu := 1)", {"answer": ""}),
    ("dp_sql('SELECT sex, count(*) AS n, count(*) FILTER (WHERE race = 1) AS m FROM people GROUP BY sex', mu := 1)", {"n": "n_", "m": "m_"}),
    ("dp_sql('SELECT sex, count(*) AS n, avg(race + 1) AS a, median(age) AS q FROM people GROUP BY sex', mu := 1)", {"n": "n_", "a": "a_", "q": "q_"}),
    ("dp_sql('WITH t AS (SELECT sex, count(*) AS n FROM people GROUP BY sex) SELECT sex, n, rank() OVER (ORDER BY n) AS r FROM t', mu := 1)", {"n": ""}),
    ("dp_marginals('people', ['sex'], mu := 1, postprocess := 'nonnegative')", {"count": ""}),
]  # fmt: skip


@pytest.mark.some(4)
@pytest.mark.parametrize(("call", "answers"), ASKED, ids=range(len(ASKED)))
def test_the_same_numbers_in_fewer_columns(db, call: str, answers: dict[str, str]) -> None:
    short = db(f"SELECT * FROM {call[:-1]}, columns := 'short')")
    names = [name for name, _ in db.columns(f"FROM {call[:-1]}, columns := 'short')")]
    full = db(f"FROM {call}")
    everything = [name for name, _ in db.columns(f"FROM {call}")]
    assert db.charges() == 1
    assert names == [name.replace("ci_low", "ci") for name in everything if not name.endswith(("stddev", "ci_high"))]
    for one, whole in zip(short, full, strict=True):
        row, all_of = dict(zip(names, one, strict=True)), dict(zip(everything, whole, strict=True))
        for name, prefix in answers.items():
            ends = [all_of[f"{prefix}ci_low"], all_of[f"{prefix}ci_high"]]
            assert row[f"{prefix}ci"] == (None if ends[0] is None else dict(zip(("low", "high"), ends, strict=True)))
            assert row[name] == all_of[name]


def test_stored_releases_are_read_so_too(db) -> None:
    db("FROM dp_marginals('people', ['sex'], mu := 1, release := 'first')")
    assert db("SELECT ci.low < count AND count < ci.high FROM dp_release('first', columns := 'short')") == [(True,)] * 2


def test_what_is_refused(db) -> None:
    call = "FROM dp_sql('SELECT sex AS ci, count(*) AS n FROM people GROUP BY sex', mu := 1, columns := {})"
    assert "has two columns 'ci'; give yours another alias" in db.refused(call.format("'short'"))
    assert "columns is 'narrow'; write columns := 'short'" in db.refused(call.format("'narrow'"))


def test_running_totals_are_short_too(db) -> None:
    db("CREATE TABLE days AS SELECT DATE '2026-01-01' + (i % 9)::INTEGER AS d FROM range(90) t(i)")
    db("CALL dp_protect('days', mu := 1e3, another := true)")
    db("FROM dp_running('days', [], start := '2026-01-01', horizon := 3, mu := 1, release := 'run')")
    assert [name for name, _ in db.columns("FROM dp_release('run', columns := 'short')")] == [
        "d",
        "total",
        "ci",
        "private",
    ]
    assert len(db("FROM dp_release('run', columns := 'short')")) == 3
