"""columns := 'short': one interval column for each answer, of the same release."""

import pytest

ASKED = [
    ("dp_marginals('people', ['age', 'sex'], mu := 1)", {"count": ""}),
    ("dp_marginals('people', [['age'], []], mu := 1, bounds := true)", {"count": ""}),
    ("dp_queries('people', [{'age': 'range'}], mu := 1)", {"answer": ""}),
    ("dp_sql('SELECT sex, count(*) AS n, count(*) FILTER (WHERE race = 1) AS m FROM people GROUP BY sex', mu := 1)", {"n": "n_", "m": "m_"}),
    ("dp_sql('SELECT sex, count(*) AS n, avg(race + 1) AS a, median(age) AS q FROM people GROUP BY sex', mu := 1)", {"n": "n_", "a": "a_", "q": "q_"}),
    ("dp_sql('WITH t AS (SELECT sex, count(*) AS n FROM people GROUP BY sex) SELECT sex, n, rank() OVER (ORDER BY n) AS r FROM t', mu := 1)", {"n": "n_"}),
    ("dp_sql('WITH t AS (SELECT sex, count(*) AS n FROM people GROUP BY sex) SELECT upper(sex) AS s, n FROM t ORDER BY n', mu := 1)", {"n": ""}),
    ("dp_marginals('people', ['sex'], mu := 1, postprocess := 'nonnegative')", {"count": ""}),
]  # fmt: skip


@pytest.mark.some(2)
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


ORDERS = [
    ("SELECT count(*) AS n, sex FROM people GROUP BY sex", ["n", "stddev", "ci_low", "ci_high", "sex"]),
    ("SELECT sex, count(*) AS n FROM people GROUP BY sex", ["sex", "n", "stddev", "ci_low", "ci_high"]),
    ("SELECT 'all' AS t, sex, count(*) AS n FROM people GROUP BY sex", ["t", "sex", "n", "stddev", "ci_low", "ci_high"]),
    ("SELECT avg(race) AS a, sex AS s, count(*) FROM people GROUP BY s ORDER BY 1 DESC LIMIT 1",
     ["a", "a_stddev", "a_ci_low", "a_ci_high", "s", "count", "count_stddev", "count_ci_low", "count_ci_high"]),
    ("SELECT sum(race), race > 0, sex FROM people GROUP BY ALL", ["sum", "stddev", "ci_low", "ci_high", "race > 0", "sex"]),
    ("SELECT CASE WHEN race > 0 THEN 1 ELSE 0 END, count(*) FROM people GROUP BY 1",
     ["CASE WHEN race > 0 THEN 1 ELSE 0 END", "count", "stddev", "ci_low", "ci_high"]),
]  # fmt: skip


@pytest.mark.some(4)
@pytest.mark.parametrize(("select", "names"), ORDERS, ids=range(len(ORDERS)))
def test_columns_stand_as_in_the_select(exact, select: str, names: list[str]) -> None:
    """Each answer with its errors behind it; the numbers are those of the columns of these names, and of DuckDB."""
    call = f"FROM dp_sql('{select.replace(chr(39), chr(39) * 2)}', mu := 100)"
    found = [name for name, _ in exact.columns(call)]
    assert [name.replace("(", "").replace(")", "").replace('"', "") for name in found] == [*names, "private"]
    short = [name for name, _ in exact.columns(f"{call[:-1]}, columns := 'short')")]
    assert short == [name.replace("ci_low", "ci") for name in found if not name.endswith(("stddev", "ci_high"))]
    own = [place for place, name in enumerate(names) if not name.endswith(("stddev", "ci_low", "ci_high"))]
    rows = [tuple(row[place] for place in own) for row in exact(call)]
    truth = exact(select)
    assert len(rows) == len(truth)
    assert sorted(map(rounded, rows)) == sorted(map(rounded, truth))


def rounded(row: tuple[object, ...]) -> str:
    return str([str(round(x, 2) + 0.0) if type(x) in (int, float) else str(x) for x in row])
