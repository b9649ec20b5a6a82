"""A joined question in other words is the same request, charged once, and another question is another request."""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.errors import DPError
from duckdb_dp.request import Request
from duckdb_dp.sql import questions, routes
from duckdb_dp.sql.bindings import LOADED
from duckdb_dp.sql.older_forms import Looked
from duckdb_dp.sql.same_conditions import in_form
from tests.conftest import Loaded
from tests.sql.earlier_forms import as_in_form, looked_anew
from tests.sql.test_joins import DECLARED, TABLES

MORE = """
CREATE TABLE stays (stay_id BIGINT PRIMARY KEY, patient_id INTEGER REFERENCES patients (patient_id), ward VARCHAR, nights INTEGER);
INSERT INTO stays SELECT i, i * 11 % 40, ['a', 'b'][1 + i % 2], i % 6 FROM range(60) t(i);
"""


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("same") / "ledger.dp"
    with duckdb.connect() as connection:
        connection.execute(TABLES + MORE)
        duckdb_dp.testing.load(connection, folder, seed=1)
        declared = DECLARED.replace("'drugs'], unit", "'drugs', 'stays'], unit").replace(
            "{'patients'", "{'stays': 9, 'patients'"
        )
        connection.execute(declared + """CALL dp_attribute('stays', 'nights', low := 0, high := 5)""").fetchall()
        yield Loaded(connection, folder)


def request(hospital: Loaded, sql: str | list[str], **more: object) -> Request:
    """The request of a statement."""
    session = LOADED[hospital("SELECT _dp_loaded()")[0][0]].session
    kind, place = questions.kinds()["dp_sql"], ("memory", "main")
    assert kind.found is not None
    with session.ledger.held(), session.planning():  # as a call does
        _, arguments = questions.opened(session, kind, {"sql": sql, "rho": 1.0, **more}, place)
        found = kind.found(session, arguments, place)
        return questions.request_of(session, kind, arguments, place, found)[1]


SAME = [
    (
        "SELECT p.sex, count(*) AS n, avg(v.charge) AS m FROM visits v JOIN patients p ON v.patient_id = p.patient_id "
        "WHERE v.charge > 2 AND p.sex = 'f' GROUP BY p.sex",
        "SELECT p.sex, count(*) AS n, avg(v.charge) AS m FROM visits v JOIN patients p ON p.patient_id = v.patient_id "
        "WHERE p.sex = 'f' AND v.charge > 2 GROUP BY p.sex",
        "SELECT p.sex, count(*) AS n, avg(v.charge) AS m FROM patients p, visits v WHERE p.patient_id = v.patient_id AND 'f' = p.sex "
        "AND 2 < v.charge GROUP BY p.sex",
        "SELECT sex, count(1) AS n, avg(charge) AS m FROM patients JOIN visits USING (patient_id) WHERE sex = 'f' AND charge > 2 GROUP BY 1",
        "select SEX, count(*) AS n, Avg(\"CHARGE\") AS m FROM PATIENTS JOIN \"visits\" USING (Patient_ID) WHERE true AND sex = 'f' "
        "AND 1 = 1 AND charge > 2 GROUP BY ALL",
        "WITH v AS (SELECT * FROM visits) SELECT sex, count(*) AS n, avg(charge) AS m FROM patients JOIN v USING (patient_id) "
        "WHERE sex = 'f' AND charge > 2 GROUP BY 1",
        "SELECT sex, count(*) AS n, avg(charge) AS m FROM (SELECT * FROM patients) JOIN (SELECT patient_id, charge FROM visits) "
        "USING (patient_id) WHERE sex = 'f' AND charge > 2 GROUP BY 1",
        "SELECT sex, count(*) AS n, avg(charge) AS m FROM (SELECT * FROM patients NATURAL JOIN (SELECT patient_id, charge FROM visits "
        "WHERE charge > 2) WHERE sex = 'f') GROUP BY 1",
        "SELECT sex, count(*) AS n, avg(charge) AS m FROM main.patients q JOIN memory.main.visits w ON w.patient_id = q.patient_id "
        "AND q.sex = 'f' AND charge > 2 AND charge > 2 GROUP BY 1",
    ),
    (
        "SELECT count(*) AS n FROM visits a JOIN visits b ON a.patient_id = b.patient_id AND a.day < b.day",
        "SELECT count(*) AS n FROM visits b JOIN visits a ON a.patient_id = b.patient_id AND b.day > a.day",
        "SELECT count(*) AS n FROM visits y JOIN visits x ON x.patient_id = y.patient_id AND y.day < x.day",
        "WITH v AS (SELECT * FROM visits) SELECT count(*) AS n FROM v y JOIN v x ON x.patient_id = y.patient_id AND y.day < x.day",
    ),
    (
        "SELECT count(*) AS n FROM patients p WHERE EXISTS (SELECT 1 FROM visits v JOIN clinics c USING (clinic_id) "
        "WHERE v.patient_id = p.patient_id AND beds > 3 AND v.charge > 7)",
        "SELECT count(*) AS n FROM patients q WHERE EXISTS (FROM clinics c, visits w WHERE c.clinic_id = w.clinic_id AND w.charge > 7 "
        "AND q.patient_id = w.patient_id AND 3 < beds)",
    ),
    (
        "SELECT sex, sum(total) AS s FROM (SELECT p.patient_id, sex, sum(charge) AS total FROM visits JOIN patients p USING (patient_id) "
        "GROUP BY ALL) WHERE total BETWEEN 0 AND 100 GROUP BY sex",
        "WITH x AS (SELECT p.patient_id, sex, sum(charge) AS Total FROM patients p JOIN visits v ON p.patient_id = v.patient_id "
        "GROUP BY 1, 2) SELECT y.sex, sum(y.total) AS s FROM x AS y WHERE y.total BETWEEN 0 AND 100 GROUP BY y.sex",
    ),
    (
        "SELECT count(*) AS n, avg(days) AS d FROM drugs JOIN visits USING (visit_id) LEFT JOIN clinics c "
        "ON c.clinic_id = visits.clinic_id AND beds > 10 WHERE region = 'north'",
        "SELECT count(*) AS n, avg(d.days) AS d FROM visits v JOIN drugs d ON d.visit_id = v.visit_id LEFT JOIN (SELECT * FROM clinics) c "
        "ON beds > 10 AND v.clinic_id = c.clinic_id WHERE c.region = 'north'",
    ),
]  # fmt: skip


@pytest.mark.parametrize("words", SAME)
def test_the_same_question_is_one_request(hospital: Loaded, words: tuple[str, ...]) -> None:
    assert len({request(hospital, one).to_json() for one in words}) == 1


CONDITIONS = [
    ("{t}.charge BETWEEN 1 AND 5", "{t}.charge >= 1 AND {t}.charge <= 5", "5 >= {t}.charge AND (1 <= {t}.charge)"),
    ("{t}.charge NOT BETWEEN 1 AND 5", "NOT ({t}.charge >= 1 AND {t}.charge <= 5)", "{t}.charge > 5 OR {t}.charge < 1"),
    ("{t}.paid IN (2)", "{t}.paid = 2", "2 = {t}.paid", "NOT {t}.paid <> 2", "NOT ({t}.paid != 2)"),
    ("{t}.charge IN (2, 1)", "{t}.charge IN (1, 2)", "{t}.charge IN (1, 2, 1)"),
    ("NOT ({t}.charge > 1 AND {t}.reason = 'flu')", "{t}.reason <> 'flu' OR NOT {t}.charge > 1", "1 >= {t}.charge OR {t}.reason != 'flu'"),
    ("{t}.reason NOT IN ('leg')", "{t}.reason <> 'leg'", "NOT 'leg' = {t}.reason"),
    ("{t}.reason BETWEEN 'eye' AND 'flu'", "{t}.reason <= 'flu' AND {t}.reason >= 'eye'"),
    ("CAST({t}.paid AS INT) > 2", "{t}.paid::INT > 2", "2 < {t}.paid::INTEGER", "NOT {t}.paid::INT <= 2"),
]  # fmt: skip
WAYS = [
    "SELECT sex, count(*) AS n FROM visits v JOIN patients p ON v.patient_id = p.patient_id WHERE {} GROUP BY sex",
    "SELECT sex, avg(k) AS m FROM patients JOIN (SELECT patient_id, count(*) AS k FROM visits v WHERE {} GROUP BY patient_id) "
    "USING (patient_id) WHERE k BETWEEN 0 AND 5 GROUP BY sex",
    "SELECT sex, count(*) AS n FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id AND ({})) GROUP BY sex",
]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_conditions_of_one_meaning_are_one_request(hospital: Loaded, way: str) -> None:
    """Alone and of random pairs; the rows, some of them NULL, are those of conditions as they are written."""
    rng = random.Random(way)
    pairs = [(one, one) for one in CONDITIONS] + [(rng.choice(CONDITIONS), rng.choice(CONDITIONS)) for _ in range(3)]
    seen = dict[str, frozenset[str]]()
    for one, two in pairs:
        join, texts = (
            rng.choice(["{} AND {}", "({}) OR ({})", "NOT (({}) AND ({}))"]) if one != two else "{}",
            set[str](),
        )
        for _ in range(3):
            both = rng.sample([f"({rng.choice(one)})", f"({rng.choice(two)})"], k=2)
            sql = way.format((join.format(*both) if one != two else rng.choice(one)).format(t="v"))
            known = request(hospital, sql)
            texts.add(known.to_json())
            with in_form(1):
                assert rows(hospital, known) == rows(hospital, request(hospital, sql)), sql
        assert len(texts) == 1, (one, two, join)
        assert seen.setdefault(texts.pop(), frozenset({join, str(one), str(two)})) == {join, str(one), str(two)}


def test_the_order_of_inner_groups_does_not_count(hospital: Loaded) -> None:
    """Rows are those of the order in which they are written, and so is the request that an earlier version stored."""
    way = (
        "SELECT sex, avg(k) AS m FROM patients JOIN (SELECT patient_id, count(*) AS k FROM {} GROUP BY {}) USING (patient_id) "
        "WHERE k BETWEEN 0 AND 5 GROUP BY sex"
    )
    for tables in ("visits", "visits JOIN stays USING (patient_id)", "stays JOIN visits USING (patient_id)"):
        orders = ("patient_id, reason, charge", "reason, charge, patient_id", "charge, patient_id, reason")
        found = [request(hospital, way.format(tables, order)) for order in orders]
        assert len({one.to_json() for one in found}) == 1, tables
        with in_form(1):
            assert rows(hospital, found[0]) == rows(hospital, request(hospital, way.format(tables, orders[1]))), tables
    swapped = [
        way.format(one, "patient_id, reason")
        for one in ("visits JOIN stays USING (patient_id)", "stays JOIN visits USING (patient_id)")
    ]
    assert len({request(hospital, sql).to_json() for sql in swapped}) == 1


@pytest.mark.slow
def test_what_is_no_rewriting_stays_another_request(hospital: Loaded) -> None:
    """Ends of two types, which BETWEEN compares in one; NOT of what is no comparison; and other ends."""
    for one, two in [
        ("v.charge BETWEEN 1 AND 5", "v.charge > 1 AND v.charge <= 5"),
        ("v.charge BETWEEN 1 AND 5", "v.charge BETWEEN 5 AND 1"),
        ("v.paid BETWEEN 1 AND 5.5", "v.paid BETWEEN 1 AND 5"),
        ("NOT (v.charge > 1 AND v.paid > 1)", "v.charge <= 1 AND v.paid <= 1"),
        ("v.reason IS NOT NULL", "v.reason IS NULL"),
    ]:
        assert request(hospital, WAYS[0].format(one)).to_json() != request(hospital, WAYS[0].format(two)).to_json()


def test_what_was_stored_as_its_conditions_were_written_is_found(hospital: Loaded) -> None:
    before, asked = hospital.charges(), WAYS[0].format("v.charge BETWEEN 2 AND 7 AND v.reason IN ('flu')")
    with as_in_form(1):
        answers = hospital("FROM dp_sql(?, rho := 2)", [asked])
    assert hospital.charges() == before + 1
    looked_anew(hospital)
    assert hospital("FROM dp_sql(?, rho := 2)", [asked]) == answers
    assert hospital.charges() == before + 1


@pytest.mark.parametrize(
    "shown",
    ["count(*) FILTER (WHERE 3 < v.charge)", "count_if(5 < v.charge)", "sum(v.charge) FILTER (WHERE 3 < v.paid)"],
)
def test_what_was_stored_with_its_filter_as_it_was_written_is_found(hospital: Loaded, shown: str) -> None:
    before, asked = (
        hospital.charges(),
        f"SELECT {shown} AS n FROM visits v JOIN patients p ON v.patient_id = p.patient_id",
    )
    with as_in_form(2):
        answers = hospital("FROM dp_sql(?, rho := 3)", [asked])
    assert hospital.charges() == before + 1
    looked_anew(hospital)
    assert hospital("FROM dp_sql(?, rho := 3)", [asked]) == answers
    assert hospital.charges() == before + 1


def test_a_join_is_charged_once(hospital: Loaded) -> None:
    before = hospital.charges()
    first, *others = SAME[0]
    answers = hospital("FROM dp_sql(?, rho := 3)", [first])
    assert all(hospital("FROM dp_sql(?, rho := 3)", [other]) == answers for other in others)
    assert hospital.charges() == before + 1


def test_what_an_earlier_version_answered_is_found(hospital: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    before = hospital.charges()
    made = questions.request_of

    def as_written(session, kind, arguments, place, found=None):  # type: ignore[no-untyped-def]
        return made(session, kind, {**arguments, routes.AS_WRITTEN: True}, place, found)

    asked = "SELECT sex, avg(charge) AS m FROM visits v JOIN patients p ON v.patient_id = p.patient_id WHERE v.charge > 1 GROUP BY sex"
    with monkeypatch.context() as patched:
        patched.setattr(questions, "request_of", as_written)
        answers = hospital("FROM dp_sql(?, rho := 2)", [asked])
    assert hospital.charges() == before + 1
    LOADED[hospital("SELECT _dp_loaded()")[0][0]].session.kept(Looked).found.clear()  # as where it is loaded anew
    assert hospital("FROM dp_sql(?, rho := 2)", [asked]) == answers
    assert hospital.charges() == before + 1


@dataclass(frozen=True)
class Asked:
    """A joined question, apart from its words.

    Attributes:
        joins: (table, table, column) of inner joins along a column of both.
        filters: (table, condition over {t}).
        outer: (table of the join, table, column, further condition) of a LEFT JOIN, or none.
        nested: a condition over {table}, with {new} for a table of its own.
        shown: what is selected.
        group: (table, column) that is grouped by, or none.
    """

    joins: tuple[tuple[str, str, str], ...]
    filters: tuple[tuple[str, str], ...]
    outer: tuple[str, str, str, str] | None
    nested: str
    shown: str
    group: tuple[str, str] | None

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys(table for one in self.joins for table in one[:2]))


JOINS = [
    (("visits", "patients", "patient_id"),),
    (("visits", "patients", "patient_id"), ("visits", "clinics", "clinic_id")),
    (("drugs", "visits", "visit_id"), ("visits", "patients", "patient_id")),
    (("drugs", "visits", "visit_id"), ("visits", "patients", "patient_id"), ("visits", "clinics", "clinic_id")),
    (("stays", "patients", "patient_id"), ("visits", "patients", "patient_id")),
    (("drugs", "visits", "visit_id"), ("drugs", "codes", "drug"), ("visits", "patients", "patient_id")),
]
FILTERS = [
    ("visits", "{t}.charge > 3"), ("visits", "{t}.reason = 'flu'"), ("visits", "{t}.reason IN ('leg', 'flu')"),
    ("patients", "{t}.sex = 'f'"), ("patients", "{t}.clinic_id <= 3"), ("clinics", "{t}.beds > 10"), ("drugs", "{t}.days < 3"),
    ("visits", "{t}.paid / 2 > 1"), ("visits", "{t}.day IS NOT NULL"), ("stays", "{t}.ward = 'a'"),
    ("visits", "({t}.charge > 6 OR {t}.reason = 'eye')"), ("patients", "lower({t}.sex) = 'm'"),
]  # fmt: skip
NESTED = [
    "EXISTS (SELECT 1 FROM stays {new} WHERE {new}.patient_id = {patients}.patient_id AND {new}.nights > 2)",
    "{patients}.patient_id IN (SELECT {new}.patient_id FROM stays {new} WHERE {new}.nights > 2)",
    "{visits}.charge > (SELECT avg({new}.nights) FROM stays {new} WHERE {new}.patient_id = {visits}.patient_id)",
]


def asked(rng: random.Random) -> Asked:
    """A random question."""
    joins = rng.choice(JOINS)
    tables = {table for one in joins for table in one[:2]}
    filters = rng.sample([one for one in FILTERS if one[0] in tables], k=rng.randint(1, 3))
    outer = (
        ("patients", "clinics", "clinic_id", "{t}.beds > 20")
        if "clinics" not in tables and rng.random() < 0.4
        else None
    )
    nested = [one for one in NESTED if "visits" in tables or "{visits}" not in one] if rng.random() < 0.4 else [""]
    shown = rng.choice(["count(*) AS n", "count(*) AS n, avg({visits}.charge) AS m", "sum({visits}.charge) AS s"])
    group = rng.choice([None, ("patients", "sex"), ("visits", "reason")])
    return Asked(joins, tuple(filters), outer, rng.choice(nested), shown, group)


def written(asked: Asked, rng: random.Random) -> str:
    """A question in random words."""
    names = {
        table: rng.choice([table[0] + str(rng.randint(0, 99)), f'"{table.upper()} {rng.randint(0, 9)}"', table])
        for table in asked.tables
    }
    with_, inside = [], set()

    def source(table: str) -> str:
        kept = [one for one in asked.filters if one[0] == table]
        way = rng.choice(["plain", "plain", "star", "with", "filtered"])
        name = rng.choice([table, table.upper(), f"main.{table}", f'"{table}"'])
        if way == "plain":
            return name if names[table] == table else f"{name} {rng.choice(['', 'AS '])}{names[table]}"
        if way == "filtered" and kept:
            inside.update(kept)
            where = " AND ".join(one[1].format(t=table) for one in rng.sample(kept, k=len(kept)))
            return f"(SELECT * FROM {table} WHERE {where}) {names[table]}"
        if way == "with":
            with_.append(f"w_{table} AS (SELECT * FROM {table})")
            return f"w_{table} {names[table]}"
        return f"(SELECT * FROM {name}) AS {names[table]}"

    def flipped(one: str, two: str) -> str:
        return f"{one} = {two}" if rng.random() < 0.5 else f"{two} = {one}"

    order = rng.sample(asked.tables, k=len(asked.tables))
    left, seen, text = list(asked.joins), set[str](), ""
    waiting: list[str] = []
    sources = {table: source(table) for table in order}
    for place, table in enumerate(order):
        ready = [one for one in left if table in one[:2] and set(one[:2]) - {table} <= seen]
        on = []
        for one in ready:
            left.remove(one)
            both = flipped(f"{names[one[0]]}.{one[2]}", f"{names[one[1]]}.{rng.choice([one[2], one[2].upper()])}")
            (on if rng.random() < 0.6 and place else waiting).append(both)
        seen.add(table)
        if place == 0:
            text = sources[table]
            continue
        columns = [one[2] for one in ready]
        alone = len(seen) == 2 and len(ready) == 1  # where no third table has the column
        if alone and on and rng.random() < 0.5:
            text += f" JOIN {sources[table]} USING ({columns[0]})"
        elif on:
            text += (
                f" {rng.choice(['JOIN', 'INNER JOIN'])} {sources[table]} ON {' AND '.join(rng.sample(on, k=len(on)))}"
            )
        else:
            text += rng.choice(
                [f", {sources[table]}", f" CROSS JOIN {sources[table]}", f" JOIN {sources[table]} ON true"]
            )
    if asked.outer is not None:
        table, other, column, further = asked.outer
        on = [flipped(f"{names[table]}.{column}", f"o.{column}"), further.format(t="o")]
        text += f" LEFT JOIN {other} AS o ON {' AND '.join(rng.sample(on, k=2))}"
    where = waiting + [one[1].format(t=names[one[0]]) for one in asked.filters if one not in inside]
    if asked.nested:
        where.append(asked.nested.format(**names, new=rng.choice(["z", "nested", "q7"])))
    where += rng.choice([[], ["true"], ["1 = 1"], where[:1]])
    where = rng.sample(where, k=len(where))
    cut = rng.randint(0, len(where))
    where_text = " AND ".join([*where[:cut], *([f"({' AND '.join(where[cut:])})"] if cut < len(where) else [])])
    shown, group = asked.shown.format(**names), ""
    shown = shown.replace("count(*)", rng.choice(["count(*)", "count(1)", "COUNT(*)", "count()"]))
    if asked.group is not None:
        key = f"{names[asked.group[0]]}.{asked.group[1]}"
        shown, group = f"{key}, {shown}", f" GROUP BY {rng.choice([key, '1', 'ALL'])}"
    words = f"WITH {', '.join(with_)} " if with_ else ""
    return f"{words}SELECT {shown} FROM {text}{f' WHERE {where_text}' if where_text else ''}{group}"


def _changed(text: str, pairs: list[tuple[str, str]]) -> str | None:
    return next((text.replace(one, two) for one, two in pairs if one in text), None)


def mutations(asked: Asked) -> Iterator[Asked]:
    """Other questions that look like one."""
    for place, (table, condition) in enumerate(asked.filters):
        rest = [one for i, one in enumerate(asked.filters) if i != place]
        yield replace(asked, filters=tuple(rest))
        swaps = [(" > 3", " >= 3"), ("'flu')", "'eye')"), ("= 'flu'", "<> 'flu'"), ("= 'f'", "= 'm'"), ("<= 3", "< 3"), ("> 10", "> 11"),
                 ("< 3", "> 3"), ("/ 2", "* 2"), ("IS NOT NULL", "IS NULL"), ("'a'", "'b'"), (" OR ", " AND "), ("lower", "upper")]  # fmt: skip
        changed = _changed(condition, swaps)
        assert changed is not None
        yield replace(asked, filters=(*rest, (table, changed)))
        yield replace(asked, filters=(*rest, (table, f"NOT ({condition})")))
    if asked.outer is not None:
        yield replace(asked, outer=None)
        yield replace(asked, outer=(*asked.outer[:3], "{t}.beds > 21"))
        yield replace(asked, nested=f"{asked.nested}{' AND ' if asked.nested else ''}o.beds > 20")
    if asked.nested:
        yield replace(asked, nested="")
        swaps = [("nights > 2", "nights >= 2"), ("avg(", "max(")]
        changed = _changed(asked.nested, swaps)
        assert changed is not None
        yield replace(asked, nested=changed)
        yield replace(asked, nested=f"NOT {asked.nested}" if asked.nested.startswith("EXISTS") else "")
    for before, after in [("avg(", "sum("), ("sum(", "avg("), ("count(*)", "count({visits}.paid)")]:
        if before in asked.shown and ("{visits}" not in after or "visits" in asked.tables):
            yield replace(asked, shown=asked.shown.replace(before, after))
    if "visits" in asked.tables:
        yield replace(
            asked, nested=f"{asked.nested}{' AND ' if asked.nested else ''}{{visits}}.charge < {{visits}}.paid"
        )


@pytest.mark.slow
def test_random_words(hospital: Loaded) -> None:
    _check(hospital, range(4))


@pytest.mark.slow
def test_many_random_words(hospital: Loaded) -> None:
    _check(hospital, range(4, 44))


def _check(hospital: Loaded, seeds: range) -> None:
    """That words make no difference, and meaning does; and that the rows are those of the order in which it was written."""
    for seed in seeds:
        rng = random.Random(seed)
        one = asked(rng)
        if "visits" not in one.tables and "{visits}" in one.shown + one.nested:
            continue
        base = written(one, random.Random(seed))
        try:
            known = request(hospital, base)
        except DPError:  # no group is left, say
            continue
        for other in range(4):
            words = written(one, random.Random(f"{seed} {other}"))
            assert request(hospital, words).to_json() == known.to_json(), (base, words)
        assert rows(hospital, known) == rows(hospital, request(hospital, base, **{routes.AS_WRITTEN: True})), base
        for changed in mutations(one):
            if changed == one:
                continue
            words = written(changed, random.Random(f"{seed} m"))
            with suppress(DPError):
                assert request(hospital, words).to_json() != known.to_json(), (base, words)


def rows(hospital: Loaded, asked: Request) -> list[tuple[object, ...]]:
    """The rows of the relations of a request."""
    found = []
    for part in asked.direct:
        assert part.source is not None
        columns = ", ".join(f'"{name}"' for name, _ in part.columns)
        found += sorted(
            hospital(f"SELECT {', '.join(filter(None, [columns, *part.source.owner]))} FROM ({part.source.sql})"),
            key=repr,
        )
    return found


def test_order_inside_windows_does_not_depend_on_settings(exact: Loaded) -> None:
    exact(
        "CREATE TABLE p (id INTEGER PRIMARY KEY); INSERT INTO p FROM range(40);"
        "CREATE TABLE v (pid INTEGER REFERENCES p (id), x INTEGER); INSERT INTO v SELECT i % 40, CASE WHEN i % 3 > 0 THEN i END FROM range(120) t(i);"
        "CALL dp_protect(['p', 'v'], unit := 'p.id', max_rows := 3, mu := 1000, delta := 1e-9)"
    )
    for order in ("x", "x DESC", "x NULLS FIRST", "x DESC NULLS FIRST"):
        inner = f"SELECT pid, x, row_number() OVER (PARTITION BY pid ORDER BY {order}) AS r FROM v"
        sql = f"SELECT count(*) AS n FROM ({inner}) WHERE r = 1 AND x IS NULL"
        exact("RESET default_order; RESET default_null_order")
        ((true,),) = exact(sql)
        assert true == (40 if "FIRST" in order else 0)
        for setting in ("SELECT 1", "SET default_null_order = 'NULLS FIRST'", "SET default_order = 'DESC'"):
            exact(setting)
            assert exact(f"SELECT n FROM dp_sql('{sql}', mu := 10, fresh := true)") == [(true,)], (order, setting)
