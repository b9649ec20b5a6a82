"""Joins in parentheses, as query builders write them: the rows are DuckDB's, and inner ones are the same question as without."""

import random
from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TABLES = """
CREATE TABLE c (ck INTEGER PRIMARY KEY, n VARCHAR);
INSERT INTO c SELECT i, ['a', 'b', NULL][1 + i % 3] FROM range(20) t(i);
CREATE TABLE o (ok INTEGER PRIMARY KEY, ck INTEGER NOT NULL REFERENCES c (ck), v INTEGER);
INSERT INTO o SELECT i, i * 7 % 17, i % 9 FROM range(80) t(i);
CREATE TABLE l (lk INTEGER PRIMARY KEY, ok INTEGER NOT NULL REFERENCES o (ok), q INTEGER);
INSERT INTO l SELECT i, i * 5 % 71, CASE WHEN i % 6 > 0 THEN i % 7 END FROM range(200) t(i);
CREATE TABLE d (dk INTEGER PRIMARY KEY, ck INTEGER NOT NULL REFERENCES c (ck), w INTEGER);
INSERT INTO d SELECT i, i * 3 % 19, i % 4 FROM range(30) t(i);
CREATE TABLE nat (n VARCHAR PRIMARY KEY, reg VARCHAR);
INSERT INTO nat VALUES ('a', 'x'), ('z', 'y');
"""


def _is_read(text: str) -> bool:
    """Whether this version of DuckDB reads it: (t) alone it did not always."""
    try:
        return bool(duckdb.extract_statements(text))
    except duckdb.Error:
        return False


ALONE = _is_read("SELECT 1 FROM (t)")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("parentheses") / "ledger.dp"
    with duckdb.connect() as connection:
        connection.execute(TABLES)
        duckdb_dp.testing.load(connection, folder, seed=1)
        loaded = Loaded(connection, folder)
        loaded(
            "CALL dp_protect(['c', 'o', 'l', 'd'], unit := 'c.ck', rho := 1e16, max_rows := {'c': 1, 'o': 20, 'l': 60, 'd': 9})"
        )
        loaded("CALL dp_public(['nat'])")
        yield loaded


SAME = [
    (
        "c JOIN o ON c.ck = o.ck JOIN l ON o.ok = l.ok",
        "(c JOIN o ON c.ck = o.ck) JOIN l ON o.ok = l.ok",
        "((c JOIN o ON c.ck = o.ck) JOIN l ON o.ok = l.ok)",
        "c JOIN (o JOIN l ON o.ok = l.ok) ON c.ck = o.ck",
        "((c)) JOIN ((o JOIN ((l)) ON o.ok = l.ok)) ON c.ck = o.ck",
        "c JOIN (o JOIN l USING (ok)) USING (ck)",
        "c NATURAL JOIN (o NATURAL JOIN l)",
        "c, (o JOIN l USING (ok)) WHERE c.ck = o.ck",
        "c JOIN (o JOIN l USING (ok)) AS z ON c.ck = z.ck",
        "(((c) JOIN (o) USING (ck)) JOIN (l) USING (ok))",
        "(c AS x JOIN (o AS y JOIN l AS z ON y.ok = z.ok) ON x.ck = y.ck)",
    ),
    ("c LEFT JOIN o ON c.ck = o.ck", "(c LEFT JOIN o ON c.ck = o.ck)", "(c) LEFT JOIN (o) ON c.ck = o.ck", "(c LEFT JOIN o USING (ck))"),
]  # fmt: skip


@pytest.mark.parametrize("words", SAME)
def test_parentheses_of_inner_joins_are_other_words(shop: Loaded, words: tuple[str, ...]) -> None:
    before = shop.charges()
    read = [text for text in words if _is_read(f"SELECT count(*) AS n FROM {text}")]
    assert len(read) > len(words) / 2
    answers = [shop(f"FROM dp_sql('SELECT count(*) AS n FROM {text}', rho := 0.5)") for text in read]
    assert shop.charges() == before + 1
    assert all(answer == answers[0] for answer in answers)


def _tree(rng: random.Random, tables: list[str]) -> str:
    """A join of tables, each tied to c or to o, with parentheses at random."""
    ties = {("c", "o"): "ck", ("o", "c"): "ck", ("c", "d"): "ck", ("d", "c"): "ck", ("o", "d"): "ck", ("d", "o"): "ck", ("o", "l"): "ok",
            ("l", "o"): "ok", ("c", "nat"): "n", ("nat", "c"): "n"}  # fmt: skip
    if len(tables) == 1:
        return f"({tables[0]})" if ALONE and rng.random() < 0.3 else tables[0]
    for _ in range(100):
        cut = rng.randint(1, len(tables) - 1)
        left, right = tables[:cut], tables[cut:]
        pairs = [(one, two) for one in left for two in right if (one, two) in ties]
        if pairs and all(_tied(side, ties) for side in (left, right)):
            one, two = rng.choice(pairs)
            kind = rng.choice(["JOIN", "JOIN", "LEFT JOIN"])
            right_ = _tree(rng, right)
            right_ = f"({right_})" if len(right) > 1 else right_
            left_ = _tree(rng, left)
            left_ = f"({left_})" if len(left) > 1 and rng.random() < 0.6 else left_
            on = f"{one}.{ties[one, two]} = {two}.{ties[one, two]}"
            return f"{left_} {kind} {right_} ON {f'({on})' if rng.random() < 0.3 else on}"
        rng.shuffle(tables)
    raise AssertionError(tables)


def _tied(tables: list[str], ties: dict[tuple[str, str], str]) -> bool:
    seen, left = {tables[0]}, set(tables[1:])
    while found := {one for one in left if any((one, other) in ties for other in seen)}:
        seen |= found
        left -= found
    return not left


def _check(shop: Loaded, seeds: range) -> None:
    answered = 0
    for seed in seeds:
        rng = random.Random(seed)
        tables = [table for table in ("c", "o", "l", "d", "nat") if table in "co" or rng.random() < 0.6]
        rng.shuffle(tables)
        try:
            source = _tree(rng, tables)
        except AssertionError:
            continue
        names = [table for table in tables if table in "old"]
        sums = ", ".join(f"count({table}.{ {'o': 'v', 'l': 'q', 'd': 'w'}[table] }) AS s_{table}" for table in names)
        select = f"SELECT count(*) AS n, {sums} FROM {source}"
        true = shop(select)
        try:
            found = shop(
                f"SELECT n, {', '.join(f's_{table}' for table in names)} FROM dp_sql(?, rho := 1e13)", [select]
            )
        except duckdb.Error as error:  # a LEFT JOIN from public rows, say
            message = str(error)
            assert (
                "public rows" in message or "belongs to nobody" in message or "owner" in message or "unit" in message
            ), (select, message)
            continue
        answered += 1
        assert [round(value) for value in found[0]] == list(true[0]), select
    assert answered > len(seeds) / 3, answered


def test_rows_of_random_parentheses_are_duckdbs(shop: Loaded) -> None:
    _check(shop, range(7))


@pytest.mark.slow
def test_rows_of_many_random_parentheses_are_duckdbs(shop: Loaded) -> None:
    _check(shop, range(7, 200))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("(c JOIN o ON c.ck = o.v) JOIN l USING (ok)", "c"),
        ("c JOIN (o JOIN l ON o.ok = l.ok) ON c.ck = o.zz", "zz"),
        ("c JOIN (o JOIN c ON true) ON true", "c"),
        ("(c JOIN o USING (ck)) AS z JOIN l ON l.ok = o.ok", "o"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(shop: Loaded, source: str, says: str) -> None:
    before = shop.charges()
    with pytest.raises(duckdb.Error) as error:
        shop(f"FROM dp_sql('SELECT count(*) AS n FROM {source}', rho := 1)")
    first, *rest = str(error.value).split("\n")
    assert says in first
    assert "internal" not in first
    assert all("LINE" in line or "^" in line or not line.strip() or "dp_sql" in line for line in rest)
    assert shop.charges() == before
