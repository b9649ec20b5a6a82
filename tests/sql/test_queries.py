"""dp_queries: with the noise off, DuckDB's own counts for every kind of query; and what cannot be asked."""

import itertools
import math

import pytest

NOISY = ["answer", "stddev", "ci_low", "ci_high", "private"]
EDGES = [0.0, 20.0, 40.0, 60.0, 100.0]


def answers(rows: list[tuple]) -> list[float]:
    return [round(row[-5], 2) for row in rows]


def count(loaded, condition: str) -> int:
    ((found,),) = loaded(f"SELECT count(*) FROM people WHERE {condition}")
    return found


def age(low: float, high: float) -> str:
    return f"(age >= {low} AND age {'<=' if high == 100 else '<'} {high})"


INTERVALS = {  # (from, to) cells of an attribute of 4
    "identity": [(i, i) for i in range(4)],
    "total": [(0, 3)],
    "prefix": [(0, i) for i in range(4)],
    "suffix": [(i, 3) for i in range(4)],
    "range": [(i, j) for i in range(4) for j in range(i, 4)],
    "circular": [(i, (i + size) % 4) for i in range(4) for size in range(4)],
    "width-3": [(0, 2), (1, 3)],
    "width 2": [(0, 1), (1, 2), (2, 3)],
    "hierarchy-2": [(0, 0), (1, 1), (2, 2), (3, 3), (0, 1), (2, 3), (0, 3)],
    "hierarchy": [(0, 0), (1, 1), (2, 2), (3, 3), (0, 1), (2, 3), (0, 3)],
}


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", INTERVALS)
def test_intervals_of_bins_and_of_numbers(exact, kind: str) -> None:
    rows = exact(f"FROM dp_queries('people', {{'age': '{kind}', 'sex': 'identity'}}, mu := 100)")
    expected = [(EDGES[a], EDGES[b + 1], sex) for (a, b), sex in itertools.product(INTERVALS[kind], "FM")]
    assert [(row[1], row[2], row[3]) for row in rows] == expected
    assert {row[0] for row in rows} == {f"age {kind}, sex identity"}
    for (low, high, sex), found in zip(expected, answers(rows), strict=True):
        inside = age(low, high) if low < high else f"({age(low, 100)} OR {age(0, high)})"
        assert found == count(exact, f"{inside} AND sex = '{sex}'")
    rows = exact(f"FROM dp_queries('people', [{{'race': '{kind}'}}], mu := 100)")
    assert [(row[1], row[2]) for row in rows] == INTERVALS[kind]
    for (a, b), found in zip(INTERVALS[kind], answers(rows), strict=True):
        assert found == count(exact, f"race BETWEEN {a} AND {b}" if a <= b else f"race >= {a} OR race <= {b}")


@pytest.mark.some(2)
@pytest.mark.parametrize("kinds", list(itertools.product(["range", "circular", "prefix"], repeat=2)), ids=" by ".join)
def test_intervals_of_two_attributes(exact, kinds: tuple[str, str]) -> None:
    first, second = kinds
    call = f"FROM dp_queries('people', {{'race': '{first}', 'sex': 'identity', 'age': '{second}'}}, mu := 100)"
    rows = exact(call)
    names = [name for name, _ in exact.columns(call)]
    shown = [dict(zip(names, row, strict=True)) for row in rows]
    ends = {"race": INTERVALS[first], "age": [(EDGES[a], EDGES[b + 1]) for a, b in INTERVALS[second]]}
    assert {name: {(row[f"{name}_from"], row[f"{name}_to"]) for row in shown} for name in ends} == {
        name: set(found) for name, found in ends.items()
    }
    assert len(rows) == 2 * len(ends["race"]) * len(ends["age"])
    for row in shown:
        low, high, sex = row["age_from"], row["age_to"], row["sex_from"]
        inside = age(low, high) if low < high else f"({age(low, 100)} OR {age(0, high)})"
        a, b = row["race_from"], row["race_to"]
        races = f"race BETWEEN {a} AND {b}" if a <= b else f"(race >= {a} OR race <= {b})"
        assert round(row["answer"], 3) == count(exact, f"{inside} AND {races} AND sex = '{sex}'")


CONDITIONS = ["age < 20", "age >= 40 AND age < 60", "age BETWEEN 20 AND 39", "NOT age >= 60"]


def test_conditions_on_one_attribute(exact) -> None:
    rows = exact("FROM dp_queries('people', {'age': ?, 'race': 'prefix'}, mu := 100)", [CONDITIONS])
    assert [(row[1], row[3]) for row in rows] == list(itertools.product(CONDITIONS, range(4)))
    assert answers(rows) == [
        count(exact, f"({text}) AND race <= {top}") for text, top in itertools.product(CONDITIONS, range(4))
    ]
    one = exact("FROM dp_queries('people', {'smoker': 'smoker IS NULL'}, mu := 100)")
    assert (one[0][:2], answers(one)) == (("smoker predicates", "smoker IS NULL"), [count(exact, "smoker IS NULL")])


def test_joint_conditions_and_pairs(exact) -> None:
    exact(
        "CREATE TABLE pairs AS SELECT i % 5 AS a, (i * i) % 7 AS b FROM range(100) t(i); CALL dp_protect('pairs', mu := 1000)"
    )
    exact("CALL dp_attribute('pairs', 'a', low := 0, high := 4); CALL dp_attribute('pairs', 'b', low := 0, high := 6)")
    for key, kind, condition, top in [("a+b", "affine", "a + b <= {}", 10), ("b + a", "abs", "abs(a - b) <= {}", 6)]:
        rows = exact(f"FROM dp_queries('pairs', {{'{key}': '{kind}'}}, mu := 100)")
        assert [row[1] for row in rows] == [condition.format(c) for c in range(top + 1)]
        assert answers(rows) == [n for (n,) in (exact(f"SELECT count(*) FROM pairs WHERE {row[1]}")[0] for row in rows)]
    texts = ["a < b", "a = 1 OR b = 2", "NOT (a + b = 4)", "abs(a - b) <= 1 AND a > 1"]
    rows = exact("FROM dp_queries('pairs', [{'a+b': ?}], mu := 100)", [texts])
    assert [row[:2] for row in rows] == [("a+b predicates", text) for text in texts]
    assert answers(rows) == [exact(f"SELECT count(*) FROM pairs WHERE {text}")[0][0] for text in texts]
    texts = ["age < 20 OR race = 2", "sex = 'F' AND smoker IS NULL AND age >= 60"]
    rows = exact("FROM dp_queries('people', {'age+race+sex+smoker': ?}, mu := 100)", [texts])
    assert answers(rows) == [count(exact, text) for text in texts]


ENTRIES = "[{'age': 'range', 'sex': 'identity'}, {'race': 'prefix', 'weight': 3}, {'age+race': 'affine'}, {'smoker': ['smoker']}]"


def test_several_entries_share_one_table(exact) -> None:
    rows = exact(f"FROM dp_queries('people', {ENTRIES}, mu := 100)")
    assert [row[0] for row in rows] == (
        ["age range, sex identity"] * 20 + ["race prefix"] * 4 + ["age+race affine"] * 7 + ["smoker predicates"]
    )
    columns = [name for name, _ in exact.columns(f"FROM dp_queries('people', {ENTRIES}, mu := 100)")]
    assert columns == [
        "query", "age_from", "age_to", "sex_from", "sex_to", "race_from", "race_to", "predicate", "smoker_predicate", *NOISY,
    ]  # fmt: skip
    shown = [[value is not None for value in row[1:9]] for row in rows]
    assert [sum(row) for row in shown] == [4] * 20 + [2] * 4 + [1] * 8
    bins = "CASE WHEN age < 20 THEN 0 WHEN age < 40 THEN 1 WHEN age < 60 THEN 2 ELSE 3 END"
    assert answers(rows)[20:] == [
        *(count(exact, f"race <= {top}") for top in range(4)),
        *(count(exact, f"{bins} + race <= {top}") for top in range(7)),
        count(exact, "smoker"),
    ]


def test_types_of_columns(exact) -> None:
    exact("CREATE TABLE t (day DATE, code VARCHAR, x DOUBLE); CALL dp_protect('t', mu := 10)")
    exact("CALL dp_attribute('t', 'day', bins := ['2020-01-01', '2020-02-01', '2020-03-01'])")
    exact("CALL dp_attribute('t', 'code', \"values\" := ['a', 'b'], other := true, nulls := true)")
    exact("CALL dp_attribute('t', 'x', low := 0, high := 1, step := 0.5)")
    types = dict(exact.columns("FROM dp_queries('t', [{'day': 'prefix', 'code': 'identity', 'x': 'total'}], mu := 1)"))
    assert types["day_from"] == types["day_to"] == "DATE"
    assert types["code_from"] == types["query"] == "VARCHAR"
    assert types["x_from"] == types["answer"] == "DOUBLE"
    rows = exact("SELECT code_from, code_to FROM dp_queries('t', [{'code': 'suffix'}], mu := 1)")
    assert rows == [("a", None), ("b", None), ("other", None), (None, None)]
    assert [round(a, 3) for (a,) in exact("SELECT answer FROM dp_queries('t', [{'day': 'range'}], mu := 1)")] == [
        0,
        0,
        0,
    ]


@pytest.mark.some(2)
@pytest.mark.parametrize("mechanism", ["auto", "querysmasher", "residual_plus", "wff", "residual"])
def test_mechanisms_and_their_explanation(db, mechanism: str) -> None:
    asked = f"'people', {ENTRIES}"
    explained = db(
        f"SELECT marginal, cells, stddev, half_width, budget_share, mechanism, mu, gap FROM dp_explain({asked}, mu := 1, mechanism := '{mechanism}')"
    )
    assert db.charges() == 0
    rows = db(f"FROM dp_queries({asked}, mu := 1, mechanism := '{mechanism}')")
    assert db.charges() == 1
    assert sum(row[4] for row in explained) == pytest.approx(1)
    # On a few cells one strategy for all queries together is found at once, and it is better.
    assert {row[5] for row in explained} == {"hdmm" if mechanism == "auto" else mechanism}
    start = 0
    for label, cells, stddev, half_width, _, _, mu, gap in explained:
        mine = rows[start : start + cells]
        assert {row[0] for row in mine} == {label}
        assert math.sqrt(sum(row[-4] ** 2 for row in mine) / cells) == pytest.approx(stddev, rel=1e-6)
        assert half_width == pytest.approx(1.959963984540054 * stddev)
        assert mu == 1
        assert -1e-9 <= gap <= (1e-3 if mechanism in ("auto", "querysmasher") else math.inf)
        start += cells
    assert start == len(rows)
    for *_, answer, stddev, low, high, private in rows:
        assert (low, high) == (
            pytest.approx(answer - 1.959963984540054 * stddev),
            pytest.approx(answer + 1.959963984540054 * stddev),
        )
        assert private is False


def test_a_weight_moves_the_budget(db) -> None:
    def stddevs(weight: float) -> list[float]:
        asked = f"[{{'age': 'range'}}, {{'race': 'range', 'weight': {weight}}}]"
        return [stddev for (stddev,) in db(f"SELECT stddev FROM dp_explain('people', {asked}, mu := 1)")]

    light, heavy = stddevs(1), stddevs(10)
    assert heavy[0] > light[0]
    assert heavy[1] < light[1]


def test_target_stddev_is_the_inverse(db) -> None:
    ((mu,),) = db(f"SELECT DISTINCT mu FROM dp_explain('people', {ENTRIES}, target_stddev := 5)")
    worst = max(row[-4] for row in db(f"FROM dp_queries('people', {ENTRIES}, mu := ?)", [mu]))
    assert worst == pytest.approx(5, rel=1e-6)


def test_the_same_request_is_one_release(db) -> None:
    call = "FROM dp_queries('people', [{'age': 'range', 'sex': 'identity'}], mu := 1"
    first = db(f"{call}, release := 'ranges')")
    assert db(f"{call})") == first
    assert db("FROM dp_queries('people', {'sex': 'identity', 'AGE': 'range'}, mu := 1.0)") == first
    assert db("FROM dp_release('ranges')") == first
    assert db.columns("FROM dp_release('ranges')") == db.columns(f"{call})")
    assert db.charges() == 1
    db(f"EXPLAIN {call[:-1]}2)")
    db.columns(f"{call[:-1]}3)")
    assert db.charges() == 1
    assert db(f"{call}, fresh := true)") != first
    assert db.charges() == 2
    ((cost, mechanism, state),) = db("SELECT DISTINCT cost, mechanism, state FROM dp_ledger()")
    assert (cost, mechanism, state) == (1, "hdmm", "stored")


@pytest.mark.parametrize(
    ("queries", "says"),
    [
        ("[]", "write a list such as [{'age': 'range', 'sex': 'identity'}]"),
        ("NULL", "write a list such as"),
        ("'range'", "write a list such as"),
        ("['age']", "write a list such as"),
        ("5", "write a list such as"),
        ("[NULL]", "write a list such as"),
        (
            "[{'zip': 'range'}]",
            "'people' has no column 'zip'; its columns are: age",
        ),
        ("[{'zip+age': 'affine'}]", "'people' has no column 'zip'; its columns are: age"),
        ("[{'age': 'rage'}]", "'rage' is no kind of query on 'age'; use identity, total, prefix"),
        ("[{'age': 'width'}]", "'width' needs a number of cells, e.g. 'width-7'"),
        ("[{'age': 'width-9'}]", "'width-9' does not fit 4 cells; the width is 1 to 4"),
        ("[{'age': 'width-0'}]", "'width-0' does not fit 4 cells"),
        ("[{'age': 'hierarchy-1'}]", "'hierarchy-1' has no levels; the fan-out is at least 2"),
        ("[{'age': []}]", "are []; write one of identity"),
        ("[{'age': [NULL]}]", "write one of identity"),
        ("[{'age': 7}]", "write one of identity"),
        ("[{'age': ['age < 25']}]", "age < 25 cuts through the bin [20, 40) of 'age'; what is known of it are its bin edges: 0, 20, 40, 60, 100."),
        ("[{'age': ['sex = 1']}]", "'sex = 1': conditions on 'age' name that alone; for 'sex' too write {'age+sex': [...]}"),
        ("[{'age+race': ['age < 20 AND sex = ''F''']}]", "conditions on 'age' and 'race' name those alone; for 'sex' too"),
        ("[{'age': ['zip = 1']}]", "'people' has no column 'zip'"),
        ("[{'smokr': 'identity'}]", "'people' has no column 'smokr'; its columns are: smoker"),
        ("{'age': NULL}", "names no attribute; write {'age': 'range'}, or {'age': 'total'} for the number of all rows"),
        ("{'weight': 2}", "names no attribute"),
        ("[{'age': 'range', 'sex': NULL}, {'age': NULL, 'sex': NULL}]", "names no attribute"),
        ("[{'age': ['age <']}]", "'age <' does not parse: it ends too early, or is no condition."),
        ("[{'age': ['random() < 0.5']}]", "cannot be answered from the declared domain"),
        ("[{'sex': ['lower(sex) = ''f''']}]", "cannot be answered from the declared domain"),
        ("[{'age+race': 'range'}]", "'range' is no kind of query on 'age+race'; use affine, abs of two attributes, or a list of"),
        ("[{'age+race+sex': 'affine'}]", "'affine' is asked of two attributes, as 'a+b'"),
        ("[{'age+age': 'affine'}]", "'affine' is asked of two attributes"),
        ("[{'age+race': 'affine', 'sex': 'identity'}]", "'age+race' stands in an entry with others; give it an entry of its own"),
        ("[{'age+race': []}]", "write"),
        ("[{'age': 'range', 'weight': -1}]", "weights are positive and finite"),
        ("[{'age': 'range', 'weight': 0}]", "weights are positive and finite"),
        ("[{'age': 'range', 'weight': 'nan'::DOUBLE}]", "weights are positive and finite"),
        ("[{'age': 'range', 'weight': 'inf'::DOUBLE}]", "weights are positive and finite"),
        ("[{'age': 'range', 'weight': 'heavy'}]", "weight is 'heavy'; it is a positive number"),
        ("[{'age': 'range', 'weight': true}]", "weight"),
        ("[{'age+race': 'affine', 'weight': -2}]", "weights are positive and finite"),
        ("[{'age': 'range', 'AGE': 'prefix'}]", ""),
        ("[{'sex': ['sex = ''Q''']}]", "no declared cell satisfies it. A row that does, if there is any, has a value outside the declared domain"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked(shared, queries: str, says: str) -> None:
    assert says in shared.refused(f"FROM dp_queries('people', {queries}, mu := 1)")


def test_a_condition_that_nobody_meets_is_refused_beside_others(exact) -> None:
    line = exact.refused("FROM dp_queries('people', {'age': ['age < 0', 'age < 20']}, mu := 1)")
    assert "'age < 0': no declared cell satisfies it. A row that does, if there is any" in line


def test_more_than_memory_holds(exact) -> None:
    exact("CREATE TABLE big AS SELECT 1 AS x, 1 AS y, 1 AS z; CALL dp_protect('big', mu := 10)")
    for name, high in (("x", 1000), ("y", 1000), ("z", 1000)):
        exact(f"CALL dp_attribute('big', '{name}', low := 1, high := {high})")
    line = exact.refused("FROM dp_queries('big', {'x': 'prefix', 'y': 'prefix', 'z': 'prefix'}, mu := 1)")
    assert "the marginals have 1,000,000,000 cells together and the limit is 100,000,000" in line
    line = exact.refused("FROM dp_queries('big', {'x': 'range', 'y': 'range'}, mu := 1)")
    assert "queries were asked and the limit is 1,000,000,000" in line
    line = exact.refused("FROM dp_queries('big', {'x+y': 'affine'}, mu := 1)")
    assert "queries that are no products are planned up to 65,536" in line
    exact("CALL dp_attribute('big', 'x', low := 1, high := 300000)")
    line = exact.refused("FROM dp_queries('big', {'x': 'prefix'}, mu := 1)")
    assert "strategies are planned up to 8,192 cells of one attribute; declare coarser bins" in line


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["prefix", "suffix", "width-300"])
def test_a_line_of_many_cells(exact, kind: str) -> None:
    exact("CREATE TABLE line AS SELECT (i * i) % 20000 AS x, i % 2 AS y FROM range(1000) r(i)")
    exact("CALL dp_protect('line', mu := 1000)")
    exact("CALL dp_attribute('line', 'x', low := 0, high := 19999)")
    exact("CALL dp_attribute('line', 'y', low := 0, high := 1)")
    for _ in range(2):  # drawn, and read again
        rows = exact(f"FROM dp_queries('line', {{'x': '{kind}', 'y': 'identity'}}, mu := 100)")
        assert len(rows) == 2 * (19701 if kind == "width-300" else 20000)
        for row in rows[:: len(rows) // 20]:
            assert round(row[-5], 2) == count_of(exact, row[1], row[2], row[3])


def count_of(loaded, first: int, last: int, y: int) -> int:
    ((found,),) = loaded(f"SELECT count(*) FROM line WHERE x BETWEEN {first} AND {last} AND y = {y}")
    return found
